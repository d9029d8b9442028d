"""From a request of any API to its answers: placed, rendered, sampled, handed over piece by piece, committed.

Each API file only translates: its body into a `GenerationRequest`, and what a `Sink` receives into its own events.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

from openclaw_rl.core.completion import SampledToken, SpanKind
from openclaw_rl.core.hint import PlacedHint, with_hints
from openclaw_rl.core.message import Json, Message, TextPart, Tool
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.sampling import Grammar, Sampling
from openclaw_rl.core.to_end import to_end
from openclaw_rl.core.turn import Arrival, Placement, Turn, TurnKind
from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.errors import ContextError, EngineError, RequestError, first_error
from openclaw_rl.render.encoding import TooManyTokens
from openclaw_rl.render.forms import AnswerForm
from openclaw_rl.render.parsers import ReplyDelta
from openclaw_rl.serve.answers import TURN, VERSION, Choice, new_turn_id, note_headers
from openclaw_rl.serve.parts import ServeParts, answering

log = logging.getLogger(__name__)
_SECRET = frozenset({"authorization", "x-api-key", "cookie"})
_ROOM_KEPT = 1024  # tokens of an answer that hints must leave room for, if it may have this many
_PARAM = {"completions": "prompt", "responses": "input"}  # where the conversation is, if not in `messages`
_LONG_CHARS = 20_000  # more new text is encoded in a thread, so that streams continue
_MOST_COUNTED_CHARS = 2_000_000  # of a prompt that is too long; more is not counted to its end
_MANY_MESSAGES = 200  # more are rendered in a thread, for the same reason


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """A request in the types of `core`. If `max_tokens` is None, the context is the limit.

    With `prompt` (text or ids) there is no conversation to render, and the turn is never trained. `ignored` are its
    fields without effect, `placeholders` the kinds of content that the model cannot read. `shown` is what an API whose
    answers can be fetched again keeps of the request, besides its messages. `form` constrains the answer; None if it is
    free.
    """

    api: str
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...]
    sampling: Sampling
    max_tokens: int | None
    count: int = 1
    stops: tuple[str, ...] = ()
    has_one_call: bool = False
    options: Mapping[str, Json] = field(default_factory=dict)
    facts: Mapping[str, Json] = field(default_factory=dict)
    prompt: str | tuple[int, ...] | None = None
    ignored: Sequence[str] = ()
    placeholders: Mapping[str, int] = field(default_factory=dict)
    shown: Mapping[str, Json] = field(default_factory=dict)
    form: AnswerForm | None = None


class Sink(Protocol):
    """Where pieces of answers go while they are sampled."""

    def piece(self, choice: Choice, deltas: Sequence[ReplyDelta], sampled: Sequence[SampledToken]) -> bool:
        """Takes what these tokens added; returns whether `drain` must be awaited before the next ones."""

    async def drain(self) -> None:
        """Waits until the client has caught up. Raises ClientGone if it went away."""


class ClientGone(Exception):
    """The client went away and does not read the answer any more."""


@dataclass(slots=True)
class Generation:
    """A request that has been placed and rendered, and its answers as they grow."""

    parts: ServeParts
    asked: GenerationRequest
    placement: Placement
    prompt: Prompt
    sampling: Sampling
    version: PolicyVersion
    choices: tuple[Choice, ...]
    at_s: float
    carried: tuple[PlacedHint, ...] = ()  # the user's hints in the prompt
    has_failed: bool = False  # the sampling of an answer failed
    ended_s: float = 0.0

    @property
    def headers(self) -> dict[str, str]:
        """Turn ids and version, which every completion carries, and what had no effect in the request."""
        return {
            **note_headers(self.asked.ignored, self.asked.placeholders),
            TURN: ",".join(choice.turn for choice in self.choices),
            VERSION: str(self.version),
        }

    @property
    def cached_tokens(self) -> int:
        """Ids of the prompt whose keys and values were reused."""
        return max(choice.cached for choice in self.choices)

    @property
    def sampled_tokens(self) -> int:
        """Ids sampled, over all answers."""
        return sum(len(choice.sampled) for choice in self.choices)

    @property
    def reasoning_tokens(self) -> int:
        """Those of them that were thinking."""
        return sum(choice.count(SpanKind.REASONING) for choice in self.choices)

    @property
    def shown(self) -> dict[str, Json]:
        """What a fetched response shows of the request, and what the answers' end added."""
        ended: dict[str, Json] = {"completed_at": int(self.ended_s), "cached_tokens": self.cached_tokens}
        return {**self.asked.shown, **ended}

    async def run(self, sink: Sink) -> None:
        """Samples all answers into the sink, and returns once their turns are in the store.

        A client that goes away ends the sampling at once; the turns are committed as cancelled, and then ClientGone or
        CancelledError rises.
        """
        try:
            await self._in_flight(sink)
        except (asyncio.CancelledError, ClientGone):
            for choice in self.choices:
                choice.cancel()
            await to_end(self._enter())
            raise
        await to_end(self._enter())

    async def _in_flight(self, sink: Sink) -> None:
        self.parts.metrics.sampling += len(self.choices)
        try:
            if len(self.choices) == 1:
                await self._sample(self.choices[0], sink)
            else:
                await self._sample_each(sink)
        finally:
            self.parts.metrics.sampling -= len(self.choices)

    async def _sample_each(self, sink: Sink) -> None:
        with first_error():  # the client receives it
            async with asyncio.TaskGroup() as group:
                for choice in self.choices:
                    group.create_task(self._sample(choice, sink))

    async def _sample(self, choice: Choice, sink: Sink) -> None:
        seed = self.sampling.seed
        sampling = self.sampling
        if seed is not None and choice.index:  # siblings of one seed differ, and are repeatable
            sampling = replace(sampling, seed=seed + choice.index)
        stream = self.parts.engine.generate(self.prompt, sampling, self.version)
        try:
            async for token in stream:
                is_first = not choice.sampled
                if is_first:
                    choice.cached = token.cached
                must_wait = sink.piece(choice, choice.take(token), (token,))
                if must_wait and choice.finish is None:
                    await sink.drain()
                if is_first:  # counted once it has started
                    self.parts.metrics.first_token_s.observe(max(0.0, self.parts.clock() - self.at_s))
                if choice.finish is not None:
                    break
        except Exception:
            self.has_failed = True  # set before the other answers' sampling has ended
            raise
        finally:
            if isinstance(stream, AsyncGenerator):  # else the slot stays taken until it is garbage-collected
                await stream.aclose()
        if choice.finish is None:
            raise EngineError("the engine ended an answer without saying why", fix="see the server's log")
        sink.piece(choice, choice.end(), ())

    async def _enter(self) -> None:
        """Enters all turns into the store."""
        self.ended_s = self.parts.clock()
        metrics, group = self.parts.metrics, self.choices[0].turn if len(self.choices) > 1 else None
        metrics.prompt_tokens.inc(len(self.prompt))
        metrics.cached_tokens.inc(self.cached_tokens)
        if self.placement.parent is not None:
            metrics.reuse.add(len(self.prompt), self.cached_tokens)
        metrics.continued_tokens.inc(self.prompt.continued)
        metrics.sampled_tokens.inc(self.sampled_tokens)
        metrics.answer_s.observe(max(0.0, self.ended_s - self.at_s))
        for choice in self.choices:
            turn = self._turn(choice, group)
            metrics.turns.labels(turn.kind.value, turn.completion.finish.value).inc()
            await self.parts.collector.commit(turn)

    def _turn(self, choice: Choice, group: str | None) -> Turn:
        parent = self.placement.parent
        return Turn(
            id=choice.turn,
            session=self.placement.session,
            user=self.placement.user,
            agent=self.placement.agent,
            kind=self.placement.kind,
            why=self.placement.why,
            messages=self.asked.messages,
            tools=self.asked.tools,
            prompt=self.prompt,
            completion=choice.completion(self.version),
            reply=choice.reply(),
            at_s=self.at_s,
            parent=None if parent is None else parent.id,
            group=group,
            api=self.asked.api,
            options=self.asked.options,
            carried=self.carried,
            step=self.placement.step,
            shown=self.shown if self.asked.shown else {},
        )


