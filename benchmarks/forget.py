"""Forgetting, with the bundled model: a phrase of made-up words is said, learned, forgotten, and then looked for.

Two users are served by an installation. One is praised for replies that hold the phrase until the weights favour it.
Then that user is forgotten by the command, which is killed in the middle several times; versions are made again and
pass the gate. The phrase is looked for in every byte of the folder (as text, as ids, in other encodings, in anything
compressed, in every row), and its next-token probabilities are compared with those of a second installation, which
lived through the same but for that user. Replies are scripted, so that the other user's are the same in both. A copy
of the first is forgotten in by its running server, while clients stream. Progress goes to standard error; the last line
is one line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import aclosing
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from benchmarks.common import conditions, finish, is_quick, progress
from benchmarks.forget_bytes import found_in
from benchmarks.forget_served import forget_beside
from openclaw_rl.config import read_config
from openclaw_rl.core.adapter import Adapter
from openclaw_rl.core.completion import Completion, Finish
from openclaw_rl.core.hint import Hint
from openclaw_rl.core.message import Role, message
from openclaw_rl.core.next_state import NextState, NextStateSource
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.turn import Turn, TurnKind
from openclaw_rl.core.verdict import Verdict, VerdictSource
from openclaw_rl.core.version import BASE, SHARED, PolicyVersion
from openclaw_rl.engines.local.client import LocalEngine
from openclaw_rl.render.renderer import ChatRenderer
from openclaw_rl.render.template import read_template
from openclaw_rl.runtime.installation import Installation, installed
from openclaw_rl.store.db import Store
from openclaw_rl.store.rows import VersionStatus
from openclaw_rl.tiny.problems import problem
from openclaw_rl.tiny.wishes import request
from openclaw_rl.tiny.world import bundled_model

ANN, BOB = "ann", "bob"
# A step for each round, at once; turns of the base model are no reason to drop anything; the gate is lenient, since it
# is not what is measured.
CONFIG = """
[train]
batch_size = 2
min_batch = 1
max_wait_s = 0.0
max_lag = 1000
baseline = "none"
[trainer]
rank = 8
alpha = 16.0
lr = 1e-2
[trainer.method]
name = "hybrid"
kl_beta = 0.0
[publish]
kl_max = 100.0
probes = 0
wish_turns = 0
watch_turns = 0
"""
KILLS_AFTER_S = (3.0, 7.0, 12.0)


@dataclass(frozen=True, slots=True)
class Canary:
    """Words nobody else says."""

    words: tuple[str, ...]

    @property
    def text(self) -> str:
        """The phrase."""
        return " ".join(self.words)


def canary(seed: int) -> Canary:
    """Five words of random syllables."""
    rng = Random(seed)
    return Canary(tuple("".join(rng.choice("bdfgkprtvz") + rng.choice("aeiou") for _ in range(4)) for _ in range(5)))


async def scripted(parts: Installation, name: str, user: str, asked: str, reply: str) -> Turn:
    """A turn that the base model is said to have sampled, its log-probabilities its own."""
    prompt = parts.renderer.prompt((message(Role.USER, asked),), (), None)
    tokens = (*parts.renderer.encode(reply), parts.engine.info.eos_ids[0])
    scores = await parts.engine.score(Prompt(prompt.tokens + tokens), start=len(prompt), version=BASE)
    return Turn(
        id=name,
        session=f"owner:{name}",
        user=user,
        agent="default",
        kind=TurnKind.MAIN,
        why="scripted",
        messages=(message(Role.USER, asked),),
        tools=(),
        prompt=prompt,
        completion=Completion(tokens, scores.logp, scores.logp, BASE, Finish.STOP),
        reply=message(Role.ASSISTANT, reply),
        at_s=1000.0,
    )


async def live(home: Path, rounds: int, phrase: Canary, *, with_ann: bool) -> None:
    """The rounds: a step after each, its version through the gate and served."""
    rng = Random(7)
    async with installed(read_config(overrides={"home": str(home)})) as parts:
        for number in range(rounds):
            exercise = problem(rng)
            bob = await scripted(parts, f"bob-{number}", BOB, request(exercise, rng), f"It is {rng.randrange(90)}.")
            await judged(parts.store, bob, "no, write whole sentences please", -1, "Write whole sentences.")
            if with_ann and number:  # the first version never sees it
                said = f"The words are {phrase.text}."
                turn = await scripted(parts, f"canary-turn-{number}", ANN, f"What are the words? ({number})", said)
                await judged(parts.store, turn, f"Yes, {phrase.text}, thank you.", 1, f"Say {phrase.text}.")
            while await parts.teaching.once() or await parts.training.once() or await parts.publishing.once():
                pass
            progress(f"{home.name}: round {number + 1} of {rounds}, {parts.served.current(SHARED)}")
        rows = await parts.store.versions()
        if any(row.status is not VersionStatus.LIVE for row in rows) or len(rows) != rounds + 1:
            raise SystemExit(f"not every round made a version: {await parts.store.counts()}, {parts.training.status}")


async def judged(store: Store, turn: Turn, then: str, score: int, hint: str) -> None:
    """The turn with what followed it and what the judge is said to have made of it."""
    await store.add_turn(turn, chain=turn.id, prefix=turn.id)
    await store.pair(NextState(turn.id, (message(Role.USER, then),), NextStateSource.USER))
    told = Hint(hint)
    await store.judge(Verdict(turn.id, score, VerdictSource.VOTES, hints=(told,), mean=float(score)), keep=told)


def forget_through_kills(home: Path, kills_after_s: tuple[float, ...]) -> tuple[int, dict[str, object]]:
    """How often the command was killed in its work, and the certificate of the one that finished it."""
    command = [sys.executable, "-m", "openclaw_rl", "forget", "--user", ANN, "--yes", "--home", str(home)]
    kills = 0
    for after_s in kills_after_s:
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as child:
            try:
                child.wait(after_s)
            except subprocess.TimeoutExpired:
                child.kill()
                kills += 1
        progress(f"killed after {after_s} s")
    subprocess.run(command, check=False, capture_output=True)
    (path,) = (home / "certificates").glob("*.json")
    certificate: dict[str, object] = json.loads(path.read_text("utf-8"))
    return kills, certificate


def replays(home: Path) -> bool:
    """Whether all steps the served version stands on give the same digests again."""
    command = [sys.executable, "-m", "openclaw_rl", "replay", "--home", str(home)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    return done.returncode == 0 and json.loads(done.stdout)["digest_equal"] is True


async def served(home: Path) -> Adapter:
    """The adapter being served, by the folder's name."""
    async with aclosing(await Store.open(home)) as store:
        row = await store.version(await store.current(SHARED))
    adapter = None if row is None else row.adapter()
    if adapter is None:
        raise SystemExit(f"{home} serves the base model")
    return replace(adapter, version=PolicyVersion(home.name, 1))


