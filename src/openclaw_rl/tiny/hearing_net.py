"""The classifier's network as it is trained; `judge/encoder.py` computes the same from its weights without torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor, nn
from torch.nn import functional

from openclaw_rl.judge.encoder import UNKNOWN, Spelling, WordRows
from openclaw_rl.judge.reading import MARKS, MOST_WORDS, TurnReading
from openclaw_rl.tiny.hearing import HEARD, PLACES, SCORES, Heard

KINDS = ("user", "tool", "error")
RowsOf = Callable[[str], WordRows]
FRONT = 3  # places before the words: who speaks, the request, the reply


@dataclass(frozen=True, slots=True)
class Form:
    """The network's sizes."""

    width: int = 96
    layers: int = 2
    heads: int = 4
    inner: int = 192
    rows: int = 46000  # of the table: one for the unknown, then known words, then letter groups


@dataclass(frozen=True, slots=True)
class Batch:
    """B readings together, of at most T words with M marks each; U different words in all, counting the empty one.

    C is the most words of a request or a reply.
    """

    used: Tensor  # the rows of the table that the words are read by; the first is that of the unknown
    pieces: Tensor  # indexes in `used`: the letter groups of each word, one word after the other
    starts: Tensor  # [U] where the groups of each word begin in `pieces`
    whole: Tensor  # [U] the index in `used` of the word, or of the known word that may be meant; 0 if none
    known: Tensor  # [U] 1 if the word itself is known, else 0
    words: Tensor  # [B, T] the index of each word among the different words; 0 for none
    marks: Tensor  # [B, T, M]
    context: Tensor  # [B, 2, C] as `words`, for the request and the reply
    kinds: Tensor  # [B] who speaks, as an index in `KINDS`


def batch_of(readings: Sequence[TurnReading], rows: RowsOf) -> Batch:
    """The batch of some readings; `rows` returns the rows of the table that a word is read by."""
    index: dict[str, int] = {"": 0}

    def number(word: str) -> int:
        return index.setdefault(word, len(index))

    said = [[number(word) for word in read.words] for read in readings]
    beside = [[[number(word) for word in words] for words in (read.request, read.reply)] for read in readings]
    length = max(1, *(len(row) for row in said))
    width = max(1, *(len(words) for pair in beside for words in pair))
    pieces: list[int] = [UNKNOWN]
    starts, whole, known = [], [UNKNOWN], []
    for word in index:
        found = rows(word)
        starts.append(len(pieces) - 1)
        whole.append(found.whole)
        known.append(found.is_known)
        pieces += found.parts
    used, places = torch.unique(torch.tensor(whole + pieces), return_inverse=True)  # UNKNOWN is the least
    blank = (0,) * len(MARKS)
    return Batch(
        used,
        places[len(whole) + 1 :],
        torch.tensor(starts),
        places[1 : len(whole)],
        torch.tensor(known, dtype=torch.float32),
        torch.tensor([row + [0] * (length - len(row)) for row in said]),
        torch.tensor(
            [[*read.marks, *([blank] * (length - len(read.marks)))] for read in readings], dtype=torch.float32
        ),
        torch.tensor([[words + [0] * (width - len(words)) for words in pair] for pair in beside]),
        torch.tensor([KINDS.index(read.kind) for read in readings]),
    )


def rows_of(spelling: Spelling) -> RowsOf:
    """The function that returns a word's rows, with a cache, because the same words come again and again."""
    return lru_cache(maxsize=400_000)(spelling.rows)


class EncoderBlock(nn.Module):
    """One layer: attention between all places, then a network for each place; both after a layer norm."""

    def __init__(self, form: Form, dropout: float) -> None:
        super().__init__()
        self.heads = form.heads
        self.norm_a, self.norm_b = nn.LayerNorm(form.width), nn.LayerNorm(form.width)
        self.mix = nn.Linear(form.width, 3 * form.width)
        self.out = nn.Linear(form.width, form.width)
        self.up, self.down = nn.Linear(form.width, form.inner), nn.Linear(form.inner, form.width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, states: Tensor, seen: Tensor) -> Tensor:
        """States [B, S, D] to states of the same shape; `seen` [B, 1, 1, S] is False for padding."""
        rows, length, width = states.shape
        mixed = self.mix(self.norm_a(states)).view(rows, length, 3, self.heads, width // self.heads)
        query, key, value = (part.transpose(1, 2) for part in mixed.unbind(2))
        looked = functional.scaled_dot_product_attention(query, key, value, attn_mask=seen)
        states = states + self.dropout(self.out(looked.transpose(1, 2).reshape(rows, length, width)))
        made: Tensor = states + self.dropout(self.down(functional.relu(self.up(self.norm_b(states)))))
        return made


class Net(nn.Module):
    """The network: from words to a score, a wish, a place, and the first and last word of a literal.

    While it trains, a word is read as if it were unknown with the probability `forget`, and a word of the message is
    set to zero with the probability `lose`.
    """

    def __init__(
        self, form: Form, *, member: int = 0, dropout: float = 0.15, forget: float = 0.2, lose: float = 0.04
    ) -> None:
        super().__init__()
        self.form, self.member, self.forget, self.lose = form, member, forget, lose
        self.pieces = nn.Embedding(form.rows, form.width)
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
        """Initialises the weights, with torch's random generator."""
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.LayerNorm):
                module.reset_parameters()
        nn.init.normal_(self.pieces.weight, std=0.1)
        for held in (self.from_start, self.from_end, self.kinds):
            nn.init.normal_(held.weight, std=0.1)

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Logits: scores [B, 3], wishes [B, W], places [B, P], and a literal's first and last word [B, T, 2]."""
        vectors = self._vectors(batch)
        is_word = batch.words > 0  # [B, T]
        counts = is_word.sum(1, keepdim=True)
        places = torch.arange(batch.words.shape[1])[None]
        words = vectors[batch.words] + self.marks(batch.marks)
        words = words + self.from_start(places.clamp(max=MOST_WORDS)) + self.from_end((counts - places).clamp(min=0))
        words = self.dropout(words) * is_word[..., None]
        if self.training:
            words = words * (torch.rand(*words.shape[:2], 1) >= self.lose)
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

    def _vectors(self, batch: Batch) -> Tensor:
        """The vectors [U, D] of the different words; that of the first, the empty word, is zero."""
        table = self.pieces(batch.used)
        known = batch.known
        whole = functional.embedding(batch.whole, table) * (batch.whole != UNKNOWN)[:, None]
        if self.training:
            kept = (torch.rand(len(known)) >= self.forget).float()
            known, whole = known * kept, whole * kept[:, None]
        vectors = functional.embedding_bag(batch.pieces, table, batch.starts, mode="mean") + whole
        vectors = vectors + (1 - known)[:, None] * table[UNKNOWN]
        made: Tensor = vectors * (torch.arange(len(vectors)) > 0)[:, None]
        return made


def loss_of(net: Net, examples: Sequence[Heard], rows: RowsOf) -> Tensor:
    """The mean loss over examples: the weighted sum of all heads' cross-entropies, in nats."""
    score, wish, place, ends = net(batch_of([item.reading for item in examples], rows))
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
