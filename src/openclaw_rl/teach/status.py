"""The status of teaching: why judged turns teach nothing, and which users' corrections have no effect."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from openclaw_rl.core.facts import StoreFacts
from openclaw_rl.core.finding import Finding, Level, many
from openclaw_rl.core.ledger import WHAT_TO_DO, DropReason

SHOWN = 100  # characters of a hint
ENOUGH = 10  # turns that are needed before anything is concluded from them
VERSIONS = 5  # versions and corrections without effect, together, before the effect of training is examined
FEWER = 0.5  # if learning works, later corrections are at most this share of the earlier ones
OFTEN = 0.3  # share of corrected replies from which on a user corrects often
HARMLESS = frozenset({DropReason.LEARNED, DropReason.FORGOTTEN, DropReason.NOT_FOLLOWED, DropReason.CONTROL_TOKEN})


@dataclass(frozen=True, slots=True)
class TeachStatus:
    """The status of teaching, for people. `is_resting` if nothing that waits can be decided now."""

    looking_at: int = 0  # judged turns that are being examined
    is_resting: bool = True

    @property
    def doing(self) -> str:
        """What is being done, in words; empty if nothing is."""
        return f"looking at {many(self.looking_at, 'judged turn')}" if self.looking_at else ""


def teach_findings(facts: StoreFacts, costly: Sequence[tuple[str, int, int]] = ()) -> Iterator[Finding]:
    """Which turns teach nothing and why, users with corrections that have no effect, and hints that cost right answers.

    `costly` are these hints: each with how many replies with it contradict the one without, and how many were checked.
    """
    yield from _dropped(facts)
    yield from _in_vain(facts)
    for hint, contrary, checked in costly:
        yield Finding(
            Level.NOTE,
            "learn",
            f"with the hint {hint[:SHOWN]!r} the base model says something else than without it in {contrary} of "
            f"{checked} replies: this wish may cost right answers",
            "such replies are replaced before they are learned from, which does not find every mistake: check answers "
            "(`openclaw-rl diff`), reword the wish (`openclaw-rl hints edit`), or use a model that can do both",
        )


def _dropped(facts: StoreFacts) -> Iterator[Finding]:
    dropped, main = facts.count("dropped"), facts.count("main")
    reasons = {name[8:]: count for name, count in facts.counts.items() if name.startswith("dropped.") and count}
    if not reasons:
        return
    ordered = sorted(reasons.items(), key=lambda item: -item[1])
    reasons_in_words = ", ".join(f"{count} {name}" for name, count in ordered)
    harmful = [(name, count) for name, count in ordered if name not in HARMLESS]
    is_most = main >= ENOUGH and sum(count for _, count in harmful) * 2 > main and not facts.count("trained")
    fix = WHAT_TO_DO.get(harmful[0][0], "") if harmful else ""
    what = f"{dropped} of {many(main, 'main turn')} dropped: {reasons_in_words}"
    yield Finding(Level.MEND if is_most else Level.NOTE, "teach", what, fix)


def _in_vain(facts: StoreFacts) -> Iterator[Finding]:
    """Users who correct about as often as before, although versions were made meanwhile or hints had no effect."""
    unheeded = facts.count(f"dropped.{DropReason.UNHEEDED}")
    if facts.seen.versions + unheeded < VERSIONS:
        return
    tried = f"{many(facts.seen.versions, 'version')} made"
    tried += f" and {many(unheeded, 'correction')} that changed nothing" if unheeded else ""
    for one in facts.seen.contentment:
        if one.judged < ENOUGH or one.later < OFTEN * one.judged or one.later <= FEWER * one.earlier:
            continue
        yield Finding(
            Level.MEND,
            "learn",
            f"{one.user} corrected {one.later} of the last {one.judged} replies and {one.earlier} of the {one.judged} "
            f"before, over {tried}: training has no effect for this user",
            "check what was asked for (`openclaw-rl hints list`, `openclaw-rl turns`): wishes that contradict each "
            "other cannot be learned, and a wrong judge teaches at random. `openclaw-rl rollback` returns "
            "to an earlier version",
        )
