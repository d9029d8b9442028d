"""What is kept of late: within a number, within a sum of characters."""

from __future__ import annotations

from openclaw_rl.engines.local.recent import Recent


def test_what_was_unused_for_longest_goes() -> None:
    recent: Recent[int] = Recent(most=2, most_chars=100)
    for text, value in (("a", 1), ("b", 2)):
        recent.put(text, value)
    assert recent.get("a") == 1  # a use of it
    assert "b" in recent  # none
    recent.put("c", 3)
    assert (recent.get("a"), recent.get("b"), recent.get("c"), len(recent)) == (1, None, 3, 2)


def test_long_texts_push_others_out_and_the_newest_stays_however_long() -> None:
    recent: Recent[int] = Recent(most=9, most_chars=10)
    recent.put("a" * 6, 1)
    recent.put("b" * 4, 2)
    assert (len(recent), recent.chars) == (2, 10)
    recent.put("b" * 4, 3)  # again: counted once
    assert (recent.get("b" * 4), recent.chars) == (3, 10)
    recent.put("c", 4)
    assert (recent.get("a" * 6), recent.chars) == (None, 5)
    recent.put("d" * 50, 5)
    assert (len(recent), recent.get("d" * 50), recent.chars) == (1, 5, 50)
