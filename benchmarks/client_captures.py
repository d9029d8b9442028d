"""Recorded exchanges of real clients, replayed against the product's server: `python -m benchmarks.client_captures`.

`make test-clients` records them (tests/clients/fixtures); FIXTURES names another folder, ONLY one client. The engine
says again what was said then; the ids of turns and calls in later requests are those given out now. A reply that was
cancelled is cut where it was. RULES=off leaves out what is known of single clients. `make bench-captures` prints both.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

import aiohttp

from benchmarks.client_truth import Findings, Label, Made, found
from benchmarks.common import conditions, finish, progress
from benchmarks.http import bundled_model
from benchmarks.in_process import grammar_check, open_to_all, parts_around, served
from openclaw_rl.collect.clients.rules import AnyClient, ClientRules
from openclaw_rl.collect.stage import Collect, CollectSettings
from openclaw_rl.core.message import Json
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.sampling import Sampling
from openclaw_rl.core.turn import Arrival, Placement, Turn
from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.render.renderer import ChatRenderer
from openclaw_rl.render.template import read_template
from openclaw_rl.store.db import Store
from openclaw_rl.testing.engine import ScriptedEngine

SMALL_CONTEXT = 64  # tokens, for requests that were too long when they were recorded
LIMITS = {"/v1/messages": ("max_tokens",), "/v1/responses": ("max_output_tokens",)}
CHAT_LIMITS = ("max_tokens", "max_completion_tokens")


@dataclass(slots=True)
class Exchange:
    """One recorded exchange, and what came of it here."""

    label: Label
    path: str
    headers: dict[str, str]
    body: Json
    replies: list[str]
    tokens: list[int]  # that were sampled of each reply
    turns: list[str]
    status: int = 0
    refusal: str = ""
    made: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Recording:
    """All exchanges of one client."""

    client: str
    release: str
    exchanges: list[Exchange]


class Noting:
    """The product's collector; turns are noted as they are entered."""

    def __init__(self, collect: Collect) -> None:
        self._collect = collect
        self.turns: list[str] = []

    async def place(self, arrival: Arrival) -> Placement:
        """Where the request belongs."""
        return await self._collect.place(arrival)

    async def commit(self, turn: Turn) -> None:
        """Enters the turn."""
        await self._collect.commit(turn)
        self.turns.append(turn.id)


def main() -> None:
    """Prints the figures."""
    folder = Path(os.environ.get("FIXTURES") or Path(__file__).parents[1] / "tests" / "clients" / "fixtures")
    only, model = os.environ.get("ONLY", ""), bundled_model()
    assert model is not None
    paths = [path for path in sorted(folder.glob("*.jsonl.gz")) if path.name.startswith(only)]
    clients = (AnyClient(),) if os.environ.get("RULES") == "off" else None
    figures = asyncio.run(replayed(paths, model, clients=clients))
    figures["conditions"] = conditions(
        "bundled tokenizer and template, scripted answers", threads=1, seeds=[], repeats=1
    )
    finish(figures)


def read(path: Path) -> Recording:
    """The recording a file holds."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        head, *lines = (json.loads(line) for line in file)
    named = {each.name for each in fields(Label)}
    exchanges = [
        Exchange(
            Label(**{name: value for name, value in held.items() if name in named}),
            held["path"],
            held["headers"],
            _resolved(held["body"], head["shared"]),
            held["replies"],
            held["tokens"],
            held["turns"],
        )
        for held in lines
    ]
    return Recording(head["client"], head["release"], exchanges)


async def replayed(
    paths: Sequence[Path], model: Path, *, clients: Sequence[ClientRules] | None = None
) -> dict[str, object]:
    """What came out, each recording in a store of its own; `clients` are the rules, by default the product's."""
    renderer = ChatRenderer(read_template(model))
    by_client: dict[str, dict[str, int]] = {}
    for path in paths:
        recording = read(path)
        with tempfile.TemporaryDirectory() as home:
            made = await _replay(recording.exchanges, renderer, Path(home), clients)
        labels = [each.label for each in recording.exchanges]
        findings = found(labels, made)
        counts = _counts(recording.exchanges, findings)
        by_client[f"{recording.client} {recording.release}"] = counts
        for name, items in _wrong(recording.exchanges, findings).items():
            for item in items:
                progress(f"{recording.client}, {name}: {item}")
    names = next(iter(by_client.values()), {})
    totals = {name: sum(counts[name] for counts in by_client.values()) for name in names}
    return {"clients": len(by_client), **totals, "by_client": by_client}


