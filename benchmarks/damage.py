"""`make bench-damage`: damaged and badly taught versions beside good ones, at the real gate, on several models.

Versions are made in a second each (damage_made.py), and with `--kinds learned` by the product's own demonstrations and
trainer, each from the first correction of a user who has asked other things before. They are labelled by what they lose
on held-out problems and not by how they were made (damage_labels.py), and then tried by the gate as it is, with a real
store and a real engine. What was done is kept under build/damage and not done again. The gate's bounds were set on the
bundled model with seeds below 1000; the versions here have others. The last line is one line of JSON.

python -m benchmarks.damage [--models bundled ...] [--seeds 1000 ...] [--kinds good learned ...] [--again]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

from benchmarks import damage_fields
from benchmarks.common import Figures, conditions, finish, is_quick, progress
from benchmarks.damage_fields import Field, WishOfField
from benchmarks.damage_labels import Labels, label
from benchmarks.damage_made import EDITS, Maker, Spec
from benchmarks.first_steps import Ground, demonstrated
from openclaw_rl.core.adapter import Adapter, digest_of_folder
from openclaw_rl.core.completion import Finish, completion_of
from openclaw_rl.core.hint import Hint
from openclaw_rl.core.message import Role, message
from openclaw_rl.core.sample import HintPrompt, Sample
from openclaw_rl.core.sampling import Sampling
from openclaw_rl.core.turn import Turn, TurnKind
from openclaw_rl.core.version import BASE, SHARED, PolicyVersion
from openclaw_rl.engines.local.client import LocalEngine
from openclaw_rl.engines.settings import EngineSettings
from openclaw_rl.publish.gate import Gate
from openclaw_rl.publish.settings import PublishSettings
from openclaw_rl.store.db import Store
from openclaw_rl.store.rows import StepRecord, VersionRow, VersionStatus
from openclaw_rl.trainers.lora import LoraTrainer
from openclaw_rl.trainers.settings import TrainerSettings

ROOT = Path("build/damage")
TURNS, OTHERS, TAUGHT = 22, 2, 2  # of the user; of somebody else on kinds never corrected; that were corrected
BEFORE = 12  # requests of a user, of which one is corrected
WISHES = 3  # of each model: each costs two hundred replies to label by
Json = dict[str, object]


def specs(field: Field, seeds: list[int]) -> Iterator[Spec]:
    """Versions of every kind; which of them are damaged is measured, not known."""
    wishes = range(min(len(field.wishes) - 1, WISHES))
    for seed in seeds:
        if seed == seeds[0]:
            yield Spec("base", None, seed)
        for at, noise in enumerate((0.1, 0.3, 0.5, 0.7, 1.3, 1.6, 2.0)):
            yield Spec("noise", None, seed + at, noise=noise)
        for wish in (*wishes, len(field.wishes) - 1):
            for at, (updates, lr, prompts) in enumerate(
                ((3, 1e-3, 8), (6, 1e-3, 8), (8, 1e-3, 12), (12, 5e-4, 16), (10, 1e-3, 8), (9, 8e-4, 6))
            ):
                yield Spec("good", wish, seed + 10 + at, prompts, updates, lr)
        for wish in wishes[:3]:
            for at, (updates, lr, prompts) in enumerate(((16, 3e-3, 1), (10, 1e-2, 8), (14, 1e-2, 4), (6, 3e-2, 4))):
                yield Spec("fast", wish, seed + 20 + at, prompts, updates, lr)
        for number, kind in enumerate(EDITS):
            for at, (updates, lr, share) in enumerate(((12, 2e-3, 1.0), (10, 2e-3, 0.5), (12, 2e-3, 0.25))):
                yield Spec(kind, (number + at) % len(wishes), seed + 30 + at, 8, updates, lr, share)
        for wish in range(len(field.wishes) - 1):
            yield Spec("learned", wish, seed + 40, prompts=1)


async def learn(maker: Maker, engine: LocalEngine, spec: Spec, wish: WishOfField, folder: Path) -> bool:
    """Writes what the product learns when a reply is corrected with this wish, after some other requests of its user.

    False if there was nothing to learn: the hint had no effect on the reply.
    """
    ground = Ground(maker.field.folder, engine)
    asked = maker.field.some(f"learned {spec.name}", BEFORE, held_out=False, is_rare=False)
    corrected = next((one for one in asked if wish.kind in ("", one.kind)), asked[0])
    turn = await ground.turn(corrected.text, spec.seed)
    before = [
        replace(await ground.turn(one.text, spec.seed), id=f"before-{at}")
        for at, one in enumerate(asked)
        if one is not corrected
    ]
    sample = await demonstrated(ground, turn, wish.hint, wish.hint, before=before)
    if not sample.hints:
        return False
    trainer = LoraTrainer.open(maker.field.folder, TrainerSettings())
    report = await asyncio.to_thread(trainer.step, [sample])
    trainer.export(folder, PolicyVersion(SHARED, 1))
    _step_of(folder).write_text(json.dumps(dict(report.metrics)), encoding="utf-8")
    return True


def _step_of(folder: Path) -> Path:
    """The file with what the step that made a version measured, which the gate knows, too."""
    return folder.with_name(f"{folder.name}.step.json")


@dataclass(slots=True)
class Trial:
    """One wish of one model: a store in which its user has talked, an engine, the gate, and how to label versions."""

    gate: Gate
    engine: LocalEngine
    labels: Labels
    number: int = 0

    async def tried(self, folder: Path) -> Json:
        """What the gate says of a version."""
        self.number += 1
        version, digest = PolicyVersion(SHARED, self.number), digest_of_folder(folder)
        await self.engine.load(Adapter(folder, digest, version))
        began = time.monotonic()
        turns = tuple(f"taught-{at}" for at in range(TAUGHT)) if self.labels.wish is not None else ()
        step = _step_of(folder)
        metrics = json.loads(step.read_text("utf-8")) if step.exists() else {}
        row = VersionRow(
            version, PolicyVersion(SHARED, 0), None, digest, VersionStatus.CANDIDATE, "", 1.0, turns, metrics=metrics
        )
        report = await self.gate.check(row, parent=BASE)
        await self.engine.unload(version)
        seconds = round(time.monotonic() - began, 2)
        return {"passed": report.passed, "why": report.why, "metrics": dict(report.metrics), "seconds": seconds}


@asynccontextmanager
async def trial(maker: Maker, engine: LocalEngine, wish: WishOfField | None) -> AsyncIterator[Trial]:
    """The store of a user who has talked with the base model and wishes for this."""
    with tempfile.TemporaryDirectory(prefix="openclaw-rl-damage-") as home:
        store = await Store.open(Path(home))
        try:
            asked = maker.field.some("asked", TURNS + TAUGHT, held_out=False, is_rare=False)
            other = maker.field.some("asked by others", OTHERS, held_out=False, is_rare=True)
            for at, one in enumerate(other):
                await store.add_turn(await _turn(maker, engine, f"other-{at}", "ben", one.text), chain=f"other-{at}")
            for at, one in enumerate(asked):
                name = f"taught-{at}" if at < TAUGHT else f"asked-{at}"
                turn = await _turn(maker, engine, name, "ann", one.text)
                await store.add_turn(turn, chain=name)
                if at < TAUGHT and wish is not None:
                    await _teach(store, maker, turn, one.text, wish)
            for at, hint in enumerate(() if wish is None else (*wish.earlier, wish.hint)):
                await store.hints.adopt("ann", Hint(hint), at_s=1.0 + at)
            ends = maker.renderer.ends(engine.info.eos_ids)
            gate = Gate(store, engine, maker.renderer, ends, PublishSettings())
            yield Trial(gate, engine, Labels.of(maker, wish))
        finally:
            await store.aclose()


async def _turn(maker: Maker, engine: LocalEngine, name: str, user: str, text: str) -> Turn:
    said = (message(Role.USER, text),)
    prompt = maker.renderer.prompt(said, (), None)
    sampling = Sampling(max_tokens=160, temperature=0.7, seed=1, stop_ids=maker.ends)
    sampled = [item async for item in engine.generate(prompt, sampling, BASE)]
    reply, _ = maker.renderer.decode([item.token for item in sampled])
    completion = completion_of(sampled, BASE, sampled[-1].finish or Finish.STOP)
    return Turn(name, f"s-{name}", user, "main", TurnKind.MAIN, "asked", said, (), prompt, completion, reply, 1.0)


async def _teach(store: Store, maker: Maker, turn: Turn, text: str, wish: WishOfField) -> None:
    """The sample that a correction of this turn makes."""
    from openclaw_rl.core.next_state import NextState, NextStateSource
    from openclaw_rl.core.verdict import Verdict, VerdictSource

    await store.pair(NextState(turn.id, (message(Role.USER, wish.hint),), NextStateSource.USER))
    await store.judge(Verdict(turn.id, -1, VerdictSource.VOTES, hints=(Hint(wish.hint),)))
    said = turn.completion
    await store.admit(
        Sample(
            turn.id, turn.session, turn.user, turn.prompt.tokens, said.tokens, said.logp, (True,) * len(said.tokens),
            BASE, -1.0, hints=(HintPrompt(wish.told, maker.prompt(text, wish.told)),),
        )
    )  # fmt: skip
    await store.commit_step(StepRecord(turn.id, 0.0, 1.0, (turn.id,), (), {}, None))


def chosen(field: Field, seeds: list[int], most: int, kinds: list[str]) -> list[Spec]:
    """All versions of these kinds (of all that are made here if none is named), or so many spread over them.

    Of those, two in three are good ones.
    """
    found = [spec for spec in specs(field, seeds) if (spec.kind in kinds if kinds else spec.kind != "learned")]
    if not most or most >= len(found):
        return found
    order = sorted(found, key=lambda spec: Random(spec.name).random())
    good = [spec for spec in order if spec.kind in ("base", "good")]
    other = [spec for spec in order if spec not in good]
    part = (2 * most + 2) // 3
    names = {spec.name for spec in (*good[:part], *other[: most - part])}
    return [spec for spec in found if spec.name in names]


async def measured(field: Field, specs: list[Spec], *, again: bool) -> list[Json]:
    """Every version of a model, those done before read from disk."""
    folder = ROOT / field.name
    folder.mkdir(parents=True, exist_ok=True)
    known = _read(folder / "tried.jsonl")
    found: list[Json] = []
    open_ones = [spec for spec in specs if again or spec.name not in known]
    found += [known[spec.name] for spec in specs if spec not in open_ones]
    if not open_ones:
        return found
    maker = Maker.open(field)
    labels = _read(folder / "labels.jsonl")
    engine = await LocalEngine.start(EngineSettings(model=str(field.folder)))
    try:
        for wish in sorted({spec.wish for spec in open_ones}, key=str):
            async with trial(maker, engine, None if wish is None else field.wishes[wish]) as at:
                for spec in [spec for spec in open_ones if spec.wish == wish]:
                    found.append(await _one(folder, at, spec, labels))
                    progress(f"{field.name} {len(found)}: {_line(found[-1])}")
    finally:
        await engine.aclose()
    return found


async def _one(folder: Path, at: Trial, spec: Spec, labels: dict[str, Json]) -> Json:
    weights = folder / "versions" / spec.name
    maker = at.labels.maker
    if not (weights / "adapter_model.safetensors").exists():
        if spec.kind == "learned":
            assert at.labels.wish is not None
            if not await learn(maker, at.engine, spec, at.labels.wish, weights):
                nothing: Json = {"name": spec.name, "kind": spec.kind}
                _write(folder / "tried.jsonl", nothing)
                return nothing
        else:
            maker.make(spec)
            maker.save(weights)
    if spec.name not in labels:
        maker.read(weights)
        labels[spec.name] = {"name": spec.name, "kind": spec.kind, "losses": at.labels.losses()}
        _write(folder / "labels.jsonl", labels[spec.name])
    result = labels[spec.name] | await at.tried(weights)
    _write(folder / "tried.jsonl", result)
    return result


def _line(one: Json) -> str:
    if "losses" not in one:
        return f"{one['name']}: nothing was learned"
    losses = one["losses"]
    assert isinstance(losses, dict)
    return f"{one['name']} {label(losses)} {losses}: {'passed' if one['passed'] else one['why']} in {one['seconds']} s"


def _read(path: Path) -> dict[str, Json]:
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    return {str(one["name"]): one for one in map(json.loads, lines)}


def _write(path: Path, one: Json) -> None:
    with path.open("a", encoding="utf-8") as out:
        out.write(json.dumps(one) + "\n")


@dataclass(slots=True)
class Figured:
    """Counts over all versions, by model and kind too."""

    counts: Counter[str] = field(default_factory=Counter)
    by: dict[str, Counter[str]] = field(default_factory=dict)
    missed: list[str] = field(default_factory=list)
    alarms: list[str] = field(default_factory=list)

    def enter(self, model: str, one: Json) -> None:
        """One version, or none if nothing was learned."""
        if "losses" not in one:
            self.counts["nothing_learned"] += 1
            return
        losses, passed = one["losses"], bool(one["passed"])
        assert isinstance(losses, dict)
        what = label(losses)
        keys = {
            "damaged": ("damaged", "caught"),
            "good": ("good", "refused"),
            "between": ("between", "between_refused"),
        }
        made, stopped = keys[what]
        for counter in (
            self.counts,
            *(self.by.setdefault(name, Counter()) for name in (model, f"{model} {one['kind']}")),
        ):
            counter[made] += 1
            counter[stopped] += not passed
        if what == "damaged" and passed:
            self.missed.append(f"{model} {one['name']} {losses}")
        if what == "good" and not passed:
            self.alarms.append(f"{model} {one['name']}: {one['why']}")


async def run(models: list[str], seeds: list[int], *, most: int, kinds: list[str], again: bool) -> Figures:
    """All models, one after the other."""
    figured, seconds = Figured(), list[float]()
    for name in models:
        held = damage_fields.named(name)
        for one in await measured(held, chosen(held, seeds, most, kinds), again=again):
            figured.enter(held.name, one)
            seconds += [float(str(one["seconds"]))] if "seconds" in one else []
    counts = {
        name: figured.counts[name]
        for name in ("damaged", "caught", "good", "refused", "between", "between_refused", "nothing_learned")
    }
    return {
        **counts,
        "by": {name: dict(counter) for name, counter in figured.by.items()},
        "missed": figured.missed,
        "false_alarms": figured.alarms,
        "gate_seconds_mean": round(sum(seconds) / len(seconds), 2),
    }


def main() -> None:
    """Runs what was not done yet and prints the figures."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--models", nargs="*", default=["bundled"])
    options.add_argument("--seeds", type=int, nargs="*", default=[1000] if is_quick() else [1000, 2000])
    options.add_argument("--most", type=int, default=0, help="versions of each model; 0 for all")
    options.add_argument(
        "--kinds", nargs="*", default=[], help="base good fast short ... learned; all but learned by default"
    )
    options.add_argument("--again", action="store_true", help="the gate tries all versions anew; labels stay")
    given = options.parse_args()
    found = asyncio.run(run(given.models, given.seeds, most=given.most, kinds=given.kinds, again=given.again))
    finish({**found, "conditions": conditions(", ".join(given.models), threads=1, seeds=given.seeds, repeats=1)})


if __name__ == "__main__":
    main()
