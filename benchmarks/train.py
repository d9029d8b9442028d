"""The trainer's step against TRL's, and a session of eight turns read once against its turns read alone.

Run with `python -m benchmarks.train`. Steps alternate A B A B in one process; ratios are of CPU seconds, medians.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import torch

from benchmarks.common import VOCAB, Figures, conditions, finish, is_quick, make_model, progress
from openclaw_rl.core.sample import Sample
from openclaw_rl.core.version import BASE
from openclaw_rl.trainers.lora import LoraTrainer
from openclaw_rl.trainers.settings import Method, MethodSettings, TrainerSettings

THREADS = 1
RANK = 16
PROMPT, RESPONSE = 201, 311
TURNS, NEW, ANSWER = 8, 64, 96
# GRPO as TRL has it by default: group advantages, no term that ties to the base
GRPO = TrainerSettings(
    rank=RANK, alpha=2.0 * RANK, lr=1e-6, threads=THREADS, method=MethodSettings(name=Method.BINARY, kl_beta=0.0)
)


def ids(count: int, seed: int) -> tuple[int, ...]:
    """Random ids."""
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randint(2, VOCAB, (count,), generator=generator).tolist())


def sample(turn: str, prompt: tuple[int, ...], response: tuple[int, ...], score: float) -> Sample:
    """A scored turn. What was recorded is near enough to what a random model says: log(1 / V)."""
    logp = (-8.317,) * len(response)
    return Sample(turn, "session", "user", prompt, response, logp, (True,) * len(response), BASE, score=score)


def groups() -> list[Sample]:
    """Two prompts of 201 ids with eight replies of 311 each."""
    return [
        replace(
            sample(f"{group}.{reply}", ids(PROMPT, group), ids(RESPONSE, 100 * group + reply + 10), float(reply % 3)),
            group=str(group),
        )
        for group in range(2)
        for reply in range(8)
    ]


def session(number: int) -> list[Sample]:
    """Eight turns, each going on from the one before: 64 ids asked, 96 answered."""
    turns: list[Sample] = []
    history: tuple[int, ...] = ()
    for turn in range(TURNS):
        seed = 1000 * number + 10 * turn
        prompt, response = history + ids(NEW, seed), ids(ANSWER, seed + 1)
        turns.append(sample(f"{number}.{turn}", prompt, response, 1.0 if turn % 2 else -1.0))
        history = prompt + response
    return turns


def apart(turns: list[Sample]) -> list[Sample]:
    """The same turns so that none goes on from another: each ends with an id of its own that is not trained."""
    return [
        replace(one, response=(*one.response, number), logp=(*one.logp, -8.317), mask=(*one.mask, False))
        for number, one in enumerate(turns)
    ]


def alternated(first: Callable[[], object], second: Callable[[], object], repeats: int) -> tuple[list[float], ...]:
    """CPU seconds of each, A B A B, after one of each that does not count; and wall seconds of each."""
    cpu: tuple[list[float], list[float]] = ([], [])
    wall: tuple[list[float], list[float]] = ([], [])
    for repeat in range(repeats + 1):
        for place, work in enumerate((first, second)):
            began_cpu, began = time.process_time(), time.perf_counter()
            work()
            if repeat:
                cpu[place].append(time.process_time() - began_cpu)
                wall[place].append(time.perf_counter() - began)
    return (*cpu, *wall)


def against_trl(folder: Path, repeats: int) -> Figures:
    """Our step over TRL's, on the same model, ids, groups and rank."""
    from benchmarks.train_peer import TrlStep

    samples = groups()
    trainer = LoraTrainer.open(folder, GRPO)
    peer = TrlStep(folder, rank=RANK, lr=1e-6)
    prompts = torch.tensor([one.prompt for one in samples])
    completions = torch.tensor([one.response for one in samples])
    rewards = torch.tensor([one.score or 0.0 for one in samples]).view(2, 8)
    advantages = ((rewards - rewards.mean(1, keepdim=True)) / rewards.std(1, correction=0, keepdim=True)).view(-1)

    def ours() -> None:
        assert trainer.step(samples).took_step

    own, theirs, own_wall, their_wall = alternated(ours, lambda: peer.step(prompts, completions, advantages), repeats)
    progress(f"a step of 16 x 512: ours {median(own):.3f} s, TRL's {median(theirs):.3f} s of CPU")
    return {
        "ratio_vs_trl_step": round(median(own) / median(theirs), 4),
        "ratio_vs_trl_step_wall": round(median(own_wall) / median(their_wall), 4),
        "step_cpu_s": round(median(own), 4),
        "trl_step_cpu_s": round(median(theirs), 4),
    }


def merging(folder: Path, repeats: int) -> Figures:
    """A session's turns read once against each read alone, and as a fraction of what is ideal."""
    trainer = LoraTrainer.open(folder, GRPO)
    together = [one for number in range(2) for one in session(number)]
    alone = apart(together)
    merged, separate, *_ = alternated(lambda: trainer.step(together), lambda: trainer.step(alone), repeats)
    longest = sum(len(one.prompt) + len(one.response) for one in together[TURNS - 1 :: TURNS])
    whole = sum(len(one.prompt) + len(one.response) for one in together)
    progress(f"two sessions of 8 turns: merged {median(merged):.3f} s, apart {median(separate):.3f} s of CPU")
    return {
        "merged_speedup_8_turns": round(median(separate) / median(merged), 3),
        "merged_tokens_ratio": round(whole / longest, 3),
    }


def peak_memory(folder: Path) -> Figures:
    """The most memory a process used that loads the model and takes one step of 16 x 512 tokens."""
    command = [sys.executable, "-m", "benchmarks.train", "--peak", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    before, peak = (int(value) for value in done.stdout.split())
    return {"peak_memory_bytes": peak, "loaded_memory_bytes": before}


def most_memory() -> int:
    """Bytes; the kernel's high-water mark of this process alone, which ru_maxrss is not in one that was forked."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def take_one_step(folder: Path) -> None:
    """Prints the memory the process used before and after a step."""
    torch.set_num_threads(THREADS)
    trainer = LoraTrainer.open(folder, GRPO)
    before = most_memory()
    trainer.step(groups())
    print(before, most_memory())


def main() -> None:
    """Measures, and prints the figures."""
    if sys.argv[1:2] == ["--peak"]:
        return take_one_step(Path(sys.argv[2]))
    torch.set_num_threads(THREADS)
    repeats = 3 if is_quick() else 9
    with TemporaryDirectory() as home:
        folder = make_model(Path(home) / "model")
        figures = against_trl(folder, repeats) | merging(folder, repeats) | peak_memory(folder)
    name = "Qwen3, 4 layers, hidden 256, vocabulary 4096, random weights, fp32"
    return finish(figures | {"conditions": conditions(name, threads=THREADS, seeds=[0], repeats=repeats)})


if __name__ == "__main__":
    main()
