"""A model whose tokenizer alone says how its replies end: served, they end; one that says it nowhere is not served."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from flow_parts import KEY, Served, start
from openai import AsyncOpenAI

from openclaw_rl.doctor.report import examine
from openclaw_rl.tiny.world import bundled_model


def without_ends(to: Path, *files: str) -> Path:
    """The bundled model, the end of a reply taken out of some of its files."""
    folder = shutil.copytree(bundled_model(), to)
    for file in files:
        body = json.loads((folder / file).read_text("utf-8"))
        body = {name: value for name, value in body.items() if name not in ("eos_token_id", "eos_token")}
        (folder / file).write_text(json.dumps(body), "utf-8")
    return folder


@pytest.mark.parametrize("silent", [(), ("tokenizer_config.json",)], ids=["tokenizer", "template"])
async def test_replies_end_though_no_configuration_says_how(
    tmp_path: Path, running: list[Served], silent: tuple[str, ...]
) -> None:
    folder = without_ends(tmp_path / "model", "config.json", "generation_config.json", *silent)
    running.append(server := start(tmp_path / "home", config=f'model = "{folder}"\n'))
    async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key=KEY, max_retries=0) as client:
        reply = await client.chat.completions.create(
            model="default",
            messages=[{"role": "user", "content": "Tom has 2 nuts and finds 5. How many?"}],
            max_tokens=200,
        )
    assert reply.choices[0].finish_reason == "stop"


async def test_a_model_that_says_nowhere_how_a_reply_ends_is_refused_before_it_is_loaded(tmp_path: Path) -> None:
    files = ("config.json", "generation_config.json", "tokenizer_config.json")
    folder = without_ends(tmp_path / "model", *files)
    template = folder / "chat_template.jinja"
    template.write_text(template.read_text("utf-8").replace("<|im_end|>", ""), "utf-8")
    home = tmp_path / "home"
    command = [sys.executable, "-m", "openclaw_rl", "serve", "--home", str(home), "--model", str(folder), "--port", "0"]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    assert "replies would never end" in done.stderr and "what to do:" in done.stderr
    (home / "config.toml").write_text(f'model = "{folder}"\n', "utf-8")
    report = await examine(home)
    assert any("replies would never end" in item.said for item in report.findings)
