"""A new conversation that continues a served turn: which blocks keep their ids, and whether that is safe."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from openclaw_rl.core.completion import Finish
from openclaw_rl.core.message import Json, Message, Role, Tool
from openclaw_rl.core.prompt import Segment
from openclaw_rl.core.turn import Turn
from openclaw_rl.render.detokenise import TokenBytes
from openclaw_rl.render.matching import matching, with_served_ids
from openclaw_rl.render.shape import BlockKey, PromptBlock, RenderedBlocks, Run, TemplateShape, read_key

_EMPTY_THINK = re.compile(r"(?:<think>|\[THINK\])\s*(?:(?:</think>|\[/THINK\])\s*)?\Z")
REWRITTEN: Literal["rewritten"] = "rewritten"


class BlockRenderer(Protocol):
    """What is needed of a renderer."""

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
    """The segments at the beginning that stay as and where they are, and the blocks after them.

    Each block has the ids and key it keeps, or None where it is to be encoded. `forms` are replies as they were read,
    by the keys under which they stand now. `shared` leading ids stand where they stood in the served prompt and reply;
    more may.
    """

    stays: tuple[Segment, ...]
    pieces: tuple[tuple[PromptBlock, tuple[int, ...] | None, str], ...]
    forms: Mapping[str, Message]
    holds_reply: bool
    shared: int


@dataclass(frozen=True, slots=True)
class _Old:
    """The served turn's blocks, and of each of its messages which block it is in."""

    turn: Turn
    keys: tuple[BlockKey, ...]
    by_run: Mapping[Run, int]

    def segment_of(self, run: Run) -> tuple[Segment, BlockKey] | None:
        """The segment that holds just these messages."""
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
    """The new prompt made of what the served turn had; None where nothing of it can be kept."""
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
    """The reply served as message `at`, as it was read; the client's own form where it was not sampled here."""
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
        segment, told = found
        key = str(BlockKey(block.run, told.digest, told.sampled))
        form = forms[start] if stop - start == 1 else None
        if told.sampled is not None and form is not None:
            kept[key] = form
        if not pieces and segment.start == shared:
            stays.append(Segment(segment.start, segment.stop, key))
            shared = segment.stop
        else:
            pieces.append((block, old.ids(segment), key))
    pieces.append((cut.opening, None, ""))
    return ContinuedPrompt(tuple(stays), tuple(pieces), kept, reply_at is not None, shared)


def _sampled_replies(old: _Old, pairs: Mapping[int, int]) -> set[int]:
    """Where, in the new conversation, replies stand that the served prompt holds as sampled."""
    sampled = {key.run[0] for key in old.keys if key.sampled is not None}
    return {new for new, at in pairs.items() if at in sampled}


def _old_run(run: Run, pairs: Mapping[int, int]) -> Run:
    """Which messages of the served conversation a block's messages are; (-1, -1) where they are not."""
    if run[0] == run[1]:
        return run
    found = [pairs.get(index, -1) for index in range(*run)]
    is_run = found == list(range(found[0], found[0] + len(found)))
    return (found[0], found[-1] + 1) if is_run and found[0] >= 0 else (-1, -1)


def _stands(blocks: BlockRenderer, turn: Turn, block: PromptBlock) -> bool:
    """Whether the template writes this reply as it was opened, with all that it said, thought and called."""
    reply = turn.reply
    opening = blocks.table.text(turn.prompt.tokens[turn.prompt.segments[-1].start :])
    if not block.text.startswith(opening):
        opening = _EMPTY_THINK.sub("", opening)
        if reply.reasoning or not block.text.startswith(opening):
            return False
    at = len(opening)
    for part in (reply.reasoning or "", reply.text, *(call.name for call in reply.tool_calls)):
        found = block.text.find(part.strip(), at)  # one behind the other: thinking that was dropped is not in the words
        if found < 0:
            return False
        at = found + len(part.strip())
    return True


def _reply(blocks: BlockRenderer, turn: Turn, block: PromptBlock, after: PromptBlock) -> tuple[tuple[int, ...], str]:
    """What opened the reply, what was sampled, and what of the template's ending was not sampled already."""
    assert blocks.shape is not None
    opening = turn.prompt.tokens[turn.prompt.segments[-1].start :]
    sampled = turn.completion.tokens
    text = blocks.shape.tail(block.text)
    tail = blocks.kept_ids(text, "")
    shared = next((size for size in range(len(tail), 0, -1) if sampled[-size:] == tail[:size]), 0)
    ended = turn.completion.finish is Finish.STOP and bool(sampled) and sampled[-1] in blocks.table.special
    if not shared and tail and ended and tail[0] in blocks.table.special:
        shared = 1  # the mark that was sampled stands for the one the template writes
    if not tail and ended and blocks.ids_of(after.text, after.after)[:1] == sampled[-1:]:
        sampled = sampled[:-1]  # the next block begins with the very mark that ended this one
    key = BlockKey(block.run, block.digest, (len(opening), len(tail) - shared))
    return (*opening, *sampled, *tail[shared:]), str(key)
