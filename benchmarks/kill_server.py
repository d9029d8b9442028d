"""What `benchmarks.kills` kills: `python -m benchmarks.kill_server`, told on standard input which folders to serve.

Everything is loaded once; each `HOME` on a line of its own is then served by a child that is forked off, so that a
thousand starts are a thousand starts of the loop and not of the interpreter. A child is the product's server,
collector, store, judging, training and publishing stages on a real folder. Only the engine, the judge and what the
trainer computes are scripted; its versions are written to disk as a trainer writes them. A child says that it is there
(`forked PID`), that it listens (`listening PORT SECONDS`, counted from the fork) or cannot, for a reason it can name
(`refused KIND`); that it is gone (`gone STATUS`) says who forked it. SIGUSR1 has either write its threads' stacks.
"""

from __future__ import annotations

import asyncio
import faulthandler
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from aiohttp import web

from benchmarks.http import bundled_model
from benchmarks.in_process import parts_around
from openclaw_rl.collect.stage import Collect, CollectSettings
from openclaw_rl.core.adapter import CONFIG, WEIGHTS, Adapter, StepReport, digest_of_folder
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.sample import Sample, Wants
from openclaw_rl.core.sampling import Sampling
from openclaw_rl.core.version import SHARED, PolicyVersion
from openclaw_rl.errors import OpenClawRLError
from openclaw_rl.judge.settings import JudgeSettings
from openclaw_rl.judge.stage import JudgeStage
from openclaw_rl.publish.gate import Gate
from openclaw_rl.publish.settings import PublishSettings
from openclaw_rl.publish.stage import PublishStage
from openclaw_rl.publish.swap import ServedVersions
from openclaw_rl.render.renderer import ChatRenderer
from openclaw_rl.render.template import read_template
from openclaw_rl.serve.app import build_app, runner_of
from openclaw_rl.serve.parts import ServeParts
from openclaw_rl.store.db import Store
from openclaw_rl.teach.rules import LearningRules
from openclaw_rl.teach.settings import TeachSettings
from openclaw_rl.teach.stage import TeachStage
from openclaw_rl.testing.engine import ScriptedEngine
from openclaw_rl.testing.judge import ScriptedJudge
from openclaw_rl.train.settings import TrainSettings
from openclaw_rl.train.stage import TrainStage

TRAIN = TrainSettings(batch_size=4, min_batch=1, max_wait_s=0.05, max_lag=1000)
STEP_S = 0.005
GAP_S = 0.001


class WritingTrainer:
    """A trainer whose steps take a moment and whose versions are real folders."""

    progress: None = None  # a step is over in a moment

    def __init__(self) -> None:
        self._turns: tuple[str, ...] = ()

    async def step(
        self, samples: Sequence[Sample], *, resume: Path | None, under: Path | None = None, gentleness: int = 0
    ) -> StepReport:
        """Takes the step."""
        await asyncio.sleep(STEP_S)
        self._turns = tuple(sample.turn for sample in samples)
        return StepReport(took_step=True, metrics={"train_samples": float(len(samples))})

    async def prepare(self) -> None:
        """Nothing to do."""

    async def rebase(self, *, resume: Path, under: Path | None) -> None:
        """Never asked: there is one scope."""
        raise NotImplementedError

    async def export(self, folder: Path, version: PolicyVersion) -> Adapter:
        """Writes an adapter that tells what it was made of."""
        return await asyncio.to_thread(self._write, folder, version)

    async def aclose(self) -> None:
        """Nothing is held."""

    def _write(self, folder: Path, version: PolicyVersion) -> Adapter:
        header = json.dumps({"w": {"dtype": "U8", "shape": [64], "data_offsets": [0, 64]}}).encode()
        (folder / CONFIG).write_text(json.dumps({"peft_type": "LORA", "turns": self._turns}), "utf-8")
        (folder / WEIGHTS).write_bytes(len(header).to_bytes(8, "little") + header + bytes(64))
        return Adapter(folder, digest_of_folder(folder), version)


