"""Demonstrations of a hint on other requests: from one example alone a model learns the example, not the wish."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from openclaw_rl.core.hint import PlacedHint, last_user_index, orders, with_hints
from openclaw_rl.core.message import Message
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.protocols import Engine, Renderer
from openclaw_rl.core.sample import HintPrompt, OtherRequestReply, SampledReply
from openclaw_rl.core.turn import Turn
from openclaw_rl.core.version import BASE
from openclaw_rl.core.width import Width
from openclaw_rl.errors import BeyondContextError, RequestError
from openclaw_rl.teach.asking import are_shown, concerns, reply_logp
from openclaw_rl.teach.contradictions import ContentCheck, ContradictionCounts
from openclaw_rl.teach.leaning import MOST, Leaning, are_needed, drawn_at_most
from openclaw_rl.teach.other_requests import OtherRequests, Request, words_of
from openclaw_rl.teach.results import last_number, loses_number
from openclaw_rl.teach.settings import TeachSettings
from openclaw_rl.teach.slips import slips, sources

log = logging.getLogger(__name__)
DRAWS, DRAW_SEEDS = 4, 1_000  # of a reply to several hints until it shows all of them, and between their seeds
WARMTH = 0.7  # the temperature of replies, about as in use, so that each way to begin occurs as often as it is chosen
LEAST_CHECKS = 16  # if `checks` are not set to fewer
CHECK_TOKENS, CHECK_PROMPT = 4_000, 2_048  # of the replies to more than these, and the longest prompt with more
REPLIES_HELD = 192  # of the base model to requests without hints: generated requests are the same for each correction
PAIRED, LEAST_PAIRED = 6, 3  # requests on which two hints are tried together, and the fewest that show anything
RIVAL_SHARE = 0.25  # of these, at most, to which a reply shows both hints, if these are rivals
PAIRS_HELD = 1_000  # of hints
MOST_SLIP = 0.5  # share of the replies that slip: if there are more, none is left out for it


@dataclass(frozen=True, slots=True)
class AskedRequest:
    """A request in the place of a corrected turn's, its prompt without hints, and the seed of replies to it."""

    turn: Turn
    request: Request
    bare: Prompt
    seed: int

    @property
    def longest(self) -> int:
        """The number of tokens within which a reply to it must end, if that is more than the settings say."""
        return 2 * max(self.request.length, len(self.turn.completion.tokens))


Reading = tuple[Sequence[str], Prompt | None, SampledReply | None]  # hints, the prompt with them, and a reply to it
Shown = tuple[OtherRequestReply, bool]  # and whether it slips
T = TypeVar("T")


