"""What /metrics tells of queues and memory: a gauge for each, from the parts of a real installation."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path

from prometheus_client import CollectorRegistry

from openclaw_rl.collect.stage import CollectSettings
from openclaw_rl.config import Config
from openclaw_rl.core.engine import EngineInfo
from openclaw_rl.core.message import Role, message
from openclaw_rl.core.turn import Arrival, Turn
from openclaw_rl.home.models import model_folder
from openclaw_rl.render.renderer import ChatRenderer
from openclaw_rl.render.template import read_template
from openclaw_rl.runtime.installation import Installation, SharedParts, assembled
from openclaw_rl.runtime.listening import LearningGauges
from openclaw_rl.store.db import Store
from openclaw_rl.testing.judge import ScriptedJudge
from openclaw_rl.testing.trainer import ScriptedTrainer
from openclaw_rl.testing.turns import a_turn

HELD = 300  # tokens: three short turns, each 64 and 16 a message beside its own


@dataclass
class Informed:
    """An engine of which nothing but its description is asked."""

    info: EngineInfo = field(
        default_factory=lambda: EngineInfo("x", "scripted", 0, 512, 1024, (2,), "none", "none", 0, ())
    )


def _installation(home: Path, store: Store) -> Installation:
    folder = model_folder("bundled")
    built = SharedParts(store, ChatRenderer(read_template(folder)), Informed(), ScriptedTrainer(), ScriptedJudge([]))  # type: ignore[arg-type]
    config = Config(home=home, collect=CollectSettings(known_conversations=5, held_tokens=HELD))
    return assembled(config, folder, "key", built)


async def _served(parts: Installation, name: str) -> Turn:
    asked = (message(Role.USER, f"hello {name}"),)
    placement = await parts.collect.place(Arrival(asked, (), {"x-session-id": name}, {}, "owner", 1.0))
    await placement.admit()
    turn = a_turn(name, asked, session=placement.session)
    await parts.collect.commit(turn)
    return turn


async def test_what_is_held_and_queued_is_told_and_stays_within_its_bounds(tmp_path: Path) -> None:
    async with aclosing(await Store.open(tmp_path)) as store:
        parts = _installation(tmp_path, store)
        registry = CollectorRegistry()
        registry.register(LearningGauges(parts))

        def told(name: str) -> float | None:
            return registry.get_sample_value(f"openclaw_rl_{name}")

        for at in range(20):
            await _served(parts, f"talk {at}")
        assert told("collect_conversations_held") == 5
        turns, tokens = told("collect_turns_held"), told("collect_tokens_held")
        assert turns == 3  # of about 90 each
        assert tokens is not None
        assert 240 < tokens <= HELD
        assert told("collect_histories_held") == 0  # every turn was entered
        assert (told("store_writes_waiting"), told("store_reads_waiting")) == (0, 0)
        assert (told("requests_open"), told("requests_turned_away"), told("versions_loaded")) == (0, 0, 0)
        assert told("judge_failures_held") == 0
        long = "a long text " * 200
        parts.renderer.prompt((message(Role.USER, long),), (), None)
        kept = told("render_encoded_chars_held")
        assert kept is not None
        assert kept >= len(long)
        assert told("render_form_chars_held") == 0


async def test_reads_that_wait_are_counted(tmp_path: Path) -> None:
    async with aclosing(await Store.open(tmp_path)) as store:
        reading = store.counts()
        task = asyncio.ensure_future(reading)
        await asyncio.sleep(0)
        assert store.waiting["store_reads_waiting"] == 1
        await task
        assert store.waiting["store_reads_waiting"] == 0
