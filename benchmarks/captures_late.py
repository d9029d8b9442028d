"""Three clients that do not exist, written after the rules and signs were finished, and without a look at either.

Each is built as a new program of its kind might be, with ways of its own: Kiln, a coding agent in a terminal; Parlour,
a chat page whose own prompts are in its owner's language, too; Lantern, an assistant in an editor, with a reviewer.
No rule names them, and their conversations have no names. What they say is in `captures_late.toml`, in four languages.
"""

from __future__ import annotations

import itertools
import json
import random
import tomllib
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from benchmarks.captures_made import CHAT, MESSAGES, Said, Talk, Tongue, chat_body, messages_body
from benchmarks.captures_replay import CALL_DIGITS, Labelled
from openclaw_rl.core.message import Json

WORDS = Path(__file__).with_suffix(".toml")
CUT = "\x1f"  # between two parts of one message's content
Play = Callable[[Talk, Tongue], None]
Wire = Callable[[Talk, list[Said], bool], dict[str, Json]]
Client = tuple[str, dict[str, str], str, Wire, Play]  # path, headers, system text


def late(seed: int) -> list[Labelled]:
    """The exchanges of the three clients, two conversations of each in each language."""
    return played(CLIENTS, seed, with_tools=("kiln", "lantern"))


def played(clients: Mapping[str, Client], seed: int, *, with_tools: Collection[str]) -> list[Labelled]:
    """Two conversations of each of these clients in each language; those `with_tools` send tools."""
    found: list[Labelled] = []
    for name, (path, headers, system, wire, play) in clients.items():
        counter, listed = itertools.count(), list[Labelled]()
        for number, (code, words) in enumerate([*tomllib.loads(WORDS.read_text("utf-8")).items()] * 2):
            draw = random.Random(f"{seed}/{name}/{number}")
            tongue = Tongue(words, random.Random(f"{seed}/{name}/{number}/{code}"))
            talk = Talk(
                name, f"{name}-{number}", wire, path, headers, system, name in with_tools, draw, listed, counter
            )
            play(talk, tongue)
        found += listed
    return found


def _parts(talk: Talk, said: list[Said], tools: bool) -> dict[str, Json]:
    """A chat body in which some messages consist of several parts."""
    body = chat_body(talk, said, tools)
    messages = body["messages"]
    assert isinstance(messages, list)
    for item in messages:
        if isinstance(item, dict) and isinstance(text := item.get("content"), str) and CUT in text:
            item["content"] = [{"type": "text", "text": part} for part in text.split(CUT)]
    return body


def kiln(talk: Talk, tongue: Tongue) -> None:
    """A coding agent: a ping, a map of the project before the first words, a board behind each message, a scout."""
    first = tongue.one("openings")
    talk.errand("connection test", [Said("user", "ping")], system="", reply="pong")
    named = f'Message:\n"""\n{first}\n"""'
    talk.errand("title", [Said("user", named)], system="You name coding sessions in at most six words.", reply="Report")
    place = (
        f"Project map (made by kiln {talk.draw.randint(1, 9)}.2, do not answer it)\n"
        "- root: /home/ada/report, branch main, 3 files changed\n- src/report.py 212 lines\n- src/dates.py 96 lines\n"
        "- KILN.md: keep functions short; run `make check` before you say that you are done"
    )
    talk.asks(first, text=f"{place}{CUT}{first}")
    goal = tongue.one("task")
    talk.answered("", call=("task", json.dumps({"prompt": goal}, ensure_ascii=False)))
    _scout(talk, tongue, goal)
    talk.gives(f"Scout's report: {tongue.one('replies')}")
    talk.answered("", call=("bash", '{"command": "make check"}'))
    talk.gives("make: *** [Makefile:12: check] Error 2\nexit status: 2")
    talk.notes("The plan is older than five steps. Bring it up to date if it no longer holds.")
    talk.answered(tongue.one("replies"), call=("bash", '{"command": "make check"}'))
    del talk.history[-2]  # which is said once and not kept
    talk.gives("14 passed\nexit status: 0")
    talk.answered(tongue.one("replies"))
    for kind in ("corrections", "pasted"):
        _with_board(talk, typed(tongue, kind))
        talk.answered(tongue.one("replies"))
    number = talk.draw.randint(2, 9)
    talk.notes(f"Job {number} (make watch) ended with status 1 after 3 min. Its last lines:\nwatch: lost the folder")
    talk.answered(tongue.one("replies"))
    summary = tongue.one("summary")
    ask = (
        "The window is nearly full. Stop working and write a note to whoever takes over this session: what was asked"
        " for, in the person's own words; what has been done; what is left; what surprised you. No tool calls."
    )
    talk.errand("compaction", [*talk.history, Said("user", ask)], tools=True, reply=summary)
    talk.summed(f"Note from the earlier part of this session:\n\n{summary}")
    _with_board(talk, tongue.one("thanks"))
    talk.answered(tongue.one("replies"))
    _with_board(talk, tongue.one("corrections"))
    talk.answered(tongue.one("replies"))


def _scout(talk: Talk, tongue: Tongue, goal: str) -> None:
    """The helper that a call started, in two steps of its own."""
    said = [Said("user", f"You were sent by the lead with this goal:\n\n{goal}\n\nReport in under 200 words.")]
    system = "You are a scout. You read and you do not write."
    script = '{"command": "grep -rn parse src"}'
    asked = f'<tool_call>\n{{"name": "bash", "arguments": {script}}}\n</tool_call>'
    talk.errand("sub-agent", said, system=system, tools=True, reply=asked)
    call = (f"call_{talk.made[-1].turns[0][-CALL_DIGITS:]}0", "bash", script)
    said = [*said, Said("assistant", "", call=call), Said("tool", "src/dates.py:12: parse(line)", answers=call[0])]
    talk.errand("sub-agent", said, system=system, tools=True, reply=tongue.one("replies"))


