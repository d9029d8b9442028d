"""Judged turns as they come: reads them from the store, applies the rules of `admit`, stores the samples."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from openclaw_rl.core.hint import PlacedHint
from openclaw_rl.core.ledger import DropReason, State
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.protocols import Renderer
from openclaw_rl.core.sample import Sample, SampledReply
from openclaw_rl.core.scope import trained_scopes
from openclaw_rl.core.turn import Turn
from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.store.db import Store
from openclaw_rl.store.rows import Judged
from openclaw_rl.teach.admit import admission, has_signal, refusal, teaches
from openclaw_rl.teach.assemble import bare_prompt, ema_baseline, not_about, others, sample_of
from openclaw_rl.teach.in_vain import InVain
from openclaw_rl.train.fairness import Floods
from openclaw_rl.train.settings import Baseline, TrainStageSettings, Wants

log = logging.getLogger(__name__)
Assembled = Callable[[Sequence[PlacedHint]], Awaitable[Sample]]  # a turn's sample, for a teacher that heeds these hints
AT_ONCE = 64
SLICE_S = 2.0  # so long turns are looked at before it is seen whether a step is due
LOOK_AGAIN = 200  # rounds after which all that waits is looked at once more
RECENT_REWARDS = 50
AGAINST_KEPT = 10_000  # of which riders is remembered what speaks against them
CORRECTED_MOST = 8  # corrections of one request that are looked back over


def everybody_teaches(turn: Turn) -> bool:
    """Nobody is left out."""
    return True


async def nothing_back(user: str, version: PolicyVersion) -> bool:
    """What was learned stays."""
    return False


async def no_hints(turn: Turn) -> Sequence[PlacedHint]:
    """Nothing is known of the user but what was said to the turn."""
    return ()


async def nothing_given_up(turn: Turn) -> None:
    """What was said to a turn stays in use, if it was."""


class Student(Protocol):
    """The weights being served, asked what they say to a prompt without the hints that a turn was sampled behind."""

    async def follows(self, turn: Turn, bare: Prompt) -> bool:
        """Whether they say what was said, and of themselves the same, as readily without the hints."""
        ...

    async def reply(self, turn: Turn, bare: Prompt) -> SampledReply | None:
        """What they say to the bare prompt; None where they cannot be asked now, or are not to be."""
        ...


class Hindsight(Protocol):
    """The teacher, asked about a reply that was accepted after the one before it had been corrected."""

    async def redone(
        self, accepted: Turn, corrected: Turn, bare: Prompt, hints: Sequence[str], sample: Sample
    ) -> Sample | None:
        """The accepted reply's sample as an answer to the `bare` prompt of the turn that was `corrected` first.

        None where it is no such answer. `hints` are those of all its corrections.
        """
        ...


class Guide(Protocol):
    """The teacher, asked about a turn's hints before anything is learned from them."""

    def let_go(self) -> None:
        """Holds nothing in memory of any turn, as after a restart."""
        ...

    async def demonstrated(self, turn: Turn, bare: Prompt, known: Sequence[PlacedHint], assembled: Assembled) -> Sample:
        """The turn's sample with what the teacher says behind its hint; without hints where none changes anything.

        `assembled` makes the sample whose teacher heeds some of the `known` hints beside the turn's own. `bare` is the
        prompt without any.
        """
        ...

    async def rehearsed(self, turn: Turn, bare: Prompt, known: Sequence[PlacedHint], assembled: Assembled) -> Sample:
        """The sample of a reply that nobody corrected, with those of the `known` hints that it follows, or none."""
        ...

    async def speaks_against(self, turn: Turn, rider: Sample, hint: str) -> bool | None:
        """Whether a hint makes what a rider said less likely; None where that cannot be told now."""
        ...


