"""The server that `benchmarks.soak` loads: `python -m benchmarks.soak_server HOME`.

The product as it runs, every stage and the store on disk; only the engine, the judge and the trainer are scripted: they
answer at once and learn nothing. Versions are made, tried for damage and swapped all the while. The first line on
standard output is the port; the end of standard input, or SIGTERM, ends it in order. TRACE=1 tells at the end what
memory was allocated after the first tenth.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import struct
import sys
import tracemalloc
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from benchmarks.http import KEY, bundled_model
from openclaw_rl.collect.stage import CollectSettings
from openclaw_rl.config import Config
from openclaw_rl.core.adapter import CONFIG, WEIGHTS, Adapter, StepReport, digest_of_folder
from openclaw_rl.core.completion import SampledToken, Scores
from openclaw_rl.core.engine import EngineInfo, EngineStats
from openclaw_rl.core.next_state import NextState
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.sample import Sample
from openclaw_rl.core.sampling import Sampling
from openclaw_rl.core.turn import Turn
from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.home.address import taken
from openclaw_rl.publish.settings import PublishSettings
from openclaw_rl.render.renderer import ChatRenderer
from openclaw_rl.render.template import read_template
from openclaw_rl.runtime.installation import Installation, SharedParts, assembled
from openclaw_rl.runtime.listening import listening
from openclaw_rl.runtime.serving import giving_back
from openclaw_rl.serve.settings import ServeSettings
from openclaw_rl.store.db import Store
from openclaw_rl.testing.engine import ScriptedEngine
from openclaw_rl.testing.judge import Opinion, ScriptedJudge

CONTEXT = 2_000_000
LONG = 1000  # tokens; whoever allows an answer more gets all of them
WORDS = "The first part is worked out from the numbers. Then the second part follows, and the answer stands below.\n"
# Small bounds, so that a run of minutes fills what months would: caches in memory, open sessions, connections.
KNOWN_CONVERSATIONS, HELD_TOKENS, SESSION_IDLE_S, KEEPALIVE_S, STALLED_S = 4_000, 200_000, 240.0, 10.0, 3.0
WEIGHTS_BYTES = b'{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'


def main() -> None:
    """Serves until standard input ends."""
    home = Path(sys.argv[1])
    home.mkdir(parents=True, exist_ok=True)
    asyncio.run(_serve(home))


async def _serve(home: Path) -> None:
    parts, store = await _parts(home)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    tracing = loop.create_task(_traced(parts)) if os.environ.get("TRACE") else None
    try:
        await parts.publishing.start()
        async with (
            taken(parts.config.serve) as place,
            listening(parts, place, learns=True) as url,
            asyncio.TaskGroup() as group,
        ):
            behind = [group.create_task(parts.collect.run()), group.create_task(parts.learning.run())]
            behind.append(group.create_task(giving_back()))
            print(url.rpartition(":")[2], flush=True)
            await stop.wait()
            parts.activity.stop()
            for task in behind:
                task.cancel()
    finally:
        if tracing is not None:
            tracing.cancel()
            await asyncio.gather(tracing, return_exceptions=True)
        await store.aclose()


async def _parts(home: Path) -> tuple[Installation, Store]:
    model = bundled_model()
    assert model is not None
    config = Config(
        home=home,
        serve=ServeSettings(port=0, api_key=KEY, keepalive_s=KEEPALIVE_S, stalled_s=STALLED_S, max_buffer_bytes=65536),
        collect=CollectSettings(
            session_idle_s=SESSION_IDLE_S,
            sweep_s=5.0,
            known_conversations=KNOWN_CONVERSATIONS,
            held_tokens=HELD_TOKENS,
        ),
        publish=PublishSettings(gate=False),
    )
    renderer = ChatRenderer(read_template(model))
    store = await Store.open(home)
    engine = SoakEngine(renderer)
    built = SharedParts(store, renderer, engine, SoakTrainer(), _judge())  # type: ignore[arg-type]
    return assembled(config, model, KEY, built), store


def _judge() -> ScriptedJudge:
    """Four of ten next states are progress, two a correction with a hint; the others say nothing."""
    seen = count()

    def opinion(turn: Turn, next_state: NextState) -> Opinion:
        judge.judged.clear()  # nobody looks at it
        kind = next(seen) % 10
        return 1 if kind < 4 else (-1, f"Answer number {next(seen)} in plain words, please.") if kind < 6 else 0

    judge = ScriptedJudge(opinion)
    return judge


class SoakEngine:
    """A scripted engine with what the installation asks of a real one; no two answers are the same."""

    def __init__(self, renderer: ChatRenderer) -> None:
        self._renderer = renderer
        self._story = renderer.encode(WORDS) * 400
        self._eos = renderer.template.eos_ids()
        self._count = count(1)
        self._engine = ScriptedEngine(self._script)
        self.info = EngineInfo(
            "soak",
            "scripted",
            0,
            renderer.template.tokenizer.get_vocab_size(),
            CONTEXT,
            self._eos,
            "none",
            "none",
            0,
            (),
        )

    async def generate(
        self, prompt: Prompt, sampling: Sampling, version: PolicyVersion
    ) -> AsyncGenerator[SampledToken, None]:
        """The scripted answer."""
        stream = self._engine.generate(prompt, sampling, version)
        try:
            async for token in stream:
                yield token
        finally:
            await stream.aclose()

    async def score(self, prompt: Prompt, *, start: int, version: PolicyVersion, top_k: int = 0) -> Scores:
        """The same for every id."""
        scores = await self._engine.score(prompt, start=start, version=version, top_k=top_k)
        self._engine.scored.clear()  # nobody looks at them, and they hold prompts
        return scores

    async def load(self, adapter: Adapter) -> None:
        """The version can be asked for."""
        await self._engine.load(adapter)

    async def unload(self, version: PolicyVersion) -> None:
        """It cannot, once nothing runs on it."""
        await self._engine.unload(version)

    async def stats(self) -> EngineStats:
        """Nothing to tell."""
        return EngineStats(0, 0, 0, 0, 0, 0, 0, 0.0, 0.0)

    def _script(self, prompt: Prompt, sampling: Sampling, version: PolicyVersion) -> Sequence[int]:
        self._engine.asked.clear()  # nobody looks at them, and they hold prompts
        self._engine.closed.clear()
        if sampling.max_tokens > LONG:
            return self._story[: sampling.max_tokens]
        number = next(self._count)
        return (*self._renderer.encode(f"Answer {number}. " + WORDS * (number % 3)), self._eos[0])


@dataclass(slots=True)
class SoakTrainer:
    """Takes every step at once and writes files of a few bytes."""

    steps: int = 0
    last: dict[str, float] = field(default_factory=dict)
    progress: None = None  # a step is over at once

    async def step(
        self, samples: Sequence[Sample], *, resume: Path | None, under: Path | None = None, gentleness: int = 0
    ) -> StepReport:
        """A step that teaches nothing."""
        self.steps += 1
        return StepReport(took_step=True, metrics={"train_samples": float(len(samples))})

    async def prepare(self) -> None:
        """Nothing to do."""

    async def rebase(self, *, resume: Path, under: Path | None) -> None:
        """Nothing to do."""

    async def export(self, folder: Path, version: PolicyVersion) -> Adapter:
        """A whole adapter of one number."""
        return await asyncio.to_thread(self._written, folder, version)

    async def aclose(self) -> None:
        """Nothing is held."""

    def _written(self, folder: Path, version: PolicyVersion) -> Adapter:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / CONFIG).write_text(json.dumps({"peft_type": "LORA", "version": str(version)}), "utf-8")
        body = struct.pack("<Q", len(WEIGHTS_BYTES)) + WEIGHTS_BYTES + struct.pack("<f", self.steps)
        (folder / WEIGHTS).write_bytes(body)
        return Adapter(folder, digest_of_folder(folder), version)


async def _traced(parts: Installation) -> None:
    """What memory was allocated between the first look and the last, by line."""
    tracemalloc.start(8)
    try:
        enough = False
        while not enough:
            await asyncio.sleep(0.5)
            enough = parts.collect.tally.main >= int(os.environ["TRACE"])
        gc.collect()
        before = tracemalloc.take_snapshot()
        await asyncio.sleep(3600)
    finally:
        gc.collect()
        for line in tracemalloc.take_snapshot().compare_to(before, "traceback")[:12]:
            print(
                f"{line.size_diff / 1024:+.0f} KiB {line.count_diff:+d}",
                *line.traceback.format(),
                sep="\n",
                file=sys.stderr,
            )


if __name__ == "__main__":
    main()
