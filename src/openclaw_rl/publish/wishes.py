"""Whether a version follows the wishes it was trained for, and still those of earlier versions.

A version follows a hint's wish as far as it says without the hint what the base model says given the hint. The gap
between the two is the divergence of their distributions over the reply, in nats a token.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.protocols import Engine
from openclaw_rl.core.sample import Sample
from openclaw_rl.core.version import BASE, PolicyVersion
from openclaw_rl.publish.divergence import Top, mean_divergence
from openclaw_rl.wording.likeness import is_same_wish


@dataclass(frozen=True, slots=True)
class MeanShift:
    """A mean over some samples, under the version that is served and under the one that is tried."""

    before: float
    after: float

    @property
    def rise(self) -> float:
        """How much the tried one has more of it."""
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
