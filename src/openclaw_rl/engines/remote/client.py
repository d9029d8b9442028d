"""Several servers of vLLM or SGLang as one engine.

The beginning of a prompt decides its server, so that a session stays where its prompts were read before. A server that
dies loses nothing: its requests continue on another from the tokens they have, and it returns with every version.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import random
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from openclaw_rl.core.adapter import Adapter, is_full
from openclaw_rl.core.completion import Finish, SampledToken, Scores
from openclaw_rl.core.engine import EngineInfo, EngineStats
from openclaw_rl.core.host import Host
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.sampling import Grammar, Sampling
from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.engines.grammar_problems import unquoted
from openclaw_rl.engines.limits import check_prompt, check_score, check_version
from openclaw_rl.engines.remote.checks import TEXT, check_server
from openclaw_rl.engines.remote.dialect import Dialect, Piece, RemoteRequest
from openclaw_rl.engines.remote.http import ServerGoneError, ServerHttp, ServerRefusal
from openclaw_rl.engines.remote.model import check_fits, described, matrices, text_ids
from openclaw_rl.engines.remote.replica import (
    KEY_REFUSED,
    LOST,
    Replica,
    launched,
    name_of,
    new_launch,
    refused_key,
)
from openclaw_rl.engines.remote.sglang import Sglang
from openclaw_rl.engines.remote.this_machine import ThisMachine
from openclaw_rl.engines.remote.vllm import Vllm
from openclaw_rl.engines.settings import EngineKind, EngineSettings, RemoteSettings
from openclaw_rl.errors import AdapterError, ConfigError, EngineAwayError, EngineError, RequestError, first_error

log = logging.getLogger(__name__)
ATTEMPTS = 4  # of one request, on servers that die during it
WAIT_S = 300.0  # for a server to come back, if none is up
BUSY = 1.5  # a session leaves its server if that has this many times the load of the idlest, and a few requests more
SOME = 4
BEGINNING = 256  # tokens of a prompt without segments
FULL = {429, 503}
SCORES_AT_ONCE = 8


class RemoteEngine:
    """An `Engine` on remote servers; made by `start`."""

    def __init__(
        self,
        settings: EngineSettings,
        info: EngineInfo,
        replicas: list[Replica],
        *,
        known: Mapping[str, tuple[int, int]],
    ) -> None:
        self._settings = settings
        self._info = info
        self._known = known  # the model's matrices, which an adapter must fit
        self._replicas = replicas
        self._adapters = replicas[0].adapters
        self._leaving: set[PolicyVersion] = set()
        self._users: dict[PolicyVersion, int] = {}
        self._seeds = None if settings.seed is None else random.Random(settings.seed)
        self._salt = secrets.token_hex(8)
        self._scores = asyncio.Semaphore(SCORES_AT_ONCE * len(replicas))
        self._background: set[asyncio.Task[None]] = set()
        self._is_closing = False
        self._sampled = self._read = self._reused = 0

    @classmethod
    async def start(
        cls, settings: EngineSettings, model: Path, *, rank: int, hosts: Sequence[Host] = ()
    ) -> RemoteEngine:
        """An engine whose servers answer and can do what is needed, including adapters of this rank.

        Servers that have to be started run on `hosts`, one on each; without any they run on this machine. Raises
        ConfigError, ModelError or EngineError.
        """
        remote, adapters = settings.remote, dict[PolicyVersion, Adapter]()
        dialect = _dialect(settings)
        if remote.urls:
            https = [ServerHttp(url, remote.api_key, silent_s=remote.silent_s) for url in remote.urls]
            replicas = [Replica(dialect(), http, remote, adapters) for http in https]
        else:
            most = settings.max_versions
            made = partial(new_launch, remote, model, rank=rank, versions=most, seed=settings.seed)
            places = hosts or [ThisMachine() for _ in range(remote.replicas)]
            replicas = [launched(dialect(), remote, adapters, made(), host) for host in places]
        tokens = await asyncio.to_thread(text_ids, model, TEXT)
        try:
            with first_error():
                async with asyncio.TaskGroup() as group:
                    for replica in replicas:
                        group.create_task(_started(replica, model, tokens, rank))
            facts = [replica.facts for replica in replicas if replica.facts]
            context = min((each.context_length for each in facts if each.context_length), default=0)
            info = await asyncio.to_thread(described, model, context, str(settings.kind), len(replicas))
            return cls(settings, info, replicas, known=await asyncio.to_thread(matrices, model))
        except BaseException:  # a start that is cancelled leaves no server behind either
            await asyncio.gather(*(replica.aclose() for replica in replicas), return_exceptions=True)
            raise

    @property
    def info(self) -> EngineInfo:
        """Facts of the served model."""
        return self._info

    @property
    def pids(self) -> list[int]:
        """The ids of the servers' processes that were started here."""
        return [replica.pid for replica in self._replicas if replica.pid]

    async def generate(self, prompt: Prompt, sampling: Sampling, version: PolicyVersion) -> AsyncIterator[SampledToken]:
        """Sampled tokens as they come; see core.protocols.Engine.

        `logp_sampled` is the model's own even if a temperature or cut was applied: these servers return only one of the
        two. Tokens of an answer with a grammar count as forced, since the servers do not report which were: they teach
        nothing.
        """
        check_prompt(prompt, self._info)
        self._check(version)
        limit = self._settings.max_rows + self._settings.max_waiting
        if sum(self._users.values()) >= limit * len(self._replicas):
            raise _full(f"{sum(self._users.values())} requests are running or waiting")
        seed = self._seeds.getrandbits(62) if sampling.seed is None and self._seeds else sampling.seed
        room = self._info.context_length - len(prompt)
        asked = replace(sampling, max_tokens=min(sampling.max_tokens, room))
        said: list[int] = []
        with self._using(version):
            pieces = self._pieces(prompt, asked, version, seed, said)
            try:
                async for piece in pieces:
                    for item in _tokens(piece, version, asked, is_first=not said):
                        said.append(item.token)
                        self._sampled += 1
                        yield item
            finally:
                await pieces.aclose()

    async def score(self, prompt: Prompt, *, start: int, version: PolicyVersion, top_k: int = 0) -> Scores:
        """Log-probabilities of the prompt's own ids from `start` on."""
        check_score(prompt, start, self._info)
        self._check(version)
        async with self._scores:
            with self._using(version):
                for _ in range(ATTEMPTS):
                    replica = await self._place(prompt)
                    try:
                        with _running(replica):
                            name = await self._named(replica, version)
                            logp, top = await replica.dialect.score(
                                replica.http, prompt.tokens, start=start, adapter=name, top_k=top_k
                            )
                        return Scores(start, tuple(logp), tuple(top))
                    except ServerGoneError:
                        replica.is_down()
                    except ServerRefusal as problem:
                        self._refused(replica, version, problem)
        raise EngineAwayError("every server that was asked went away", fix="see the servers' own messages")

    async def load(self, adapter: Adapter) -> None:
        """Loads a version on every server that is up; others get it when they come back."""
        if adapter.version.is_base:
            raise AdapterError(
                f"version {adapter.version} is the base model", fix="number adapters from 1 on; 0 needs no loading"
            )
        if is_full(adapter.folder):
            raise AdapterError(
                f"version {adapter.version} has every weight of the model, which {self._settings.kind} does not load",
                fix="set trainer.parameters to lora, or engine.kind to local",
            )
        await asyncio.to_thread(check_fits, adapter, self._known)
        up = [replica for replica in self._replicas if replica.is_up]
        found = await asyncio.gather(*(replica.load(adapter) for replica in up), return_exceptions=True)
        for replica, problem in zip(up, found, strict=True):
            if isinstance(problem, ServerGoneError):
                replica.is_down()
            elif isinstance(problem, BaseException):
                await asyncio.gather(*(each.unload(adapter.version) for each in up))
                raise problem
        if not any(problem is None for problem in found):
            raise EngineError("no server answers", fix="see the servers' own messages; it is tried again")
        self._adapters[adapter.version] = adapter
        self._leaving.discard(adapter.version)

    async def unload(self, version: PolicyVersion) -> None:
        """Accepts no new requests on the version; the servers unload it when the last one ends."""
        if version in self._adapters and version not in self._leaving:
            self._leaving.add(version)
            self._forget_unused(version)

    async def flush(self) -> None:
        """Drops all cached prefixes: no later prompt finds them, and the servers that are up drop them."""
        self._salt = secrets.token_hex(8)
        for replica in self._replicas:
            if replica.is_up:
                with contextlib.suppress(ServerGoneError):
                    await replica.dialect.flush(replica.http)

    async def check_grammar(self, grammar: Grammar) -> None:
        """Raises RequestError if these servers do not read its form; they compile it themselves."""
        if grammar.text.startswith("{"):
            raise RequestError(
                f"{self._settings.kind} does not accept a grammar in several parts",
                fix="write the grammar in Lark, or send a JSON schema",
                code="unsupported_format",
            )

    async def stats(self) -> EngineStats:
        """The requests that went through here, and how often servers came back; the servers have their own metrics."""
        versions = tuple(str(version) for version in self._adapters)
        running = sum(replica.running for replica in self._replicas)
        restarts = sum(replica.restarts for replica in self._replicas)
        return EngineStats(running, 0, 0, self._sampled, self._read, self._reused, 0, 0.0, 0.0, versions, restarts)

    async def aclose(self) -> None:
        """Ends the servers that were started here."""
        self._is_closing = True
        for task in list(self._background):
            task.cancel()
        await asyncio.gather(*(replica.aclose() for replica in self._replicas), return_exceptions=True)

    # -- requests
    async def _pieces(
        self, prompt: Prompt, sampling: Sampling, version: PolicyVersion, seed: int | None, said: list[int]
    ) -> AsyncGenerator[Piece, None]:
        """The pieces of one answer, from as many servers as needed; the next one reads `said` as prompt."""
        for attempt in range(ATTEMPTS):
            replica = await self._place(prompt)
            left = replace(sampling, max_tokens=sampling.max_tokens - len(said))
            own = None if seed is None else seed + attempt
            ask = RemoteRequest((*prompt.tokens, *said), left, "", own, self._salt)
            last: Piece | None = None
            try:
                with _running(replica):
                    ask = replace(ask, adapter=await self._named(replica, version))
                    stream = replica.dialect.generate(replica.http, ask)
                    try:
                        async for piece in stream:
                            self._reused += piece.cached
                            if piece.finish in (Finish.STOP, Finish.LENGTH):
                                last = piece  # yielded once the stream is read: its connection can be reused only then
                            elif piece.tokens:
                                yield piece
                    finally:
                        await stream.aclose()
                if last is None:
                    raise ServerGoneError(f"{replica.http.url} ended an answer without saying why")
            except ServerGoneError as problem:
                replica.is_down()
                if last is not None:
                    yield last
                    return
                if sampling.grammar is not None and said:
                    raise EngineError(
                        f"{problem.problem}, in the middle of an answer with a fixed format", fix="send it again"
                    ) from problem
                log.warning("an answer of %s continues on another server after %d tokens", version, len(said))
            except ServerRefusal as problem:
                self._refused(replica, version, problem)
            else:
                self._read += len(prompt)
                yield last
                return
        raise EngineAwayError("every server that was asked went away", fix="see the servers' own messages")

    def _refused(self, replica: Replica, version: PolicyVersion, problem: ServerRefusal) -> None:
        """Returns if another attempt may succeed; else raises the error that the refusal means."""
        if problem.status == LOST and replica.loaded.pop(version, None) is not None:
            log.warning("%s has lost version %s; it is loaded again", replica.http.url, version)
            return
        if problem.status in KEY_REFUSED:
            raise refused_key(replica.http.url) from problem
        if problem.status in FULL:
            raise _full(problem.problem) from problem
        if problem.status >= 500:
            raise EngineError(f"{replica.http.url}: {problem.problem}", fix="see the server's messages") from problem
        raise RequestError(unquoted(problem.problem), fix="change the request", code="engine_refused") from problem

    async def _place(self, prompt: Prompt) -> Replica:
        """The server for this prompt. Raises EngineError if none comes up in time."""
        until = asyncio.get_running_loop().time() + patience_s(self._settings.remote)
        while not any(replica.is_up for replica in self._replicas):
            if self._is_closing or asyncio.get_running_loop().time() > until:
                raise EngineAwayError("no server of the model answers", fix="see the servers' own messages")
            await asyncio.sleep(0.05)
        return placed(prompt, [replica for replica in self._replicas if replica.is_up])

    async def _named(self, replica: Replica, version: PolicyVersion) -> str:
        """The version's name on this server, which loads it if necessary."""
        if version.is_base:
            return ""
        adapter = self._adapters[version]
        await replica.load(adapter)
        return name_of(adapter)

    def _check(self, version: PolicyVersion) -> None:
        if self._is_closing:
            raise EngineError("the engine was closed")
        check_version(version, self._adapters, self._leaving)

    @contextlib.contextmanager
    def _using(self, version: PolicyVersion) -> Iterator[None]:
        self._users[version] = self._users.get(version, 0) + 1
        try:
            yield
        finally:
            self._users[version] -= 1
            self._forget_unused(version)

    def _forget_unused(self, version: PolicyVersion) -> None:
        if version not in self._leaving or self._users.get(version):
            return
        self._leaving.discard(version)
        self._adapters.pop(version, None)
        for replica in self._replicas:
            task = asyncio.get_running_loop().create_task(replica.unload(version))
            self._background.add(task)
            task.add_done_callback(self._background.discard)


