"""What followed which turn: told by content, and never guessed."""

from __future__ import annotations

from pathlib import Path

import pytest
from conversation import SYSTEM, TOOL, Served, reply, serving, user

from openclaw_rl.collect.stage import CollectSettings
from openclaw_rl.core.ledger import DropReason, State
from openclaw_rl.core.message import Message, Role, TextPart, ToolCall, message
from openclaw_rl.core.next_state import NextStateSource
from openclaw_rl.testing.turns import a_turn, an_arrival

S = {"X-Session-Id": "s"}


@pytest.mark.parametrize("headers", [S, {}])
async def test_the_users_next_words_are_the_next_state(served: Served, headers: dict[str, str]) -> None:
    first, _ = await served.ask([message(SYSTEM, "be kind"), user("hi")], "hello", headers=headers)
    assert await served.state(first) is State.SERVED
    history = [message(SYSTEM, "be kind, it is Monday"), user("hi"), reply("hello"), user("no,"), user("in French")]
    second, placement = await served.ask(history, "bonjour", headers=headers)
    assert placement.parent == first
    assert await served.next_state(first) == (user("no,"), user("in French"))
    assert await served.state(second) is State.SERVED
    ((_, next_state, _),) = await served.store.paired(limit=5)
    assert next_state.source is NextStateSource.USER


async def test_a_side_request_gives_nobody_a_next_state(served: Served) -> None:
    first, _ = await served.ask("hi", "hello", headers=S)
    flush = [user("hi"), reply("hello"), user("save what you know")]
    side, placement = await served.ask(flush, "saved", headers=S | {"X-Turn-Type": "side"})
    assert placement.parent == first  # its ids may be gone on from all the same
    assert await served.next_state(first) is None
    await served.ask([user("hi"), reply("hello"), user("and now?")], headers=S)
    assert await served.next_state(first) == (user("and now?"),)
    assert await served.state(side) is None


async def test_a_turn_behind_a_side_turn_is_still_found(served: Served) -> None:
    first, _ = await served.ask("hi", "hello", headers=S)
    history = [user("hi"), reply("hello"), user("wait")]
    side, _ = await served.ask(history, "waiting", headers=S | {"X-Turn-Type": "side"})
    _, placement = await served.ask([*history, reply("waiting"), user("go")], headers=S)
    assert placement.parent == side
    assert await served.next_state(first) == (user("wait"),)


async def test_all_results_of_a_batch_of_tool_calls_are_one_next_state(served: Served) -> None:
    calls = (ToolCall("call_1", "ls", '{"path": ".", "depth": 1.0}'), ToolCall("call_2", "date", ""))
    asked = Message(Role.ASSISTANT, (TextPart("Let me look.\n"),), reasoning="hm", tool_calls=calls)
    sent = Message(  # as clients send it back: other ids, other white space, no reasoning
        Role.ASSISTANT,
        (TextPart("Let me look."),),
        tool_calls=(ToolCall("call1", "ls", '{"depth":1,"path":"."}'), ToolCall("call2", "date", "{}")),
    )
    results = (
        Message(TOOL, (TextPart("a b"),), tool_call_id="call1"),
        Message(TOOL, (TextPart("Monday"),), tool_call_id="call2"),
    )
    turn, _ = await served.ask("what is here?", asked, headers=S)
    await served.ask([user("what is here?"), sent, *results], headers=S)
    assert await served.next_state(turn) == results
    ((_, next_state, _),) = await served.store.paired(limit=5)
    assert next_state.source is NextStateSource.TOOL


LOOKED = "There is one file, which is called a, and it was changed by somebody this morning."


async def test_a_word_put_in_between_tool_results_does_not_make_them_the_users(served: Served) -> None:
    called = Message(Role.ASSISTANT, tool_calls=(ToolCall("1", "ls", "{}"),))
    said = [user("look"), called, Message(TOOL, (TextPart("a"),)), user("quick!")]
    turn, _ = await served.ask("look", called, headers=S)
    await served.ask(said, "so", headers=S)
    assert await served.store.paired(limit=5) == []  # a program may have put it there
    await served.ask([*said, reply("so"), user("thanks")], headers=S)
    sources = {each[0].id: each[1].source for each in await served.store.paired(limit=5)}
    assert sources[turn.id] is NextStateSource.TOOL
    assert await served.next_state(turn) == (said[-2], said[-1])


