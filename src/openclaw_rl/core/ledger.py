"""The life of a main turn, as a table of allowed moves."""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """Where a main turn stands."""

    SERVED = "served"
    PAIRED = "paired"  # its next state is known
    JUDGED = "judged"
    READY = "ready"  # a sample, waiting for a step
    TRAINED = "trained"
    DROPPED = "dropped"


class DropReason(StrEnum):
    """Why a main turn taught nothing. A closed list: each is a counter."""

    CUT_BY_LENGTH = "cut_by_length"
    CANCELLED = "cancelled"
    EMPTY = "empty"
    LOOP = "loop"
    CONTROL_TOKEN = "control_token"
    NO_NEXT_STATE = "no_next_state"
    NOT_FOLLOWED = "not_followed"  # a sibling the conversation did not go on from
    NO_SIGNAL = "no_signal"
    UNHEEDED = "unheeded"  # the base model says the same with its hint as without: it cannot be taught by it
    MAY_NOT_TEACH = "may_not_teach"
    REDACTED = "redacted"  # it held something private, so its ids were not kept
    REPEATED = "repeated"  # the same correction, more often than one user may teach it in a day
    TOO_MANY = "too_many"  # more samples than one user may give in a day
    IN_VAIN = "in_vain"  # its user contradicts themselves, and learning from them rests
    MEMORY_ONLY = "memory_only"  # carry = memory: the prompt remembers, the weights are left alone
    LEARNED = "learned"  # sampled behind hints, and said without them as well
    TOO_LONG = "too_long"
    TOO_DEAR = "too_dear"  # set aside: a step over it alone takes too long, or too much memory, on this machine
    STALE = "stale"
    NOT_FINITE = "not_finite"
    NOT_LEARNABLE = "not_learnable"  # what was learned from it was refused again and again, or no step came nearer
    TRAINER_FAILED = "trainer_failed"
    FORGOTTEN = "forgotten"
    DAMAGED = "damaged"  # its text was lost with the disk's bytes; see store/mend/check.py


MOVES: dict[State, frozenset[State]] = {
    State.SERVED: frozenset({State.PAIRED, State.DROPPED}),
    State.PAIRED: frozenset({State.JUDGED, State.DROPPED}),
    State.JUDGED: frozenset({State.READY, State.DROPPED}),
    State.READY: frozenset({State.TRAINED, State.DROPPED}),
    State.TRAINED: frozenset(),
    State.DROPPED: frozenset(),
}
TAKEN_BACK = frozenset({DropReason.TOO_DEAR})  # with these reasons a dropped sample may wait for a step again
# Of a trained turn whose version the gate refused: nothing of what was learned from it is ever served.
MOVES_BACK: frozenset[State] = frozenset({State.READY, State.DROPPED})


def check_move(before: State, after: State, reason: DropReason | None, *, is_refused: bool = False) -> None:
    """Raises ValueError for a move the tables do not allow, or a drop without its reason.

    `is_refused` says that the version made from the turn was refused.
    """
    allowed = MOVES_BACK if is_refused and before is State.TRAINED else MOVES[before]
    if after not in allowed:
        raise ValueError(f"a turn cannot go from {before} to {after}")
    if (after is State.DROPPED) != (reason is not None):
        raise ValueError(f"a move to {after} with reason {reason}")
