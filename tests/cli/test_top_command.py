"""`openclaw-rl top`: the first view of the page in a terminal, from a real server's answer."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from contextlib import aclosing
from functools import partial
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from openclaw_rl.cli import app
from openclaw_rl.cli.top import shown
from openclaw_rl.core.message import Json
from openclaw_rl.errors import ConfigError
from openclaw_rl.home.folder import Address, kept_key, note_address
from openclaw_rl.store.db import Store

sys.path.append(str(Path(__file__).parent.parent / "serve"))
from serve_doubles import a_renderer, serving

VERSION: dict[str, Json] = {
    "version": "shared.1",
    "status": "live",
    "is_current": True,
    "made_at": 1e9,
    "learned": ["Write plain sentences."],
    "from": {"corrected": 1},
    "why": "passed the gate",
}
FOUND: dict[str, Json] = {
    "headline": "Yes. It has learned 1 wish.",
    "story": "9 main turns",
    "diagnosis": [
        {"level": "mend", "stage": "judge", "said": "the judge [x] does not answer", "fix": "start it"},
        {"level": "ok", "stage": "learn", "said": "turns are learned from", "fix": ""},
    ],
    "learned": [{"words": "No markdown!", "learned_at": 1e9, "version": "shared.1", "since": 31, "again": 0}],
    "weeks": [{"begin": 0.0, "judged": 4, "corrected": 4}, {"begin": 1.0, "judged": 8, "corrected": 1}],
    "asked_twice": {"again": 1, "of": 5},
    "ledger": {"served": 2, "paired": 0, "judged": 0, "ready": 0},
    "doing": "",
    "why_waiting": "no sample is ready",
    "versions": [
        VERSION,
        {**VERSION, "version": "shared.2", "status": "refused", "is_current": False, "why": "too far"},
        {**VERSION, "version": "shared.3", "learned": [], "from": {"praised": 4}},
    ],
    "spent": {"steps": 3, "seconds": 12.0, "tokens": 4096},
}


def printed(found: Mapping[str, Json]) -> str:
    out = StringIO()
    Console(file=out, width=140).print(shown(found))
    return out.getvalue()


def test_it_says_what_was_learned_whether_it_held_and_what_to_mend() -> None:
    text = printed(FOUND)
    assert "“No markdown!”" in text and "31 of 31" in text and "shared.1" in text
    assert "the judge [x] does not answer" in text and "start it" in text and "turns are learned from" not in text
    assert "|█▁|, in the last seven days 1 of 8; asked for more than once: 1 of 5" in text
    assert "no step now: no sample is ready (waiting: 2 served)" in text
    assert "It has learned 1 wish" in text and "9 main turns" in text and "4 praised" in text
    assert "too far" in text and "3 steps, 12 s, 4,096 tokens" in text
    assert "30 of 31" in printed({**FOUND, "learned": [{**_learned(), "again": 1}]})


def _learned() -> dict[str, Json]:
    rows = FOUND["learned"]
    assert isinstance(rows, list) and isinstance(rows[0], dict)
    return rows[0]


def test_before_anything_was_learned_it_says_that() -> None:
    assert "nothing was learned yet" in printed({**FOUND, "learned": []})


@pytest.mark.parametrize("options", [[], ["--once"], ["--json"]])
def test_without_a_server_it_says_so_and_ends(tmp_path: Path, options: list[str]) -> None:
    async def stored() -> None:
        await (await Store.open(tmp_path)).aclose()

    asyncio.run(stored())
    done = CliRunner().invoke(app, ["top", "--home", str(tmp_path), *options], catch_exceptions=False)
    assert done.exit_code == 0 and "no server runs on" in done.output


@pytest.mark.parametrize(
    ("options", "environment", "said"),
    [
        (["--api-key", "secret"], {}, ""),
        ([], {"SGLANG_API_KEY": "secret"}, ""),
        (["--api-key", "wrong"], {}, "does not take the API key that was given"),
        ([], {}, "uses another API key than the one in its home folder"),
    ],
)
async def test_a_server_that_was_started_with_another_key_is_asked_with_the_one_given(
    tmp_path: Path, options: list[str], environment: dict[str, str], said: str
) -> None:
    kept_key(tmp_path)
    async with aclosing(await Store.open(tmp_path)) as store, serving(a_renderer(), store) as server:
        # its owner's key is `secret`
        note_address(tmp_path, Address(server.url, os.getpid()))
        asked = partial(CliRunner().invoke, app, ["top", "--home", str(tmp_path), "--json", "--once", *options])
        done = await asyncio.to_thread(asked, env={"SGLANG_API_KEY": None, **environment})
    if said:
        assert isinstance(done.exception, ConfigError) and said in str(done.exception)
        assert "Give --api-key, or set SGLANG_API_KEY" in str(done.exception)
    else:
        assert done.exit_code == 0, done.exception
        assert json.loads(done.output)["learned"] == []
