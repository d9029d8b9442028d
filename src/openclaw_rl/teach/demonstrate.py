"""The effect of a hint on the base model, before anything is learned from it: whether it follows it, and its replies.

A corrected reply teaches only the token at which it went wrong, so new words would be learned one token with each
correction. A demonstration, the reply of the model given the hint, contains all of them. And a hint that changes
nothing about the reply it was given for has nothing to teach, however often it is given.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from openclaw_rl.core.hint import PlacedHint, last_user_index
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.protocols import Engine, Renderer
from openclaw_rl.core.sample import HintPrompt, Sample, SampledReply
from openclaw_rl.core.sampling import Sampling
from openclaw_rl.core.turn import Turn
from openclaw_rl.core.version import BASE, PolicyVersion
from openclaw_rl.errors import EngineError
from openclaw_rl.teach.asking import is_strange, reading, reply_logp, sampled_reply
from openclaw_rl.teach.elsewhere import OtherRequests
from openclaw_rl.teach.settings import TeachSettings
from openclaw_rl.wording.likeness import is_general

HEEDED_NATS = 1.0  # by which a hint makes the corrected reply less likely, and its demonstration likelier
FOLLOWED_NATS = 2.0  # by which a known hint makes what was said likelier: it is one that the reply follows

Assembled = Callable[[Sequence[PlacedHint]], Awaitable[Sample]]


@dataclass(frozen=True, slots=True)
class _EffectiveHint:
    """The hint of a sample, and the base model's replies given the hint, if they come to an end."""

    assembled: Sample
    hints: tuple[HintPrompt]
    shown: tuple[SampledReply, ...]

    @property
    def sample(self) -> Sample:
        """With both."""
        return replace(self.assembled, hints=self.hints, shown=self.shown)


