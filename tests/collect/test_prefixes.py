"""Histories compared: what clients change on the way makes no difference, and anything said does."""

from __future__ import annotations

from dataclasses import replace

import pytest
from conversation import reply, user
from hypothesis import given, settings
from hypothesis import strategies as st

from openclaw_rl.collect.classify import LEAST_LOOPED, LEAST_REPEATS, LONGEST_UNIT, loops
from openclaw_rl.collect.histories import Index, KnownReply, extended, following, history_of
from openclaw_rl.core.ledger import State
from openclaw_rl.core.message import ImagePart, Message, Role, TextPart, ToolCall, message
from openclaw_rl.testing.turns import a_turn

CALL = ToolCall("call_1", "ls", '{"path": ".", "n": 2.0}')
SAID = Message(Role.ASSISTANT, (TextPart("Let me look."),), tool_calls=(CALL,))


def chain(*messages: Message) -> str:
    return history_of("key", messages).prefix


@pytest.mark.parametrize(
    "same",
    [
        replace(SAID, reasoning="it is simple"),
        replace(SAID, content=(TextPart("  Let me look.\n\n"),)),
        replace(SAID, content=(TextPart("Let me "), TextPart("look."))),
        replace(SAID, content=(TextPart("<think>\nhm\n</think>\n\nLet me look."),)),
        replace(SAID, tool_calls=(replace(CALL, id="call1"),)),
        replace(SAID, tool_calls=(replace(CALL, arguments='{"n":2,"path":"."}'),)),
    ],
)
def test_what_clients_change_on_the_way_makes_no_difference(same: Message) -> None:
    assert chain(user("hi"), same) == chain(user("hi"), SAID)


@pytest.mark.parametrize(
    "other",
    [
        replace(SAID, content=(TextPart("Let me  look."),)),
        replace(SAID, tool_calls=()),
        replace(SAID, tool_calls=(CALL, CALL)),
        replace(SAID, tool_calls=(replace(CALL, name="cat"),)),
        replace(SAID, tool_calls=(replace(CALL, arguments='{"path": ".", "n": 3}'),)),
        replace(SAID, tool_calls=(replace(CALL, arguments='{"path": "."'),)),
        replace(SAID, content=(*SAID.content, ImagePart("data:x"))),
        Message(Role.USER, SAID.content),
    ],
)
def test_what_was_said_makes_a_difference(other: Message) -> None:
    assert chain(user("hi"), other) != chain(user("hi"), SAID)


def test_system_messages_and_call_ids_of_results_are_left_out() -> None:
    result = Message(Role.TOOL, (TextPart("a"),), tool_call_id="1", name="ls")
    bare = Message(Role.TOOL, (TextPart("a"),))
    system = message(Role.SYSTEM, "be kind")
    assert chain(system, SAID, system, result) == chain(SAID, bare)


def test_nothing_said_can_pass_for_two_things_said() -> None:
    assert chain(user("a"), user("b")) != chain(user("ab"))
    assert chain(user("a4:user1:b")) != chain(user("a"), user("b"))
    called = Message(Role.ASSISTANT, (TextPart("x"),), tool_calls=(ToolCall("", "f", "{}"),))
    assert chain(called) != chain(reply("x4:call1:f2:{}"))


def test_another_key_has_other_digests_for_the_same_words() -> None:
    assert history_of("a", [user("hi")]).prefix != history_of("b", [user("hi")]).prefix


deep = "[" * 100_000


@pytest.mark.parametrize("arguments", [deep, "\ud800", '{"a": 1e999}', "9" * 5000, '{"a":"\\ud800"}', "NaN"])
def test_arguments_of_any_shape_have_a_digest(arguments: str) -> None:
    asked = Message(Role.ASSISTANT, tool_calls=(ToolCall("1", "f", arguments),))
    assert extended("", asked) == extended("", asked)
    assert extended("", asked) != extended("", replace(asked, tool_calls=(ToolCall("1", "f", "{}"),)))


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from([Role.SYSTEM, Role.USER, Role.ASSISTANT, Role.TOOL]), st.text())))
def test_a_history_is_its_beginning_and_one_message_more(said: list[tuple[Role, str]]) -> None:
    messages = [message(role, text) for role, text in said]
    history = history_of("key", messages)
    assert len(history.spoken) == len(history.chains)
    for at, item in enumerate(history.spoken):
        before = history.chains[at - 1] if at else history_of("key", []).prefix
        assert history.chains[at] == extended(before, item)
    for at in history.replies:
        after = following(history, at)
        assert history.spoken[at + 1 : at + 1 + len(after)] == after
        assert all(item.role is not Role.ASSISTANT for item in after)


@settings(deadline=None)
@given(st.text(max_size=300), st.text(min_size=1, max_size=40), st.integers(1, 200))
def test_a_loop_is_found_whatever_is_looped(before: str, unit: str, times: int) -> None:
    text = before + unit * times
    told = False
    for size in range(1, LONGEST_UNIT + 1):  # by the definition, letter by letter
        looped = max(LEAST_LOOPED, size * LEAST_REPEATS)
        if looped <= len(text) and any(letter.isalnum() for letter in text[-size:]):
            tail = text[-looped:]
            told = told or all(tail[at] == tail[at - size] for at in range(size, looped))
    assert loops(text) is told


def test_an_index_holds_turns_up_to_its_budget_and_the_latest_used_longest() -> None:
    turns = [a_turn(f"t{number}", "1234", "12345") for number in range(4)]  # 5 ids asked, 6 answered: 11 + 16 + 64
    index = Index(chains=2, tokens=3 * 91)
    for turn in turns[:3]:
        index.keep(turn)
    assert index.turn("t0") == turns[0]
    index.keep(turns[3])
    assert [index.turn(f"t{number}") is not None for number in range(4)] == [True, False, True, True]
    for name in ("a", "b", "c"):
        index.add(name, KnownReply(name, "s", State.SERVED))
        index.find("a", None)
    assert [len(index.find(name, None)) for name in ("a", "b", "c")] == [1, 0, 1]
    assert index.find("a", "other") == []


def test_a_turn_counts_by_its_messages_too() -> None:
    short, long = a_turn("short", "x"), a_turn("long", [message(Role.USER, "x")] * 1000)
    index = Index(chains=2, tokens=2000)
    index.keep(short)
    index.keep(long)  # 1000 messages are worth 16,000 ids, whatever they say
    assert (index.turn("short"), index.turn("long")) == (None, None)
    index.keep(short)
    assert index.turn("short") == short
