"""The tasks and the kinds of environments that a pool offers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from openclaw_rl.envs.box.sandbox import Boxes
from openclaw_rl.envs.open import EnvKind, EnvOptions, open_env
from openclaw_rl.envs.task import Env, Task
from openclaw_rl.envs.tasks.source import TaskSource
from openclaw_rl.envs.tasks.sources import find_sources
from openclaw_rl.errors import ConfigError, PoolError

Opener = Callable[[TaskSource, Boxes | None, EnvOptions], Env]


class Catalogue:
    """Sources by name, found in folders or given by functions. ConfigError or TaskError if one cannot be loaded."""

    def __init__(self, tasks: Sequence[str], kinds: Mapping[str, str]) -> None:
        self.sources: dict[str, TaskSource] = {}
        for words in tasks:
            for source in sources_of(words):
                name, number = source.name, 2
                while name in self.sources:
                    name, number = f"{source.name}-{number}", number + 1
                self.sources[name] = source
        self._openers: dict[str, Opener] = {name: loaded(words) for name, words in kinds.items()}

    @property
    def kinds(self) -> list[str]:
        """What clients may lease, besides boxes alone."""
        return [*EnvKind, *self._openers]

    @property
    def count(self) -> int:
        """How many tasks there are."""
        return sum(len(source.tasks) for source in self.sources.values())

    def find(self, task: str, source: str | None) -> tuple[str, Task]:
        """The source of a task, by name, and the task. PoolError if there is none, or more than one."""
        names = [name for name in self.sources if source in (None, name)]
        found = [(name, self.sources[name].tasks[task]) for name in names if task in self.sources[name].tasks]
        if len(found) == 1:
            return found[0]
        if found:
            which = ", ".join(name for name, _ in found)
            raise PoolError(f"task {task} is in several sources: {which}", fix="name the source", code="ambiguous_task")
        broken = [source.broken[task] for source in self.sources.values() if task in source.broken]
        if broken:
            raise PoolError(
                f"task {task} cannot be used: {broken[0]}", status=422, code="broken_task", failure="environment"
            )
        raise PoolError(
            f"this pool has no task {task!r}" + (f" in {source!r}" if source else ""),
            fix="start it with --tasks and the folder of this task",
            status=404,
            code="unknown_task",
        )

    def open(self, kind: str, source: TaskSource, boxes: Boxes, options: EnvOptions) -> Env:
        """An environment of a kind."""
        if kind in self._openers:
            return self._openers[kind](source, boxes, options)
        return open_env(kind, source, boxes, options=options)


def sources_of(words: str) -> list[TaskSource]:
    """The sources in a folder, or those that a function `module:function` gives."""
    if ":" in words and not Path(words).exists():
        given: list[TaskSource] = loaded(words)()
        return given
    return find_sources(Path(words))


def loaded(words: str) -> Callable[..., Any]:
    """The function that `module:function` names. ConfigError if there is none."""
    module, _, name = words.partition(":")
    try:
        found: Callable[..., Any] = vars(import_module(module))[name]
    except (ImportError, KeyError, ValueError) as problem:
        raise ConfigError(
            f"{words!r} names nothing that can be imported: {problem}", fix="write MODULE:FUNCTION"
        ) from problem
    return found
