"""The calls to a vLLM or SGLang server, whatever its routes are called."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec

from openclaw_rl.core.completion import Finish
from openclaw_rl.core.sampling import Sampling
from openclaw_rl.engines.remote.http import ServerHttp
from openclaw_rl.engines.settings import RemoteSettings

Top = tuple[tuple[int, float], ...]


class Piece(msgspec.Struct, frozen=True):
    """Tokens that arrived together: ids, log-probabilities at temperature 1 in nats, and the likeliest at each place.

    `finish` is set on the last piece. `cached` counts the prompt's ids that the server had read before, if reported.
    """

    tokens: Sequence[int] = ()
    logp: Sequence[float] = ()
    top: Sequence[Top] = ()
    finish: Finish | None = None
    cached: int = 0


@dataclass(frozen=True, slots=True)
class RemoteRequest:
    """One request as a server gets it: the prompt's ids, and the adapter's name, empty for the base model."""

    tokens: tuple[int, ...]
    sampling: Sampling
    adapter: str
    seed: int | None  # sent only if answers must be repeatable: servers are slower with it, and some end
    salt: str = ""  # prompts with different salts share no cache


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What a server reports of itself."""

    model: str
    context_length: int
    release: str = ""
    takes_adapters: bool | None = None  # None if it does not say
    largest_rank: int | None = None
    grammars: str = ""  # the library that compiles them, if reported


@dataclass(frozen=True, slots=True)
class Launch:
    """How a server is started: for adapters of at most this rank, at the address and port of its host."""

    settings: RemoteSettings
    python: str
    model: Path
    key: str
    rank: int
    versions: int
    seed: int | None = None
    modules: tuple[str, ...] = ()  # the layers that adapters change, if known
    address: str = "127.0.0.1"
    port: int = 0


class Dialect(Protocol):
    """The routes and bodies of one kind of server. Methods raise what `ServerHttp` raises."""

    @property
    def name(self) -> str:
        """The name of the kind."""

    def command(self, launch: Launch) -> tuple[list[str], dict[str, str]]:
        """The command that starts a server, and what is added to its environment."""

    async def facts(self, http: ServerHttp) -> ServerFacts:
        """Its model and context."""

    async def tokenize(self, http: ServerHttp, text: str) -> tuple[int, ...] | None:
        """The server's token ids of a text; None if it has no route for that."""

    async def load(self, http: ServerHttp, name: str, folder: Path) -> None:
        """Makes an adapter ready under a name."""

    async def unload(self, http: ServerHttp, name: str) -> None:
        """Forgets it."""

    def generate(self, http: ServerHttp, ask: RemoteRequest) -> AsyncGenerator[Piece, None]:
        """Sampled tokens as they come; closing the iterator ends the request on the server."""

    async def score(
        self, http: ServerHttp, tokens: tuple[int, ...], *, start: int, adapter: str, top_k: int
    ) -> tuple[list[float], list[Top]]:
        """Log-probabilities of `tokens[start:]`, and the `top_k` likeliest at each place."""

    async def flush(self, http: ServerHttp) -> None:
        """Drops all cached prompts."""
