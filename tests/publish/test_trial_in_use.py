"""A served version is tried further on the requests that it answers, and rolled back if it lost what they ask for."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from publish_doubles import Flow, Knowing, Minds, Says, flowing, turn, version

from openclaw_rl.core.completion import Scores
from openclaw_rl.core.hint import NOT_LEARNED, Hint
from openclaw_rl.core.message import Role, message
from openclaw_rl.core.next_state import NextState, NextStateSource
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.turn import Session
from openclaw_rl.core.verdict import Verdict, VerdictSource
from openclaw_rl.core.version import BASE, PolicyVersion
from openclaw_rl.errors import BeyondContextError, EngineError
from openclaw_rl.publish.settings import PublishSettings
from openclaw_rl.publish.trial_in_use import DEPARTS, DEPARTS_OF, TrialInUse
from openclaw_rl.publish.tried_turns import STILL_TELLING
from openclaw_rl.testing.turns import a_sample

ANSWER, POLITE, WRONG = "Ann has 7 apples.$", "Dear Ann, you have 7 apples.$", "Dear Ann, you have 9 apples.$"
TOLD: dict[str, Says] = {"Be polite.": {POLITE: 1.0}, "": {ANSWER: 1.0}}
FINE: dict[str, Says] = {"": {POLITE: 1.0}}
LOST: dict[str, Says] = {"buys": {WRONG: 1.0}, "": {POLITE: 1.0}}
SETTINGS = PublishSettings(probes=1, probe_others=0, kl_max=99.0)


async def learned(flow: Flow, number: int, *, parent: int | None = None) -> None:
    """Ann's correction made a version, which passed the gate."""
    name = f"corrected {number}"
    await flow.talk(turn(name, f"How many are there, {number}?", answer=ANSWER))
    await flow.store.pair(NextState(name, (message(Role.USER, "More politely!"),), NextStateSource.USER))
    hint = Hint("Be polite.")
    await flow.store.judge(Verdict(name, -1, VerdictSource.VOTES, hints=(hint,)), keep=hint)
    await flow.store.admit(a_sample(turn(name)))
    await flow.candidate(number, turns=(name,), consumed=(name,), parent=parent)
    assert await flow.stage.once()
    assert flow.served.current() == version(number)


async def asked(flow: Flow, number: int, *questions: str) -> None:
    """First requests of conversations that a version answered."""
    for question in questions:
        said = replace(turn(question, question, answer=POLITE), session=question)
        await flow.store.see_session(Session(question, "ann", "main", 0.0, 1.0))
        answered = replace(said, completion=replace(said.completion, version=version(number)))
        await flow.store.add_turn(answered, chain=question)


async def tried(flow: Flow) -> int:
    """How many requests were tried until nothing was left."""
    count = 0
    while await flow.stage.once():
        count += 1
    return count


def buys(*numbers: int) -> list[str]:
    return [f"Ann buys {number}?" for number in numbers]


def others(*numbers: int) -> list[str]:
    return [f"And what of {number}?" for number in numbers]


async def test_a_version_that_lost_a_kind_that_nobody_had_asked_for_is_rolled_back_once_somebody_does(
    tmp_path: Path,
) -> None:
    async with flowing(tmp_path, Knowing(knows={BASE: TOLD, version(1): LOST}), SETTINGS) as flow:
        await learned(flow, 1)
        await asked(flow, 1, *others(1, 2), *buys(1, 2))
        assert await tried(flow) == 4
        assert flow.served.current() == version(1)  # two may be odd requests
        await asked(flow, 1, *buys(3))
        assert await tried(flow) == 1
        assert flow.served.current().is_base
        row = await flow.row(1)
        assert row.why == (
            "rolled back: in about 3 of 5 conversations it gave a reply that the base model would not give, with the "
            "wish in its prompt or without it, for example Ann buys 2?, Ann buys 1?, Ann buys 3?"
        )
        assert (row.metrics[DEPARTS], row.metrics[DEPARTS_OF]) == (pytest.approx(0.6, abs=0.01), 5.0)
        assert row.why in flow.stage.status.notice
        (hint,) = await flow.store.hints.of_user("ann")
        assert hint.needs_prompt and hint.why == NOT_LEARNED  # from now on it is in her prompts