def patience_s(remote: RemoteSettings) -> float:
    """How long requests wait if no server is up: one that is started here may take `start_s` to load its model."""
    return WAIT_S if remote.urls else max(WAIT_S, remote.start_s)


def placed(prompt: Prompt, up: list[Replica]) -> Replica:
    """The server for a prompt, by rendezvous hashing of its beginning, up to the first user message: the first in that
    order that is not much busier than the idlest.
    """
    keys = "".join(segment.key for segment in prompt.segments[:2])
    beginning = keys or ",".join(map(str, prompt.tokens[:BEGINNING]))
    ranked = sorted(up, key=lambda one: hashlib.blake2b(f"{one.mark}|{beginning}".encode(), digest_size=8).digest())
    least = min(replica.running for replica in up)
    return next(one for one in ranked if one.running <= BUSY * least + SOME)


@contextlib.contextmanager
def _running(replica: Replica) -> Iterator[None]:
    replica.running += 1
    try:
        yield
    finally:
        replica.running -= 1


def _tokens(piece: Piece, version: PolicyVersion, sampling: Sampling, *, is_first: bool) -> list[SampledToken]:
    is_held = sampling.grammar is not None
    return [
        SampledToken(
            token,
            piece.logp[at],
            piece.logp[at],
            version,
            piece.top[at] if at < len(piece.top) else (),
            piece.finish if at == len(piece.tokens) - 1 and piece.finish is not Finish.CANCELLED else None,
            piece.cached if is_first and not at else 0,
            piece.logp[at] if is_held else None,
            is_held,
        )
        for at, token in enumerate(piece.tokens)
    ]


async def _started(replica: Replica, model: Path, tokens: tuple[int, ...], rank: int) -> None:
    await replica.start()
    await check_server(replica, model, tokens, rank=rank)


def _dialect(settings: EngineSettings) -> Callable[[], Dialect]:
    if settings.kind is EngineKind.VLLM:
        return partial(Vllm, settings.remote.gather_ms / 1000)
    if settings.kind is EngineKind.SGLANG:
        return Sglang
    raise ConfigError(f"engine.kind {settings.kind} is not a server", fix="use vllm or sglang")


def _full(problem: str) -> RequestError:
    return RequestError(problem, fix="try again in a second", status=429, code="queue_full")
