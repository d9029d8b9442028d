"""OpenClaw's histories that do not go on: compacted, begun anew, tried again; and what of its habits may be missing."""

from __future__ import annotations

import pytest
from claw_requests import BLOCK, READ, RULES, STAMP, SYSTEM, ask, asked, first, kind, request, runtime, said
from conversation import Served, reply, user

from openclaw_rl.collect.clients.openclaw import SUMMARY
from openclaw_rl.core.ledger import DropReason, State
from openclaw_rl.core.message import Message, Role, TextPart, ToolCall, message
from openclaw_rl.core.turn import TurnKind

QUEUE = "[Queued user message from a previous active turn; preserved as context only. Continue with what is below.]"
AGAIN = "Continue the current task from the existing transcript, preserving completed work. Do not restart the task."


def summary(text: str = "s", line: str | None = None) -> Message:
    begun = f"{SUMMARY}\n\n<summary>\n{text}\n</summary>"
    return Message(Role.USER, (TextPart(begun), TextPart(line or runtime())))


def retry(words: str) -> Message:
    return user(f"{STAMP}{QUEUE}\n{words}\n\n{AGAIN}")


@pytest.mark.parametrize(("before", "after"), [({}, {}), ({"X-Session-Affinity": "5e55:0"}, {"session_id": "5e55:1"})])
async def test_a_reply_kept_over_a_compaction_gets_the_next_words(
    served: Served, before: dict[str, str], after: dict[str, str]
) -> None:
    one, _ = await ask(served, request(first("fact 1")), "noted 1", headers=before)
    two, _ = await ask(served, request(first("fact 1"), reply("noted 1"), said("fact 2")), "noted 2", headers=before)
    kept = (summary(), reply("noted 1"), said("fact 2"), reply("noted 2"), said("no, three"))
    three, told = await ask(served, request(*kept), "noted 3", headers=after)
    assert told.parent == two
    assert told.why.endswith(f"; after a compaction, continues turn {two.id}")
    assert await served.next_state(one) == (user("fact 2"),)
    assert await served.next_state(two) == (user("no, three"),)
    _, onward = await ask(served, request(*kept, reply("noted 3"), said("thanks")), "ok", headers=after)
    assert onward.parent == three


async def test_a_reply_lost_in_a_compaction_is_over_at_once(served: Served) -> None:
    lost, _ = await ask(served, request(first("fact 1")), "noted 1")
    _, told = await ask(served, request(summary(), said("fact 2")), "noted 2")
    assert await served.reason(lost) is DropReason.NO_NEXT_STATE
    assert told.why.endswith("; after a compaction, which kept no reply that waited")


async def test_a_compaction_in_the_middle_of_a_run_links_the_tools_result(served: Served) -> None:
    called = Message(Role.ASSISTANT, tool_calls=(ToolCall("call_1", "read", '{"path":"a"}'),))
    sent = Message(Role.ASSISTANT, tool_calls=(ToolCall("call1", "read", '{"path": "a"}'),))
    turn, _ = await ask(served, request(first("read a")), called)
    _, told = await ask(served, request(summary(), sent, message(Role.TOOL, "alpha")), "it says alpha")
    assert told.parent == turn
    assert await served.next_state(turn) == (message(Role.TOOL, "alpha"),)


async def test_a_kept_reply_nobody_answered_yet_keeps_waiting(served: Served) -> None:
    turn, _ = await ask(served, request(first("fact 1")), "noted 1")
    await ask(served, request(summary(), reply("noted 1"), user(AGAIN)), "so")
    assert await served.state(turn) is State.SERVED


async def test_a_compaction_of_one_session_ends_nothing_of_another(served: Served) -> None:
    other, _ = await ask(served, request(first("fact 1", runtime("agent:work:b", "5e56"))), "noted 1")
    long_ago, _ = await ask(served, request(first("fact 1")), "noted", headers={"X-Session-Affinity": "5e55:x"})
    await ask(served, request(summary(), reply("noted 1"), said("no")), "ok")
    assert await served.state(other) is State.SERVED
    assert await served.state(long_ago) is State.SERVED


