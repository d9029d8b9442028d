"""How a rendered conversation is cut into blocks, one for each message if its ids can be distinguished.

A block is what the template writes in one pass over its messages. Its text before the first pass, usually a system text
and tools, is a block too, and the text after the last is the opening of an answer. Two blocks are
distinguished only if an added token is at the border: added tokens are split off before anything else is
encoded, so the ids on one side do not depend on the other. What cannot be determined exactly is not guessed.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from tokenizers import Tokenizer

from openclaw_rl.core.hashing import hashed
from openclaw_rl.core.message import Json, Message, Role, TextPart, Tool, ToolCall, message
from openclaw_rl.errors import RequestError
from openclaw_rl.render.passes import Rendering
from openclaw_rl.render.template import ChatTemplate

Run = tuple[int, int]  # messages[start:stop]; empty for the template's own text
_KEY = re.compile(r"(\d+)-(\d+)(?: sampled (\d+)-(\d+))? ([0-9a-f]{32})\Z")
_TOOL = Tool("probe", "A probe.", {"type": "object", "properties": {}})
_CALL = ToolCall("probe0000", "probe", '{"a": "beta"}')


@dataclass(frozen=True, slots=True)
class PromptBlock:
    """A template's text for a run of messages, and the added token at the end of the text before it.

    `after` is empty if the block begins with an added token itself. One of the two is always true, so that encoding
    block by block equals encoding the whole.
    """

    run: Run
    text: str
    after: str

    @property
    def digest(self) -> str:
        """Equal for equal text in an equal place."""
        return hashed((self.after, "\0", self.text))


@dataclass(frozen=True, slots=True)
class BlockKey:
    """The content of a segment's key: its messages and the digest of the template's own text for them.

    `sampled` is set if the ids are those of a served reply instead: the number of ids of the opening before
    the sampled ones, and the number after them.
    """

    run: Run
    digest: str
    sampled: tuple[int, int] | None = None

    def __str__(self) -> str:
        """The key as it is in a segment."""
        told = "" if self.sampled is None else f" sampled {self.sampled[0]}-{self.sampled[1]}"
        return f"{self.run[0]}-{self.run[1]}{told} {self.digest}"


def read_key(key: str) -> BlockKey | None:
    """The parsed key, or None for a key of another kind."""
    found = _KEY.match(key)
    if found is None:
        return None
    start, stop, opening, ending, digest = found.groups()
    sampled = None if opening is None else (int(opening), int(ending))
    return BlockKey((int(start), int(stop)), str(digest), sampled)


class Encode(Protocol):
    """Ids of a block's text in its place."""

    def __call__(self, text: str, after: str) -> tuple[int, ...]: ...


@dataclass(frozen=True, slots=True)
class RenderedBlocks:
    """A rendered conversation in blocks; together with `opening` they are the whole text."""

    blocks: tuple[PromptBlock, ...]
    opening: PromptBlock


@dataclass(frozen=True, slots=True)
class Borders:
    """The added tokens that may be at a border: those that keep the white space next to them.

    `loops` are the template's loops over messages: a loop that met none still marks where messages end.
    """

    starts: tuple[str, ...]
    ends: tuple[str, ...]
    loops: frozenset[int] = frozenset()

    def cut(self, rendering: Rendering, count: int) -> RenderedBlocks | None:
        """The text of `count` messages and the opening of an answer in blocks; None if they cannot be determined."""
        text = rendering.text
        end = max((at for loop, at in rendering.ends.items() if loop in rendering.loops | self.loops), default=None)
        parts = None if end is None else _parts(rendering.starts, end, count)
        if parts is None or end is None:
            return None
        kept: list[tuple[Run, int, str]] = []
        for run, start in parts:
            before = self._after(text, start)
            if kept and before is None:
                kept[-1] = ((kept[-1][0][0], run[1]), *kept[-1][1:])
            else:
                kept.append((run, start, before or ""))
        after = "" if end == len(text) else self._after(text, end)
        if after is None:
            return None
        edges = [start for _, start, _ in kept] + [end]
        blocks = tuple(
            PromptBlock(run, text[start:stop], before)
            for (run, start, before), stop in zip(kept, edges[1:], strict=True)
        )
        return RenderedBlocks(blocks, PromptBlock((count, count), text[end:], after))

    def _after(self, text: str, at: int) -> str | None:
        """The added token that ends here, empty if one begins or the text does; None if the border is unclean."""
        if at == 0 or text.startswith(self.starts, at):
            return ""
        if not text.endswith(self.ends, 0, at):
            return None
        return max((token for token in self.ends if text.endswith(token, 0, at)), key=len)


@dataclass(frozen=True, slots=True)
class TemplateShape:
    """The facts about a template that can be cut. `tails` may follow the sampled text, longest first."""

    borders: Borders
    tails: tuple[str, ...]

    def tail(self, block: str) -> str:
        """The template's text after the reply in this block."""
        return next((tail for tail in self.tails if block.endswith(tail)), "")


