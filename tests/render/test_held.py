"""What rendering holds in memory: bounded by how many things there are, and by their size together."""

from __future__ import annotations

from openclaw_rl.render.held import BoundedCache


def test_what_was_not_used_for_longest_gives_way() -> None:
    held: BoundedCache[str, int] = BoundedCache(most=2, most_size=100)
    held.put("a", 1, size=1)
    held.put("b", 2, size=1)
    assert held.get("a") == 1
    held.put("c", 3, size=1)
    assert (held.get("a"), held.get("b"), held.get("c")) == (1, None, 3)


def test_large_things_give_way_by_their_size() -> None:
    held: BoundedCache[str, int] = BoundedCache(most=100, most_size=10)
    for name in "abc":
        held.put(name, 0, size=4)  # 4 + 4 fit, 4 more do not
    assert ([held.get(name) for name in "abc"], held.size) == ([None, 0, 0], 8)
    held.put("huge", 0, size=11)  # it would leave room for nothing else, and is not held either
    assert (held.get("huge"), held.get("c"), held.size) == (None, 0, 8)
    held.put("c", 1, size=6)  # in place of what was there
    assert (held.get("b"), held.get("c"), held.size) == (0, 1, 10)
    held.put("b", 2, size=11)  # what is not held any more is not found as it was
    assert (held.get("b"), held.size, len(held)) == (None, 6, 1)
