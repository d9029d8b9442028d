"""How each of a dozen clients takes its owner through a conversation; the words come from `captures_words.toml`.

`held_out` words the client's own prompts, tags and reminders otherwise than its released versions do.
"""

from __future__ import annotations

import itertools
import random
import uuid
from collections.abc import Callable

from benchmarks.captures_made import (
    CHAT,
    MESSAGES,
    RESPONSES,
    Said,
    Talk,
    Tongue,
    chat_body,
    messages_body,
    responses_body,
    tongues,
)
from benchmarks.captures_replay import Labelled

LS = ("bash", '{"command": "ls"}')
FAILED, WORKED = "ls: cannot access 'x'\n\n(Command exited with code 2)", "a.txt\nb.txt\n\n(Command exited with code 0)"
PADDING = "\nWork in small steps, say what you do, and keep to the owner's wishes.\n" * 20
RULES = (
    "# *SEARCH/REPLACE block* Rules:\n\nEvery *SEARCH/REPLACE block* must use this format:\n1. The *FULL* file path."
)
CITED = "### Task:\nRespond to the user query using the provided context, incorporating inline citations.\n\n"
WEBUI = {
    "title": "Generate a concise, 3-5 word title with an emoji summarizing the chat history.",
    "tags": "Generate 1-3 broad tags categorizing the main themes of the chat history.",
    "follow": "Suggest 3-5 relevant follow-up questions or prompts that the user might naturally ask next.",
}
CONDENSE = "Given a conversation (between Human and Assistant) and a follow up message from Human, rewrite the message."
COMMIT = "You are an expert software engineer that generates concise, one-line Git commit messages."
Play = Callable[[Talk, Tongue, bool], None]


def made(seed: int, *, held_out: bool, is_again: bool = False) -> list[Labelled]:
    """The exchanges of each client, one conversation in each language; `is_again` those of the second held-out set."""
    found: list[Labelled] = []
    for name, (path, headers, system, has_tools, play) in CLIENTS.items():
        if name == "unheard-of" and not held_out:
            continue
        counter, listed = itertools.count(), list[Labelled]()
        for number, tongue in enumerate(tongues(f"{seed}/{name}", is_again=is_again)):
            draw = random.Random(f"{seed}/{name}/{number}/{held_out}")
            wire = {CHAT: chat_body, MESSAGES: messages_body, RESPONSES: responses_body}[path]
            session = str(uuid.UUID(int=draw.getrandbits(128)))
            own = {key: value.replace("SESSION", session) for key, value in headers.items()}
            talk = Talk(
                *(name, f"{name}-{number}", wire, path, own, system and system + PADDING, has_tools),
                *(draw, listed, counter),
            )
            play(talk, tongue, held_out)
        found += listed
    return found


def _agent(talk: Talk, tongue: Tongue, *, compact: str, opening: str, note: str = "", quote: str = "{}") -> None:
    """A coding agent: asked, corrected, a tool that fails and one that works, a compaction, and on."""

    def ask(kind: str) -> None:
        words = tongue.one(kind)
        shown = f"{note}\n{quote.format(words)}" if note else quote.format(words)
        talk.asks(words, text=quote.format(words), sent=shown)

    ask("openings")
    talk.answered(tongue.one("replies"))
    ask("corrections")
    talk.answered("", call=LS)
    talk.gives(FAILED)
    talk.answered(tongue.one("replies"), call=LS)
    talk.gives(WORKED)
    talk.answered(tongue.one("replies"))
    summary = tongue.one("summary")
    talk.errand("compaction", [*talk.history, Said("user", compact)], tools=talk.path == MESSAGES, reply=summary)
    talk.summed(opening.format(summary))
    ask("thanks")
    talk.answered(tongue.one("replies"))
    ask("corrections")
    talk.answered(tongue.one("replies"))


