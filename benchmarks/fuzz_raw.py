"""Requests no client library would send: broken JSON, broken HTTP, and everything in between, made from a seed."""

from __future__ import annotations

import json
import random
import re
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from benchmarks.http import KEY

ANSWER_S = 60.0
CUT_S = 0.3
_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})")
_TALK = [{"role": "user", "content": "2 + 2?"}]
_TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}
BODIES: dict[str, dict[str, object]] = {
    "/v1/chat/completions": {"model": "default", "messages": _TALK, "tools": [_TOOL], "max_tokens": 2, "stream": True},
    "/v1/completions": {"model": "default", "prompt": "2 + 2 is", "max_tokens": 2, "logprobs": 1},
    "/v1/responses": {"model": "default", "input": [{"role": "user", "content": "2 + 2?"}], "max_output_tokens": 2},
    "/v1/responses/input_tokens": {"model": "default", "input": "2 + 2?"},
    "/v1/messages": {"model": "default", "messages": _TALK, "max_tokens": 2, "system": "Be brief.", "stream": False},
    "/v1/messages/count_tokens": {"model": "default", "messages": _TALK},
    "/v1/feedback": {"score": 1, "session_id": "s", "text": "well done"},
    "/v1/sessions/s/done": {},
    "/v1/rl/session_done": {},
    "/v1/rl/rollback": {"version": 0},
    "/v1/rl/pin": {"version": 0},
    "/v1/rl/unpin": {"scope": "shared"},
    "/v1/rl/compare": {"versions": [0, 0], "prompts": ["2 + 2?"], "max_tokens": 2},
}
_LONG_NUMBER = "a number of 5,000 digits"
_ODD: tuple[object, ...] = (
    None,
    True,
    -1,
    0,
    1e308,
    -1e308,
    2**63,
    2**64 + 1,
    10**400,
    "",
    "\0",
    "\ud800",
    "\U0010ffff" * 40,
    "x" * 100_000,
    "word " * 200_000,
    [],
    {},
    [[]],
    [None],
    {"": None},
    {"\ud83d": "\udc00"},
    [-1],
    {"session_id": {}},
    {"a": {"b": [{"c": [[]]}]}},
    "NaN",
    0.1 + 0.2,
    1e-300,
    5e-324,
    -0.0,
    _LONG_NUMBER,
    [1] * 300,
    {"type": "object", "properties": {"a": {"$ref": "#"}}},
)
_FIELDS = (
    *("logit_bias", "user", "session_id", "session_done", "turn_type", "metadata", "seed", "stop", "n", "x"),
    *("top_k", "top_p", "min_p", "temperature", "stop_token_ids", "top_logprobs", "logprobs", "max_completion_tokens"),
    *("reasoning_effort", "stream_options", "tool_choice", "chat_template_kwargs", "instructions", "prompt_cache_key"),
    *("previous_response_id", "include", "reasoning", "text", "thinking", "output_config", "ignore_eos", "best_of"),
    *("stop_sequences", "parallel_tool_calls", "tools", "response_id", "store", "truncation", "stream"),
)


@dataclass(frozen=True, slots=True)
class Shot:
    """The bytes of one connection. Where more is promised than comes, the client soon hangs up."""

    name: str
    data: bytes
    is_cut: bool = False
    has_body: bool = True  # the answer has one