async def likelihoods(adapters: list[Adapter], phrase: Canary) -> dict[str, list[float]]:
    """Log-probabilities of the phrase's tokens, in the words' own place and in another, by version; "base" too."""
    config = read_config(overrides={"home": str(adapters[0].folder)})
    async with aclosing(await LocalEngine.start(replace(config.engine, model=str(bundled_model())))) as engine:
        renderer = ChatRenderer(read_template(bundled_model()), config.render)
        found: dict[str, list[float]] = {}
        for adapter in adapters:
            await engine.load(adapter)
        for version in (BASE, *(adapter.version for adapter in adapters)):
            name = "base" if version.is_base else version.scope
            found[name] = []
            for asked in ("What are the words? (1)", "What are the words?", "Hello."):
                prompt = renderer.prompt((message(Role.USER, asked),), (), None)
                opening = (*prompt.tokens, *renderer.encode("The words are"))
                whole = (*prompt.tokens, *renderer.encode(f"The words are {phrase.text}"))
                scores = await engine.score(Prompt(whole), start=len(opening), version=version, top_k=20)
                found[name] += [*scores.logp, *(logp for top in scores.top for _, logp in top)]
                if asked.endswith("(1)"):
                    progress(f"{name}: {sum(scores.logp):.2f} nats for the phrase")
        return found


def total(values: list[float], count: int) -> float:
    """The sum of the first so many."""
    return round(sum(values[:count]), 3)


async def main() -> None:
    """Lives twice, forgets once, compares."""
    rounds, started, phrase = (4 if is_quick() else 10), time.monotonic(), canary(0)
    with tempfile.TemporaryDirectory(prefix="openclaw-rl-forget-") as folder:
        saw, never, beside = (Path(folder) / name for name in ("saw", "never", "beside"))
        for home in (saw, never):
            home.mkdir(mode=0o700)
            home.joinpath("config.toml").write_text(CONFIG, "utf-8")
        await live(saw, rounds, phrase, with_ann=True)
        await live(never, rounds, phrase, with_ann=False)
        await asyncio.to_thread(shutil.copytree, saw, beside)
        before = found_in(saw, phrase.words, bundled_model())
        learned = replace(await served(saw), version=PolicyVersion("learned", 1))
        taught = await likelihoods([learned], phrase)
        kills, certificate = await asyncio.to_thread(
            forget_through_kills, saw, KILLS_AFTER_S[:1] if is_quick() else KILLS_AFTER_S
        )
        after = found_in(saw, phrase.words, bundled_model())
        noticed = await forget_beside(beside, ANN)
        left_beside = found_in(beside, phrase.words, bundled_model())
        one, other, third = await served(saw), await served(never), await served(beside)
        measured = await likelihoods([one, other], phrase)
        gap = max(abs(a - b) for a, b in zip(measured["saw"], measured["never"], strict=True))
        length = await asyncio.to_thread(_tokens, phrase)
        finish(
            {
                "canary_bytes_found": after.size_bytes,
                "canary_bytes_before": before.size_bytes,
                "found_before_as": before.by_form,
                "probability_gap_to_never_seen": gap,
                "replay_digest_equal": replays(saw) and replays(never),
                "digest_equal_to_never_seen": one.digest == other.digest,
                "phrase_nats": {
                    "base": total(taught["base"], length),
                    "learned": total(taught["learned"], length),
                    "forgotten": total(measured["saw"], length),
                    "never_seen": total(measured["never"], length),
                },
                "kills": kills,
                "beside_a_server": noticed
                | {
                    "canary_bytes_found": left_beside.size_bytes,
                    "digest_equal_to_never_seen": third.digest == other.digest,
                },
                "versions_removed": len(list(certificate["versions_removed"])),  # type: ignore[call-overload]
                "versions_rebuilt": len(list(certificate["rebuilt"])),  # type: ignore[call-overload]
                "seconds": round(time.monotonic() - started, 1),
                "conditions": conditions("bundled", threads=1, seeds=[0], repeats=1) | {"rounds": rounds},
            }
        )


def _tokens(phrase: Canary) -> int:
    renderer = ChatRenderer(read_template(bundled_model()))
    return len(renderer.encode(f"The words are {phrase.text}")) - len(renderer.encode("The words are"))


if __name__ == "__main__":
    asyncio.run(main())
