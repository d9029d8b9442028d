"""Learning that breaks breaks nothing else: a table is taken from under a running server, and put back."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from flow_parts import FORKED, KEY, Judging, Served, start
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionMessageParam
from test_loop import ledger, say, until

pytestmark = pytest.mark.usefixtures("forked_trainers")


def renamed(home: Path, old: str, new: str) -> None:
    """Another name for a table."""
    with closing(sqlite3.connect(home / "store.db", timeout=10)) as sql:
        sql.execute(f"ALTER TABLE {old} RENAME TO {new}")


async def test_answers_are_given_while_training_breaks_and_it_goes_on_by_itself(
    tmp_path: Path, judging: Judging, running: list[Served]
) -> None:
    config = f'{FORKED}url = "{judging.url}"\nmodel = "rule"\n[publish]\ngate = false\n'
    running.append(server := start(tmp_path / "home", config=config))
    renamed(server.home, "steps", "taken_away")
    messages: list[ChatCompletionMessageParam] = []
    async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key=KEY, max_retries=0) as client:
        for name in ("Mia", "Tom", "Ben", "Zoe"):  # replies are sampled: some correction may have no effect on one
            messages = [{"role": "user", "content": f"{name} has 3 pens and 4 more. How many?"}]
            for words in ("Please write that without markdown.", "Please write it like a person.", "Thanks!"):
                await say(client, messages)
                messages.append({"role": "user", "content": words})
        broken = await until(
            lambda: server.get("/v1/rl/status"), lambda seen: "no such table: steps" in json.dumps(seen["problems"])
        )
        assert "it broke once" in json.dumps(broken["warnings"])
        assert (await say(client, messages))[0]
    assert ledger(broken)["trained"] == 0
    renamed(server.home, "taken_away", "steps")
    await until(lambda: server.get("/v1/rl/status"), lambda seen: ledger(seen)["trained"] > 0)
    assert server.end() == 0
