"""How far two models' distributions are apart, and how often one departs from the other, by the likeliest tokens."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence

from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.protocols import Engine
from openclaw_rl.core.turn import Turn
from openclaw_rl.core.version import BASE, PolicyVersion

LEAST_MASS = 1e-9
Top = tuple[tuple[int, float], ...]
LIKELIER = 10.0  # a token that a version finds this many times likelier than any reading is not the base model's
SURE = 0.8  # a token to which each reading gives this probability is content: no wish concerns it
APART = 7.0  # nats by which the tokens before are less likely in a reading that a reply has left
INSTEAD = 0.5  # from this probability on, words of a reading that the reply has left count as a departure
WISHED = 0.05  # a token with this probability in one reading, and at most half of it in another, concerns a wish
LEAST = 1e-9


def divergence(candidate: Top, base: Top) -> float:
    """A lower bound of KL(candidate || base) at one position, in nats.

    Both are the likeliest (id, logp) of their model. Tokens that both name are compared one by one, those that only
    the base names as one bin, all others as another. For each token in the first bin the candidate's probability is
    known only to be at most that of its least likely named token; the value with the smallest divergence is used.
    """
    named = dict(candidate)
    shared = [(named[token], logp) for token, logp in base if token in named]
    unnamed = [math.exp(logp) for token, logp in base if token not in named]
    left = max(1.0 - sum(math.exp(logp) for logp, _ in shared), LEAST_MASS)
    base_unnamed = sum(unnamed)
    base_rest = max(1.0 - sum(math.exp(logp) for _, logp in shared) - base_unnamed, LEAST_MASS)
    most = len(unnamed) * math.exp(min(named.values(), default=0.0))
    in_unnamed = min(most, left * base_unnamed / (base_unnamed + base_rest))
    bins = [(in_unnamed, base_unnamed), (left - in_unnamed, base_rest)]
    return sum(math.exp(logp) * (logp - other) for logp, other in shared) + sum(
        mass * math.log(mass / other) for mass, other in bins if mass > 0.0
    )


def sum_of_divergence(candidate: Sequence[Top], base: Sequence[Top]) -> float:
    """The sum over positions."""
    return sum(divergence(one, other) for one, other in zip(candidate, base, strict=True))


async def distance(engine: Engine, turns: Sequence[Turn], version: PolicyVersion, *, top_k: int) -> float | None:
    """The mean over all tokens of these replies of a version's divergence from the base model, in nats.

    Not finite if the version's log-probabilities are not; None without turns. Raises EngineError or RequestError if the
    engine cannot be asked now.
    """
    total, tokens = 0.0, 0
    for turn in turns:
        prompt, start = Prompt(turn.prompt.tokens + turn.completion.tokens, images=turn.prompt.images), len(turn.prompt)
        tried = await engine.score(prompt, start=start, version=version, top_k=top_k)
        if any(not math.isfinite(value) for value in tried.logp):
            return math.nan
        base = await engine.score(prompt, start=start, version=BASE, top_k=top_k)
        total += await asyncio.to_thread(sum_of_divergence, tried.top, base.top)
        tokens += len(tried.top)
    return total / tokens if tokens else None


def mean_divergence(candidate: Sequence[Top], base: Sequence[Top]) -> float:
    """The mean over positions; there is at least one."""
    return sum_of_divergence(candidate, base) / len(candidate)


def departure(candidate: Top, readings: Sequence[Top], *, temperature: float) -> float:
    """The probability that the next token, drawn at this temperature, is not one that the base model could have said.

    The base model reads a prompt in several ways: unchanged, and with the wishes of its user in it. A version that
    learned these wishes replies as the base model does in one of the readings, or somewhere between them. It departs if
    it says a token that none of them would, or loses a token that all of them are sure of. The figures are
    probabilities, so they mean the same for a model of any size. A probability of one in twenty shows in a few replies,
    before one goes wrong.

    It is the larger of two: the probability that the candidate gives to tokens `LIKELIER` than under any reading, and,
    if all readings are `SURE` of one token, the probability that it takes from that one. Probability given to a token
    that the wishes make likelier is not lost, unless it is much more: a wish that the base model follows sometimes is
    followed.
    """
    if not candidate or not all(readings):
        return 0.0
    drawn = _drawn(candidate, temperature)
    known = [dict(reading) for reading in readings]
    most = [_most_unnamed(reading) for reading in readings]
    high = {
        token: max(reading.get(token, unnamed) for reading, unnamed in zip(known, most, strict=True))
        for token, _ in candidate
    }
    strange = sum(drawn[token] for token, logp in candidate if logp - math.log(LIKELIER) > high[token])
    likeliest = {max(reading, key=lambda item: item[1])[0] for reading in readings}
    token = likeliest.pop()
    if likeliest or min(reading[token] for reading in known) < math.log(SURE):
        return strange
    kept = min(_drawn(reading, temperature)[token] for reading in readings)
    wished = sum(
        drawn[other]
        for other, logp in candidate
        if other != token and logp - math.log(LIKELIER) <= high[other] and _is_wished(other, known)
    )
    return max(strange, kept - drawn.get(token, 0.0) - wished)


def departures(
    candidate: Sequence[Top], readings: Sequence[Sequence[Top]], logps: Sequence[Sequence[float]], *, temperature: float
) -> list[float]:
    """The departure at each token of one reply, which each reading has read and found as likely as its `logps` say.

    A reading may lend a word to what it would not have said so far: a version with a half-learned wish goes on as the
    base model does without it. But if the version most likely says such a word where the readings that the reply has
    kept to would not, it is one that nobody would say there: a model may repeat a name where it never saw the wished
    form, and so the plain prompt alone would excuse the wrong name. (docs/decisions/0055-one-reading-at-a-time.md)
    """
    found = []
    so_far = [0.0] * len(readings)
    for at, top in enumerate(candidate):
        tops = [each[at] for each in readings]
        share = departure(top, tops, temperature=temperature)
        kept = [each for each, nats in zip(tops, so_far, strict=True) if nats >= max(so_far) - APART]
        if len(kept) < len(tops):
            alone = departure(top, kept, temperature=temperature)
            share = max(share, alone) if alone >= INSTEAD else share
        found.append(share)
        so_far = [nats + each[at] for nats, each in zip(so_far, logps, strict=True)]
    return found


def _is_wished(token: int, readings: Sequence[dict[int, float]]) -> bool:
    """Whether the readings differ about a token that one of them would say: a wish concerns it."""
    given = [math.exp(reading[token]) if token in reading else 0.0 for reading in readings]
    return max(given) >= WISHED and 2 * min(given) <= max(given)


def chance(departures: Sequence[float], reached: Sequence[float] = ()) -> float:
    """The chance that a reply departs anywhere, from the chances of its tokens and of reaching each."""
    left = 1.0
    for index, one in enumerate(departures):
        left *= 1.0 - min(1.0, one) * (reached[index] if reached else 1.0)
    return 1.0 - left


def reached(candidate: Sequence[float], readings: Sequence[Sequence[float]]) -> list[float]:
    """How likely the candidate reaches each token of a reply sampled in a reading, relative to that reading.

    All are log-probabilities of the reply's own tokens. What the candidate would say after words that it never says
    does not matter: a wish that is not yet learned is not damage.
    """
    found, share = [], 1.0
    for index, logp in enumerate(candidate):
        found.append(share)
        share *= min(1.0, math.exp(min(0.0, logp - max(reading[index] for reading in readings))))
    return found


def _drawn(top: Top, temperature: float) -> dict[int, float]:
    """The chances of the named tokens at a temperature; others are left out, since they are even less likely."""
    best = max(logp for _, logp in top)
    heat = max(temperature, 0.05)
    weights = {token: math.exp((logp - best) / heat) for token, logp in top}
    total = sum(weights.values())
    return {token: weight / total for token, weight in weights.items()}


def _most_unnamed(top: Top) -> float:
    """The highest log-probability that a token outside the top may have."""
    rest = 1.0 - sum(math.exp(logp) for _, logp in top)
    return min(math.log(max(rest, LEAST)), *(logp for _, logp in top))
