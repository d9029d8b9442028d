"""Histories that clients do not send back as they were served are gone on from by what is still alike in them."""

from __future__ import annotations

from pathlib import Path

import pytest
from claw_requests import BLOCK, READ, SYSTEM, first, runtime, said
from claw_requests import ask as ask_claw
from conversation import Served, reply, serving, user
from wire import TOOLS, called, calling, chat, result, send

from openclaw_rl.collect.clients.openclaw import SUMMARY
from openclaw_rl.collect.clients.rules import AnyClient, known_clients
from openclaw_rl.collect.evidence import align, call_key, is_same_reply, part_of
from openclaw_rl.core.message import Message, Role, ToolCall, message
from openclaw_rl.core.turn import TurnKind

RULES = known_clients()
BOTH = pytest.mark.parametrize("clients", [RULES, (AnyClient(),)], ids=["rules", "signs alone"])
AIDER = "Act as an expert software developer.\nAlways use best practices when coding."
REMINDER = (
    "# *SEARCH/REPLACE block* Rules:\n\nEvery *SEARCH/REPLACE block* must use this format:\n1. The file path alone."
)
CODE = "You are an expert assistant who can solve any task using code blobs. You will be given a task."
THOUGHT = "Thought: I will work it out step by step with Python.\n<code>\nprint(6 * 7)\n"
FOUND = (
    "### Task:\nRespond to the user query using the provided context, incorporating inline citations.\n\n<context>\n"
)


@BOTH
async def test_aiders_reminder_is_dropped_from_history_and_the_turn_is_still_linked(
    tmp_path: Path, clients: tuple[AnyClient, ...]
) -> None:
    async with serving(tmp_path, clients=clients) as served:
        one, _ = await send(
            served, chat(("user", f"add a flag\n\n{REMINDER}"), system=AIDER), "I add the flag to main.py."
        )
        said_ = (("user", "add a flag"), ("assistant", one.reply.text), ("user", f"no, call it --dry\n\n{REMINDER}"))
        _, placed = await send(served, chat(*said_, system=AIDER), "It is --dry now.")
        assert placed.parent == one
        heard = await served.next_state(one)
        assert heard is not None and [item.text for item in heard] == ["no, call it --dry"]
        assert "reminder" in placed.why or "removes again" in placed.why


async def test_after_aider_changed_a_file_its_users_next_words_are_the_next_state(served: Served) -> None:
    files = "I have *added these files to the chat* so you can go ahead and edit them.\n\nmain.py\n```\nx = 1\n```"
    shown = (("user", files), ("assistant", "Ok, any changes I propose will be to those files."))
    one, _ = await send(served, chat(*shown, ("user", f"add a flag\n\n{REMINDER}"), system=AIDER), "Here it is.")
    done = (("user", "add a flag"), ("assistant", "Here it is."))
    done += (("user", "I updated the files."), ("assistant", "Ok."))
    onward = chat(*done, *shown, ("user", f"rename it\n\n{REMINDER}"), system=AIDER)
    _, placed = await send(served, onward, "Renamed.")
    assert placed.parent == one
    heard = await served.next_state(one)
    assert heard is not None and [item.text for item in heard] == ["rename it"]


@BOTH
@pytest.mark.parametrize("wrapped", ["{}", "<user_query>\n{}\n</user_query>"])
async def test_context_that_was_retrieved_for_the_newest_message_is_not_its_users(
    tmp_path: Path, clients: tuple[AnyClient, ...], wrapped: str
) -> None:
    def asked(words: str, source: str) -> tuple[str, str]:
        found = f'{FOUND}<source id="1">{source}</source>\n</context>\n'
        return "user", f"{found}\n{wrapped.format(words)}"

    headers = {"X-OpenWebUI-Chat-Id": "c"} if clients is RULES else {}
    async with serving(tmp_path, clients=clients) as served:
        one, _ = await send(
            served, chat(asked("who won the race?", "The race of May."), headers=headers), "Ann won it."
        )
        said_ = (("user", "who won the race?"), ("assistant", "Ann won it."), asked("no, the year before", "Older."))
        _, placed = await send(served, chat(*said_, headers=headers), "Ben won it.")
        assert placed.parent == one
        heard = await served.next_state(one)
        assert heard is not None and [item.text for item in heard] == ["no, the year before"]


