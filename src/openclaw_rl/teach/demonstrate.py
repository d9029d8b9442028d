"""Measures the effect of a hint on the base model before anything is learned from the hint, and samples demonstrations.

A corrected reply teaches only the token at which it went wrong, so new words would be learned one token with each
correction. A demonstration, the base model's reply given the hint, contains all of them. A hint that changes nothing
about the reply it was given for has nothing to teach, however often it is given.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from openclaw_rl.core.hint import PlacedHint, last_user_index, orders
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.protocols import Engine, Renderer
from openclaw_rl.core.sample import HintPrompt, Sample, SampledReply
from openclaw_rl.core.sampling import Sampling
from openclaw_rl.core.turn import Turn
from openclaw_rl.core.version import BASE, PolicyVersion
from openclaw_rl.errors import BeyondContextError, EngineError
from openclaw_rl.teach.asking import are_shown, concerns, is_strange, reading, reply_logp, sampled_reply
from openclaw_rl.teach.elsewhere import OtherReplies
from openclaw_rl.teach.near import NearReplies, NearRequests
from openclaw_rl.teach.settings import TeachSettings
from openclaw_rl.wording.likeness import is_general

HEEDED_NATS = 1.0  # by which a hint with an effect makes the corrected reply less likely, and a demonstration likelier
FOLLOWED_NATS = 2.0  # by which a known hint makes a reply likelier, at least, if the reply follows it

Assembled = Callable[[Sequence[PlacedHint]], Awaitable[Sample]]


@dataclass(frozen=True, slots=True)
class _EffectiveHint:
    """A sample's hint that has an effect, and demonstrations of it: replies of the base model that ended."""

    assembled: Sample
    hints: tuple[HintPrompt]
    shown: tuple[SampledReply, ...]

    @property
    def sample(self) -> Sample:
        """The sample with this hint alone, and its demonstrations."""
        return replace(self.assembled, hints=self.hints, shown=self.shown)


