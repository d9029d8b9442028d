"""The HTTP format between a pool server and its clients: headers, bodies, and their parsing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from openclaw_rl.core.message import Tool
from openclaw_rl.envs.box.sandbox import BoxSpec
from openclaw_rl.envs.task import Failure, Info, Observation, Part, StepResult
from openclaw_rl.errors import PoolError

TOKEN = "Lease-Token"
OPERATION = "Operation-Id"
REPLAYED = "Operation-Replayed"
BOX = "box"  # the kind of a lease on a box alone
SNAPSHOT = "snapshot"  # the kind of a lease on a stored state of a box's files
MOST_WAIT_S = 30.0  # how long one request may wait for an answer; then the client asks again
MOST_BODY_BYTES = 64 << 20


class PoolLeaseBody(msgspec.Struct):
    """The body of POST /v1/leases. A task, or for the kind `box` a spec, or the lease of a snapshot."""

    kind: str
    run: str = "default"
    task: str | None = None
    source: str | None = None
    box: BoxSpec | None = None
    snapshot: str | None = None
    ttl_s: float | None = None
    records: bool = False  # takes pictures for the record, if the kind can


class ActionBody(msgspec.Struct):
    """One action of a step."""

    tool: str
    arguments: dict[str, Any] = {}


class CallBody(msgspec.Struct):
    """The body of every call on a lease; each call reads the fields that it knows."""

    deadline_s: float | None = None  # time limit of the whole call, from now
    seed: int = 0
    actions: list[ActionBody] = []
    answer: str = ""
    command: str | list[str] = ""
    timeout_s: float = 60.0
    cwd: str | None = None
    env: dict[str, str] = {}
    stdin: bytes = b""
    shell: str = ""
    path: str = ""
    data: bytes = b""
    mode: int = 0o644
    most_bytes: int = 16_000_000


class PrewarmBody(msgspec.Struct):
    """The body of POST /v1/prewarm: tasks that are needed soon."""

    tasks: list[str]
    source: str | None = None


class Refused(msgspec.Struct):
    """The error in an answer."""

    message: str
    code: str
    failure: str | None = None
    fix: str = ""


class RefusedBody(msgspec.Struct):
    """The body of every error."""

    error: Refused


class Granted(msgspec.Struct):
    """The answer to POST /v1/leases, and to fork and snapshot."""

    lease: str
    token: int
    ttl_s: float
    waited_s: float = 0.0


class _Info(msgspec.Struct):
    timings_s: dict[str, float] = {}
    failure: Failure | None = None
    reason: str = ""
    facts: dict[str, Any] = {}


class _Tool(msgspec.Struct):
    name: str
    description: str
    parameters: dict[str, Any]


class _Observation(msgspec.Struct):
    parts: tuple[Part, ...]
    tools: tuple[_Tool, ...]
    info: _Info


class _StepResult(msgspec.Struct):
    observation: _Observation
    reward: float | None
    done: bool
    truncated: bool
    info: _Info


def encoded(value: object) -> bytes:
    """As JSON; bytes are written in base64."""
    return msgspec.json.encode(value, enc_hook=_plain)


def _plain(value: object) -> object:
    return dict(value) if isinstance(value, Mapping) else str(value)


def observation_of(body: bytes) -> Observation:
    """An observation from its JSON."""
    return _observation(msgspec.json.decode(body, type=_Observation))


def step_of(body: bytes) -> StepResult:
    """A step's result from its JSON."""
    said = msgspec.json.decode(body, type=_StepResult)
    return StepResult(_observation(said.observation), said.reward, said.done, said.truncated, _info(said.info))


def _observation(said: _Observation) -> Observation:
    tools = tuple(Tool(tool.name, tool.description, tool.parameters) for tool in said.tools)
    return Observation(said.parts, tools, _info(said.info))


def _info(said: _Info) -> Info:
    return Info(said.timings_s, said.failure, said.reason, said.facts)


def refusal_body(problem: PoolError) -> bytes:
    """The body of an answer for an error."""
    return encoded(RefusedBody(Refused(problem.problem, problem.code, problem.failure, problem.fix)))


def refusal_of(status: int, body: bytes, retry_s: int | None = None) -> PoolError:
    """The error in an answer. An answer that is not from a pool counts as infrastructure."""
    try:
        said = msgspec.json.decode(body, type=RefusedBody).error
    except (msgspec.MsgspecError, UnicodeDecodeError):
        text = body[:200].decode("utf-8", "replace")
        return PoolError(
            f"a pool server answered {status}: {text}",
            status=status,
            code="no_pool",
            failure=Failure.INFRASTRUCTURE,
            fix="check that the URL is a pool's",
        )
    return PoolError(said.message, fix=said.fix, status=status, code=said.code, failure=said.failure, retry_s=retry_s)


def read_json(body: bytes) -> dict[str, Any]:
    """An object from its JSON."""
    said: dict[str, Any] = json.loads(body)
    return said