def main() -> None:
    """Forks a child for each line until standard input ends."""
    model = bundled_model()
    assert model is not None
    renderer = ChatRenderer(read_template(model))
    faulthandler.register(signal.SIGUSR1)
    for line in sys.stdin:
        begin = time.monotonic()
        pid = os.fork()
        if pid == 0:
            _tell(f"forked {os.getpid()}")  # the child itself: whoever forks it may not run before it has started
            try:
                asyncio.run(_serve(Path(line.strip()), renderer, begin))
            except OpenClawRLError as problem:
                print(problem, file=sys.stderr, flush=True)
                _tell(f"refused {type(problem).__name__}")
                os._exit(1)
            except BaseException:
                traceback.print_exc()
            os._exit(70)
        _tell(f"gone {os.waitpid(pid, 0)[1]}")


def _tell(line: str) -> None:
    """In one write, which a pipe takes whole or not at all: `print` may make two of it, and a kill may come between."""
    os.write(1, f"{line}\n".encode())


async def _serve(home: Path, renderer: ChatRenderer, begin: float) -> None:
    # nothing more is said to this process while a child of it runs: what can be read is that whoever spoke is gone
    asyncio.get_running_loop().add_reader(0, os._exit, 0)
    store = await Store.open(home)
    engine = scripted_engine(renderer)
    served = ServedVersions(store, engine)
    publishing, teaching, training = _learning(store, engine, renderer, served, home)
    await publishing.start()
    collect = Collect(store, CollectSettings(session_idle_s=5.0, sweep_s=0.5), time.time)
    judge = ScriptedJudge(lambda turn, state: (-1, "Write it in plain sentences.") if "no" in state.text else 1)
    judging = JudgeStage(store, judge, JudgeSettings())
    runner = runner_of(build_app(serve_parts(store, renderer, engine, collect, served)))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    _tell(f"listening {runner.addresses[0][1]} {time.monotonic() - begin:.4f}")
    async with asyncio.TaskGroup() as group:
        for stage in (collect.run(), judging.run(), teaching.run(), training.run(), publishing.run()):
            group.create_task(stage)


def scripted_engine(renderer: ChatRenderer) -> ScriptedEngine:
    """An engine that answers each prompt with a sentence of its own."""

    def script(prompt: Prompt, sampling: Sampling, version: PolicyVersion) -> tuple[int, ...]:
        engine.asked.clear()
        mark = sum(prompt.tokens) % 997
        return (*renderer.encode(f"That is {mark} and {mark + 7}."), *renderer.template.eos_ids()[:1])

    engine = ScriptedEngine(script, gap_s=GAP_S)
    return engine


def _learning(
    store: Store, engine: ScriptedEngine, renderer: ChatRenderer, served: ServedVersions, home: Path
) -> tuple[PublishStage, TeachStage, TrainStage]:
    wants = Wants.of(rl=1.0, hints=1.0)
    made, settled = asyncio.Event(), asyncio.Event()
    settings = PublishSettings(gate=False)
    gate = Gate(store, engine, renderer, renderer.template.eos_ids(), settings)
    publishing = PublishStage(store, served, gate, settings, candidate_made=made, version_settled=settled)
    teaching = TeachStage(store, renderer, TeachSettings(), LearningRules(wants))
    training = TrainStage(
        store,
        teaching,
        WritingTrainer(),
        TRAIN,
        wants,
        home,
        candidate_made=made,
        version_settled=settled,
    )
    return publishing, teaching, training


def serve_parts(
    store: Store, renderer: ChatRenderer, engine: ScriptedEngine, collect: Collect, served: ServedVersions
) -> ServeParts:
    """The product's server over these, with what has been learned."""
    parts = parts_around(store, renderer, engine, collect)
    return replace(parts, current=lambda user: served.current(SHARED), context_length=100_000)


if __name__ == "__main__":
    main()