def _counts(exchanges: list[Exchange], findings: Findings) -> dict[str, int]:
    return {
        "exchanges": len(exchanges),
        "kinds": findings.kinds,
        "kinds_right": findings.kinds - len(findings.kinds_wrong),
        "program_words_taken": len(findings.words),
        "links": findings.links,
        "links_wrong": len(findings.links_wrong),
        "links_missed": len(findings.links_missed),
        "next_states": findings.next_states,
        "next_states_wrong": len(findings.next_states_wrong),
        "refused": len(_refused(exchanges)),
    }


def _wrong(exchanges: list[Exchange], findings: Findings) -> dict[str, list[str]]:
    return {
        "kind": findings.kinds_wrong,
        "a program's words": findings.words,
        "link wrong": findings.links_wrong,
        "link missed": findings.links_missed,
        "next state": findings.next_states_wrong,
        "refused": [f"{each.label.at}: {each.status} {each.refusal[:160]}" for each in _refused(exchanges)],
    }


def _refused(exchanges: list[Exchange]) -> list[Exchange]:
    return [each for each in exchanges if each.status != 200 and not each.label.is_too_long]


async def _replay(
    exchanges: list[Exchange], renderer: ChatRenderer, home: Path, clients: Sequence[ClientRules] | None
) -> dict[int, Made]:
    """Sends the recordings one after the other, then reads what the store made of them."""
    eos = renderer.template.eos_ids()
    says: list[str] = []

    def script(prompt: Prompt, sampling: Sampling, version: PolicyVersion) -> tuple[int, ...]:
        return (*renderer.encode(says.pop(0) if len(says) > 1 else says[0]), eos[0])

    store = await Store.open(home)
    collect = Collect(store, CollectSettings(), lambda: 0.0, clients=clients)
    noting = Noting(collect)
    parts = replace(
        open_to_all(parts_around(store, renderer, ScriptedEngine(script), collect)),
        collector=noting,
        check_grammar=grammar_check(renderer),
    )
    ids: dict[str, str] = {}
    try:
        async with (
            served(parts) as large,
            served(replace(parts, context_length=SMALL_CONTEXT)) as small,
            aiohttp.ClientSession() as http,
        ):
            for each in exchanges:
                says[:] = each.replies or ["ok"]
                before = len(noting.turns)
                await _send(http, small if each.label.is_too_long else large, each, ids)
                each.made = noting.turns[before:]
                ids.update(zip(each.turns, each.made, strict=False))
        return await _made(store, exchanges)
    finally:
        await store.aclose()


async def _send(http: aiohttp.ClientSession, url: str, each: Exchange, ids: Mapping[str, str]) -> None:
    text = json.dumps(_cut(each), ensure_ascii=False)
    for old, new in ids.items():
        text = text.replace(old, new).replace(f"call_{old[-12:]}", f"call_{new[-12:]}")
    headers = {**each.headers, "content-type": "application/json"}
    async with http.post(url + each.path, data=text.encode("utf-8", "surrogatepass"), headers=headers) as answer:
        each.status = answer.status
        each.refusal = await answer.text() if answer.status != 200 else ""
        await answer.read()


def _cut(each: Exchange) -> Json:
    """The body; of a reply that was cancelled no more is sampled than then."""
    if not each.label.was_cut or not each.tokens or not isinstance(each.body, dict):
        return each.body
    path = each.path.partition("?")[0]
    limits = LIMITS.get(path, CHAT_LIMITS)
    named = [name for name in limits if name in each.body] or [limits[0]]
    return {**each.body, **{name: max(1, each.tokens[0]) for name in named}}


async def _made(store: Store, exchanges: list[Exchange]) -> dict[int, Made]:
    made = {}
    for each in exchanges:
        row = await store.row(each.made[0]) if each.made else None
        if row is None:
            continue
        heard = None if row.next_state is None else row.next_state.messages
        made[each.label.at] = Made(
            row.turn.id,
            row.turn.session,
            row.turn.kind.value,
            row.turn.why,
            row.turn.parent,
            None if heard is None else tuple((item.role.value, item.text) for item in heard),
        )
    return made


def _resolved(value: Json, shared: Mapping[str, Json]) -> Json:
    """The value with what is kept once in its places."""
    if isinstance(value, dict):
        if set(value) == {"$"}:
            return _resolved(shared[str(value["$"])], shared)
        return {name: _resolved(item, shared) for name, item in value.items()}
    return [_resolved(item, shared) for item in value] if isinstance(value, list) else value


if __name__ == "__main__":
    main()
