"""Which messages of a new conversation are messages of a served one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from itertools import pairwise

from openclaw_rl.core.message import Message, Role
from openclaw_rl.render.meaning import key_of


def matching(old: Sequence[Message], new: Sequence[Message]) -> dict[int, int]:
    """For each new message that the old ones hold, which of them it is; in order, and each at most once.

    Replies are matched first, and all else between them: a client's insert that moves along behind every turn must not
    take a reply's place, for the reply alone has ids that nothing can give back.
    """
    old_keys, new_keys = [key_of(item) for item in old], [key_of(item) for item in new]
    replies = _pairs(
        [(index, old_keys[index]) for index in range(len(old)) if old[index].role is Role.ASSISTANT],
        [(index, new_keys[index]) for index in range(len(new)) if new[index].role is Role.ASSISTANT],
    )
    found = dict(replies)
    edges = [(-1, -1), *sorted(replies), (len(new), len(old))]
    for (new_start, old_start), (new_stop, old_stop) in pairwise(edges):
        found.update(
            _pairs(
                [(at, old_keys[at]) for at in range(old_start + 1, old_stop) if old[at].role is not Role.ASSISTANT],
                [(at, new_keys[at]) for at in range(new_start + 1, new_stop) if new[at].role is not Role.ASSISTANT],
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


def _pairs(old: Sequence[tuple[int, str]], new: Sequence[tuple[int, str]]) -> list[tuple[int, int]]:
    """Pairs (new index, old index) of equal keys, both rising."""
    matcher = SequenceMatcher(None, [key for _, key in old], [key for _, key in new], autojunk=False)
    return [
        (new[match.b + offset][0], old[match.a + offset][0])
        for match in matcher.get_matching_blocks()
        for offset in range(match.size)
    ]
