"""Exact tokens: what was recorded while serving, against what transformers and peft compute for the same ids.

Conversations with tools, thinking, several turns and non-ASCII text go through the product's own server over HTTP, in
this process, with its engine in a child, its collector and its store; halfway another version is put live. Then the
stored turns are read back, and every one is computed again.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import tempfile
import time
import warnings
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean

import aiohttp
import torch
from aiohttp import web
from peft import PeftModel
from transformers import AutoModelForCausalLM

from benchmarks.common import Figures, conditions, finish, is_quick, make_model, progress
from benchmarks.http import bundled_model
from benchmarks.in_process import parts_around, served
from benchmarks.recompute import make_adapter
from benchmarks.talks import Talk, stand_in_tokenizer, talks
from openclaw_rl.collect.stage import Collect, CollectSettings
from openclaw_rl.core.adapter import Adapter
from openclaw_rl.core.turn import Turn
from openclaw_rl.core.version import BASE, PolicyVersion
from openclaw_rl.engines.local.client import LocalEngine
from openclaw_rl.engines.settings import EngineSettings
from openclaw_rl.render.renderer import ChatRenderer
from openclaw_rl.render.template import read_template
from openclaw_rl.serve.door.auth import Keys
from openclaw_rl.store.db import Store

PLAIN_GAP = 1e-2  # nats; more than this is no rounding in fp32 but another number
AT_ONCE = 4
PAGE = 200


@dataclass(slots=True)
class Record:
    """What was served, as it stands in the store, and how prompts were made."""

    turns: list[Turn] = field(default_factory=list)
    prompts: dict[str, int] = field(default_factory=dict)


def main() -> None:
    """Prints the figures."""
    torch.set_num_threads(1)
    seeds = [0] if is_quick() else [0, 1, 2]
    with tempfile.TemporaryDirectory() as place:
        model = bundled_model()
        name = "bundled" if model is not None else "random Qwen3, 4 layers, hidden 256; tokenizer trained on the spot"
        if model is None:
            model = stand_in_tokenizer(make_model(Path(place) / "model"))
        adapter = make_adapter(model, Path(place) / "adapter", 1)
        asked = [talk for seed in seeds for talk in talks(seed)]
        progress(f"{len(asked)} conversations on the {name} model")
        home = Path(place) / "home"
        home.mkdir()
        record = asyncio.run(serve(model, adapter, asked, home))
        progress(f"{len(record.turns)} turns stored; each is computed again by transformers and peft alone")
        figures = judged(record, model, adapter)
    figures["conditions"] = conditions(name, threads=1, seeds=seeds, repeats=1)
    finish(figures)


async def serve(model: Path, adapter: Adapter, asked: list[Talk], home: Path) -> Record:
    """Runs the conversations, the first half on the base model and the rest on the adapter, and reads the store."""
    current = [BASE]
    engine = await LocalEngine.start(EngineSettings(model=str(model), device="cpu", dtype="float32", threads=1))
    store = await Store.open(home)
    renderer = ChatRenderer(read_template(model))
    try:
        async with listening(engine, store, renderer, current) as url:
            half = len(asked) // 2
            await _run(url, asked[:half])
            await engine.load(adapter)
            await asyncio.gather(_run(url, asked[half:]), _later(current, adapter.version))
        turns: list[Turn] = []
        before: str | None = None
        while rows := await store.rows(limit=PAGE, before=before):
            turns += [row.turn for row in rows]
            before = rows[-1].turn.id
        return Record(turns[::-1], dict(renderer.stats))
    finally:
        await store.aclose()
        await engine.aclose()


@contextlib.asynccontextmanager
async def listening(
    engine: LocalEngine, store: Store, renderer: ChatRenderer, current: list[PolicyVersion]
) -> AsyncIterator[str]:
    """The server's address."""
    parts = parts_around(store, renderer, engine, Collect(store, CollectSettings(), time.time))
    ends = tuple(dict.fromkeys((*engine.info.eos_ids, *renderer.template.eos_ids())))
    parts = replace(parts, models=("bench",), context_length=engine.info.context_length, eos_ids=ends, keys=Keys({}))
    async with served(replace(parts, current=lambda user: current[0])) as url:
        yield url


