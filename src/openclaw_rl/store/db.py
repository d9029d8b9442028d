"""The store: one SQLite file in WAL mode that holds the truth, written by one thread.

Every method returns once its rows are committed. A commit that moves turns wakes whoever waits for that state.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from openclaw_rl.core.ledger import DropReason, State
from openclaw_rl.core.next_state import Feedback, NextState
from openclaw_rl.core.sample import Sample
from openclaw_rl.core.turn import Session, Turn
from openclaw_rl.core.verdict import Verdict
from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.store.rows import Judged, StepRecord, TurnRow, VersionRow, VersionStatus


class Store:
    """The rows of one installation."""

    @classmethod
    async def open(cls, home: Path) -> Store:
        """Opens or makes `home/store.db` and locks the folder.

        Raises StoreError where another process holds the folder, the file is corrupt, or it is newer than this program.
        """
        raise NotImplementedError

    async def aclose(self) -> None:
        """Finishes what is queued, closes the file and frees the folder."""
        raise NotImplementedError

    async def wait(self, state: State, *, timeout_s: float) -> bool:
        """Until some turn has moved into `state` since the last call, or the time is up; False then."""
        raise NotImplementedError

    # -- sessions and turns
    async def see_session(self, session: Session) -> None:
        """Makes the session or notes that it was seen again."""
        raise NotImplementedError

    async def end_session(self, session: str, *, why: str, at_s: float) -> None:
        """The conversation is over; turns still SERVED are dropped as NO_NEXT_STATE. Ending twice is no error."""
        raise NotImplementedError

    async def open_sessions(self, *, seen_before_s: float) -> list[Session]:
        """Sessions not ended and not seen since."""
        raise NotImplementedError

    async def add_turn(self, turn: Turn, *, chain: str, reason: DropReason | None = None) -> None:
        """Enters a turn: a main one as SERVED (or DROPPED with `reason`), a side one without a state.

        `chain` is the digest of the conversation up to and with the reply, under which `turn_by_chain` finds it.
        """
        raise NotImplementedError

    async def turn(self, turn: str) -> Turn | None:
        """The turn of this id."""
        raise NotImplementedError

    async def turn_by_chain(self, chain: str) -> Turn | None:
        """The newest turn whose conversation has this digest."""
        raise NotImplementedError

    async def last_turn(self, session: str) -> Turn | None:
        """The newest main turn of a session."""
        raise NotImplementedError

    async def row(self, turn: str) -> TurnRow | None:
        """The turn with all that is known of it."""
        raise NotImplementedError

    async def rows(
        self, *, limit: int = 50, session: str | None = None, state: State | None = None, before: str | None = None
    ) -> list[TurnRow]:
        """Newest first; `before` is a turn id to page on from."""
        raise NotImplementedError

    # -- the ledger
    async def pair(self, next_state: NextState) -> bool:
        """SERVED to PAIRED; False where the turn had moved on already, and then nothing changes."""
        raise NotImplementedError

    async def paired(self, *, limit: int) -> list[tuple[Turn, NextState, Feedback | None]]:
        """What waits for a judge, oldest first."""
        raise NotImplementedError

    async def judge(self, verdict: Verdict) -> bool:
        """Stores votes and hints; PAIRED to JUDGED. False where the turn was not PAIRED."""
        raise NotImplementedError

    async def judged(self, *, limit: int) -> list[Judged]:
        """What waits to be admitted as a sample, oldest first."""
        raise NotImplementedError

    async def session_has_sample(self, session: str) -> bool:
        """Whether any turn of the session is READY or TRAINED."""
        raise NotImplementedError

    async def admit(self, sample: Sample) -> None:
        """JUDGED to READY, the sample stored."""
        raise NotImplementedError

    async def drop(self, turn: str, reason: DropReason) -> bool:
        """To DROPPED; False where the turn had ended already."""
        raise NotImplementedError

    async def ready(self, *, limit: int) -> list[Sample]:
        """Samples that wait for a step, oldest first."""
        raise NotImplementedError

    async def commit_step(self, step: StepRecord) -> None:
        """In one transaction, synced to disk: samples TRAINED or DROPPED, the step, and its version as CANDIDATE."""
        raise NotImplementedError

    async def add_feedback(self, feedback: Feedback) -> None:
        """Stores it; a turn still SERVED becomes PAIRED when the feedback's words are its next state."""
        raise NotImplementedError

    async def counts(self) -> dict[str, int]:
        """Turns by state, drops by reason (`dropped.REASON`), side turns (`side`), main turns (`main`)."""
        raise NotImplementedError

    # -- versions
    async def settle(self, version: PolicyVersion, status: VersionStatus, why: str, metrics: dict[str, float]) -> None:
        """LIVE or REFUSED with the reason; metrics are added to what the step wrote."""
        raise NotImplementedError

    async def versions(self) -> list[VersionRow]:
        """All of them, oldest first, the base model included."""
        raise NotImplementedError

    async def current(self, scope: str) -> PolicyVersion:
        """What is being served."""
        raise NotImplementedError

    async def set_current(self, version: PolicyVersion, *, why: str) -> None:
        """From now on this version is served; synced to disk."""
        raise NotImplementedError

    async def rewards(self, user: str, *, limit: int) -> Sequence[float]:
        """The scores of the user's latest judged turns, newest first."""
        raise NotImplementedError