async def test_the_next_version_is_tried_on_the_requests_that_showed_it(tmp_path: Path) -> None:
    minds = Knowing(knows={BASE: TOLD, version(1): LOST, version(2): LOST})
    async with flowing(tmp_path, minds, replace(SETTINGS, probe_others=2)) as flow:
        await learned(flow, 1)
        await asked(flow, 1, *buys(1, 2, 3), *others(*range(10)))
        await tried(flow)
        await flow.candidate(2, parent=0)
        assert await flow.stage.once()
        assert "of its replies to others are ones that the base model would not give" in (await flow.row(2)).why


@pytest.mark.parametrize(("since", "is_known"), [(60, True), (STILL_TELLING + 1, False)])
async def test_these_requests_are_remembered_for_a_while_also_by_another_gate(
    tmp_path: Path, since: int, is_known: bool
) -> None:
    minds = Knowing(knows={BASE: TOLD, version(1): LOST, version(2): LOST})
    async with flowing(tmp_path, minds, replace(SETTINGS, probe_others=2)) as flow:
        await learned(flow, 1)
        await asked(flow, 1, *buys(1, 2, 3), *others(*range(10)))
        await tried(flow)
        await asked(flow, 0, *others(*range(10, 10 + since)))
        flow.stage.gate = replace(flow.stage.gate)  # a restart
        await flow.candidate(2, parent=0)
        assert await flow.stage.once()
        assert ("of its replies to others" in (await flow.row(2)).why) is is_known


async def test_a_sound_version_is_tried_to_the_end_once_and_stays(tmp_path: Path) -> None:
    minds = Knowing(knows={BASE: TOLD, version(1): FINE})
    async with flowing(tmp_path, minds, replace(SETTINGS, trial_turns=3)) as flow:
        await learned(flow, 1)
        await asked(flow, 1, *buys(1, 2), *others(1, 2))
        assert await tried(flow) == 3
        assert (flow.served.current(), (await flow.row(1)).metrics[DEPARTS_OF]) == (version(1), 3.0)
        assert (await flow.row(1)).why == "passed the gate"
        flow.stage.trial = TrialInUse(flow.store, flow.served, flow.stage.gate, flow.settings)  # a restart
        assert await tried(flow) == 0


async def test_only_what_a_version_answered_itself_is_tried_and_once(tmp_path: Path) -> None:
    async with flowing(tmp_path, Knowing(knows={BASE: TOLD, version(1): LOST}), SETTINGS) as flow:
        await learned(flow, 1)
        assert await tried(flow) == 0
        await asked(flow, 1, *others(1))
        assert (await tried(flow), await tried(flow)) == (1, 0)
        flow.engine.calls.clear()
        assert await tried(flow) == 0 and not flow.engine.calls


async def test_the_same_request_of_another_conversation_is_not_tried_again(tmp_path: Path) -> None:
    async with flowing(tmp_path, Knowing(knows={BASE: TOLD, version(1): LOST}), SETTINGS) as flow:
        await learned(flow, 1)
        await asked(flow, 1, *buys(1))
        again = replace(turn("again", *buys(1), answer=POLITE), session="again")
        await flow.store.see_session(Session("again", "ann", "main", 0.0, 1.0))
        answered = replace(again, completion=replace(again.completion, version=version(1)))
        await flow.store.add_turn(answered, chain="again")
        assert await tried(flow) == 1


