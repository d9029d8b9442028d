"""Whether a version follows the wishes it was trained for, and still those of earlier versions; and which ones yield.

A version follows a hint's wish if it replies without the hint as the base model does given the hint. The gap between
the two is the divergence of their distributions over the reply, in nats a token.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from openclaw_rl.core.hint import Hint
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.protocols import Engine, Renderer
from openclaw_rl.core.sample import Sample
from openclaw_rl.core.version import BASE, PolicyVersion
from openclaw_rl.errors import RequestError
from openclaw_rl.publish.divergence import Top, mean_divergence
from openclaw_rl.store.db import Store
from openclaw_rl.store.rows import VersionRow, VersionStatus
from openclaw_rl.wording.likeness import asks_alike, is_same_wish

LOOKED_AT = 16  # versions before the one being tried
EXPLAINS = 0.5  # share of a hint's change that another hint makes too: then both ask for the same


@dataclass(frozen=True, slots=True)
class MeanShift:
    """A mean over some samples, with the served version and with the tried one."""

    before: float
    after: float

    @property
    def rise(self) -> float:
        """How much higher it is with the tried version."""
        return self.after - self.before


async def gaps(
    engine: Engine, samples: Sequence[Sample], *, before: PolicyVersion, after: PolicyVersion, top_k: int
) -> list[tuple[Sample, MeanShift]]:
    """How far each sample with hints is from the replies given these hints."""
    found = []
    for sample in samples:
        if not sample.hints:
            continue
        teacher = await top_tokens(engine, sample.hints[0].tokens, sample.response, BASE, top_k)
        both = []
        for version in (before, after):
            said = await top_tokens(engine, sample.prompt, sample.response, version, top_k)
            both.append(await asyncio.to_thread(mean_divergence, teacher, said))
        found.append((sample, MeanShift(*both)))
    return found


def mean(found: Sequence[tuple[Sample, MeanShift]]) -> MeanShift | None:
    """The mean of these changes; None if there are none."""
    if not found:
        return None
    before = sum(change.before for _, change in found) / len(found)
    return MeanShift(before, sum(change.after for _, change in found) / len(found))


async def approval(
    engine: Engine, samples: Sequence[Sample], *, before: PolicyVersion, after: PolicyVersion
) -> MeanShift | None:
    """The mean over samples without hints of score times log-probability a token: praised replies up, others down.

    Steps of episodes are left out: a step's own score says little without its outcome and its peers.
    """
    scored = [sample for sample in samples if sample.score and not sample.hints and sample.outcome is None]
    if not scored:
        return None
    totals = [0.0, 0.0]
    for sample in scored:
        for index, version in enumerate((before, after)):
            found = await engine.score(
                Prompt(sample.prompt + sample.response), start=len(sample.prompt), version=version
            )
            totals[index] += (sample.score or 0.0) * sum(found.logp) / len(found.logp)
    return MeanShift(totals[0] / len(scored), totals[1] / len(scored))


def still_wished(kept: Sequence[Sample], own: Sequence[Sample]) -> list[Sample]:
    """The samples of earlier steps with wishes that the step's own hints neither repeat nor reverse."""
    now = [hint.text for sample in own for hint in sample.hints]
    return [
        sample
        for sample in kept
        if sample.hints and not any(is_same_wish(hint.text, text) for hint in sample.hints for text in now)
    ]


async def top_tokens(
    engine: Engine, prompt: tuple[int, ...], response: tuple[int, ...], version: PolicyVersion, top_k: int
) -> tuple[Top, ...]:
    """The likeliest tokens at each position of a response after a prompt."""
    found = await engine.score(Prompt(prompt + response), start=len(prompt), version=version, top_k=top_k)
    return found.top


@dataclass(frozen=True, slots=True)
class RepeatedWishes:
    """If a user asks for the same again after the gate refused it, one of their own earlier wishes yields each time.

    The gate requires a version to follow earlier hints. If one of these was misunderstood, or the user has changed
    their mind, it would refuse every version that learns what they ask for, however often they ask.

    `margin` as in `wish_margin`, `top_k` as in `kl_top_k`.
    """

    store: Store
    engine: Engine
    renderer: Renderer
    margin: float
    top_k: int

    async def refusals(self, candidate: VersionRow, own: Sequence[Sample]) -> Counter[str]:
        """By user: how many versions were refused for earlier hints although they had learned what is asked again now.

        Counted back to the last version that learned it and was not refused so. `own` are the step's samples. Raises
        EngineError or RequestError if the engine cannot be asked now.
        """
        found: Counter[str] = Counter()
        asking: dict[str, list[Sample]] = {}
        for sample in filter(_is_correction, own):
            asking.setdefault(sample.user, []).append(sample)
        made = candidate.version
        for number in range(made.number - 1, max(0, made.number - 1 - LOOKED_AT), -1):
            row = await self.store.version(PolicyVersion(made.scope, number)) if asking else None
            if row is None:
                continue
            had_learned = {
                before.user
                for before in filter(_is_correction, await self.store.effects.samples(row.turns))
                for now in asking.get(before.user, ())
                if await self._asks_the_same(before, now)
            }
            if self._gave_up_earlier(row):
                found.update(had_learned)
            else:
                asking = {user: samples for user, samples in asking.items() if user not in had_learned}
        return found

    def _gave_up_earlier(self, row: VersionRow) -> bool:
        rise = row.metrics.get("gate_kept", 0.0) - row.metrics.get("gate_kept_before", 0.0)
        return row.status is VersionStatus.REFUSED and rise > self.margin

    async def _asks_the_same(self, before: Sample, now: Sample) -> bool:
        """Whether the hints are alike in words, or the earlier changes the reply corrected now like the later one."""
        earlier, later = before.hints[0], now.hints[0]
        if asks_alike(earlier.text, later.text):
            return True
        turn = await self.store.turn(now.turn)
        if turn is None:
            return False
        try:
            behind = await asyncio.to_thread(self.renderer.hinted, turn, Hint(earlier.text))
        except (RequestError, ValueError):  # the template refuses
            return False
        wanted, got, bare = [
            await top_tokens(self.engine, prompt, now.response, BASE, self.top_k)
            for prompt in (later.tokens, behind.tokens, now.prompt)
        ]
        left = await asyncio.to_thread(mean_divergence, wanted, got)
        return left < EXPLAINS * await asyncio.to_thread(mean_divergence, wanted, bare)


def without_yielding(
    held: Sequence[tuple[Sample, MeanShift]], refusals: Counter[str]
) -> list[tuple[Sample, MeanShift]]:
    """The earlier samples without one wish for each refusal of its user; those given up most yield first."""
    left = list(held)
    for user in refusals.elements():
        own = [(sample, change) for sample, change in left if sample.user == user]
        if own:
            most = max(own, key=lambda one: one[1].rise)[0].hints[0].text
            left = [one for one in left if one[0].user != user or not asks_alike(one[0].hints[0].text, most)]
    return left


def most_against(held: Iterable[tuple[Sample, MeanShift]]) -> Sample:
    """The sample that was given up most."""
    return max(held, key=lambda one: one[1].rise)[0]


def _is_correction(sample: Sample) -> bool:
    return bool(sample.hints) and not sample.is_promoted
