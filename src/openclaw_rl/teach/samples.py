"""A judged turn becomes a sample, or is dropped if it turns out to teach nothing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from openclaw_rl.core.hint import Hint, HintSource, PlacedHint
from openclaw_rl.core.ledger import DropReason
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.protocols import Renderer
from openclaw_rl.core.sample import Sample, Wants, teaches
from openclaw_rl.core.scope import trained_scopes
from openclaw_rl.core.turn import Turn
from openclaw_rl.errors import BeyondContextError
from openclaw_rl.store.db import Store
from openclaw_rl.store.rows import JudgedTurn, TurnRow
from openclaw_rl.teach.assemble import bare_prompt, ema_baseline, not_about, others, sample_of
from openclaw_rl.teach.demonstrate import Assembled
from openclaw_rl.teach.floods import is_said_before
from openclaw_rl.teach.misheard import CORRECTED_MOST
from openclaw_rl.teach.rules import LearningRules, Teacher
from openclaw_rl.teach.settings import Baseline, TeachSettings

log = logging.getLogger(__name__)
RECENT_REWARDS = 50


@dataclass(frozen=True, slots=True)
class SampleMaker:
    """Asks the teacher about judged turns, and stores their samples."""

    store: Store
    renderer: Renderer
    settings: TeachSettings
    rules: LearningRules
    teacher: Teacher

    async def admit(self, row: JudgedTurn, reward: float | None) -> None:
        """Makes a sample of a turn, or drops it. A `reward` is given where a turn is promoted."""
        turn = row.turn
        if self.teacher.replaced is not None and await self.teacher.replaced.is_heard_again(row):
            return await self.drop(turn.id, DropReason.MISHEARD)
        if await self._is_for_prompts(row):
            return await self.drop(turn.id, DropReason.MEMORY_ONLY)
        served = self.teacher.served if turn.carried else None
        bare = turn.prompt if served is None else await asyncio.to_thread(bare_prompt, turn, self.renderer)
        is_learned = served is not None and not row.verdict.hints and await served.follows(turn, bare)
        if is_learned and self.teacher.base is None:
            await self.drop(turn.id, DropReason.LEARNED)
            return
        if reward is None and await self.answers(row):
            return
        if self._is_demonstrated(row) and self.rules.wants is Wants.HINT and await is_said_before(self.store, row):
            return await self.drop(turn.id, DropReason.SAID_BEFORE)
        unheeded = DropReason.UNHEEDED
        try:
            sample = await self._sample(row, bare, reward)
        except BeyondContextError:
            sample = replace(await (await self._assembled(row, reward))(()), hints=())
            unheeded = DropReason.TOO_LONG
        if self.teacher.base is not None and sample.is_taught and not self._is_demonstrated(row):
            if is_learned or not sample.hints:
                await self._rehearse(sample, turn)
                return
            sample = replace(sample, rehearses=())
        # Without a demonstrator a sample has no hints if they do not fit; with one, if they have no effect.
        is_unheeded = self._is_demonstrated(row) and not sample.hints
        if not sample.is_promoted and (not teaches(sample, self.rules.wants) or (sample.is_taught and is_unheeded)):
            reason = unheeded if is_unheeded else DropReason.NO_SIGNAL
            await self.drop(turn.id, reason)
            if reason is DropReason.UNHEEDED and self.teacher.hints is not None:
                await self.teacher.hints.give_up(turn)
            return
        if served is not None:
            sample = replace(sample, own=await served.reply(turn, bare))
        await self._ready(sample, turn)

    async def _is_for_prompts(self, row: JudgedTurn) -> bool:
        """Whether all that a turn could teach are hints in its prompt that the weights could not learn."""
        return bool(row.turn.carried) and not row.verdict.hints and not await self._learnable(row.turn)

    async def _learnable(self, turn: Turn) -> Sequence[PlacedHint]:
        """The hints in its prompt that the weights may learn."""
        hints = self.teacher.hints
        return turn.carried if hints is None else await hints.learnable(turn)

    async def answers(self, row: JudgedTurn) -> bool:
        """Makes a sample of a reply that was accepted after corrections with hints that had no effect; True if it did.

        The reply is then trained on as the answer to the request that was corrected first, whatever else its session
        has to teach.
        """
        verdict = row.verdict
        if self.teacher.hindsight is None or verdict.hints or verdict.score is None or verdict.score < 0:
            return False
        corrected, hints, parent = list[TurnRow](), dict[str, Hint](), row.turn.parent
        for _ in range(CORRECTED_MOST):
            before = None if parent is None else await self.store.row(parent)
            said = () if before is None else await self._meant_by(before)
            if before is None or not said:
                break
            corrected, parent = [*corrected, before], before.turn.parent
            hints = {each.text: each for each in said} | hints
        if not corrected:
            return False
        first, misheard, base = corrected[-1].turn, self.teacher.misheard, self.teacher.base
        bare = await asyncio.to_thread(bare_prompt, first, self.renderer)
        sample = await (await self._assembled(row, None))(())
        known = not_about(await self._known(first), list(hints))
        if misheard is not None:
            known = misheard.left(known, corrected)
        found = await self.teacher.hindsight.redone(row.turn, first, bare, list(hints), sample, known=known)
        hint = None if found is None else hints[found.hints[0].text]
        if found and hint and hint.source is HintSource.FOLLOWUP and misheard is not None and base is not None:
            found = await misheard.taught(found, hint, corrected, known, base)
        if found is None:
            return False
        own = None if self.teacher.served is None else await self.teacher.served.reply(row.turn, bare)
        await self._ready(replace(found, own=own), row.turn)
        return True

    async def _meant_by(self, corrected: TurnRow) -> Sequence[Hint]:
        """The hints that may explain what was accepted after a correction from which nothing is learned itself.

        If its hints were misheard or are outdone, it is what its user said. None if it is learned from.
        """
        misheard = self.teacher.misheard
        if misheard is not None:
            await misheard.recall(corrected)
            if misheard.gives_way(corrected):
                return misheard.meant(corrected)
        if corrected.verdict is None or corrected.reason is not DropReason.UNHEEDED:
            return ()
        return corrected.verdict.hints

    async def _rehearse(self, sample: Sample, turn: Turn) -> None:
        """Makes a reply that has nothing left to teach a rehearsal sample; drops it if its session has a sample."""
        if await self.store.session_has_sample(turn.session):
            await self.drop(turn.id, DropReason.LEARNED)
            return
        hints = sample.hints if sample.rehearses else ()  # the reply may not follow other hints
        await self._ready(replace(sample, hints=hints, is_promoted=True, score=None, baseline=None), turn)

    async def _ready(self, sample: Sample, turn: Turn) -> None:
        try:
            scopes = trained_scopes(self.rules.scopes, user=turn.user, agent=turn.agent)
            await self.store.admit(sample, scopes=scopes)
        except ValueError:  # forgotten since it was read
            log.info("not admitted turn=%s: its state has changed", sample.turn)
            return
        log.info("ready turn=%s score=%s hints=%d", sample.turn, sample.score, len(sample.hints))

    async def _assembled(self, row: JudgedTurn, reward: float | None) -> Assembled:
        baseline = await self._baseline(row)

        async def assembled(known: Sequence[PlacedHint]) -> Sample:
            # In a thread, because rendering hints encodes text, which takes milliseconds for a long prompt.
            return await asyncio.to_thread(
                sample_of,
                row.turn,
                row.verdict,
                self.renderer,
                baseline=baseline,
                max_tokens=self.rules.max_sample_tokens,
                reward=reward,
                known=known,
            )

        return assembled

    async def _sample(self, row: JudgedTurn, bare: Prompt, reward: float | None) -> Sample:
        turn, assembled = row.turn, await self._assembled(row, reward)
        # A hint of the verdict may be the opposite of a hint in the prompt: a teacher never reads both at once.
        in_prompt = not_about(await self._learnable(turn), [hint.text for hint in row.verdict.hints])
        known = [*in_prompt, *others(turn, row.verdict, await self._known(turn))]
        if self.teacher.base is not None and self._is_demonstrated(row) and reward is None:
            sample, gave_way = await self.teacher.base.demonstrated(turn, bare, known, assembled)
            if self.teacher.replaced is not None and gave_way:
                await self.teacher.replaced.undo(turn, gave_way, [hint.text for hint in row.verdict.hints])
            return sample
        if self.teacher.base is not None and (reward is not None or turn.carried):
            return await self.teacher.base.rehearsed(turn, bare, known, assembled)
        return await assembled(known)

    def _is_demonstrated(self, row: JudgedTurn) -> bool:
        """Whether the base model is asked for demonstrations: the turn was corrected with hints, and `base` is set."""
        is_corrected = row.verdict.score is not None and row.verdict.score < 0
        return self.teacher.base is not None and is_corrected and bool(row.verdict.hints)

    async def _baseline(self, row: JudgedTurn) -> float | None:
        if self.settings.baseline is Baseline.NONE or row.verdict.score is None:
            return None
        rewards = await self.store.rewards(row.turn.user, limit=RECENT_REWARDS)
        return ema_baseline(rewards, float(row.verdict.score), self.settings.baseline_decay)

    async def drop(self, turn: str, reason: DropReason) -> None:
        """Drops a turn for this reason."""
        await self.store.drop(turn, reason)
        log.info("dropped turn=%s reason=%s", turn, reason)

    async def _known(self, turn: Turn) -> Sequence[PlacedHint]:
        """The user's other hints: a teacher follows them in addition to those of the verdict."""
        return () if self.teacher.hints is None else await self.teacher.hints.beside(turn)
