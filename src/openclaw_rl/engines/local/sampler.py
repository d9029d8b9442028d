"""Draws one token a row, and its log-probabilities.

Each draw takes one number of a stream that the request owns, so other requests in the batch change nothing, and a
resumed request continues its own stream.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from openclaw_rl.core.sampling import LogitAdjustment, Sampling
from openclaw_rl.engines.local.masks import Masks
from openclaw_rl.engines.local.wire import Top

DEPTHS = (64, 1024)  # how many of the likeliest are sorted before the whole vocabulary is
LEAST_LEFT = -46.0  # nats: a sum of shares below 1e-20 is computed on the scale of its logits instead
LEAST_HEAT = 1e-6  # the lowest temperature used: logits divided by less leave the range of float32


class LogitAdjuster:
    """Biases and penalties of one row, given the tokens it has read and sampled."""

    def __init__(self, leaning: LogitAdjustment, prompt: Sequence[int], said: Sequence[int], vocab_size: int) -> None:
        self._leaning = leaning
        self._bias = [(token, value) for token, value in leaning.bias if token < vocab_size]
        self._said = Counter(said)
        self._seen = {*prompt, *said} if leaning.repetition != 1.0 else set[int]()

    def take(self, token: int) -> None:
        """The row has sampled one more token."""
        self._said[token] += 1
        if self._leaning.repetition != 1.0:
            self._seen.add(token)

    def apply(self, logits: Tensor) -> None:
        """Changes the logits [V] in place."""
        leaning, device = self._leaning, logits.device
        if self._bias:
            ids = torch.tensor([token for token, _ in self._bias], device=device)
            logits[ids] += torch.tensor([value for _, value in self._bias], device=device)
        if self._seen:
            ids = torch.tensor(sorted(self._seen), device=device)
            held = logits[ids]
            logits[ids] = torch.where(held > 0, held / leaning.repetition, held * leaning.repetition)
        if self._said and (leaning.presence or leaning.frequency):
            ids = torch.tensor(list(self._said), device=device)
            counts = torch.tensor([float(count) for count in self._said.values()], device=device)
            logits[ids] -= leaning.presence + leaning.frequency * counts


@dataclass(frozen=True, slots=True)
class Draw:
    """How one row's token is drawn: `uniform` is in [0, 1)."""

    sampling: Sampling
    uniform: float
    leanings: LogitAdjuster | None = None


@dataclass(frozen=True, slots=True)
class DrawnTokens:
    """One entry a row. `masked` has, for rows with a grammar, the fields of SampledToken about it."""

    tokens: list[int]
    logp_sampled: list[float]
    logp: list[float]
    top: dict[int, Top]
    masked: dict[int, tuple[float, bool]] = field(default_factory=dict)


def uniform(seed: int, draw: int) -> float:
    """Number `draw` of the seed's stream: a hash, so it needs no state and can be computed out of order."""
    digest = hashlib.blake2b(f"{seed}:{draw}".encode(), digest_size=8).digest()
    # below 1 - 2^-22: float32 must not round a product with it up to the whole
    return (int.from_bytes(digest, "little") >> 42) / float(1 << 22)


def sample(logits: Tensor, draws: Sequence[Draw], masks: Masks | None = None) -> DrawnTokens:
    """Tokens for logits [rows, V]. `logp` and `top` are the model's own, whatever the sampling options."""
    logits = logits.float()
    device = logits.device
    asks = [draw.sampling for draw in draws]
    uniforms = torch.tensor([draw.uniform for draw in draws], device=device)
    logp_all = torch.log_softmax(logits, -1)
    if masks is not None and all(_is_plain(draw) for draw in draws):
        quick = _drawn_plainly(logp_all, uniforms, asks, masks)
        if quick is not None:
            return quick
    shaped, scaled, masked_all = _shaped(logits, logp_all, draws, masks)
    if any(ask.temperature not in (0.0, 1.0) for ask in asks):
        heat = torch.tensor(
            [max(ask.temperature, LEAST_HEAT) if ask.temperature else 1.0 for ask in asks], device=device
        )
        shaped, scaled = shaped / heat[:, None], None
    if scaled is None:
        scaled = torch.log_softmax(shaped, -1)
    # if most tokens are forbidden, exp takes three times as long as softmax
    shares = None if masked_all is None else shaped.softmax(-1)
    tokens, logp_sampled = _drawn(shaped, scaled, shares, uniforms, asks)
    logp = logp_all.gather(1, tokens[:, None])[:, 0]
    table = torch.stack([tokens.double(), logp_sampled.double(), logp.double()]).tolist()
    drawn = DrawnTokens([int(token) for token in table[0]], table[1], table[2], _tops(logp_all, asks))
    if masks is not None and masked_all is not None:
        rows = torch.tensor(masks.rows, device=device)
        held = masked_all.gather(1, tokens[rows][:, None])[:, 0].tolist()
        drawn.masked.update(zip(masks.rows, zip(held, masks.forced, strict=True), strict=True))
    return drawn


