"""Which messages of a new conversation are messages of a served one."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from itertools import pairwise

from openclaw_rl.core.message import Json, Message, Role

_END_THINK = "</think>"
_MOST_EXACT = 2**53  # a client that reads numbers as doubles keeps whole ones up to here


def matching(old: Sequence[Message], new: Sequence[Message]) -> dict[int, int]:
    """For each new message that the old ones hold, which of them it is; in order, and each at most once.

    Replies are matched first, and all else between them: a client's insert that moves along after every turn must not
    take a reply's place, for the reply alone has ids that nothing can give back.
    """
    replies = _pairs(
        [(index, item) for index, item in enumerate(old) if item.role is Role.ASSISTANT],
        [(index, item) for index, item in enumerate(new) if item.role is Role.ASSISTANT],
    )
    found = dict(replies)
    edges = [(-1, -1), *sorted(replies), (len(new), len(old))]
    for (new_start, old_start), (new_stop, old_stop) in pairwise(edges):
        found.update(
            _pairs(
                [(at, old[at]) for at in range(old_start + 1, old_stop) if old[at].role is not Role.ASSISTANT],
                [(at, new[at]) for at in range(new_start + 1, new_stop) if new[at].role is not Role.ASSISTANT],
            )
        )
    return found


def with_served_ids(new: Sequence[Message], served: Sequence[Message | None]) -> list[Message]:
    """The new messages, each reply that was served in the form in which it was, and results under the ids of its calls.

    `served` holds, for each new message, the reply it is; None for all others.
    """
    found: list[Message] = []
    names: dict[str, str] = {}  # a client's id of a call, and the one that was served
    for item, form in zip(new, served, strict=True):
        if form is not None:
            names.update((ours.id, own.id) for ours, own in zip(item.tool_calls, form.tool_calls, strict=True))
            found.append(form)
        elif item.role is Role.TOOL and item.tool_call_id in names:
            found.append(replace(item, tool_call_id=names[item.tool_call_id]))
        else:
            names = {name: own for name, own in names.items() if not any(call.id == name for call in item.tool_calls)}
            found.append(item)
    return found


def _pairs(old: Sequence[tuple[int, Message]], new: Sequence[tuple[int, Message]]) -> list[tuple[int, int]]:
    """Pairs (new index, old index) of messages that mean the same, both rising.

    Where one list begins as the whole of the other, no longer match can be found, and no text is digested to see it.
    """
    if all(_means_the_same(before, after) for (_, before), (_, after) in zip(old, new, strict=False)):
        return [(at, was) for (was, _), (at, _) in zip(old, new, strict=False)]
    matcher = SequenceMatcher(
        None, [key_of(item) for _, item in old], [key_of(item) for _, item in new], autojunk=False
    )
    return [
        (new[match.b + offset][0], old[match.a + offset][0])
        for match in matcher.get_matching_blocks()
        for offset in range(match.size)
    ]


def _means_the_same(before: Message, after: Message) -> bool:
    return before == after or key_of(before) == key_of(after)


def alike(ours: Sequence[int], theirs: Sequence[int]) -> int:
    """How many leading ids both have; halving, since comparing slices is much faster than a loop."""
    ours, theirs = tuple(ours), tuple(theirs)
    low, high = 0, min(len(ours), len(theirs))
    while low < high:
        middle = (low + high + 1) // 2
        if ours[low:middle] == theirs[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def key_of(item: Message) -> str:
    """A digest of what the message says; equal for messages that mean the same.

    Of an assistant's message white space around the text and at the ends of lines, ids of tool calls, the way arguments
    are written (numbers included) and the reasoning do not count: clients change or drop them. All others count to the
    letter, but for the ids of calls.
    """
    written = json.dumps(_meaning(item), ensure_ascii=False, sort_keys=True)
    return hashlib.blake2b(written.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _meaning(item: Message) -> list[Json]:
    if item.role is not Role.ASSISTANT:
        return [item.role.value, item.name, item.as_json()["content"] or ""]
    lines = item.text.rpartition(_END_THINK)[2].strip().splitlines()
    calls: list[Json] = [[call.name, _plain(call.parsed())] for call in item.tool_calls]
    return [item.role.value, "\n".join(line.rstrip() for line in lines), calls]


def _plain(value: Json) -> Json:
    """The value with numbers as a client gives them back that knows only doubles: 1.0 is 1."""
    if isinstance(value, dict):
        return {key: _plain(held) for key, held in value.items()}
    if isinstance(value, list):
        return [_plain(held) for held in value]
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) <= _MOST_EXACT else value
    return value if abs(value) <= _MOST_EXACT else _as_double(value)


def _as_double(value: int) -> Json:
    try:
        return float(value)
    except OverflowError:
        return str(value)
