"""Replies that were accepted after corrections the teacher did not heed, in a real store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest
from train_doubles import Following, next_of, turn, verdict
from train_flow import Flow

from openclaw_rl.core.ledger import DropReason
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.sample import HintPrompt, Sample, Wants, teaches
from openclaw_rl.core.turn import Turn


class Deaf(Following):
    """A teacher that heeds no hint."""

    async def demonstrated(
        self, turn: Turn, bare: Prompt, known: Sequence[object], assembled: object
    ) -> tuple[Sample, Sequence[object]]:
        return replace(await assembled(()), hints=()), ()  # type: ignore[operator]


@dataclass
class Looking:
    """Takes an accepted reply as an answer to what was asked first, or does not."""

    takes: bool = True
    asked: list[tuple[str, str, tuple[str, ...]]] = field(default_factory=list)

    async def redone(
        self,
        accepted: Turn,
        corrected: Turn,
        bare: Prompt,
        hints: Sequence[str],
        sample: Sample,
        *,
        known: Sequence[object] = (),
    ) -> Sample | None:
        self.asked.append((accepted.id, corrected.id, tuple(hints)))
        read = (HintPrompt(hints[0], accepted.prompt.tokens),)
        found = replace(sample, prompt=bare.tokens, hints=read, is_taught=True, is_promoted=False, score=None)
        return found if self.takes else None


async def say(flow: Flow, name: str, score: int, *, parent: str | None, at_s: float, hints: int = 0) -> None:
    said = replace(turn(name, at_s=at_s), parent=parent, prompt=Prompt((1, 2, 3, int(at_s))))
    await flow.store.add_turn(said, chain=name)
    assert await flow.store.pair(next_of(name))
    assert await flow.store.judge(verdict(name, score, hints=hints, mean=float(score)))


@pytest.mark.parametrize("takes", [True, False])
async def test_what_was_accepted_in_the_end_answers_what_was_corrected_first(hinted: Flow, takes: bool) -> None:
    looking = Looking(takes)
    hinted.asks(base=Deaf(()), hindsight=looking)
    await say(hinted, "settled", 0, parent=None, at_s=4.0)
    await say(hinted, "first", -1, parent="settled", at_s=5.0, hints=1)
    await say(hinted, "again", -1, parent="first", at_s=6.0, hints=2)
    await say(hinted, "good", 1, parent="again", at_s=7.0)
    await hinted.store.end_session("s1", why="done", at_s=9.0)
    while await hinted.teach.once():  # all four are looked at in one round, so the good one waits for the others
        pass
    assert [await hinted.state(name) for name in ("first", "again")] == [DropReason.UNHEEDED] * 2
    words = tuple(f"Write in plain sentences, number {index}." for index in (0, 1))
    assert set(looking.asked) == {("good", "first", words)}
    [sample] = await hinted.store.ready(limit=9)
    assert (sample.turn, sample.is_taught, sample.is_promoted) == ("good", takes, not takes)
    assert teaches(sample, Wants.HINT) is takes
    assert sample.prompt == ((1, 2, 3, 5) if takes else (1, 2, 3, 7))


async def test_where_the_teacher_heeds_the_correction_itself_nothing_else_is_looked_at(hinted: Flow) -> None:
    looking = Looking()
    hinted.asks(base=Following(()), hindsight=looking)
    await say(hinted, "first", -1, parent=None, at_s=5.0, hints=1)
    await say(hinted, "good", 1, parent="first", at_s=6.0)
    await hinted.store.end_session("s1", why="done", at_s=9.0)
    while await hinted.teach.once():
        pass
    assert looking.asked == []
    assert [sample.turn for sample in await hinted.store.ready(limit=9)] == ["first"]
