"""The rules for which judged turns become samples, as functions without I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from openclaw_rl.core.ledger import DropReason
from openclaw_rl.core.message import Role
from openclaw_rl.core.sample import Wants
from openclaw_rl.core.turn import Turn
from openclaw_rl.core.verdict import Verdict
from openclaw_rl.store.rows import JudgedTurn
from openclaw_rl.teach.assemble import free


@dataclass(frozen=True, slots=True)
class Admission:
    """The decision about judged turns. Turns in none of the lists wait."""

    samples: tuple[JudgedTurn, ...] = ()
    promoted: tuple[tuple[JudgedTurn, float], ...] = ()  # each with the reward it is given
    dropped: tuple[tuple[str, DropReason], ...] = ()


def has_signal(turn: Turn, verdict: Verdict, wants: Wants) -> bool:
    """Whether the verdict contains what the method learns from.

    A reply that was sampled with hints is the teacher's. With any method it is learned from if the verdict has a hint,
    or if its score is 0 or +1.
    """
    if turn.carried:
        return bool(verdict.hints) or verdict.score in (0, 1)
    by_score, by_hint = bool(verdict.score), bool(verdict.hints)
    return {Wants.SCORE: by_score, Wants.HINT: by_hint, Wants.EITHER: by_score or by_hint}[wants]


def refusal(
    turn: Turn, verdict: Verdict, *, may_teach: bool, max_tokens: int, weights_learn: bool = True
) -> DropReason | None:
    """Why a turn can never be a sample, whatever else its session contains; None if it can."""
    is_silent = verdict.score is None and not verdict.hints  # no valid vote, unlike a score of 0
    unfit = unfitness(turn, may_teach=may_teach, max_tokens=max_tokens, weights_learn=weights_learn)
    if is_silent and unfit not in (DropReason.MEMORY_ONLY, DropReason.MAY_NOT_TEACH):
        return DropReason.NO_SIGNAL
    return unfit


def unfitness(turn: Turn, *, may_teach: bool, max_tokens: int, weights_learn: bool) -> DropReason | None:
    """Why a turn cannot be a sample, whatever followed it; None if it can."""
    if not weights_learn:
        return DropReason.MEMORY_ONLY
    if not may_teach:
        return DropReason.MAY_NOT_TEACH
    if not any(free(turn.completion)):  # no tokens, or the grammar forced all of them
        return DropReason.EMPTY
    if len(turn.prompt) + len(turn.completion.tokens) > max_tokens:
        return DropReason.TOO_LONG
    return None


def admission(
    rows: Sequence[JudgedTurn],
    wants: Wants,
    *,
    refused: Mapping[str, DropReason],
    contributing: frozenset[str],
    complete: frozenset[str],
) -> Admission:
    """The decision about each row.

    `refused` are turns that can never be samples, and why. `contributing` are the sessions that have a sample already,
    `complete` those that have ended with every turn judged.

    A turn with a signal becomes a sample. A turn without a signal waits until its session contributes, and is then
    dropped; if it was sampled with hints, it is dropped at once. If the session is complete without a sample, its turn
    with the best votes is promoted, so that every session with a judged turn contributes. A turn that becomes a sample
    now may still turn out to teach nothing, so the others of its session wait.

    If only hints are learned from, a promoted turn holds the model where it was. So a corrected one is not promoted,
    and two more replies of a session are: its first one if it calls tools, and the one to its first tool result.
    Otherwise nothing would preserve how tools are used while all else is corrected.
    """
    open_rows = [row for row in rows if row.turn.id not in refused]
    samples = tuple(row for row in open_rows if has_signal(row.turn, row.verdict, wants))
    undecided = {row.turn.session for row in samples} - contributing
    silent = [row for row in open_rows if not has_signal(row.turn, row.verdict, wants)]
    dropped = [(turn, reason) for turn, reason in refused.items()]
    # A reply that was sampled with hints is the teacher's: the policy is not rewarded for it.
    dropped += [(row.turn.id, DropReason.NO_SIGNAL) for row in silent if row.turn.carried]
    silent = [row for row in silent if not row.turn.carried]
    promoted: list[tuple[JudgedTurn, float]] = []
    for session in dict.fromkeys(row.turn.session for row in silent):
        group = [row for row in silent if row.turn.session == session]
        if session in undecided:
            continue
        without_sample = session not in contributing
        if without_sample and session not in complete:
            continue
        chosen = _promoted(group, wants, without_sample=without_sample)
        names = {row.turn.id for row, _ in chosen}
        promoted += chosen
        dropped += [(row.turn.id, DropReason.NO_SIGNAL) for row in group if row.turn.id not in names]
    return Admission(samples, tuple(promoted), tuple(dropped))


def _promoted(group: Sequence[JudgedTurn], wants: Wants, *, without_sample: bool) -> list[tuple[JudgedTurn, float]]:
    """Those of a session's turns that are promoted, and their rewards."""
    if wants is not Wants.HINT:
        best = max(group, key=_votes) if without_sample else None
        return [] if best is None else [(best, _votes(best) if best.verdict.score == 0 else 0.0)]
    # A score that the method does not use is no reward either: these train only the anchor.
    accepted = [row for row in group if row.verdict.score in (0, 1)]
    best = max(accepted, key=_votes, default=None) if without_sample else None
    return [(row, 0.0) for row in accepted if row is best or _shows_tools(row.turn)]


def _shows_tools(turn: Turn) -> bool:
    """Whether a turn opens a session with tool calls, or follows its first tool result."""
    roles = [said.role for said in turn.messages]
    is_first_result = Role.TOOL in roles and Role.ASSISTANT not in roles[roles.index(Role.TOOL) :]
    return is_first_result or (turn.parent is None and bool(turn.reply.tool_calls))


def _votes(row: JudgedTurn) -> float:
    """The mean of a turn's valid votes; if there were none, its score, or 0.0 without a score."""
    if row.verdict.mean is not None:
        return row.verdict.mean
    return float(row.verdict.score or 0)