def _is_plain(draw: Draw) -> bool:
    ask = draw.sampling
    return ask.temperature == 1.0 and not _is_cut(ask) and draw.leanings is None


def _drawn_plainly(logp_all: Tensor, uniforms: Tensor, asks: list[Sampling], masks: Masks) -> DrawnTokens | None:
    """Draws at temperature 1 from the allowed tokens, without a second softmax: log p(a) - log sum of p allowed.

    None if a grammar leaves so little that float32 cannot represent the sum.
    """
    shares = logp_all.exp()
    is_all = len(masks.rows) == len(asks)
    if is_all:
        shares *= masks.allowed
    else:
        shares[list(masks.rows)] *= masks.allowed
    sums = shares.cumsum(-1)
    left = sums[:, -1]
    tokens = torch.searchsorted(sums, (uniforms * left)[:, None], right=True)[:, 0]
    tokens.clamp_(max=logp_all.shape[1] - 1)
    logp = logp_all.gather(1, tokens[:, None])[:, 0]
    table = torch.stack([tokens.double(), logp.double(), left.double().log()]).tolist()
    if min(table[2]) < LEAST_LEFT:
        return None
    drawn = DrawnTokens([int(token) for token in table[0]], list(table[1]), table[1], _tops(logp_all, asks))
    for entry, is_forced in zip(masks.rows, masks.forced, strict=True):
        # rounding must not make a token more than certain, nor the only allowed one less
        held = 0.0 if is_forced else min(0.0, table[1][entry] - table[2][entry])
        drawn.logp_sampled[entry] = held
        drawn.masked[entry] = (held, is_forced)
    return drawn


