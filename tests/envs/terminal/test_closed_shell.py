"""A shell that was closed has left no process to its event loop, which a command closes right afterwards."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from openclaw_rl.envs.box.plain import PlainBoxes
from openclaw_rl.envs.box.sandbox import BoxSpec


def test_the_process_of_a_closed_shell_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[asyncio.subprocess.Process] = []
    make = asyncio.create_subprocess_exec

    async def noted(*words: str, **how: object) -> asyncio.subprocess.Process:
        process = await make(*words, **how)
        started.append(process)
        return process

    async def closed() -> list[int | None]:
        async with aclosing(PlainBoxes.open()) as boxes:
            box = await boxes.create(BoxSpec())
            shell = await box.open_shell()
            assert (await shell.run("echo on", timeout_s=60)).output.text == "on\n"
            await shell.aclose()
            return [process.returncode for process in started]

    monkeypatch.setattr(asyncio, "create_subprocess_exec", noted)
    codes = asyncio.run(closed())
    assert codes
    assert None not in codes
