"""A model server as vLLM speaks, with this project's own engine behind it: what `benchmarks.cluster` places on nodes.

Started as vLLM is: `python -m benchmarks.cluster_server --model FOLDER --host A --port N`, its key in VLLM_API_KEY.
Where OPENCLAW_RL_TEST_PIDS names a file, each start adds a line with its process id.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from aiohttp import web

from openclaw_rl.engines.local.client import LocalEngine
from openclaw_rl.engines.remote.model import text_ids
from openclaw_rl.engines.settings import EngineSettings
from openclaw_rl.testing.counting_vllm import PIDS
from openclaw_rl.testing.model_servers import ModelServer, vllm_app


async def main() -> None:
    """Serves until it is ended."""
    given = {name: sys.argv[at + 1] for at, name in enumerate(sys.argv[:-1]) if name.startswith("--")}
    model = Path(given["--model"])
    if PIDS in os.environ:
        with open(os.environ[PIDS], "a", encoding="utf-8") as file:  # noqa: ASYNC230
            print(os.getpid(), file=file)
    engine = await LocalEngine.start(EngineSettings(model=str(model), device="cpu", max_versions=16))
    context = engine.info.context_length
    server = ModelServer(engine, lambda text: list(text_ids(model, text)), context, key=os.environ["VLLM_API_KEY"])
    runner = web.AppRunner(vllm_app(server), access_log=None)
    await runner.setup()
    await web.TCPSite(runner, given["--host"], int(given["--port"])).start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