@dataclass(slots=True)
class Entry:
    """The door to training. `may_teach` says whether a turn's user has the right to.

    `weights_learn` is False where only prompts remember. `student` is asked about what was sampled behind hints,
    `guide` about what was corrected. `known` gives the hints that a user's teacher heeds beside those in the turn's
    prompt, with their places; `give_up` is told of turns whose hints change nothing. `take_back` is asked to serve a
    version again where what was learned from a user since is found to have been in vain.

    Asking a teacher about a turn takes seconds, and minutes where the engine is busy serving.
    """

    store: Store
    renderer: Renderer
    settings: TrainStageSettings
    wants: Wants
    may_teach: Callable[[Turn], bool] = everybody_teaches
    weights_learn: bool = True
    student: Student | None = None
    guide: Guide | None = None
    hindsight: Hindsight | None = None
    known: Callable[[Turn], Awaitable[Sequence[PlacedHint]]] = no_hints
    give_up: Callable[[Turn], Awaitable[None]] = nothing_given_up
    floods: Floods | None = None  # made of the settings where none is given
    take_back: Callable[[str, PolicyVersion], Awaitable[bool]] = nothing_back
    clock: Callable[[], float] = time.monotonic
    looking_at: int = 0  # judged turns, in the look under way
    _in_vain: InVain = field(init=False)
    _against: dict[tuple[str, str], bool] = field(default_factory=dict)  # turn and hint
    _looked: int = 0  # turns judged up to here were looked at, and wait for their sessions
    _rounds: int = 0
    _unanswering: set[str] = field(default_factory=set)  # turns of the look under way that answer no correction

    def __post_init__(self) -> None:
        self.floods = self.floods or Floods(self.settings)
        self._in_vain = InVain(self.settings.in_vain_turns)

    def let_go(self) -> None:
        """Holds nothing in memory of any turn, as after a restart."""
        self._in_vain = InVain(self.settings.in_vain_turns)
        self._against.clear()
        self._looked = 0
        if self.floods is not None:
            self.floods.let_go()
        if self.guide is not None:
            self.guide.let_go()

    async def admit(self) -> bool:
        """Admits or drops what can be decided now; True where something was, or where there is more to look at.

        Turns are looked at some at a time: thousands may wait for their sessions, and are read again when these have a
        sample or are over. After `SLICE_S` it comes back, so that a step need not wait for all of them.
        """
        until_s = self.clock() + SLICE_S
        if self._rounds % LOOK_AGAIN == 0:  # for what came back by another way than being judged
            self._looked = 0
        self._rounds += 1
        while True:
            rows = await self.store.judged(limit=AT_ONCE, looked=self._looked)
            self.looking_at = len(rows)
            try:
                has_moved, is_whole = await self._decide(rows, until_s)
            finally:
                self.looking_at = 0
            if not is_whole:
                return True
            self._unanswering.clear()
            self._looked = max([self._looked, *(row.seq for row in rows)])
            if has_moved or len(rows) < AT_ONCE:
                return has_moved
            if self.clock() >= until_s:
                return True

    async def holds(self, rider: Sample, since: Sequence[str]) -> bool:
        """Whether a rider may be read again: its user may teach, and no hint `since` it was said speaks against it.

        Where nobody can be asked now, each of them is taken to do so.
        """
        turn = await self.store.turn(rider.turn)
        if turn is None or not self.may_teach(turn):
            return False
        for hint in since:
            if self.guide is None:
                return False
            known = self._against.get((rider.turn, hint))
            if known is None:
                known = await self.guide.speaks_against(turn, rider, hint)
                if known is None:
                    return False
                self._against[rider.turn, hint] = known
                while len(self._against) > AGAINST_KEPT:
                    del self._against[next(iter(self._against))]
            if known:
                return False
        return True

    async def _decide(self, rows: Sequence[Judged], until_s: float) -> tuple[bool, bool]:
        """Whether anything was admitted or dropped, and whether all of them were looked at: not where time is up."""
        refused = {row.turn.id: reason for row in rows if (reason := self._refusal(row)) is not None}
        for user, version in self._in_vain.found():
            log.warning("learned from user=%s in vain: they correct as often as before version=%s", user, version)
            await self.take_back(user, version)
        contributing, complete = await self._sessions([row for row in rows if row.turn.id not in refused])
        decided = admission(rows, self.wants, refused=refused, contributing=contributing, complete=complete)
        for row in sorted(decided.samples, key=lambda row: row.turn.at_s):  # what was corrected before what came of it
            await self._admit(row, None)
            self.looking_at -= 1
            if self.clock() >= until_s:
                return True, False
        taken = {row.turn.id for row in decided.samples}
        silent = [row for row in rows if row.turn.id not in taken and row.turn.id not in refused]
        answers = set[str]()
        for row in silent:
            if row.turn.id in self._unanswering:
                continue
            (answers if await self._answers(row) else self._unanswering).add(row.turn.id)
            if self.clock() >= until_s:
                return True, False
        for row, reward in decided.promoted:
            if row.turn.id not in answers:
                await self._admit(row, reward)
                self.looking_at -= 1
                if self.clock() >= until_s:
                    return True, False
        for turn, reason in decided.dropped:
            if turn not in answers:
                await self._drop(turn, reason)
        return bool(decided.samples or decided.promoted or decided.dropped or answers), True

    def _refusal(self, row: Judged) -> DropReason | None:
        reason = refusal(
            row.turn,
            row.verdict,
            may_teach=self.may_teach(row.turn),
            max_tokens=self.settings.max_sample_tokens,
            weights_learn=self.weights_learn,
        )
        if reason is None and self._in_vain.rests(row.turn, row.verdict):
            return DropReason.IN_VAIN
        if reason is None and self.floods is not None and has_signal(row.turn, row.verdict, self.wants):
            return self.floods.refusal(row.turn, row.verdict)
        return reason

    async def _sessions(self, rows: Sequence[Judged]) -> tuple[frozenset[str], frozenset[str]]:
        """The sessions that contribute already, and those that ended with every turn judged."""
        ended = {row.turn.session: row.session.end_why is not None for row in rows}
        contributing = frozenset([name for name in ended if await self.store.session_has_sample(name)])
        complete = frozenset(
            [
                name
                for name, has_ended in ended.items()
                if has_ended
                and name not in contributing
                and not await self.store.rows(limit=1, session=name, state=State.PAIRED)
            ]
        )
        return contributing, complete

    async def _admit(self, row: Judged, reward: float | None) -> None:
        turn = row.turn
        student = self.student if turn.carried else None
        bare = turn.prompt if student is None else await asyncio.to_thread(bare_prompt, turn, self.renderer)
        is_learned = student is not None and not row.verdict.hints and await student.follows(turn, bare)
        if is_learned and self.guide is None:
            await self._drop(turn.id, DropReason.LEARNED)
            return
        if reward is None and await self._answers(row):
            return
        sample = await self._sample(row, bare, reward)
        if self.guide is not None and sample.is_taught and not self._asks_guide(row):
            if is_learned or not sample.hints:
                await self._let_ride(sample, turn)
                return
            sample = replace(sample, rehearses=())
        # Without a guide a sample has no hints where they fit nowhere; with one, where they change nothing.
        is_unheeded = self._asks_guide(row) and not sample.hints
        if not sample.is_promoted and (not teaches(sample, self.wants) or (sample.is_taught and is_unheeded)):
            await self._drop(turn.id, DropReason.UNHEEDED if is_unheeded else DropReason.NO_SIGNAL)
            if is_unheeded:
                await self.give_up(turn)
            return
        if student is not None:
            sample = replace(sample, own=await student.reply(turn, bare))
        await self._ready(sample, turn)

    async def _answers(self, row: Judged) -> bool:
        """Whether it was accepted after corrections whose hints the teacher did not heed, and is learned from as that.

        It answers what was corrected first then, whatever else its session has to teach.
        """
        verdict = row.verdict
        if self.hindsight is None or verdict.hints or verdict.score is None or verdict.score < 0:
            return False
        first, hints, parent = None, list[str](), row.turn.parent
        for _ in range(CORRECTED_MOST):
            before = None if parent is None else await self.store.row(parent)
            if before is None or before.verdict is None or before.reason is not DropReason.UNHEEDED:
                break
            first, parent = before.turn, before.turn.parent
            hints += [hint.text for hint in before.verdict.hints if hint.text not in hints]
        if first is None:
            return False
        bare = await asyncio.to_thread(bare_prompt, first, self.renderer)
        sample = await (await self._assembled(row, None))(())
        found = await self.hindsight.redone(row.turn, first, bare, hints, sample)
        if found is None:
            return False
        own = None if self.student is None else await self.student.reply(row.turn, bare)
        await self._ready(replace(found, own=own), row.turn)
        return True

    async def _let_ride(self, sample: Sample, turn: Turn) -> None:
        """Has a session's first reply ride along where there is nothing left to teach by it, so that this holds."""
        if await self.store.session_has_sample(turn.session):
            await self._drop(turn.id, DropReason.LEARNED)
            return
        hints = sample.hints if sample.rehearses else ()  # of others nobody knows whether they still hold
        await self._ready(replace(sample, hints=hints, is_promoted=True, score=None, baseline=None), turn)

    async def _ready(self, sample: Sample, turn: Turn) -> None:
        try:
            scopes = trained_scopes(self.settings.scopes, user=turn.user, agent=turn.agent)
            await self.store.admit(sample, scopes=scopes)
        except ValueError:  # forgotten since it was read
            log.info("not admitted turn=%s: it has moved on", sample.turn)
            return
        log.info("ready turn=%s score=%s hints=%d", sample.turn, sample.score, len(sample.hints))

    async def _assembled(self, row: Judged, reward: float | None) -> Assembled:
        baseline = await self._baseline(row)

        async def assembled(heeded: Sequence[PlacedHint]) -> Sample:
            # Rendering hints encodes text, which takes milliseconds for a long prompt: off the loop.
            return await asyncio.to_thread(
                sample_of,
                row.turn,
                row.verdict,
                self.renderer,
                baseline=baseline,
                max_tokens=self.settings.max_sample_tokens,
                reward=reward,
                known=heeded,
            )

        return assembled

    async def _sample(self, row: Judged, bare: Prompt, reward: float | None) -> Sample:
        turn, assembled = row.turn, await self._assembled(row, reward)
        # What was said to the turn may be the opposite of what stood in its prompt: nobody is told both at once.
        in_prompt = not_about(turn.carried, [hint.text for hint in row.verdict.hints])
        known = [*in_prompt, *others(turn, row.verdict, await self.known(turn))]
        if self.guide is not None and self._asks_guide(row) and reward is None:
            return await self.guide.demonstrated(turn, bare, known, assembled)
        if self.guide is not None and (reward is not None or turn.carried):
            return await self.guide.rehearsed(turn, bare, known, assembled)
        return await assembled(known)

    def _asks_guide(self, row: Judged) -> bool:
        """Whether the teacher is asked about the turn: one that was corrected, with words."""
        is_corrected = row.verdict.score is not None and row.verdict.score < 0
        return self.guide is not None and is_corrected and bool(row.verdict.hints)

    async def _baseline(self, row: Judged) -> float | None:
        if self.settings.baseline is Baseline.NONE or row.verdict.score is None:
            return None
        rewards = await self.store.rewards(row.turn.user, limit=RECENT_REWARDS)
        return ema_baseline(rewards, float(row.verdict.score), self.settings.baseline_decay)

    async def _drop(self, turn: str, reason: DropReason) -> None:
        await self.store.drop(turn, reason)
        log.info("dropped turn=%s reason=%s", turn, reason)