@dataclass(slots=True)
class OtherReplies:
    """Asks the base model for its replies to other requests with a hint. `warmth` is the temperature of the replies."""

    engine: Engine
    renderer: Renderer
    stop_ids: tuple[int, ...]
    settings: TeachSettings
    requests: OtherRequests
    warmth: float = WARMTH
    width: Width = field(default_factory=Width)
    contradictions: ContradictionCounts = field(default_factory=ContradictionCounts)
    _unhinted: OrderedDict[tuple[tuple[int, ...], int, int], SampledReply | None] = field(default_factory=OrderedDict)
    _pairs: OrderedDict[tuple[str, str], bool] = field(default_factory=OrderedDict)  # whether two hints are rivals

    def let_go(self) -> None:
        """Removes what is remembered of requests, replies and hints, as after a restart."""
        self.requests.made_up.let_go()
        self._unhinted.clear()
        self._pairs.clear()
        self.contradictions.let_go()

    async def rivals(self, turn: Turn, hint: str, known: Sequence[PlacedHint]) -> list[PlacedHint]:
        """The known hints that the base model does not follow together with this one: it replaces them.

        Of at most `PAIRED` requests that both concern, at most `RIVAL_SHARE` have a likeliest reply, in either order of
        the two, that shows both. None is where both concern fewer than `LEAST_PAIRED`; these are tried again next time.
        Raises EngineError.
        """
        new = [item for item in known if (item.text, hint) not in self._pairs]
        requests = [Request(turn.messages), *(await self.requests.openings(turn, with_shipped=False))[0]] if new else []
        for item in new if len(requests) >= LEAST_PAIRED else ():
            found = await self._are_rivals(turn, requests, (item.text, hint))
            if found is not None:
                self._pairs[item.text, hint] = found
        rivals = [item for item in known if self._pairs.get((item.text, hint))]
        while len(self._pairs) > PAIRS_HELD:
            self._pairs.popitem(last=False)
        return rivals

    async def _are_rivals(self, turn: Turn, requests: Sequence[Request], pair: tuple[str, str]) -> bool | None:
        tried = together = 0
        for request in requests:
            if tried == PAIRED or together > RIVAL_SHARE * PAIRED:
                break
            bare = await self.prompt(turn, request.messages)
            asked = None if bare is None else AskedRequest(turn, request, bare, 0)
            try:
                if asked is not None and all([await self._concerns(asked, one) for one in pair]):
                    tried += 1
                    together += await self._go_together(asked, pair)
            except BeyondContextError:
                continue
        if together > RIVAL_SHARE * PAIRED:
            return False
        return together <= RIVAL_SHARE * tried if tried >= LEAST_PAIRED else None

    async def _go_together(self, asked: AskedRequest, pair: tuple[str, str]) -> bool:
        """Whether the likeliest reply to a request with both hints, in one of their orders, shows both."""
        likeliest = replace(self.content, warmth=0.0)
        without = [await self._read_with(asked, [one]) for one in reversed(pair)]
        for order in orders(pair):
            hinted = await self._read_with(asked, order)
            said = None if hinted is None else await likeliest.drawn(hinted, asked.seed, asked.longest)
            if said is not None and all(await are_shown(self.engine, without, said.tokens, sum(said.logp))):
                return True
        return False

    async def shown(
        self, turn: Turn, hint: str, known: Sequence[PlacedHint], *, with_shipped: bool = True
    ) -> tuple[OtherRequestReply, ...]:
        """The base model's replies to other requests, given the hint and those `known` hints that concern them.

        Replies that do not end or have no room are left out, and those that call a tool for a request that the user did
        not make: a small model calls one where it knows no answer, and would learn to do so. One that contradicts the
        reply without hints, or slips, is replaced by another if possible, and else left out; if most slip, the hint
        asks for it, and they stay. The last ones are checks. Raises EngineError.
        """
        if self.settings.other_requests == 0:
            return ()
        requests, spare = await self.requests.openings(turn, self._most_checks(turn, known), with_shipped=with_shipped)
        opened = await self._all(turn, requests, hint, known)
        said = [(one, made[0].reply.tokens) for one, made in zip(requests, opened, strict=True) if made is not None]
        later = await self.requests.later(turn, said)
        taught = (*opened, *await self._all(turn, later, hint, known))
        checks = await self._all(turn, spare, hint, known)
        asked = [*zip(requests, opened, strict=True), *zip(spare, checks, strict=True)]
        further = await self._where_it_gives_content(turn, hint, asked)
        if further is not None:
            leaning, others = further
            taught = (*taught, *checks, *await self._all(turn, leaning, hint, known))
            checks = await self._all(turn, others, hint, known)
        marked = [(replace(one, is_check=True), is_slip) for one, is_slip in filter(None, checks)]
        found = [*(each for each in taught if each is not None), *marked]
        slipped = sum(is_slip for _, is_slip in found)
        if slipped:
            log.info("slips turn=%s: in %d of %d replies to other requests", turn.id, slipped, len(found))
        return tuple(made for made, is_slip in found if not is_slip or slipped > MOST_SLIP * len(found))

    def _most_checks(self, turn: Turn, known: Sequence[PlacedHint]) -> int:
        """How many checks are worth their time: each is drawn, and read with every hint that is known."""
        most = self.settings.checks
        fewer = min(most // (1 + len(known)), CHECK_TOKENS // max(1, len(turn.completion.tokens)))
        return max(min(most, LEAST_CHECKS), fewer if len(turn.prompt) <= CHECK_PROMPT else 0)

    async def _where_it_gives_content(
        self, turn: Turn, hint: str, asked: Sequence[tuple[Request, Shown | None]]
    ) -> tuple[list[Request], list[Request]] | None:
        """More requests at which the reply leans on the hint, and others, of which checks are made then.

        None if fewer of those that were `asked` lean on it than `are_needed`.
        """
        made = [(words_of(request.messages), shown[0]) for request, shown in asked if shown is not None]
        leaning = Leaning.of(self.engine, self.renderer, [words for words, _ in made])
        found = [await leaning.leans(words, reply) for words, reply in made]
        if not are_needed(found):
            return None
        most = drawn_at_most([reply for _, reply in made])
        drawn = await self.requests.drawn_besides(turn, [request for request, _ in asked], most)

        async def leans(request: Request, seed: int) -> bool | None:
            told = await self._told(turn, request, hint, seed)
            return None if told is None else await leaning.leans(words_of(request.messages), told)

        lean = await self._each(turn, drawn, leans)
        chosen = [request for request, is_leaning in zip(drawn, lean, strict=True) if is_leaning][:MOST]
        others = [request for request, is_leaning in zip(drawn, lean, strict=True) if is_leaning is False]
        log.info(
            "leaning turn=%s: %d of %d replies to other requests; %d more of %d",
            turn.id, sum(found), len(found), len(chosen), len(drawn),
        )  # fmt: skip
        return chosen, others[: self.settings.checks]

    async def _each(
        self, turn: Turn, requests: Sequence[Request], ask: Callable[[Request, int], Awaitable[T | None]]
    ) -> list[T | None]:
        """What is answered to each request and its place as the seed; None if the model's context has no room."""

        async def one(place: int) -> T | None:
            try:
                return await ask(requests[place], place)
            except BeyondContextError:
                return None

        return await self.width.each(range(len(requests)), one, tokens=len(turn.prompt))

    async def _told(self, turn: Turn, request: Request, hint: str, seed: int) -> OtherRequestReply | None:
        """A reply to a request with this hint alone, unchecked; None if there is none."""
        bare = await self.prompt(turn, request.messages)
        if bare is None:
            return None
        _, hinted, said = await self._drawn(AskedRequest(turn, request, bare, seed), [hint])
        if hinted is None or said is None:
            return None
        return OtherRequestReply(bare.tokens, HintPrompt(hint, hinted.tokens), said)

    async def _all(
        self, turn: Turn, requests: Sequence[Request], hint: str, known: Sequence[PlacedHint]
    ) -> list[Shown | None]:
        return await self._each(turn, requests, lambda one, seed: self._shown(turn, one, hint, known, seed))

    async def _shown(
        self, turn: Turn, request: Request, hint: str, known: Sequence[PlacedHint], seed: int
    ) -> Shown | None:
        bare = await self.prompt(turn, request.messages)
        if bare is None:
            return None
        asked = AskedRequest(turn, request, bare, seed)
        hints, hinted, said = await self.read(asked, hint, [one.text for one in known])
        if hinted is None or said is None:
            return None
        check, clear = self.content, await sources(self.renderer, turn, request.messages, hints)
        slip = await slips(self.engine, clear, hinted, said.tokens)
        anchored = await self.anchored(asked, hints)
        if anchored is not None:
            is_contrary = await check.contradicts(hinted, anchored, said.tokens)
            is_lost = await self.is_lost(asked, hinted, said)
            if is_contrary or is_lost or slip is not None:
                second = await check.second(hinted, anchored, seed, asked.longest)
                if second is not None and await self._loses_number(asked, second):
                    second = None
                if second is not None and await slips(self.engine, clear, hinted, second.tokens) is None:
                    said, hinted, slip = second, anchored, None
                elif is_contrary or is_lost:
                    said = None
            if hint in hints:
                self.contradictions.note(hint, [is_contrary], left_out=int(is_lost and said is None))
        if slip is not None and slip in clear.told:  # said as right after that request
            again = await check.drawn(slip, seed, asked.longest)
            said, hinted, slip = (said, hinted, slip) if again is None else (again, slip, None)
        if said is None or (not request.is_users and await check.decoded(said) is None):
            return None
        made = OtherRequestReply(bare.tokens, HintPrompt(" ".join(hints), hinted.tokens), said, request.turn)
        return made, slip is not None

    async def read(self, asked: AskedRequest, hint: str, known: Sequence[str]) -> Reading:
        """The hints that a teacher reads with a request, and a reply: those that concern it, of the known and the new.

        So a wish that the weights have lost is taught again. The new hint is also read if no other concerns the
        request. If the base model does not show it next to all of these, it is read next to the newest half, and then
        alone: a wish is learned, though others are lost where the model cannot follow both.
        """
        if known:
            await self.without_hints(asked)  # once, before all that follow ask for it
        concern = await asyncio.gather(*(self._concerns(asked, one) for one in (*known, hint) if known))
        standing = [one for one, is_concerned in zip(known, concern, strict=False) if is_concerned]
        if standing and not concern[-1]:
            return await self._together(asked, standing) or await self._drawn(asked, standing)
        for others in dict.fromkeys((tuple(standing), tuple(standing[(len(standing) + 1) // 2 :]))):
            shown = await self._together(asked, (*others, hint), new=hint) if others else None
            if shown is not None:
                return shown
        return await self._drawn(asked, [hint])

    async def _drawn(self, asked: AskedRequest, hints: Sequence[str]) -> Reading:
        hinted = await self._read_with(asked, hints)
        drawn = None if hinted is None else await self.content.drawn(hinted, asked.seed, asked.longest)
        return hints, hinted, drawn

    async def _together(self, asked: AskedRequest, hints: Sequence[str], new: str = "") -> Reading | None:
        """Of up to `DRAWS` replies to these hints, in several orders, the first that shows most of them.

        What a demonstration leaves out is unlearned. One that shows all is read in the order in which it is likeliest.
        None if no reply ends, or none shows the `new` hint, if one is given.
        """
        if len(hints) < 2:
            return None
        best, most, tried = None, -1, orders(hints)
        for draw in range(DRAWS):
            order = tried[draw % len(tried)]
            _, hinted, said = await self._drawn(replace(asked, seed=asked.seed + draw * DRAW_SEEDS), order)
            if hinted is None or said is None:
                continue
            without = [await self._read_with(asked, [one for one in order if one != hint]) for hint in order]
            is_shown = dict(zip(order, await are_shown(self.engine, without, said.tokens, sum(said.logp)), strict=True))
            if all(is_shown.values()):
                return await self._likeliest(asked, tried, said)
            if sum(is_shown.values()) > most and (not new or is_shown[new]):
                best, most = (order, hinted, said), sum(is_shown.values())
        return best

    async def _likeliest(self, asked: AskedRequest, tried: Sequence[tuple[str, ...]], said: SampledReply) -> Reading:
        """A reply, read with hints in that order in which it is likeliest."""
        read = [(order, await self._read_with(asked, order)) for order in tried]
        found = [(order, prompt) for order, prompt in read if prompt is not None]
        logps = await asyncio.gather(*(reply_logp(self.engine, prompt, said.tokens, BASE) for _, prompt in found))
        logp, (order, hinted) = max(zip(logps, found, strict=True), key=lambda each: sum(each[0]))
        return order, hinted, replace(said, logp=logp)

    async def _concerns(self, asked: AskedRequest, hint: str) -> bool:
        """Whether a hint concerns a request. Next to others it would only distract: given many, a model follows few."""
        own = await self.without_hints(asked)
        hinted = await self._read_with(asked, [hint])
        return own is None or hinted is None or await concerns(self.engine, own, hinted)

    async def anchored(self, asked: AskedRequest, hints: Sequence[str]) -> Prompt | None:
        """The prompt with the base model's reply to a request without hints, and then the hints as the next message.

        None if that reply does not end or calls a tool, or if the template refuses.
        """
        said = await self.without_hints(asked)
        reply = None if said is None else await self.content.decoded(said)
        return None if reply is None else await self.content.after(asked.turn, asked.request.messages, reply, hints)

    async def is_lost(self, asked: AskedRequest, hinted: Prompt, said: SampledReply) -> bool:
        """Whether a reply with hints lacks the number of those without them, and the model wavers.

        If it does not, the hint asks for another content.
        """
        return await self._loses_number(asked, said) and await self.content.wavers(asked.bare, hinted, said)

    async def _loses_number(self, asked: AskedRequest, said: SampledReply) -> bool:
        """Whether a reply with hints lacks the number with which two replies without them end.

        If these end with different numbers, the model knows none.
        """
        told, request = await self.content.decoded(said), words_of(asked.request.messages)
        ends = set[str | None]()
        for seed in (asked.seed, asked.seed + DRAW_SEEDS):
            untold = await self.without_hints(replace(asked, seed=seed))
            reply = None if untold is None else await self.content.decoded(untold)
            if reply is None or told is None or not loses_number(told.text, reply.text, request):
                return False
            ends.add(last_number(reply.text, request))
        return len(ends) == 1

    async def without_hints(self, asked: AskedRequest) -> SampledReply | None:
        """The base model's reply to a request without hints; None if it does not end."""
        key = (asked.bare.tokens, asked.seed, max(self.settings.probe_tokens, asked.longest))
        if key not in self._unhinted:
            self._unhinted[key] = await self.content.drawn(asked.bare, asked.seed, asked.longest)
            while len(self._unhinted) > REPLIES_HELD:
                self._unhinted.popitem(last=False)
        return self._unhinted[key]

    @property
    def content(self) -> ContentCheck:
        """The check that finds replies with a hint that contradict the reply without it."""
        longest = self.settings.probe_tokens
        return ContentCheck(self.engine, self.renderer, self.stop_ids, longest, self.warmth, self.contradictions)

    async def _read_with(self, asked: AskedRequest, hints: Sequence[str]) -> Prompt | None:
        return await self.prompt(asked.turn, _with(asked.request.messages, hints))

    async def prompt(self, turn: Turn, messages: Sequence[Message]) -> Prompt | None:
        """The prompt of messages in the place of a turn's; None if the template refuses."""
        try:
            return await asyncio.to_thread(self.renderer.prompt, messages, turn.tools, None, options=turn.options)
        except (RequestError, ValueError):
            return None


def _with(messages: Sequence[Message], hints: Sequence[str]) -> tuple[Message, ...]:
    last = last_user_index(messages)
    return with_hints(messages, [PlacedHint(last, "", text) for text in hints] if last is not None else ())