async def test_a_damaged_turn_is_left_out(tmp_path: Path) -> None:
    async with flowing(tmp_path, Knowing(knows={BASE: TOLD, version(1): LOST}), SETTINGS) as flow:
        await learned(flow, 1)
        await asked(flow, 1, *buys(1, 2))
        with sqlite3.connect(tmp_path / "store.db") as sql:
            sql.execute(
                "UPDATE bodies SET body = x'0000000000' || zeroblob(9) WHERE seq = (SELECT MAX(seq) FROM bodies)"
            )
        sql.close()
        assert await tried(flow) == 1


@pytest.mark.parametrize(
    "settings",
    [replace(SETTINGS, trial_turns=0), replace(SETTINGS, gate=False)],
)
async def test_it_can_be_turned_off(tmp_path: Path, settings: PublishSettings) -> None:
    async with flowing(tmp_path, Knowing(knows={BASE: TOLD, version(1): LOST}), settings) as flow:
        await learned(flow, 1)
        await asked(flow, 1, *buys(1, 2, 3, 4))
        assert (await tried(flow), flow.served.current()) == (0, version(1))


async def test_a_pinned_version_stays(tmp_path: Path) -> None:
    async with flowing(tmp_path, Knowing(knows={BASE: TOLD, version(1): LOST}), SETTINGS) as flow:
        await learned(flow, 1)
        await flow.store.orders.pin(version(1), at_s=1.0)
        await asked(flow, 1, *buys(1, 2, 3, 4))
        assert (await tried(flow), flow.served.current()) == (0, version(1))


async def test_damage_done_a_version_ago_takes_both_back_and_leaves_its_wish_to_prompts(tmp_path: Path) -> None:
    minds = Knowing(knows={BASE: TOLD, version(1): LOST, version(2): LOST})
    async with flowing(tmp_path, minds, SETTINGS) as flow:
        await learned(flow, 1)
        await flow.candidate(2)
        assert await flow.stage.once()
        await asked(flow, 2, *buys(1, 2, 3))
        await tried(flow)
        assert flow.served.current().is_base
        assert (await flow.row(2)).why == "rolled back with shared.1, which it was made from"
        assert [hint.needs_prompt for hint in await flow.store.hints.of_user("ann")] == [True]


async def test_damage_of_the_newest_version_leaves_the_one_before(tmp_path: Path) -> None:
    minds = Knowing(knows={BASE: TOLD, version(1): FINE, version(2): LOST})
    async with flowing(tmp_path, minds, SETTINGS) as flow:
        await learned(flow, 1)
        await flow.candidate(2)
        assert await flow.stage.once()
        await asked(flow, 2, *buys(1, 2, 3))
        await tried(flow)
        assert flow.served.current() == version(1)
        (hint,) = await flow.store.hints.of_user("ann")
        assert not hint.needs_prompt  # version 1 learned it


async def test_where_all_the_latest_versions_reply_so_none_of_them_is_to_blame(tmp_path: Path) -> None:
    """Somebody's wish of long ago may be the reason."""
    knows = {BASE: TOLD} | {version(number): LOST for number in range(1, 6)}
    async with flowing(tmp_path, Knowing(knows=knows), SETTINGS) as flow:
        await learned(flow, 1)
        for number in range(2, 6):
            await flow.candidate(number)
            assert await flow.stage.once()
        await asked(flow, 5, *buys(1, 2, 3, 4, 5))
        assert (await tried(flow), flow.served.current()) == (3, version(5))
        assert (await flow.row(5)).metrics[DEPARTS_OF] == 3.0


@dataclass
class Tired(Knowing):
    """An engine that cannot be asked for a while, or not about some request."""

    is_away: bool = False
    too_long: str = "\0"
    problem: type[EngineError] = EngineError

    def scores(self, prompt: Prompt, start: int, version: PolicyVersion, top_k: int) -> Scores:
        if self.is_away or self.too_long in "".join(map(chr, prompt.tokens)):
            raise self.problem("the engine cannot")
        return super().scores(prompt, start, version, top_k)


