"""Servers that are started here: real processes that speak as vLLM does, killed and started again."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import openclaw_rl
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.sampling import Sampling
from openclaw_rl.core.version import BASE, SHARED, PolicyVersion
from openclaw_rl.engines.remote.client import RemoteEngine
from openclaw_rl.engines.remote.model import adapted_modules
from openclaw_rl.engines.remote.replica import new_launch
from openclaw_rl.engines.remote.vllm import Vllm
from openclaw_rl.engines.settings import EngineKind, EngineSettings, RemoteSettings
from openclaw_rl.home.models import model_folder
from openclaw_rl.testing.folders import an_adapter
from openclaw_rl.testing.ray_nodes import is_alive

MODEL = model_folder("bundled")
PROMPT = Prompt((5, 9, 12, 30, 41))
# Called as a Python would be. What computes is a process of its own, as vLLM's is, and does not notice a killed server.
SERVER = """#!{python}
import os, signal, subprocess, sys
sys.path.insert(0, {source!r})
from pathlib import Path
from aiohttp import web
from openclaw_rl.engines.remote.model import text_ids
from openclaw_rl.testing.engine import ScriptedEngine
from openclaw_rl.testing.model_servers import ModelServer, vllm_app

computes = subprocess.Popen(["sleep", "600"])
with open({pids!r}, "a") as file:
    print(os.getpid(), computes.pid, file=file)
counting = lambda prompt, sampling, version: [prompt.tokens[-1] + 1 + at for at in range(sampling.max_tokens)]
engine = ScriptedEngine(counting, context_length=513, gap_s=0.02)
cut = lambda text: list(text_ids(Path(sys.argv[sys.argv.index("--model") + 1]), text))
server = ModelServer(engine, cut, 513, key=os.environ["VLLM_API_KEY"])
running = set()

@web.middleware
async def dies_of_scores(request, handler):
    # as release 0.32.0 does where a score and another request share a batch and lm_head may have adapters
    if request.path == "/v1/completions":
        if "prompt_logprobs" in await request.json() and running and "--lora-target-modules" not in sys.argv:
            os._exit(1)
        running.add(id(request))
    try:
        return await handler(request)
    finally:
        running.discard(id(request))

app = vllm_app(server)
app.middlewares.append(dies_of_scores)
try:
    port = int(sys.argv[sys.argv.index("--port") + 1])
    web.run_app(app, host="127.0.0.1", port=port, print=None)
finally:
    computes.kill()
"""


@asynccontextmanager
async def launched(folder: Path) -> AsyncIterator[tuple[RemoteEngine, Path]]:
    """An engine on a server of its own, and the file with a line of process ids for each start of it."""
    python, pids = folder / "python", folder / "pids"
    source = str(Path(openclaw_rl.__file__).parents[1])
    python.write_text(SERVER.format(python=sys.executable, source=source, pids=str(pids)))
    python.chmod(0o755)
    remote = RemoteSettings(python=str(python), check_s=0.05, start_s=30)
    engine = await RemoteEngine.start(EngineSettings(kind=EngineKind.VLLM, remote=remote), MODEL, rank=4)
    try:
        yield engine, pids
    finally:
        await engine.aclose()


def started(pids: Path) -> list[list[int]]:
    return [[int(pid) for pid in line.split()] for line in pids.read_text().splitlines()]


async def test_an_answer_outlives_a_killed_server_and_what_computed_for_it_is_ended(tmp_path: Path) -> None:
    async with launched(tmp_path) as (engine, pids):
        for number in (1, 2):
            await engine.load(an_adapter(tmp_path, number))
        tokens: list[int] = []
        async for token in engine.generate(PROMPT, Sampling(40), PolicyVersion(SHARED, 2)):
            tokens.append(token.token)
            if len(tokens) == 10:
                os.kill(started(pids)[0][0], signal.SIGKILL)
        assert tokens == list(range(42, 82))
        old, new = started(pids)
        assert not any(map(is_alive, old)) and all(map(is_alive, new))
        stats = await engine.stats()
        assert stats.restarts == 1 and stats.versions == ("shared.1", "shared.2")
        assert [token.token async for token in engine.generate(PROMPT, Sampling(1), PolicyVersion(SHARED, 1))] == [42]
    assert not any(map(is_alive, new))


async def test_a_score_beside_an_answer_does_not_end_the_server(tmp_path: Path) -> None:
    async with launched(tmp_path) as (engine, _):
        async with aclosing(engine.generate(PROMPT, Sampling(100), BASE)) as answer:  # type: ignore[type-var]
            await anext(answer)
            await engine.score(PROMPT, start=1, version=BASE)
        assert (await engine.stats()).restarts == 0


def test_adapters_are_for_the_usual_layers_alone(tmp_path: Path) -> None:
    usual = ("down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj")
    assert adapted_modules(MODEL) == usual
    words, _ = Vllm().command(new_launch(RemoteSettings(options=("--x",)), MODEL, rank=4, versions=2))
    at = words.index("--lora-target-modules")
    assert tuple(words[at + 1 : at + 8]) == usual and words[at + 8].startswith("--") and words[-1] == "--x"
    # a layer of another name may be one that adapters change or one that they cannot: then the server is to decide
    shapes = {"model.layers.0.mlp.gate.weight": {"shape": [4, 8]}, "model.layers.0.q_proj.weight": {"shape": [8, 8]}}
    header = json.dumps(shapes).encode()
    (tmp_path / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    assert adapted_modules(tmp_path) == ()
    words, _ = Vllm().command(new_launch(RemoteSettings(), tmp_path, rank=4, versions=2))
    assert "--lora-target-modules" not in words
