"""A user's side of the API: the official client over real HTTP, and the server's own record of each turn."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

import aiohttp
from openai import APIConnectionError, APIStatusError, AsyncOpenAI, omit
from openai.types.chat import ChatCompletion, ChatCompletionFunctionToolParam, ChatCompletionMessageParam
from openai.types.shared_params import FunctionDefinition

from openclaw_rl.core.message import Json, Tool, ToolCall, json_list
from openclaw_rl.errors import EngineError

TRIES = 5  # for one request; each refusal is counted and retried
PAUSE_S = 0.5  # before a retry
TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class ClientReply:
    """The reply, and what the server's headers say about it."""

    text: str
    turn: str
    version: str
    finish: str
    calls: tuple[ToolCall, ...] = ()
    reasoning: str = ""
    prompt_tokens: int = 0


@dataclass(frozen=True, slots=True)
class TurnNews:
    """The server's present record of a turn. `score` and `hints` stay empty until it is judged."""

    turn: str
    state: str
    reason: str
    score: int | None
    votes: tuple[int | None, ...]
    hints: tuple[str, ...]


@dataclass(slots=True)
class Client:
    """One client of one server. Counts requests that were refused or cut; there should be none."""

    base_url: str
    key: str
    model: str
    pause_s: float = PAUSE_S
    refused: int = 0
    _chat: AsyncOpenAI = field(init=False, repr=False)
    _plain: aiohttp.ClientSession = field(init=False, repr=False)

    async def __aenter__(self) -> Self:
        """Opens the connections."""
        self._chat = AsyncOpenAI(base_url=self.base_url, api_key=self.key, max_retries=0, timeout=TIMEOUT_S)
        self._plain = aiohttp.ClientSession(
            headers={"Authorization": f"Bearer {self.key}"}, timeout=aiohttp.ClientTimeout(total=TIMEOUT_S)
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closes them."""
        await self._chat.close()
        await self._plain.close()

    async def say(
        self,
        messages: Sequence[ChatCompletionMessageParam],
        *,
        session: str,
        temperature: float,
        max_tokens: int,
        seed: int | None = None,
        is_side: bool = False,
        user: str = "",
        tools: Sequence[Tool] = (),
    ) -> ClientReply:
        """One answer. A refusal is counted and the request retried; raises EngineError after `TRIES` refusals."""
        headers = {"X-Session-Id": session} | ({"X-Turn-Type": "side"} if is_side else {})
        headers |= {"X-User-Id": user} if user else {}
        problem: Exception | None = None
        for _ in range(TRIES):
            try:
                raw = await self._chat.chat.completions.with_raw_response.create(
                    model=self.model,
                    messages=list(messages),
                    temperature=temperature,
                    max_tokens=max_tokens,
                    seed=seed,
                    tools=[_offered(tool) for tool in tools] or omit,
                    extra_headers=headers,
                )
            except (APIConnectionError, APIStatusError) as refusal:
                self.refused += 1
                problem = refusal
                await asyncio.sleep(self.pause_s)
                continue
            return _reply(raw.parse(), raw.headers)
        raise EngineError(f"the server refused a request {TRIES} times: {problem}", fix="look at the server's log")

    async def end(self, session: str) -> None:
        """Ends the session."""
        await self._post("/rl/session_done", headers={"X-Session-Id": session})

    async def status(self) -> dict[str, Json]:
        """The server's status of the whole loop."""
        return _table(await self._get("/rl/status"))

    async def versions(self) -> list[dict[str, Json]]:
        """All versions, oldest first."""
        return [_table(row) for row in _rows(await self._get("/rl/versions"), "versions")]

    async def turn(self, turn: str) -> TurnNews:
        """The record of a turn."""
        body = _table(await self._get(f"/rl/turns/{turn}"))
        verdict = _table(body.get("verdict") or {})
        score = verdict.get("score")
        votes = [_table(vote) for vote in json_list(verdict.get("votes"))]
        return TurnNews(
            turn,
            state=str(body.get("state") or ""),
            reason=str(body.get("reason") or ""),
            score=_score(score),
            votes=tuple(_score(vote.get("score")) for vote in votes if vote.get("asked") == "score"),
            hints=tuple(_hint(item) for item in json_list(verdict.get("hints"))),
        )

    async def _get(self, path: str) -> Json:
        async with self._plain.get(self.base_url + path) as answer:
            answer.raise_for_status()
            body: Json = await answer.json()
            return body

    async def _post(self, path: str, *, headers: dict[str, str]) -> None:
        async with self._plain.post(self.base_url + path, headers=headers) as answer:
            answer.raise_for_status()


def _reply(answer: ChatCompletion, headers: Mapping[str, str]) -> ClientReply:
    choice = answer.choices[0]
    calls = choice.message.tool_calls or []
    reasoning = (choice.message.model_extra or {}).get("reasoning_content")
    return ClientReply(
        choice.message.content or "",
        headers.get("x-openclaw-rl-turn", ""),
        headers.get("x-openclaw-rl-version", ""),
        choice.finish_reason,
        tuple(
            ToolCall(call.id, call.function.name, call.function.arguments) for call in calls if call.type == "function"
        ),
        reasoning if isinstance(reasoning, str) else "",
        answer.usage.prompt_tokens if answer.usage is not None else 0,
    )


def _offered(tool: Tool) -> ChatCompletionFunctionToolParam:
    function: FunctionDefinition = {
        "name": tool.name,
        "description": tool.description,
        "parameters": dict(tool.parameters),
    }
    return {"type": "function", "function": function}


async def served_model(base_url: str, key: str) -> str:
    """The name of the model a server offers first."""
    async with AsyncOpenAI(base_url=base_url, api_key=key, timeout=TIMEOUT_S) as client:
        offered = await client.models.list()
    return offered.data[0].id


def _table(value: Json) -> dict[str, Json]:
    if not isinstance(value, dict):
        raise EngineError(f"the server answered {value!r} where a JSON object was expected")
    return value


def _rows(value: Json, name: str) -> list[Json]:
    """A list, given directly or under its name."""
    return json_list(value.get(name, value.get("data"))) if isinstance(value, dict) else json_list(value)


def _score(value: Json) -> int | None:
    return value if isinstance(value, int) else None


def _hint(value: Json) -> str:
    return str(value.get("text", "")) if isinstance(value, dict) else str(value)
