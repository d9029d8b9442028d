"""One attempt of mini-swe-agent at a task, in an environment of its own: URL KEY TASKS STEPS TOKENS.

Prints one line of JSON. Runs where mini-swe-agent is installed; our package is found over PYTHONPATH.
"""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import aclosing
from pathlib import Path

from openclaw_rl.envs.box.probe import open_boxes
from openclaw_rl.envs.bridges.mini_swe import MiniSweEndpoint, MiniSweLimits, run_mini_swe
from openclaw_rl.envs.tasks.sources import find_sources


async def main() -> None:
    """One attempt."""
    url, key, folder, steps, tokens = sys.argv[1:]
    (source,) = find_sources(Path(folder))
    task = next(iter(source.tasks.values()))
    async with aclosing(await open_boxes()) as boxes:
        box = await source.start(task, boxes)
        assert box is not None
        endpoint = MiniSweEndpoint(url, key, parameters={"max_tokens": int(tokens)})
        limits = MiniSweLimits(steps=int(steps), seconds=300, command_s=20.0)
        run = await run_mini_swe(source, task, box, endpoint=endpoint, limits=limits)
        score = run.score
        told = {"episode": run.episode, "exit_status": run.exit_status, "calls": run.calls, "reward": score.reward}
        print(json.dumps({**told, "failure": score.failure, "details": score.details, "parts": dict(score.components)}))


asyncio.run(main())
