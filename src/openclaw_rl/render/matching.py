"""Which blocks of a new conversation are blocks of a served one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class Block:
    """What a block means, and whether a model wrote it."""

    key: str
    is_reply: bool


def matching(old: Sequence[Block], new: Sequence[Block]) -> dict[int, int]:
    """For each new block that the old ones hold, which of them it is; in order, and each at most once.

    Replies are matched first, and all else between them: a client's insert that moves along behind every turn must not
    take a reply's place, for the reply alone has ids that nothing can give back.
    """
    replies = _pairs(
        [(index, block.key) for index, block in enumerate(old) if block.is_reply],
        [(index, block.key) for index, block in enumerate(new) if block.is_reply],
    )
    found = dict(replies)
    edges = [(-1, -1), *sorted(replies), (len(new), len(old))]
    for (new_start, old_start), (new_stop, old_stop) in pairwise(edges):
        found.update(
            _pairs(
                [(index, old[index].key) for index in range(old_start + 1, old_stop) if not old[index].is_reply],
                [(index, new[index].key) for index in range(new_start + 1, new_stop) if not new[index].is_reply],
            )
        )
    return found


def _pairs(old: Sequence[tuple[int, str]], new: Sequence[tuple[int, str]]) -> list[tuple[int, int]]:
    """Pairs (new index, old index) of equal keys, both rising."""
    matcher = SequenceMatcher(None, [key for _, key in old], [key for _, key in new], autojunk=False)
    return [
        (new[match.b + offset][0], old[match.a + offset][0])
        for match in matcher.get_matching_blocks()
        for offset in range(match.size)
    ]
