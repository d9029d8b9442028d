"""A user who asks for the same again after a refusal outweighs an earlier wish of their own, one for each refusal."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from publish_doubles import Flow, Minds, flowing, last_message, turn, version, write_adapter

from openclaw_rl.core.completion import Scores
from openclaw_rl.core.hint import Hint
from openclaw_rl.core.message import Role, message
from openclaw_rl.core.next_state import NextState, NextStateSource
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.sample import HintPrompt, Sample
from openclaw_rl.core.turn import Session, Turn
from openclaw_rl.core.verdict import Verdict, VerdictSource
from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.publish.settings import PublishSettings
from openclaw_rl.publish.wishes import MeanShift, without_yielding
from openclaw_rl.store.rows import StepRecord, VersionRow, VersionStatus
from openclaw_rl.testing.renderer import LetterRenderer, text_of

SETTINGS = PublishSettings(kl_turns=0, probes=0)
SING, RHYME, PLAIN, PROSE = "Sing of mountains.", "Rhyme each line.", "Write plain sentences.", "As a person would say."
BEHIND = " | "


@dataclass
class Forgetful(Minds):
    """Versions from 2 on answer the first questions otherwise than version 1 and the base model do.

    Behind `PLAIN` and `PROSE` the base model says the same, and neither what it says bare nor behind others.
    """

    first: tuple[str, ...] = ("a", "b")
    said: dict[str, float] = field(default_factory=lambda: {PLAIN: 0.5, PROSE: 0.52})

    def scores(self, prompt: Prompt, start: int, version: PolicyVersion, top_k: int) -> Scores:
        text = text_of(prompt.tokens[:start])
        is_early = any(text.startswith(f"Question {name}?") for name in self.first)
        behind = self.said.get(text.partition(BEHIND)[2], 0.9)
        self.chance = {version: 0.5 if is_early and version.number > 1 else behind}
        return super().scores(prompt, start, version, top_k)


class Telling(LetterRenderer):
    """Puts hints behind a prompt."""

    def hinted(self, turn: Turn, hint: Hint) -> Prompt:
        return Prompt((*turn.prompt.tokens, *map(ord, BEHIND + hint.text)))


def sample_of(said: Turn, hint: str) -> Sample:
    behind = HintPrompt(hint, Telling(last_message).hinted(said, Hint(hint)).tokens)
    many = len(said.completion.tokens)
    return Sample(
        said.id, said.session, said.user, said.prompt.tokens, said.completion.tokens, said.completion.logp,
        (True,) * many, said.completion.version, score=-1.0, hints=(behind,),
    )  # fmt: skip


async def corrected(
    flow: Flow, number: int, *taught: tuple[str, str], user: str = "ann", rehearsed: int = 0
) -> VersionRow:
    """A candidate, made from version 1, of a user's turns with (name, hint); the first `rehearsed` of them rehearse."""
    await flow.store.see_session(Session(f"of {user}", user, "main", 0.0, 1.0))
    for at, (name, hint) in enumerate(taught):
        said = replace(turn(name), session=f"of {user}", user=user)
        await flow.store.add_turn(said, chain=name)
        await flow.store.pair(NextState(name, (message(Role.USER, "no"),), NextStateSource.USER))
        hints = () if at < rehearsed else (Hint(hint),)
        await flow.store.judge(Verdict(name, 0 if at < rehearsed else -1, VerdictSource.VOTES, hints=hints))
        sample = sample_of(said, hint)
        await flow.store.admit(
            replace(sample, score=0.0, is_promoted=True, rehearses=(hint,)) if at < rehearsed else sample
        )
    names = tuple(name for name, _ in taught)
    made = version(number)
    adapter = write_adapter(flow.home, made, version(min(1, number - 1)))
    row = VersionRow(
        made, version(min(1, number - 1)), adapter.folder, adapter.digest, VersionStatus.CANDIDATE, "", 1.0, names
    )
    await flow.store.commit_step(StepRecord(f"step {made}", 1.0, 2.0, names, (), {}, row))
    return row


