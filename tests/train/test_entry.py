"""Judged turns become samples in a real store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from train_doubles import Assembled, Following, next_of, turn, verdict
from train_flow import SETTINGS, Flow, flowing

from openclaw_rl.core.hint import PlacedHint
from openclaw_rl.core.ledger import DropReason, State
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.sample import Sample, SampledReply, Wants, teaches
from openclaw_rl.core.turn import Turn
from openclaw_rl.core.version import BASE
from openclaw_rl.errors import BeyondContextError
from openclaw_rl.teach.settings import Baseline, TeachSettings
from openclaw_rl.teach.stage import AT_ONCE

SHOWN = (SampledReply((8, 9), (-0.1, -0.2), BASE), SampledReply((6, 7, 9), (-0.1, -0.2, -0.3), BASE))


async def test_a_zero_waits_for_its_session_and_is_promoted_when_it_ends(flow: Flow) -> None:
    await flow.judged("a", 0, mean=0.0)
    await flow.judged("b", 0, mean=1 / 3)
    assert not await flow.teach.once()
    await flow.store.end_session("s1", why="idle", at_s=2.0)
    assert await flow.teach.once()
    [sample] = await flow.store.ready(limit=9)
    assert (sample.turn, sample.score, sample.is_promoted) == ("b", 1 / 3, True)
    assert await flow.state("a") is DropReason.NO_SIGNAL


async def test_a_session_that_ended_waits_for_the_turns_still_with_the_judge(flow: Flow) -> None:
    await flow.judged("a", 0, mean=0.0)
    await flow.paired("b")
    await flow.store.end_session("s1", why="done", at_s=2.0)
    assert not await flow.teach.once()
    assert await flow.state("a") is State.JUDGED


async def test_a_zero_is_dropped_when_its_session_has_contributed_before(flow: Flow) -> None:
    await flow.judged("a", -1)
    assert await flow.teach.once()
    await flow.judged("b", 0, mean=0.0)
    assert await flow.teach.once()
    assert await flow.state("b") is DropReason.NO_SIGNAL


async def test_nobody_who_may_not_teach_is_learned_from(flow: Flow) -> None:
    flow.rules(may_teach=lambda turn: turn.user != "ann")
    await flow.judged("a", -1, hints=1)
    await flow.teach.once()
    assert await flow.state("a") is DropReason.MAY_NOT_TEACH


async def test_a_turn_nobody_voted_on_and_one_that_is_too_long_are_dropped_as_such(tmp_path: Path) -> None:
    async with flowing(tmp_path, settings=replace(SETTINGS, max_sample_tokens=4)) as flow:
        await flow.judged("a", None)
        await flow.judged("b", -1)
        await flow.teach.once()
        assert await flow.state("a") is DropReason.NO_SIGNAL
        assert await flow.state("b") is DropReason.TOO_LONG


async def test_a_hint_that_cannot_be_rendered_leaves_nothing_for_a_method_of_hints(tmp_path: Path) -> None:
    # 3 ids of prompt, 1 of hint and 2 of answer are more than 5
    async with flowing(tmp_path, settings=replace(SETTINGS, max_sample_tokens=5), wants=Wants.HINT) as flow:
        await flow.judged("a", -1, hints=1)
        await flow.teach.once()
        assert await flow.state("a") is DropReason.NO_SIGNAL


async def test_the_baseline_is_of_the_users_other_turns(flow: Flow) -> None:
    await flow.judged("a", 1)
    await flow.judged("b", -1, session_id="s2")
    await flow.teach.once()
    by_turn = {sample.turn: sample.baseline for sample in await flow.store.ready(limit=9)}
    assert by_turn == {"a": -0.09999999999999998, "b": 0.09999999999999998}  # 0.9 * 0 + 0.1 * the other's score


async def test_without_a_baseline_a_score_stands_alone(tmp_path: Path) -> None:
    async with flowing(tmp_path, teaches=TeachSettings(baseline=Baseline.NONE)) as flow:
        await flow.judged("a", 1)
        await flow.teach.once()
        assert (await flow.store.ready(limit=9))[0].baseline is None


@dataclass
class Kept:
    """A user's hints, as the teacher is told of them."""

    known: tuple[PlacedHint, ...] = ()
    given_up: list[str] = field(default_factory=list)
    unlearned: frozenset[str] = frozenset()  # ids of hints that the weights could not learn

    async def beside(self, turn: Turn) -> Sequence[PlacedHint]:
        return self.known

    async def learnable(self, turn: Turn) -> Sequence[PlacedHint]:
        return [item for item in turn.carried if item.id not in self.unlearned]

    async def give_up(self, turn: Turn) -> None:
        self.given_up.append(turn.id)


