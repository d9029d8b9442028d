"""The server to connect a client to: its address, its model, and its answer to a test turn."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from openclaw_rl.core.message import Json
from openclaw_rl.core.turn import CONNECTING, TurnKind
from openclaw_rl.errors import ConfigError
from openclaw_rl.home.folder import KEY, address_of

if TYPE_CHECKING:
    import aiohttp  # imported when a server is called: the command's help needs only the rest

ALIAS = "default"  # always a name of the served model, so a client's configuration outlives a change of model
TIMEOUT_S = 60.0
_CONTEXT = 32768  # if the server does not say
_LONGEST_ANSWER = 8192
TURN_HEADER = "x-openclaw-rl-turn"


class Api(StrEnum):
    """The server's API that a client uses, and its path."""

    CHAT = "/v1/chat/completions"
    RESPONSES = "/v1/responses"
    MESSAGES = "/v1/messages"


@dataclass(frozen=True, slots=True)
class Target:
    """A server that answers. `url` is without `/v1`; `context` is None if the server does not say.

    Limits to set in clients: `window` tokens in all, at most `answer` of them for an answer.
    """

    url: str
    key: str
    model: str
    context: int | None

    @property
    def window(self) -> int:
        """The context, or a default that clients need."""
        return self.context or _CONTEXT

    @property
    def answer(self) -> int:
        """The most tokens of an answer: a quarter of the context, up to a useful maximum."""
        return min(_LONGEST_ANSWER, self.window // 4)


@dataclass(frozen=True, slots=True)
class TestTurnReport:
    """The server's classification of a test turn, which is side; `why` says what a real one would be."""

    kind: str
    why: str
    session: str
    version: str
    reply: str

    @property
    def would_teach(self) -> bool:
        """Whether a turn like it, sent by the client itself, may be learned from."""
        return self.kind == TurnKind.MAIN or f"otherwise {TurnKind.MAIN}" in self.why


def found_address(home: Path, given: str | None) -> str:
    """The server's URL without `/v1`: as given, else that of the server running on the home folder."""
    if given:
        return given.rstrip("/").removesuffix("/v1")
    running = address_of(home)
    if running is None:
        raise ConfigError(
            f"no server runs on {home}",
            fix="start `openclaw-rl serve`, or give its address with --url http://HOST:PORT",
        )
    return running.url


def found_key(home: Path, given: str | None) -> str:
    """The API key: as given, else the one kept in the home folder. It is not created."""
    if given:
        return given
    path = home / KEY
    key = path.read_text("utf-8").strip() if path.is_file() else ""
    if not key:
        raise ConfigError(f"{home} holds no API key", fix="give it with --api-key")
    return key


async def reached(url: str, key: str) -> Target:
    """The server, after it has answered and accepted the key. Raises ConfigError with what is wrong."""
    async with _client(key) as client:
        listed = await _asked(client, "GET", f"{url}/v1/models")
        await _asked(client, "GET", f"{url}/v1/rl/status")  # the list of models needs no key; this does
    models = listed.get("data")
    first = models[0] if isinstance(models, list) and models else None
    if not isinstance(first, dict):
        raise ConfigError(f"{url} lists no model", fix="check that the address is that of `openclaw-rl serve`")
    context = first.get("max_model_len")
    return Target(url, key, str(first.get("id", "")), context if isinstance(context, int) else None)


async def try_turn(target: Target, api: Api, *, as_openclaw: bool) -> TestTurnReport:
    """The server's classification of one request in the client's form. It is a side turn; its session ends at once."""
    body = _body(api, as_openclaw=as_openclaw)
    async with _client(target.key) as client:
        async with client.post(f"{target.url}{api.value}", json=body, headers={CONNECTING: "1"}) as answer:
            if answer.status == 404:
                raise ConfigError(f"this server has no {api.value}", fix="update openclaw-rl")
            held = _object(await answer.read())
            if answer.status != 200:
                raise ConfigError(
                    f"the test turn was answered {answer.status}: {_said(held)}", fix="see the server's log"
                )
            turn = answer.headers.get(TURN_HEADER, "")
        row = await _asked(client, "GET", f"{target.url}/v1/rl/turns/{turn}")
        session = str(row.get("session", ""))
        await _asked(client, "POST", f"{target.url}/v1/rl/session_done", headers={"X-Session-Id": session})
    reply = row.get("reply")
    text = reply.get("content") if isinstance(reply, dict) else ""
    return TestTurnReport(str(row.get("kind")), str(row.get("why")), session, str(row.get("version")), str(text or ""))


def _body(api: Api, *, as_openclaw: bool) -> dict[str, Json]:
    words = "Hello! This is a test of the connection."
    if as_openclaw:
        return _openclaw_body(words)
    if api is Api.RESPONSES:
        return {"model": ALIAS, "input": words, "max_output_tokens": 24}
    said: list[Json] = [{"role": "user", "content": words}]
    return {"model": ALIAS, "messages": said, "max_tokens": 24}


def _openclaw_body(words: str) -> dict[str, Json]:
    """A request in OpenClaw's form, without its plugin: session and kind are only in the prompt."""
    stamp = f"{datetime.now(UTC):%a %Y-%m-%d %H:%M} UTC"
    name = uuid.uuid4()
    key = f"agent:main:connect-{name.hex[:8]}"
    line = f"Runtime: agent=main | session={key} | sessionId={name} | host=test | model={ALIAS}"
    system = "You are a personal assistant running inside OpenClaw."
    schema: Json = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
    return {
        "model": ALIAS,
        "messages": [
            {"role": "system", "content": system},
            {"role": "user", "content": f"[{stamp}] {words}\n\n{line}"},
        ],
        "tools": [
            {"type": "function", "function": {"name": "read", "description": "Read files", "parameters": schema}}
        ],
        "max_completion_tokens": 24,
    }


def _client(key: str) -> aiohttp.ClientSession:
    import aiohttp

    timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
    return aiohttp.ClientSession(headers={"Authorization": f"Bearer {key}"}, timeout=timeout)


async def _asked(
    client: aiohttp.ClientSession, method: str, url: str, *, headers: Mapping[str, str] | None = None
) -> dict[str, Json]:
    import aiohttp

    try:
        async with client.request(method, url, headers=headers) as answer:
            body = _object(await answer.read())
            status = answer.status
    except (TimeoutError, aiohttp.ClientError) as problem:
        raise ConfigError(
            f"nothing answers at {url} ({problem or type(problem).__name__})",
            fix="start `openclaw-rl serve`, or give its address with --url http://HOST:PORT",
        ) from problem
    if status == 401:
        raise ConfigError(
            "the server does not take this API key",
            fix="give the right key with --api-key; the server's own key is in the file api_key of its home folder",
        )
    if status >= 400:
        raise ConfigError(
            f"{url} answered {status}: {_said(body)}", fix="check that the address is that of `openclaw-rl serve`"
        )
    return body


def _object(raw: bytes) -> dict[str, Json]:
    try:
        held: Json = msgspec.json.decode(raw)
    except msgspec.DecodeError:
        return {}
    return held if isinstance(held, dict) else {}


def _said(body: Mapping[str, Json]) -> str:
    error = body.get("error")
    return str(error.get("message", "")) if isinstance(error, dict) else "no reason given"
