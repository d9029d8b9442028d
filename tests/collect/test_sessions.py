"""Which session a request belongs to, in the order of the specification, and why."""

from __future__ import annotations

import pytest
from conversation import Served, reply, user
from hypothesis import given, settings
from hypothesis import strategies as st

from openclaw_rl.collect.sessions import session_name, space_in, space_of, tidy
from openclaw_rl.core.ledger import State
from openclaw_rl.core.message import Json
from openclaw_rl.core.turn import TurnKind

ALL_HEADERS = {"X-Session-Id": "h1", "x-session-affinity": "h2", "session_id": "h3"}
ALL_FACTS: dict[str, Json] = {
    "session_id": "b1",
    "prompt_cache_key": "b2",
    "metadata": {"session_id": "b4"},
}


async def test_the_first_that_is_there_names_the_session(served: Served) -> None:
    headers, facts = dict(ALL_HEADERS), dict(ALL_FACTS)
    names = []
    for held in (headers, headers, headers, facts, facts, facts):
        _, placement = await served.ask("hi", headers=headers, facts=facts)
        names.append((placement.session, placement.why.partition("; ")[2]))
        held.pop(next(iter(held)))
    _, last = await served.ask("hi", headers=headers, facts=facts)
    assert names == [
        ("key:h1", "session from X-Session-Id"),
        ("key:h2", "session from the x-session-affinity header"),
        ("key:h3", "session from the session_id header"),
        ("key:b1", "session from the body's session_id"),
        ("key:b2", "session from the body's prompt_cache_key"),
        ("key:b4", "session from the body's metadata.session_id"),
    ]
    assert last.session.startswith("key:auto-")
    assert last.why == "main: no rule says otherwise; a new session, since it names none and continues nothing"


async def test_two_requests_that_name_nothing_never_share_a_session(served: Served) -> None:
    sessions = {(await served.ask("hi", f"hello {n}"))[1].session for n in range(20)}
    assert len(sessions) == 20


@pytest.mark.parametrize("empty", ["", "  ", None, [], {"a": 1}, True, False, 1.5])
async def test_what_is_no_name_names_nothing(served: Served, empty: Json) -> None:
    _, placement = await served.ask(
        "hi", headers={"X-Session-Id": " "}, facts={"session_id": empty, "prompt_cache_key": 7}
    )
    assert placement.session == ("key:true" if empty is True else "key:7")


async def test_a_request_without_a_name_goes_on_in_the_session_of_the_turn_it_extends(served: Served) -> None:
    turn, first = await served.ask("hi", "hello")
    _, second = await served.ask([user("hi"), reply("hello"), user("more")])
    assert second.session == first.session
    assert "; session from the conversation it continues; continues turn " in second.why
    assert second.parent == turn


async def test_a_previous_response_is_followed_within_its_own_key_alone(served: Served) -> None:
    turn, first = await served.ask("hi", "hello")
    for name in (turn.id, f"resp_{turn.id}", f"chatcmpl-{turn.id}"):
        _, second = await served.ask("more", facts={"previous_response_id": name})
        assert second.session == first.session
        assert "; session from the body's previous_response_id" in second.why
    for name in ("nothing", "resp_", ""):
        _, third = await served.ask("more", facts={"previous_response_id": name})
        assert third.session != first.session
    _, theirs = await served.ask("more", key="other", facts={"previous_response_id": turn.id})
    assert theirs.session.startswith("other:auto-")


async def test_of_twins_that_read_the_same_the_response_that_is_named_is_gone_on_from(served: Served) -> None:
    one, _ = await served.ask("hi", "hello", headers={"X-Session-Id": "s"})
    two, _ = await served.ask("hi", "hello", headers={"X-Session-Id": "s"})
    talk = [user("hi"), reply("hello"), user("more")]
    _, named = await served.ask(talk, facts={"previous_response_id": f"resp_{one.id}"})
    assert named.parent == one and named.session == one.session
    states = {turn.id: (await served.store.row(turn.id)).state for turn in (one, two)}  # type: ignore[union-attr]
    assert states == {one.id: State.PAIRED, two.id: State.SERVED}


async def test_two_keys_cannot_write_into_one_session(served: Served) -> None:
    mine, _ = await served.ask("hi", "hello", key="a", headers={"X-Session-Id": "b:c"})
    _, theirs = await served.ask([user("hi"), reply("hello"), user("no")], key="a:b", headers={"X-Session-Id": "c"})
    assert theirs.session != mine.session
    assert theirs.parent is None
    _, unnamed = await served.ask([user("hi"), reply("hello"), user("no")], key="a:b")
    assert unnamed.session not in (mine.session, theirs.session)
    assert await served.next_state(mine) is None


@settings(deadline=None)
@given(st.text(), st.text(), st.text(), st.text())
def test_different_keys_never_give_one_session(key: str, given_name: str, other_key: str, other: str) -> None:
    one, two = session_name(key, given_name), session_name(other_key, other)
    assert (one == two) == (key == other_key and tidy(given_name) == tidy(other))
    assert space_in(one) == space_of(key)


@settings(deadline=None)
@given(st.text(min_size=1).map(str.strip), st.text(min_size=1).map(str.strip))
def test_names_are_made_readable_without_becoming_one(one: str, two: str) -> None:
    assert tidy(one).isprintable()
    assert len(tidy(one)) <= 120
    if one != two:
        assert tidy(one) != tidy(two)


async def test_headers_tell_user_and_agent_and_the_key_stands_in(served: Served) -> None:
    _, told = await served.ask("hi", headers={"X-User-Id": "bob", "X-Agent-Id": "coder"})
    _, untold = await served.ask("hi", key="alice")
    assert (told.user, told.agent) == ("bob", "coder")
    assert (untold.user, untold.agent) == ("alice", "default")


async def test_a_request_is_main_or_side_by_header_then_body_then_main(served: Served) -> None:
    cases: list[tuple[dict[str, str], dict[str, Json], TurnKind, str]] = [
        ({"X-Turn-Type": "Side"}, {"turn_type": "main"}, TurnKind.SIDE, "side: X-Turn-Type says so"),
        ({}, {"turn_type": "side"}, TurnKind.SIDE, "side: the body's turn_type says so"),
        ({"X-Turn-Type": "main"}, {}, TurnKind.MAIN, "main: X-Turn-Type says so"),
        (
            {"X-Turn-Type": "mane"},
            {},
            TurnKind.MAIN,
            "main: no rule says otherwise, X-Turn-Type is neither main nor side",
        ),
        ({}, {"turn_type": 3}, TurnKind.MAIN, "main: no rule says otherwise"),
    ]
    for headers, facts, kind, why in cases:
        _, placement = await served.ask("hi", headers=headers, facts=facts)
        assert placement.kind is kind
        assert placement.why.partition(";")[0] == why