@dataclass
class Asked:
    """A student that is told what it has learned, and what it says."""

    has_learned: bool
    bare: list[tuple[int, ...]] = field(default_factory=list)

    async def follows(self, turn: Turn, bare: Prompt) -> bool:
        self.bare.append(bare.tokens)
        return self.has_learned

    async def reply(self, turn: Turn, bare: Prompt) -> SampledReply | None:
        return SampledReply((8, 9), (-0.1, -0.2), BASE)


async def behind_hints(flow: Flow, name: str, *, score: int = 1, hints: int = 0) -> None:
    said = replace(turn(name), carried=(PlacedHint(0, "hint-1", "Be brief."),), prompt=Prompt((1, 2, 3, 9)))
    await flow.store.add_turn(said, chain=name)
    assert await flow.store.pair(next_of(name))
    assert await flow.store.judge(verdict(name, score, hints=hints))


async def test_what_was_sampled_behind_hints_comes_with_what_the_policy_says_without(tmp_path: Path) -> None:
    async with flowing(tmp_path, wants=Wants.SCORE) as flow:
        student = Asked(has_learned=False)
        flow.asks(served=student)
        await behind_hints(flow, "a")
        assert await flow.teach.once()
        [sample] = await flow.store.ready(limit=9)
        assert sample.is_taught and sample.own == SampledReply((8, 9), (-0.1, -0.2), BASE)
        assert sample.prompt == (1, 2, 3) and student.bare == [(1, 2, 3)]
        assert [hint.text for hint in sample.hints] == ["Be brief."]


async def test_what_the_weights_say_without_the_hints_is_learned_and_takes_no_step(flow: Flow) -> None:
    flow.asks(served=Asked(has_learned=True))
    await behind_hints(flow, "a")
    await behind_hints(flow, "corrected", score=-1, hints=1)
    assert await flow.teach.once()
    assert await flow.state("a") is DropReason.LEARNED
    assert await flow.state("corrected") is State.READY


async def test_where_only_the_prompt_remembers_every_turn_ends_dropped(flow: Flow) -> None:
    flow.rules(weights_learn=False)
    await flow.judged("a", -1, hints=1)
    assert await flow.teach.once()
    assert await flow.state("a") is DropReason.MEMORY_ONLY


async def test_what_waits_for_its_session_holds_up_nothing_and_is_not_read_again_until_it_need_not_wait(
    flow: Flow,
) -> None:
    waiting = AT_ONCE + 6
    for at in range(waiting):
        await flow.judged(f"z{at}", 0, mean=0.0, session_id=f"z{at}")
    await flow.judged("good", 1, session_id="other")
    assert await flow.teach.once()  # at once, though it is not among the oldest
    [sample] = await flow.store.ready(limit=9)
    assert sample.turn == "good"
    last = max(row.seq for row in await flow.store.judged(limit=999))
    assert await flow.store.judged(limit=999, looked=last) == []
    await flow.paired("late", session_id="z1")
    for session_id in ("z1", "z2"):
        await flow.store.end_session(session_id, why="idle", at_s=2.0)
    again = await flow.store.judged(limit=999, looked=last)
    assert [row.turn.id for row in again] == ["z2"]  # z1 has a turn that is still with the judge
    assert await flow.teach.once()
    assert [sample.turn for sample in await flow.store.ready(limit=9)] == ["good", "z2"]


@dataclass
class Showing:
    """A teacher that heeds some hints beside the turn's own, shows a reply, or heeds no hint at all."""

    heeds: bool = True
    has_room: bool = True
    asked: list[str] = field(default_factory=list)

    async def demonstrated(
        self, turn: Turn, bare: Prompt, known: Sequence[PlacedHint], assembled: Assembled
    ) -> tuple[Sample, Sequence[PlacedHint]]:
        if not self.has_room:
            raise BeyondContextError("too many tokens")
        self.asked.append(turn.id)
        sample = await assembled(known[:1])
        if not self.heeds:
            return replace(sample, hints=()), ()
        return replace(sample, shown=SHOWN), ()

    async def rehearsed(self, turn: Turn, bare: Prompt, known: Sequence[PlacedHint], assembled: Assembled) -> Sample:
        return await assembled(known)


