"""A new conversation that continues a served turn: which blocks keep their ids, and whether that is safe."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from itertools import pairwise
from typing import Literal, Protocol

from openclaw_rl.core.completion import Finish
from openclaw_rl.core.hashing import hashed
from openclaw_rl.core.message import Json, Message, Role, Tool
from openclaw_rl.core.prompt import Segment
from openclaw_rl.core.turn import Turn
from openclaw_rl.render.encoding import TokenBytes
from openclaw_rl.render.shape import BlockKey, PromptBlock, RenderedBlocks, Run, TemplateShape, read_key

_EMPTY_THINK = re.compile(r"(?:<think>|\[THINK\])\s*(?:(?:</think>|\[/THINK\])\s*)?\Z")
REWRITTEN: Literal["rewritten"] = "rewritten"
_END_THINK = "</think>"
_MOST_EXACT = 2**53  # a client that reads numbers as doubles keeps whole ones up to here


class BlockRenderer(Protocol):
    """What is needed from a renderer."""

    table: TokenBytes
    shape: TemplateShape | None

    def cut(
        self, messages: Sequence[Message], tools: Sequence[Tool], options: Mapping[str, Json] | None
    ) -> RenderedBlocks | None: ...

    def form_of(self, key: str, tokens: Sequence[int], tools: Sequence[Tool]) -> Message | None: ...

    def ids_of(self, text: str, after: str) -> tuple[int, ...]: ...

    def kept_ids(self, text: str, after: str) -> tuple[int, ...]: ...

    def is_of(self, block: PromptBlock, digest: str) -> bool: ...


@dataclass(frozen=True, slots=True)
class ContinuedPrompt:
    """The segments at the beginning that keep their place, and the blocks after them.

    Each block has the ids and key it keeps, or None if it must be encoded. `forms` are replies as they were read,
    by their present keys. At least `shared` leading ids are where they were in the served prompt and reply.
    """

    stays: tuple[Segment, ...]
    pieces: tuple[tuple[PromptBlock, tuple[int, ...] | None, str], ...]
    forms: Mapping[str, Message]
    holds_reply: bool
    shared: int


@dataclass(frozen=True, slots=True)
class _Old:
    """The served turn's blocks, and the block of each of its messages."""

    turn: Turn
    keys: tuple[BlockKey, ...]
    by_run: Mapping[Run, int]

    def segment_of(self, run: Run) -> tuple[Segment, BlockKey] | None:
        """The segment with exactly these messages."""
        at = self.by_run.get(run)
        return None if at is None else (self.turn.prompt.segments[at], self.keys[at])

    def ids(self, segment: Segment) -> tuple[int, ...]:
        """The ids of a segment."""
        return self.turn.prompt.tokens[segment.start : segment.stop]


def continued(
    blocks: BlockRenderer,
    messages: Sequence[Message],
    tools: Sequence[Tool],
    served: Turn,
    options: Mapping[str, Json] | None,
) -> ContinuedPrompt | Literal["rewritten"] | None:
    """The new prompt with the served turn's ids as far as possible; None if none can be kept."""
    keys = [read_key(segment.key) for segment in served.prompt.segments[:-1]]
    known = [key for key in keys if key is not None]
    if blocks.shape is None or not keys or len(known) != len(keys):
        return None
    old = _Old(served, tuple(known), {key.run: index for index, key in enumerate(known)})
    pairs = matching((*served.read, served.reply), messages)
    if not pairs:
        return None
    forms = [_form(blocks, old, item, pairs.get(index)) for index, item in enumerate(messages)]
    cut = blocks.cut(with_served_ids(messages, forms), tools, options)
    return None if cut is None else _pieces(blocks, old, cut, pairs, forms)


def _form(blocks: BlockRenderer, old: _Old, item: Message, at: int | None) -> Message | None:
    """The served reply at message `at`, as it was read; the client's form if it was not sampled here."""
    if at is None or item.role is not Role.ASSISTANT:
        return None
    turn = old.turn
    if at == len(turn.read):
        return turn.reply
    found = old.segment_of((at, at + 1))
    form = None if found is None else blocks.form_of(found[0].key, old.ids(found[0]), turn.tools)
    form = turn.read[at] if form is None else form
    return form if len(form.tool_calls) == len(item.tool_calls) else item


