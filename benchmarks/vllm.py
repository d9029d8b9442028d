"""`make bench-vllm`: our server in front of a real vLLM against that vLLM alone, and the local engine against it.

REAL_VLLM=PYTHON python -m benchmarks.vllm [--seconds 20]
    [--only gateway,apart,single,copy,local,larger,cold,changes,wish]

Every comparison is of pairs A B, B A, ... in one run, on the same processes, as many as fit into `--seconds` for each
width (QUICK=1: two). What is not compared just then is idle, or stopped altogether. `single` is our server when vLLM
sends it each token by itself (`engine.remote.gather_ms = 0`), as it does alone. `copy` puts a process that only copies
bytes in the place of our server: on cores that vLLM fills, anything in front of it costs something. `apart` gives vLLM
one core of its own, as one has that computes on a GPU, and the other to our server and to the client.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import tempfile
import time
from contextlib import AsyncExitStack, aclosing, nullcontext
from pathlib import Path
from statistics import median

import aiohttp

from benchmarks.common import Figures, conditions, end_servers_on_term, finish, is_quick, progress
from benchmarks.recompute import logp_gaps, make_adapter
from benchmarks.swap import Record, serve
from benchmarks.vllm_servers import (
    RANK,
    VERSIONS,
    Target,
    copied,
    cpu_s,
    gateway,
    local_engine,
    on_core,
    speed,
    stopped,
    stream,
    vllm_alone,
)
from openclaw_rl.core.adapter import Adapter
from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.engines.remote.client import RemoteEngine
from openclaw_rl.engines.remote.http import IDLE_S
from openclaw_rl.engines.settings import EngineKind, EngineSettings, RemoteSettings
from openclaw_rl.evals.learning import RunSettings, learn
from openclaw_rl.evals.people.users import Student
from openclaw_rl.home.models import model_folder

WIDTHS = (1, 8, 16, 32)
COUNT = 96  # tokens of an answer
LARGER_COUNT = 16
LARGER_SHARE = 2  # of --seconds: a pair takes longer
LEAST_PAIRS, MOST_PAIRS = 3, 30
CHANGES = 20
BETWEEN_S = 0.5
SEEDS = 3
OTHER = 1e-2  # nats: an answer of another version is further off than that at one token at least
PARTS = ("gateway", "apart", "single", "copy", "local", "larger", "cold", "changes", "wish")
CONTEXT = 2048
COLD = {"bundled": (6000, 12_288), "larger": (2000, 4096)}  # words of a prompt of 10,200 and 3,400 tokens; the context
COLD_PAIRS = 3


def main() -> None:
    """Measures, and prints the figures."""
    end_servers_on_term()
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--seconds", type=float, default=20.0, help="for each width of a comparison")
    asked = parser.parse_args()
    parts, seconds = asked.only.split(","), 0.0 if is_quick() else asked.seconds
    python = os.environ["REAL_VLLM"]
    with tempfile.TemporaryDirectory(prefix="openclaw-rl-vllm-") as place:
        figures = asyncio.run(measured(python, Path(place), parts, seconds))
    figures["conditions"] = conditions(
        "bundled (2.6 M parameters, float32); larger: random Qwen3, 28 layers, hidden 1024, vocabulary 4096, bfloat16",
        threads=1,
        seeds=[0],
        repeats=2 if is_quick() else LEAST_PAIRS,
    )
    finish(figures)


async def measured(python: str, place: Path, parts: list[str], seconds: float) -> Figures:
    """The parts that were asked for, on one vLLM for each model."""
    model = model_folder("bundled")
    figures: Figures = {}
    begin = time.perf_counter()

    def note(part: str, found: Figures) -> None:
        figures[part] = found
        progress(f"{part}, {time.perf_counter() - begin:.0f} s after the start: {found}")

    if "apart" in parts:
        note("apart_over_vllm", await apart(python, model, place, seconds))
    if set(parts) - {"larger", "cold", "apart"}:
        async with vllm_alone(python, model, dtype="float32", context=CONTEXT, threads=1) as vllm:
            if "gateway" in parts:
                async with gateway(place / "gateway", model, vllm, "--no-learn") as ours:
                    note("first_token_extra_ms", await first_tokens(ours, vllm, seconds))
                    note("gateway_over_vllm", await compared(ours, vllm, count=COUNT, seconds=seconds))
            if "single" in parts:
                async with gateway(place / "single", model, vllm, "--no-learn", more="gather_ms = 0") as ours:
                    note("single_over_vllm", await compared(ours, vllm, count=COUNT, seconds=seconds))
            if "copy" in parts:
                async with copied(vllm) as copy:
                    note("first_token_extra_ms_of_a_copy", await first_tokens(copy, vllm, seconds))
                    note("copy_over_vllm", await compared(copy, vllm, count=COUNT, seconds=seconds))
            if "local" in parts:
                async with local_engine(place / "local", model, threads=1, dtype="float32") as ours:
                    found = await compared(ours, vllm, count=COUNT, seconds=seconds / 2, is_apart=True)
                    note("local_over_vllm", found)
            if "changes" in parts:
                note("changes", await changes(vllm, model, place))
            if "wish" in parts:
                note("wish", await wishes(vllm, model, place))
    if "larger" in parts:
        made = larger_model(place / "larger", model)
        async with (
            vllm_alone(python, made, dtype="bfloat16", context=CONTEXT, threads=2) as vllm,
            local_engine(place / "large", made, threads=2, dtype="bfloat16") as ours,
        ):
            long = LARGER_SHARE * seconds
            found = await compared(ours, vllm, count=LARGER_COUNT, seconds=long, widths=(1, 8, 16), is_apart=True)
            note("local_over_vllm_larger", found)
    if "cold" in parts:
        made = larger_model(place / "larger", model) if "larger" not in parts else place / "larger"
        note("cold_prompts_local_over_vllm", await cold(python, place, {"bundled": model, "larger": made}))
    figures["seconds"] = round(time.perf_counter() - begin)
    return figures


async def apart(python: str, model: Path, place: Path, seconds: float) -> Figures:
    """As `compared`, where vLLM's processes have the first core, and our server's and the client the second."""
    first, second, *_ = sorted(os.sched_getaffinity(0))
    async with AsyncExitStack() as stack:
        with on_core(first):  # processes keep the cores of who starts them
            vllm = await stack.enter_async_context(
                vllm_alone(python, model, dtype="float32", context=CONTEXT, threads=1)
            )
        with on_core(second):
            ours = await stack.enter_async_context(gateway(place / "apart", model, vllm, "--no-learn"))
            later = await first_tokens(ours, vllm, seconds)
            return {"first_token_extra_ms": later, **await compared(ours, vllm, count=COUNT, seconds=seconds)}


def client() -> aiohttp.ClientSession:
    """Waits as long as it takes, and uses no connection that a server may be about to close: one that was stopped for a
    while closes those that were idle as soon as it goes on.
    """
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE_S)
    return aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=None))


async def cold(python: str, place: Path, models: dict[str, Path]) -> Figures:
    """Seconds to the first token after a long prompt that nobody has read before, by model; one stream at a time."""
    figures: Figures = {}
    for name, model in models.items():
        dtype, threads = ("float32", 1) if name == "bundled" else ("bfloat16", 2)
        words, context = COLD[name]
        pairs: list[tuple[float, float]] = []
        spent: dict[bool, list[float]] = {True: [], False: []}
        async with (
            vllm_alone(python, model, dtype=dtype, context=context, threads=threads) as vllm,
            local_engine(place / f"cold-{name}", model, threads=threads, dtype=dtype) as ours,
            client() as http,
        ):
            for number in range(-1, 2 if is_quick() else COLD_PAIRS):
                found: dict[str, float] = {}
                for target in (ours, vllm) if number % 2 else (vllm, ours):
                    few = words if number >= 0 else words // 20  # the first pair warms both up
                    before = cpu_s(target)
                    with stopped(vllm) if target is ours else nullcontext():
                        answer = await stream(http, target, count=2, number=9100 + number, words=few)
                    found[target.base_url] = answer.first_s
                    spent[target is ours].append(cpu_s(target) - before)
                if number >= 0:
                    pairs.append((found[ours.base_url], found[vllm.base_url]))
                    progress(f"cold {name}: {answer.prompt_tokens} tokens, ours and vLLM {pairs[-1]}")
        figures[name] = {
            "prompt_tokens": answer.prompt_tokens,
            "first_s": round(median(own for own, _ in pairs), 2),
            "vllm_first_s": round(median(other for _, other in pairs), 2),
            "ratios": sorted(round(own / other, 2) for own, other in pairs),
            "cpu_s": round(median(spent[True][1:]), 2),
            "vllm_cpu_s": round(median(spent[False][1:]), 2),
        }
    return figures


def _is_enough(pairs: int, until: float) -> bool:
    """Whether a comparison has its pairs: those that fit into its time, and some in any case."""
    if is_quick():
        return pairs >= 2
    return pairs >= MOST_PAIRS or (pairs >= LEAST_PAIRS and time.perf_counter() > until)


async def compared(
    ours: Target,
    vllm: Target,
    *,
    count: int,
    seconds: float,
    widths: tuple[int, ...] = WIDTHS,
    is_apart: bool = False,
) -> Figures:
    """Tokens a second of both by width, the ratios of the pairs, and CPU a token: of both servers' processes in ours.

    `is_apart`: ours does not ask that vLLM.
    """
    figures: Figures = {}
    async with client() as http:

        async def one(target: Target, width: int, number: int) -> tuple[float, float]:
            if is_apart and target is ours:
                with stopped(vllm):
                    return await speed(http, target, width=width, count=count, number=number)
            return await speed(http, target, width=width, count=count, number=number)

        for width in widths:
            pairs: list[tuple[float, float]] = []
            silent: dict[str, list[float]] = {ours.base_url: [], vllm.base_url: []}
            for target in (ours, vllm):
                await one(target, width, 1000)  # warms both up
            until, number = time.perf_counter() + seconds, 1000
            spent = {"ours": 0.0, "vllm_with_ours": 0.0, "vllm": 0.0}
            while not _is_enough(len(pairs), until):
                number += 1
                found: dict[str, float] = {}
                for target in (ours, vllm) if number % 2 else (vllm, ours):
                    before = cpu_s(ours), cpu_s(vllm)
                    found[target.base_url], silent_s = await one(target, width, number)
                    silent[target.base_url].append(silent_s)
                    spent["ours"] += cpu_s(ours) - before[0] if target is ours else 0.0
                    spent["vllm_with_ours" if target is ours else "vllm"] += cpu_s(vllm) - before[1]
                pairs.append((found[ours.base_url], found[vllm.base_url]))
            tokens = len(pairs) * width * count
            ratios = sorted(own / other for own, other in pairs)
            figures[str(width)] = {
                "tokens_per_s": round(median(own for own, _ in pairs), 1),
                "vllm_tokens_per_s": round(median(other for _, other in pairs), 1),
                "ratio": round(median(ratios), 3),
                "worst": round(ratios[0], 3),
                "best": round(ratios[-1], 3),
                "pairs": len(pairs),
                "longest_silence_ms": [round(median(each) * 1e3, 1) for each in silent.values()],
                "cpu_ms_a_token": {name: round(value / tokens * 1e3, 3) for name, value in spent.items()},
            }
            progress(f"width {width}: {figures[str(width)]}")
    return figures


async def first_tokens(ours: Target, vllm: Target, seconds: float) -> Figures:
    """Milliseconds by which the first token comes later than from vLLM alone, one stream at a time."""
    async with client() as http:
        extra: list[float] = []
        alone: list[float] = []
        until, number = time.perf_counter() + seconds / 2, 9000
        while not _is_enough(len(extra) // 4, until):
            number += 1
            order = (ours, vllm) if number % 2 else (vllm, ours)
            found = {target.base_url: (await stream(http, target, count=4, number=number)).first_s for target in order}
            if number > 9002:  # the first pairs warm both up
                extra.append((found[ours.base_url] - found[vllm.base_url]) * 1e3)
                alone.append(found[vllm.base_url] * 1e3)
    extra.sort()
    return {
        "median": round(median(extra), 2),
        "p90": round(extra[int(0.9 * len(extra))], 2),
        "vllm_ms": round(median(alone), 2),
        "pairs": len(extra),
    }


async def changes(vllm: Target, model: Path, place: Path) -> Figures:
    """Versions that change under 16 streams, and every answer computed again by transformers and peft alone."""
    count = 4 if is_quick() else CHANGES
    adapters = [make_adapter(model, place / f"v{number}", number) for number in range(1, count + 1)]
    remote = RemoteSettings(urls=(vllm.base_url.removesuffix("/v1"),), api_key=vllm.key)
    settings = EngineSettings(kind=EngineKind.VLLM, remote=remote, max_versions=VERSIONS)
    async with aclosing(await RemoteEngine.start(settings, model, rank=RANK)) as engine:
        record = await serve(engine, adapters, between_s=BETWEEN_S)
    by_version = {adapter.version: adapter for adapter in adapters}
    gaps: list[float] = []
    worst, wrong = 0.0, 0
    for version in sorted({output.version for output in record.outputs}, key=str):
        own = _gaps(record, model, version, by_version.get(version))
        gaps += [gap for answer in own for gap in answer]
        worst = max([worst, *(max(answer) for answer in own)])
        wrong += sum(max(answer) > OTHER for answer in own)
    # The same answers held against a version that did not give them: were none further off, nothing would be shown.
    first = min(output.version for output in record.outputs if not output.version.is_base)
    other = _gaps(record, model, first, None)
    found: Figures = {
        "changes": len(record.changes),
        "refused": record.refused,
        "cut": record.cut,
        "wrong_version": wrong,
        "answers": len(record.outputs),
        "least_gap_to_another_version": round(min(max(answer) for answer in other), 3),
        "recomputed_mean_gap": float(f"{sum(gaps) / len(gaps):.2g}"),
        "recomputed_worst_gap": float(f"{worst:.2g}"),
        "change_ms_p50": round(median(done - begin for begin, done in record.changes) * 1e3, 1),
    }
    return found


def _gaps(record: Record, model: Path, version: PolicyVersion, adapter: Adapter | None) -> list[list[float]]:
    asked = [(output.prompt, output.items) for output in record.outputs if output.version == version and output.items]
    return logp_gaps(model, adapter, asked)


async def wishes(vllm: Target, model: Path, place: Path) -> Figures:
    """Sessions until a user's wish is followed without being said, as `bench-learning` counts them, over seeds."""
    settings = RunSettings(sessions=10, problems=20, stop_after=0, settle_s=300.0)
    met_at: list[int | None] = []
    refused = 0
    for seed in range(1 if is_quick() else SEEDS):
        async with gateway(place / f"wish-{seed}", model, vllm) as ours:
            report = await learn(ours.base_url, ours.key, Student(seed), settings=settings, seed=seed)
        met_at.append(report.converged_at)
        refused += report.refused
        progress(f"seed {seed}: followed from session {report.converged_at} on")
    return {"sessions": met_at, "refused": refused}


def larger_model(folder: Path, tokenizer: Path) -> Path:
    """A random model of Qwen3-0.6B's layers in bfloat16 with the bundled model's tokenizer (445 M parameters)."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=4096,
        hidden_size=1024,
        intermediate_size=3072,
        num_hidden_layers=28,
        num_attention_heads=16,
        num_key_value_heads=8,
        head_dim=128,
        tie_word_embeddings=True,
        max_position_embeddings=40960,
        eos_token_id=2,
        pad_token_id=0,
    )
    Qwen3ForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json"):
        shutil.copy(tokenizer / name, folder / name)
    return folder


if __name__ == "__main__":
    main()
