"""Clients that name no session, and cut, edit, regenerate or decorate their histories."""

from __future__ import annotations

from pathlib import Path

import pytest
from conversation import SYSTEM, Served, reply, serving, user

from openclaw_rl.core.ledger import DropReason, State
from openclaw_rl.core.message import Message, message
from openclaw_rl.core.turn import Turn

NAMES = [{}, {"X-Session-Id": "s"}]


async def talk(served: Served, headers: dict[str, str], *, turns: int, keep: int, pin: int = 0) -> list[Turn]:
    """A client that sends its first `pin` messages and its last `keep`, and a system text that is never the same."""
    history: list[Message] = []
    told: list[Turn] = []
    for number in range(turns):
        history.append(user(f"question {number}"))
        sent = history if len(history) <= keep + pin else [*history[:pin], *history[-keep:]]
        turn, _ = await served.ask(
            [message(SYSTEM, f"It is {number} o'clock."), *sent], f"answer {number}", headers=headers
        )
        told.append(turn)
        history.append(turn.reply)
    return told


@pytest.mark.parametrize("headers", NAMES)
@pytest.mark.parametrize(("keep", "pin"), [(3, 0), (4, 0), (5, 1), (3, 2), (100, 0)])
async def test_a_client_that_cuts_old_history_still_goes_on(
    served: Served, headers: dict[str, str], keep: int, pin: int
) -> None:
    told = await talk(served, headers, turns=6, keep=keep, pin=pin)
    assert [turn.parent for turn in told] == [None, *(turn.id for turn in told[:-1])]
    assert {turn.session for turn in told} == {told[0].session}
    for number, turn in enumerate(told[:-1]):
        assert await served.next_state(turn) == (user(f"question {number + 1}"),)
    assert await served.state(told[-1]) is State.SERVED


async def test_a_cut_history_says_that_it_was_cut(served: Served) -> None:
    one, _ = await served.ask("question 0", "answer 0")
    two, _ = await served.ask([user("question 0"), reply("answer 0"), user("question 1")], "answer 1")
    _, told = await served.ask([user("question 1"), reply("answer 1"), user("question 2")])
    assert told.why.endswith(f"; continues turn {two.id}, though what was before it was cut or changed")
    _, far = await served.ask([user("question 0"), reply("other"), user("question 2")])
    assert far.why.endswith("; none of the replies in its history was served here")
    assert far.session not in (told.session, one.session)


async def test_two_cut_conversations_that_end_alike_are_told_apart_by_what_was_before(served: Served) -> None:
    lanes = {}
    for name in ("a", "b"):
        history = [user(f"{name}?"), reply(f"{name}!"), user("go on")]
        await served.ask(history[:1], f"{name}!")
        lanes[name], _ = await served.ask(history, "done")
    for name, turn in lanes.items():
        _, told = await served.ask([reply(f"{name}!"), user("go on"), reply("done"), user(f"thanks {name}")])
        assert told.session == turn.session
        assert await served.next_state(turn) == (user(f"thanks {name}"),)


async def test_a_short_answer_to_other_words_is_not_taken_for_the_one_served(served: Served) -> None:
    turn, _ = await served.ask([user("long ago"), reply("well"), user("is it so?")], "yes")
    _, told = await served.ask([user("elsewhere"), reply("hm"), user("is it so?"), reply("yes"), user("no!")])
    assert told.session != turn.session
    assert await served.next_state(turn) is None
    _, own = await served.ask([user("x"), reply("y"), user("another thing"), reply("yes"), user("no!")])
    assert own.parent is None


async def test_a_named_conversation_that_was_cut_goes_on_after_a_restart(tmp_path: Path) -> None:
    headers = {"X-Session-Id": "s"}
    async with serving(tmp_path) as served:
        await served.ask("question 0", "answer 0", headers=headers)
        last, _ = await served.ask([user("question 0"), reply("answer 0"), user("q1")], "answer 1", headers=headers)
    async with serving(tmp_path) as served:
        _, told = await served.ask([user("q1"), reply("answer 1"), user("q2")], headers=headers)
        assert told.parent == last
        assert await served.next_state(last) == (user("q2"),)


@pytest.mark.parametrize("headers", NAMES)
async def test_an_edited_beginning_leaves_the_replies_behind_it_where_they_were_served(
    served: Served, headers: dict[str, str]
) -> None:
    told = await talk(served, headers, turns=3, keep=100)
    edited = [user("question zero"), reply("answer 0"), user("question 1"), reply("answer 1")]
    edited += [user("question 2"), reply("answer 2"), user("no, shorter")]
    _, onward = await served.ask(edited, headers=headers)
    assert onward.parent == told[2]
    assert await served.next_state(told[2]) == (user("no, shorter"),)


@pytest.mark.parametrize("headers", NAMES)
async def test_a_last_reply_rolled_back_is_a_sibling_and_only_one_is_followed(
    served: Served, headers: dict[str, str]
) -> None:
    await served.ask("hi", "hello", headers=headers)
    history = [user("hi"), reply("hello"), user("a poem")]
    bad, first = await served.ask(history, "roses", headers=headers)
    good, again = await served.ask(history, "violets", headers=headers)
    assert (again.session, again.parent) == (first.session, first.parent)
    assert again.why.endswith(f", and asks again what turn {bad.id} answered")
    await served.ask([*history, reply("violets"), user("lovely")], headers=headers)
    assert await served.next_state(good) == (user("lovely"),)
    await served.collect.done(first.session, "over")
    assert await served.reason(bad) is DropReason.NOT_FOLLOWED


async def test_parallel_conversations_that_begin_alike_each_keep_their_own_words(served: Served) -> None:
    first = [await served.ask("hi", answer) for answer in ("hello", "hey")]
    for number, (turn, placed) in enumerate(first):
        _, onward = await served.ask([user("hi"), turn.reply, user(f"words {number}")])
        assert (onward.session, onward.parent) == (placed.session, turn)
        assert await served.next_state(turn) == (user(f"words {number}"),)
    assert first[0][1].session != first[1][1].session


@pytest.mark.parametrize("headers", NAMES)
async def test_a_long_history_goes_on_after_its_beginning_was_cut(served: Served, headers: dict[str, str]) -> None:
    talk: list[Message] = []
    for number in range(400):
        talk += [user(f"question {number}"), reply(f"answer {number}")]
    parted = [*talk[:600], user("what else?"), *talk[601:], user("what now?")]
    first, _ = await served.ask([*talk, user("what now?")], "this", headers=headers)
    other, _ = await served.ask(parted, "this", headers=headers)
    told, _ = await served.ask([*talk[2:], user("what now?"), reply("this"), user("thanks")], headers=headers)
    assert other.id != told.parent == first.id
    assert await served.next_state(first) == (user("thanks"),)