@pytest.mark.parametrize("after", [{}, {"X-Session-Affinity": "5e55:3"}])
async def test_a_session_begun_anew_ends_the_old_one_at_once(served: Served, after: dict[str, str]) -> None:
    before = {"X-Session-Affinity": "5e55:1"} if after else {}
    old, _ = await ask(served, request(first("hi")), "hello", headers=before)
    new, told = await ask(served, request(first("good morning")), "morning", headers=after)
    assert await served.reason(old) is DropReason.NO_NEXT_STATE
    assert told.why.endswith("; restarts its session")
    assert await served.state(new) is State.SERVED
    late = {"X-Session-Affinity": "5e55:0"}
    if after:  # an older epoch that comes late ends nothing of a newer one
        await ask(served, request(first("long ago")), "yes", headers=late)
        assert await served.state(new) is State.SERVED


async def test_what_is_asked_or_tried_again_ends_nothing(served: Served) -> None:
    turn, _ = await ask(served, request(first("hi")), "hello")
    _, told = await ask(served, request(first("hi")), "hey")
    assert told.why.endswith(f"; asks again what turn {turn.id} answered")
    wrapped = user(f"{STAMP}{QUEUE}\nhi\n\n{AGAIN}\n\n{runtime()}")
    _, told = await ask(served, request(wrapped), "good day")
    assert told.kind is TurnKind.MAIN
    assert told.why.startswith("main: has tools, and the client continues with a user's turn")
    _, told = await ask(served, request(user(f"This turn ended before a reply: no\n\n{runtime()}"), said("hi")), "yo")
    assert await served.state(turn) is State.SERVED


async def test_a_name_the_operator_gave_to_all_conversations_is_no_session_to_begin_anew(served: Served) -> None:
    fixed = {"X-Session-Id": "everything"}
    turn, _ = await ask(served, request(first("hi")), "hello", headers=fixed)
    await ask(served, request(first("another")), "yes", headers=fixed)
    await ask(served, request(summary(), said("third")), "yes", headers=fixed)
    assert await served.state(turn) is State.SERVED


async def test_a_retry_brings_the_users_new_words_to_the_reply_before_it(served: Served) -> None:
    one, _ = await ask(served, request(first("hi")), "hello")
    two, told = await ask(served, request(first("hi"), reply("hello"), retry("No, in French.\n\nPlease.")), "bonjour")
    assert told.parent == one
    assert await served.next_state(one) == (user("No, in French.\n\nPlease."),)
    bare = user(f"{STAMP}{AGAIN}")
    await ask(served, request(first("hi"), reply("hello"), retry("No, in French."), reply("bonjour"), bare), "x")
    assert await served.state(two) is State.SERVED


@pytest.mark.parametrize(
    ("messages", "heard"),
    [
        ([retry("shorter")], ["shorter"]),
        ([user(f"{QUEUE}\nshorter\n\n{AGAIN}")], ["shorter"]),
        ([user(f"{STAMP}{QUEUE}\none\n\n{QUEUE}\ntwo\n\n{AGAIN}")], ["one\n\ntwo"]),
        ([user(f"{STAMP}{QUEUE}\nold words\n\nand new ones")], ["old words\n\nand new ones"]),
        ([said("shorter"), retry("shorter")], ["shorter"]),  # said once
        ([said("kürzer, bitte"), retry("на русском")], ["kürzer, bitte", "на русском"]),
        ([user("ok"), user("ok")], ["ok", "ok"]),  # said twice
        ([user(f"{QUEUE}\nFollow the heartbeat monitor scratch context.\n\n{AGAIN}")], []),
        ([user(f"{QUEUE}\n\n{AGAIN}")], []),
    ],
)
def test_of_a_retry_only_what_the_user_said_is_heard(messages: list[Message], heard: list[str]) -> None:
    assert [item.text for item in RULES.heard(messages)] == heard