async def _later(current: list[PolicyVersion], version: PolicyVersion) -> None:
    """The version goes live while conversations are under way, some requests of which end on the one before."""
    await asyncio.sleep(0.2)
    current[0] = version


async def _run(url: str, asked: list[Talk]) -> None:
    places = asyncio.Semaphore(AT_ONCE)

    async def one(talk: Talk, http: aiohttp.ClientSession) -> None:
        async with places:
            await _talk(talk, http)

    async with aiohttp.ClientSession(url) as http, asyncio.TaskGroup() as group:
        for talk in asked:
            group.create_task(one(talk, http))


async def _talk(talk: Talk, http: aiohttp.ClientSession) -> None:
    """One conversation; what the model says is sent back the way clients do."""
    while (body := talk.request()) is not None:
        async with http.post("/v1/chat/completions", json=body, headers={"X-Session-Id": talk.name}) as answer:
            text = await answer.text()
            if answer.status != web.HTTPOk.status_code:
                raise RuntimeError(f"{answer.status}: {text[:300]}")
        talk.answer(json.loads(text)["choices"][0])


def judged(record: Record, model: Path, adapter: Adapter) -> Figures:
    """The figures of a record."""
    gaps: list[float] = []
    mismatches = 0
    for version in sorted({turn.completion.version for turn in record.turns}):
        turns = [turn for turn in record.turns if turn.completion.version == version and turn.completion.tokens]
        pairs = [(turn.prompt.tokens, turn.completion.tokens) for turn in turns]
        again = _logp_of(model, None if version.is_base else adapter, pairs)
        for turn, values in zip(turns, again, strict=True):
            own = [abs(told - found) for told, found in zip(turn.completion.logp, values, strict=True)]
            gaps += own
            mismatches += max(own) > PLAIN_GAP
    by_id = {turn.id: turn for turn in record.turns}
    goes_on = [(turn, by_id[turn.parent]) for turn in record.turns if turn.parent is not None]
    exact = [turn for turn, parent in goes_on if _keeps_all(turn, parent)]
    mismatches += sum(turn.prompt.continued != _shared(turn, parent) for turn, parent in goes_on)
    progress(f"prompts: {record.prompts}")
    return {
        "logp_gap_mean": fmean(gaps) if gaps else None,
        "logp_gap_max": max(gaps, default=None),
        "turns": len(record.turns),
        "continued_exactly_share": len(exact) / len(goes_on) if goes_on else None,
        "silent_mismatches": mismatches,
        "turns_that_go_on": len(goes_on),
        "tokens": len(gaps),
        "versions": sorted({str(turn.completion.version) for turn in record.turns}),
        "finishes": {name: sum(turn.completion.finish == name for turn in record.turns) for name in ("stop", "length")},
        "with_tool_calls": sum(bool(turn.reply.tool_calls) for turn in record.turns),
        "with_reasoning": sum(turn.reply.reasoning is not None for turn in record.turns),
    }


def _logp_of(
    model: Path, adapter: Adapter | None, pairs: list[tuple[tuple[int, ...], tuple[int, ...]]]
) -> list[list[float]]:
    """Log-probabilities of each answer behind its prompt, one plain forward each."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        alone = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
        if adapter is not None:
            alone = PeftModel.from_pretrained(alone, str(adapter.folder))
    found: list[list[float]] = []
    for prompt, sampled in pairs:
        with torch.inference_mode():
            logits = alone(input_ids=torch.tensor([prompt + sampled])).logits[0, len(prompt) - 1 : -1]
        logp = torch.log_softmax(logits.float(), -1).gather(1, torch.tensor(sampled)[:, None])[:, 0]
        found.append(logp.tolist())
    return found


def _keeps_all(turn: Turn, parent: Turn) -> bool:
    served = parent.prompt.tokens + parent.completion.tokens
    return turn.prompt.tokens[: len(served)] == served


def _shared(turn: Turn, parent: Turn) -> int:
    served = parent.prompt.tokens + parent.completion.tokens
    count = 0
    for ours, theirs in zip(turn.prompt.tokens, served, strict=False):
        if ours != theirs:
            break
        count += 1
    return count


if __name__ == "__main__":
    main()
