"""Recorded exchanges of real clients, OpenClaw's first, replayed against the product's own server.

Behind them come other clients' exchanges, recorded (CLIENT_FIXTURES, default `tests/clients/fixtures`) and made up.
OpenClaw's extension is left out: its headers are removed. CAPTURES names the recordings' folder (default:
`shared/openclaw-captures` beside the checkout). The engine says again what was answered then. The truth is not read by
the product's own rules: kinds are those the recordings carry, sessions come from the extension's header, the affinity
header or the Runtime line, and a next state is what stands between the answer and the next one in a later request of
the same session, words as the user typed them; an answer that the client kept over a compaction counts as still there.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import re
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import aiohttp

from benchmarks.capture_reuse import left_by_changes, reuse
from benchmarks.captures_late import late
from benchmarks.captures_later import later
from benchmarks.captures_made import in_turns
from benchmarks.captures_made_clients import made
from benchmarks.captures_replay import Labelled, measured, replay, replaying
from benchmarks.client_captures import replayed
from benchmarks.common import Figures, conditions, finish, is_quick, progress
from benchmarks.http import bundled_model
from openclaw_rl.collect.clients.rules import AnyClient
from openclaw_rl.core.message import Json, Role
from openclaw_rl.render.renderer import ChatRenderer
from openclaw_rl.render.template import read_template
from openclaw_rl.store.rows import TurnRow

CHAT = "/v1/chat/completions"
OWN = ("x-session-id", "x-turn-type", "x-openclaw-")  # the extension's headers
HOP = ("host", "content-length", "connection", "accept-encoding", "transfer-encoding")
BLOCK = "<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>"
CLIENTS_OWN = ("[Queued user message", "<turn_aborted>", "Continue the current task", "A background task completed")
SUMMARY = "The conversation history before this point was compacted"
STAMP = re.compile(r"^\[\w{3} [\d-]+ [\d:]+ [^\]]+\] ")
RUNTIME = re.compile(r"Runtime: agent=\S+ \| session=(\S+)(?: \| sessionId=(\S+))? \| host=")


@dataclass(slots=True)
class Exchange:
    """One recording, and what became of it here."""

    name: str
    kind: str
    headers: dict[str, str]
    body: dict[str, Json]
    answer: str
    status: int = 0
    row: TurnRow | None = None
    wrong: list[str] = field(default_factory=list)

    @property
    def messages(self) -> list[tuple[str, str]]:
        """Who said what."""
        found = self.body["messages"]
        assert isinstance(found, list)
        return [(str(item["role"]), _text(item.get("content"))) for item in found if isinstance(item, dict)]

    @property
    def sent_headers(self) -> dict[str, str]:
        """The client's own, without what the extension added."""
        return {name: value for name, value in self.headers.items() if not name.startswith((*OWN, *HOP))}

    @property
    def session(self) -> str | None:
        """The session as it is known, or None where nothing tells."""
        told = self.headers.get("x-session-affinity") or self.headers.get("x-session-id")
        lines = [found for role, text in self.messages if role == "user" for found in RUNTIME.findall(text)]
        key, name = lines[-1] if lines else ("", "")
        if "x-session-affinity" not in self.headers and lines and not name:
            return str(key)  # the extension names a single run of an automation, of which the body says nothing
        return told or name or None


def main() -> None:
    """Prints the figures."""
    folder = Path(os.environ.get("CAPTURES") or Path(__file__).parents[2] / "shared" / "openclaw-captures")
    model = bundled_model()
    figures: Figures = dict.fromkeys(("exchanges", "kind_right", "session_right", "next_state_right", "refused"))
    if not folder.is_dir() or model is None:
        missing = "the bundled model" if model is None else f"{folder}: set CAPTURES to the recordings' folder"
        progress(f"nothing to replay: there is no {missing}")
    else:
        paths = [path for path in sorted(folder.glob("*.json")) if not path.name.startswith("gateway-")]
        figures = asyncio.run(_replayed(paths, model))
        figures |= {"reused_share": None} if is_quick() else asyncio.run(_reused(paths, model))
        fixtures = Path(
            os.environ.get("CLIENT_FIXTURES") or Path(__file__).parents[1] / "tests" / "clients" / "fixtures"
        )
        figures["other_clients"] = asyncio.run(_others(sorted(fixtures.glob("*.jsonl.gz")), model))
    figures["conditions"] = conditions(
        "bundled tokenizer and template, scripted answers", threads=1, seeds=[], repeats=1
    )
    finish(figures)


