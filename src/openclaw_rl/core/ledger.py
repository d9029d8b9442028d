"""The life of a main turn, as a table of allowed moves."""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """The state of a main turn."""

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
    NOT_FOLLOWED = "not_followed"  # the conversation continued from a sibling
    NO_SIGNAL = "no_signal"
    UNHEEDED = "unheeded"  # with its hint the base model replies as without it, or with other results: it cannot teach
    MISHEARD = "misheard"  # its user accepted a reply that its hint does not explain, or none that follows it
    MAY_NOT_TEACH = "may_not_teach"
    REDACTED = "redacted"  # it contained something private, so its ids were not kept
    SAID_BEFORE = "said_before"  # its user said the same just before, and that is learned from
    REPEATED = "repeated"  # the same correction, more often than one user may teach it in a day
    TOO_MANY = "too_many"  # more samples than one user may give in a day
    IN_VAIN = "in_vain"  # its user contradicts themselves, so learning from them pauses
    MEMORY_ONLY = "memory_only"  # carry = memory: hints are used in the prompt, weights are not trained
    LEARNED = "learned"  # sampled given hints, and replied the same without them
    NO_SPREAD = "no_spread"  # a step of an episode; all compared steps had the same reward
    ENVIRONMENT_FAILED = "environment_failed"  # its episode's task or grader is broken: no reward
    INFRASTRUCTURE_FAILED = "infrastructure_failed"  # a machine failed its episode, not the policy: no reward
    TOO_LONG = "too_long"
    TOO_DEAR = "too_dear"  # set aside: a step over it alone takes too much time or memory on this machine
    STALE = "stale"
    NOT_FINITE = "not_finite"
    NOT_LEARNABLE = "not_learnable"  # versions made from it were refused repeatedly, or no step came nearer
    TRAINER_FAILED = "trainer_failed"
    EXCLUDED = "excluded"  # excluded from learning by its owner
    FORGOTTEN = "forgotten"
    DAMAGED = "damaged"  # its text was damaged on disk; see store/mend/check.py


MOVES: dict[State, frozenset[State]] = {
    State.SERVED: frozenset({State.PAIRED, State.DROPPED}),
    State.PAIRED: frozenset({State.JUDGED, State.DROPPED}),
    State.JUDGED: frozenset({State.READY, State.DROPPED}),
    State.READY: frozenset({State.TRAINED, State.DROPPED}),
    State.TRAINED: frozenset(),
    State.DROPPED: frozenset(),
}
TAKEN_BACK = frozenset({DropReason.TOO_DEAR})  # a sample dropped for these reasons may wait for a step again
# For a trained turn whose version the gate refused: what was learned from it is never served.
MOVES_BACK: frozenset[State] = frozenset({State.READY, State.DROPPED})


# The states in which an owner may judge a turn again; it is then JUDGED, as if by the judge.
OVERRULED: frozenset[State] = frozenset({State.SERVED, State.PAIRED, State.JUDGED, State.READY, State.DROPPED})
# A dropped turn is judged again only if it was dropped for what followed it or was said of it, not for its form.
OVERRULED_DROPS = frozenset(
    {
        DropReason.NO_SIGNAL,
        DropReason.NO_NEXT_STATE,
        DropReason.NOT_FOLLOWED,
        DropReason.UNHEEDED,  # with that hint; another may teach it
        DropReason.MISHEARD,
        DropReason.EXCLUDED,
    }
)


def check_move(before: State, after: State, reason: DropReason | None, *, is_refused: bool = False) -> None:
    """Raises ValueError for a move the tables do not allow, or a drop without its reason.

    `is_refused` says that the version made from the turn was refused.
    """
    allowed = MOVES_BACK if is_refused and before is State.TRAINED else MOVES[before]
    if after not in allowed:
        raise ValueError(f"a turn cannot go from {before} to {after}")
    if (after is State.DROPPED) != (reason is not None):
        raise ValueError(f"a move to {after} with reason {reason}")


# What an owner can do if turns are dropped for a reason.
WHAT_TO_DO: dict[str, str] = {
    DropReason.CUT_BY_LENGTH: "let clients ask for longer answers (max_tokens)",
    DropReason.CANCELLED: "check why clients give up before an answer ends: their timeouts, or a slow engine",
    DropReason.EMPTY: "check whether the model and its chat template fit together",
    DropReason.LOOP: "raise the temperature, or go back a version with `openclaw-rl rollback`",
    DropReason.CONTROL_TOKEN: "nothing, if most requests need no answer; collect.control_tokens names these words",
    DropReason.NO_NEXT_STATE: "have clients send the conversation along, or POST /v1/feedback",
    DropReason.NOT_FOLLOWED: "nothing: the conversation continued from another answer to the same request",
    DropReason.NO_SIGNAL: "nothing, if users are content; else check what the judge votes: `openclaw-rl turns`",
    DropReason.NO_SPREAD: "use tasks that the model solves sometimes, larger groups, or give steps scores",
    DropReason.ENVIRONMENT_FAILED: "`openclaw-rl inspect --episodes` says why; fix the task or its grader",
    DropReason.INFRASTRUCTURE_FAILED: "`openclaw-rl inspect --episodes` says why; run these attempts again",
    DropReason.UNHEEDED: "if the hints (`openclaw-rl turns`) say what users meant, use a model that follows them",
    DropReason.MISHEARD: "nothing, if that is right; else judge the correction by hand on the page, with its hint",
    DropReason.MAY_NOT_TEACH: "nothing, if that is intended; else give their keys the scope teach",
    DropReason.REDACTED: "keep secrets out of conversations; store.redact says what counts as one",
    DropReason.SAID_BEFORE: "nothing: the correction before it is learned from",
    DropReason.REPEATED: "check who repeats one correction so often, or raise teach.same_words_a_day",
    DropReason.TOO_MANY: "check who sends so much, or raise teach.user_samples_a_day",
    DropReason.IN_VAIN: "check whether what is asked for contradicts itself, or the judge errs; teach.in_vain_turns",
    DropReason.MEMORY_ONLY: "with carry = memory, set it to weights or bridge, if the weights are to learn too; else "
    "nothing: they could not learn what was in the prompt",
    DropReason.LEARNED: "nothing: the model gives this reply without its hints as well",
    DropReason.TOO_LONG: "raise train.max_sample_tokens, if memory and the model's context allow it",
    DropReason.TOO_DEAR: "raise trainer.timeout_s or trainer.threads, or train on a GPU, and start the server again: "
    "they wait for a step then; or lower train.max_sample_tokens to leave such turns out",
    DropReason.STALE: "raise train.max_lag, or lower train.batch_size so that samples wait less",
    DropReason.NOT_FINITE: "lower trainer.lr, or train in float32",
    DropReason.NOT_LEARNABLE: "`openclaw-rl versions` says why, `openclaw-rl turns` shows what was asked for; lower "
    "trainer.lr, or use another model. A wish that is given up again and again is put into prompts",
    DropReason.EXCLUDED: "nothing: it was left out by hand; judge it by hand on the page to take it back",
    DropReason.DAMAGED: "check the disk, and run `openclaw-rl check`",
    DropReason.TRAINER_FAILED: "see the server's log for why the trainer failed",
}