def shape_of(template: ChatTemplate, encode: Encode) -> TemplateShape | None:
    """The template's shape, or None if its blocks cannot be distinguished."""
    borders = borders_of(template.tokenizer)
    reply = message(Role.ASSISTANT, "beta")
    asked = message(Role.USER, "alpha")
    found = _block(template, borders, encode, [asked, reply, message(Role.USER, "gamma"), reply, asked])
    if found is None or "beta" not in found[0]:
        return None
    text, loops = found
    tails = {text[text.rindex("beta") + len("beta") :]}
    called = Message(Role.ASSISTANT, (), tool_calls=(_CALL,))
    result = Message(Role.TOOL, (TextPart("gamma"),), tool_call_id=_CALL.id, name=_CALL.name)
    call = _block(template, borders, encode, [asked, called, result])
    if call is not None:
        loops |= call[1]
        _, last = max((call[0].rfind(token), token) for token in borders.starts)
        if "" not in tails and not any(call[0].endswith(tail) for tail in tails) and call[0].endswith(last):
            tails.add(last)
    return TemplateShape(replace(borders, loops=loops), tuple(sorted(tails, key=len, reverse=True)))


def borders_of(tokenizer: Tokenizer) -> Borders:
    """The added tokens of a tokenizer that make clean borders."""
    added = [item for item in tokenizer.get_added_tokens_decoder().values() if item.content and not item.single_word]
    starts = tuple(item.content for item in added if not item.lstrip)
    return Borders(starts, tuple(item.content for item in added if not item.rstrip))


def is_append_only(template: ChatTemplate) -> bool:
    """Whether a continued conversation begins, letter for letter, with the earlier one, thinking and tools included."""
    call = ToolCall("probe0000", "probe", "{}")
    thought = Message(Role.ASSISTANT, (TextPart("beta"),), reasoning="idea")
    called = Message(Role.ASSISTANT, (), reasoning="idea", tool_calls=(call,))
    result = Message(Role.TOOL, (TextPart("gamma"),), tool_call_id=call.id, name=call.name)
    user = message(Role.USER, "alpha")
    for tools, talk in (((), [user, thought, user]), ((_TOOL,), [user, called, result, thought, user])):
        grown = [_text(template, talk[: size + 1], tools) for size in range(len(talk))]
        asked = _text(template, talk[:1], tools, generation_prompt=True)
        if any(text is None for text in grown) or asked is None:
            continue  # a template that refuses tools cannot rewrite them
        texts = [text for text in grown if text is not None]
        if not all(after.startswith(before) for before, after in itertools.pairwise(texts)):
            return False
        if not texts[1].startswith(asked) or "idea" not in texts[1]:
            return False
    return True


def _parts(notes: Sequence[tuple[int | None, int]], end: int, count: int) -> list[tuple[Run, int]] | None:
    """The messages of each stretch of text, and its start; None if they are written out of order.

    A pass without text joins the one before, as does the template's own text between two loops.
    """
    stops = [*(offset for _, offset in notes[1:]), end][: len(notes)]
    wrote = [(index, at) for (index, at), stop in zip(notes, stops, strict=True) if index is not None and stop > at]
    if any(after <= before for (before, _), (after, _) in itertools.pairwise(wrote)):
        return None
    if not wrote or wrote[0][1] > 0:
        wrote.insert(0, (0, 0))
    first = [(0, wrote[0][1]), *wrote[1:]]
    edges = [*(index for index, _ in first[1:]), count]
    return [((index, stop), at) for (index, at), stop in zip(first, edges, strict=True)]


def _block(
    template: ChatTemplate, borders: Borders, encode: Encode, talk: Sequence[Message]
) -> tuple[str, frozenset[int]] | None:
    """The second message's block and the loops; None if it has none, or separate encoding changes ids."""
    tools = (_TOOL,) if any(item.role is Role.TOOL for item in talk) else ()
    try:
        rendering = template.rendered(talk, tools, generation_prompt=True)
    except RequestError:
        return None
    cut = borders.cut(rendering, len(talk))
    if cut is None:
        return None
    found = next((block for block in cut.blocks if block.run == (1, 2)), None)
    ids = [token for block in (*cut.blocks, cut.opening) for token in encode(block.text, block.after)]
    return None if found is None or ids != template.encode(rendering.text) else (found.text, rendering.loops)


def _text(
    template: ChatTemplate,
    talk: Sequence[Message],
    tools: Sequence[Tool] = (),
    *,
    generation_prompt: bool = False,
    options: Mapping[str, Json] | None = None,
) -> str | None:
    try:
        return template.text(talk, tools, generation_prompt=generation_prompt, options=options)
    except RequestError:
        return None