async def _others(paths: list[Path], model: Path) -> Figures:
    """Recorded and made-up exchanges of other clients, with rules and by signs alone."""
    figures: Figures = {"recorded_clients": [path.name.removesuffix(".jsonl.gz") for path in paths]}
    sets: dict[str, Callable[[], list[Labelled]]] = {
        "made_as_released": partial(made, 7, held_out=False),
        "made_held_out": partial(made, 7, held_out=True),
        "made_held_out_again": partial(made, 7, held_out=True, is_again=True),
        "made_late": partial(late, 7),
        "made_later": partial(later, 7),
    }
    for how, clients in (("rules", None), ("signs_alone", (AnyClient(),))):
        progress(f"recorded, {how}:")
        figures[f"recorded_{how}"] = await replayed(paths, model, clients=clients)
        for name, make in sets.items():
            exchanges = in_turns(make())
            with tempfile.TemporaryDirectory() as home:
                await replay(exchanges, model, Path(home), clients=clients)
            tally = measured(exchanges)
            for each in exchanges:
                for what in each.wrong:
                    progress(f"{name}, {how}: {each.client} {each.session} {each.errand or each.kind}: {what}")
            progress(f"{name}, {how}: {tally}")
            figures[f"{name}_{how}"] = tally.figures()
    return figures


async def _replayed(paths: list[Path], model: Path) -> Figures:
    exchanges: list[Exchange] = []
    for _, group in itertools.groupby(paths, key=lambda path: path.name.partition("-")[0]):
        read = [found for path in group if (found := _read(path)) is not None]
        if read:
            with tempfile.TemporaryDirectory() as home:
                await _replay(read, model, Path(home))
            _judge(read)
            exchanges += read
    served = [each for each in exchanges if each.row is not None]
    linked = [each for each in served if each.kind.startswith("main")]
    for each in exchanges:
        for what in each.wrong:
            progress(f"{each.name}: {what}")
    named = [each for each in served if each.session is not None]
    return {
        "exchanges": len(exchanges),
        "kind_right": _right(served, "kind"),
        "session_right": _right(named, "session"),
        "session_known": len(named),
        "next_state_right": _right(linked, "next state"),
        "next_state_of": len(linked),
        "next_states": sum(each.row is not None and each.row.next_state is not None for each in exchanges),
        "refused": sum(each.status != 200 for each in exchanges),
        "skipped": len(paths) - len(exchanges),
    }


async def _reused(paths: list[Path], model: Path) -> Figures:
    """What needs no reading, over the sessions of which there is more than one request."""
    read = [found for path in paths if (found := _read(path)) is not None]
    sessions = Counter(each.session for each in read if each.kind == "main")
    asked = [each for each in read if each.session is not None and sessions[each.session] > 1 and each.kind == "main"]
    renderer = ChatRenderer(read_template(model))
    figures = await reuse([(each.session, each.body) for each in asked], renderer, model)
    first, second = (next(each for each in asked if len(each.messages) == size) for size in (3, 5))
    return figures | {"reused_share_left_by_changes": left_by_changes(first.body, second.body, renderer)}


def _read(path: Path) -> Exchange | None:
    """The recording, where it is one of a chat completion."""
    held = json.loads(path.read_text("utf-8"))
    asked, answered = held["request"], held["response"]
    if asked["path"] != CHAT:
        progress(f"{path.stem}: {asked['method']} {asked['path']} is left out")
        return None
    headers = {name.lower(): value for name, value in asked["headers"]}
    return Exchange(path.stem, held["kind"], headers, asked["body"], _answer(answered.get("events") or []))


def _answer(events: list[str | dict[str, Json]]) -> str:
    """The recorded answer as the bundled model would write it."""
    content, names, arguments = "", dict[int, str](), dict[int, str]()
    for event in events:
        choices = event.get("choices") if isinstance(event, dict) else None
        choice = choices[0] if isinstance(choices, list) and choices else None
        delta = choice.get("delta") if isinstance(choice, dict) else None
        if not isinstance(delta, dict):
            continue
        content += str(delta.get("content") or "")
        calls = delta.get("tool_calls")
        for call in calls if isinstance(calls, list) else []:
            assert isinstance(call, dict) and isinstance(call["function"], dict)
            at = int(str(call["index"]))
            names[at] = names.get(at, "") + str(call["function"].get("name") or "")
            arguments[at] = arguments.get(at, "") + str(call["function"].get("arguments") or "")
    for at, name in names.items():
        call_text = f'{{"name": {json.dumps(name)}, "arguments": {arguments[at] or "{}"}}}'
        content += f"\n<tool_call>\n{call_text}\n</tool_call>"
    return content


