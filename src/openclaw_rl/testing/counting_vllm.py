"""A program with the command line and API of vLLM's server; each id it samples is one more than the last.

`python -m openclaw_rl.testing.counting_vllm --model FOLDER --host A --port N`; further options of vLLM are allowed.
If OPENCLAW_RL_TEST_PIDS names a file, each start adds a line with its process ids: its own, and that of a child
which, like vLLM's computing process, does not notice that its server is gone.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from aiohttp import web
from tokenizers import Tokenizer

from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.sampling import Sampling
from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.testing.engine import ScriptedEngine
from openclaw_rl.testing.model_servers import ModelServer, vllm_app

CONTEXT = 513
GAP_S = 0.02
PIDS = "OPENCLAW_RL_TEST_PIDS"


def counting(prompt: Prompt, sampling: Sampling, version: PolicyVersion) -> Sequence[int]:
    """Counts on, so that a continued answer shows any lost or repeated token."""
    return [prompt.tokens[-1] + 1 + at for at in range(sampling.max_tokens)]


def main() -> None:
    """Serves until it is ended."""
    given = {name: sys.argv[at + 1] for at, name in enumerate(sys.argv[:-1]) if name.startswith("--")}
    computes = subprocess.Popen(["sleep", "600"])
    if PIDS in os.environ:
        with open(os.environ[PIDS], "a", encoding="utf-8") as file:
            print(os.getpid(), computes.pid, given["--port"], file=file)
    tokenizer = Tokenizer.from_file(str(Path(given["--model"]) / "tokenizer.json"))
    server = ModelServer(
        ScriptedEngine(counting, context_length=CONTEXT, gap_s=GAP_S),
        lambda text: list(tokenizer.encode(text, add_special_tokens=False).ids),
        CONTEXT,
        key=os.environ["VLLM_API_KEY"],
    )
    web.run_app(vllm_app(server), host=given["--host"], port=int(given["--port"]), print=None)


if __name__ == "__main__":
    main()