def claude_code(talk: Talk, tongue: Tongue, held_out: bool) -> None:
    """Reminders around messages, a title, a sub-agent, a notification, a compaction with its tools."""
    tag = "harness-note" if held_out else "system-reminder"
    title = tongue.one("title") if held_out else "Generate a concise, sentence-case title (3-7 words) for this session."
    first = tongue.one("openings")
    talk.errand("title", [Said("user", f"{title}\n\n{first}")], system="You write JSON.", reply='{"title": "so"}')
    compact = tongue.one("compact") if held_out else f"CRITICAL: Respond with TEXT ONLY.\n\n{tongue.one('compact')}"
    opening = (
        "{}"
        if held_out
        else "This session is being continued from a previous conversation that ran out of context.\n{}"
    )
    task = tongue.one("task")
    talk.asks(first)
    talk.answered("", call=("task", f'{{"prompt": "{task}"}}'))
    if held_out:
        talk.errand("sub-agent", [Said("user", task)], system="You search folders.", tools=True, reply="dates.py")
    else:
        plain, talk.headers = talk.headers, talk.headers | {"x-claude-code-agent-id": "a1"}
        talk.errand("sub-agent", [Said("user", task)], system="You search folders.", tools=True, reply="dates.py")
        talk.headers = plain
    talk.gives("dates.py")
    talk.answered(tongue.one("replies"))
    event = f"<task-notification>\n<task-id>{talk.draw.random()}</task-id>\n</task-notification>"
    talk.notes(event if held_out else f"[SYSTEM NOTIFICATION - NOT USER INPUT]\nThis is an event.\n\n{event}")
    talk.answered(tongue.one("replies"))
    _agent(talk, tongue, compact=compact, opening=opening, note=f"<{tag}>\n{tongue.one('reminder')}\n</{tag}>")


def codex(talk: Talk, tongue: Tongue, held_out: bool) -> None:
    """The environment before the first words, a compaction told by its metadata and by nothing else."""
    place = "workspace_context" if held_out else "environment_context"
    talk.notes(f"<{place}>\n  <cwd>/home/ada/project</cwd>\n  <shell>bash</shell>\n</{place}>")
    compact = (
        tongue.one("compact")
        if held_out
        else f"You are performing a CONTEXT CHECKPOINT COMPACTION.\n{tongue.one('compact')}"
    )
    opening = (
        "{}"
        if held_out
        else "Another language model started to solve this problem and produced a summary of its thinking process\n{}"
    )
    _agent(talk, tongue, compact=compact, opening=opening)


def opencode(talk: Talk, tongue: Tongue, held_out: bool) -> None:
    """A title before the first turn, quotation marks around each message, an own system text for compactions."""
    system = (
        f"You make titles. {tongue.one('title')}"
        if held_out
        else "You are a title generator. You output ONLY a thread title."
    )
    said = [Said("user", tongue.one("title") if held_out else "Generate a title for this conversation:\n")]
    words = tongue.one("openings")
    talk.errand("title", [*said, Said("user", f'"{words}"')], system=system, reply="So")
    talk.asks(words, text=f'"{words}"')
    talk.answered(tongue.one("replies"))
    compact = (
        tongue.one("compact")
        if held_out
        else f"Provide a detailed prompt for continuing our conversation above.\n{tongue.one('compact')}"
    )
    _agent(talk, tongue, compact=compact, opening="What did we do so far?\n{}", quote='"{}"')


def cline(talk: Talk, tongue: Tongue, held_out: bool) -> None:
    """Its task and feedback in tags, the environment's details behind each message; all of it stays in history."""
    details = "workspace_details" if held_out else "environment_details"
    opened, closed = ("<user_message>", "</user_message>") if held_out else ("<task>", "</task>")

    def ask(kind: str) -> None:
        words = tongue.one(kind)
        talk.asks(
            words, text=f"{opened}\n{words}\n{closed}\n\n<{details}>\n# Open Tabs\n{talk.draw.random()}\n</{details}>"
        )

    ask("openings")
    talk.answered(tongue.one("replies"))
    for kind in ("corrections", "thanks", "corrections"):
        ask(kind)
        talk.answered("", call=LS)
        talk.gives(FAILED if kind == "thanks" else WORKED)
        talk.answered(tongue.one("replies"))