async def _replay(exchanges: list[Exchange], model: Path, home: Path) -> None:
    """Sends the recordings one after the other, then reads what the store made of them."""
    names: list[str | None] = []
    async with replaying(model, home) as (url, store, says):
        async with aiohttp.ClientSession() as http:
            for each in exchanges:
                says[0] = each.answer
                async with http.post(f"{url}{CHAT}", json=each.body, headers=each.sent_headers) as answer:
                    each.status = answer.status
                    text = await answer.text()
                if each.status != 200:
                    each.wrong.append(f"refused: {text[:200]}")
                rows = await store.rows(limit=1)
                newest = rows[0].turn.id if rows else None
                names.append(None if newest in names else newest)
        for each, name in zip(exchanges, names, strict=True):
            each.row = None if name is None else await store.row(name)


def _judge(exchanges: list[Exchange]) -> None:
    """Notes on each exchange what came out wrong."""
    for at, each in enumerate(exchanges):
        if each.row is None:
            continue
        turn = each.row.turn
        kind = "side" if each.kind == "side" else "main"
        if turn.kind.value != kind:
            each.wrong.append(f"kind: {turn.kind.value}, not {kind} ({turn.why})")
        if each.session is not None and turn.session.partition(":")[2] != each.session:
            each.wrong.append(f"session: {turn.session}, not {each.session} ({turn.why})")
        due = _due(each, exchanges[at + 1 :]) if kind == "main" else None
        heard = each.row.next_state
        got = None if heard is None else [(item.role.value, item.text.strip()) for item in heard.messages]
        if got != due:
            each.wrong.append(f"next state: {got}, not {due}")


def _due(each: Exchange, later: list[Exchange]) -> list[tuple[str, str]] | None:
    """What the session's later requests show after this answer; None where its conversation broke off."""
    mine = _spoken(each)
    for other in later:
        if other.kind == "side" or other.session != each.session:
            continue
        theirs = _spoken(other)
        at = _place(mine, theirs, _visible(each.answer))
        if at is None:
            continue
        rest = itertools.takewhile(lambda said: said[0] != Role.ASSISTANT.value, theirs[at + 1 :])
        heard = [(role, STAMP.sub("", text)) for role, text in rest]
        heard = [said for said in heard if not said[1].startswith(CLIENTS_OWN)]
        if heard:
            return heard
        if theirs[0][1].startswith(SUMMARY):
            return None
    return None


def _place(mine: list[tuple[str, str]], theirs: list[tuple[str, str]], answer: str) -> int | None:
    """Where the answer stands in a later request: behind all that was asked, or kept behind a summary of it."""
    if theirs[: len(mine)] == mine:
        at = len(mine)
        return at if theirs[at : at + 1] == [(Role.ASSISTANT.value, answer)] else None
    if not theirs[0][1].startswith(SUMMARY) or not answer:
        return None
    return next((at for at in range(len(theirs) - 1, -1, -1) if theirs[at] == (Role.ASSISTANT.value, answer)), None)


def _spoken(each: Exchange) -> list[tuple[str, str]]:
    """The conversation in plain pairs, without the client's inserts."""
    said = [(role, text) for role, text in each.messages if role != "system" and not text.startswith(BLOCK)]
    return [(role, RUNTIME.split(text)[0].strip()) for role, text in said]


def _visible(answer: str) -> str:
    """The answer without its calls and its thoughts."""
    return re.sub(r"<think>.*?</think>", "", answer.partition("\n<tool_call>")[0], flags=re.DOTALL).strip()


def _text(content: Json) -> str:
    if isinstance(content, list):
        return "".join(str(part.get("text") or "") for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def _right(exchanges: list[Exchange], what: str) -> int:
    return sum(not any(each.startswith(f"{what}:") for each in one.wrong) for one in exchanges)


if __name__ == "__main__":
    main()