async def begin(parts: ServeParts, asked: GenerationRequest, headers: Mapping[str, str], key_name: str) -> Generation:
    """Places the request in its session and renders its prompt. Raises ContextError if it does not fit."""
    asked = _holdable(parts, asked)
    for name in asked.ignored:
        parts.metrics.ignore(name)
    for kind, times in asked.placeholders.items():
        parts.metrics.replace(kind, times)
    at_s, most = parts.clock(), parts.context_length - 1  # an answer has at least one token
    param = _PARAM.get(asked.api, "messages")
    if len(asked.messages) > most:  # each is at least a token
        raise ContextError(len(asked.messages), parts.context_length, param=param)
    first = await _grammar(parts, asked, None, None)
    facts = dict(asked.facts)
    if asked.prompt is not None:
        facts["turn_type"] = TurnKind.SIDE.value
    plain_headers = {name.lower(): value for name, value in headers.items() if name.lower() not in _SECRET}
    arrival = Arrival(asked.messages, asked.tools, plain_headers, facts, key_name, at_s, asked.max_tokens)
    placement = await parts.collector.place(arrival)
    is_bare = asked.prompt is not None or placement.step is not None  # a policy in an environment is sampled as it is
    carried = () if is_bare else await parts.carried(placement, asked.messages)
    try:
        prompt, carried = await _fitting(parts, asked, placement, carried, most)
    except TooManyTokens as problem:
        tokens = await _counted(parts, asked, problem.least)
        raise ContextError(tokens, parts.context_length, param=param) from problem
    room = parts.context_length - len(prompt)
    room = min(room, parts.settings.most_tokens or room)
    sampling, most = asked.sampling, min(room, asked.max_tokens or room)
    if sampling.max_tokens != most:
        sampling = replace(sampling, max_tokens=most)
    if first is not None:  # thinking comes first in it, and only now is it known whether the prompt opens the thinking
        sampling = replace(sampling, grammar=await _grammar(parts, asked, prompt, first))
    choices = tuple(_choice(parts, asked, prompt, index) for index in range(asked.count))
    version = await answering(parts, headers, placement, key_name)
    await placement.admit()
    return Generation(parts, asked, placement, prompt, sampling, version, choices, at_s, carried)


