"""What a step costs after long prompts: CPU seconds and memory, against what reading each distinct token costs.

Run with `python -m benchmarks.long`. Each case is a process of its own, so that its memory is its own. A corrected
reply of 60 tokens has a hint and four replies that the teacher shows; eight corrections share the first nine tenths of
their prompts, as requests of one agent do. Bounds are measured in the same process: a forward, and a forward and
backward pass over each distinct token, in one causal row. At last a server is asked behind an agent's system text of
15,000 tokens, corrected, and timed until what it learned is served. One case alone: `python -m benchmarks.long exact
8000 8`, or `served 15000`.
"""

from __future__ import annotations

import asyncio
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from statistics import median

import aiohttp

from benchmarks.common import Figures, conditions, finish, is_quick, progress
from benchmarks.feedback import one_correction
from openclaw_rl.core.sample import HintPrompt, Sample, SampledReply
from openclaw_rl.core.version import BASE
from openclaw_rl.evals.client import Client, served_model
from openclaw_rl.evals.server import serving
from openclaw_rl.render.template import read_template
from openclaw_rl.tiny import agents, world

LENGTHS = (3000, 8000, 15000)
REPLY, SHOWN, HINT = 60, 4, 12
SHARED = 0.9
UPDATES = 8
PATIENCE_S = 3600.0
FEW = 4  # are taken where each reads the whole; what further ones cost is what these did
FORMS = ("constant", "exact", "cached", "apart")  # the last two as models that cannot read trees
CONSTANT = ("constant", "cached")


def ids(count: int, seed: str) -> tuple[int, ...]:
    """Random ids of the bundled model."""
    chance = random.Random(seed)
    return tuple(chance.randrange(10, 900) for _ in range(count))


def corrections(length: int, count: int) -> list[Sample]:
    """Corrected replies to prompts of this length that begin alike."""
    made = []
    for number in range(count):
        name, common = str(number), ids(int(length * SHARED), "common")
        prompt = common + ids(length - len(common), name)
        hint = HintPrompt("Answer in plain words.", prompt[:-6] + ids(HINT, "hint") + prompt[-6:])
        shown = tuple(SampledReply(ids(REPLY, f"{name}.{reply}"), (-5.0,) * REPLY, BASE) for reply in range(SHOWN))
        logp, mask = (-5.0,) * REPLY, (True,) * REPLY
        reply = ids(REPLY, f"{name}.said")
        made.append(Sample(name, name, "user", prompt, reply, logp, mask, BASE, score=-1.0, hints=(hint,), shown=shown))
    return made


def measured(form: str, length: int, count: int) -> Figures:
    """One case, in this process: CPU seconds of a step and of an update, the bounds, and the most memory."""
    import torch

    from openclaw_rl.tiny.world import bundled_model
    from openclaw_rl.trainers.forest import planted
    from openclaw_rl.trainers.lessons import lessons
    from openclaw_rl.trainers.lora import LoraTrainer
    from openclaw_rl.trainers.prompt_caches import PromptCaches
    from openclaw_rl.trainers.settings import TrainerSettings
    from openclaw_rl.trainers.trees import Trees

    torch.set_num_threads(1)
    if form in ("apart", "cached"):
        Trees.of = classmethod(lambda cls, *given: None)  # type: ignore[assignment, method-assign]
    if form == "apart":
        PromptCaches.of = classmethod(lambda cls, *given: None)  # type: ignore[assignment, method-assign]
    # an update that is undone costs what any other costs, and counts
    settings = TrainerSettings(
        lr=1e-4, prompts="constant" if form in CONSTANT else "exact", updates=UPDATES, enough=0.0, threads=1
    )
    trainer = LoraTrainer.open(bundled_model(), settings)
    samples = corrections(length, count)
    loaded = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    most = UPDATES if form in CONSTANT else FEW
    spent: list[tuple[float, float]] = []  # updates, those that were undone among them, and CPU seconds
    for updates in (2, most):
        trainer._settings = replace(settings, updates=updates)
        trainer.restore(None)
        began = time.process_time()
        metrics = trainer.step(samples).metrics
        spent.append((metrics["updates"] + metrics["updates_undone"], time.process_time() - began))
    (few, few_s), (many, many_s) = spent
    update = (many_s - few_s) / (many - few)
    found: Figures = {
        "cpu_s": few_s + (UPDATES - few) * update,
        "update_cpu_s": update,
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - loaded,
    }
    if form == "apart":
        return found
    taught = lessons(samples, settings.method)
    whole = planted([lesson.reading().needed for lesson in taught])
    prompts = planted([lesson.sample.prompt for lesson in taught])
    found["forward_cpu_s"] = _row(trainer, len(prompts.tokens), backward=False)
    found["pass_cpu_s"] = _row(trainer, len(whole.tokens), backward=True)
    return found


