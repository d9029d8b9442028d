"""A rollout's client of the running server: the chat API, the episodes, and their records.

A server that is away, busy or starting again is waited for up to `patience_s`; only then does a call fail.
"""

from __future__ import annotations

import asyncio
import io
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

import aiohttp

from openclaw_rl.core.episode import FailureClass
from openclaw_rl.core.message import Json, Tool
from openclaw_rl.errors import ConfigError, EngineError, RequestError

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0
BUSY = frozenset({408, 425, 429})
TURN, VERSION = "x-openclaw-rl-turn", "x-openclaw-rl-version"
TOO_LONG = "context_length_exceeded"
PICTURE_LIMIT = aiohttp.ClientTimeout(total=10)


@dataclass(frozen=True, slots=True)
class PolicyReply:
    """One reply of the policy. `body` is the message as it came: sent back unchanged, the next prompt continues it."""

    body: Mapping[str, Json]
    finish: str
    turn: str = ""
    version: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0

    @property
    def text(self) -> str:
        """What it says."""
        content = self.body.get("content")
        return content if isinstance(content, str) else ""

    @property
    def is_cut(self) -> bool:
        """Whether it ran out of tokens before it ended."""
        return self.finish == "length"


@dataclass(frozen=True, slots=True)
class ChatAsk:
    """A request to the policy in one step. `seed` is for sampling."""

    messages: Sequence[Json]
    tools: Sequence[Tool] = ()
    max_tokens: int = 1024
    temperature: float = 1.0
    top_p: float = 1.0
    seed: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class PolicyEndpoint:
    """One server, over one pool of connections. `url` may end in `/v1` or not.

    `waited_s` adds up pauses, `busy_s` the time in which at least one reply was pending.
    """

    url: str
    key: str = ""
    model: str = "default"
    user: str = ""
    patience_s: float = 60.0
    reply_s: float = 600.0
    clock: Callable[[], float] = time.monotonic
    waited_s: float = 0.0
    busy_s: float = 0.0
    _under_way: int = field(default=0, init=False)
    _busy_since_s: float = field(default=0.0, init=False)
    _session: aiohttp.ClientSession | None = field(default=None, init=False, repr=False)

    async def __aenter__(self) -> Self:
        """Opens the connections."""
        self.url = self.url.rstrip("/").removesuffix("/v1")
        headers = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        headers |= {"X-User-Id": self.user} if self.user else {}
        limit = aiohttp.ClientTimeout(total=self.reply_s)
        connector = aiohttp.TCPConnector(limit=0)
        self._session = aiohttp.ClientSession(headers=headers, timeout=limit, connector=connector)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closes them."""
        if self._session is not None:
            await self._session.close()

    async def chat(self, ask: ChatAsk) -> PolicyReply:
        """One reply. RequestError for a request that is refused, EngineError if the server is gone for good."""
        body: dict[str, Json] = {
            "model": self.model,
            "messages": [*ask.messages],
            "max_tokens": ask.max_tokens,
            "temperature": ask.temperature,
            "top_p": ask.top_p,
        }
        if ask.tools:
            body["tools"] = [tool.as_json() for tool in ask.tools]
        if ask.seed is not None:
            body["seed"] = ask.seed
        if not self._under_way:
            self._busy_since_s = self.clock()
        self._under_way += 1
        try:
            found, headers = await self._asked("POST", "/v1/chat/completions", body, ask.headers)
        finally:
            self._under_way -= 1
            if not self._under_way:
                self.busy_s += self.clock() - self._busy_since_s
        return _reply(found, headers)

    async def begin(
        self,
        name: str,
        *,
        task: str,
        group: str | None = None,
        group_size: int | None = None,
        seed: int | None = None,
        environment: str = "",
    ) -> str:
        """Begins an episode and gives its full id. Repeating it changes nothing."""
        body: dict[str, Json] = {"id": name, "task": task, "environment": environment}
        given: dict[str, Json] = {"group": group, "group_size": group_size, "seed": seed}
        body |= {key: value for key, value in given.items() if value is not None}
        return str((await self.post("/v1/rl/episodes", body))["id"])

    async def report_step(self, name: str, step: int, *, score: float | None = None, observation: str = "") -> None:
        """Reports a step's own score, or what followed it."""
        body: dict[str, Json] = {"step": step}
        body |= {"score": score} if score is not None else {}
        body |= {"observation": observation} if observation else {}
        await self.post(f"/v1/rl/episodes/{name}/steps", body)

    async def send_picture(self, name: str, step: int, data: bytes, *, is_after: bool = False) -> str:
        """Sends the screen before a step, or after it, for the record. It is tried once, since nothing depends on it.

        Returns why it was not stored; empty if it was.
        """
        assert self._session is not None, "use it in `async with`"
        path = f"/v1/rl/episodes/{name}/steps/{step}/picture?when={'after' if is_after else 'before'}"
        headers = {"Content-Type": "image/png"}
        try:
            async with self._session.put(
                self.url + path, data=io.BytesIO(data), headers=headers, timeout=PICTURE_LIMIT
            ) as response:
                if response.status < 400:
                    return ""
                found: Json = await response.json(content_type=None)
                return (_said(found) if isinstance(found, dict) else "") or f"HTTP {response.status}"
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as problem:
            return f"{type(problem).__name__}: {problem}"

    async def end(
        self, name: str, outcome: float | None, failure: FailureClass, why: str = "", *, closes_group: bool = False
    ) -> None:
        """Ends an episode; it is on the server's disk when this returns. Repeating it changes nothing."""
        body: dict[str, Json] = {"outcome": outcome, "failure": failure.value, "why": why, "closes_group": closes_group}
        await self.post(f"/v1/rl/episodes/{name}/end", body)

    async def get(self, path: str) -> dict[str, Json]:
        """The server's answer."""
        return (await self._asked("GET", path, None, {}))[0]

    async def post(self, path: str, body: Mapping[str, Json]) -> dict[str, Json]:
        """The server's answer."""
        return (await self._asked("POST", path, dict(body), {}))[0]

    async def _asked(
        self, method: str, path: str, body: Json, headers: Mapping[str, str]
    ) -> tuple[dict[str, Json], Mapping[str, str]]:
        """The answer and its headers; retried while the server is away or busy."""
        until_s, pause_s = self.clock() + self.patience_s, FIRST_PAUSE_S
        while True:
            wait_s: float | None = None
            try:
                status, found, came = await self._once(method, path, body, headers)
            except (aiohttp.ClientError, OSError, TimeoutError) as problem:
                said = f"{type(problem).__name__}: {problem}"
            else:
                if status < 400:
                    return found, came
                said = _said(found) or f"HTTP {status}"
                if status < 500 and status not in BUSY:
                    raise _refusal(status, found, said)
                wait_s = _seconds(came.get("Retry-After", ""))
            if self.clock() >= until_s:
                raise EngineError(f"the server at {self.url} does not answer: {said}", fix="check that it is running")
            wait_s = pause_s if wait_s is None else wait_s
            began_s = self.clock()
            await asyncio.sleep(min(wait_s, LONGEST_PAUSE_S, max(0.0, until_s - began_s)))
            self.waited_s += self.clock() - began_s
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    async def _once(
        self, method: str, path: str, body: Json, headers: Mapping[str, str]
    ) -> tuple[int, dict[str, Json], Mapping[str, str]]:
        assert self._session is not None, "use it in `async with`"
        async with self._session.request(method, self.url + path, json=body, headers=headers) as response:
            text = await response.text()
            try:
                found: Json = json.loads(text)
            except ValueError:
                found = None
            return response.status, found if isinstance(found, dict) else {}, response.headers


