"""Answers held to generated JSON schemas by the local engine: how many are valid, and what it costs.

The bundled model answers unrelated questions at temperature 1, so that it would follow no schema by itself. Nor does it
end a string by itself: where a schema lets one go on for ever, many answers do until they are cut, and cut text says
nothing of the grammar. Such an answer is asked for again, with other seeds, with a bias towards what closes strings,
objects and arrays, as a model that knows JSON has by itself; how often is counted.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import tempfile
import time
import warnings
from collections import Counter
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import torch
from jsonschema import Draft202012Validator

import openclaw_rl
from benchmarks.common import Figures, conditions, finish, is_quick, progress, quantile
from benchmarks.structured_schemas import schema_of
from openclaw_rl.core.completion import Finish, SampledToken
from openclaw_rl.core.message import Json, Role, message
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.sampling import Grammar, LogitAdjustment, Sampling
from openclaw_rl.core.version import BASE
from openclaw_rl.engines.local.client import LocalEngine
from openclaw_rl.engines.settings import EngineSettings
from openclaw_rl.errors import RequestError
from openclaw_rl.render.forms import AnswerForm
from openclaw_rl.render.renderer import ChatRenderer
from openclaw_rl.render.template import read_template

MODEL = Path(openclaw_rl.__file__).parent / "tiny" / "weights"
WIDTH = 8
MOST_TOKENS = 500
SPEED_TOKENS = 300
ASKED_AGAIN = 4  # times at most, where an answer was cut
OTHER_SEEDS = 1_000_003
CLOSES = {'"': 14.0, "}": 4.0, "]": 4.0}  # added to the logits of an answer that was cut before
WIDER = {
    "hidden_size": 512,
    "intermediate_size": 1536,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "layer_types": ["full_attention"] * 8,
    "max_window_layers": 8,
}
LARGE = 40  # alternatives of a schema that takes a while to compile


@dataclass(slots=True)
class Bench:
    """The engine, and what came of the schemas."""

    engine: LocalEngine
    renderer: ChatRenderer
    ends: tuple[int, ...]
    outcomes: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    wrong: list[dict[str, Json]] = field(default_factory=list)
    compile_s: list[float] = field(default_factory=list)
    first_cut: int = 0  # answers that did not end by themselves
    again: int = 0  # requests made for those
    forced: int = 0
    tokens: int = 0

    def grammar(self, schema: dict[str, Json], prompt: Prompt) -> Grammar:
        """What holds an answer to it."""
        form = AnswerForm(text=lambda lark: lark.json(schema))
        found = self.renderer.grammar(form, prompt, self.ends, is_bare=False)
        assert found is not None
        return found

    def prompt(self, seed: int) -> Prompt:
        """A question that has nothing to do with any schema."""
        source = random.Random(seed)
        text = f"Tom has {source.randrange(2, 90)} pears and buys {source.randrange(2, 90)} more. How many are there?"
        return self.renderer.prompt((message(Role.USER, text),), (), None, options={"enable_thinking": False})


async def opened(model: Path) -> Bench:
    """An engine of the model. The caller closes it."""
    settings = EngineSettings(model=str(model), device="cpu", dtype="float32", threads=1)
    engine = await LocalEngine.start(settings)
    renderer = ChatRenderer(read_template(model))
    return Bench(engine, renderer, renderer.ends(engine.info.eos_ids))


def wider(folder: Path) -> Path:
    """A model of 29 M random weights in this folder, with the bundled one's tokenizer: its steps take longer."""
    from transformers import AutoConfig, AutoModelForCausalLM

    shutil.copytree(MODEL, folder, ignore=shutil.ignore_patterns("judge", "*.safetensors"))
    config = AutoConfig.from_pretrained(folder)
    config.update(WIDER)
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    return folder


async def _speed_of_wider(rounds: int) -> Figures:
    with tempfile.TemporaryDirectory() as home:
        bench = await opened(wider(Path(home) / "model"))
        try:
            speed = await _speed(bench, rounds=rounds)
        finally:
            await bench.engine.aclose()
    return {f"wider_{name}": value for name, value in speed.items()}