def _row(trainer: object, length: int, *, backward: bool) -> float:
    """CPU seconds of one causal row of this length; the median of three."""
    import torch

    from openclaw_rl.trainers.lora import LoraTrainer

    assert isinstance(trainer, LoraTrainer)
    row = torch.tensor([ids(length, "row")])
    spent = []
    for _ in range(3):
        began = time.process_time()
        if backward:
            hidden = trainer.model.hidden(row)
            hidden[0, -REPLY:].sum().backward()  # type: ignore[no-untyped-call]
        else:
            with torch.no_grad():
                trainer.model.hidden(row)
        spent.append(time.process_time() - began)
    return median(spent)


def case(form: str, length: int, count: int) -> dict[str, float]:
    """The same in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.long", form, str(length), str(count)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    progress(
        f"{count} corrections after {length} tokens, {form}: " + ", ".join(f"{k} {v:.4g}" for k, v in found.items())
    )
    return found


async def served(tokens: int) -> dict[str, float] | None:
    """Seconds from a correction to the version that learned from it, behind a system text of so many tokens."""
    template = read_template(world.bundled_model())
    text = agents.system_text(random.Random("long"), chars=8 * tokens)
    system = template.tokenizer.decode(template.encode(text)[:tokens], skip_special_tokens=False)
    with tempfile.TemporaryDirectory(prefix="openclaw-rl-long-") as home:
        async with serving(Path(home), model="bundled") as server:
            name = await served_model(server.base_url, server.key)
            headers = {"Authorization": f"Bearer {server.key}"}
            async with (
                Client(server.base_url, server.key, name) as client,
                aiohttp.ClientSession(headers=headers) as watch,
            ):
                return await one_correction(client, watch, server.base_url, 0, system=system, patience_s=PATIENCE_S)


def main() -> None:
    """All cases, or the named one; the last line is the figures."""
    if sys.argv[1:2] == ["served"]:
        print(json.dumps(asyncio.run(served(int(sys.argv[2])))))
        return
    if len(sys.argv) == 4:
        print(json.dumps(measured(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
        return
    figures: Figures = {}
    for length in LENGTHS[:1] if is_quick() else LENGTHS:
        told: Figures = {}
        for count in (1, 8):
            forms = FORMS if length == LENGTHS[0] and count == 1 else FORMS[:3]  # apart, the others take half an hour
            found = {form: case(form, length, count) for form in forms}
            constant, exact = found["constant"], found["exact"]
            # A whole step of the constant form, over one forward pass over each prompt token and its updates.
            bound = constant["forward_cpu_s"] + constant["update_cpu_s"] * UPDATES
            told[str(count)] = {
                "update_over_bound": round(exact["update_cpu_s"] / exact["pass_cpu_s"], 3),
                "step_over_bound": round(constant["cpu_s"] / bound, 3),
                "cpu_s": {form: round(one["cpu_s"], 3) for form, one in found.items()},
                "peak_bytes": {form: round(one["peak_bytes"]) for form, one in found.items()},
            }
        figures[str(length)] = told
    if not is_quick():
        parts = asyncio.run(served(LENGTHS[-1]))
        figures["seconds_to_served_15000"] = None if parts is None else round(parts["whole"], 1)
    finish(figures | {"updates": UPDATES, "conditions": conditions("bundled", threads=1, seeds=[0], repeats=1)})


if __name__ == "__main__":
    main()
