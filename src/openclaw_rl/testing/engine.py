"""An engine with scripted answers, under the rules of a real one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass

from openclaw_rl.core.adapter import Adapter, files_of
from openclaw_rl.core.completion import Finish, SampledToken, Scores
from openclaw_rl.core.engine import EngineInfo, EngineStats
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.sampling import Grammar, Sampling
from openclaw_rl.core.version import BASE, PolicyVersion
from openclaw_rl.errors import AdapterError, EngineError, RequestError


@dataclass(frozen=True, slots=True)
class Says:
    """One answer, and what happens during it.

    Before the token `waits_at` it waits until the engine's `go` is set; instead of the token `fails_at` it ends in
    `problem`.
    """

    ids: Sequence[int]
    waits_at: int | None = None
    fails_at: int | None = None
    problem: Exception | None = None


Reply = Sequence[int] | Says
Script = Callable[[Prompt, Sampling, PolicyVersion], Reply]
Scoring = Callable[[Prompt, int, PolicyVersion, int], Scores]  # of a prompt from an id on, with this many likeliest ids


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """One request an engine got."""

    prompt: Prompt
    sampling: Sampling
    version: PolicyVersion


class ScriptedEngine:
    """Gives the replies in turn, or those of a function of the request; each token has log-probability `logp`.

    `scoring`, if given, computes the log-probabilities of ids, including its own answers'.

    Like a real engine, it stops at `max_tokens` and at a stop id (which it returns), refuses what is not loaded, does
    not fit or is damaged, and unloads a version when nothing runs on it; `tests/contracts` check this for both. A reply
    that the script ends has the finish reason `ends`. With `hold`, each token after the first waits until the event is
    set; with `gap_s`, each is due that long after the last. The first reports that `cached` ids of the prompt were
    reused.

    `asked`, `scored` and `calls` record the calls, `closed` those given up midway; `on_end` gets the number of tokens
    of each answer. While it `is_away`, every call raises EngineError.
    """

    def __init__(
        self,
        replies: Sequence[Reply] | Script,
        *,
        logp: float = -0.5,
        scoring: Scoring | None = None,
        ends: Finish = Finish.STOP,
        hold: asyncio.Event | None = None,
        gap_s: float = 0.0,
        cached: int = 0,
        on_end: Callable[[int], None] = lambda given: None,
        context_length: int = 1 << 20,
    ) -> None:
        self._script = replies if callable(replies) else _in_turn(replies)
        self._scoring = scoring or self._alike
        self._logp = logp
        self._ends = ends
        self._hold = hold
        self._gap_s = gap_s
        self._cached = cached
        self._on_end = on_end
        self._context_length = context_length
        self._running: dict[PolicyVersion, int] = {}
        self._leaving: set[PolicyVersion] = set()
        self.is_away = False
        self.go = asyncio.Event()
        self.versions: dict[PolicyVersion, Adapter | None] = {BASE: None}
        self.asked: list[EngineRequest] = []
        self.scored: list[EngineRequest] = []
        self.closed: list[EngineRequest] = []
        self.calls: list[str] = []

    @property
    def info(self) -> EngineInfo:
        """A model of 512 ids without weights."""
        return EngineInfo("scripted", "scripted", 0, 512, self._context_length, (2,), "none", "none", 0, ())

    @property
    def loaded(self) -> list[PolicyVersion]:
        """The loaded versions without the base model, in the order of loading."""
        return [version for version in self.versions if not version.is_base and version not in self._leaving]

    async def generate(
        self, prompt: Prompt, sampling: Sampling, version: PolicyVersion
    ) -> AsyncGenerator[SampledToken, None]:
        """The scripted reply, token by token."""
        self.calls.append(f"generate {version}")
        self._check(prompt, version, most=self._context_length - 1)
        asked = EngineRequest(prompt, sampling, version)
        self.asked.append(asked)
        self._running[version] = self._running.get(version, 0) + 1
        is_whole, given = False, 0
        loop = asyncio.get_running_loop()
        begin_s = loop.time()
        try:
            reply = self._script(prompt, sampling, version)
            says = reply if isinstance(reply, Says) else Says(reply)
            if not says.ids:
                raise EngineError("a scripted reply is empty: an engine samples at least one token")
            whole = Prompt((*prompt.tokens, *says.ids))
            nats = self._scoring(whole, len(prompt), version, sampling.top_logprobs)
            for at, token in enumerate(says.ids):
                await self._due(says, at, begin_s)
                finish = self._finish(at, token, says.ids, sampling)
                is_whole = finish is not None
                top = nats.top[at] if sampling.top_logprobs else ()
                cached = 0 if at else self._cached
                given += 1
                yield SampledToken(token, nats.logp[at], nats.logp[at], version, top, finish=finish, cached=cached)
                if is_whole:
                    return
        finally:
            if not is_whole:
                self.closed.append(asked)
            self._running[version] -= 1
            self._let_go()
            self._on_end(given)

    async def score(self, prompt: Prompt, *, start: int, version: PolicyVersion, top_k: int = 0) -> Scores:
        """The result of `scoring`; by default `logp` for each id, with itself and the ids after it as likeliest.

        Raises RequestError if there is nothing to score.
        """
        self.calls.append(f"score {version}")
        self._check(prompt, version, most=self._context_length)
        if not 1 <= start < len(prompt):
            raise RequestError(f"cannot score from token {start} of {len(prompt)}", fix="start at 1 or later")
        self.scored.append(EngineRequest(prompt, Sampling(1), version))
        return self._scoring(prompt, start, version, top_k)

    async def load(self, adapter: Adapter) -> None:
        """Loads a version. Raises AdapterError if its files are missing or not finite."""
        self.calls.append(f"load {adapter.version}")
        if self.is_away:
            raise EngineError("the engine is gone")
        if adapter.version.is_base:
            raise AdapterError(f"version {adapter.version} is the base model", fix="number adapters from 1 on")
        weights = adapter.folder / files_of(adapter.folder)[1]
        if not weights.is_file():
            raise AdapterError(f"{weights} is missing", fix="export it again, or roll back")
        if b"nan" in weights.read_bytes():
            raise AdapterError(f"the adapter in {adapter.folder} is not finite", fix="roll back")
        self.versions[adapter.version] = adapter
        self._leaving.discard(adapter.version)

    async def unload(self, version: PolicyVersion) -> None:
        """Forgets the version once nothing runs on it."""
        self.calls.append(f"unload {version}")
        if version in self.loaded:
            self._leaving.add(version)
            self._let_go()

    async def flush(self) -> None:
        """Does nothing: it caches no prompts."""
        self.calls.append("flush")

    async def check_grammar(self, grammar: Grammar) -> None:
        """Raises RequestError: a script cannot be constrained."""
        raise RequestError("a scripted engine cannot constrain an answer to a format", fix="leave the format out")

    async def stats(self) -> EngineStats:
        """The number of running answers; the rest is not counted."""
        if self.is_away:
            raise EngineError("the engine is gone")
        versions = tuple(str(version) for version in self.loaded)
        return EngineStats(sum(self._running.values()), 0, 0, 0, 0, 0, 0, 0.0, 0.0, versions)

    async def aclose(self) -> None:
        """Makes it unavailable from now on."""
        self.is_away = True

    async def _due(self, says: Says, at: int, begin_s: float) -> None:
        """Returns when the token is due. Raises the problem scripted in its place."""
        if at == says.fails_at and says.problem is not None:
            raise says.problem
        if at == says.waits_at:
            await self.go.wait()
        if at and self._hold is not None:
            await self._hold.wait()
        late_s = begin_s + at * self._gap_s - asyncio.get_running_loop().time()
        await asyncio.sleep(max(0.0, late_s) if self._gap_s else 0)
        if self.is_away:
            raise EngineError("the engine is gone")

    def _alike(self, prompt: Prompt, start: int, version: PolicyVersion, top_k: int) -> Scores:
        rest = prompt.tokens[start:]
        top = tuple(self._top(token, top_k) for token in rest) if top_k else ()
        return Scores(start, tuple(self._logp for _ in rest), top)

    def _top(self, token: int, many: int) -> tuple[tuple[int, float], ...]:
        return tuple((token + k, self._logp - k) for k in range(many))

    def _check(self, prompt: Prompt, version: PolicyVersion, *, most: int) -> None:
        if self.is_away:
            raise EngineError("the engine is gone")
        if len(prompt) > most:
            raise RequestError(
                f"the prompt has {len(prompt)} tokens, the context is {self._context_length}",
                fix="shorten the conversation",
                code="context_length_exceeded",
            )
        if not version.is_base and (version not in self.versions or version in self._leaving):
            raise EngineError(f"version {version} is not loaded")

    def _let_go(self) -> None:
        for version in [each for each in self._leaving if not self._running.get(each)]:
            self.versions.pop(version, None)
            self._leaving.discard(version)

    def _finish(self, at: int, token: int, tokens: Sequence[int], sampling: Sampling) -> Finish | None:
        if token in sampling.stop_ids:
            return Finish.STOP
        if at + 1 == sampling.max_tokens:
            return Finish.LENGTH
        return self._ends if at == len(tokens) - 1 else None


def _in_turn(replies: Sequence[Reply]) -> Script:
    rest = iter(replies)

    def reply(prompt: Prompt, sampling: Sampling, version: PolicyVersion) -> Reply:
        found = next(rest, None)
        if found is None:
            raise EngineError(f"the script is over: it held {len(replies)} replies")
        return found

    return reply
