"""OpenClaw's requests: whose session, whose words, and what of them answers a reply."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from claw_requests import (
    BLOCK,
    FORGED,
    READ,
    RULES,
    STAMP,
    SYSTEM,
    ask,
    asked,
    first,
    kind,
    request,
    runtime,
    said,
    session,
)
from conversation import Served, reply, serving, user
from hypothesis import given, settings
from hypothesis import strategies as st

from openclaw_rl.collect.clients.openclaw import INTERNAL_KEY, OpenClaw, is_internal_block
from openclaw_rl.collect.clients.rules import AnyClient, ClientRules, known_clients, rules_for
from openclaw_rl.collect.stage import CollectSettings
from openclaw_rl.core.ledger import DropReason, State
from openclaw_rl.core.message import Message, Role, TextPart, message
from openclaw_rl.core.turn import TurnKind


def client_of(messages: Sequence[Message]) -> ClientRules:
    return rules_for(asked(messages), known_clients())


def test_a_users_turn_is_main_in_the_session_of_the_runtime_line() -> None:
    assert client_of(request(first("hi"))) == client_of(request(first("again")))
    assert isinstance(client_of(request(first("hi"))), OpenClaw)
    assert kind(first("hi")) == (TurnKind.MAIN, "has tools and a user's time stamp")
    assert RULES.session(asked(request(first("hi")))) == ("5e55", "the Runtime line")


def test_a_session_without_an_id_goes_by_its_key() -> None:
    assert session(first("hi", runtime("agent:home:new-kind:x", None))) == "agent:home:new-kind:x"


def test_the_runtime_line_is_found_as_a_part_of_its_own_and_leaves_the_same_words() -> None:
    parts = Message(Role.USER, (TextPart(f"{STAMP}hi"), TextPart(runtime())))
    assert session(parts) == "5e55"
    assert RULES.spoken(request(parts))[1].text == RULES.spoken(request(first("hi")))[1].text == f"{STAMP}hi"


def test_the_runtime_line_at_the_end_of_the_system_text_outranks_one_in_the_users_words() -> None:
    system = SYSTEM.text.replace("## Runtime", f"## Runtime\n\n{runtime(session='there')}")
    messages = (message(Role.SYSTEM, system), said(f"hi\n\n{FORGED}"), BLOCK)
    assert RULES.session(asked(messages)) == ("there", "the Runtime line")
    assert RULES.kind(asked(messages, (READ,)))[0] is TurnKind.MAIN


@pytest.mark.parametrize(
    "words",
    [
        f"what is this?\n\n{FORGED}",
        f"{FORGED}\n\nwhat is this?",
        f"my log says `{FORGED}` why?",
        f"a\n\n{FORGED}\n\n{FORGED}",
    ],
)
def test_a_runtime_line_among_the_users_words_is_not_the_clients(words: str) -> None:
    assert session(first(words)) == "5e55"
    assert session(first("hi"), reply("yes"), said(words)) == "5e55"
    assert RULES.spoken(request(first(words)))[1].text == STAMP + words


def test_a_runtime_line_in_a_later_message_alone_names_nothing() -> None:
    assert session(said("hi"), reply("yes"), said(f"so\n\n{FORGED}")) is None
    assert session(said(f"so {FORGED}")) is None
    assert session(said(f"so\n\n{FORGED}\nand more")) is None


def test_what_another_client_sends_is_not_this_ones_even_with_its_line_and_block() -> None:
    for messages in ((user(f"hi\n\n{FORGED}"), BLOCK), (message(Role.SYSTEM, "Be brief."), first("hi"), BLOCK)):
        assert isinstance(client_of(messages), AnyClient)


@pytest.mark.parametrize("word", ["cron", "subagent", "acp", "boot", "helper", "hook", "internal-session-effects"])
def test_a_session_of_the_clients_own_is_side(word: str) -> None:
    for key in (f"agent:other:{word}:9:run:1", f"agent:other:{word}"):
        assert kind(first("hi", runtime(key))) == (TurnKind.SIDE, f"its session key is the client's own ({word})")
    assert kind(first("hi", runtime(f"agent:other:{word}s-of-mine")))[0] is TurnKind.MAIN
    assert kind(first("hi", runtime(f"agent:other:chat:{word}:1")))[0] is TurnKind.MAIN


@pytest.mark.parametrize(
    ("system", "why"),
    [
        (
            "Generate a concise session title (3-6 words).",
            "has neither tools nor a Runtime line, and asks for a session's title",
        ),
        (
            "You are a context summarization assistant. Go.",
            "has neither tools nor a Runtime line, and asks for a summary for compaction",
        ),
        ("You are keeping a dream diary. Write.", "has neither tools nor a Runtime line, and asks for a dream diary"),
        ("Current model identity: any/thing.", "has neither tools nor a Runtime line, and asks for a single answer"),
    ],
)
def test_errands_without_tools_are_side_and_say_which(system: str, why: str) -> None:
    messages = (message(Role.SYSTEM, system), user("some text"))
    assert client_of(messages).kind(asked(messages)) == (TurnKind.SIDE, why)
    assert client_of(messages).session(asked(messages)) is None


def test_an_agents_run_without_its_line_is_side_and_one_without_tools_is_not() -> None:
    assert kind(first("hi"), tools=()) == (TurnKind.MAIN, "has no tools and a user's time stamp")
    slug = runtime("agent:work:helper:incognito-slug-generator-1")
    assert kind(first("Based on this", slug), tools=()) == (
        TurnKind.SIDE,
        "its session key is the client's own (helper)",
    )
    assert kind(said("hi")) == (TurnKind.SIDE, "has no Runtime line")
    assert kind(said("hi"), tools=()) == (TurnKind.SIDE, "has neither tools nor a Runtime line")


@pytest.mark.parametrize(
    "words",
    [
        "Follow the heartbeat monitor scratch context when provided.",
        "A scheduled reminder has been triggered. The reminder content is: stretch",
        "Pre-compaction memory flush. Store durable memories only in memory/x.md",
        "[cron:1 joke] Tell one.",
    ],
)
def test_what_the_client_says_without_a_time_stamp_is_side(words: str) -> None:
    assert kind(user(f"{words}\n\n{runtime('agent:main:main')}"))[0] is TurnKind.SIDE
    assert kind(first("hi"), reply("yes"), user(words))[0] is TurnKind.SIDE
    assert kind(first("hi"), reply("yes"), user(words), reply("ok"), said("and now?"))[0] is TurnKind.MAIN


def test_a_heartbeat_is_side_even_with_a_time_stamp() -> None:
    assert kind(first("[OpenClaw heartbeat poll]"))[0] is TurnKind.SIDE


def test_a_step_with_a_tools_result_is_as_main_as_the_words_before_it() -> None:
    result = message(Role.TOOL, "alpha")
    assert kind(first("read it"), reply("reading"), result)[0] is TurnKind.MAIN
    beat = user(f"Follow the heartbeat monitor scratch context.\n\n{runtime('agent:main:main')}")
    assert kind(beat, reply("reading"), result)[0] is TurnKind.SIDE


def test_a_run_that_goes_on_by_itself_or_after_a_compaction_is_main() -> None:
    begun = (
        "The conversation history before this point was compacted into the following summary:\n\n<summary>s</summary>"
    )
    summary = Message(Role.USER, (TextPart(begun), TextPart(runtime())))
    assert session(summary, reply("kept"), message(Role.TOOL, "x")) == "5e55"
    assert kind(summary, reply("kept"), message(Role.TOOL, "x")) == (
        TurnKind.MAIN,
        "has tools, and continues after a compaction",
    )
    assert kind(first("hi"), reply(""), user("The previous attempt did not produce a user-visible answer."))[0] is (
        TurnKind.MAIN
    )


@pytest.mark.parametrize(
    "words",
    [
        "Continue the current task from the existing transcript, preserving completed work.",
        "<turn_aborted>\nThe user's turn was cut.",
        "The previous attempt did not produce a user-visible answer.",
        "A background task completed. Its result: 3",
        "[OpenClaw heartbeat poll]",
        "This turn ended before a reply: no key",
    ],
)
def test_what_the_client_says_in_a_users_name_is_no_feedback(words: str) -> None:
    assert RULES.heard((user(words), said(words))) == ()
    assert RULES.heard((user(words), said("no, shorter"))) == (user("no, shorter"),)


def test_results_of_all_parallel_calls_are_heard() -> None:
    results = (message(Role.TOOL, "one"), message(Role.TOOL, "two"))
    assert RULES.heard(results) == results


def test_one_time_stamp_is_the_clients_and_the_one_typed_by_hand_stays() -> None:
    assert RULES.heard((said(f"{STAMP}was when it broke"),)) == (user(f"{STAMP}was when it broke"),)
    assert RULES.heard((user("[Tuesday] no"), user("[x] no"))) == (user("[Tuesday] no"), user("[x] no"))


def test_a_message_that_is_the_internal_block_and_nothing_else_is_not_spoken() -> None:
    pasted = said(BLOCK.text)
    assert RULES.spoken(request(first("hi"), reply("yes"), pasted))[-1] == pasted
    assert kind(first("hi"), reply("yes"), pasted)[0] is TurnKind.MAIN
    bare = user(BLOCK.text + "\nwhat is this?")
    assert RULES.spoken((SYSTEM, first("hi"), bare))[-1] == bare
    assert RULES.spoken((SYSTEM, BLOCK, reply("so"))) == (SYSTEM, reply("so"))


async def test_a_users_next_words_reach_the_reply_without_stamp_line_or_block(served: Served) -> None:
    one, placement = await ask(served, request(first("hi")), "hello")
    assert placement.why == "main: has tools and a user's time stamp; session from the Runtime line"
    two, onward = await ask(served, request(first("hi"), reply("hello"), said("in French")), "bonjour")
    assert (placement.session, onward.session, onward.parent) == ("key:5e55", "key:5e55", one)
    assert await served.next_state(one) == (user("in French"),)
    flush = user("Pre-compaction memory flush. Store.")
    own = first("hi", runtime("agent:work:internal-session-effects:1", "effects-1"))
    history = (reply("hello"), said("in French"), reply("bonjour"))
    _, side = await ask(served, (SYSTEM, own, *history, flush), "NO_REPLY")
    assert (side.kind, side.session) == (TurnKind.SIDE, "key:effects-1")
    nag = said("Continue the current task from the existing transcript, preserving completed work.")
    _, retry = await ask(served, request(first("hi"), *history, nag), "again")
    assert (retry.kind, retry.parent) == (TurnKind.MAIN, two)
    assert await served.state(two) is State.SERVED
    await ask(served, request(first("hi"), *history, said("thanks")), "welcome")
    assert await served.next_state(two) == (user("thanks"),)


async def test_a_reset_begins_a_new_episode_that_answers_nothing_of_the_old(served: Served) -> None:
    old, before = await ask(served, request(first("hi")), "hello")
    new, after = await ask(served, request(first("good morning")), "hello")
    assert (after.session, after.parent) == (before.session, None)
    assert after.why.endswith("; restarts its session")
    assert await served.reason(old) is DropReason.NO_NEXT_STATE
    await ask(served, request(first("good morning"), reply("hello"), said("shorter")), "yo")
    assert await served.next_state(new) == (user("shorter"),)


async def test_headers_outrank_the_runtime_line_and_a_setting_leaves_it_out(tmp_path: Path) -> None:
    async with serving(tmp_path / "on") as served:
        _, told = await ask(served, request(first("hi")), "a", headers={"X-Session-Affinity": "5e55:1"})
        assert told.session == "key:5e55:1"
        both = {"X-Session-Affinity": "5e55:1", "X-Session-Id": "mine", "X-Turn-Type": "side"}
        _, told = await ask(served, request(first("hi")), "a", headers=both)
        assert (told.session, told.kind) == ("key:mine", TurnKind.SIDE)
    async with serving(tmp_path / "off", CollectSettings(infer_from_prompts=False)) as served:
        one, told = await ask(served, request(first("hi")), "hello")
        assert told.session.startswith("key:auto-")
        assert told.why.startswith("main: no rule says otherwise; ")
        await ask(served, request(first("hi"), reply("hello"), said("shorter")), "yo")
        assert await served.next_state(one) == (user("shorter"),)  # inserts are skipped all the same


@settings(deadline=None)
@given(st.text(max_size=200), st.from_regex(r"agent:[a-z]{1,8}:[a-z0-9:-]{1,40}", fullmatch=True), st.uuids())
def test_any_words_and_any_session_key_are_read_as_the_client_placed_them(words: str, key: str, name: object) -> None:
    opening = first(words, runtime(key, str(name), "someone"))
    assert session(opening) == str(name)
    assert RULES.spoken(request(opening))[1].text == STAMP + words
    assert (kind(opening)[1].startswith("its session key")) == (INTERNAL_KEY.match(key) is not None)


@settings(deadline=None)
@given(st.lists(st.text(max_size=80).map(user) | st.just(BLOCK), max_size=5))
def test_no_messages_whatever_break_the_rules(messages: list[Message]) -> None:
    for sent in (messages, [SYSTEM, *messages]):
        RULES.recognises(asked(sent))
        RULES.kind(asked(sent, (READ,)))
        assert len(RULES.spoken(sent)) == len(sent) - sum(is_internal_block(item) for item in sent)
        RULES.heard(sent)
