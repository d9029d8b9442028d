"""A run against a scripted server over real HTTP, with the official client."""

from __future__ import annotations

from dataclasses import replace

import pytest
from scripted_server import ScriptedServer, problems_of, running

from openclaw_rl.errors import EngineError
from openclaw_rl.evals.client import Client, TurnNews
from openclaw_rl.evals.learning import AFTER, BEFORE, CONVERGED, Event, RunSettings, learn
from openclaw_rl.evals.people.users import Student
from openclaw_rl.evals.records import LearningReport, SessionRecord
from openclaw_rl.evals.settled import is_settled

STUDENT = Student(0)
SETTINGS = RunSettings(sessions=8, problems=6, stop_after=2, poll_s=0.0)


def script(**changes: int) -> ScriptedServer:
    return ScriptedServer(problems_of(STUDENT, sessions=8, measured=6), **changes)


async def run(server: ScriptedServer, settings: RunSettings = SETTINGS) -> tuple[LearningReport, list[Event]]:
    events: list[Event] = []
    report = await learn(server.base_url, "key", STUDENT, settings=settings, on_event=events.append)
    return report, events


async def test_a_run_tells_when_the_wish_held_and_what_it_took() -> None:
    async with running(script()) as server:
        report, _ = await run(server)
    # Sessions 1 and 2 need a correction each; 3, 4 and 5 are good unasked; two more follow.
    assert [session.is_good for session in report.sessions] == [False, False, True, True, True, True, True]
    assert report.converged_at == 5
    assert report.corrections == 2
    assert report.versions == 1
    assert report.refused == 0


async def test_what_is_measured_before_at_convergence_and_after_is_the_same_unseen_problems() -> None:
    async with running(script()) as server:
        report, _ = await run(server)
    before, converged, after = report.measurements
    assert [before.label, converged.label, after.label] == [BEFORE, CONVERGED, AFTER]
    assert [before.wish.count, converged.wish.count, after.wish.count] == [0, 6, 6]
    assert [before.right.count, after.right.count] == [6, 6]
    assert [item.question for item in before.examples] == [item.question for item in after.examples]
    assert (before.version, after.version) == ("shared.0", "shared.1")


async def test_measured_requests_are_side_turns_in_sessions_of_their_own() -> None:
    async with running(script()) as server:
        await run(server)
        measured = [session for session, kind, _ in server.requests if kind == "side"]
        talked = {session for session, kind, _ in server.requests if kind == "main"}
    assert len(measured) == len(set(measured)) == 18
    assert not talked & set(measured)
    assert server.ended == [f"student-0-{number}" for number in range(1, 8)]


async def test_a_run_that_ends_where_it_converged_is_measured_there_once() -> None:
    async with running(script()) as server:
        report, _ = await run(server, replace(SETTINGS, stop_after=0))
        measured = [kind for _, kind, _ in server.requests if kind == "side"]
    _, converged, after = report.measurements
    assert len(report.sessions) == report.converged_at
    assert len(measured) == 2 * SETTINGS.problems
    assert after == replace(converged, label=AFTER)


async def test_a_contented_user_says_so_in_a_last_request_and_then_the_reply_has_a_next_state() -> None:
    async with running(script()) as server:
        report, _ = await run(server)
    spoken = {session: messages for session, kind, messages in server.requests if kind == "main"}
    for session, messages in zip(report.sessions, spoken.values(), strict=True):
        assert messages[-2] == {"role": "assistant", "content": session.turns[-1].reply.text}
        assert messages[-1] == {"role": "user", "content": session.turns[-1].said}
        assert len(messages) == 2 * len(session.turns) + 1


async def test_a_user_who_is_never_content_gives_up_after_three_corrections() -> None:
    async with running(script(needed=1000, obeys_corrections=False)) as server:
        report, _ = await run(server, RunSettings(sessions=2, problems=1, poll_s=0.0))
    assert [len(session.turns) for session in report.sessions] == [4, 4]
    assert report.corrections == 6
    assert report.converged_at is None


async def test_refusals_are_counted_and_asked_again() -> None:
    async with running(script(refusals=2)) as server:
        report, _ = await run(server, RunSettings(sessions=1, problems=2, poll_s=0.0))
    assert report.refused == 2
    assert len(report.sessions) == 1


async def test_a_server_that_refuses_for_good_is_named_as_the_reason() -> None:
    async with running(script(refusals=1000)) as server, Client(server.base_url, "key", "toy", pause_s=0.0) as client:
        with pytest.raises(EngineError, match="refused a request 5 times"):
            await client.say([{"role": "user", "content": "Hi"}], session="s", temperature=0.7, max_tokens=8)


async def test_the_user_waits_until_the_server_has_learned() -> None:
    async with running(script(polls_until_settled=3)) as server:
        report, _ = await run(server, RunSettings(sessions=1, problems=1, poll_s=0.0))
        assert server.polls_until_settled == 0
    assert report.sessions[0].is_settled


async def test_what_the_judge_made_of_a_turn_comes_with_it() -> None:
    async with running(script()) as server:
        report, events = await run(server, RunSettings(sessions=1, problems=1, poll_s=0.0))
    news = report.sessions[0].turns[0].news
    assert news == TurnNews("t2", "trained", "", -1, (-1, -1, None), ("Write it in plain sentences.",))
    assert [event for event in events if isinstance(event, SessionRecord)] == list(report.sessions)


def status(**parts: dict[str, int] | bool) -> dict[str, object]:
    """A server at rest, but for what is given."""
    train = {"ready": 1, "rehearsals": 1, "needed": 2}
    quiet: dict[str, object] = {"is_settled": True, "ledger": {"ready": 2}, "train": train, "publish": {"at_gate": 0}}
    return quiet | parts


def test_a_turn_that_waits_for_a_judge_or_admission_a_step_under_way_or_a_version_at_the_gate_is_not_settled() -> None:
    assert is_settled(status())
    assert not is_settled(status(is_settled=False))
    assert not is_settled(status(ledger={"ready": 2, "paired": 1}))
    assert not is_settled(status(ledger={"ready": 2, "judged": 1}))
    assert not is_settled(status(publish={"at_gate": 1}))


def test_samples_too_few_for_a_step_do_not_hold_a_user_up_but_enough_or_unseen_ones_do() -> None:
    assert is_settled(status(train={"ready": 0, "rehearsals": 2, "needed": 1}))
    assert not is_settled(status(train={"ready": 2, "rehearsals": 0, "needed": 2}))
    assert not is_settled(status(train={"ready": 0, "rehearsals": 1, "needed": 2}))


def test_where_nothing_is_learned_nothing_is_waited_for() -> None:
    assert is_settled(status(learns=False, is_settled=False))
