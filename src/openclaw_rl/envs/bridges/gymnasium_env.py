"""Gymnasium in both directions: its environments as ours, and ours as gymnasium.Env (the extra `gymnasium`)."""

from __future__ import annotations

import asyncio
import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import gymnasium
import numpy
from gymnasium import spaces

from openclaw_rl.core.message import Json, Tool
from openclaw_rl.envs.bridges.foreign import ForeignStep, WrongActionError, shown_json
from openclaw_rl.envs.task import Action, Env, Observation, Part, PartKind, Task
from openclaw_rl.errors import TaskError

ACT = "act"


class GymnasiumEpisode:
    """Implements Foreign. A task names its environment in its metadata: `env_id`, and optionally `env_kwargs`."""

    def __init__(self) -> None:
        self._env: Any = None

    async def begin(self, task: Task, seed: int) -> tuple[ForeignStep, tuple[Tool, ...]]:
        """The first observation, and one tool whose argument is an action of the environment's space."""
        name, given = task.metadata.get("env_id"), task.metadata.get("env_kwargs", {})
        if not isinstance(name, str) or not isinstance(given, dict):
            raise TaskError(f"task {task.id} names no environment", fix="put `env_id` into its metadata")
        try:
            self._env = await asyncio.to_thread(gymnasium.make, name, **given)
            seen, _ = await asyncio.to_thread(self._env.reset, seed=seed)
        except Exception as problem:  # any error of the environment makes it unusable
            raise TaskError(f"the environment {name} cannot be used: {_said(problem)}") from problem
        parameters: dict[str, Json] = {
            "type": "object",
            "properties": {"action": schema_of(self._env.action_space)},
            "required": ["action"],
        }
        tool = Tool(ACT, f"Act in {name}. An action is of {self._env.action_space}.", parameters)
        return ForeignStep((part_of(seen),)), (tool,)

    async def act(self, action: Action) -> ForeignStep:
        """One step. An action outside the space is refused."""
        if action.tool != ACT or "action" not in action.arguments:
            raise WrongActionError(f"call {ACT} with `action`")
        space = self._env.action_space
        try:
            given = value_of(space, action.arguments["action"])
        except (TypeError, ValueError, KeyError, OverflowError) as problem:
            raise WrongActionError(f"an action is of {space}: {problem}") from problem
        try:
            seen, reward, done, truncated, _ = await asyncio.to_thread(self._env.step, given)
        except Exception as problem:  # as above
            raise TaskError(f"the environment failed: {_said(problem)}") from problem
        return ForeignStep((part_of(seen),), float(reward), bool(done), bool(truncated))

    async def score(self) -> float | None:
        """None: the score is the sum of its rewards."""
        return None

    async def aclose(self) -> None:
        """Closes it."""
        env, self._env = self._env, None
        if env is not None:
            await asyncio.to_thread(env.close)


def schema_of(space: Any) -> dict[str, Json]:
    """The JSON schema of a space's values."""
    match space:
        case spaces.Discrete():
            low = int(space.start)
            return {"type": "integer", "minimum": low, "maximum": low + int(space.n) - 1}
        case spaces.MultiDiscrete() | spaces.MultiBinary() | spaces.Box():
            kind = "number" if isinstance(space, spaces.Box) and space.dtype.kind == "f" else "integer"
            schema: dict[str, Json] = {"type": kind}
            for size in reversed(space.shape):
                schema = {"type": "array", "items": schema, "minItems": int(size), "maxItems": int(size)}
            return schema
        case spaces.Text():
            return {"type": "string", "maxLength": int(space.max_length)}
        case spaces.Dict():
            inner: dict[str, Json] = {name: schema_of(one) for name, one in space.spaces.items()}
            return {"type": "object", "properties": inner, "required": list(inner)}
        case spaces.Tuple():
            items: list[Json] = [schema_of(one) for one in space.spaces]
            return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}
    raise TaskError(f"an action of {space} cannot be written as JSON")


def value_of(space: Any, given: Json) -> Any:
    """The value of a space, read from JSON; ValueError if it is not in the space."""
    value: Any = given
    match space:
        case spaces.Discrete():
            if isinstance(given, bool) or not isinstance(given, int):
                raise ValueError(f"{given!r} is not a whole number")
            value = numpy.int64(given)
        case spaces.MultiDiscrete() | spaces.MultiBinary() | spaces.Box():
            value = numpy.array(given, dtype=space.dtype)
        case spaces.Dict():
            if not isinstance(given, Mapping):
                raise ValueError(f"{given!r} is not an object")
            value = {name: value_of(one, given[name]) for name, one in space.spaces.items()}
        case spaces.Tuple():
            if not isinstance(given, list) or len(given) != len(space.spaces):
                raise ValueError(f"{given!r} is not a list of {len(space.spaces)}")
            value = tuple(value_of(one, item) for one, item in zip(space.spaces, given, strict=True))
    if not space.contains(value):
        raise ValueError(f"{str(given)[:200]} is not in it")
    return value