async def test_a_reminder_behind_a_tool_result_that_is_not_kept_was_never_the_users(served: Served) -> None:
    called = Message(Role.ASSISTANT, tool_calls=(ToolCall("1", "ls", "{}"),))
    result = Message(TOOL, (TextPart("a"),))
    turn, _ = await served.ask("look", called, headers=S)
    await served.ask([user("look"), called, result, user("Bring the plan up to date.")], LOOKED, headers=S)
    await served.ask([user("look"), called, result, reply(LOOKED), user("thanks")], headers=S)
    assert await served.next_state(turn) == (result,)


async def test_what_an_environment_says_is_tagged_so(served: Served) -> None:
    await served.ask("task", "ls", headers=S)
    await served.ask([user("task"), reply("ls"), user("a b")], headers=S | {"X-Environment": "terminal"})
    ((_, next_state, _),) = await served.store.paired(limit=5)
    assert next_state.source is NextStateSource.ENVIRONMENT


async def test_a_reply_the_client_edited_pairs_nothing_and_is_rolled_back_past(served: Served) -> None:
    first, _ = await served.ask("hi", "hello", headers=S)
    history = [user("hi"), reply("hello"), user("tell me more")]
    second, _ = await served.ask(history, "much more", headers=S)
    _, placement = await served.ask([*history, reply("much less"), user("thanks")], headers=S)
    assert placement.parent == first
    assert await served.next_state(first) == (user("tell me more"),)
    assert await served.next_state(second) is None
    await served.collect.done("key:s", "over")
    assert await served.reason(second) is DropReason.NO_NEXT_STATE


async def test_only_the_regenerated_reply_that_was_gone_on_from_has_a_next_state(served: Served) -> None:
    tries = [(await served.ask("hi", text, headers=S))[0] for text in ("hello", "hey", "good day")]
    await served.ask([user("hi"), reply("hey"), user("nice")], "thanks", headers=S)
    assert [await served.state(turn) for turn in tries] == [State.SERVED, State.PAIRED, State.SERVED]
    await served.ask([user("hi"), reply("hello"), user("hm")], "what?", headers=S)  # back to the first: a branch
    assert await served.next_state(tries[0]) == (user("hm"),)
    await served.collect.done("key:s", "over")
    assert await served.reason(tries[2]) is DropReason.NOT_FOLLOWED
    reasons = await served.store.counts()
    assert (reasons["dropped.not_followed"], reasons["dropped.no_next_state"]) == (1, 2)


async def test_of_twins_that_said_the_same_only_one_is_learned_from(served: Served) -> None:
    twins = [(await served.ask("hi", "hello", headers=S))[0] for _ in range(2)]
    history = [user("hi"), reply("hello"), user("and?")]
    await served.ask(history, "what", headers=S)
    await served.ask([*history, reply("what"), user("nothing")], "fine", headers=S)
    assert [await served.state(turn) for turn in twins] == [State.SERVED, State.PAIRED]
    await served.collect.done("key:s", "over")
    assert await served.reason(twins[0]) is DropReason.NOT_FOLLOWED


async def test_a_branch_goes_on_from_the_longest_history_that_was_served(served: Served) -> None:
    turns, history = [], [user("q0")]
    for number in range(4):
        turns.append((await served.ask(history, f"a{number}", headers=S))[0])
        history += [reply(f"a{number}"), user(f"q{number + 1}")]
    _, branch = await served.ask([*history[:3], reply("a1"), user("other q2")], "b2", headers=S)
    assert branch.parent == turns[1]
    assert await served.next_state(turns[1]) == (user("q2"),)  # the first to go on from it stays its next state


