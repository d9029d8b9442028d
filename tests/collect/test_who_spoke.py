"""Real clients' requests: which are the client's own, and what of a message its owner typed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conversation import Served, serving
from wire import BASH, CLAUDE_TOOLS, TOOLS, anthropic, called, calling, chat, result, send

from openclaw_rl.collect.clients.rules import AnyClient, known_clients, readable
from openclaw_rl.core.ledger import State
from openclaw_rl.core.message import Json, Role
from openclaw_rl.core.next_state import NextStateSource
from openclaw_rl.core.turn import Arrival, TurnKind

CLAUDE = "You are Claude Code, Anthropic's official CLI for Claude.\nYou help with software engineering."
CODEX = "You are Codex, based on GPT-5. You are running as a coding agent in the Codex CLI on a user's computer."
OPENCODE = "You are OpenCode, the best coding agent on the planet.\n\nYou are an interactive CLI tool."
REMINDER = "<system-reminder>\nThe task tools have not been used recently.\n</system-reminder>"
COMPACT = (
    "CRITICAL: Respond with TEXT ONLY. Do NOT call any tools.\n\n- Do NOT use Read, Bash, or ANY other tool.\n\n"
    "Your task is to create a detailed summary of the conversation so far, paying close attention to the user's "
    "explicit requests and your previous actions. This summary should be thorough in capturing technical details.\n\n"
    "1. Primary Request and Intent\n2. Key Technical Concepts\n3. Files and Code Sections\n4. Errors and fixes"
)
CHECKPOINT = (
    "You are performing a CONTEXT CHECKPOINT COMPACTION. Create a handoff summary for another LLM that will resume "
    "the task.\n\nInclude:\n- Current progress\n- Important context\n- What remains to be done\n- Critical data"
)
SESSION: dict[str, Json] = {"metadata": {"user_id": '{"session_id": "5e55-10"}'}}
RULES = known_clients()
BOTH = pytest.mark.parametrize("clients", [RULES, (AnyClient(),)], ids=["rules", "signs alone"])


@BOTH
async def test_a_compaction_of_claude_code_is_not_its_users_words_and_keeps_the_session(
    tmp_path: Path, clients: tuple[AnyClient, ...]
) -> None:
    async with serving(tmp_path, clients=clients) as served:
        asked = anthropic(("user", "fix the test"), system=CLAUDE, tools=CLAUDE_TOOLS, **SESSION)
        one, begun = await send(served, asked, "It is fixed, since the loop ended too early.")
        history: list[tuple[str, Json]] = [("user", "fix the test"), ("assistant", one.reply.text)]
        asked = anthropic(*history, ("user", COMPACT), system=CLAUDE, tools=CLAUDE_TOOLS, **SESSION)
        _, placed = await send(served, asked, "<summary>\nThe user asked for a fix of the test.\n</summary>")
        assert await served.next_state(one) is None
        if clients is RULES:
            assert (placed.kind, placed.why.partition(";")[0]) == (
                TurnKind.SIDE,
                "side: compaction (its compaction prompt, a rule of claude-code)",
            )
        else:
            assert "spoke: nobody (a long text of many lines" in placed.why
        summary = "This session is being continued from a previous conversation that ran out of context. The summary "
        parts: Json = [{"type": "text", "text": f"{summary}\nasked"}, {"type": "text", "text": "and now the docs"}]
        _, after = await send(served, anthropic(("user", parts), system=CLAUDE, tools=CLAUDE_TOOLS, **SESSION), "Done.")
        assert (after.kind, after.session) == (TurnKind.MAIN, begun.session)


@BOTH
async def test_a_compaction_of_codex_is_told_by_its_metadata_and_by_its_missing_tools(
    tmp_path: Path, clients: tuple[AnyClient, ...]
) -> None:
    async with serving(tmp_path, clients=clients) as served:
        headers = {"session_id": "c0de"}
        one, _ = await send(served, chat(("user", "hi"), system=CODEX, tools=TOOLS, headers=headers), "Hello there.")
        headers["x-codex-turn-metadata"] = '{"request_kind": "compaction", "session_id": "c0de"}'
        said = (("user", "hi"), ("assistant", "Hello there."), ("user", CHECKPOINT))
        _, placed = await send(served, chat(*said, system=CODEX, headers=headers), "Nothing yet.")
        assert placed.kind is TurnKind.SIDE
        assert placed.why.startswith(
            "side: compaction" if clients is RULES else "side: errand (the tools of its session"
        )
        assert await served.next_state(one) is None


async def test_a_task_notification_is_nobodys_word_and_its_turn_is_still_main(served: Served) -> None:
    note = "[SYSTEM NOTIFICATION - NOT USER INPUT]\nThis is an automated background-task event, NOT a message from the "
    note += "user."
    note += "\n\n<task-notification>\n<task-id>b1</task-id>\n<status>completed</status>\n</task-notification>"
    one, _ = await send(served, anthropic(("user", "build it"), system=CLAUDE, tools=CLAUDE_TOOLS), "It builds.")
    said: tuple[tuple[str, Json], ...] = (("user", "build it"), ("assistant", "It builds."), ("user", note))
    two, placed = await send(served, anthropic(*said, system=CLAUDE, tools=CLAUDE_TOOLS), "The build is done.")
    assert (placed.kind, placed.parent) == (TurnKind.MAIN, one)
    assert placed.why.endswith("spoke: nobody (task notification (a rule of claude-code))")
    assert await served.state(one) is State.SERVED
    said = (*said, ("assistant", "The build is done."), ("user", f"no, the release build\n{REMINDER}"))
    _, placed = await send(served, anthropic(*said, system=CLAUDE, tools=CLAUDE_TOOLS), "Building.")
    heard = await served.next_state(two)
    assert heard is not None and [item.text for item in heard] == ["no, the release build"]
    assert placed.why.endswith("spoke: the owner, without system reminder (a rule of claude-code)")


async def test_a_sub_agent_of_claude_code_is_side_in_a_thread_of_its_own(served: Served) -> None:
    _, main = await send(served, anthropic(("user", "look"), system=CLAUDE, tools=CLAUDE_TOOLS, **SESSION), "ok")
    task = anthropic(
        ("user", "Search for the parser."),
        system=CLAUDE,
        tools=CLAUDE_TOOLS,
        headers={"X-Claude-Code-Agent-Id": "a77"},
        **SESSION,
    )
    _, placed = await send(served, task, "found")
    assert placed.why.startswith("side: sub-agent (its agent's id, a rule of claude-code)")
    assert placed.session == f"{main.session}/a77"
    billed = f"x-anthropic-billing-header: cc_version=2.1.330; cc_is_subagent=true;\n{CLAUDE}"
    _, placed = await send(served, anthropic(("user", "Search."), system=billed, tools=CLAUDE_TOOLS), "found")
    assert placed.why.startswith("side: sub-agent (the billing line")


async def test_a_task_that_the_model_wrote_into_a_call_is_a_sub_agents_without_any_rule(tmp_path: Path) -> None:
    task = "Search the whole folder for places where dates are parsed."
    async with serving(tmp_path, clients=(AnyClient(),)) as served:
        call = calling("task", json.dumps({"prompt": task}), "call_00000000aa01")
        await send(served, chat(("user", "where are dates parsed?"), system="An agent.", tools=TOOLS), call)
        sub, placed = await send(served, chat(("user", task), system="A searcher.", tools=TOOLS), "In dates.py.")
        assert placed.why.startswith("side: sub-agent (its task is what the model wrote into a tool call)")
        said = (("user", task), ("assistant", "In dates.py."), ("user", "and tests?"))
        _, placed = await send(served, chat(*said, system="A searcher.", tools=TOOLS), "None.")
        assert (placed.kind, placed.parent) == (TurnKind.SIDE, sub)


async def test_a_message_that_opencode_wrapped_in_quotes_is_its_users(tmp_path: Path) -> None:
    asked, correction = '"write a haiku about autumn"', '"no, please write it in German and say \\"Herbst\\" in it"'
    async with serving(tmp_path) as served:
        one, _ = await send(served, chat(("user", asked), system=OPENCODE, tools=TOOLS), "Leaves fall.")
        said = (("user", asked), ("assistant", "Leaves fall."), ("user", correction))
        onward = chat(*said, system=OPENCODE, tools=TOOLS)
        _, placed = await send(served, onward, "Blätter fallen.")
        heard = await served.next_state(one)
        assert heard is not None and heard[0].text == 'no, please write it in German and say "Herbst" in it'
        assert "quotes around the message (a rule of opencode)" in placed.why
        assert readable(onward.messages)[1].text == "write a haiku about autumn"
    async with serving(tmp_path / "signs", clients=(AnyClient(),)) as served:
        one, _ = await send(served, chat(("user", asked), system=OPENCODE, tools=TOOLS), "Leaves fall.")
        await send(served, onward, "Blätter fallen.")
        heard = await served.next_state(one)
        assert heard is not None and heard[0].text.startswith("no, please write it in German")


OPEN_WEBUI = (
    "### Task:\nGenerate a concise, 3-5 word title with an emoji summarizing the chat history.\n### Output:\nJSON"
)
TAGS = "### Task:\nGenerate 1-3 broad tags categorizing the main themes of the chat history.\n### Output:\nJSON"
FOLLOW_UPS = "### Task:\nSuggest 3-5 relevant follow-up questions or prompts that the user might naturally ask next."
TALK = "\n### Chat History:\n<chat_history>\nUSER: why is the sky blue?\nASSISTANT: Since air scatters blue light.\n"
TALK += "</chat_history>"


@BOTH
@pytest.mark.parametrize(("prompt", "errand"), [(OPEN_WEBUI, "title"), (TAGS, "tags"), (FOLLOW_UPS, "suggestions")])
async def test_titles_tags_and_suggestions_of_open_webui_are_side(
    tmp_path: Path, clients: tuple[AnyClient, ...], prompt: str, errand: str
) -> None:
    headers = {"X-OpenWebUI-Chat-Id": "chat-1"}
    async with serving(tmp_path, clients=clients) as served:
        await send(served, chat(("user", "why is the sky blue?"), headers=headers), "Since air scatters blue light.")
        _, placed = await send(served, chat(("user", prompt + TALK), headers=headers), '{"title": "Sky"}')
        assert placed.kind is TurnKind.SIDE
        wanted = errand if clients is RULES else "errand (it quotes another conversation)"
        assert placed.why.startswith(f"side: {wanted}")


WORDS = "Provide a concise, 5-word-or-less title for the conversation, using title case conventions."
TITLER = "You are a title generator. You output ONLY a thread title. Nothing else."
OWN = {
    "title (its title prompt, a rule of opencode)": chat(
        ("user", "Generate a title for this conversation:\n"), ("user", "hi"), system=TITLER
    ),
    "title (its title prompt, a rule of librechat)": chat(
        ("user", f"{WORDS}\n\nConversation:\nUser: hi\nAI: hello"), headers={"User-Agent": "LibreChat/0.8"}
    ),
    "sub-agent (its parent session, a rule of opencode)": chat(
        ("user", "search it"), system=OPENCODE, tools=TOOLS, headers={"x-parent-session-id": "ses_1"}
    ),
    "connection test (its quota check, a rule of claude-code)": anthropic(
        ("user", "quota"), headers={"User-Agent": "claude-cli/2.1.330 (external, cli)"}, max_tokens=1
    ),
    "connection test (a word, to be answered with next to nothing)": chat(("user", "ping"), max_tokens=5),
}


@pytest.mark.parametrize("why", OWN)
async def test_requests_of_the_clients_own_are_side_by_name(served: Served, why: str) -> None:
    _, placed = await send(served, OWN[why], "so")
    assert placed.why.startswith(f"side: {why};")


@pytest.mark.parametrize(("words", "most", "kind"), [("test", 1, "side"), ("test", 16, "side"), ("test", 17, "main")])
async def test_a_connection_test_is_side_with_the_least_answer_that_any_api_allows(
    served: Served, words: str, most: int, kind: str
) -> None:
    _, placed = await send(served, chat(("user", words), max_tokens=most), "so")
    assert placed.kind == kind


async def test_an_observation_that_an_agent_sends_as_a_user_is_a_tools(served: Served) -> None:
    system = (
        "You are a helpful assistant that can interact multiple times with a computer shell to solve programming tasks."
    )
    one, _ = await send(
        served, chat(("user", "Please solve this issue: tests fail"), system=system), "```bash\nls\n```"
    )
    seen = "<returncode>3</returncode>\n<output>\nno such file\n</output>"
    said = (("user", "Please solve this issue: tests fail"), ("assistant", one.reply.text), ("user", seen))
    await send(served, chat(*said, system=system), "I try again.")
    row = await served.store.row(one.id)
    assert row is not None and row.next_state is not None
    assert row.next_state.source is NextStateSource.TOOL
    assert row.next_state.messages[0].role is Role.TOOL


async def test_two_chats_of_one_user_are_two_sessions(served: Served) -> None:
    one, first = await send(served, chat(("user", "a poem"), user="ann"), "Roses.")
    _, second = await send(served, chat(("user", "a recipe"), user="ann"), "Soup.")
    assert first.session != second.session
    said = (("user", "a poem"), ("assistant", "Roses."), ("user", "shorter"))
    _, onward = await send(served, chat(*said, user="ann"), "Rose.")
    assert (onward.session, onward.parent) == (first.session, one)


async def test_a_chat_is_named_by_open_webuis_header(served: Served) -> None:
    _, placed = await send(served, chat(("user", "hi"), headers={"X-OpenWebUI-Chat-Id": "c-9"}, user="ann"), "hello")
    assert placed.session == "key:c-9"
    assert "session from the x-openwebui-chat-id header (a rule of open-webui)" in placed.why


async def test_a_text_of_many_lines_counts_once_the_conversation_goes_on_from_it(served: Served) -> None:
    pasted = "It still fails, here is what it prints now:\n" + "\n".join(f"line {n}: {'x' * 60}" for n in range(8))
    one, _ = await send(served, chat(("user", "fix it")), "Fixed.")
    said = (("user", "fix it"), ("assistant", "Fixed."), ("user", pasted))
    _, placed = await send(served, chat(*said), "I see, the path was wrong.")
    assert placed.why.endswith("which counts once the conversation continues from it)")
    assert await served.next_state(one) is None
    said = (*said, ("assistant", "I see, the path was wrong."), ("user", "thanks"))
    await send(served, chat(*said), "You are welcome.")
    heard = await served.next_state(one)
    assert heard is not None and heard[0].text == pasted


async def test_a_client_that_says_whose_turn_it_is_is_believed(served: Served) -> None:
    one, _ = await send(served, chat(("user", "fix it"), tools=TOOLS), "Fixed.")
    said = (("user", "fix it"), ("assistant", "Fixed."), ("user", CHECKPOINT))
    _, placed = await send(served, chat(*said, headers={"X-Turn-Type": "main"}), "so")
    assert placed.kind is TurnKind.MAIN
    assert await served.next_state(one) is not None


async def test_a_long_text_that_recurs_over_sessions_is_nobodys(served: Served) -> None:
    prompt = "Summarise what was done so far for whoever goes on with it later, in whole sentences. " * 3
    for number in range(3):
        opening = f"task {number}"
        one, _ = await send(served, chat(("user", opening)), f"done {number}")
        said = (("user", opening), ("assistant", f"done {number}"), ("user", prompt))
        _, placed = await send(served, chat(*said), "a summary")
    assert placed.why.endswith("spoke: nobody (its text came word for word in other sessions)")
    assert await served.next_state(one) is None


async def test_a_short_correction_that_recurs_over_sessions_is_still_its_users(served: Served) -> None:
    wish = "Please write it as plain text: no bullet points, no bold, as a student would."
    for number in range(4):
        one, _ = await send(served, chat(("user", f"task {number}")), f"done {number}")
        await send(served, chat(("user", f"task {number}"), ("assistant", f"done {number}"), ("user", wish)), "so")
        assert await served.next_state(one) is not None


async def test_a_turn_whose_tools_are_missing_counts_once_it_is_gone_on_from(served: Served) -> None:
    one, _ = await send(served, chat(("user", "weather?"), tools=TOOLS), "Sunny.")
    said = (("user", "weather?"), ("assistant", "Sunny."), ("user", "in Rome, I meant"))
    _, placed = await send(served, chat(*said), "Rainy.")
    assert placed.kind is TurnKind.MAIN
    assert await served.next_state(one) is None
    await send(served, chat(*said, ("assistant", "Rainy."), ("user", "thanks")), "Yes.")
    assert await served.next_state(one) is not None


async def test_calls_and_results_are_heard_as_before(served: Served) -> None:
    call = "call_0123456789ab0"
    one, _ = await send(served, chat(("user", "list"), tools=TOOLS), calling("bash", '{"command": "ls"}', call))
    back = result(call, "a.txt")
    asked = chat(("user", "list"), called("bash", '{"command": "ls"}', call), back, tools=TOOLS)
    _, placed = await send(served, asked, "One file.")
    assert placed.parent == one
    assert await served.next_state(one) is not None
    assert BASH["name"] == "bash"


@BOTH
async def test_a_conversation_that_claude_code_compacted_by_itself_goes_on_as_main_in_its_session(
    tmp_path: Path, clients: tuple[AnyClient, ...]
) -> None:
    def system(digest: str) -> str:
        return f"x-anthropic-billing-header: cc_version=2.1.330.{digest}; cc_entrypoint=sdk-cli;\n{CLAUDE}"

    def asked(*said: tuple[str, Json], digest: str) -> Arrival:
        return anthropic(*said, system=system(digest), tools=CLAUDE_TOOLS, **SESSION)

    async with serving(tmp_path, clients=clients) as served:
        _, begun = await send(served, asked(("user", "three apples?"), digest="a25"), "Three.")
        said: list[tuple[str, Json]] = [("user", "three apples?"), ("assistant", "Three."), ("user", "and pears?")]
        await send(served, asked(*said, digest="a25"), "Four.")
        said += [("assistant", "Four."), ("user", COMPACT)]
        await send(served, asked(*said, digest="a25"), "<summary>\nThey counted.\n</summary>")
        summary = "This session is being continued from a previous conversation that ran out of context. The summary:"
        parts: Json = [{"type": "text", "text": f"{summary}\nThey counted."}, {"type": "text", "text": "and plums?"}]
        _, after = await send(served, asked(("user", parts), digest="232"), "Five.")
        assert (after.kind, after.session) == (TurnKind.MAIN, begun.session)


@BOTH
async def test_a_compacted_conversation_whose_system_text_is_another_stays_main(
    tmp_path: Path, clients: tuple[AnyClient, ...]
) -> None:
    headers = {"X-Session-Id": "s"}
    line = "What was done until now: the parser stands in dates.py."
    opening = f"This session is being continued from a previous conversation that ran out of context.\n{line}"
    async with serving(tmp_path, clients=clients) as served:
        said: list[tuple[str, Json]] = [("user", "a parser")]
        await send(served, anthropic(*said, system=CLAUDE, tools=CLAUDE_TOOLS, headers=headers), "It stands.")
        said += [("assistant", "It stands."), ("user", "and tests")]
        _, begun = await send(served, anthropic(*said, system=CLAUDE, tools=CLAUDE_TOOLS, headers=headers), "Done.")
        said += [("assistant", "Done."), ("user", COMPACT)]
        await send(served, anthropic(*said, system=CLAUDE, tools=CLAUDE_TOOLS, headers=headers), line)
        other = CLAUDE.replace("You help with", "Your place is a terminal, and you help with")
        other = f"Be short. {other}"
        again = anthropic(("user", opening), ("user", "go on"), system=other, tools=CLAUDE_TOOLS, headers=headers)
        _, after = await send(served, again, "I go on.")
        assert (after.kind, after.session) == (TurnKind.MAIN, begun.session)
        fresh = anthropic(("user", "find files"), system=other, tools=CLAUDE_TOOLS, headers=headers)
        _, errand = await send(served, fresh, "Two.")
        assert errand.why.startswith("side: errand (it restarts within its session, with another system text)")


@BOTH
async def test_a_picture_that_a_tool_gave_back_is_not_its_users_word(
    tmp_path: Path, clients: tuple[AnyClient, ...]
) -> None:
    async with serving(tmp_path, clients=clients) as served:
        call = calling("read", '{"path": "red.png"}', "call_00000000ab010")
        one, _ = await send(served, chat(("user", '"what is it?"'), system=OPENCODE, tools=TOOLS), call)
        shown: Json = [
            {"type": "text", "text": "Attached media from tool result:"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0K"}},
        ]
        said = [called("read", '{"path": "red.png"}', "call_00000000ab010"), result("call_00000000ab010", "Read.")]
        asked = chat(("user", '"what is it?"'), *said, {"role": "user", "content": shown}, system=OPENCODE, tools=TOOLS)
        await send(served, asked, "A red one.")
        heard = await served.next_state(one)
        assert heard is not None and {item.role for item in heard} == {Role.TOOL}


async def test_what_a_program_wrote_over_its_users_words_is_left_out_without_a_rule(tmp_path: Path) -> None:
    async with serving(tmp_path, clients=(AnyClient(),)) as served:
        one, _ = await send(served, chat(("user", "sort the list")), "Sorted.")
        over = "Commands not executed. The user rejected your commands with the following message: "
        said = (("user", "sort the list"), ("assistant", "Sorted."), ("user", f"{over}the other way round"))
        await send(served, chat(*said), "Sorted again.")
        heard = await served.next_state(one)
        assert heard is not None and [item.text for item in heard] == ["the other way round"]


async def test_words_that_a_program_answered_itself_are_nobodys_without_a_rule(tmp_path: Path) -> None:
    async with serving(tmp_path, clients=(AnyClient(),)) as served:
        one, _ = await send(served, chat(("user", "note the fruit")), "I noted it in fruit.txt.")
        said = [("user", "note the fruit"), ("assistant", "I noted it in fruit.txt.")]
        said += [("user", "I committed the changes with git hash 71ae323"), ("assistant", "Ok.")]
        await send(served, chat(*said, ("user", "and in German?")), "Obst.")
        assert await served.state(one) is State.SERVED
        assert await served.next_state(one) is None
