"""Made-up exchanges of many clients, sent to the product's own server, and what became of each.

An exchange says by construction what it is: `kind` (main or side, with the `errand`), `session`, the `words` its owner
typed since the last reply, and which exchange's reply it `answers`. Ids of calls and responses are made of turn ids, so
those of then are exchanged for those of now. The product's rules are not asked what is right.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import aiohttp

from benchmarks.in_process import open_to_all, parts_around, served
from openclaw_rl.collect.clients.rules import ClientRules
from openclaw_rl.collect.stage import Collect, CollectSettings
from openclaw_rl.core.ledger import DropReason
from openclaw_rl.core.message import Json, Role
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.sampling import Sampling
from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.render.renderer import ChatRenderer
from openclaw_rl.render.template import read_template
from openclaw_rl.store.db import Store
from openclaw_rl.store.rows import TurnRow
from openclaw_rl.testing.engine import ScriptedEngine

HOP = ("host", "content-length", "connection", "accept-encoding", "transfer-encoding", "authorization", "x-api-key")
TEACHES_NOTHING = (DropReason.LOOP, DropReason.CUT_BY_LENGTH, DropReason.EMPTY, DropReason.CANCELLED)
CALL_DIGITS = 12  # of a turn's id, in the ids of its calls


@dataclass(slots=True)
class Labelled:
    """One exchange, what it is, and what became of it here."""

    client: str
    at: int
    session: str
    kind: str
    errand: str | None
    words: list[str]
    answers: int | None
    path: str
    headers: dict[str, str]
    body: dict[str, Json]
    reply: str
    turns: list[str]
    has_results: bool = False
    after_summary: bool = False
    status: int = 0
    said: str = ""
    row: TurnRow | None = None
    wrong: list[str] = field(default_factory=list)

    @property
    def is_main(self) -> bool:
        """Whether it is the owner's."""
        return self.kind == "main"


@dataclass(slots=True)
class Tally:
    """What came out over many exchanges."""

    exchanges: int = 0
    kinds_right: int = 0
    programs_words: int = 0
    links_due: int = 0
    links_missed: int = 0
    links_wrong: int = 0
    next_due: int = 0
    next_right: int = 0
    refused: int = 0

    def figures(self) -> dict[str, object]:
        """Counts, and shares of what was due."""
        counts: dict[str, object] = {name: getattr(self, name) for name in self.__slots__}
        counts["kinds_right_share"] = _share(self.kinds_right, self.exchanges - self.refused)
        counts["links_missed_share"] = _share(self.links_missed, self.links_due)
        counts["next_right_share"] = _share(self.next_right, self.next_due)
        return counts


async def replay(
    exchanges: Sequence[Labelled], model: Path, home: Path, *, clients: Sequence[ClientRules] | None = None
) -> None:
    """Sends them in their order, then reads what the store made of them."""
    now: dict[str, dict[str, str]] = {}
    async with replaying(model, home, clients=clients) as (url, store, says):
        async with aiohttp.ClientSession() as http:
            for each in exchanges:
                says[0] = each.reply
                await _send(http, url, each, now.setdefault(each.session, {}))
        for each in exchanges:
            turn = now.get(each.session, {}).get(each.turns[0]) if each.turns else None
            each.row = None if turn is None else await store.row(turn)


@asynccontextmanager
async def replaying(
    model: Path, home: Path, *, clients: Sequence[ClientRules] | None = None
) -> AsyncIterator[tuple[str, Store, list[str]]]:
    """The product's server around a scripted engine: its address, its store, and a list of the one reply it gives."""
    renderer = ChatRenderer(read_template(model))
    says = [""]

    def script(prompt: Prompt, sampling: Sampling, version: PolicyVersion) -> tuple[int, ...]:
        return (*renderer.encode(says[0]), renderer.template.eos_ids()[0])

    store = await Store.open(home)
    collect = Collect(store, CollectSettings(), lambda: 0.0, clients=clients)
    parts = open_to_all(parts_around(store, renderer, ScriptedEngine(script), collect))
    try:
        async with served(replace(parts, models=("qwen3-4b",))) as url:
            yield url, store, says
    finally:
        await store.aclose()


def measured(exchanges: Sequence[Labelled]) -> Tally:
    """What came out right, by the labels; notes on each exchange what did not."""
    tally = Tally()
    by_place = {each.at: each for each in exchanges}
    by_turn = {each.row.turn.id: each for each in exchanges if each.row is not None}
    whose: dict[str, str] = {}
    for each in exchanges:
        tally.exchanges += 1
        if each.row is None:
            tally.refused += 1
            each.wrong.append(f"refused: {each.status} {each.said[:200]}")
            continue
        turn = each.row.turn
        if turn.kind.value == each.kind:
            tally.kinds_right += 1
        else:
            each.wrong.append(f"kind: {turn.kind.value}, not {each.kind} ({turn.why})")
        if each.is_main:
            _links(each, by_place, by_turn, whose, tally)
        _followed(each, exchanges, tally)
    return tally


