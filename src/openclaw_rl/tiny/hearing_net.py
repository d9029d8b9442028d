"""The classifier's network, as it is trained; `judge/encoder.py` computes the same from the weights without torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor, nn
from torch.nn import functional

from openclaw_rl.judge.reading import BUCKETS, MARKS, MOST_WORDS, TurnReading, hashes
from openclaw_rl.tiny.hearing import HEARD, PLACES, SCORES, Heard

KINDS = ("user", "tool", "error")
FRONT = 3  # before the words: who speaks, the request, the reply


@dataclass(frozen=True, slots=True)
class Form:
    """The network's sizes."""

    width: int = 96
    layers: int = 2
    heads: int = 4
    inner: int = 192
    buckets: int = BUCKETS


@dataclass(frozen=True, slots=True)
class Batch:
    """Readings side by side: B of them, T words at most, U different words in all."""

    pieces: Tensor  # hashes of all the different words, one after the other
    starts: Tensor  # [U] where each word's begin in `pieces`
    whole: Tensor  # [U] the hash of the word itself
    words: Tensor  # [B, T] which of the different words; 0 is none
    marks: Tensor  # [B, T, M]
    context: Tensor  # [B, 2, C] words of the request and of the reply
    kinds: Tensor  # [B]


def batch_of(readings: Sequence[TurnReading], member: int = 0) -> Batch:
    """The batch of some readings, in one member's numbers."""
    index: dict[str, int] = {"": 0}

    def number(word: str) -> int:
        return index.setdefault(word, len(index))

    rows = [[number(word) for word in read.words] for read in readings]
    beside = [[[number(word) for word in words] for words in (read.request, read.reply)] for read in readings]
    length = max(1, *(len(row) for row in rows))
    width = max(1, *(len(words) for pair in beside for words in pair))
    pieces: list[int] = []
    starts, whole = [], []
    for word in index:
        found = _hashes(word, member)
        starts.append(len(pieces))
        whole.append(found[0])
        pieces += found[1:] or found[:1]
    blank = (0,) * len(MARKS)
    return Batch(
        torch.tensor(pieces),
        torch.tensor(starts),
        torch.tensor(whole),
        torch.tensor([row + [0] * (length - len(row)) for row in rows]),
        torch.tensor(
            [[*read.marks, *([blank] * (length - len(read.marks)))] for read in readings], dtype=torch.float32
        ),
        torch.tensor([[words + [0] * (width - len(words)) for words in pair] for pair in beside]),
        torch.tensor([KINDS.index(read.kind) for read in readings]),
    )


_hashes = lru_cache(maxsize=200_000)(hashes)  # the same words come again and again in teaching