@pytest.mark.parametrize("mark", ["call_{}", "call{}"])
async def test_a_malformed_call_that_comes_back_under_another_name_is_known_by_its_id(
    served: Served, mark: str
) -> None:
    given, kept = "call_0a1b2c3d4e5f0", mark.format("0a1b2c3d4e5f0")
    one, first_ = await send(served, chat(("user", "run"), tools=TOOLS), calling("bash", '{"command": ', given))
    back = called("invalid", '{"tool": "bash", "error": "no JSON"}', kept)
    asked = chat(("user", "run"), back, result(kept, "The arguments are no JSON"), tools=TOOLS)
    _, placed = await send(served, asked, calling("bash", '{"command": "ls"}', "call_ffffffffffff0"))
    assert (placed.parent, placed.session) == (one, first_.session)
    assert "by the id of its call" in placed.why
    heard = await served.next_state(one)
    assert heard is not None and heard[0].role is Role.TOOL


WRITTEN = "Calling tools:\n[{{'id': '{}', 'type': 'function', 'function': {{'name': '{}', 'arguments': {{}}}}}}]"


@BOTH
async def test_a_reply_whose_calls_a_client_wrote_down_in_words_is_known_by_their_ids(
    tmp_path: Path, clients: tuple[AnyClient, ...]
) -> None:
    given = "call_0a1b2c3d4e5f0"
    async with serving(tmp_path, clients=clients) as served:
        one, begun = await send(served, chat(("user", "run"), tools=TOOLS), calling("bash", "{}", given))
        said_ = (("user", "run"), ("assistant", WRITTEN.format(given, "bash")), ("user", "Observation:\nfine"))
        two, placed = await send(served, chat(*said_, tools=TOOLS), calling("bash", "{}", "call_ffffffffffff0"))
        assert (placed.parent, placed.session) == (one, begun.session)
        assert "by the id of its call" in placed.why
        heard = await served.next_state(one)
        assert heard is not None and heard[0].role is Role.TOOL
        rest = (("assistant", WRITTEN.format("call_ffffffffffff0", "bash")), ("user", "Observation:\nfine again"))
        _, placed = await send(served, chat(*said_, *rest, tools=TOOLS), "Done.")
        assert placed.parent == two


@pytest.mark.parametrize("text", ["call_0a1b2c3d4e5f0 has failed", WRITTEN.format("call_0a1b2c3d4e5f1", "bash")])
async def test_a_call_that_is_only_spoken_of_and_another_id_are_no_evidence(served: Served, text: str) -> None:
    await send(served, chat(("user", "run"), tools=TOOLS), calling("bash", "{}", "call_0a1b2c3d4e5f0"))
    _, placed = await send(served, chat(("user", "what?"), ("assistant", text), ("user", "so")), "so")
    assert placed.parent is None


async def test_a_call_id_that_names_its_function_is_no_evidence(served: Served) -> None:
    await send(served, chat(("user", "run"), tools=TOOLS), calling("bash", '{"command": "a"}', "functions.bash:0"))
    back = called("bash", '{"command": "b"}', "functions.bash:0")
    _, placed = await send(served, chat(("user", "go"), back, result("functions.bash:0", "x"), tools=TOOLS), "so")
    assert placed.parent is None


@BOTH
@pytest.mark.parametrize("added", ["</code>", "</code>\nCalling tools:\n[{'id': 'call_1', 'type': 'function'}]"])
async def test_a_tag_that_smolagents_adds_to_a_reply_changes_nothing(
    tmp_path: Path, clients: tuple[AnyClient, ...], added: str
) -> None:
    async with serving(tmp_path, clients=clients) as served:
        one, _ = await send(served, chat(("user", "New task:\nsix by seven"), system=CODE), THOUGHT)
        seen = (("user", "New task:\nsix by seven"), ("assistant", THOUGHT + added), ("user", "Observation:\n42"))
        _, placed = await send(served, chat(*seen, system=CODE), "Thought: done.\n<code>\nfinal_answer(42)\n")
        assert placed.parent == one
        heard = await served.next_state(one)
        assert heard is not None and heard[0].role is Role.TOOL


