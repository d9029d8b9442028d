"""A long conversation is corrected on a card of 24 GB: does it fit, and how long until the next version answers.

Engine and trainer share the device, with the settings as they come. The engine answers after a prompt of 15,500 tokens
and records its log-probabilities; the trainer takes a step toward the teacher given a hint, with the conversation as
its one sample; the new version is written, loaded, and answers the same prompt. Only the number of updates is set: a
random model is so near its teacher that the step would end after one.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field, replace

from benchmarks.common import Figures, progress
from benchmarks.gpu_model import Setup, Watch, ballast, free_unused, gb
from benchmarks.gpu_together import CARD_BYTES, Try, texts, tries
from benchmarks.peers import ids
from openclaw_rl.core.completion import SampledToken
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.sample import HintPrompt, Sample
from openclaw_rl.core.sampling import Sampling
from openclaw_rl.core.version import BASE, SHARED, PolicyVersion
from openclaw_rl.engines import LocalEngine
from openclaw_rl.errors import OpenClawRLError
from openclaw_rl.trainers.process import TrainerProcess

PROMPT, REPLY, HINT, UPDATES = 15_500, 300, 60, 8
V1 = PolicyVersion(SHARED, 1)


@dataclass(slots=True)
class CorrectionPath:
    """How far it went: the seconds of each stage, and the memory of both processes after it."""

    watch: Watch
    seconds: dict[str, float] = field(default_factory=dict)
    memory_gb: dict[str, float] = field(default_factory=dict)
    facts: Figures = field(default_factory=dict)
    began: float = field(default_factory=time.perf_counter)

    def arrived(self, stage: str) -> None:
        """A stage is over."""
        now = time.perf_counter()
        self.seconds[stage], self.began = round(now - self.began, 2), now
        self.memory_gb[stage] = gb(self.watch.now_bytes())
        progress(f"{stage}: {self.seconds[stage]} s, {self.memory_gb[stage]} GB in use")

    def figures(self) -> Figures:
        """What is known so far."""
        most = gb(self.watch.most_bytes())
        return {**self.facts, "seconds": self.seconds, "memory_gb": self.memory_gb, "peak_gb": most}


def long(setup: Setup) -> Figures:
    """Where 24 GB are too little, also what was reached, and the same with all memory."""
    figures: Figures = {"card_gb": gb(CARD_BYTES), "prompt_tokens": setup.sized(PROMPT, 600), "reply_tokens": REPLY}
    usual = tries(setup)[0]
    usual = replace(usual, trainer=replace(usual.trainer, updates=UPDATES, enough=0.0))
    held = ballast(setup, leaving_bytes=CARD_BYTES)
    try:
        found = asyncio.run(_corrected(setup, usual))
    finally:
        del held
        free_unused()
    figures |= {"on_24_gb": found}
    if setup.is_gpu and not found["fits"]:
        figures |= {"with_all_memory": asyncio.run(_corrected(setup, usual))}
    return figures


async def _corrected(setup: Setup, one: Try) -> Figures:
    """The figures, and `fits`: whether the new version answered; if not, `error` says what happened."""
    with Watch(setup) as watch:
        way = CorrectionPath(watch)
        try:
            await _walked(setup, one, way)
        except* (OpenClawRLError, RuntimeError, TimeoutError) as problems:
            why = "; ".join(texts(problems))[:600]
            progress(f"it ends here: {why}")
            way.facts["error"] = why
        return {"fits": "error" not in way.facts, **way.figures()}


async def _walked(setup: Setup, one: Try, way: CorrectionPath) -> None:
    prompt = ids(setup.sized(PROMPT, 600), 7)
    async with asyncio.timeout(setup.sized(240, 120)):
        engine = await LocalEngine.start(one.engine)
        trainer: TrainerProcess | None = None
        try:
            way.facts["cache_tokens"] = engine.info.cache_tokens
            way.arrived("engine_starts")
            trainer = await TrainerProcess.start(setup.model, one.trainer)
            way.arrived("trainer_starts")
            said = await _answer(engine, prompt, BASE, REPLY)
            way.arrived("conversation_answered")
            report = await trainer.step([_sample(prompt, said)], resume=None)
            way.arrived("step")
            way.facts["metrics"] = {
                name: report.metrics[name]
                for name in ("updates", "updates_undone", "loss_distill", "loss_distill_last")
            }
            way.facts["took_step"] = report.took_step
            adapter = await trainer.export(setup.home / f"long-{time.monotonic_ns()}", V1)
            way.arrived("written")
            await engine.load(adapter)
            way.arrived("loaded")
            await _answer(engine, prompt, V1, 1)
            way.arrived("first_token_of_the_new_version")
            way.facts["correction_to_answer_s"] = round(sum(list(way.seconds.values())[-4:]), 2)
            if restarts := (await engine.stats()).restarts:
                raise RuntimeError(f"the engine's process died and was started again, {restarts} times")
        finally:
            if trainer is not None:
                await trainer.aclose()
            await engine.aclose()


async def _answer(
    engine: LocalEngine, prompt: tuple[int, ...], version: PolicyVersion, count: int
) -> list[SampledToken]:
    asked = engine.generate(Prompt(prompt), Sampling(max_tokens=count, seed=1), version)
    return [item async for item in asked]


def _sample(prompt: tuple[int, ...], said: list[SampledToken]) -> Sample:
    """The answer as recorded, objected to."""
    return Sample(
        turn="long",
        session="long",
        user="user",
        prompt=prompt,
        response=tuple(item.token for item in said),
        logp=tuple(item.logp for item in said),
        mask=(True,) * len(said),
        version=BASE,
        score=-1.0,
        hints=(HintPrompt("a hint", prompt + ids(HINT, 9)),),
    )