def _pieces(
    blocks: BlockRenderer, old: _Old, cut: RenderedBlocks, pairs: Mapping[int, int], forms: Sequence[Message | None]
) -> ContinuedPrompt | Literal["rewritten"]:
    stays: list[Segment] = []
    pieces: list[tuple[PromptBlock, tuple[int, ...] | None, str]] = []
    kept: dict[str, Message] = {}
    reply_at = next((new for new, at in pairs.items() if at == len(old.turn.read)), None)
    spare = _sampled_replies(old, pairs)
    following = [*cut.blocks[1:], cut.opening]
    shared = 0
    for block, after in zip(cut.blocks, following, strict=True):
        start, stop = block.run
        if reply_at is not None and start <= reply_at < stop:
            if stop - start != 1 or not _stands(blocks, old.turn, block):
                return REWRITTEN
            ids, key = _reply(blocks, old.turn, block, after)
            kept[key] = old.turn.reply
            if not pieces and shared == old.turn.prompt.segments[-1].start:
                shared = min(shared + len(ids), len(old.turn.prompt) + len(old.turn.completion.tokens))
            pieces.append((block, ids, key))
            continue
        found = old.segment_of(_old_run(block.run, pairs))
        if found is None or not blocks.is_of(block, found[1].digest):
            if any(index in spare for index in range(start, stop)):
                return REWRITTEN
            pieces.append((block, None, ""))
            continue
        segment, parsed = found
        key = str(BlockKey(block.run, parsed.digest, parsed.sampled))
        form = forms[start] if stop - start == 1 else None
        if parsed.sampled is not None and form is not None:
            kept[key] = form
        if not pieces and segment.start == shared:
            stays.append(Segment(segment.start, segment.stop, key))
            shared = segment.stop
        else:
            pieces.append((block, old.ids(segment), key))
    pieces.append((cut.opening, None, ""))
    return ContinuedPrompt(tuple(stays), tuple(pieces), kept, reply_at is not None, shared)


def _sampled_replies(old: _Old, pairs: Mapping[int, int]) -> set[int]:
    """The positions, in the new conversation, of replies that the served prompt contains as sampled."""
    sampled = {key.run[0] for key in old.keys if key.sampled is not None}
    return {new for new, at in pairs.items() if at in sampled}


def _old_run(run: Run, pairs: Mapping[int, int]) -> Run:
    """The served messages that equal a block's messages, as a range; (-1, -1) if there are none."""
    if run[0] == run[1]:
        return run
    found = [pairs.get(index, -1) for index in range(*run)]
    is_run = found == list(range(found[0], found[0] + len(found)))
    return (found[0], found[-1] + 1) if is_run and found[0] >= 0 else (-1, -1)


def _stands(blocks: BlockRenderer, turn: Turn, block: PromptBlock) -> bool:
    """Whether the template writes this reply as it was opened, with its whole text, thinking and calls."""
    reply = turn.reply
    opening = blocks.table.text(turn.prompt.tokens[turn.prompt.segments[-1].start :])
    if not block.text.startswith(opening):
        opening = _EMPTY_THINK.sub("", opening)
        if reply.reasoning or not block.text.startswith(opening):
            return False
    at = len(opening)
    for part in (reply.reasoning or "", reply.text, *(call.name for call in reply.tool_calls)):
        found = block.text.find(part.strip(), at)  # in order: thinking that was dropped is not in the text
        if found < 0:
            return False
        at = found + len(part.strip())
    return True


def _reply(blocks: BlockRenderer, turn: Turn, block: PromptBlock, after: PromptBlock) -> tuple[tuple[int, ...], str]:
    """The ids of the reply's opening, the sampled ones, and the rest of the template's ending."""
    assert blocks.shape is not None
    opening = turn.prompt.tokens[turn.prompt.segments[-1].start :]
    sampled = turn.completion.tokens
    text = blocks.shape.tail(block.text)
    tail = blocks.kept_ids(text, "")
    shared = next((size for size in range(len(tail), 0, -1) if sampled[-size:] == tail[:size]), 0)
    ended = turn.completion.finish is Finish.STOP and bool(sampled) and sampled[-1] in blocks.table.special
    if not shared and tail and ended and tail[0] in blocks.table.special:
        shared = 1  # the sampled mark replaces the one that the template writes
    if not tail and ended and blocks.ids_of(after.text, after.after)[:1] == sampled[-1:]:
        sampled = sampled[:-1]  # the next block begins with the very mark that ended this one
    key = BlockKey(block.run, block.digest, (len(opening), len(tail) - shared))
    return (*opening, *sampled, *tail[shared:]), str(key)


def matching(old: Sequence[Message], new: Sequence[Message]) -> dict[int, int]:
    """For each message of a new conversation, which served message it is.

    In order, each served message at most once; new messages are left out.

    Replies are matched first, then the rest between them: text that a client moves along after every turn must not
    take a reply's place, since only the reply has ids that cannot be computed again.
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
    """The new messages, with replies in their served form, and results under the served ids of calls.

    `served` contains the served reply for each new message, None if it is not one.
    """
    found: list[Message] = []
    names: dict[str, str] = {}  # a client's id of a call -> the served one
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

    If one list is a prefix of the other, that match is the longest, and no text needs a digest.
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

    In an assistant's message, these do not count, since clients change or drop them: white space around the text and at
    the ends of lines, ids of tool calls, the way arguments are written (numbers included) and the reasoning. All other
    messages count to the letter, except ids of calls.
    """
    written = json.dumps(_meaning(item), ensure_ascii=False, sort_keys=True)
    return hashed((written,))


def _meaning(item: Message) -> list[Json]:
    if item.role is not Role.ASSISTANT:
        return [item.role.value, item.name, item.as_json()["content"] or ""]
    lines = item.text.rpartition(_END_THINK)[2].strip().splitlines()
    calls: list[Json] = [[call.name, _plain(call.parsed())] for call in item.tool_calls]
    return [item.role.value, "\n".join(line.rstrip() for line in lines), calls]


def _plain(value: Json) -> Json:
    """The value with numbers as a client with doubles returns them: 1.0 is 1."""
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