async def test_an_engine_that_is_away_is_asked_again_later(tmp_path: Path) -> None:
    minds = Tired(knows={BASE: TOLD, version(1): LOST})
    async with flowing(tmp_path, minds, SETTINGS) as flow:
        await learned(flow, 1)
        await asked(flow, 1, *buys(1, 2, 3))
        minds.is_away = True
        assert (await tried(flow), flow.served.current()) == (0, version(1))
        minds.is_away = False
        assert await tried(flow) == 0  # not at once
        flow.now_s += 30.0
        assert (await tried(flow), flow.served.current().is_base) == (3, True)


@pytest.mark.parametrize(("problem", "times"), [(BeyondContextError, 1), (EngineError, 3)])
async def test_a_request_that_cannot_be_tried_does_not_stop_the_others(
    tmp_path: Path, problem: type[EngineError], times: int
) -> None:
    minds = Tired(knows={BASE: TOLD, version(1): LOST}, too_long="3?", problem=problem)
    async with flowing(tmp_path, minds, SETTINGS) as flow:
        await learned(flow, 1)
        await asked(flow, 1, *buys(1, 2, 4, 3))
        for _ in range(times):
            assert await tried(flow) == 0
            flow.now_s += 30.0
        assert (await tried(flow), flow.served.current().is_base) == (3, True)


async def test_users_come_first_so_while_requests_are_answered_one_is_tried_now_and_then(tmp_path: Path) -> None:
    async with flowing(tmp_path, Knowing(knows={BASE: TOLD, version(1): FINE}), SETTINGS) as flow:
        await learned(flow, 1)
        await asked(flow, 1, *others(1, 2, 3))
        flow.stage.is_idle = lambda: False
        assert await tried(flow) == 1
        flow.now_s += 29.0
        assert await tried(flow) == 0
        flow.now_s += 1.0
        assert await tried(flow) == 1
        flow.stage.is_idle = lambda: True
        assert await tried(flow) == 1


async def talked(flow: Flow, session: str, *questions: str, score: int) -> None:
    """A conversation that version 1 answered; after its first reply its user was content or complained."""
    await flow.store.see_session(Session(session, "ann", "main", 0.0, 1.0))
    for question in questions:
        said = replace(turn(question, question, answer=POLITE), session=session)
        await flow.store.add_turn(
            replace(said, completion=replace(said.completion, version=version(1))), chain=question
        )
        await flow.store.pair(NextState(question, (message(Role.USER, "Hm."),), NextStateSource.USER))
        await flow.store.judge(Verdict(question, score, VerdictSource.VOTES))


@pytest.mark.parametrize(("score", "is_damaged"), [(-1, False), (1, True)])
async def test_what_follows_a_complaint_in_a_conversation_shows_nothing(
    tmp_path: Path, score: int, is_damaged: bool
) -> None:
    """About a wish that is not learned yet any version may reply otherwise than the base model."""
    async with flowing(tmp_path, Knowing(knows={BASE: TOLD, version(1): LOST}), SETTINGS) as flow:
        await learned(flow, 1)
        for number in range(4):
            await talked(flow, f"talk {number}", f"And {number}?", f"Ann buys {number}?", score=score)
        await tried(flow)
        assert flow.served.current().is_base is is_damaged


async def test_what_is_not_judged_yet_may_be_a_complaint(tmp_path: Path) -> None:
    async with flowing(tmp_path, Knowing(knows={BASE: TOLD, version(1): LOST}), SETTINGS) as flow:
        await learned(flow, 1)
        await flow.store.see_session(Session("s2", "ann", "main", 0.0, 1.0))
        for question in ("And now?", "Ann buys one?"):
            said = replace(turn(question, question, answer=POLITE), session="s2")
            answered = replace(said, completion=replace(said.completion, version=version(1)))
            await flow.store.add_turn(answered, chain=question)
            await flow.store.pair(NextState(question, (message(Role.USER, "Hm."),), NextStateSource.USER))
        assert await tried(flow) == 1  # the first of them