@dataclass(frozen=True, slots=True)
class Demonstrator:
    """Asks the base model, which is the teacher, and the weights that are served to a turn's user, as `current` says.

    `stop_ids` end an answer.
    """

    engine: Engine
    current: Callable[[Turn], Awaitable[PolicyVersion]]
    renderer: Renderer
    stop_ids: tuple[int, ...]
    settings: TeachSettings
    others: OtherRequests | None = None

    def let_go(self) -> None:
        """Holds nothing in memory of any turn, as after a restart."""
        if self.others is not None:
            self.others.let_go()

    def costly_hints(self) -> tuple[tuple[str, int, int], ...]:
        """The hints that change what is said: replies that say something else, and replies checked."""
        return () if self.others is None else tuple(self.others.contradictions.costly())

    async def demonstrated(self, turn: Turn, bare: Prompt, known: Sequence[PlacedHint], assembled: Assembled) -> Sample:
        """A corrected turn's sample, as `assembled` with further hints for the teacher besides the turn's own.

        Of the turn's hints it keeps the one that objects most to the reply, with its demonstrations; none if no hint
        changes anything. Those `known` hints that the reply follows are added, unless they outweigh it: the others
        concern something else, and a small model becomes confused by many. All this is measured against the `bare`
        prompt, without hints. If the engine is unavailable, the sample is returned as assembled, with all known hints.

        What the reply follows already must not be unlearned for nothing. Then a hint must change the reply, and one
        that would mean nothing in another task ("The right answer is 14") is learned together with the followed hints
        or not at all. If the reply follows no known hint, the teacher need only find it less likely than the policy
        did: a user who wants the base model's usual behaviour back asks for what it says without any hint. In case of a
        slip (the weights mostly reply according to some hints) these hints are added: or earlier learning would be
        lost.
        """
        if turn.prompt.images:  # a trainer reads ids alone
            return await assembled(known)
        if turn.completion.forced:  # a free reply of the base model has another form than the one that was asked for
            return await assembled(known)
        try:
            followed = await self._followed(turn, bare, known, turn.completion.tokens)
            without = await reading(self.renderer, turn, followed) if followed else None
            sample = await assembled(followed if without is not None else ())
            if without is None:
                found = await self._slipped(turn, bare, known, assembled) or await self._objecting(turn, sample)
            else:
                found = await self._moving(turn, without, sample)
                if found is None:
                    found = await self._moving(turn, bare, _lasting(await assembled(()), turn))
            return replace(sample, hints=()) if found is None else await self._elsewhere(turn, known, found.sample)
        except EngineError:
            return await assembled(known)

    async def _elsewhere(self, turn: Turn, known: Sequence[PlacedHint], sample: Sample) -> Sample:
        """With what is said to other requests given a hint that would mean the same there, and without replies that say
        something else than was corrected.
        """
        (hint,) = sample.hints
        if self.others is None or not is_general(hint.text, " ".join(item.text for item in turn.messages)):
            return sample
        beside = [item for item in known if item.text not in hint.text]
        reading, shown = await self.others.content.consistent(turn, hint, sample.shown)
        elsewhere = await self.others.shown(turn, hint.text, beside)
        return replace(sample, hints=(reading,), shown=shown, elsewhere=elsewhere)

    async def rehearsed(self, turn: Turn, bare: Prompt, known: Sequence[PlacedHint], assembled: Assembled) -> Sample:
        """The sample of a reply without a correction, with those of its user's known hints that it follows.

        Learned from given these hints, it preserves earlier learning while something else is learned. The other hints
        concern something else, and a small teacher that reads them all becomes confused. It has no hints if the reply
        follows none: the base model says it to the `bare` prompt as readily. Nor if the base model would hardly have
        said it given the hints: weights that have drifted say what no hint asks for, and would learn that from
        themselves. If the engine is unavailable, it is returned as assembled: given all hints of its prompt, if any.
        """
        if turn.prompt.images:
            return await assembled(turn.carried)
        try:
            followed = await self._followed(turn, bare, known, turn.completion.tokens)
            behind = await reading(self.renderer, turn, followed) if followed else None
            said = turn.completion
            if behind is not None and is_strange(said, await reply_logp(self.engine, behind, said.tokens, BASE)):
                behind = None
        except EngineError:
            return await assembled(turn.carried)
        sample = replace(await assembled(()), hints=())
        if behind is None:
            return sample
        words = tuple(hint.text for hint in followed)
        return replace(sample, hints=(HintPrompt(" ".join(words), behind.tokens),), rehearses=words)

    async def speaks_against(self, turn: Turn, rehearsal: Sample, hint: str) -> bool | None:
        """Whether the base model finds a reply less likely with one more hint besides those that it follows.

        None if the engine is unavailable, or the prompt is not only text.
        """
        asked = last_user_index(turn.messages)
        if asked is None or turn.prompt.images:
            return None
        followed = [PlacedHint(asked, "", words) for words in rehearsal.rehearses]
        said = rehearsal.response
        try:
            before = await reading(self.renderer, turn, followed)
            beside = await reading(self.renderer, turn, [*followed, PlacedHint(asked, "", hint)])
            if before is None or beside is None:
                return None
            return await self._logp(before, said) - await self._logp(beside, said) >= HEEDED_NATS
        except EngineError:
            return None

    async def _moving(self, turn: Turn, without: Prompt, sample: Sample) -> _EffectiveHint | None:
        """The sample's hint that objects most, and the replies given it; None if it changes nothing.

        It must make the corrected reply less likely, and the reply given the hint likelier than without it, for the
        base model or for the served weights. A hint that only does the first shows merely that the base model would not
        have said what the policy has learned to say ("Check each step").
        """
        said = turn.completion.tokens
        found = await self._most_contrary(said, sample, await self._logp(without, said))
        if found is None or not found.shown:
            return found
        (hint,), shown = found.hints, found.shown[0].tokens
        for version in dict.fromkeys((BASE, await self.current(turn))):
            behind, before = await asyncio.gather(
                self._logp(Prompt(hint.tokens), shown, version), self._logp(without, shown, version)
            )
            if behind - before >= HEEDED_NATS:
                return found
        return None

    async def _objecting(self, turn: Turn, sample: Sample) -> _EffectiveHint | None:
        """The same if the teacher finds the reply less likely than the weights that sampled it did."""
        return await self._most_contrary(turn.completion.tokens, sample, sum(turn.completion.logp))

    async def _slipped(
        self, turn: Turn, bare: Prompt, known: Sequence[PlacedHint], assembled: Assembled
    ) -> _EffectiveHint | None:
        """The same with the known hints that the served weights' likeliest reply follows; None if it follows none."""
        if not known:
            return None
        longest = self._longest(len(turn.completion.tokens))
        sampling = Sampling(max_tokens=longest, temperature=0.0, stop_ids=self.stop_ids)
        mostly = await sampled_reply(self.engine, bare, sampling, await self.current(turn))
        if mostly.tokens == turn.completion.tokens or len(mostly.tokens) == longest:
            return None
        followed = await self._followed(turn, bare, known, mostly.tokens)
        return await self._objecting(turn, await assembled(followed)) if followed else None

    async def _most_contrary(self, said: tuple[int, ...], sample: Sample, before: float) -> _EffectiveHint | None:
        """The hint that makes a reply least likely (`before` nats without it), and the replies given that hint."""
        if not sample.hints:
            return None
        behind = await asyncio.gather(*(self._logp(Prompt(hint.tokens), said) for hint in sample.hints))
        least = min(range(len(behind)), key=lambda index: behind[index])
        if before - behind[least] < HEEDED_NATS:
            return None
        hint = sample.hints[least]
        return _EffectiveHint(sample, (hint,), await self._shown(len(said), hint))

    async def _followed(
        self, turn: Turn, without: Prompt, known: Sequence[PlacedHint], said: tuple[int, ...]
    ) -> list[PlacedHint]:
        """The known hints that make a reply to the turn likelier than it is without any."""
        readings = [
            (hint, prompt) for hint in known if (prompt := await reading(self.renderer, turn, [hint])) is not None
        ]
        if not readings:
            return []
        prompts = (without, *(prompt for _, prompt in readings))
        before, *behind = await asyncio.gather(*(self._logp(prompt, said) for prompt in prompts))
        return [hint for (hint, _), logp in zip(readings, behind, strict=True) if logp - before >= FOLLOWED_NATS]

    async def _logp(self, prompt: Prompt, said: tuple[int, ...], version: PolicyVersion = BASE) -> float:
        """Of a whole reply, in nats."""
        return sum(await reply_logp(self.engine, prompt, said, version))

    def _longest(self, length: int) -> int:
        """Within how many tokens a reply must end, if the corrected one has this length."""
        return max(self.settings.probe_tokens, 2 * length)

    async def _shown(self, length: int, hint: HintPrompt) -> tuple[SampledReply, ...]:
        """The likeliest reply given the hint, then sampled ones, each only once.

        If a reply may begin in several ways, the likeliest one begins in one of them, and does not show how the others
        continue. Replies that do not end within twice the length of the corrected one are left out; if the likeliest
        does not, all are. They are sampled one after the other, so together they take one of the engine's places.
        """
        longest = self._longest(length)
        found: dict[tuple[int, ...], SampledReply] = {}
        for seed in range(1 + self.settings.demonstration_variants):
            warmth = 1.0 if seed else 0.0
            sampling = Sampling(max_tokens=longest, temperature=warmth, seed=seed, stop_ids=self.stop_ids)
            shown = await sampled_reply(self.engine, Prompt(hint.tokens), sampling, BASE)
            if len(shown.tokens) < longest:
                found.setdefault(shown.tokens, shown)
            elif not seed:
                return ()
        return tuple(found.values())


def _lasting(sample: Sample, turn: Turn) -> Sample:
    """With those of its hints alone that would mean the same in another task."""
    asked = " ".join(item.text for item in turn.messages)
    return replace(sample, hints=tuple(hint for hint in sample.hints if is_general(hint.text, asked)))