async def test_a_reply_that_nobody_corrected_rides_with_the_hints_it_follows(hinted: Flow) -> None:
    hinted.asks(base=Following(("Greet first.",)))
    await hinted.judged("good", 1)
    await hinted.store.end_session("s1", why="idle", at_s=2.0)
    assert await hinted.teach.once()
    [rehearsal] = await hinted.store.ready(limit=9)  # as the store gives it back
    assert (rehearsal.turn, rehearsal.rehearses, rehearsal.is_promoted) == ("good", ("Greet first.",), True)
    assert [hint.text for hint in rehearsal.hints] == ["Greet first."]


async def test_what_a_teacher_shows_for_a_corrected_turn_is_kept_with_its_sample(hinted: Flow) -> None:
    guide = Showing()
    hinted.asks(base=guide)

    hinted.asks(hints=Kept((PlacedHint(0, "k1", "Greet first."), PlacedHint(0, "k2", "Count aloud."))))
    await hinted.judged("a", -1, hints=1)
    await hinted.judged("praised", 1, hints=1)
    assert await hinted.teach.once()
    by_turn = {sample.turn: sample for sample in await hinted.store.ready(limit=9)}
    assert by_turn["a"].shown == SHOWN and by_turn["a"].own is None
    assert [hint.text for hint in by_turn["a"].hints] == ["Greet first. Write in plain sentences, number 0."]
    assert guide.asked == ["a"] and by_turn["praised"].shown == ()


@pytest.mark.parametrize(
    ("lacks", "reason", "given_up"),
    [("heeds", DropReason.UNHEEDED, ["a"]), ("has_room", DropReason.TOO_LONG, [])],
    ids=["its hint changes nothing", "the context has no room for its hint"],
)
async def test_a_correction_with_which_a_teacher_can_do_nothing_teaches_by_its_score_alone(
    tmp_path: Path, lacks: str, reason: DropReason, given_up: list[str]
) -> None:
    async with flowing(tmp_path, wants=Wants.HINT) as flow:
        kept = Kept()
        flow.asks(base=Showing(**{lacks: False}), hints=kept)  # type: ignore[arg-type]
        await flow.judged("a", -1, hints=1)
        assert await flow.teach.once()
        assert await flow.state("a") is reason
        await flow.judged("silent", None)
        assert await flow.teach.once()
        assert kept.given_up == given_up
    async with flowing(tmp_path / "scored", wants=Wants.EITHER) as flow:  # where scores teach, its score still does
        flow.asks(base=Showing(**{lacks: False}))  # type: ignore[arg-type]
        await flow.judged("a", -1, hints=1)
        assert await flow.teach.once()
        assert [(sample.hints, sample.score) for sample in await flow.store.ready(limit=9)] == [((), -1.0)]


async def test_what_was_sampled_behind_hints_and_corrected_in_vain_is_dropped_as_unheeded(tmp_path: Path) -> None:
    async with flowing(tmp_path, wants=Wants.EITHER) as flow:
        flow.asks(served=Asked(has_learned=False))
        guide = Showing(heeds=False)
        flow.asks(base=guide)
        await behind_hints(flow, "corrected", score=-1, hints=1)
        await behind_hints(flow, "praised", score=1)
        assert await flow.teach.once()
        assert await flow.state("corrected") is DropReason.UNHEEDED
        assert [sample.turn for sample in await flow.store.ready(limit=9)] == ["praised"]
        assert guide.asked == ["corrected"]


async def test_what_was_said_behind_hints_is_learned_from_behind_those_that_it_follows(hinted: Flow) -> None:
    hinted.asks(served=Asked(has_learned=False))
    hinted.asks(base=Following(("Be brief.",)))
    await behind_hints(hinted, "brief", score=1)
    assert await hinted.teach.once()
    [taught] = await hinted.store.ready(limit=9)
    assert ([hint.text for hint in taught.hints], taught.is_taught) == (["Be brief."], True)
    assert (taught.is_promoted, taught.rehearses) == (False, ())


