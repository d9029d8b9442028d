"""Episodes as the other parts use them: begun, observed, ended, and settled into samples; each in one transaction."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from dataclasses import replace

from openclaw_rl.core.episode import Episode, EpisodeEnd, EpisodeState, EpisodeStep
from openclaw_rl.core.ledger import DropReason, State
from openclaw_rl.core.message import Message, Role, message
from openclaw_rl.core.next_state import NextState, NextStateSource
from openclaw_rl.core.sample import Sample
from openclaw_rl.core.verdict import Verdict, VerdictSource
from openclaw_rl.errors import RequestError
from openclaw_rl.store.codec import plain
from openclaw_rl.store.redact.masker import Masker
from openclaw_rl.store.tables import episodes, ledger, lessons, samples
from openclaw_rl.store.tables.episodes import EpisodeRow, GroupKey, StepRow
from openclaw_rl.store.threads import Reader, Transaction, Writer

WAITING = (State.SERVED, State.PAIRED)


class EpisodeBook:
    """The episodes of an installation; one waiter at a time to `wait_ended`."""

    def __init__(self, writer: Writer, reader: Reader, masker: Masker) -> None:
        self._writer = writer
        self._reader = reader
        self._masker = masker
        self._ended = asyncio.Event()

    async def begin(self, episode: Episode) -> EpisodeRow:
        """The episode: begun now, or the one begun before under this id. Raises RequestError (409) if that has another
        task, group or user.
        """
        text = self._masker.text
        own = replace(
            episode,
            task=text(episode.task),
            group=None if episode.group is None else text(episode.group),
            environment=text(episode.environment),
        )
        return await self._writer.do(lambda tx: _begin(tx.sql, own))

    def is_gone(self, sql: sqlite3.Connection, step: EpisodeStep | None) -> bool:
        """Whether the step's episode was erased, so that the turn must not be stored."""
        return episodes.is_gone(sql, step)

    async def get(self, name: str) -> EpisodeRow | None:
        """The episode of this id."""
        return await self._reader.do(lambda sql: episodes.get(sql, name))

    async def find(self, given: str) -> EpisodeRow | None:
        """The episode of this id, or the only one with this name of its client."""
        return await self._reader.do(lambda sql: episodes.find(sql, given))

    async def page(
        self, *, limit: int, before: str | None = None, state: EpisodeState | None = None, task: str | None = None
    ) -> list[EpisodeRow]:
        """Newest first; `before` is an episode's id to page on from."""
        return await self._reader.do(lambda sql: episodes.page(sql, limit=limit, before=before, state=state, task=task))

    async def next_index(self, name: str, prefix: str) -> int:
        """The index of a step whose request names none; `prefix` is the digest of the request."""
        return await self._reader.do(lambda sql: episodes.next_index(sql, name, prefix))

    async def observe(self, name: str, index: int, shown: Sequence[Message], *, after: str | None = None) -> bool:
        """What the environment showed at step `index`: the next state of the latest step before it.

        If the request says which turn it continues from, that of the turn `after`. False if none waits for a next
        state.
        """
        heard = tuple(item for item in shown if item.role in (Role.USER, Role.TOOL))
        return bool(heard) and await self._writer.do(lambda tx: self._observe(tx, name, index, heard, after))

    async def report_step(
        self, name: str, index: int, *, score: float | None, shown: Sequence[Message] = ()
    ) -> tuple[str, ...]:
        """Stores a step's own reward, and what the environment showed after it; returns the turns of that step.

        Raises RequestError if the episode does not exist or is over, or took no such step.
        """

        def work(tx: Transaction) -> tuple[str, ...]:
            row = _open_row(tx.sql, name)
            steps = [step for step in row.steps if step.step.index == index and step.state is not None]
            if not steps:
                raise RequestError(
                    f"episode {name} has taken no step {index}",
                    fix=f"it has taken {len({step.step.index for step in row.steps})}; steps count from 0",
                    status=404,
                    param="step",
                )
            if score is not None:
                for step in steps:
                    episodes.set_score(tx.sql, step.turn, score)
            if shown:
                self._observe(tx, name, index + 1, tuple(shown), None)
            return tuple(step.turn for step in steps)

        return await self._writer.do(work)

    async def score_step(self, turn: str, score: float) -> None:
        """Stores a judge's score of a step, after its episode has ended."""
        await self._writer.do(lambda tx: episodes.set_score(tx.sql, turn, score))

    async def end(self, name: str, end: EpisodeEnd, *, at_s: float) -> EpisodeRow:
        """The episode is over, and each of its turns that may teach is JUDGED; synced to disk.

        Repeated with the same outcome it changes nothing. Raises RequestError if it does not exist (404), or has ended
        otherwise (409).
        """
        kept = replace(end, why=self._masker.text(end.why))

        def work(tx: Transaction) -> EpisodeRow:
            row = _row(tx.sql, name)
            if not row.episode.is_open:
                if (row.episode.outcome, row.episode.failure) == (kept.graded, kept.failure):
                    return row
                raise RequestError(f"episode {name} has ended already", fix="begin another", status=409, param="id")
            return _ended(tx, row, kept, at_s)

        found = await self._writer.do(work, is_synced=True)
        self._ended.set()
        return found

    async def end_silent(self, *, before_s: float, end: EpisodeEnd, at_s: float) -> list[str]:
        """Ends the open episodes that took no step since; returns their ids."""

        def work(tx: Transaction) -> list[str]:
            names = episodes.silent(tx.sql, before_s)
            for name in names:
                _ended(tx, _row(tx.sql, name), end, at_s)
            return names

        if not await self._reader.do(lambda sql: episodes.silent(sql, before_s)):
            return []
        return await self._writer.do(work)

    async def waiting_groups(self) -> list[GroupKey]:
        """The groups with an episode that has ended and is not settled, the one that waits longest first."""
        return await self._reader.do(episodes.waiting_groups)

    async def of_group(self, key: GroupKey) -> list[EpisodeRow]:
        """All episodes of a group, oldest first."""
        return await self._reader.do(lambda sql: episodes.of_group(sql, key))

    async def judge_left(self, name: str) -> None:
        """Moves those turns of an ended episode to JUDGED that a repair returned to an earlier state."""

        def work(tx: Transaction) -> None:
            row = _row(tx.sql, name)
            _judge_steps(tx, row, EpisodeEnd(row.episode.outcome, row.episode.failure, row.episode.why))

        await self._writer.do(work)

    async def settle(
        self,
        name: str,
        admitted: Sequence[tuple[Sample, Sequence[str]]],
        dropped: Sequence[tuple[str, DropReason]],
    ) -> bool:
        """Its samples READY, each to train its scopes, the rest dropped, the episode settled; in one transaction.

        False if it does not wait for that any more: settled before, or forgotten. Raises ValueError if one of its turns
        has moved on; then nothing is changed.
        """

        def work(tx: Transaction) -> bool:
            row = episodes.get(tx.sql, name)
            if row is None or row.episode.state is not EpisodeState.ENDED:
                return False
            for sample, scopes in admitted:
                samples.admit(tx, sample, scopes)
            for turn, reason in dropped:
                lessons.drop(tx, turn, reason)
            tx.sql.execute("UPDATE episodes SET state = ? WHERE id = ?", (EpisodeState.SETTLED.value, plain(name)))
            return True

        return await self._writer.do(work, is_synced=True)

    async def counts(self) -> dict[str, int]:
        """Episodes by state, and by failure class (`failure.CLASS`)."""
        return await self._reader.do(episodes.counts)

    async def wait_ended(self, *, timeout_s: float) -> None:
        """Waits until an episode has ended since the last call, or the time is up."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._ended.wait()
        except TimeoutError:
            return
        self._ended.clear()

    def _observe(self, tx: Transaction, name: str, index: int, shown: tuple[Message, ...], after: str | None) -> bool:
        row = episodes.get(tx.sql, name)
        before = [] if row is None else [one for one in row.steps if one.step.index < index and one.state is not None]
        if after is not None:
            waits = [one for one in before if one.turn == after]
        else:
            waits = [one for one in before if one.step.index == before[-1].step.index]
            if any(one.state not in (State.SERVED, State.DROPPED) for one in waits):
                return False  # one of several answers to that step was followed already
        chosen = next((one for one in reversed(waits) if one.state is State.SERVED), None)
        if chosen is None:
            return False
        followed = NextState(chosen.turn, shown, NextStateSource.ENVIRONMENT)
        return ledger.pair(tx, self._masker.next_state(followed))


def _begin(sql: sqlite3.Connection, episode: Episode) -> EpisodeRow:
    row = episodes.get(sql, episode.id)
    if row is None:
        episodes.insert(sql, episode)
        return EpisodeRow(episode, episode.begun_s)
    held = row.episode
    is_same = (held.user, held.task) == (episode.user, episode.task) and episode.group in (None, held.group)
    if not is_same:
        raise RequestError(
            f"episode {episode.id} exists already: it was begun for task {held.task}, group {held.group}",
            fix="give each episode its own id",
            status=409,
            param="id",
        )
    return row


def _row(sql: sqlite3.Connection, name: str) -> EpisodeRow:
    row = episodes.get(sql, name)
    if row is None:
        raise RequestError(
            f"there is no episode {name}", fix="begin it with POST /v1/rl/episodes", status=404, param="id"
        )
    return row


def _open_row(sql: sqlite3.Connection, name: str) -> EpisodeRow:
    row = _row(sql, name)
    if not row.episode.is_open:
        raise RequestError(f"episode {name} has ended", fix="begin another", status=409, param="id")
    return row


def _ended(tx: Transaction, row: EpisodeRow, end: EpisodeEnd, at_s: float) -> EpisodeRow:
    tx.sql.execute(
        "UPDATE episodes SET state = ?, ended_s = ?, outcome = ?, failure = ?, why = ?, closes = ? WHERE id = ?",
        (
            EpisodeState.ENDED.value,
            at_s,
            end.graded,
            end.failure.value,
            plain(end.why),
            end.closes_group,
            plain(row.episode.id),
        ),
    )
    _judge_steps(tx, row, end)
    return _row(tx.sql, row.episode.id)


def _judge_steps(tx: Transaction, row: EpisodeRow, end: EpisodeEnd) -> None:
    """Each waiting turn of a step becomes JUDGED. Its verdict is the environment's, without a score.

    A step without a next state is followed by the episode's end. Of several answers to one step that applies to the
    newest, and the others are NOT_FOLLOWED, as if it had been continued.
    """
    by_index: dict[int, list[StepRow]] = {}
    for step in row.steps:
        if step.state is not None:
            by_index.setdefault(step.step.index, []).append(step)
    for steps in by_index.values():
        served = [step.turn for step in steps if step.state is State.SERVED]
        has_followed = any(step.state not in (State.SERVED, State.DROPPED) for step in steps)
        last = None if has_followed or not served else served[-1]
        for turn in served:
            if turn != last:
                lessons.drop(tx, turn, DropReason.NOT_FOLLOWED)
        if last is not None:
            shown = (message(Role.USER, end.words),)
            ledger.pair(tx, NextState(last, shown, NextStateSource.ENVIRONMENT))
        for turn in (step.turn for step in steps if step.state is State.PAIRED or step.turn == last):
            ledger.judge(tx, Verdict(turn, None, VerdictSource.ENVIRONMENT))
