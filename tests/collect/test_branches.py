"""Messages that were answered and then left out of their conversation."""

from __future__ import annotations

from openclaw_rl.collect.digests import MOST_AFTER, Branches
from openclaw_rl.testing.turns import a_turn


def test_what_is_asked_anew_without_end_from_one_turn_takes_a_bounded_room() -> None:
    known = Branches()
    for number in range(10 * MOST_AFTER):
        known.enter(a_turn(f"asked-{number}", parent="first"), (f"digest-{number}",))
    known.goes_on(f"asked-{10 * MOST_AFTER - 1}")
    # all the newest but the one that was gone on from were left out; the oldest are not known any more
    abandoned = [number for number in range(10 * MOST_AFTER) if known.is_abandoned(f"digest-{number}")]
    assert abandoned == list(range(9 * MOST_AFTER, 10 * MOST_AFTER - 1))