@pytest.mark.parametrize(("follows", "has_learned"), [((), False), (("Be brief.",), True)])
async def test_where_it_follows_none_or_the_weights_follow_too_the_first_of_a_session_rides(
    hinted: Flow, follows: tuple[str, ...], has_learned: bool
) -> None:
    hinted.asks(served=Asked(has_learned=has_learned))
    hinted.asks(base=Following(follows))
    await behind_hints(hinted, "first", score=1)
    await behind_hints(hinted, "second", score=1)
    assert await hinted.teach.once()
    assert await hinted.state("second") is DropReason.LEARNED
    [rehearsal] = await hinted.store.ready(limit=9)  # as the store gives it back
    assert (rehearsal.turn, rehearsal.rehearses, rehearsal.is_promoted, rehearsal.is_taught) == (
        "first",
        follows,
        True,
        True,
    )
    assert rehearsal.score is None and rehearsal.own is None
    assert not teaches(rehearsal, Wants.HINT)  # it makes no step due


async def test_one_that_rides_makes_no_step_due_though_the_teacher_was_away(hinted: Flow) -> None:
    hinted.asks(served=Asked(has_learned=True))
    hinted.asks(base=Showing())  # hears all that stood in the prompt, and nothing of which was followed
    await behind_hints(hinted, "first", score=1)
    assert await hinted.teach.once()
    [rehearsal] = await hinted.store.ready(limit=9)
    assert rehearsal.hints == () and not teaches(rehearsal, Wants.HINT)


@dataclass
class Hearing(Showing):
    """Shows demonstrations to a prompt without hints, and remembers which hints it was told of besides."""

    told: list[Sequence[PlacedHint]] = field(default_factory=list)

    async def demonstrated(
        self, turn: Turn, bare: Prompt, known: Sequence[PlacedHint], assembled: Assembled
    ) -> tuple[Sample, Sequence[PlacedHint]]:
        self.told.append(known)
        assert bare.tokens == (1, 2, 3)
        return replace(await assembled(()), shown=SHOWN[1:]), ()


async def test_a_correction_of_what_was_said_behind_hints_is_told_by_what_it_does_not_contradict(
    tmp_path: Path,
) -> None:
    async with flowing(tmp_path, wants=Wants.HINT) as flow:
        teacher = Hearing()
        flow.asks(served=Asked(has_learned=False), base=teacher)
        await behind_hints(flow, "a", score=-1, hints=1)
        assert await flow.teach.once()
        [sample] = await flow.store.ready(limit=9)
        assert [[hint.text for hint in known] for known in teacher.told] == [["Be brief."]]
        assert [hint.text for hint in sample.hints] == ["Write in plain sentences, number 0."]
        assert sample.shown == SHOWN[1:]
        assert sample.own == SampledReply((8, 9), (-0.1, -0.2), BASE)  # what the weights say by themselves


@pytest.mark.parametrize("score", [0, 1])
async def test_what_was_said_behind_a_hint_that_the_weights_could_not_learn_teaches_nothing(
    hinted: Flow, score: int
) -> None:
    hinted.asks(served=Asked(has_learned=False), base=Following(("Be brief.",)))
    hinted.asks(hints=Kept(unlearned=frozenset({"hint-1"})))
    await behind_hints(hinted, "brief", score=score)
    assert await hinted.teach.once()
    assert await hinted.state("brief") is DropReason.MEMORY_ONLY


async def test_its_correction_teaches_the_new_hint_alone(tmp_path: Path) -> None:
    async with flowing(tmp_path, wants=Wants.HINT) as flow:
        teacher = Hearing()
        flow.asks(served=Asked(has_learned=False), base=teacher)
        flow.asks(hints=Kept(unlearned=frozenset({"hint-1"})))
        await behind_hints(flow, "a", score=-1, hints=1)
        assert await flow.teach.once()
        [sample] = await flow.store.ready(limit=9)
        assert teacher.told == [[]]
        assert ([hint.text for hint in sample.hints], sample.prompt) == (
            ["Write in plain sentences, number 0."],
            (1, 2, 3),
        )