async def run() -> Figures:
    """All figures."""
    bench = await opened(MODEL)
    async with aclosing(bench.engine):
        seconds = time.perf_counter()
        await _validity(bench, wanted=100 if is_quick() else 1000)
        progress(f"{bench.outcomes} refused {bench.refused} in {time.perf_counter() - seconds:.0f} s")
        speed = await _speed(bench, rounds=3 if is_quick() else 10)
        progress(f"speed {speed}")
        gaps = await _gaps(bench)
    speed |= await _speed_of_wider(rounds=3 if is_quick() else 10)
    ended = bench.outcomes["valid"] + bench.outcomes["invalid"]
    return {
        "schemas": sum(bench.outcomes.values()),
        "schemas_refused_by_the_library": sum(bench.refused.values()),
        "refused_for": dict(bench.refused.most_common(8)),
        "valid": bench.outcomes["valid"],
        "invalid": bench.outcomes["invalid"],
        "ended_by_themselves": sum(bench.outcomes.values()) - bench.first_cut,
        "asked_again": bench.again,
        "cut_by_length": bench.outcomes["cut"],
        "valid_share": bench.outcomes["valid"] / max(1, sum(bench.outcomes.values())),
        "valid_share_of_ended": bench.outcomes["valid"] / max(1, ended),
        "wrong": bench.wrong[:3],
        "tokens": bench.tokens,
        "forced_share": bench.forced / max(1, bench.tokens),
        "compile_ms_p50": median(bench.compile_s) * 1e3,
        "compile_ms_p99": quantile(bench.compile_s, 0.99) * 1e3,
        "compile_ms_max": max(bench.compile_s) * 1e3,
        **speed,
        **gaps,
    }


async def _validity(bench: Bench, *, wanted: int) -> None:
    places, seeds = asyncio.Semaphore(WIDTH), iter(range(100 * wanted))
    taken = 0

    async def one(seed: int, schema: dict[str, Json], grammar: Grammar) -> None:
        async with places:
            sampled = await _answer(bench, bench.prompt(seed), grammar, seed)
            bench.first_cut += sampled[-1].finish is Finish.LENGTH
            for attempt in range(ASKED_AGAIN):
                if sampled[-1].finish is not Finish.LENGTH:
                    break
                bench.again += 1
                sampled = await _answer(bench, bench.prompt(seed), grammar, seed + attempt * OTHER_SEEDS, closes=True)
        _judge(bench, schema, sampled)

    async with asyncio.TaskGroup() as group:
        while taken < wanted:
            seed = next(seeds)
            schema = schema_of(seed)
            grammar = bench.grammar(schema, bench.prompt(seed))
            async with places:  # a compile waits its turn, so that its time is its own
                begin = time.perf_counter()
                try:
                    await bench.engine.check_grammar(grammar)
                except RequestError as problem:
                    bench.refused[_reason(problem)] += 1
                    continue
            bench.compile_s.append(time.perf_counter() - begin)
            taken += 1
            group.create_task(one(seed, schema, grammar))


async def _answer(
    bench: Bench,
    prompt: Prompt,
    grammar: Grammar | None,
    seed: int,
    most: int = MOST_TOKENS,
    *,
    closes: bool = False,
) -> list[SampledToken]:
    stops = bench.ends if most == MOST_TOKENS else ()
    bias = tuple((bench.renderer.encode(text)[0], weight) for text, weight in CLOSES.items() if closes)
    sampling = Sampling(max_tokens=most, seed=seed, stop_ids=stops, grammar=grammar, leaning=LogitAdjustment(bias))
    return [item async for item in bench.engine.generate(prompt, sampling, BASE)]


def _judge(bench: Bench, schema: dict[str, Json], sampled: list[SampledToken]) -> None:
    bench.tokens += len(sampled)
    bench.forced += sum(item.is_forced for item in sampled)
    if sampled[-1].finish is Finish.LENGTH:
        bench.outcomes["cut"] += 1
        return
    parser = bench.renderer.parser()
    parser.feed([item.token for item in sampled])
    parser.finish()
    text = parser.message().text
    try:
        found = list(
            Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER).iter_errors(
                json.loads(text)
            )
        )
        why = found[0].message if found else ""
    except ValueError as problem:
        why = str(problem)
    bench.outcomes["invalid" if why else "valid"] += 1
    if why:
        bench.wrong.append({"schema": schema, "text": text, "why": why})


def _reason(problem: RequestError) -> str:
    """The library's words up to the schema they quote."""
    return problem.problem.removeprefix("the answer cannot be constrained to this format: ")[:90]


