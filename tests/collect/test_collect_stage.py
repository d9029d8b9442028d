"""The end of sessions, replies that teach nothing, feedback, and what is said where nothing can be learned."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from pathlib import Path

import pytest
from conversation import Served, reply, serving, user

from openclaw_rl.collect.classify import Tally, loops
from openclaw_rl.collect.stage import CollectSettings
from openclaw_rl.core.completion import Finish
from openclaw_rl.core.ledger import DropReason, State
from openclaw_rl.core.message import Json, Message, Role, TextPart, ToolCall
from openclaw_rl.core.turn import TurnKind

S = {"X-Session-Id": "s"}


async def test_a_session_nobody_has_used_for_long_is_over(tmp_path: Path) -> None:
    async with serving(tmp_path, CollectSettings(session_idle_s=1800.0)) as served:
        quiet, _ = await served.ask("hi", headers={"X-Session-Id": "quiet"})
        served.clock.advance(1000.0)
        busy, _ = await served.ask("hi", headers={"X-Session-Id": "busy"})
        served.clock.advance(800.0)
        assert await served.collect.sweep() == 0  # 1800 s is not longer than 1800 s
        served.clock.advance(0.5)
        assert await served.collect.sweep() == 1
        assert await served.reason(quiet) is DropReason.NO_NEXT_STATE
        assert await served.state(busy) is State.SERVED
        again, _ = await served.ask("back", headers={"X-Session-Id": "quiet"})
        assert await served.collect.sweep() == 0
        served.clock.advance(2000.0)
        assert await served.collect.sweep() == 2
        assert await served.reason(again) is DropReason.NO_NEXT_STATE


async def test_a_session_left_open_by_a_former_process_is_ended_too(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        turn, _ = await served.ask("hi", headers=S)
    async with serving(tmp_path) as served:
        served.clock.advance(5000.0)
        assert await served.collect.sweep() == 1
        assert await served.reason(turn) is DropReason.NO_NEXT_STATE


@pytest.mark.parametrize(
    ("headers", "facts"),
    [({"X-Session-Done": "1"}, {}), ({"X-Session-Done": "true"}, {}), ({}, {"session_done": True})],
)
async def test_the_turn_called_the_last_ends_its_session(
    served: Served, headers: dict[str, str], facts: dict[str, Json]
) -> None:
    first, _ = await served.ask("hi", "hello", headers=S)
    history = [user("hi"), reply("hello"), user("bye")]
    last, placement = await served.ask(history, "bye", headers=S | headers, facts=facts)
    assert placement.is_done
    assert await served.next_state(first) == (user("bye"),)
    assert await served.reason(last) is DropReason.NO_NEXT_STATE
    assert await served.store.open_sessions(seen_before_s=1e12) == []
    onward, placement = await served.ask([*history, reply("bye"), user("wait!")], headers=S)
    assert not placement.is_done
    assert await served.state(onward) is State.SERVED


@pytest.mark.parametrize("word", ["0", "false", "", "no"])
async def test_a_session_is_not_done_because_the_header_is_there(served: Served, word: str) -> None:
    turn, placement = await served.ask("hi", headers=S | {"X-Session-Done": word}, facts={"session_done": False})
    assert not placement.is_done
    assert await served.state(turn) is State.SERVED


CALL = Message(Role.ASSISTANT, tool_calls=(ToolCall("1", "ls", "{}"),))


@pytest.mark.parametrize(
    ("answer", "finish", "reason"),
    [
        ("cut o", Finish.LENGTH, DropReason.CUT_BY_LENGTH),
        ("gone aw", Finish.CANCELLED, DropReason.CANCELLED),
        ("", Finish.STOP, DropReason.EMPTY),
        (Message(Role.ASSISTANT, (TextPart(" \n"),), reasoning="but what?"), Finish.STOP, DropReason.EMPTY),
        ("NO_REPLY\n", Finish.STOP, DropReason.CONTROL_TOKEN),
        ("I am sorry. " * 40, Finish.STOP, DropReason.LOOP),
        ("Well, NO_REPLY it is.", Finish.STOP, None),
        (CALL, Finish.STOP, None),
        ("4", Finish.STOP, None),
    ],
)
async def test_a_reply_that_teaches_nothing_is_dropped_with_its_reason(
    served: Served, answer: Message | str, finish: Finish, reason: DropReason | None
) -> None:
    turn, _ = await served.ask("hi", answer, headers=S, finish=finish)
    assert await served.reason(turn) is reason
    assert await served.state(turn) is (State.SERVED if reason is None else State.DROPPED)
    side, _ = await served.ask("hi", answer, headers={"X-Turn-Type": "side"}, finish=finish)
    assert await served.state(side) is None


@pytest.mark.parametrize(
    ("text", "is_loop"),
    [
        ("no " * 40, True),  # 120 letters
        ("no " * 39, False),
        ("start, then " + "a sentence of thirty letters. " * 6, True),
        ("start, then " + "a sentence of thirty letters. " * 5, False),
        ("the end\n" + "=" * 300, False),  # a ruler
        ("0" * 120, True),
        ("no " * 40 + "and then something else", False),
        ("", False),
        (" ".join(str(number) for number in range(200)), False),
    ],
)
def test_a_loop_is_one_piece_over_and_over_to_the_end(text: str, is_loop: bool) -> None:
    assert loops(text) is is_loop


async def test_a_session_may_be_called_by_the_clients_name_or_by_its_full_one(served: Served) -> None:
    _, placement = await served.ask("hi", headers=S)
    for given in ("s", "key:s"):
        assert served.collect.session_name("key", given) == placement.session
    assert served.collect.session_name("other", "key:s") != placement.session


async def test_all_answers_to_one_request_are_ended_with_their_session(served: Served) -> None:
    first, _ = await served.ask("hi", "hello", headers=S | {"X-Session-Done": "1"})
    second = replace(first, id="another", reply=reply("hey"), group="g")
    await served.collect.commit(second)
    assert await served.reason(second) is DropReason.NO_NEXT_STATE


class Told(logging.Handler):
    """Sets an event at the first warning."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: list[str] = []
        self.event = asyncio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())
        self.event.set()


async def test_running_ends_idle_sessions_and_complains(served: Served) -> None:
    told = Told()
    logging.getLogger("openclaw_rl.collect").addHandler(told)
    for number in range(20):
        await served.ask(f"title {number}", headers={"X-Turn-Type": "side"})
    served.clock.advance(5000.0)
    task = asyncio.ensure_future(served.collect.run())
    await told.event.wait()
    assert await served.store.open_sessions(seen_before_s=1e12) == []
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    logging.getLogger("openclaw_rl.collect").removeHandler(told)
    assert told.said == [
        "all 20 requests so far were side requests, so nothing is learned: "
        "have the client send X-Turn-Type: main with the user's own turns"
    ]


def test_requests_that_go_on_from_nothing_are_complained_of_in_plain_words() -> None:
    tally = Tally()
    for _ in range(20):
        assert tally.complaint() is None
        tally.placed(TurnKind.MAIN, is_fresh=True, goes_on=False, has_history=False)
    assert "none of 20 requests continues an earlier one" in (tally.news() or "")
    assert tally.news() is None
    tally.placed(TurnKind.MAIN, is_fresh=True, goes_on=False, has_history=True)
    assert "the client changes or drops the replies" in (tally.news() or "")
    tally.placed(TurnKind.MAIN, is_fresh=False, goes_on=True, has_history=True)
    assert tally.complaint() is None
