"""The gate: what a version must show before it is served, on prompts of the people it is to serve."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from openclaw_rl.core.completion import Finish
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.protocols import Engine, Renderer
from openclaw_rl.core.sampling import Sampling
from openclaw_rl.core.turn import Turn
from openclaw_rl.core.version import BASE, SHARED, PolicyVersion
from openclaw_rl.errors import RequestError
from openclaw_rl.publish.settings import PublishSettings
from openclaw_rl.store.db import Store
from openclaw_rl.store.rows import TurnRow, VersionRow

log = logging.getLogger(__name__)
RECENT = 50  # rows looked at for prompts
TEMPERATURE = 0.7
LEAST_MASS = 1e-9
Top = tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class GateReport:
    """Whether a version may be served, why (not), and what was measured."""

    passed: bool
    why: str
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Gate:
    """Tries versions that the engine has loaded. `stop_ids` end an answer."""

    store: Store
    engine: Engine
    renderer: Renderer
    stop_ids: tuple[int, ...]
    settings: PublishSettings

    async def check(self, candidate: VersionRow, *, parent: PolicyVersion) -> GateReport:
        """The report. Raises EngineError or RequestError where the engine cannot try it now."""
        if not self.settings.gate:
            return GateReport(True, "not tried: the gate is off")
        turns = await self._turns(candidate)
        distance = await self._distance(turns[: self.settings.kl_turns], candidate.version)
        metrics = {"gate_turns": float(len(turns))}
        if distance is not None:
            metrics["gate_kl"] = distance
            if not math.isfinite(distance):
                return GateReport(False, "its log-probabilities are not finite", {"gate_turns": float(len(turns))})
            if distance > self.settings.kl_max:
                why = f"it is {distance:.2f} nats a token from the base model; {self.settings.kl_max:g} are allowed"
                return GateReport(False, why, metrics)
        probes = turns[: self.settings.probes]
        faults = await self._faults(probes, candidate.version)
        metrics["gate_faults"] = float(len(faults))
        if faults:
            before = await self._faults([turn for turn in probes if turn.id in faults], parent)
            metrics["gate_faults_before"] = float(len(before))
            if (len(faults) - len(before)) / len(probes) > self.settings.probe_margin:
                kinds = ", ".join(sorted(set(faults.values())))
                why = f"{len(faults)} of {len(probes)} trial replies are degenerate ({kinds}), {len(before)} before"
                return GateReport(False, why, metrics)
        return GateReport(True, "passed the gate" if turns else "passed the gate: no prompts to try it on yet", metrics)

    async def _turns(self, candidate: VersionRow) -> list[Turn]:
        """Recent main turns, one for each prompt, those the version was not trained on first.

        An own version is tried on its owner's turns where there are any.
        """
        own = candidate.version.scope
        found = self._usable(await self.store.rows(limit=RECENT, scope=own)) if own != SHARED else {}
        found = found or self._usable(await self.store.rows(limit=RECENT))
        return sorted(found.values(), key=lambda turn: turn.id in candidate.turns)

    def _usable(self, rows: Sequence[TurnRow]) -> dict[tuple[int, ...], Turn]:
        """The turns to try a version on, each behind its client's own prompt: hints would speak for the weights."""
        found: dict[tuple[int, ...], Turn] = {}
        for row in rows:
            is_short = len(row.turn.prompt) <= self.settings.probe_prompt_tokens
            if row.turn.is_main and is_short and row.turn.completion.tokens:
                bare = self.renderer.reread(row.turn, row.turn.messages) if row.turn.carried else row.turn.prompt
                found.setdefault(bare.tokens, replace(row.turn, prompt=bare, carried=()))
        return found

    async def _distance(self, turns: Sequence[Turn], version: PolicyVersion) -> float | None:
        """The mean over all tokens of the divergence from the base model; None without turns."""
        total, tokens = 0.0, 0
        for turn in turns:
            prompt = Prompt(turn.prompt.tokens + turn.completion.tokens, images=turn.prompt.images)
            start = len(turn.prompt)
            tried = await self.engine.score(prompt, start=start, version=version, top_k=self.settings.kl_top_k)
            if any(not math.isfinite(value) for value in tried.logp):
                return math.nan
            base = await self.engine.score(prompt, start=start, version=BASE, top_k=self.settings.kl_top_k)
            total += await asyncio.to_thread(_sum_of_divergence, tried.top, base.top)
            tokens += len(tried.top)
        return total / tokens if tokens else None

    async def _faults(self, turns: Sequence[Turn], version: PolicyVersion) -> dict[str, str]:
        """What is wrong with trial replies, by turn; those that are fine are left out."""
        found: dict[str, str] = {}
        for turn in turns:
            fault = await self._fault(turn, version)
            if fault:
                found[turn.id] = fault
        return found

    async def _fault(self, turn: Turn, version: PolicyVersion) -> str:
        exploded = 2 * len(turn.completion.tokens) + 32
        sampling = Sampling(
            max_tokens=min(self.settings.probe_tokens, exploded),
            temperature=TEMPERATURE,
            seed=0,
            stop_ids=self.stop_ids,
        )
        sampled = [item async for item in self.engine.generate(turn.prompt, sampling, version)]
        tokens = [item.token for item in sampled]
        try:
            reply, _ = self.renderer.decode(tokens)
        except (RequestError, ValueError):
            return "cannot be read"
        if not reply.text.strip() and not reply.tool_calls and not (reply.reasoning or "").strip():
            return "empty"
        if is_loop(tokens):
            return "a loop"
        return "does not end" if len(tokens) >= exploded and sampled[-1].finish is Finish.LENGTH else ""


def divergence(candidate: Top, base: Top) -> float:
    """A lower bound of KL(candidate || base) at one position, in nats.

    Both are the likeliest (id, logp) of their model. Tokens that both name are compared one by one, those that only
    the base names as one bin, all others as another. What the candidate gives to the first bin is known only to be no
    more than its least likely named token, for each; it is taken as the share that makes the divergence smallest.
    """
    named = dict(candidate)
    shared = [(named[token], logp) for token, logp in base if token in named]
    unnamed = [math.exp(logp) for token, logp in base if token not in named]
    left = max(1.0 - sum(math.exp(logp) for logp, _ in shared), LEAST_MASS)
    base_unnamed = sum(unnamed)
    base_rest = max(1.0 - sum(math.exp(logp) for _, logp in shared) - base_unnamed, LEAST_MASS)
    most = len(unnamed) * math.exp(min(named.values(), default=0.0))
    in_unnamed = min(most, left * base_unnamed / (base_unnamed + base_rest))
    bins = [(in_unnamed, base_unnamed), (left - in_unnamed, base_rest)]
    return sum(math.exp(logp) * (logp - other) for logp, other in shared) + sum(
        mass * math.log(mass / other) for mass, other in bins if mass > 0.0
    )


def is_loop(tokens: Sequence[int], *, longest: int = 40, times: int = 4, least: int = 24) -> bool:
    """Whether the tokens end in the same run of up to `longest`, `times` over or more, `least` tokens in all."""
    for period in range(1, longest + 1):
        span = max(times * period, least)
        tail = tokens[-span:]
        if len(tail) == span and all(tail[index] == tail[index - period] for index in range(period, span)):
            return True
    return False


def _sum_of_divergence(candidate: Sequence[Top], base: Sequence[Top]) -> float:
    return sum(divergence(one, other) for one, other in zip(candidate, base, strict=True))
