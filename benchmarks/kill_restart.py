"""How long the real command takes to listen again after a kill, on a store of many turns, and what that time goes to.

python -m benchmarks.kill_restart
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path
from statistics import median

from safetensors import safe_open

from benchmarks.common import Figures, conditions, finish, is_quick, progress
from benchmarks.http import KEY, bundled_model
from benchmarks.kill_clients import CLIENTS, Target, Told, talk
from benchmarks.kills_real import CONFIG, judging
from openclaw_rl.core.ledger import DropReason
from openclaw_rl.core.message import Role, message
from openclaw_rl.core.next_state import NextState, NextStateSource
from openclaw_rl.core.verdict import Verdict, VerdictSource
from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.store.db import Store
from openclaw_rl.testing.folders import add_version
from openclaw_rl.testing.turns import a_sample, a_turn

TURNS = 20_000
OF_SESSION = 5
OF_STEP = 50  # turns of a version; one session in four was trained on
RANK = 4
LIVES = 7
START_S = 300.0
END_S = 60.0
BUSY_S = 3.0  # the longest a server is asked before it is killed
TEXT = "What is said in a conversation is a few sentences long, and goes on from what was said. "


def main() -> None:
    """Fills a folder, kills, starts again, and prints the figures."""
    figures: Figures = {"restart_s": asyncio.run(measured())}
    figures["conditions"] = conditions("bundled model, real engine; scripted judge", threads=1, seeds=[3], repeats=1)
    finish(figures)


async def measured() -> dict[str, float]:
    """Medians over the starts after a kill, of the parts that a start is made of."""
    turns, lives = (1_000, 2) if is_quick() else (TURNS, LIVES)
    with tempfile.TemporaryDirectory() as place:
        home = Path(place) / "home"
        await lived_in(home, turns)
        async with judging() as url:
            (home / "config.toml").write_text(CONFIG % url, "utf-8")
            found = [await _life(home, random.Random(number)) for number in range(lives + 1)][1:]
        size = (home / "store.db").stat().st_size
    return {
        "turns": turns,
        "store_mb": round(size / 1e6),
        "kills": lives,
        **{f"{name}_p50": round(median(life[name] for life in found), 3) for name in found[0]},
    }


async def _life(home: Path, source: random.Random) -> dict[str, float]:
    """Starts the command, has it asked for a while, kills it; the seconds that its start took, by part."""
    log = home.with_suffix(".log")
    begin = time.time()
    command = ["serve", "--home", str(home), "--port", "0", "--api-key", KEY]
    with log.open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "openclaw_rl", *command, stdout=out, stderr=out, env=_environment()
        )
    try:
        async with asyncio.timeout(START_S):
            while not (found := re.search(r"at (http://\S+)/v1", log.read_text("utf-8", "replace"))):
                if process.returncode is not None:
                    raise RuntimeError(f"the server did not come up: {log.read_text('utf-8', 'replace')[-2000:]}")
                await asyncio.sleep(0.005)
        parts = _parts(log.read_text("utf-8", "replace"), begin, time.time(), cpu_s(process.pid))
        progress(f"{ {name: round(value, 3) for name, value in parts.items()} }")
        target, told = Target(found[1]), Told()
        async with asyncio.TaskGroup() as group:
            for client in range(CLIENTS):
                group.create_task(talk(client, f"restart {source.random()}", target, told))
            await asyncio.sleep(1.0 + source.random() * (BUSY_S - 1.0))
            target.is_over, target.url = True, None
            process.kill()
    finally:
        if process.returncode is None:
            process.kill()
        async with asyncio.timeout(END_S):
            await process.wait()
    return parts


def _parts(log: str, begin: float, end: float, cpu_s: float) -> dict[str, float]:
    """What the log says of a start. The model is loaded by a process of its own, beside which others may work."""
    first = re.search(r"^(\S+ \S+) INFO \S+ starting ", log, re.MULTILINE)
    store, engine = (re.search(rf" opened {name} seconds=(\S+)", log) for name in ("store", "engine"))
    assert first is not None and store is not None and engine is not None
    total, model = end - begin, float(engine[1])
    started = datetime.strptime(first[1], "%Y-%m-%d %H:%M:%S,%f").timestamp()
    return {
        "whole": total,
        "without_model": total - model,
        "interpreter_and_imports": started - begin,
        "store_open": float(store[1]),
        "model_load": model,
        "rest": total - model - float(store[1]) - (started - begin),
        "computed_by_server": cpu_s,
    }


def cpu_s(pid: int) -> float:
    """Seconds that a process has computed, its children not counted."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _environment() -> dict[str, str]:
    """As people start it: compiled modules are kept."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


async def lived_in(home: Path, turns: int, *, of_step: int = OF_STEP) -> None:
    """A folder with so many turns, a quarter of them trained on, the others dropped, and the versions made of those."""
    store = await Store.open(home)
    trained: list[str] = []
    for first in range(0, turns // OF_SESSION, 50):
        async with asyncio.TaskGroup() as group:
            for session in range(first, min(first + 50, turns // OF_SESSION)):
                group.create_task(_session(store, session, trained if session % 4 == 0 else None))
    for number, at in enumerate(range(0, len(trained), of_step), start=1):
        await add_version(store, home, number, _write_adapter, tuple(trained[at : at + of_step]))
    await store.aclose()


async def _session(store: Store, session: int, trained: list[str] | None) -> None:
    said = [message(Role.SYSTEM, TEXT * 4)]
    for number in range(OF_SESSION):
        name, reply = f"turn-{session}-{number}", f"Answer {session} {number}. {TEXT * 3}"
        said.append(message(Role.USER, f"Question {session} {number}? {TEXT * 2}"))
        turn = a_turn(name, tuple(said), reply, session=f"key:s{session}", at_s=1e9 + session)
        said.append(turn.reply)
        await store.add_turn(turn, chain=name, prefix=f"before {name}")
        await store.pair(NextState(name, (message(Role.USER, "And now?"),), NextStateSource.USER))
        await store.judge(Verdict(name, 1, VerdictSource.VOTES))
        if trained is None:
            await store.drop(name, DropReason.NO_SIGNAL)
        else:
            await store.admit(a_sample(turn))
            trained.append(name)
    await store.end_session(f"key:s{session}", why="idle", at_s=1e9 + session)


def _write_adapter(folder: Path, version: PolicyVersion) -> None:
    """LoRA weights for the bundled model that change nothing."""
    import torch

    from openclaw_rl.trainers import checkpoint

    model = bundled_model()
    assert model is not None
    weights: dict[str, torch.Tensor] = {}
    with safe_open(model / "model.safetensors", "pt") as held:
        for name in held.keys():  # noqa: SIM118  no mapping
            if name.endswith("_proj.weight"):
                out, into = held.get_slice(name).get_shape()
                path = f"base_model.model.{name.removesuffix('.weight')}"
                weights[f"{path}.lora_A.weight"] = torch.full((RANK, into), 0.01)
                weights[f"{path}.lora_B.weight"] = torch.zeros(out, RANK)
    state = {f"moment.{name}": tensor * 0.0 for name, tensor in weights.items()}
    targets = sorted({name.split(".lora_")[0].rpartition(".")[2] for name in weights})
    config = checkpoint.lora_config("bundled", targets, rank=RANK, alpha=float(RANK))
    checkpoint.write(folder, checkpoint.Checkpoint(weights, state, version.number, version), config, {})


if __name__ == "__main__":
    main()