async def _speed(bench: Bench, *, rounds: int) -> Figures:
    """Tokens a second of eight rows, held and free in turn; answers that go on until they are cut."""
    kinds: dict[str, Json] = {"name": {"type": "string", "maxLength": 20}, "size": {"type": "integer"}}
    item: dict[str, Json] = {
        "type": "object",
        "properties": {**kinds, "is_new": {"type": "boolean"}},
        "required": ["name", "size", "is_new"],
        "additionalProperties": False,
    }
    schemas: list[dict[str, Json]] = [
        {"type": "array", "items": {**item, "title": str(number)}, "minItems": 500 + number} for number in range(WIDTH)
    ]
    prompts = [bench.prompt(number) for number in range(WIDTH)]
    grammars = [bench.grammar(schema, prompt) for schema, prompt in zip(schemas, prompts, strict=True)]
    for grammar in grammars:
        await bench.engine.check_grammar(grammar)
    free: list[_Rate] = []
    held: list[_Rate] = []
    for number in range(rounds):
        for rates, asked in ((free, [None] * WIDTH), (held, grammars)):
            rates.append(await _rate(bench, prompts, asked, number))
    shares = [own.tokens_s / other.tokens_s for own, other in zip(held, free, strict=True)]
    costs = [own.cpu_ms / other.cpu_ms for own, other in zip(held, free, strict=True)]
    return {
        "free_tokens_s": median(rate.tokens_s for rate in free),
        "held_tokens_s": median(rate.tokens_s for rate in held),
        "held_to_free": median(shares),
        "held_to_free_worst": min(shares),
        "held_to_free_each": [round(share, 3) for share in shares],
        "free_cpu_ms_a_token": median(rate.cpu_ms for rate in free),
        "held_cpu_ms_a_token": median(rate.cpu_ms for rate in held),
        "held_to_free_cpu": median(costs),
        "width": WIDTH,
    }


@dataclass(frozen=True, slots=True)
class _Rate:
    """Tokens a second, and the engine process' own CPU time for each."""

    tokens_s: float
    cpu_ms: float


def _cpu_s(pid: int) -> float:
    """CPU time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def _rate(bench: Bench, prompts: list[Prompt], grammars: list[Grammar] | list[None], seed: int) -> _Rate:
    begin, cpu_s = time.perf_counter(), _cpu_s(bench.engine.pid)
    answers = await asyncio.gather(
        *(
            _answer(bench, prompt, grammar, seed * WIDTH + at, SPEED_TOKENS)
            for at, (prompt, grammar) in enumerate(zip(prompts, grammars, strict=True))
        )
    )
    count = sum(map(len, answers))
    return _Rate(count / (time.perf_counter() - begin), (_cpu_s(bench.engine.pid) - cpu_s) / count * 1e3)


async def _gaps(bench: Bench) -> Figures:
    """The gaps between the tokens of eight free streams, alone and while large schemas are compiled beside them."""

    async def streams() -> list[float]:
        found: list[float] = []

        async def one(number: int) -> None:
            last = None
            sampling = Sampling(max_tokens=SPEED_TOKENS, seed=number)
            async for _ in bench.engine.generate(bench.prompt(number), sampling, BASE):
                now = time.perf_counter()
                if last is not None:
                    found.append(now - last)
                last = now

        await asyncio.gather(*(one(number) for number in range(WIDTH)))
        return found

    async def compiling() -> list[float]:
        spent = []
        for number in range(6):
            grammar = bench.grammar(_large(number), bench.prompt(0))
            begin = time.perf_counter()
            await bench.engine.check_grammar(grammar)
            spent.append(time.perf_counter() - begin)
        return spent

    alone = await streams()
    task = asyncio.create_task(compiling())
    beside = await streams()
    spent = await task
    return {
        "gap_ms_p99_alone": quantile(alone, 0.99) * 1e3,
        "gap_ms_max_alone": max(alone) * 1e3,
        "gap_ms_p99_beside_compiling": quantile(beside, 0.99) * 1e3,
        "gap_ms_max_beside_compiling": max(beside) * 1e3,
        "large_schema_chars": len(json.dumps(_large(0))),
        "large_compile_ms": median(spent) * 1e3,
    }


def _large(number: int) -> dict[str, Json]:
    ways: list[Json] = [
        {
            "type": "object",
            "properties": {
                "kind": {"const": f"{number}-{way}"},
                **{f"k{way}_{at}": {"type": "string", "pattern": "^[a-z]{1,50}$"} for at in range(30)},
            },
            "required": ["kind", *(f"k{way}_{at}" for at in range(30))],
        }
        for way in range(LARGE)
    ]
    return {"anyOf": ways}


def main() -> None:
    """Prints the figures."""
    warnings.simplefilter("ignore")
    figures = asyncio.run(run())
    figures["conditions"] = conditions("bundled", threads=1, seeds=[0], repeats=1)
    finish(figures)


if __name__ == "__main__":
    main()
