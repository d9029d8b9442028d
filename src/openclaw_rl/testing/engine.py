"""An engine that says what it was told to say, under the rules of a real one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass

from openclaw_rl.core.adapter import Adapter
from openclaw_rl.core.completion import Finish, SampledToken, Scores
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.sampling import Sampling
from openclaw_rl.core.version import BASE, PolicyVersion
from openclaw_rl.errors import EngineError

Script = Callable[[Prompt, Sampling, PolicyVersion], Sequence[int]]


@dataclass(frozen=True, slots=True)
class Asked:
    """One request an engine got."""

    prompt: Prompt
    sampling: Sampling
    version: PolicyVersion


class ScriptedEngine:
    """Gives the replies in turn, or what a function of the request gives; each token at a log-probability of `logp`.

    Like a real engine it stops at `max_tokens` and at a stop id (which it gives), refuses versions that are not
    loaded, and unloads one once nothing runs on it. `asked` holds the requests, `closed` those given up midway. With
    `hold`, each token after the first waits until the event is set; with `gap_s`, it is due that long after the last.
    """

    def __init__(
        self,
        replies: Sequence[Sequence[int]] | Script,
        *,
        logp: float = -0.5,
        hold: asyncio.Event | None = None,
        gap_s: float = 0.0,
    ) -> None:
        self._script = replies if callable(replies) else _in_turn(replies)
        self._logp = logp
        self._hold = hold
        self._gap_s = gap_s
        self._running: dict[PolicyVersion, int] = {}
        self._leaving: set[PolicyVersion] = set()
        self.versions: dict[PolicyVersion, Adapter | None] = {BASE: None}
        self.asked: list[Asked] = []
        self.scored: list[Asked] = []
        self.closed: list[Asked] = []

    async def generate(
        self, prompt: Prompt, sampling: Sampling, version: PolicyVersion
    ) -> AsyncGenerator[SampledToken, None]:
        """The scripted reply, token by token."""
        self._check(version)
        asked = Asked(prompt, sampling, version)
        self.asked.append(asked)
        self._running[version] = self._running.get(version, 0) + 1
        is_whole = False
        loop = asyncio.get_running_loop()
        begin_s = loop.time()
        try:
            tokens = list(self._script(prompt, sampling, version))
            if not tokens:
                raise EngineError("a scripted reply is empty: an engine samples at least one token")
            for at, token in enumerate(tokens):
                if at and self._hold is not None:
                    await self._hold.wait()
                await asyncio.sleep(max(0.0, begin_s + at * self._gap_s - loop.time()) if self._gap_s else 0)
                finish = self._finish(at, token, tokens, sampling)
                is_whole = finish is not None
                yield SampledToken(token, self._logp, self._logp, version, finish=finish)
                if is_whole:
                    return
        finally:
            if not is_whole:
                self.closed.append(asked)
            self._running[version] -= 1
            self._let_go()

    async def score(self, prompt: Prompt, *, start: int, version: PolicyVersion, top_k: int = 0) -> Scores:
        """`logp` for each id from `start` on; as likeliest the ids themselves and those after them."""
        self._check(version)
        if not 1 <= start <= len(prompt):
            raise ValueError(f"start is {start}: it lies between 1 and {len(prompt)}")
        self.scored.append(Asked(prompt, Sampling(1), version))
        rest = prompt.tokens[start:]
        top = tuple(tuple((token + k, self._logp - k) for k in range(top_k)) for token in rest) if top_k else ()
        return Scores(start, tuple(self._logp for _ in rest), top)

    async def load(self, adapter: Adapter) -> None:
        """From now on this version can be asked for."""
        self.versions[adapter.version] = adapter
        self._leaving.discard(adapter.version)

    async def unload(self, version: PolicyVersion) -> None:
        """Forgets the version once nothing runs on it."""
        self._leaving.add(version)
        self._let_go()

    def _check(self, version: PolicyVersion) -> None:
        if version not in self.versions or version in self._leaving:
            raise EngineError(f"version {version} is not loaded")

    def _let_go(self) -> None:
        for version in [each for each in self._leaving if not self._running.get(each)]:
            self.versions.pop(version, None)
            self._leaving.discard(version)

    def _finish(self, at: int, token: int, tokens: Sequence[int], sampling: Sampling) -> Finish | None:
        if token in sampling.stop_ids or at == len(tokens) - 1:
            return Finish.STOP
        return Finish.LENGTH if at + 1 == sampling.max_tokens else None


def _in_turn(replies: Sequence[Sequence[int]]) -> Script:
    rest = iter(replies)

    def reply(prompt: Prompt, sampling: Sampling, version: PolicyVersion) -> Sequence[int]:
        found = next(rest, None)
        if found is None:
            raise EngineError(f"the script is over: it held {len(replies)} replies")
        return found

    return reply