def _links(
    each: Labelled, by_place: dict[int, Labelled], by_turn: dict[str, Labelled], whose: dict[str, str], tally: Tally
) -> None:
    assert each.row is not None
    turn = each.row.turn
    owner = whose.setdefault(turn.session, each.session)
    if owner != each.session:
        tally.links_wrong += 1
        each.wrong.append(f"link: in the session of {owner} ({turn.why})")
    parent = by_turn.get(turn.parent) if turn.parent else None
    due = by_place.get(each.answers) if each.answers is not None else None
    if parent is not None and parent.session != each.session:
        tally.links_wrong += 1
        each.wrong.append(f"link: to {parent.session}/{parent.at} ({turn.why})")
    elif parent is not None and parent.is_main and parent.at not in _path(each, by_place):
        tally.links_wrong += 1
        each.wrong.append(f"link: to {parent.at}, not {each.answers} ({turn.why})")
    if due is None or due.row is None or not (each.after_summary or _keeps(each, due)):
        return
    tally.links_due += 1
    is_kept = due.row.turn.session == turn.session if each.after_summary else parent is due
    if not is_kept:
        tally.links_missed += 1
        each.wrong.append(f"link: none to {due.at} ({turn.why})")


def _path(each: Labelled, by_place: dict[int, Labelled]) -> set[int]:
    """The exchanges it may go on from: the one it answers, all before a summary."""
    found: set[int] = set()
    at = each.answers
    while at is not None:
        found.add(at)
        is_gone = each.after_summary or not _keeps(each, by_place[at])
        at = by_place[at].answers if is_gone else None
    return found


def _keeps(each: Labelled, due: Labelled) -> bool:
    """Whether the client kept this reply: one that it dropped (a call it could not read, say) need not be linked."""
    held = json.dumps(each.body, ensure_ascii=False)
    beginning = due.reply.partition("<tool_call>")[0].strip()[:24]
    calls = [turn[-CALL_DIGITS:] for turn in due.turns if turn[-CALL_DIGITS:] in held]
    return bool(calls) or "previous_response_id" in each.body or (bool(beginning) and _quoted(beginning) in held)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _followed(each: Labelled, exchanges: Sequence[Labelled], tally: Tally) -> None:
    """Whether its next state is what its owner typed and what tools gave back, and nothing of a program's."""
    assert each.row is not None
    heard = each.row.next_state
    said = [item.text for item in heard.messages if item.role is Role.USER] if heard is not None else []
    later = [other for other in exchanges if other.is_main and other.session == each.session and other.at > each.at]
    typed = [text for other in later for text in other.words]
    left = " ".join(said)
    for text in sorted(typed, key=len, reverse=True):
        left = left.replace(text, "")
    if "".join(left.split()):
        tally.programs_words += 1
        each.wrong.append(f"a program's words: {left[:200]!r}")
    if not each.is_main:
        return
    after = next((other for other in later if other.answers == each.at), None)
    if after is None or after.row is None or after.after_summary or not _keeps(after, each):
        return
    if each.row.reason in TEACHES_NOTHING:  # whatever follows
        return
    tally.next_due += 1
    words = _plain(" ".join(after.words))
    has_tools = heard is not None and any(item.role is Role.TOOL for item in heard.messages)
    is_told = has_tools == after.has_results or (has_tools and not words)  # results come in a user's place too
    if _plain(" ".join(said)) == words and is_told:
        tally.next_right += 1
    else:
        each.wrong.append(f"next state: {said} tools={has_tools}, not {after.words} tools={after.has_results}")


async def _send(http: aiohttp.ClientSession, url: str, each: Labelled, now: dict[str, str]) -> None:
    text = json.dumps(each.body)
    for then, turn in now.items():
        text = text.replace(then, turn).replace(f"call_{then[-CALL_DIGITS:]}", f"call_{turn[-CALL_DIGITS:]}")
        text = text.replace(f"call{then[-CALL_DIGITS:]}", f"call{turn[-CALL_DIGITS:]}")
    headers = {name: value for name, value in each.headers.items() if name.lower() not in HOP}
    headers["content-type"] = "application/json"
    async with http.post(f"{url}{each.path}", data=text.encode(), headers=headers) as answer:
        each.status, each.said = answer.status, await answer.text()
        turns = answer.headers.get("x-openclaw-rl-turn", "")
    if each.status == 200 and turns:
        now |= dict(zip(each.turns, turns.split(","), strict=False))


def _plain(text: str) -> str:
    return " ".join(text.split())


def _share(part: int, whole: int) -> float | None:
    return round(part / whole, 4) if whole else None
