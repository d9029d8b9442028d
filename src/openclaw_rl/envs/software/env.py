"""Software tasks: a repository or files to repair, a shell, and the project's own tests as the judge."""

from __future__ import annotations

from openclaw_rl.envs.box.sandbox import Boxes
from openclaw_rl.envs.open import EnvOptions
from openclaw_rl.envs.task import Env
from openclaw_rl.envs.tasks.source import TaskSource
from openclaw_rl.envs.terminal.env import SUBMIT, bash_tool, shell_env

BASH = bash_tool("Run a command in a persistent bash shell that starts in the folder with the code.")


def open_kind(source: TaskSource, boxes: Boxes | None, options: EnvOptions) -> Env:
    """The environment of software tasks."""
    return shell_env(source, boxes, options, tools=(BASH, SUBMIT))
