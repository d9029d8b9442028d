"""A client with habits of its own: what it inserts, names and asks on the side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from conversation import SYSTEM, Served, reply, serving, user

from openclaw_rl.collect.clients.rules import AnyClient, known_clients
from openclaw_rl.core.ledger import State
from openclaw_rl.core.message import Message, message
from openclaw_rl.core.turn import CONNECTING, Arrival, TurnKind


class Chatty(AnyClient):
    """Writes its session into the first message, inserts a reminder at the end of each request, and nags."""

    def recognises(self, arrival: Arrival) -> bool:
        return bool(arrival.messages) and arrival.messages[0].text.startswith("#")

    def spoken(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        return tuple(item for item in messages if not item.text.startswith("<reminder>"))

    def heard(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        return tuple(item for item in messages if item.text != "continue!")

    def session(self, arrival: Arrival) -> tuple[str, str] | None:
        return arrival.messages[0].text.split()[0].lstrip("#"), "the chatty client's first word"

    def kind(self, arrival: Arrival, *, has_stamped: bool = False) -> tuple[TurnKind, str] | None:
        return (TurnKind.SIDE, "it asks for a title") if arrival.messages[-1].text == "title?" else None


async def test_a_clients_rules_name_the_session_and_tell_its_inserts_and_side_requests(tmp_path: Path) -> None:
    async with serving(tmp_path, clients=(Chatty(), *known_clients())) as served:
        first, placement = await served.ask([user("#7 hi"), user("<reminder> one")], "hello")
        assert placement.session == "key:7"
        assert placement.why == "main: no rule says otherwise; session from the chatty client's first word"
        history = [user("#7 hi"), reply("hello")]
        side, told = await served.ask([*history, user("title?")], "Greeting")
        assert told.why.startswith("side: it asks for a title; ")
        _, again = await served.ask([*history, user("continue!"), user("<reminder> two")], "so")
        assert again.parent == first
        assert await served.state(first) is State.SERVED  # a nag is no feedback
        _, onward = await served.ask([*history, user("in French"), user("<reminder> three")], "bonjour")
        assert onward.parent == first
        assert await served.next_state(first) == (user("in French"),)
        assert await served.state(side) is None
        _, plain = await served.ask("hi", headers={"X-Session-Id": "x", "X-Turn-Type": "main"})
        assert plain.session == "key:x"


async def test_a_header_outranks_what_a_user_could_have_typed(tmp_path: Path) -> None:
    async with serving(tmp_path, clients=(Chatty(), *known_clients())) as served:
        _, placement = await served.ask([user("#7 title?")], headers={"X-Session-Id": "x", "X-Turn-Type": "main"})
        assert (placement.session, placement.kind) == ("key:x", TurnKind.MAIN)


async def test_the_test_turn_of_connect_is_side_and_says_what_it_would_be(served: Served) -> None:
    turn, placed = await served.ask("Hello! This is a test.", headers={CONNECTING: "1"})
    assert (placed.kind, placed.parent) == (TurnKind.SIDE, None)
    assert placed.why.startswith("side: connection test (of openclaw-rl connect; otherwise main: no rule")
    history = [user("Hello! This is a test."), turn.reply, user("again")]
    await served.ask(history, headers={CONNECTING: "1"})
    assert await served.next_state(turn) is None and await served.state(turn) is None


CLINE = "You are Cline, an AI coding agent. Your primary goal is to assist users with various coding tasks."
CONTINUE = "You are an agent in the Continue CLI. Given the user's prompt, you should use the tools available to you."
NOTE = "Summarize the provided coding session into a concise continuation note with detailed next steps."
SUM = "Please provide a concise summary of our conversation so far, capturing the key context, decisions made."


async def test_clines_command_line_wraps_its_users_words_and_sums_up_by_itself(served: Served) -> None:
    first = user('<user_input mode="act">sort it</user_input>')
    one, _ = await served.ask([message(SYSTEM, CLINE), first], "Sorted.")
    words = '<mode_notice>The user switched modes.</mode_notice>\n<user_input mode="plan">backwards</user_input>'
    await served.ask([message(SYSTEM, CLINE), first, one.reply, user(words)], "Backwards.")
    heard = await served.next_state(one)
    assert heard is not None and [item.text for item in heard] == ["backwards"]
    _, placed = await served.ask([message(SYSTEM, NOTE), user("user: sort it")], "They sort.")
    assert placed.why.startswith("side: compaction (its summary prompt, a rule of cline)")


async def test_continues_command_line_asks_for_a_summary_of_its_own(served: Served) -> None:
    one, _ = await served.ask([message(SYSTEM, CONTINUE), user("sort it")], "Sorted.")
    _, placed = await served.ask([message(SYSTEM, CONTINUE), user("sort it"), one.reply, user(SUM)], "A note.")
    assert placed.why.startswith("side: compaction (its summary prompt, a rule of continue)")
    assert await served.next_state(one) is None
    summary = reply("They had a list sorted, and nothing else was asked.")
    await served.ask([message(SYSTEM, CONTINUE), user("sort it"), one.reply, user(SUM)], summary)
    two, after = await served.ask([message(SYSTEM, CONTINUE), summary], "What else?")
    assert (after.kind, after.session) == (TurnKind.MAIN, one.session)
    await served.ask([message(SYSTEM, CONTINUE), summary, two.reply, user("continue")], "I go on.")
    assert await served.next_state(two) is None