def _reply(found: Mapping[str, Json], headers: Mapping[str, str]) -> PolicyReply:
    choices, usage = found.get("choices"), found.get("usage")
    choice = choices[0] if isinstance(choices, list) and choices else None
    body = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(body, dict):
        raise EngineError(f"the server's answer has no message: {str(found)[:200]}")
    counts = usage if isinstance(usage, dict) else {}
    return PolicyReply(
        body,
        str(choice.get("finish_reason") or ""),
        headers.get(TURN, ""),
        headers.get(VERSION, ""),
        _count(counts.get("prompt_tokens")),
        _count(counts.get("completion_tokens")),
    )


def _count(value: Json) -> int:
    return value if isinstance(value, int) else 0


def _said(found: Mapping[str, Json]) -> str:
    error = found.get("error")
    return str(error.get("message", "")) if isinstance(error, dict) else ""


def _refusal(status: int, found: Mapping[str, Json], said: str) -> Exception:
    if status in (401, 403):
        return ConfigError(f"the server refuses the key: {said}", fix="give a key that has the scope `admin`")
    error = found.get("error")
    code = error.get("code") if isinstance(error, dict) else None
    return RequestError(said, status=status, code=str(code) if code else None)


def _seconds(text: str) -> float | None:
    return float(text) if text.replace(".", "", 1).isdecimal() else None