async def test_interleaved_conversations_without_headers_stay_apart(served: Served) -> None:
    alice, bob = [user("hi")], [user("hi")]
    sessions: dict[str, set[str]] = {"alice": set(), "bob": set()}
    turns = []
    for number in range(4):
        for name, history in (("alice", alice), ("bob", bob)):
            answer = "hello" if number == 0 else f"{name} {number}"  # the first replies are the same
            turn, placement = await served.ask(history, answer)
            sessions[name].add(placement.session)
            turns.append(turn)
            history += [reply(answer), user(f"{name} asks {number}")]
    assert len(sessions["alice"] | sessions["bob"]) <= 4
    # who said hello first cannot be told from who said it second, but no later turn is in both
    for turn in turns[2:]:
        assert len(await served.store.rows(session=turn.session)) == 4
    assert [await served.state(turn) for turn in turns] == [State.PAIRED] * 6 + [State.SERVED] * 2
    rows = [await served.store.row(turn.id) for turn in turns[2:6]]
    for row in rows:
        assert row is not None
        assert row.next_state is not None
        assert row.turn.reply.text.split()[0] == row.next_state.text.split()[0]


async def test_a_session_by_name_does_not_go_on_from_a_turn_of_another(served: Served) -> None:
    mine, _ = await served.ask("hi", "hello", headers=S)
    _, theirs = await served.ask([user("hi"), reply("hello"), user("no")], headers={"X-Session-Id": "t"})
    assert theirs.parent is None
    assert await served.next_state(mine) is None


@pytest.mark.parametrize("headers", [S, {}])
async def test_after_a_restart_a_conversation_goes_on_where_it_was(tmp_path: Path, headers: dict[str, str]) -> None:
    async with serving(tmp_path) as served:
        first, placement = await served.ask("hi", "hello", headers=headers)
        history = [user("hi"), reply("hello"), user("wait")]
        side, _ = await served.ask(history, "waiting", headers=headers | {"X-Turn-Type": "side"})
    async with serving(tmp_path) as served:
        _, again = await served.ask([*history, reply("waiting"), user("go")], headers=headers)
        assert again.session == placement.session
        assert again.parent == side
        assert await served.next_state(first) == (user("wait"),)


async def test_an_index_that_forgets_loses_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path, CollectSettings(known_conversations=1, held_tokens=1)) as served:
        turns = []
        lanes: dict[int, list[Message]] = {lane: [user(f"lane {lane}")] for lane in range(3)}
        for number in range(3):
            for lane, history in lanes.items():
                turn, placement = await served.ask(history, f"{lane}.{number}")
                if number:
                    assert placement.parent is not None
                    assert placement.parent.reply.text == f"{lane}.{number - 1}"
                turns.append(turn)
                history += [reply(f"{lane}.{number}"), user(f"more {number}")]
        states = [await served.state(turn) for turn in turns]
        assert states == [State.PAIRED] * 6 + [State.SERVED] * 3


async def test_the_same_short_exchange_a_thousand_times_is_still_told_apart(served: Served) -> None:
    names = [{"X-Session-Id": str(number)} for number in range(200)]
    turns = [(await served.ask("hi", "hello", headers=name))[0] for name in names]
    _, placement = await served.ask([user("hi"), reply("hello"), user("thanks")], headers=names[3])
    assert placement.parent == turns[3]
    assert await served.next_state(turns[3]) == (user("thanks"),)
    assert (await served.store.counts())["paired"] == 1


async def test_a_turn_entered_long_after_it_was_placed_is_found_all_the_same(served: Served) -> None:
    placement = await served.collect.place(an_arrival("hi"))
    await placement.admit()
    turn = a_turn("late", [user("hi")], "hello", session=placement.session)  # messages of its own
    await served.collect.commit(turn)
    _, onward = await served.ask([user("hi"), reply("hello"), user("thanks")])
    assert onward.parent == turn
    assert await served.next_state(turn) == (user("thanks"),)


async def test_a_request_that_ends_with_a_reply_gives_no_next_state(served: Served) -> None:
    turn, _ = await served.ask("hi", "hello", headers=S)
    _, placement = await served.ask([user("hi"), reply("hello")], " there", headers=S)
    assert placement.parent == turn
    assert await served.state(turn) is State.SERVED
