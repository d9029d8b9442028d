"""Probe tasks: the owner's prompts with what a good answer matches, so that skills are not lost."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import dataclass, field
from pathlib import Path

from openclaw_rl.core.message import Message, Role, message
from openclaw_rl.core.protocols import Engine, Renderer
from openclaw_rl.core.sampling import Sampling
from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.errors import ConfigError, RequestError, first_error

AT_ONCE = 8
REMEMBERED = 8  # versions


@dataclass(frozen=True, slots=True)
class ProbeTask:
    """A prompt, and the pattern that the answer must contain."""

    asked: tuple[Message, ...]
    expects: re.Pattern[str]


def read_tasks(path: Path) -> tuple[ProbeTask, ...]:
    """The tasks of a file: on each line a JSON object with `prompt` and `expect`, a regular expression.

    Raises ConfigError for a file that cannot be read, and for a line that is not a task.
    """
    try:
        lines = path.read_text("utf-8").splitlines()
    except OSError as problem:
        raise ConfigError(
            f"the probe tasks {path} cannot be read: {problem.strerror}", fix="correct publish.tasks, or leave it out"
        ) from problem
    found = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            held = json.loads(line)
            task = ProbeTask((message(Role.USER, str(held["prompt"])),), re.compile(str(held["expect"])))
        except (ValueError, KeyError, TypeError, re.error) as problem:
            raise ConfigError(
                f"line {number} of {path} is not a probe task ({problem})",
                fix='write {"prompt": "...", "expect": "a regular expression"}',
            ) from problem
        found.append(task)
    return tuple(found)


@dataclass(slots=True)
class TaskProbe:
    """Asks versions the tasks, each once, with the likeliest tokens, so that the result is not random."""

    engine: Engine
    renderer: Renderer
    stop_ids: tuple[int, ...]
    tasks: tuple[ProbeTask, ...]
    max_tokens: int
    _known: dict[PolicyVersion, float] = field(default_factory=dict)

    async def share(self, version: PolicyVersion) -> float:
        """The share of tasks that the version solves. Raises EngineError or RequestError if it cannot be asked."""
        if version not in self._known:
            slots = asyncio.Semaphore(AT_ONCE)
            with first_error():
                async with asyncio.TaskGroup() as group:
                    asked = [group.create_task(self._does(task, version, slots)) for task in self.tasks]
            if len(self._known) >= REMEMBERED:
                self._known.pop(next(iter(self._known)))
            self._known[version] = sum(item.result() for item in asked) / len(asked)
        return self._known[version]

    async def _does(self, task: ProbeTask, version: PolicyVersion, slots: asyncio.Semaphore) -> bool:
        prompt = await asyncio.to_thread(self.renderer.prompt, task.asked, (), None)
        sampling = Sampling(max_tokens=self.max_tokens, temperature=0.0, seed=0, stop_ids=self.stop_ids)
        async with slots:
            sampled = [item.token async for item in self.engine.generate(prompt, sampling, version)]
        try:
            reply, _ = self.renderer.decode(sampled)
        except (RequestError, ValueError):
            return False
        return task.expects.search(reply.text) is not None