class EncoderBlock(nn.Module):
    """One layer: every word looks at every other, then at itself; both after a norm."""

    def __init__(self, form: Form, dropout: float) -> None:
        super().__init__()
        self.heads = form.heads
        self.norm_a, self.norm_b = nn.LayerNorm(form.width), nn.LayerNorm(form.width)
        self.mix = nn.Linear(form.width, 3 * form.width)
        self.out = nn.Linear(form.width, form.width)
        self.up, self.down = nn.Linear(form.width, form.inner), nn.Linear(form.inner, form.width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, states: Tensor, seen: Tensor) -> Tensor:
        """[B, S, D] again; `seen` [B, 1, 1, S] are the places that hold something."""
        rows, length, width = states.shape
        mixed = self.mix(self.norm_a(states)).view(rows, length, 3, self.heads, width // self.heads)
        query, key, value = (part.transpose(1, 2) for part in mixed.unbind(2))
        looked = functional.scaled_dot_product_attention(query, key, value, attn_mask=seen)
        states = states + self.dropout(self.out(looked.transpose(1, 2).reshape(rows, length, width)))
        made: Tensor = states + self.dropout(self.down(functional.relu(self.up(self.norm_b(states)))))
        return made


class Net(nn.Module):
    """Words to a score, a wish, a place and where a literal begins and ends."""

    def __init__(self, form: Form, *, member: int = 0, dropout: float = 0.15, forget: float = 0.3) -> None:
        super().__init__()
        self.form, self.member, self.forget = form, member, forget
        self.pieces = nn.EmbeddingBag(form.buckets, form.width, mode="mean")
        self.marks = nn.Linear(len(MARKS), form.width)
        self.from_start = nn.Embedding(MOST_WORDS + 1, form.width)
        self.from_end = nn.Embedding(MOST_WORDS + 1, form.width)
        self.kinds = nn.Embedding(len(KINDS), form.width)
        self.beside = nn.Linear(form.width, 2 * form.width)
        self.near = nn.Linear(3 * form.width, form.width)
        self.norm_near, self.norm_out = nn.LayerNorm(form.width), nn.LayerNorm(form.width)
        self.blocks = nn.ModuleList(EncoderBlock(form, dropout) for _ in range(form.layers))
        self.score = nn.Linear(3 * form.width, len(SCORES))
        self.wish = nn.Linear(3 * form.width, len(HEARD))
        self.place = nn.Linear(3 * form.width, len(PLACES))
        self.ends = nn.Linear(form.width, 2)
        self.dropout = nn.Dropout(dropout)

    def begin(self) -> None:
        """Fresh weights, by torch's own seed."""
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.LayerNorm):
                module.reset_parameters()
        nn.init.normal_(self.pieces.weight, std=0.3)
        for held in (self.from_start, self.from_end, self.kinds):
            nn.init.normal_(held.weight, std=0.1)

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Logits: scores [B, 3], wishes [B, W], places [B, P], and per word its being first and last [B, T, 2]."""
        parts = self.pieces(batch.pieces, batch.starts)
        whole = functional.embedding(batch.whole, self.pieces.weight)
        if self.training:
            whole = whole * (torch.rand(len(whole), 1) >= self.forget)
        vectors = parts + whole
        vectors = vectors * (torch.arange(len(vectors)) > 0)[:, None]
        is_word = batch.words > 0  # [B, T]
        counts = is_word.sum(1, keepdim=True)
        places = torch.arange(batch.words.shape[1])[None]
        words = vectors[batch.words] + self.marks(batch.marks)
        words = words + self.from_start(places.clamp(max=MOST_WORDS)) + self.from_end((counts - places).clamp(min=0))
        words = self.dropout(words) * is_word[..., None]
        padded = functional.pad(words, (0, 0, 1, 1))
        words = (
            words
            + functional.relu(
                self.near(self.norm_near(torch.stack((padded[:, :-2], words, padded[:, 2:]), 2)).flatten(2))
            )
            * is_word[..., None]
        )
        held = (batch.context > 0).sum(2, keepdim=True).clamp(min=1)
        beside = vectors[batch.context].sum(2) / held  # [B, 2, D]
        request, reply = self.beside(beside).chunk(2, -1)
        front = torch.stack((self.kinds(batch.kinds), request[:, 0], reply[:, 1]), 1)
        states = torch.cat((front, words), 1)
        seen = torch.cat((torch.ones(len(states), FRONT, dtype=torch.bool), is_word), 1)[:, None, None]
        for block in self.blocks:
            states = block(states, seen)
        states = self.norm_out(states)
        spoken = states[:, FRONT:]
        mean = (spoken * is_word[..., None]).sum(1) / counts.clamp(min=1)
        highest = spoken.masked_fill(~is_word[..., None], -1e4).amax(1) * (counts > 0)
        pooled = self.dropout(torch.cat((states[:, 0], mean, highest), -1))
        ends = self.ends(spoken).masked_fill(~is_word[..., None], -1e4)
        return self.score(pooled), self.wish(pooled), self.place(pooled), ends


def loss_of(net: Net, examples: Sequence[Heard]) -> Tensor:
    """The mean loss over examples, all heads together."""
    score, wish, place, ends = net(batch_of([item.reading for item in examples], net.member))
    scores = torch.tensor([SCORES.index(item.score) for item in examples])
    wishes = torch.tensor([_number(item.wish) for item in examples])
    places = torch.tensor([PLACES.index(item.place) for item in examples])
    first, last = (torch.tensor(found) for found in zip(*((item.first, item.last) for item in examples), strict=True))
    loss = functional.cross_entropy(score, scores, label_smoothing=0.03)
    loss = loss + functional.cross_entropy(wish, wishes, label_smoothing=0.03)
    loss = loss + 0.2 * functional.cross_entropy(place, places)
    if (first >= 0).any():
        for end, at in ((0, first), (1, last)):
            loss = loss + 0.5 * functional.cross_entropy(ends[..., end], at, ignore_index=-1)
    return loss


@lru_cache
def _number(wish: str) -> int:
    return HEARD.index(wish)