async def test_a_task_that_smolagents_sends_behind_a_result_is_its_owners(served: Served) -> None:
    one, _ = await send(served, chat(("user", "New task:\nsix by seven"), system=CODE), THOUGHT)
    seen = "Observation:\nExecution logs:\n42\nNew task:\nin words, please"
    said_ = (("user", "New task:\nsix by seven"), ("assistant", f"{THOUGHT}</code>"), ("user", seen))
    await send(served, chat(*said_, system=CODE), "Thought: in words.\n<code>\n")
    heard = await served.next_state(one)
    assert heard is not None and [(item.role, item.text) for item in heard] == [(Role.USER, "in words, please")]


async def test_two_tasks_of_smolagents_behind_one_result_are_both_its_owners(served: Served) -> None:
    one, _ = await send(served, chat(("user", "New task:\nsix by seven"), system=CODE), THOUGHT)
    seen = "Observation:\n42\nNew task:\nin words, please\nNew task:\nin German"
    said_ = (("user", "New task:\nsix by seven"), ("assistant", f"{THOUGHT}</code>"), ("user", seen))
    await send(served, chat(*said_, system=CODE), "Thought: in words.\n<code>\n")
    heard = await served.next_state(one)
    assert heard is not None and [item.text for item in heard] == ["in words, please\nin German"]


async def test_a_reply_whose_object_a_client_wrote_anew_and_words_behind_a_label_are_known_again(
    tmp_path: Path,
) -> None:
    def asked(words: str) -> tuple[str, str]:
        return "user", f"Context information is below.\n-----\nnotes\n-----\nGiven the context, answer: {words}\n"

    async with serving(tmp_path, clients=(AnyClient(),)) as served:
        one, _ = await send(served, chat(asked("how hot?")), 'Action: weather\nAction Input: {"city": "Oslo"}')
        said_ = (("user", "how hot?"), ("assistant", "Action: weather\nAction Input: {'city': 'Oslo'}"))
        _, placed = await send(served, chat(*said_, asked("in Rome, I meant")), "Hot.")
        assert placed.parent == one
        heard = await served.next_state(one)
        assert heard is not None and [item.text for item in heard] == ["in Rome, I meant"]


async def test_a_request_for_a_summary_and_what_follows_it_stay_in_the_conversation_they_quote(served: Served) -> None:
    asked = "<role>\nContext Extraction Assistant\n</role>\n<messages>\n"
    asked += (
        '<message type="human">how long is a marathon?</message>\n<message type="ai">Very long.</message>\n</messages>'
    )
    _, begun = await send(served, chat(("user", "how long is a marathon?"), system="You help."), "Very long.")
    summary = "They asked how long a marathon is, and were told that."
    _, placed = await send(served, chat(("user", asked)), summary)
    assert (placed.kind, placed.session) == (TurnKind.SIDE, begun.session)
    opening = ("user", f"Here is a summary of the conversation to date:\n\n{summary}")
    _, placed = await send(served, chat(opening, ("user", "in miles?"), system="You help."), "26.")
    assert (placed.kind, placed.session) == (TurnKind.MAIN, begun.session)


async def test_thinking_that_a_client_removed_changes_nothing(served: Served) -> None:
    one, _ = await send(served, chat(("user", "so?")), "<think>\nHm.\n</think>\n\nYes.")
    _, placed = await send(served, chat(("user", "so?"), ("assistant", "Yes."), ("user", "why?")), "Since.")
    assert placed.parent == one


async def test_of_two_conversations_that_say_as_much_of_a_history_none_is_gone_on_from(served: Served) -> None:
    answer = "The answer that both of them were given, long enough to be known again anywhere."
    for words in ("a\n\nreminder of one", "a\n\nreminder of two"):
        await send(served, chat(("user", f"{words}\nso:\nfix it")), answer)
    _, placed = await send(served, chat(("user", "fix it"), ("assistant", answer), ("user", "no")), "so")
    assert placed.parent is None
    assert placed.why.endswith("none of the replies in its history was served here")


