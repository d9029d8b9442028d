"""The models that a judge can use: the served model without its adapter, or an OpenAI-style endpoint."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType

import aiohttp

from openclaw_rl.core.message import Json, Message
from openclaw_rl.core.protocols import Engine, Renderer
from openclaw_rl.core.sampling import Sampling
from openclaw_rl.core.version import BASE, PolicyVersion
from openclaw_rl.errors import EngineError, JudgeError, RequestError

LONGEST_WAIT_S = 60.0
_WORTH_ANOTHER_TRY = frozenset({408, 409, 425, 429})


@dataclass(frozen=True, slots=True)
class EngineChat:
    """The served model without its adapter as a judge, at no extra cost.

    A `Chat` over an engine and its renderer.

    `stop_ids` end an answer; `options` are the template's own arguments (such as `enable_thinking`).
    """

    engine: Engine
    renderer: Renderer
    stop_ids: tuple[int, ...]
    version: PolicyVersion = BASE
    options: Mapping[str, Json] = field(default_factory=dict)

    async def reply(
        self, messages: Sequence[Message], *, temperature: float, max_tokens: int, seed: int | None = None
    ) -> str:
        """The text of one answer, without what was thought before it. Raises JudgeError."""
        sampling = Sampling(max_tokens=max_tokens, temperature=temperature, seed=seed, stop_ids=self.stop_ids)
        try:
            # Rendering encodes up to some thousand characters: off the loop, which is busy serving.
            prompt = await asyncio.to_thread(self.renderer.prompt, messages, (), None, options=self.options)
            tokens = [item.token async for item in self.engine.generate(prompt, sampling, self.version)]
        except (EngineError, RequestError) as problem:
            raise JudgeError(f"the local judge cannot answer: {problem.problem}", fix=problem.fix) from problem
        answer, _ = self.renderer.decode(tokens)
        return answer.text


class _TryAgain(Exception):
    """The endpoint could not answer now; it may after `after_s`, if it said so."""

    def __init__(self, problem: str, after_s: float | None = None) -> None:
        super().__init__(problem)
        self.after_s = after_s


@dataclass(slots=True)
class EndpointChat:
    """Any OpenAI-style endpoint as a partner to talk to: a remote judge, or another model on this machine.

    A `Chat` over `POST {url}/chat/completions`. Use it as an async context: it owns the connections.

    After an answer of 429 or 5xx or a lost connection the call is tried again `retries` times, after `retry_s`, doubled
    each time. No call at all is made before the time that an endpoint named in `Retry-After`, at most a minute.
    """

    url: str
    model: str
    api_key: str = field(default="", repr=False)
    timeout_s: float = 60.0
    retries: int = 2
    retry_s: float = 1.0
    clock: Callable[[], float] = time.monotonic
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep
    _not_before_s: float = 0.0
    _session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> EndpointChat:
        headers = {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}
        self._session = aiohttp.ClientSession(headers=headers, timeout=aiohttp.ClientTimeout(total=self.timeout_s))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def reply(
        self, messages: Sequence[Message], *, temperature: float, max_tokens: int, seed: int | None = None
    ) -> str:
        """The text of one answer. Raises JudgeError with what the endpoint said."""
        body: dict[str, Json] = {
            "model": self.model,
            "messages": [item.as_json() for item in messages],
            "temperature": temperature,
            "max_tokens": max_tokens,
        }
        if seed is not None:
            body["seed"] = seed
        for attempt in range(self.retries + 1):
            wait_s = self._not_before_s - self.clock()
            if wait_s > 0:
                await self.pause(wait_s)
            try:
                return await self._post(body)
            except _TryAgain as problem:
                if problem.after_s is not None:
                    self._not_before_s = self.clock() + min(problem.after_s, LONGEST_WAIT_S)
                if attempt == self.retries:
                    raise JudgeError(
                        f"{self.url} does not answer: {problem}", fix="check that it is running and reachable"
                    ) from problem
            if self._not_before_s <= self.clock():  # it did not say when to come back
                await self.pause(min(self.retry_s * 2**attempt, LONGEST_WAIT_S))
        raise AssertionError("the last attempt returns or raises")

    async def _post(self, body: Mapping[str, Json]) -> str:
        if self._session is None:
            raise JudgeError("the connection to the judge is not open", fix="use EndpointChat with `async with`")
        try:
            async with self._session.post(f"{self.url.rstrip('/')}/chat/completions", json=body) as response:
                text = await response.text()
                status, after = response.status, _seconds(response.headers.get("Retry-After"))
        except (aiohttp.ClientError, TimeoutError, UnicodeDecodeError) as problem:
            raise _TryAgain(str(problem) or type(problem).__name__) from problem
        if status >= 500 or status in _WORTH_ANOTHER_TRY:
            raise _TryAgain(f"status {status}: {_shortened(text)}", after)
        if status != 200:
            raise JudgeError(
                f"{self.url} refuses the judge's question with status {status}: {_shortened(text)}",
                fix="check judge.url, judge.model and the key",
            )
        return _answer(text, self.url)


def _answer(text: str, url: str) -> str:
    try:
        content = json.loads(text)["choices"][0]["message"]["content"]
    except (ValueError, KeyError, IndexError, TypeError, RecursionError) as problem:
        raise JudgeError(
            f"{url} did not answer with a chat completion: {_shortened(text)}",
            fix="set judge.url to the base URL of an OpenAI-style API, including /v1",
        ) from problem
    return content if isinstance(content, str) else ""


def _seconds(header: str | None) -> float | None:
    """The seconds of a Retry-After header; a date in it counts as none given."""
    try:
        return max(0.0, float(header)) if header is not None else None
    except ValueError:
        return None


def _shortened(text: str) -> str:
    return " ".join(text.split())[:200] or "(nothing)"