def part_of(seen: Any) -> Part:
    """An observation as an agent sees it: a picture if it is one, else text or JSON."""
    if isinstance(seen, numpy.ndarray) and seen.dtype == numpy.uint8 and seen.ndim == 3 and seen.shape[2] == 3:
        return Part(PartKind.IMAGE, data=png_of(seen))
    return shown_json(_json(seen))


def png_of(pixels: Any) -> bytes:
    """A PNG of pixels [height, width, 3], 0 to 255."""
    height, width, _ = pixels.shape
    rows = b"".join(b"\0" + pixels[row].tobytes() for row in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    made = [
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(made)


def _json(value: Any) -> Json:
    if isinstance(value, numpy.ndarray | numpy.generic):
        listed: Json = value.tolist()
        return listed
    if isinstance(value, Mapping):
        return {str(name): _json(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_json(inner) for inner in value]
    return value if isinstance(value, str | int | float | bool) or value is None else str(value)


def _said(problem: Exception) -> str:
    return f"{type(problem).__name__}: {str(problem)[:300]}"


class _AnyText(gymnasium.Space):  # type: ignore[misc]
    """Any text: Gymnasium's own Text allows only a small set of characters."""

    def __init__(self) -> None:
        super().__init__((), numpy.str_)

    def contains(self, x: object) -> bool:
        return isinstance(x, str)

    def sample(self, mask: object = None, probability: object = None) -> str:
        return "[]"


class OpenClawGymEnv(gymnasium.Env):  # type: ignore[misc]
    """One of our environments as a gymnasium.Env, for code that does not know this package.

    An action is JSON: a call {"tool": ..., "arguments": {...}} or a list of them. An observation is text. The reward is
    that of the step if there is one, and at the end the verdict on the episode. `options={"task": id}` chooses a
    task at reset, otherwise the seed does. A failure that is not the agent's raises and never becomes a reward.
    """

    metadata: ClassVar[dict[str, list[str]]] = {"render_modes": []}

    def __init__(self, env: Env, tasks: Mapping[str, Task]) -> None:
        self.action_space = self.observation_space = _AnyText()
        self._env = env
        self._tasks = tasks
        self._runner = asyncio.Runner()

    def reset(self, *, seed: int | None = None, options: Mapping[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """The instruction; `info` contains the task's id and the tools in OpenAI's shape."""
        super().reset(seed=seed)
        names = sorted(self._tasks)
        name = (options or {}).get("task") or names[int(self.np_random.integers(len(names)))]
        seen = self._runner.run(self._env.reset(self._tasks[name], seed=seed or 0))
        self._check(seen)
        return seen.text, {"task": name, "tools": [tool.as_json() for tool in seen.tools]}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """The result of the calls. Text that is not calls as JSON does nothing, and the reply says so."""
        try:
            calls = calls_of(json.loads(action))
        except ValueError as problem:
            return f"[not done: an action is JSON of calls: {problem}]", 0.0, False, False, {"failure": "agent"}
        result = self._runner.run(self._env.step(calls))
        self._check(result.observation)
        reward, info = result.reward or 0.0, {"failure": result.info.failure, "reason": result.info.reason}
        if result.done or result.truncated:
            score = self._runner.run(self._env.evaluate())
            if score.reward is None:
                raise RuntimeError(f"the episode has no verdict ({score.failure}): {score.details}")
            reward, info = score.reward, {**info, "details": score.details}
        return result.observation.text, reward, result.done, result.truncated, info

    def _check(self, seen: Observation) -> None:
        if not seen.parts:
            raise RuntimeError(f"the episode failed ({seen.info.failure}): {seen.info.reason}")

    def close(self) -> None:
        """Closes the environment."""
        self._runner.run(self._env.aclose())
        self._runner.close()


def calls_of(given: Any) -> Sequence[Action]:
    """The calls in JSON; ValueError if it is anything else."""
    listed = given if isinstance(given, list) else [given]
    found: list[Action] = []
    for call in listed:
        if not isinstance(call, dict) or not isinstance(call.get("tool"), str):
            raise ValueError("a call has a `tool`")
        arguments = call.get("arguments", {})
        if not isinstance(arguments, dict):
            raise ValueError("`arguments` is an object")
        found.append(Action(call["tool"], arguments))
    return found