async def tried(flow: Flow, row: VersionRow) -> tuple[bool, float | None]:
    """Whether the gate lets it through, and how often its users had insisted; settled accordingly."""
    await flow.served.load(row)
    found = await flow.stage.gate.check(row, parent=version(1))
    status = VersionStatus.LIVE if found.passed else VersionStatus.REFUSED
    await flow.store.settle(row.version, status, found.why, dict(found.metrics))
    return found.passed, found.metrics.get("gate_yielded")


async def begun(flow: Flow, user: str = "ann") -> None:
    """Version 1 is served, and holds two wishes."""
    flow.stage.gate = replace(flow.stage.gate, renderer=Telling(last_message))
    first = await corrected(flow, 1, ("a", SING), ("b", RHYME), user=user)
    await flow.store.settle(first.version, VersionStatus.LIVE, "", {})
    await flow.served.load(first)


@pytest.mark.parametrize("words", [(PLAIN, PLAIN, PLAIN), (PLAIN, PROSE, PLAIN)])
async def test_each_refusal_gives_up_one_earlier_wish_of_the_user_who_asks_again(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    async with flowing(tmp_path, Forgetful(), SETTINGS) as flow:
        await begun(flow)
        found = [await tried(flow, await corrected(flow, 2 + at, ("cde"[at], words[at]))) for at in range(3)]
        assert found == [(False, 0.0), (False, 1.0), (True, 2.0)]


async def test_who_asks_for_something_else_does_not_insist(tmp_path: Path) -> None:
    async with flowing(tmp_path, Forgetful(), SETTINGS) as flow:
        await begun(flow)
        wishes = (PLAIN, "Name the river first.", "End with a question.")
        found = [await tried(flow, await corrected(flow, 2 + at, ("cde"[at], wishes[at]))) for at in range(3)]
        assert found == [(False, 0.0)] * 3


async def test_what_others_asked_for_does_not_yield(tmp_path: Path) -> None:
    async with flowing(tmp_path, Forgetful(), SETTINGS) as flow:
        await begun(flow, user="bob")
        found = [await tried(flow, await corrected(flow, 2 + at, ("cdef"[at], PLAIN))) for at in range(4)]
        assert found == [(False, 0.0), (False, 1.0), (False, 2.0), (False, 3.0)]


async def test_replies_that_rode_along_do_not_hide_what_is_asked_for(tmp_path: Path) -> None:
    """They wait longer, so they come first in a step, and only some of its samples are looked at."""
    async with flowing(tmp_path, Forgetful(), SETTINGS) as flow:
        await begun(flow)
        found = []
        for number in (2, 3, 4):
            rehearsals = [(f"r{number}{at}", PROSE) for at in range(SETTINGS.wish_turns)]
            row = await corrected(flow, number, *rehearsals, (f"c{number}", PLAIN), rehearsed=len(rehearsals))
            found.append(await tried(flow, row))
        assert found == [(False, 0.0), (False, 1.0), (True, 2.0)]


async def test_a_version_that_passed_ends_the_count(tmp_path: Path) -> None:
    async with flowing(tmp_path, Forgetful(first=()), SETTINGS) as flow:
        await begun(flow)
        flow.minds.first = ("a", "b")  # type: ignore[attr-defined]
        assert await tried(flow, await corrected(flow, 2, ("c", PLAIN))) == (False, 0.0)
        flow.minds.first = ()  # type: ignore[attr-defined]
        assert await tried(flow, await corrected(flow, 3, ("d", PLAIN))) == (True, None)
        flow.minds.first = ("a", "b")  # type: ignore[attr-defined]
        assert await tried(flow, await corrected(flow, 4, ("e", PLAIN))) == (False, 0.0)


def test_the_wish_that_was_given_up_most_yields_first_in_all_its_words() -> None:
    held = [
        (sample_of(turn("a"), SING), MeanShift(0.1, 0.9)),
        (sample_of(turn("b"), "Sing of mountains, always!"), MeanShift(0.1, 0.2)),
        (sample_of(turn("c"), RHYME), MeanShift(0.1, 0.5)),
    ]
    assert [one.turn for one, _ in without_yielding(held, Counter(ann=1))] == ["c"]
    assert without_yielding(held, Counter(ann=3)) == []
    assert without_yielding(held, Counter(bob=2)) == held