@dataclass(frozen=True, slots=True)
class Demonstrator:
    """Asks the base model, which is the teacher, and the weights that are served to a turn's user.

    `current` returns the version of these weights. `stop_ids` end a reply.
    """

    engine: Engine
    current: Callable[[Turn], Awaitable[PolicyVersion]]
    renderer: Renderer
    stop_ids: tuple[int, ...]
    settings: TeachSettings
    others: OtherReplies | None = None

    def let_go(self) -> None:
        """Removes what is remembered of turns, as after a restart."""
        if self.others is not None:
            self.others.let_go()

    def costly_hints(self) -> tuple[tuple[str, int, int], ...]:
        """The hints that often change the content of replies: the hint, replies that contradict, replies checked."""
        return () if self.others is None else tuple(self.others.contradictions.costly())

    async def demonstrated(
        self, turn: Turn, bare: Prompt, known: Sequence[PlacedHint], assembled: Assembled
    ) -> tuple[Sample, Sequence[PlacedHint]]:
        """A corrected turn's sample: the one hint of the turn that has the most effect, with its demonstrations.

        And the known hints that gave way to it, which are read neither with it nor with its demonstrations.

        `assembled` makes the sample, given the hints that the teacher reads in addition to the turn's own. These are
        the `known` hints that go together with the turn's own (else the newest wish counts) and that the reply follows:
        hints that concern the request and make the reply likelier than after the `bare` prompt, without hints. The
        others concern something else, and a small model becomes confused by many. Without a hint that has an effect the
        sample has none. If the prompt has images, a grammar constrained the reply or the engine is unavailable, the
        sample is returned as assembled, with all known hints. Raises BeyondContextError if the model's context has no
        room for the conversation with a hint.

        What the reply follows already must not be unlearned without need. So, if it follows known hints, the turn's
        hint must change the reply even with these in the prompt (`_moving`). If it does not, it is tried without them,
        unless it would mean nothing in another task ("The right answer is 14"). The base model need not have said the
        reply by itself then: its user may want another form than the one that the weights have learned. Demonstrations
        on other requests are then given without the hints that the reply follows, too.

        If the reply follows no known hint, the teacher need only find the reply less likely than the policy did: a user
        who wants the base model's usual behaviour back asks for what it says without any hint. The reply may also be a
        slip of weights that mostly follow known hints (`_slipped`). Then these hints are added, because otherwise
        earlier learning would be lost.
        """
        if turn.prompt.images:  # a trainer reads only ids
            return await assembled(known), ()
        if turn.completion.forced:  # the base model would reply without the grammar, in another form than requested
            return await assembled(known), ()
        before_it = known
        try:
            own = [hint.text for hint in (await assembled(())).hints]
            known = await self._without_rivals(turn, own, known)
            followed = await self._followed(turn, bare, known, turn.completion.tokens)
            without = await reading(self.renderer, turn, followed) if followed else None
            sample = await assembled(followed if without is not None else ())
            if without is None:
                found = await self._slipped(turn, bare, known, assembled) or await self._objecting(turn, sample)
            else:
                before = await self._logp(without, turn.completion.tokens)
                found = await self._moving(turn, without, sample, before)
                if found is None:
                    alone = _lasting(await assembled(()), turn)
                    found = await self._moving(turn, bare, alone, sum(turn.completion.logp))
                    known = [hint for hint in known if hint not in followed]
            if found is None:
                return replace(sample, hints=()), ()
            sample = await self._elsewhere(turn, known, found.sample)
            return sample, [item for item in before_it if item not in known] if sample.hints else ()
        except BeyondContextError:
            raise
        except EngineError:
            return await assembled(known), ()

    async def _without_rivals(
        self, turn: Turn, hints: Sequence[str], known: Sequence[PlacedHint]
    ) -> Sequence[PlacedHint]:
        """The known hints that go together with each of these hints that would mean the same in another task."""
        if self.others is None:
            return known
        asked = " ".join(item.text for item in turn.messages)
        for hint in hints:
            if known and is_general(hint, asked):
                rivals = await self.others.rivals(turn, hint, known)
                known = [item for item in known if item not in rivals]
        return known

    async def elsewhere(self, turn: Turn, known: Sequence[PlacedHint], sample: Sample) -> Sample:
        """The sample with demonstrations on other requests; without hints if the base model cannot follow its hint.

        As given if the hint would not mean the same in another task, and if the engine is unavailable.
        """
        try:
            known = await self._without_rivals(turn, [hint.text for hint in sample.hints], known)
            return await self._elsewhere(turn, known, sample)
        except EngineError:
            return sample

    async def _elsewhere(self, turn: Turn, known: Sequence[PlacedHint], sample: Sample) -> Sample:
        """The sample with demonstrations on other requests, and without those that contradict the corrected reply.

        If the hint changes the content of replies to requests like the corrected one, these take the place of the
        shipped ones, and the demonstrations are learned token by token (`teach/near.py`).

        If many of the base model's replies with the hint lose the number that they end with otherwise, and no others
        can be drawn, it cannot follow this wish: then the sample has no hints.

        As given without `others`, or if the hint would not mean the same in another task. What the model's context has
        no room for is not checked. Raises EngineError.
        """
        (hint,) = sample.hints
        own = _own_words(hint.text, known)
        if self.others is None or not is_general(own, " ".join(item.text for item in turn.messages)):
            return sample
        hint_prompt, shown, near = hint, sample.shown, NearReplies((), sample.shown)
        confuses = self.others.contradictions.confuses
        beside = [item for item in known if item.text != own and not confuses(item.text)]
        with suppress(BeyondContextError):
            hint_prompt, shown = await self.others.content.consistent(turn, hint, shown)
            near = NearReplies((), shown)
            near = await NearRequests(self.others).found(turn, own, beside, shown)
        with_shipped = not near.replies
        elsewhere = () if confuses(own) else await self.others.shown(turn, own, beside, with_shipped=with_shipped)
        if confuses(own):
            return replace(sample, hints=(), shown=())
        found = replace(sample, hints=(hint_prompt,), shown=near.shown, elsewhere=(*near.replies, *elsewhere))
        return replace(found, is_literal=bool(near.replies))

    async def rehearsed(self, turn: Turn, bare: Prompt, known: Sequence[PlacedHint], assembled: Assembled) -> Sample:
        """The sample of a reply without a correction, with those of its user's known hints that it follows.

        Trained on with these hints for the teacher, it preserves earlier learning while something else is learned. The
        other hints concern something else, and a small teacher that reads them all becomes confused. The sample has no
        hints if the reply follows none: the base model finds it about as likely after the `bare` prompt. Nor has it any
        if the base model would hardly have given this reply with the hints: weights that have drifted say what no hint
        asks for, and would learn that from themselves. If the prompt has images or the engine is unavailable, the
        sample is returned as assembled, with all hints of its turn's prompt.
        """
        if turn.prompt.images:
            return await assembled(turn.carried)
        said = turn.completion
        try:
            followed = await self._followed(turn, bare, known, said.tokens)
            read = await self._likeliest(turn, followed, said.tokens) if followed else None
        except EngineError:
            return await assembled(turn.carried)
        sample = replace(await assembled(()), hints=())
        if read is None:
            return sample
        order, hinted, logp = read
        if is_strange(said, logp):
            return sample
        words = tuple(hint.text for hint in order)
        return replace(sample, hints=(HintPrompt(" ".join(words), hinted.tokens),), rehearses=words)

    async def _likeliest(
        self, turn: Turn, hints: Sequence[PlacedHint], said: tuple[int, ...]
    ) -> tuple[Sequence[PlacedHint], Prompt, tuple[float, ...]] | None:
        """The hints in the order in which they make a reply likeliest, the prompt with them, and its log-probabilities.

        The given order if the reply does not show all of them there: where it has lost a wish, the likeliest order is
        one in which the base model does not follow it either. None if the template refuses.
        """
        tried = orders(hints)
        prompts = [prompt for order in tried if (prompt := await reading(self.renderer, turn, order)) is not None]
        if len(prompts) < len(tried):
            return None
        logps = await asyncio.gather(*(reply_logp(self.engine, prompt, said, BASE) for prompt in prompts))
        found = list(zip(tried, prompts, logps, strict=True))
        likeliest = max(found, key=lambda each: sum(each[2]))
        if len(found) == 1:
            return likeliest
        order, _, logp = likeliest
        without = [await reading(self.renderer, turn, [one for one in order if one is not hint]) for hint in order]
        return likeliest if all(await are_shown(self.engine, without, said, sum(logp))) else found[0]

    async def speaks_against(self, turn: Turn, rehearsal: Sample, hint: str) -> bool | None:
        """Whether the base model finds a rehearsed reply less likely with one more hint besides those that it follows.

        None if this cannot be determined: the engine is unavailable, the template refuses, or the prompt has images or
        no user message.
        """
        asked = last_user_index(turn.messages)
        if asked is None or turn.prompt.images:
            return None
        followed = [PlacedHint(asked, "", words) for words in rehearsal.rehearses]
        said = rehearsal.response
        try:
            before = await reading(self.renderer, turn, followed)
            after = await reading(self.renderer, turn, [*followed, PlacedHint(asked, "", hint)])
            if before is None or after is None:
                return None
            return await self._logp(before, said) - await self._logp(after, said) >= HEEDED_NATS
        except EngineError:
            return None

    async def _moving(self, turn: Turn, without: Prompt, sample: Sample, before: float) -> _EffectiveHint | None:
        """The sample's hint that has the most effect, and its demonstrations; None if it has too little.

        It must make the corrected reply less likely than `before`, in nats. If a demonstration came to an end, the hint
        must also make the first one likelier than it is after the prompt `without`, for the base model or for the
        served weights. A hint that does only the former ("Check each step") merely shows that the base model would not
        have said what the policy has learned to say.
        """
        said = turn.completion.tokens
        found = await self._most_contrary(said, sample, before)
        if found is None or not found.shown:
            return found
        (hint,), shown = found.hints, found.shown[0].tokens
        for version in dict.fromkeys((BASE, await self.current(turn))):
            hinted, before = await asyncio.gather(
                self._logp(Prompt(hint.tokens), shown, version), self._logp(without, shown, version)
            )
            if hinted - before >= HEEDED_NATS:
                return found
        return None

    async def _objecting(self, turn: Turn, sample: Sample) -> _EffectiveHint | None:
        """The hint with the most effect if, given it, the teacher finds the reply less likely than the policy did."""
        return await self._most_contrary(turn.completion.tokens, sample, sum(turn.completion.logp))

    async def _slipped(
        self, turn: Turn, bare: Prompt, known: Sequence[PlacedHint], assembled: Assembled
    ) -> _EffectiveHint | None:
        """As `_objecting`, with the known hints that the served weights' likeliest reply follows.

        None if it follows none, is the reply that was corrected, or does not end.
        """
        if not known:
            return None
        longest = self._longest(bare, len(turn.completion.tokens))
        sampling = Sampling(max_tokens=longest, temperature=0.0, stop_ids=self.stop_ids)
        likeliest = await sampled_reply(self.engine, bare, sampling, await self.current(turn))
        if likeliest.tokens == turn.completion.tokens or len(likeliest.tokens) == longest:
            return None
        followed = await self._followed(turn, bare, known, likeliest.tokens)
        return await self._objecting(turn, await assembled(followed)) if followed else None

    async def _most_contrary(self, said: tuple[int, ...], sample: Sample, before: float) -> _EffectiveHint | None:
        """The hint that makes a reply least likely, and its demonstrations.

        `before` is the reply's log-probability without the hint, in nats. None if no hint lowers it by `HEEDED_NATS`.
        """
        if not sample.hints:
            return None
        hinted = await asyncio.gather(*(self._logp(Prompt(hint.tokens), said) for hint in sample.hints))
        least = min(range(len(hinted)), key=lambda index: hinted[index])
        if before - hinted[least] < HEEDED_NATS:
            return None
        hint = sample.hints[least]
        return _EffectiveHint(sample, (hint,), await self._shown(len(said), hint))

    async def _followed(
        self, turn: Turn, without: Prompt, known: Sequence[PlacedHint], said: tuple[int, ...]
    ) -> list[PlacedHint]:
        """The known hints that concern the request and that a reply follows.

        Each makes it likelier than after the prompt `without`, by `FOLLOWED_NATS`. A reply may also be as a hint asks
        that is about something else, because weights that learned that hint follow it too widely.
        """
        readings = [
            (hint, prompt) for hint in known if (prompt := await reading(self.renderer, turn, [hint])) is not None
        ]
        if not readings:
            return []
        prompts = (without, *(prompt for _, prompt in readings))
        before, *hinted = await asyncio.gather(*(self._logp(prompt, said) for prompt in prompts))
        found = [one for one, logp in zip(readings, hinted, strict=True) if logp - before >= FOLLOWED_NATS]
        if not found:
            return []
        sampling = Sampling(max_tokens=self._longest(without, len(said)), temperature=0.0, stop_ids=self.stop_ids)
        own = await sampled_reply(self.engine, without, sampling, BASE)
        concern = await asyncio.gather(*(concerns(self.engine, own, prompt) for _, prompt in found))
        return [hint for (hint, _), is_concerned in zip(found, concern, strict=True) if is_concerned]

    async def _logp(self, prompt: Prompt, said: tuple[int, ...], version: PolicyVersion = BASE) -> float:
        """The log-probability of a whole reply, in nats."""
        return sum(await reply_logp(self.engine, prompt, said, version))

    def _longest(self, prompt: Prompt, length: int) -> int:
        """The number of tokens within which a reply must end, if the corrected one has `length` tokens."""
        room = self.engine.info.context_length - len(prompt)
        return max(1, min(room, max(self.settings.probe_tokens, 2 * length)))

    async def _shown(self, length: int, hint: HintPrompt) -> tuple[SampledReply, ...]:
        """Demonstrations of the hint: the likeliest reply given it, then sampled ones, without repetitions.

        If a reply may begin in several ways, the likeliest one begins in one of them, and does not show how the others
        continue. Replies that do not end within `_longest` tokens are left out; if the likeliest does not end,
        all are. They are sampled one after the other, so together they take one of the engine's places.
        """
        longest = self._longest(Prompt(hint.tokens), length)
        found: dict[tuple[int, ...], SampledReply] = {}
        for seed in range(1 + self.settings.demonstration_variants):
            temperature = 1.0 if seed else 0.0
            sampling = Sampling(max_tokens=longest, temperature=temperature, seed=seed, stop_ids=self.stop_ids)
            shown = await sampled_reply(self.engine, Prompt(hint.tokens), sampling, BASE)
            if len(shown.tokens) < longest:
                found.setdefault(shown.tokens, shown)
            elif not seed:
                return ()
        return tuple(found.values())


def _own_words(hint: str, known: Sequence[PlacedHint]) -> str:
    """The text of a turn's own hint without the known ones that the teacher reads before it.

    On another request each of these is read or not, as it concerns that request.
    """
    own = hint
    for item in known:
        own = own.removeprefix(item.text).lstrip()
    return own or hint


def _lasting(sample: Sample, turn: Turn) -> Sample:
    """The sample with only those of its hints that would mean the same in another task."""
    asked = " ".join(item.text for item in turn.messages)
    return replace(sample, hints=tuple(hint for hint in sample.hints if is_general(hint.text, asked)))
