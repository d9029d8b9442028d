"""Each noun refuses to be made wrong."""

from __future__ import annotations

import io
import math
from itertools import pairwise, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openclaw_rl.core import pipe
from openclaw_rl.core.completion import Finish, SampledToken, completion_of
from openclaw_rl.core.hint import LABEL, Hint, hinted, orders
from openclaw_rl.core.ledger import MOVES, DropReason, State, check_move
from openclaw_rl.core.message import ImagePart, Message, Role, TextPart, ToolCall, digest_of, from_json, message
from openclaw_rl.core.next_state import NextState, NextStateSource
from openclaw_rl.core.prompt import Prompt, Segment
from openclaw_rl.core.sample import Sample
from openclaw_rl.core.version import BASE, PolicyVersion, parse_version

texts = st.text(st.characters(codec="utf-8"), max_size=40)
calls = st.builds(ToolCall, id=texts, name=texts, arguments=texts)
messages = st.one_of(
    st.builds(message, st.sampled_from(Role), texts),
    st.builds(
        Message,
        st.just(Role.ASSISTANT),
        st.just(()),
        reasoning=st.none() | texts,
        tool_calls=st.lists(calls, max_size=3).map(tuple),
    ),
    st.builds(Message, st.just(Role.USER), st.tuples(st.builds(TextPart, texts), st.builds(ImagePart, texts))),
    st.builds(Message, st.just(Role.TOOL), st.tuples(st.builds(TextPart, texts)), tool_call_id=st.none() | texts),
)


@settings(deadline=None)
@given(messages)
def test_a_message_survives_being_written_and_read(item: Message) -> None:
    assert from_json(item.as_json()) == item


@settings(deadline=None)
@given(messages, messages)
def test_only_equal_messages_have_equal_digests(one: Message, other: Message) -> None:
    assert (digest_of([one]) == digest_of([other])) == (one.as_json() == other.as_json())


def test_a_hint_stands_behind_the_last_user_message_and_nowhere_else() -> None:
    said = (message("system", "s"), message("user", "a"), message("assistant", "b"), message("user", "c"))
    changed = hinted((*said, message("tool", "t")), Hint("Be brief."))
    assert [item.text for item in changed] == ["s", "a", "b", f"c\n\n{LABEL} Be brief.", "t"]
    with pytest.raises(ValueError, match="no user message"):
        hinted(said[:1], Hint("Be brief."))


def test_a_version_reads_as_it_was_written_and_knows_its_lag() -> None:
    third = PolicyVersion("shared", 3)
    assert parse_version(str(third)) == parse_version("3") == third
    assert BASE.lag(third) == 3 and third > BASE and BASE.is_base
    with pytest.raises(ValueError, match="different scopes"):
        PolicyVersion("alice", 1).lag(third)


def test_an_answer_of_two_versions_is_refused() -> None:
    token = SampledToken(5, -0.5, -0.7, BASE)
    stranger = SampledToken(6, -0.5, -0.7, PolicyVersion("shared", 1))
    assert completion_of([token], BASE, Finish.STOP).logp == (-0.7,)
    with pytest.raises(ValueError, match=r"shared\.1"):
        completion_of([token, stranger], BASE, Finish.STOP)
    with pytest.raises(ValueError, match="not finite"):
        completion_of([SampledToken(5, -0.5, math.nan, BASE)], BASE, Finish.STOP)


def test_segments_of_a_prompt_leave_no_gap() -> None:
    Prompt((1, 2, 3), (Segment(0, 2, "a"), Segment(2, 3, "b")))
    with pytest.raises(ValueError, match="gap at 2"):
        Prompt((1, 2, 3, 4), (Segment(0, 2, "a"), Segment(3, 4, "b")))
    with pytest.raises(ValueError, match="cover 2 of 3"):
        Prompt((1, 2, 3), (Segment(0, 2, "a"),))


def test_a_next_state_holds_no_assistant_or_system_message() -> None:
    with pytest.raises(ValueError, match="assistant"):
        NextState("t", (message("assistant", "x"),), NextStateSource.USER)


def test_the_lists_of_a_sample_belong_together() -> None:
    good = Sample("t", "s", "u", (1,), (2, 3), (-0.1, -0.2), (True, True), BASE, score=-1.0)
    assert good.has_signal
    with pytest.raises(ValueError, match="2 tokens, 1 log"):
        Sample("t", "s", "u", (1,), (2, 3), (-0.1,), (True, True), BASE)
    with pytest.raises(ValueError, match="at least one token"):
        Sample("t", "s", "u", (1,), (2,), (-0.1,), (False,), BASE)


def test_a_score_of_zero_is_no_signal_and_no_score_is_none() -> None:
    assert not Sample("t", "s", "u", (1,), (2,), (-0.1,), (True,), BASE, score=0.0).has_signal
    assert not Sample("t", "s", "u", (1,), (2,), (-0.1,), (True,), BASE).has_signal


def test_the_ledger_allows_the_line_of_life_and_dropping_before_its_end() -> None:
    line = [State.SERVED, State.PAIRED, State.JUDGED, State.READY, State.TRAINED]
    allowed = set(pairwise(line))
    allowed |= {(one, State.DROPPED) for one in line[:-1]}
    assert {(one, other) for one, other in product(State, State) if other in MOVES[one]} == allowed


def test_a_drop_needs_its_reason_and_nothing_else_has_one() -> None:
    check_move(State.SERVED, State.DROPPED, DropReason.EMPTY)
    with pytest.raises(ValueError, match="reason None"):
        check_move(State.SERVED, State.DROPPED, None)
    with pytest.raises(ValueError, match="reason empty"):
        check_move(State.SERVED, State.PAIRED, DropReason.EMPTY)
    with pytest.raises(ValueError, match="cannot go"):
        check_move(State.TRAINED, State.READY, None)


def test_a_pipe_gives_back_what_was_written_and_none_at_its_end() -> None:
    buffer = io.BytesIO(pipe.packed({"a": (1, 2.5)}) + pipe.packed("ü") + b"\x05\x00\x00\x00ab")
    assert pipe.read(buffer) == {"a": (1, 2.5)}
    assert pipe.read(buffer) == "ü"
    assert pipe.read(buffer) is None  # cut short: the other end died while it wrote


def test_hints_are_tried_in_orders_that_have_every_two_of_them_both_ways() -> None:
    assert orders("a") == [("a",)] and orders("ab") == [("a", "b"), ("b", "a")]
    assert orders("abc")[0] == ("a", "b", "c") and len(set(orders("abc"))) == 6
    four = orders("abcd")
    assert four[0] == ("a", "b", "c", "d") and len(four) == 4
    pairs = {(order[at], order[later]) for order in four for at in range(4) for later in range(at + 1, 4)}
    assert len(pairs) == 12