def aider(talk: Talk, tongue: Tongue, held_out: bool) -> None:
    """A reminder behind the newest message alone, a commit message, files that move within the history."""
    reminder = tongue.one("reminder") if held_out else RULES
    for number, kind in enumerate(("openings", "corrections", "thanks", "corrections", "thanks")):
        words = tongue.one(kind)
        talk.asks(words, sent=f"{words}\n\n{reminder}")
        talk.answered(tongue.one("replies"))
        if number == 2:
            commit = tongue.one("tags") if held_out else COMMIT
            talk.errand(
                "commit message",
                [Said("user", f"diff --git a/x b/x\n{talk.draw.random()}")],
                system=commit,
                reply="fix: so",
            )


def open_webui(talk: Talk, tongue: Tongue, held_out: bool) -> None:
    """Retrieved context before the newest message alone; title, tags and follow-ups after the first reply."""
    heads = WEBUI
    for number, kind in enumerate(("openings", "corrections", "thanks", "corrections")):
        words = tongue.one(kind)
        source = f'<context>\n<source id="1">{tongue.one("replies")}</source>\n</context>\n'
        talk.asks(
            words, sent=(f"{tongue.one('found')}\n{source}\n{words}" if held_out else f"{CITED}{source}\n{words}")
        )
        reply = tongue.one("replies")
        talk.answered(reply)
        history = f"<chat_history>\nUSER: {words}\nASSISTANT: {reply}\n</chat_history>"
        for name, head in heads.items() if number in (0, 3) else ():
            prompt = (
                f"{tongue.one(name)}\n\n{history}" if held_out else f"### Task:\n{head}\n### Chat History:\n{history}"
            )
            errand = {"follow": "suggestions"}.get(name, name)
            talk.errand(errand, [Said("user", prompt)], reply='{"so": []}')


def librechat(talk: Talk, tongue: Tongue, held_out: bool) -> None:
    """A title after the first reply, and nothing else of its own."""
    head = (
        tongue.one("title")
        if held_out
        else "Provide a concise, 5-word-or-less title for the conversation, using title case conventions."
    )
    for number, kind in enumerate(("openings", "corrections", "thanks", "corrections", "thanks")):
        words, reply = tongue.one(kind), tongue.one("replies")
        talk.asks(words)
        talk.answered(reply)
        if number == 0:
            prompt = f"{head}\n\nConversation:\nUser: {words}\nAI: {reply}"
            talk.errand("title", [Said("user", prompt)], reply="So It Is")


def mini_swe(talk: Talk, tongue: Tongue, held_out: bool) -> None:
    """A task, then results of commands in a user's place."""
    words = tongue.one("task")
    talk.asks(words, text=words if held_out else f"Please solve this issue: {words}\n\nYou can execute bash commands.")
    for number in range(4):
        talk.answered(f"{tongue.one('replies')}\n\n```bash\nls -l {number}\n```")
        talk.gives(f"<returncode>{number % 2}</returncode>\n<output>\n{number} files\n</output>", as_user=True)
    talk.answered(tongue.one("replies"))


def smolagents(talk: Talk, tongue: Tongue, held_out: bool) -> None:
    """Code whose closing tag is added in history, observations in a user's place, a second task."""
    tag = "</run>" if held_out else "</code>"
    for kind in ("openings", "thanks"):
        words = tongue.one(kind)
        talk.asks(words, text=f"New task:\n{words}")
        for number in range(2):
            text = f"Thought: {tongue.one('replies')}\n<code>\nprint({number})\n"
            talk.answered(text.strip(), kept=f"{text}{tag}\nCalling tools:\n[{{'id': 'call_{number}'}}]")
            talk.gives(f"Observation:\nExecution logs:\n{talk.draw.random()}", as_user=True)
        text = f"Thought: {tongue.one('replies')}\n<code>\nfinal_answer('so')\n"
        talk.answered(text.strip(), kept=f"{text}{tag}")