async def test_words_within_a_line_are_no_evidence(served: Served) -> None:
    await send(served, chat(("user", "please do not fix it now")), "Fine.")
    _, placed = await send(served, chat(("user", "fix it"), ("assistant", "Fine."), ("user", "no")), "so")
    assert placed.parent is None


async def test_a_conversation_without_a_name_goes_on_after_its_compaction(tmp_path: Path) -> None:
    prompt = "Write down what was done so far for whoever goes on with this work after you.\n" + "- name it all\n" * 20
    summary = "The user wants a parser for dates of all kinds.\nIt stands in dates.py and its tests in test_dates.py."
    async with serving(tmp_path, clients=(AnyClient(),)) as served:
        _, begun = await send(served, chat(("user", "a parser"), system="An agent.", tools=TOOLS), "It stands.")
        said_ = (("user", "a parser"), ("assistant", "It stands."), ("user", prompt))
        await send(served, chat(*said_, system="An agent.", tools=TOOLS), summary)
        opening = f"What was said before is summed up here:\n\n{summary}\n\nGo on."
        _, placed = await send(served, chat(("user", opening), system="An agent.", tools=TOOLS), "I go on.")
        assert placed.session == begun.session
        assert "session from the summary of it" in placed.why


async def test_openclaws_block_in_the_middle_of_a_history_is_skipped(served: Served) -> None:
    call = Message(Role.ASSISTANT, tool_calls=(ToolCall("call1", "read", "{}"),))
    one, begun = await ask_claw(served, (SYSTEM, first("read it"), BLOCK), call)
    back = Message(Role.TOOL, message("tool", "text").content, tool_call_id="call1")
    two, placed = await ask_claw(served, (SYSTEM, first("read it"), call, back, BLOCK), "It says text.")
    assert (placed.kind, placed.parent) == (TurnKind.MAIN, one)
    onward = (SYSTEM, first("read it"), call, back, BLOCK, reply("It says text."), said("louder"))
    _, placed = await ask_claw(served, onward, "TEXT")
    assert (placed.kind, placed.session, placed.parent) == (TurnKind.MAIN, begun.session, two)


async def test_openclaws_summary_is_followed_by_one_newline_over_the_responses_api(served: Served) -> None:
    _, begun = await ask_claw(served, (SYSTEM, first("hi"), BLOCK), "hello")
    opening = user(f"{SUMMARY}\n\n<summary>\nThey said hi.\n</summary>\n{runtime()}")
    _, placed = await ask_claw(served, (SYSTEM, opening, said("and now?"), BLOCK), "Now this.")
    assert (placed.kind, placed.session) == (TurnKind.MAIN, begun.session)
    assert READ.name == "read"


def test_what_was_put_around_a_message_stands_on_lines_of_its_own() -> None:
    assert part_of("fix it", "fix it\n\nRules") == "\x00\n\nRules"
    assert part_of("fix it", "Context\nfix it") == "Context\n\x00"
    assert part_of("fix it", "please fix it now") is None
    assert part_of("fix it", "fix it") is None
    assert part_of("", "fix it") is None


def test_replies_are_the_same_more_or_less_a_tag() -> None:
    ours = message("assistant", "a" * 50)
    for text in ("a" * 50 + "</code>", "a" * 50 + "\n```", "<think>\nx\n</think>\n" + "a" * 50):
        assert is_same_reply(message("assistant", text), ours)
        assert is_same_reply(ours, message("assistant", text))
    for text in ("a" * 50 + " and more", "a" * 49, "b" * 50):
        assert not is_same_reply(message("assistant", text), ours)


def test_a_call_id_is_known_without_its_marks() -> None:
    assert call_key("call_0a1b") == call_key("call0a1b") == "call0a1b"
    assert call_key("functions.read:0") == call_key("read_1", "read") == call_key(None) == ""


def test_alignment_counts_from_the_end() -> None:
    mine = (user("a"), reply("b"), user("c"), reply("d"))
    found = align([user("x"), reply("b"), user("c"), reply("d"), user("e")], 4, mine)
    assert (found.size, found.exact, found.is_whole, found.covers) == (3, 3, False, False)
    whole = align([*mine, user("e")], 4, mine)
    assert (whole.size, whole.is_whole) == (4, True)
