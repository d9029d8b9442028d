"""A small real environment, and a real server whose engine replies by a rule of the prompt."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from serve_doubles import VERSION, Serving, a_renderer, serving

from openclaw_rl.agents.entries import TaskEntry
from openclaw_rl.collect.stage import Collect, CollectSettings
from openclaw_rl.core.completion import Finish
from openclaw_rl.core.message import Json, Tool
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.sampling import Sampling
from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.envs.box.sandbox import Boxes, Sandbox
from openclaw_rl.envs.task import Action, Failure, Info, Observation, Part, PartKind, Score, StepResult, Task
from openclaw_rl.envs.tasks.source import Attempt, NoSolutionError, ReadTasks
from openclaw_rl.errors import TaskError
from openclaw_rl.store.db import Store
from openclaw_rl.testing.engine import Says, ScriptedEngine
from openclaw_rl.testing.png import a_png

KEY = "secret"
ADD = Tool("add", "Adds n.", {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]})
SUBMIT = Tool("submit", "Ends it.", {"type": "object", "properties": {}})
TOOLS = (ADD, SUBMIT)


def a_task(name: str = "three", target: int = 3, **more: Json) -> Task:
    return Task(name, f"Reach {target}.", metadata={"target": target, **more})


def seen(text: str) -> Observation:
    return Observation((Part(PartKind.TEXT, text),), TOOLS)


class CounterEnv:
    """A number to be brought to the task's target. `fails` maps what is called to the error it raises, once each."""

    def __init__(self, fails: dict[str, Exception] | None = None) -> None:
        self.fails = {} if fails is None else fails
        self.value = 0
        self.seeds: list[int] = []
        self.closed = 0
        self._target = 0

    async def reset(self, task: Task, *, seed: int = 0) -> Observation:
        self._fail("reset")
        self.value, target = 0, task.metadata["target"]
        assert isinstance(target, int)
        self._target = target
        self.seeds.append(seed)
        return seen(task.instruction)

    async def step(self, actions: Sequence[Action]) -> StepResult:
        self._fail("step")
        (action,) = actions
        if action.tool == "submit":
            return StepResult(seen("submitted"), done=True)
        amount = action.arguments["n"]
        if not isinstance(amount, int):
            return StepResult(seen("n is not a whole number"), reward=-1.0)
        before, self.value = abs(self._target - self.value), self.value + amount
        after = abs(self._target - self.value)
        return StepResult(seen(f"now {self.value}"), reward=1.0 if after < before else -1.0)

    async def evaluate(self) -> Score:
        self._fail("evaluate")
        return Score(float(self.value == self._target), details=f"it is {self.value}")

    async def aclose(self) -> None:
        self.closed += 1

    def _fail(self, what: str) -> None:
        problem = self.fails.pop(what, None)
        if problem is not None:
            raise problem


class PicturedEnv(CounterEnv):
    """Takes a picture of what it shows, for the record."""

    def __init__(self, *, size: int = 0) -> None:
        super().__init__()
        self.size = size

    async def reset(self, task: Task, *, seed: int = 0) -> Observation:
        return self._pictured(await super().reset(task, seed=seed))

    async def step(self, actions: Sequence[Action]) -> StepResult:
        result = await super().step(actions)
        return replace(result, observation=self._pictured(result.observation))

    def _pictured(self, shown: Observation) -> Observation:
        record = Part(PartKind.RECORD, data=a_png(self.value, words="x" * self.size))
        return replace(shown, parts=(*shown.parts, record))


class SickEnv(CounterEnv):
    """Reports a failure in its first step's facts instead of raising."""

    def __init__(self, failure: Failure) -> None:
        super().__init__()
        self.failure = failure

    async def step(self, actions: Sequence[Action]) -> StepResult:
        return StepResult(seen("?"), info=Info(failure=self.failure, reason="the box is gone"))


def call(name: str, **arguments: Json) -> str:
    """A call in the form of the template's family."""
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


Policy = Callable[[str, Sampling], str]  # from the prompt's text and how it is sampled, the reply


async def nothing_waits() -> Mapping[str, Json]:
    """The status of a server that does not learn."""
    return {"learns": False, "train": {"ready": 0, "waiting": 0}}


@contextlib.asynccontextmanager
async def policy_server(
    home: Path, policy: Policy, *, status: Callable[[], Awaitable[Mapping[str, Json]]] = nothing_waits
) -> AsyncIterator[Serving]:
    """A server with the real collector over a store of its own; the engine replies what the policy says."""
    renderer = a_renderer()
    store = await Store.open(home)

    def script(prompt: Prompt, sampling: Sampling, _version: PolicyVersion) -> Says:
        text = renderer.template.tokenizer.decode([*prompt.tokens], skip_special_tokens=False)
        reply = policy(text, sampling)
        is_whole = not reply.endswith("...")
        return Says(renderer.encode(reply + ("<|im_end|>" if is_whole else "")))

    engine = ScriptedEngine(script, ends=Finish.LENGTH)
    engine.versions[VERSION] = None
    try:
        async with serving(
            renderer,
            store,
            change=lambda parts: replace(
                parts,
                engine=engine,
                collector=Collect(store, CollectSettings(), lambda: 1000.0),
                control=replace(parts.control, status=status),
                context_length=4096,
            ),
        ) as server:
            yield server
    finally:
        await store.aclose()


class Numbers(ReadTasks):
    """A source of tasks by their targets; meets TaskSource as far as entries ask."""

    def __init__(self, targets: Mapping[str, int], name: str = "numbers") -> None:
        super().__init__(name, {task: a_task(task, target) for task, target in targets.items()})

    async def start(self, task: Task, boxes: Boxes) -> Sandbox | None:
        return None

    async def solve(self, task: Task, attempt: Attempt) -> Attempt:
        raise NoSolutionError(f"{task.id} has none")

    async def judge(self, task: Task, attempt: Attempt) -> Score:
        raise TaskError("numbers are judged by their environment")


def entries(**targets: int) -> dict[str, TaskEntry]:
    source = Numbers(targets)
    return {name: TaskEntry(name, task, source) for name, task in source.tasks.items()}