async def _counted(parts: ServeParts, asked: GenerationRequest, least: int) -> int:
    """The number of tokens of a prompt that is too long; `least` if counting would take too long.

    Clients leave out as much as the difference, so a bound alone would make them try again and again.
    """
    if isinstance(asked.prompt, tuple):
        return len(asked.prompt)
    if asked.prompt is not None:
        text = asked.prompt
        return least if len(text) > _MOST_COUNTED_CHARS else len(await asyncio.to_thread(parts.renderer.encode, text))
    if sum(len(item.text) for item in asked.messages) > _MOST_COUNTED_CHARS:
        return least
    count = partial(parts.renderer.count, asked.messages, asked.tools, options=asked.options)
    return max(least, await asyncio.to_thread(count))


def _holdable(parts: ServeParts, asked: GenerationRequest) -> GenerationRequest:
    """The request as the engine can serve it. Raises RequestError if it needs a constraint that the engine lacks."""
    if asked.form is None or parts.check_grammar is not None:
        return asked
    if asked.form.is_needed:
        raise RequestError(
            "this server's engine cannot constrain an answer to a format or force a tool call",
            fix="leave it out",
            code="unsupported_parameter",
            param=asked.form.param,
        )
    return replace(asked, form=None, ignored=(*asked.ignored, "tools.strict"))


async def _grammar(
    parts: ServeParts, asked: GenerationRequest, prompt: Prompt | None, checked: Grammar | None
) -> Grammar | None:
    """The grammar of the answer, which the engine supports. Raises RequestError."""
    if asked.form is None or parts.check_grammar is None:
        return None
    ends, is_bare = parts.eos_ids, asked.prompt is not None
    try:
        found = await asyncio.to_thread(parts.renderer.grammar, asked.form, prompt, ends, is_bare=is_bare)
        if found is not None and found != checked:
            await parts.check_grammar(found)
    except RequestError as problem:
        problem.param = problem.param or asked.form.param
        raise
    return found


async def _fitting(
    parts: ServeParts, asked: GenerationRequest, placement: Placement, carried: tuple[PlacedHint, ...], most: int
) -> tuple[Prompt, tuple[PlacedHint, ...]]:
    """The prompt, and the hints in it. Raises TooManyTokens if there are more than `most`.

    If a request fits as its client wrote it, hints must not get it refused or its answer cut.
    """
    if carried:
        room_kept = min(asked.max_tokens or 1, _ROOM_KEPT)
        try:
            return await _prompt(parts, asked, placement, carried, parts.context_length - room_kept), carried
        except TooManyTokens:
            log.debug("hints left out of a prompt that has no room for them")
    return await _prompt(parts, asked, placement, (), most), ()


async def _prompt(
    parts: ServeParts, asked: GenerationRequest, placement: Placement, carried: tuple[PlacedHint, ...], most: int
) -> Prompt:
    if isinstance(asked.prompt, tuple):
        found = Prompt(asked.prompt)
    elif asked.prompt is not None:
        long = len(asked.prompt) > _LONG_CHARS
        encode = partial(parts.renderer.encode, asked.prompt, most=most)
        found = Prompt(await asyncio.to_thread(encode) if long else encode())
    else:
        messages = with_hints(asked.messages, carried)
        render = partial(
            parts.renderer.prompt, messages, asked.tools, placement.parent, options=asked.options, most=most
        )
        found = render() if is_quick(messages, placement.parent) else await asyncio.to_thread(render)
    if len(found) > most:
        raise TooManyTokens(len(found))
    return found


def is_quick(messages: Sequence[Message], served: Turn | None) -> bool:
    """Whether rendering is faster than two thread switches: the text of the served turn is not encoded again."""
    if len(messages) > _MANY_MESSAGES:
        return False
    known = () if served is None else served.messages
    same = 0
    while same < min(len(messages), len(known)) and messages[same].content == known[same].content:
        same += 1
    new = [part for item in messages[same:] for part in item.content if isinstance(part, TextPart)]
    if sum(len(part.text) for part in new) < _LONG_CHARS:
        return True
    held = {part for item in known for part in item.content}  # long texts are hashed for it, so only if it matters
    return sum(len(part.text) for part in new if part not in held) < _LONG_CHARS


def _choice(parts: ServeParts, asked: GenerationRequest, prompt: Prompt, index: int) -> Choice:
    turn = new_turn_id()
    renderer = parts.renderer
    is_bare = asked.prompt is not None
    prefix = f"call_{turn[-12:]}"
    parser = renderer.text_parser() if is_bare else renderer.parser(prompt, call_prefix=prefix, tools=asked.tools)
    return Choice(index, turn, parser, asked.stops, has_one_call=asked.has_one_call)