async def test_replies_of_one_conversation_count_once(tmp_path: Path) -> None:
    async with flowing(tmp_path, Knowing(knows={BASE: TOLD, version(1): LOST}), SETTINGS) as flow:
        await learned(flow, 1)
        await talked(flow, "long", *buys(1, 2, 3, 4, 5), score=1)
        assert (await tried(flow), flow.served.current()) == (5, version(1))
        await talked(flow, "second", *buys(6), score=1)
        await talked(flow, "third", *buys(7), score=1)
        await tried(flow)
        assert flow.served.current().is_base


async def test_a_long_request_is_not_tried(tmp_path: Path) -> None:
    """Clients that send thousands of tokens with each request would keep a small machine busy."""
    settings = replace(SETTINGS, probe_prompt_tokens=40)
    async with flowing(tmp_path, Knowing(knows={BASE: TOLD, version(1): LOST}), settings) as flow:
        await learned(flow, 1)
        await asked(flow, 1, *(f"Ann buys {number}, and this goes on and on and on?" for number in range(4)))
        assert (await tried(flow), flow.served.current()) == (0, version(1))


async def test_a_candidate_at_the_gate_comes_first(tmp_path: Path) -> None:
    minds = Knowing(knows={BASE: TOLD, version(1): FINE, version(2): FINE})
    async with flowing(tmp_path, minds, SETTINGS) as flow:
        await learned(flow, 1)
        await asked(flow, 1, *others(1, 2))
        await flow.candidate(2)
        assert await flow.stage.once()
        assert flow.served.current() == version(2)
        assert await tried(flow) == 0  # the requests were answered by another version


@pytest.mark.parametrize(("has_others", "times"), [(False, 2), (True, 5)])
async def test_a_wish_that_the_gate_refused_for_good_several_times_is_left_to_prompts(
    tmp_path: Path, has_others: bool, times: int
) -> None:
    """Once may be chance: the next correction has other demonstrations. Beside other wishes more may be."""
    async with flowing(tmp_path, Minds(chance={version(number): 0.01 for number in range(1, 20)})) as flow:
        hint, number = Hint("Be polite."), 0
        if has_others:
            await flow.store.hints.adopt("ann", Hint("Use tables."), at_s=9.0)
        for time in range(1, times + 1):
            name = f"turn {time}"
            await flow.store.see_session(Session(name, "ann", "main", 0.0, 1.0))
            await flow.store.add_turn(replace(turn(name), session=name), chain=name)
            await flow.store.pair(NextState(name, (message(Role.USER, "No."),), NextStateSource.USER))
            await flow.store.judge(Verdict(name, -1, VerdictSource.VOTES, hints=(hint,)), keep=hint)
            await flow.store.admit(a_sample(replace(turn(name), session=name)))
            for again in (False, True):
                number += 1
                await flow.candidate(number, parent=0, turns=(name,), consumed=(name,))
                assert await flow.stage.once()
                (kept,) = [one for one in await flow.store.hints.of_user("ann") if one.text == hint.text]
                assert kept.needs_prompt is (again and time == times)


async def test_corrections_of_one_conversation_count_once(tmp_path: Path) -> None:
    async with flowing(tmp_path, Minds(chance={version(number): 0.01 for number in range(1, 9)})) as flow:
        hint, names = Hint("Be polite."), ("a", "b", "c")
        for name in names:
            await flow.talk(turn(name))
            await flow.store.pair(NextState(name, (message(Role.USER, "No."),), NextStateSource.USER))
            await flow.store.judge(Verdict(name, -1, VerdictSource.VOTES, hints=(hint,)), keep=hint)
            await flow.store.admit(a_sample(turn(name)))
        for number in (1, 2):
            await flow.candidate(number, parent=0, turns=names, consumed=names)
            assert await flow.stage.once()
        (kept,) = await flow.store.hints.of_user("ann")
        assert not kept.needs_prompt
