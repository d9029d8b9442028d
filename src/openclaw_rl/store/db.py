"""The store: one SQLite file in WAL mode, the only source of truth, written by one thread.

Every method returns once its rows are committed. A commit that moves turns wakes the waiter for that state.
Committed rows outlive the process; `commit_step`, `settle` and `set_current` return once they are on the disk too.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

from openclaw_rl.core.event import Listener, nobody
from openclaw_rl.core.facts import Overview
from openclaw_rl.core.hint import Hint
from openclaw_rl.core.ledger import DropReason, State
from openclaw_rl.core.masked import Private
from openclaw_rl.core.message import Message
from openclaw_rl.core.next_state import Feedback, NextState
from openclaw_rl.core.sample import Sample
from openclaw_rl.core.turn import Session, Turn
from openclaw_rl.core.verdict import Verdict
from openclaw_rl.core.version import SHARED, PolicyVersion
from openclaw_rl.store import connection
from openclaw_rl.store.exports import ExportBook
from openclaw_rl.store.forget.book import ForgettingBook
from openclaw_rl.store.forget.erase import erase_older
from openclaw_rl.store.lock import FolderLock, check_free
from openclaw_rl.store.pictures import DEFAULT_BYTES, PictureBook
from openclaw_rl.store.redact.masker import LongTexts, Masker, long_texts
from openclaw_rl.store.rows import JudgedTurn, StepRecord, TurnRow, VersionRow, VersionStatus
from openclaw_rl.store.tables import hints, ledger, lessons, listing, samples, sessions, spent, turns, versions
from openclaw_rl.store.tables.effects import EffectBook
from openclaw_rl.store.tables.episode_book import EpisodeBook
from openclaw_rl.store.tables.hints import HintBook
from openclaw_rl.store.tables.keeping import KeepingBook
from openclaw_rl.store.tables.lessons import RefusalBook, StepBook
from openclaw_rl.store.tables.order_book import OrderBook
from openclaw_rl.store.tables.overrules import OverruleBook
from openclaw_rl.store.tables.overview import overview
from openclaw_rl.store.tables.seen import SeenBook
from openclaw_rl.store.tables.sessions import SessionStatus, standing
from openclaw_rl.store.tables.telling import TellingBook
from openclaw_rl.store.tables.turns import ServedTurn
from openclaw_rl.store.tables.unmeant import UnmeantBook
from openclaw_rl.store.threads import Reader, Transaction, Writer

log = logging.getLogger(__name__)
Row = TypeVar("Row")


class Store:
    """The rows of one installation; `hints` are users', `episodes` attempts at tasks, `forgettings` what was erased on
    request, `orders` the owner's standing ones, `overrules` their verdicts, `effects` the effects of versions,
    `exports` records written to files, `seen` what the page shows, `keeping` which weights are kept, `refusals` the
    samples that refused versions returned, `unmeant` hints that were misheard or replaced, `telling` requests that
    showed damage, `pictures` screenshots of episodes.
    """

    @classmethod
    async def open(
        cls, home: Path, *, masker: Masker | None = None,
        picture_bytes: int = DEFAULT_BYTES, listener: Listener = nobody,
    ) -> Store:  # fmt: skip
        """Opens or makes `home/store.db` and locks the folder. What `masker` finds never reaches the disk; `listener`
        is called on the loop with the committed events, and must return at once.

        Raises StoreError if another process uses the folder, the file is corrupt, or it is newer than this program.
        """
        lock = await asyncio.to_thread(FolderLock, home)
        try:
            writing = await asyncio.to_thread(versions.opened, home / connection.NAME)
            reading = connection.open_reader(home / connection.NAME)
        except BaseException:
            lock.free()
            raise
        kept = masker or Masker(())
        return cls(home, lock, writing, reading, kept, picture_bytes=picture_bytes, listener=listener)

    @classmethod
    async def open_to_read(cls, home: Path) -> Store:
        """The store of a folder that cannot be written: nothing is locked or made. Raises StoreError."""
        await asyncio.to_thread(check_free, home)
        reading = await asyncio.to_thread(connection.open_read_only, home / connection.NAME)
        return cls(home, None, connection.open_to_look(home / connection.NAME), reading, Masker(()))

    def __init__(
        self, home: Path, lock: FolderLock | None, writing: sqlite3.Connection, reading: sqlite3.Connection,
        masker: Masker, *, picture_bytes: int = DEFAULT_BYTES, listener: Listener = nobody,
    ) -> None:  # fmt: skip
        self._lock = lock  # None if nothing can be written
        self._masker = masker
        self._long_texts = LongTexts(masker)
        self._moved = {state: asyncio.Event() for state in State}
        self._writer = Writer(writing, self._wake, listener)
        self._reader = Reader(reading)
        self.hints = HintBook(self._writer, self._reader)
        self.exports = ExportBook(self._writer, home / connection.NAME, is_alone=lock is None)
        self.forgettings = ForgettingBook(self._writer, self._reader, self.hints, self.exports)
        self.orders = OrderBook(self._writer, self._reader)
        self.effects = EffectBook(self._reader)
        self.keeping = KeepingBook(self._writer, self._reader)
        self.steps = StepBook(self._writer, self._reader)
        self.refusals = RefusalBook(self._writer, self._reader)
        self.episodes = EpisodeBook(self._writer, self._reader, masker)
        self.overrules = OverruleBook(self.hints, self._reader)
        self.seen = SeenBook(self._reader, self._writer)
        self.unmeant = UnmeantBook(self._writer, self._reader)
        self.telling = TellingBook(self._writer, self._reader)
        self.pictures = PictureBook(home, self._writer, self._reader, most_bytes=picture_bytes)
        self._is_closed = False

    @property
    def masked(self) -> Mapping[Private, int]:
        """What was masked since the store was opened, by kind."""
        return self._masker.counted

    async def aclose(self) -> None:
        """Finishes what is queued, closes the file and frees the folder."""
        await self._long_texts.settled()
        if self._is_closed:
            return
        self._is_closed = True
        await asyncio.to_thread(self._reader.close)
        await asyncio.to_thread(self._writer.close)
        if self._lock is not None:
            self._lock.free()

    async def wait(self, state: State, *, timeout_s: float) -> bool:
        """Waits until a turn has moved into `state` since the last call; False if the time is up first.

        Only one waiter for each state: a move that one has seen is not reported to another.
        """
        event = self._moved[state]
        try:
            async with asyncio.timeout(timeout_s):
                await event.wait()
        except TimeoutError:
            return False
        event.clear()
        return True

    @property
    def waiting(self) -> dict[str, int]:
        """How many writes and reads are queued."""
        return {"store_writes_waiting": self._writer.waiting, "store_reads_waiting": self._reader.waiting}

    # -- sessions and turns
    async def see_session(self, session: Session) -> None:
        """Makes the session or records that it was seen again."""
        await self._writer.do(lambda tx: sessions.see(tx.sql, session))

    async def end_session(self, session: str, *, why: str, at_s: float) -> None:
        """The conversation is over; no turn of it stays SERVED. Ending twice is not an error.

        A turn with a thumb up or down is paired with it; siblings of a continued turn are dropped as NOT_FOLLOWED, the
        others as NO_NEXT_STATE.
        """
        await self._long_texts.settled()  # the last words of the session may be among them
        await self._writer.do(lambda tx: sessions.end(tx, session, why=why, at_s=at_s))

    async def open_sessions(self, *, seen_before_s: float) -> list[Session]:
        """Sessions not ended and not seen since."""
        return await self._reader.do(lambda sql: sessions.open_ones(sql, seen_before_s))

    async def add_turn(
        self, turn: Turn, *, chain: str, reason: DropReason | None = None, prefix: str = "", seen_s: float | None = None
    ) -> bool:
        """Enters a turn: a main one as SERVED (or DROPPED with `reason`), a side one without a state.

        False if it belongs to something that was forgotten while it was being answered: then nothing is entered.

        `chain` is the digest of the conversation including the reply, under which `served` finds it; `prefix` is
        that of the request, which siblings share. The turn's session is made or seen again at `seen_s`.
        """
        seen = Session(turn.session, turn.user, turn.agent, turn.at_s, turn.at_s if seen_s is None else seen_s)

        def work(tx: Transaction) -> bool:
            if self.forgettings.holds(turn) or self.episodes.is_gone(tx.sql, turn.step):
                return False
            sessions.see(tx.sql, seen)
            kept, why = self._masker.turn(turn), reason
            if kept is not turn and turn.is_main and reason is None:
                why = DropReason.REDACTED
            state = turns.insert(tx.sql, kept, chain=chain, prefix=prefix, reason=why)
            tx.events.append(turns.stored(kept))
            if state is not None:
                tx.moved.add(state)
            return True

        return await self._written(turn.messages, work)

    async def turn(self, turn: str) -> Turn | None:
        """The turn of this id."""
        return await self._reader.do(lambda sql: turns.get(sql, turn))

    async def served(self, chains: Sequence[str], *, session: str | None = None) -> list[ServedTurn]:
        """The latest turns whose conversations have these digests, in this session or in any, oldest first."""
        return await self._reader.do(lambda sql: turns.served(sql, chains, session))

    async def standing(self, session: str, *, prefix: str, family: str | None = None, limit: int = 8) -> SessionStatus:
        """The status of the session of a request that does not continue from any of its turns."""
        return await self._reader.do(lambda sql: standing(sql, session, prefix, family, limit))

    async def last_turn(self, session: str) -> Turn | None:
        """The newest main turn of a session."""
        return await self._reader.do(lambda sql: turns.last_of(sql, session))

    async def row(self, turn: str) -> TurnRow | None:
        """The turn with all its rows."""
        return await self._reader.do(lambda sql: listing.row(sql, turn))

    async def rows(
        self, *, limit: int = 50, session: str | None = None, state: State | None = None,
        before: str | None = None, scope: str | None = None, are_steps: bool | None = None,
    ) -> list[TurnRow]:  # fmt: skip
        """As `listing.newest`."""
        asked = partial(listing.newest, limit=limit, session=session, state=state, before=before, scope=scope)
        return await self._reader.do(lambda sql: asked(sql, are_steps=are_steps))

    async def history(
        self, *, limit: int = 50, session: str | None = None, user: str | None = None, after: str | None = None
    ) -> list[TurnRow]:
        """Oldest first; `after` is a turn id to page on from."""
        return await self._reader.do(
            lambda sql: listing.oldest(sql, limit=limit, session=session, user=user, after=after)
        )

    # -- the ledger
    async def pair(self, next_state: NextState) -> bool:
        """SERVED to PAIRED; False if the turn had moved on already, and then nothing changes."""
        return await self.begin_pair(next_state)

    def begin_pair(self, next_state: NextState) -> asyncio.Future[bool]:
        """As `pair`, without waiting: it is written before the turn of the same request, and before a session ends."""
        return self._written(next_state.messages, lambda tx: ledger.pair(tx, self._masker.next_state(next_state)))

    async def paired(
        self, *, limit: int, failed: Mapping[str, int] = MappingProxyType({})
    ) -> list[tuple[Turn, NextState, Feedback | None]]:
        """The pairs that wait for a judge, oldest first; those that failed, by their number of times, come last."""
        return await self._sound(lambda sql: ledger.paired(sql, limit, failed))

    async def judge(self, verdict: Verdict, *, keep: Hint | None = None) -> bool:
        """Stores votes and hints; PAIRED to JUDGED. False if the turn was not PAIRED.

        `keep` is the hint to keep for the turn's user from now on, in the same transaction.
        """
        if keep is None:
            return await self._writer.do(lambda tx: ledger.judge(tx, verdict))

        def work(tx: Transaction) -> bool:
            if not ledger.judge(tx, verdict):
                return False
            hints.adopt_from(tx.sql, verdict.turn, keep, at_s=time.time())
            return True

        return await self.hints.changing(work)

    async def spend_judge_call(self, day: int, limit: int) -> bool:
        """Counts one more call of the judge on this day (UTC, counted from 1970); False if the limit is used up."""
        return await self._writer.do(lambda tx: spent.spend(tx.sql, day, limit))

    async def judge_calls(self, day: int) -> int:
        """The judge's calls of this day, if they are limited."""
        return await self._reader.do(lambda sql: spent.calls_on(sql, day))

    async def judged(self, *, limit: int, looked: int = 0) -> list[JudgedTurn]:
        """Turns that wait to be admitted as samples, in the order of judging.

        Of those judged up to `looked`, only the ones that need not wait for their session any more.
        """
        return await self._sound(lambda sql: listing.judged(sql, limit, looked))

    async def session_has_sample(self, session: str) -> bool:
        """Whether any turn of the session is READY or TRAINED."""
        return await self._reader.do(lambda sql: listing.session_has_sample(sql, session))

    async def admit(self, sample: Sample, *, scopes: Sequence[str] = (SHARED,)) -> None:
        """JUDGED to READY, the sample stored; it will train each of these scopes once."""
        await self._writer.do(lambda tx: samples.admit(tx, sample, scopes))

    async def drop(self, turn: str, reason: DropReason, *, scope: str | None = None) -> bool:
        """To DROPPED; False if the turn had ended already. With `scope`, other scopes may still learn from it.

        A turn that any scope has learned from becomes TRAINED, not DROPPED, when no other waits for it any more.
        """
        return await self._writer.do(lambda tx: lessons.drop(tx, turn, reason, scope=scope))

    async def ready(self, *, limit: int, scope: str = SHARED) -> list[Sample]:
        """Samples that wait for a step of this scope, oldest first."""
        return await self._sound(lambda sql: samples.ready(sql, limit, scope))

    async def has_several_teachers(self) -> bool:
        """Whether turns of more than one user were ever judged."""
        return await self._reader.do(ledger.has_several_users)

    async def waits_for(self, turns: Sequence[str], scope: str) -> bool:
        """Whether the scope has yet to learn from every one of these turns."""
        return await self._reader.do(lambda sql: lessons.all_wait(sql, turns, scope))

    async def waiting_scopes(self) -> list[str]:
        """The scopes that samples wait for, the one with the oldest sample first."""
        return await self._reader.do(lessons.waiting_scopes)

    async def rehearsed(self, *, scope: str, most: int) -> list[tuple[Sample, float]]:
        """The rehearsal samples of this scope's steps and when they were sampled, the newest `most` of each kind."""
        return await self._reader.do(lambda sql: samples.rehearsed(sql, scope, most))

    async def commit_step(self, step: StepRecord) -> None:
        """In one transaction, synced to disk: its samples settled, the step, and its version as CANDIDATE."""
        await self._writer.do(lambda tx: samples.commit_step(tx, step), is_synced=True)

    async def add_feedback(self, feedback: Feedback) -> None:
        """Stores it; if it has words, they are the next state of a turn still SERVED, which becomes PAIRED."""
        await self._writer.do(lambda tx: ledger.add_feedback(tx, self._masker.feedback(feedback)))

    async def counts(self) -> dict[str, int]:
        """Turns by state, drops by reason (`dropped.REASON`), side turns (`side`), main turns (`main`)."""
        return await self._reader.do(ledger.counts)

    async def overview(self) -> Overview:
        """An overview of the newest turns, verdicts and versions."""
        return await self._reader.do(overview)

    async def erase_older(self, before_s: float) -> int:
        """Erases some settled turns older than this; returns how many. Call it until it returns 0."""
        return await self._writer.do(lambda tx: erase_older(tx.sql, before_s))

    # -- versions
    async def settle(self, version: PolicyVersion, status: VersionStatus, why: str, metrics: dict[str, float]) -> None:
        """LIVE or REFUSED with the reason; metrics are added to what the step wrote."""
        await self._writer.do(lambda tx: versions.decide(tx, version, status, why, metrics), is_synced=True)

    async def versions(self) -> list[VersionRow]:
        """All of them, oldest first, the base model included."""
        return await self._reader.do(versions.everything)

    async def candidates(self) -> list[VersionRow]:
        """The versions that wait at the gate, oldest first."""
        return await self._reader.do(versions.candidates)

    async def newest_live(self, upto: PolicyVersion, *, most: int) -> list[PolicyVersion]:
        """The newest versions of a scope that have been live, up to this one; at most this many."""
        return await self._reader.do(lambda sql: versions.newest_live(sql, upto, most))

    async def last_number(self, scope: str) -> int:
        """The highest number of a scope's versions; 0 if there is none."""
        return await self._reader.do(lambda sql: versions.last_number(sql, scope))

    async def line(self, version: PolicyVersion, *, most: int) -> list[VersionRow]:
        """A version and those it was made from, newest first, at most this many."""
        return await self._reader.do(lambda sql: versions.line(sql, version, most))

    async def versions_of(self, scope: str) -> list[VersionRow]:
        """Those of one scope, by number."""
        return await self._reader.do(lambda sql: versions.of_scope(sql, scope))

    async def version(self, version: PolicyVersion) -> VersionRow | None:
        """This one's row."""
        return await self._reader.do(lambda sql: versions.get(sql, version))

    async def current(self, scope: str) -> PolicyVersion:
        """The version being served."""
        return await self._reader.do(lambda sql: versions.current(sql, scope))

    async def set_current(self, version: PolicyVersion, *, why: str) -> None:
        """From now on this version is served; synced to disk."""
        await self._writer.do(lambda tx: versions.serve(tx, version, why), is_synced=True)

    async def rewards(self, user: str, *, limit: int) -> Sequence[float]:
        """The scores of the user's latest judged turns, newest first."""
        return await self._reader.do(lambda sql: ledger.rewards(sql, user, limit))

    async def _sound(self, read: Callable[[sqlite3.Connection], tuple[list[Row], list[str]]]) -> list[Row]:
        """The rows that were read. Turns whose bytes have changed are dropped, so that no other has to wait for
        them."""
        found, damaged = await self._reader.do(read)
        for turn in damaged:
            log.error("dropped turn=%s reason=damaged; `openclaw-rl check` tells what else is", turn)
            await self.drop(turn, DropReason.DAMAGED)
        return found

    def _written(self, messages: Sequence[Message], work: Callable[[Transaction], bool]) -> asyncio.Future[bool]:
        """The work of the writing thread; long texts are searched before it, in another thread."""
        texts = long_texts(messages)
        if not texts:
            return self._writer.begin(work)
        return self._long_texts.written(texts, lambda: self._writer.begin(work))

    def _wake(self, moved: set[State]) -> None:
        for state in moved:
            self._moved[state].set()