def typed(tongue: Tongue, kind: str) -> str:
    """What the owner types; two owners never paste the same."""
    return tongue.one(kind) + (f" ({tongue.draw.randint(100, 9999)})" if kind == "pasted" else "")


def _with_board(talk: Talk, words: str) -> None:
    """The owner's words with the board behind them, which only the newest message has."""
    board = f"kiln board: 3 open, 1 done; editing src/dates.py; {talk.draw.randint(10, 23)}:{talk.draw.randint(10, 59)}"
    talk.asks(words, sent=f"{words}\n\n---\n{board}")


def parlour(talk: Talk, tongue: Tongue) -> None:
    """A chat page: searches, excerpts around the newest message, name, suggestions, facts, an answer once more."""
    for number, kind in enumerate(("openings", "corrections", "pasted", "thanks", "corrections", "thanks")):
        words = typed(tongue, kind)
        stamp = f"{1 + number}.11.2026 {talk.draw.randint(10, 23)}:{talk.draw.randint(10, 59)}"
        excerpts = "\n".join(f"({at}) {tongue.one('replies')}" for at in (1, 2))
        sent = (
            f"{tongue.one('excerpts')}\n\n{excerpts}\n\n{tongue.one('asked')} {words}"
            if number % 2
            else f"[{stamp}] {words}"
        )
        if number == 3:
            told = [*talk.history, Said("user", f"{tongue.one('queries')}\n\n{words}")]
            talk.errand("query", told, reply="report monthly empty")
        talk.asks(words, sent=sent)
        if number == 1:  # its owner presses "again"
            asked, before = list(talk.history), talk.last
            talk.answered(tongue.one("replies"))
            talk.history, talk.last, talk.newest = asked, before, [words]
        reply = tongue.one("replies")
        talk.answered(reply)
        if number == 0:
            quoted = json.dumps(
                [{"from": "person", "text": words}, {"from": "model", "text": reply}], ensure_ascii=False
            )
            talk.errand("title", [Said("user", f"{tongue.one('title')}\n\n{quoted}")], reply="Report")
        if number in (0, 2, 4):
            talk.errand("suggestions", [*talk.history, Said("user", tongue.one("follow"))], reply='["ok"]')
        if number in (1, 4):
            exchange = f"{words}\n\n=>\n\n{reply}"
            talk.errand("memory", [Said("user", exchange)], system=tongue.one("facts"), reply="[]")


def lantern(talk: Talk, tongue: Tongue) -> None:
    """An assistant in an editor: what is selected around each message, a reviewer, a handoff in place of the rest."""
    for number, kind in enumerate(("openings", "corrections", "thanks")):
        _in_editor(talk, tongue.one(kind), number)
        talk.answered("", call=("bash", '{"command": "ls"}'))
        talk.gives("ls: cannot open directory '.': Permission denied" if number == 1 else "dates.py\nreport.py")
        reply = tongue.one("replies")
        talk.answered(reply)
        if number == 0:
            name = "Name this workspace conversation for the sidebar. Reply with at most 40 characters."
            talk.errand("title", [*talk.history, Said("user", name)], tools=True, reply="Report")
        both = f"REQUEST\n{talk.history[-4].text}\n\nANSWER\n{reply}"
        checked = f"{both}\n\nDoes the answer do what the request asks? PASS or FAIL, with one reason."
        talk.errand(
            "errand", [Said("user", checked)], system="You review answers of another assistant.", reply="FAIL: no"
        )
        if number == 1:
            talk.notes("The reviewer did not accept the last answer: it does not say what was changed. Revise it.")
            talk.answered(tongue.one("replies"))
    talk.notes("(the person stopped the last run)")
    _in_editor(talk, tongue.one("corrections"), 3)
    talk.answered(tongue.one("replies"))
    summary = tongue.one("summary")
    asked = "Write the handoff: goals, state of the files, decisions, next steps. It replaces the messages above."
    talk.errand("compaction", [*talk.history, Said("user", asked)], reply=summary)
    talk.summed(f"Handoff\n\n{summary}\n\n(end of handoff; earlier messages are gone)")
    _in_editor(talk, tongue.one("thanks"), 4)
    talk.answered(tongue.one("replies"))
    _in_editor(talk, tongue.one("corrections"), 5)
    talk.answered(tongue.one("replies"))


def _in_editor(talk: Talk, words: str, number: int) -> None:
    """What is open and selected in front of the owner's words; it stays in history."""
    seen = f"Open file: src/dates.py\nCursor: line {12 + number}\nSelection:\n> # {talk.draw.random()}"
    talk.asks(words, text=f"=== editor ===\n{seen}\n> return parse(line)\n=== message ===\n{words}")


CLIENTS: dict[str, Client] = {
    "kiln": (CHAT, {"user-agent": "kiln/4.2"}, "You are Kiln, a careful builder. " * 20, _parts, kiln),
    "parlour": (CHAT, {"user-agent": "node"}, "Be friendly. Answer in the person's language.", chat_body, parlour),
    "lantern": (MESSAGES, {"user-agent": "lantern-vscode/0.9"}, "You help in an editor. " * 20, messages_body, lantern),
}