def shots(seed: int, count: int) -> Iterator[Shot]:
    """That many shots, the same ones for a seed: each way at each route in turn, chance decides the rest."""
    chance = random.Random(seed)
    for at in range(count):
        path = list(BODIES)[at % len(BODIES)]
        way = _WAYS[at // len(BODIES) % len(_WAYS)]
        yield way(chance, path)


def status_of(shot: Shot, port: int) -> int | None:
    """The first status that came back; None where the server hung up or waited for the rest of a request.

    Raises TimeoutError where a whole request is not answered.
    """
    with socket.create_connection(("127.0.0.1", port), timeout=CUT_S if shot.is_cut else ANSWER_S) as line:
        held = b""
        try:
            line.sendall(shot.data)
            while not _is_whole(held, has_body=shot.has_body) and (more := line.recv(65536)):
                held += more
        except ConnectionError:
            pass
        except TimeoutError:
            if not shot.is_cut:
                raise
    found = _STATUS.match(held)
    return int(found[1]) if found else None


def _is_whole(held: bytes, *, has_body: bool) -> bool:
    head, mark, body = held.partition(b"\r\n\r\n")
    if not mark or not has_body:
        return bool(mark)
    length = re.search(rb"(?i)\r\ncontent-length: (\d+)", head)
    return len(body) >= int(length[1]) if length else body.endswith(b"0\r\n\r\n")


def request_bytes(path: str, body: bytes, *extra: str, method: str = "POST", length: int | None = None) -> bytes:
    """A request with our key, as it goes over the line; `extra` are more headers."""
    lines = [
        f"{method} {path} HTTP/1.1",
        "Host: fuzz",
        f"Authorization: Bearer {KEY}",
        f"Content-Length: {len(body) if length is None else length}",
        "Content-Type: application/json",
        *extra,
    ]
    return "\r\n".join([*lines, "", ""]).encode("utf-8", "surrogatepass") + body


def _written(body: object) -> bytes:
    return json.dumps(body, ensure_ascii=True).replace(f'"{_LONG_NUMBER}"', "9" * 5000).encode()


def _odd_value(chance: random.Random, path: str) -> Shot:
    """One value somewhere in the body replaced."""
    body = json.loads(_written(BODIES[path]))
    places: list[tuple[dict[str, object] | list[object], str | int]] = []

    def walk(value: object) -> None:
        for key, held in value.items() if isinstance(value, dict) else enumerate(value):  # type: ignore[arg-type]
            places.append((value, key))  # type: ignore[arg-type]
            if isinstance(held, dict | list):
                walk(held)

    walk(body)
    if places:
        where, key = chance.choice(places)
        where[key] = chance.choice(_ODD)  # type: ignore[index]
    else:
        body = chance.choice(_ODD)
    return Shot("odd value", request_bytes(path, _written(body)))


def _unknown_field(chance: random.Random, path: str) -> Shot:
    names = (*_FIELDS, "\ud800", "a" * 3000, "")
    fields = {chance.choice(names): chance.choice(_ODD) for _ in range(4)}
    return Shot("unknown fields", request_bytes(path, _written({**BODIES[path], **fields})))


def _broken_bytes(chance: random.Random, path: str) -> Shot:
    """Some bytes changed, dropped or doubled: bad UTF-8, bad JSON, duplicate keys."""
    body = bytearray(_written(BODIES[path]))
    for _ in range(chance.randint(1, 6)):
        at = chance.randrange(len(body)) if body else 0
        kind = chance.randrange(3)
        if kind == 0 and body:
            body[at] = chance.randrange(256)
        elif kind == 1:
            body[at:at] = body[at : at + chance.randint(1, 20)]
        else:
            del body[at : at + chance.randint(1, 5)]
    return Shot("broken bytes", request_bytes(path, bytes(body)))


def _deep(chance: random.Random, path: str) -> Shot:
    depth = chance.choice((50, 500, 5_000, 100_000))
    opening, closing = chance.choice(((b"[", b"]"), (b'{"a":', b"}")))
    nested = opening * depth + b"1" + closing * chance.choice((0, depth))
    name = chance.choice(("messages", "metadata", "tools", "chat_template_kwargs", "prompt", "input", "x")).encode()
    body = _written(BODIES[path])[:-1].rstrip(b"{")
    head = b"{" + body.lstrip(b"{") + (b"," if len(body) > 1 else b"")
    return Shot("deep", request_bytes(path, head + b'"%b":%b}' % (name, nested)))


def _twice(chance: random.Random, path: str) -> Shot:
    """Every key stands twice, the second time with something else."""
    first = _written(BODIES[path])[1:-1]
    odd = b",".join(b'"%b":%b' % (key.encode(), _written(chance.choice(_ODD))) for key in BODIES[path])
    return Shot("keys twice", request_bytes(path, b"{" + b",".join(piece for piece in (first, odd) if piece) + b"}"))


def _encoding(chance: random.Random, path: str) -> Shot:
    kind = chance.choice(("utf-16", "utf-32", "utf-8-sig", "latin-1"))
    body = json.dumps({**BODIES[path], "user": "ü€😀"}, ensure_ascii=False).encode(kind, "replace")
    claimed = chance.choice(("application/json; charset=" + kind, "text/plain", "multipart/form-data", "", "x/y; =;"))
    packed = chance.choice(("gzip", "deflate", "br", "zstd", "identity", "nonsense", ""))
    return Shot("encoding", request_bytes(path, body, f"Content-Type: {claimed}", f"Content-Encoding: {packed}"))


def _headers(chance: random.Random, path: str) -> Shot:
    names = ("X-Session-Id", "X-Turn-Type", "X-Session-Done", "X-User-Id", "X-Agent-Id", "Session_id", "Cookie")
    values = ("", " ", "x" * 6000, "a:b/c?d", "ü€😀", "%00", "\x01", "a\tb", "'; --", "../..", "true", "main", "side")
    extra = [f"{chance.choice(names)}: {chance.choice(values)}" for _ in range(chance.choice((1, 3, 200)))]
    return Shot("headers", request_bytes(path, _written(BODIES[path]), *extra))


def _lengths(chance: random.Random, path: str) -> Shot:
    body = _written(BODIES[path])
    length = chance.choice((0, 1, len(body) - 1, len(body) + 1, len(body) + 10_000, 2**31, 2**63, 10**30))
    return Shot("length", request_bytes(path, body, length=length), is_cut=length > len(body))


def _two_lengths(chance: random.Random, path: str) -> Shot:
    """What smuggles requests past proxies: two lengths, or a length and chunks."""
    body = _written(BODIES[path])
    extra = chance.choice(
        (
            f"Content-Length: {len(body) + 7}",
            "Transfer-Encoding: chunked",
            "Transfer-Encoding: chunked, identity",
            "Transfer-Encoding : chunked",
            "Transfer-Encoding:\tchunked",
            "Content-Length: +5",
            "Content-Length: 5, 5",
        )
    )
    return Shot("two lengths", request_bytes(path, body, extra))


def _chunks(chance: random.Random, path: str) -> Shot:
    body = _written(BODIES[path])
    head = f"POST {path} HTTP/1.1\r\nHost: fuzz\r\nAuthorization: Bearer {KEY}\r\nTransfer-Encoding: chunked\r\n\r\n"
    sizes = (b"%x" % len(body), b"%x;ext=1" % len(body), b"-1", b"zz", b"", b"0", b"f" * 20, b"%x" % (len(body) + 5))
    tail = chance.choice((b"\r\n0\r\n\r\n", b"\r\n0\r\nA: b\r\n\r\n", b"0\r\n\r\n", b"\r\n", b""))
    return Shot("chunks", head.encode() + chance.choice(sizes) + b"\r\n" + body + tail, is_cut=True)


def _method(chance: random.Random, path: str) -> Shot:
    method = chance.choice(
        ("GET", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE", "CONNECT", "BREW", "post", "P T")
    )
    return Shot("method", request_bytes(path, _written(BODIES[path]), method=method), has_body=method != "HEAD")


def _path(chance: random.Random, path: str) -> Shot:
    odd = chance.choice(
        (
            "//",
            "/../..",
            "?" + "a=1&" * 500,
            "%00",
            "%ff%fe",
            "/" + "x" * 9000,
            "#a",
            "?limit=\ud800",
            "/%2e%2e/",
            ";a=b",
        )
    )
    return Shot("path", request_bytes(path + odd, _written(BODIES[path])))


def _cut(chance: random.Random, path: str) -> Shot:
    """The client is gone in the middle."""
    whole = request_bytes(path, _written(BODIES[path]))
    return Shot("cut", whole[: chance.randrange(1, len(whole))], is_cut=True)


def _noise(chance: random.Random, path: str) -> Shot:
    starts = (
        b"",
        b"GET / HTTP/1.1\r\n",
        b"POST " + path.encode() + b" HTTP/9.9\r\n\r\n",
        b"\x16\x03\x01",
        b"PRI * HTTP/2.0",
    )
    return Shot("noise", chance.choice(starts) + chance.randbytes(chance.randint(0, 3000)), is_cut=True)


_WAYS: tuple[Callable[[random.Random, str], Shot], ...] = (
    _odd_value,
    _odd_value,
    _odd_value,
    _unknown_field,
    _broken_bytes,
    _broken_bytes,
    _deep,
    _twice,
    _encoding,
    _headers,
    _lengths,
    _two_lengths,
    _chunks,
    _method,
    _path,
    _cut,
    _noise,
)