def llamaindex(talk: Talk, tongue: Tongue, held_out: bool) -> None:
    """A chat engine: the question is worded anew on the side, calls may come back under another name."""
    head = tongue.one("found") if held_out else CONDENSE
    for number, kind in enumerate(("openings", "corrections", "thanks", "corrections")):
        words = tongue.one(kind)
        if number in (1, 3):
            before = "\n".join(f"{item.role}: {item.text}" for item in talk.history if item.text)
            talk.errand("query", [Said("user", f"{head}\n\n{before}\n\n{words}")], reply=words)
        talk.asks(words)
        talk.answered("", call=LS)
        broken = talk.history[-1].call
        assert broken is not None
        talk.history[-1].call = (broken[0], "invalid", '{"tool": "bash"}')
        talk.gives(FAILED)
        talk.answered(tongue.one("replies"))


def continue_(talk: Talk, tongue: Tongue, held_out: bool) -> None:
    """An editor's side bar: a title that quotes the reply, history cut from its beginning."""
    head = (
        tongue.one("title")
        if held_out
        else "Given the following... please reply with a title for the chat that is 3-4 words in length."
    )
    for number, kind in enumerate(("openings", "corrections", "thanks", "corrections", "thanks", "corrections")):
        talk.asks(tongue.one(kind))
        reply = tongue.one("replies")
        talk.answered(reply)
        if number == 0:
            talk.errand("title", [Said("user", f"{head}\n\n{tongue.one('tags')}\n{reply}")], reply="So it is")
        if number > 2:
            talk.history = talk.history[2:]


def unheard_of(talk: Talk, tongue: Tongue, held_out: bool) -> None:
    """An agent that nobody has heard of, with a memory of its own."""
    talk.asks(tongue.one("openings"))
    first = talk.answered(tongue.one("replies"))
    kept = f"user: {first.words[0]}\nassistant: {first.reply}"
    talk.errand("memory", [Said("user", f"{tongue.one('tags')}\n{kept}")], system="You keep notes.", reply="[]")
    tag = "agent-state"
    _agent(
        talk, tongue, compact=tongue.one("compact"), opening="{}", note=f"<{tag}>\n{tongue.one('reminder')}\n</{tag}>"
    )


CLAUDE = {"user-agent": "claude-cli/2.1.330 (external, cli)", "x-claude-code-session-id": "SESSION"}
CLIENTS: dict[str, tuple[str, dict[str, str], str, bool, Play]] = {
    "claude-code": (MESSAGES, CLAUDE, "You are Claude Code, Anthropic's official CLI for Claude.", True, claude_code),
    "codex": (RESPONSES, {"session_id": "SESSION"}, "You are Codex, running in the Codex CLI.", True, codex),
    "opencode": (CHAT, {"x-session-id": "SESSION"}, "You are OpenCode, the best agent.", True, opencode),
    "cline": (CHAT, {}, "You are Cline, a highly skilled software engineer.", True, cline),
    "aider": (CHAT, {}, "Act as an expert software developer.", False, aider),
    "open-webui": (CHAT, {"x-openwebui-chat-id": "SESSION"}, "", False, open_webui),
    "librechat": (CHAT, {"user-agent": "LibreChat/0.8"}, "", False, librechat),
    "mini-swe-agent": (CHAT, {}, "You are a helpful assistant that can interact with a computer.", False, mini_swe),
    "smolagents": (CHAT, {}, "You are an expert assistant who can solve any task using code blobs.", False, smolagents),
    "llamaindex": (CHAT, {"user-agent": "llama-index/0.14"}, "You answer questions.", True, llamaindex),
    "continue": (CHAT, {"user-agent": "Continue/1.2"}, "", False, continue_),
    "unheard-of": (CHAT, {}, "You are an agent of a house that nobody has heard of.", True, unheard_of),
}