def test_a_retry_is_of_the_kind_of_what_is_tried_again() -> None:
    beat = "Follow the heartbeat monitor scratch context."
    own = runtime("agent:main:main")
    assert kind(user(f"{QUEUE}\n{beat}\n\n{AGAIN}\n\n{own}"))[0] is TurnKind.SIDE
    nudge = user("The previous attempt did not produce a user-visible answer. Continue.")
    assert kind(user(f"{beat}\n\n{own}"), reply(""), nudge)[0] is TurnKind.SIDE
    assert kind(first("hi"), reply(""), nudge)[0] is TurnKind.MAIN
    done = user("A background task completed. Its result: 3")
    assert kind(first("hi"), reply("yes"), user(beat), reply("HEARTBEAT_OK"), done)[0] is TurnKind.MAIN
    assert kind(first("hi"), reply("yes"), user("An errand nobody knows."), reply("ok"), nudge)[0] is TurnKind.SIDE


@pytest.mark.parametrize(
    "stamp",
    [
        "[Mon 2026-11-23 08:05 UTC] ",
        "[Sun 2031-07-06 23:59 GMT+5:30] ",
        "[Wed 2027-01-06 07:00:12 America/Argentina/Buenos_Aires] ",
        "[Mi. 2027-01-06 07:00 MEZ] ",
        "[ср 2027-01-06 07:00 MSK] ",
        "[Telegram Ann id:7 +2m Tue 2026-11-24 10:00 EST] ",
        "[Tue 2026-11-24 10:00] ",
    ],
)
def test_the_time_stamp_is_read_in_any_zone_and_language(stamp: str) -> None:
    words = user(f"{stamp}nein, kürzer\n\n{runtime()}")
    assert kind(words) == (TurnKind.MAIN, "has tools and a user's time stamp")
    assert RULES.heard((user(f"{stamp}nein, kürzer"),)) == (user("nein, kürzer"),)


@pytest.mark.parametrize("tools", [(READ,), ()])
def test_without_time_stamps_and_tools_a_users_turn_is_still_main(tools: tuple[object, ...]) -> None:
    opening = (SYSTEM, user(f"hi\n\n{runtime()}"), BLOCK)
    onward = (SYSTEM, opening[1], reply("hello"), user("no, in French"), BLOCK)
    given = (READ,) if tools else ()
    for messages in (opening, onward):
        found, why = RULES.kind(asked(messages, given))
        assert found is TurnKind.MAIN
        assert why.endswith("is not an errand of the client, which adds no time stamps")
    for words in ("Follow the heartbeat monitor x", "[cron:1 x] Tell.", "Pre-compaction memory flush. Store."):
        assert RULES.kind(asked((SYSTEM, user(f"{words}\n\n{runtime()}"), BLOCK), given))[0] is TurnKind.SIDE


async def test_a_client_seen_to_stamp_words_is_known_to_by_its_key(served: Served) -> None:
    errand = user(f"An errand nobody knows.\n\n{runtime('agent:main:main', 'ee')}")
    _, before = await ask(served, request(errand), "ok")
    assert before.kind is TurnKind.MAIN
    await ask(served, request(first("hi")), "hello")
    _, after = await ask(served, request(errand), "ok")
    assert after.kind is TurnKind.SIDE


def test_blocks_that_are_missing_or_stand_in_one_message_change_nothing() -> None:
    bare = message(Role.SYSTEM, "You are a personal assistant running inside OpenClaw.\n## Tooling")
    whole = (bare, user(f"{STAMP}hi\n\n{runtime()}\n\n{BLOCK.text}"))
    for messages in ((bare, first("hi")), whole):
        assert RULES.recognises(asked(messages))
        assert RULES.session(asked(messages)) == ("5e55", "the Runtime line")
        assert RULES.kind(asked(messages, (READ,)))[0] is TurnKind.MAIN
        assert RULES.spoken(messages)[1].text == f"{STAMP}hi"


def test_the_conversation_reads_as_it_was_meant() -> None:
    messages = request(first("hi"), reply("hello"), retry("in French"), reply("bonjour"), user(f"{STAMP}{AGAIN}"))
    assert [item.text for item in RULES.readable(messages)][1:] == ["hi", "hello", "in French", "bonjour", AGAIN]