def _shaped(
    logits: Tensor, logp_all: Tensor, draws: Sequence[Draw], masks: Masks | None
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """The logits that are drawn from, their log-probabilities if known, and the model's own log-probabilities under the
    grammars at temperature 1, [guided, V].
    """
    leaning = [(row, draw.leanings) for row, draw in enumerate(draws) if draw.leanings is not None]
    if masks is None and not leaning:
        return logits, logp_all, None
    masked_all = None
    if masks is None:
        shaped = logits.clone()
    elif len(masks.rows) == len(draws):
        shaped = logits + masks.forbidden()
        masked_all = torch.log_softmax(shaped, -1)
        if not leaning:
            return shaped, masked_all, masked_all
    else:
        rows = torch.tensor(masks.rows, device=logits.device)
        held = logits[rows] + masks.forbidden()
        masked_all = torch.log_softmax(held, -1)
        shaped = logits.clone()
        shaped[rows] = held
    for row, leanings in leaning:
        leanings.apply(shaped[row])
    return shaped, None, masked_all


def _drawn(
    shaped: Tensor, scaled: Tensor, shares: Tensor | None, uniforms: Tensor, asks: list[Sampling]
) -> tuple[Tensor, Tensor]:
    """The tokens, and their log-probabilities in the distribution they were drawn from."""
    device = scaled.device
    cut = [row for row, ask in enumerate(asks) if ask.temperature and _is_cut(ask)]
    greedy = [row for row, ask in enumerate(asks) if not ask.temperature]
    if len(cut) + len(greedy) < len(asks):
        tokens = _invert(scaled.exp() if shares is None else shares, uniforms)
        logp_sampled = scaled.gather(1, tokens[:, None])[:, 0]
    else:
        tokens = torch.zeros(len(asks), dtype=torch.long, device=device)
        logp_sampled = torch.zeros(len(asks), device=device)
    if greedy:
        rows = torch.tensor(greedy, device=device)
        tokens[rows] = shaped[rows].argmax(-1)
        logp_sampled[rows] = 0.0
    if cut:
        _sample_cut(scaled, uniforms, cut, asks, into=(tokens, logp_sampled))
    return tokens, logp_sampled


def top_of(logp_all: Tensor, count: int) -> list[Top]:
    """The `count` likeliest (id, logp) of each row."""
    values, ids = logp_all.topk(min(count, logp_all.shape[1]), -1)
    return [tuple(zip(a, b, strict=True)) for a, b in zip(ids.tolist(), values.tolist(), strict=True)]


def _tops(logp_all: Tensor, asks: list[Sampling]) -> dict[int, Top]:
    rows = [row for row, ask in enumerate(asks) if ask.top_logprobs]
    if not rows:
        return {}
    most = top_of(logp_all[rows], max(asks[row].top_logprobs for row in rows))
    return {row: top[: asks[row].top_logprobs] for row, top in zip(rows, most, strict=True)}


def _is_cut(ask: Sampling) -> bool:
    return ask.top_k > 0 or ask.top_p < 1.0 or ask.min_p > 0.0


def _invert(probabilities: Tensor, uniforms: Tensor) -> Tensor:
    """The first entry at which the running sum exceeds its row's uniform number; never one of probability 0."""
    sums = probabilities.cumsum(-1)
    spots = torch.searchsorted(sums, uniforms[:, None] * sums[:, -1:], right=True)[:, 0]
    return spots.clamp_(max=probabilities.shape[1] - 1)


def _sample_cut(
    scaled: Tensor, uniforms: Tensor, rows: list[int], asks: list[Sampling], *, into: tuple[Tensor, Tensor]
) -> None:
    """Rows with top_k, top_p or min_p, in that order as transformers applies them; each as deep as it needs."""
    size = scaled.shape[1]
    for depth in (*(depth for depth in DEPTHS if depth < size), size):
        values, ids = scaled[rows].topk(depth, -1)
        kept, is_enough = _kept(values, [asks[row] for row in rows], is_all=depth == size)
        probabilities = values.exp() * kept
        spots = _invert(probabilities, uniforms[rows])[:, None]
        done = [entry for entry, enough in enumerate(is_enough) if enough]
        if done:
            target = torch.tensor([rows[entry] for entry in done], device=scaled.device)
            into[0][target] = ids.gather(1, spots)[done, 0]
            share = values.gather(1, spots)[:, 0] - probabilities.sum(-1).log()
            into[1][target] = share.clamp_(max=0.0)[done]  # rounding must not make a lone survivor more than certain
        rows = [row for row, enough in zip(rows, is_enough, strict=True) if not enough]
        if not rows:
            return


def _kept(values: Tensor, asks: list[Sampling], *, is_all: bool) -> tuple[Tensor, list[bool]]:
    """Which of the likeliest survive the cuts [rows, depth], and for which rows the depth was enough to know."""
    device, depth = values.device, values.shape[1]
    probabilities = values.exp()
    # clients send any number, and one above int64 would end the process
    top_k = torch.tensor([min(ask.top_k or depth, depth) for ask in asks], device=device)[:, None]
    in_k = torch.arange(depth, device=device) < top_k
    before = (probabilities * in_k).cumsum(-1) - probabilities * in_k
    # top_p takes its share of what top_k leaves
    whole = torch.tensor([[float(ask.top_k == 0 or ask.top_k > depth)] for ask in asks], device=device)
    whole = torch.where(whole > 0, torch.ones_like(whole), (probabilities * in_k).sum(-1, keepdim=True))
    if is_all:
        whole = (probabilities * in_k).sum(-1, keepdim=True)
    top_p = torch.tensor([ask.top_p for ask in asks], device=device)[:, None]
    in_p = (before < top_p * whole) | (top_p >= 1.0)
    in_p[:, 0] = True
    floor = torch.tensor([ask.min_p for ask in asks], device=device)[:, None]
    in_min = probabilities >= floor * probabilities[:, :1]
    kept = in_k & in_p & in_min
    if is_all:
        return kept, [True] * len(asks)
    # if k exceeds the depth, the sum is unknown; else the depth is enough if its last entry was cut
    fell = (~kept[:, -1]).tolist()
    return kept, [0 < ask.top_k <= depth or (ask.top_k == 0 and gone) for ask, gone in zip(asks, fell, strict=True)]
