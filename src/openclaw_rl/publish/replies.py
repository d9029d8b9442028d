"""Short replies to the prompts that versions are tried on: the base model's, and a version's next to them."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from openclaw_rl.core.completion import Finish
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.protocols import Engine, Renderer
from openclaw_rl.core.sampling import Sampling
from openclaw_rl.core.turn import Turn
from openclaw_rl.core.version import BASE, PolicyVersion
from openclaw_rl.errors import RequestError
from openclaw_rl.publish.divergence import Top, chance, departures, reached

TOP_K = 20
ENDLESS = "does not end"  # a fault of a trial reply
REMEMBERED = 64  # prompts: the next version is mostly tried on the same
RUN = 4  # tokens: a run of this many that was in the reply before is a repetition


@dataclass(frozen=True, slots=True)
class TrialPrompt:
    """A prompt to try versions on, and the prompts in which the base model reads it: unchanged, with wishes after its
    reply, and with wishes before it.

    The base model answers the last of these readings.
    """

    bare: Prompt
    readings: tuple[Prompt, ...]


@dataclass(frozen=True, slots=True)
class ScoredReply:
    """A sampled reply, with the likeliest tokens and the log-probability at each place under its own model."""

    tokens: tuple[int, ...]
    tops: tuple[Top, ...]
    logp: tuple[float, ...]
    has_ended: bool  # not cut by its length

    @property
    def nats(self) -> float:
        """The uncertainty of the model, in nats a token."""
        return -sum(self.logp) / len(self.logp)


@dataclass(frozen=True, slots=True)
class BaseReply:
    """The base model's own reply to a trial prompt, and its probabilities in each reading."""

    said: ScoredReply
    tops: tuple[tuple[Top, ...], ...]
    logps: tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True)
class DepartureShare:
    """How likely a version departs from the base model in its own reply to a prompt, and along the base model's."""

    own: float
    shown: float
    reply: ScoredReply
    base: BaseReply


@dataclass(slots=True)
class BaseReplies:
    """The base model's replies to the prompts that versions are tried on, and its probabilities of versions' replies.

    `stop_ids` end a reply, it is cut after `most` tokens, and sampled at `temperature`.
    """

    engine: Engine
    stop_ids: tuple[int, ...]
    most: int
    temperature: float = 0.7
    _said: OrderedDict[tuple[int, ...], ScoredReply] = field(default_factory=OrderedDict)
    _known: OrderedDict[tuple[tuple[int, ...], ...], BaseReply] = field(default_factory=OrderedDict)

    async def shortest(self, prompt: TrialPrompt) -> int:
        """The tokens of the base model's shortest reply to a prompt, over its readings."""
        readings = [TrialPrompt(prompt.bare, (reading,)) for reading in prompt.readings]
        return min([len((await self.said(one)).tokens) for one in readings])

    async def said(self, prompt: TrialPrompt) -> ScoredReply:
        """The base model's reply to the last reading; sampled once for each."""
        key = prompt.readings[-1].tokens
        if key not in self._said:
            self._said[key] = await self.reply(prompt.readings[-1], BASE)
            if len(self._said) > REMEMBERED:
                self._said.popitem(last=False)
        return self._said[key]

    async def of(self, prompt: TrialPrompt) -> BaseReply:
        """The same reply, and its probabilities in each reading."""
        key = tuple(reading.tokens for reading in prompt.readings)
        if key not in self._known:
            said = await self.said(prompt)
            read = await asyncio.gather(*(self._scored(one, said.tokens, BASE) for one in prompt.readings[:-1]))
            tops = (*(top for top, _ in read), said.tops)
            self._known[key] = BaseReply(said, tops, (*(logp for _, logp in read), said.logp))
            if len(self._known) > REMEMBERED:
                self._known.popitem(last=False)
        return self._known[key]

    async def likelihood(self, prompt: Prompt, tokens: tuple[int, ...]) -> tuple[float, ...]:
        """The base model's log-probability of each of a reply's tokens, in nats."""
        return (await self._scored(prompt, tokens, BASE))[1]

    async def reply(self, prompt: Prompt, version: PolicyVersion, *, most: int = 0) -> ScoredReply:
        """A version's reply. Raises EngineError or RequestError if the engine cannot be asked now."""
        sampling = Sampling(
            max_tokens=most or self.most,
            temperature=self.temperature,
            seed=0,
            top_logprobs=TOP_K,
            stop_ids=self.stop_ids,
        )
        said = [item async for item in self.engine.generate(prompt, sampling, version)]
        return ScoredReply(
            tuple(item.token for item in said),
            tuple(item.top for item in said),
            tuple(item.logp for item in said),
            has_ended=bool(said) and said[-1].finish is Finish.STOP,
        )

    def let_go(self) -> None:
        """Removes all prompts from memory."""
        self._said.clear()
        self._known.clear()

    async def departed(self, prompt: TrialPrompt, reply: ScoredReply, version: PolicyVersion) -> DepartureShare:
        """How likely the version departs, given its own reply."""
        base = await self.of(prompt)
        (shown, logp), *read = await asyncio.gather(
            self._scored(prompt.bare, base.said.tokens, version),
            *(self._scored(one, reply.tokens, BASE) for one in prompt.readings),
        )
        return await asyncio.to_thread(self._measured, reply, read, base, shown, logp)

    def _measured(
        self,
        reply: ScoredReply,
        read: Sequence[tuple[tuple[Top, ...], tuple[float, ...]]],
        base: BaseReply,
        shown: tuple[Top, ...],
        logp: tuple[float, ...],
    ) -> DepartureShare:
        own = departures(
            reply.tops, [tops for tops, _ in read], [logps for _, logps in read], temperature=self.temperature
        )
        along = departures(shown, base.tops, base.logps, temperature=self.temperature)
        return DepartureShare(chance(own), chance(along, reached(logp, base.logps)), reply, base)

    async def _scored(
        self, prompt: Prompt, tokens: tuple[int, ...], version: PolicyVersion
    ) -> tuple[tuple[Top, ...], tuple[float, ...]]:
        whole = Prompt(prompt.tokens + tokens, images=prompt.images)
        found = await self.engine.score(whole, start=len(prompt), version=version, top_k=TOP_K)
        return found.top, found.logp


def mean_departure(found: Sequence[DepartureShare]) -> float:
    """The share of replies that depart, of the version's own or along the base model's, whichever is more."""
    own, shown = (sum(values) / len(found) for values in ([one.own for one in found], [one.shown for one in found]))
    return max(own, shown)


@dataclass(frozen=True, slots=True)
class TrialReply:
    """A reply to a turn's prompt; `fault` is empty if nothing is wrong with it."""

    turn: Turn
    said: ScoredReply
    fault: str

    @property
    def tokens(self) -> tuple[int, ...]:
        """The reply's ids."""
        return self.said.tokens


@dataclass(frozen=True, slots=True)
class Trials:
    """Makes versions give short replies, and finds faults: no reply, no end, a loop, more tokens, more repetition."""

    renderer: Renderer
    base: BaseReplies

    async def replies(self, turns: Sequence[Turn], version: PolicyVersion) -> list[TrialReply]:
        """A reply to each turn's prompt. Raises EngineError or RequestError if the engine cannot be asked now."""
        return await asyncio.gather(*(self.reply(turn, version, beside=len(turn.completion.tokens)) for turn in turns))

    async def reply(self, turn: Turn, version: PolicyVersion, *, beside: int) -> TrialReply:
        """A reply to a turn's prompt, which should end within about twice the tokens of another one `beside` it.

        Raises EngineError or RequestError if the engine cannot be asked now.
        """
        exploded = 2 * beside + 32
        said = await self.base.reply(turn.prompt, version, most=min(self.base.most, exploded))
        never_ends = len(said.tokens) >= exploded and not said.has_ended
        return TrialReply(turn, said, self._fault(said.tokens, never_ends=never_ends))

    def _fault(self, tokens: tuple[int, ...], *, never_ends: bool) -> str:
        try:
            reply, _ = self.renderer.decode(tokens)
        except (RequestError, ValueError):
            return "cannot be read"
        if not reply.text.strip() and not reply.tool_calls and not (reply.reasoning or "").strip():
            return "empty"
        if is_loop(tokens):
            return "a loop"
        return ENDLESS if never_ends else ""


def lengths(trials: Sequence[TrialReply]) -> tuple[float, float]:
    """The mean tokens of the replies, and of those that were given to the same prompts before."""
    given = [len(trial.turn.completion.tokens) for trial in trials]
    return sum(len(trial.tokens) for trial in trials) / len(trials), sum(given) / len(trials)


def repetitions(trials: Sequence[TrialReply]) -> tuple[float, float]:
    """The mean repetition of the replies, and of those that were given to the same prompts before."""
    given = [repetition(trial.turn.completion.tokens) for trial in trials]
    return sum(repetition(trial.tokens) for trial in trials) / len(trials), sum(given) / len(trials)


def repetition(tokens: Sequence[int]) -> float:
    """The share of runs of `RUN` tokens that occur earlier in the reply, from 0 to 1."""
    runs = [tuple(tokens[at : at + RUN]) for at in range(len(tokens) - RUN + 1)]
    return 1.0 - len(set(runs)) / len(runs) if runs else 0.0


def is_loop(tokens: Sequence[int], *, longest: int = 40, times: int = 4, least: int = 24) -> bool:
    """Whether the tokens end in the same run of up to `longest`, `times` over or more, `least` tokens in all."""
    for period in range(1, longest + 1):
        span = max(times * period, least)
        tail = tokens[-span:]
        if len(tail) == span and all(tail[index] == tail[index - period] for index in range(period, span)):
            return True
    return False
