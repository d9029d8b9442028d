"""How a rendered conversation is cut into blocks, one for each message where its ids can be told apart.

A block is what the template writes in one pass over its messages. What it writes before the first pass, a system text
and tools usually, is a block too, and what it writes after the last is the opening of an answer. Two blocks are told
apart only where an added token stands at the border: added tokens are split off before anything else is encoded, so
the ids on one side do not depend on the other. What cannot be told exactly is not guessed.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from tokenizers import Tokenizer

from openclaw_rl.core.message import Json, Message, Role, TextPart, Tool, ToolCall, message
from openclaw_rl.errors import RequestError
from openclaw_rl.render.block import Block, Run
from openclaw_rl.render.passes import Rendering
from openclaw_rl.render.template import ChatTemplate

_TOOL = Tool("probe", "A probe.", {"type": "object", "properties": {}})
_CALL = ToolCall("probe0000", "probe", '{"a": "beta"}')


class Encode(Protocol):
    """Ids of a block's text in its place."""

    def __call__(self, text: str, after: str) -> tuple[int, ...]: ...


@dataclass(frozen=True, slots=True)
class Cut:
    """A rendered conversation in blocks; together with `opening` they are the whole text."""

    blocks: tuple[Block, ...]
    opening: Block


@dataclass(frozen=True, slots=True)
class Borders:
    """The added tokens that may stand at a border: those that leave the white space beside them alone."""

    starts: tuple[str, ...]
    ends: tuple[str, ...]

    def cut(self, rendering: Rendering, count: int) -> Cut | None:
        """The text of `count` messages and the opening of an answer in blocks; None where they cannot be told."""
        text, end = rendering.text, rendering.end
        parts = None if end is None else _parts(rendering, count)
        if parts is None or end is None:
            return None
        kept: list[tuple[Run, int]] = []
        for run, start in parts:
            if kept and self._after(text, start) is None:
                kept[-1] = ((kept[-1][0][0], run[1]), kept[-1][1])
            else:
                kept.append((run, start))
        after = "" if end == len(text) else self._after(text, end)
        if after is None:
            return None
        edges = [start for _, start in kept] + [end]
        blocks = tuple(
            Block(run, text[start:stop], self._after(text, start) or "")
            for (run, start), stop in zip(kept, edges[1:], strict=True)
        )
        return Cut(blocks, Block((count, count), text[end:], after))

    def _after(self, text: str, at: int) -> str | None:
        """The added token that ends here, empty where one begins or the text does; None where the border is unclean."""
        if at == 0 or text.startswith(self.starts, at):
            return ""
        if not text.endswith(self.ends, 0, at):
            return None
        return max((token for token in self.ends if text.endswith(token, 0, at)), key=len)


@dataclass(frozen=True, slots=True)
class Shape:
    """What is known of a template that can be cut. `tails` may follow what was sampled, longest first."""

    borders: Borders
    tails: tuple[str, ...]

    def tail(self, block: str) -> str:
        """What the template wrote behind the reply in this block."""
        return next((tail for tail in self.tails if block.endswith(tail)), "")


def shape_of(template: ChatTemplate, encode: Encode) -> Shape | None:
    """The template's shape, or None where its blocks cannot be told apart."""
    borders = borders_of(template.tokenizer)
    reply = message(Role.ASSISTANT, "beta")
    asked = message(Role.USER, "alpha")
    text = _block(template, borders, encode, [asked, reply, message(Role.USER, "gamma"), reply, asked])
    if text is None or "beta" not in text:
        return None
    tails = {text[text.rindex("beta") + len("beta") :]}
    called = Message(Role.ASSISTANT, (), tool_calls=(_CALL,))
    result = Message(Role.TOOL, (TextPart("gamma"),), tool_call_id=_CALL.id, name=_CALL.name)
    call = _block(template, borders, encode, [asked, called, result])
    if call is not None and not any(tail and call.endswith(tail) for tail in tails) and "" not in tails:
        last = max((call.rfind(token), token) for token in borders.starts)
        if call.endswith(last[1]):
            tails.add(last[1])
    return Shape(borders, tuple(sorted(tails, key=len, reverse=True)))


def borders_of(tokenizer: Tokenizer) -> Borders:
    """The added tokens of a tokenizer that make clean borders."""
    added = [item for item in tokenizer.get_added_tokens_decoder().values() if item.content and not item.single_word]
    starts = tuple(item.content for item in added if not item.lstrip)
    return Borders(starts, tuple(item.content for item in added if not item.rstrip))


def is_append_only(template: ChatTemplate) -> bool:
    """Whether a conversation that goes on begins, letter for letter, with what it was: thinking and tools included."""
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


def _parts(rendering: Rendering, count: int) -> list[tuple[Run, int]] | None:
    """Which messages each stretch of text renders, and where it starts; a pass without text joins the one before."""
    starts = list(rendering.starts)
    ends = [offset for _, offset in starts[1:]] + [rendering.end]
    wrote = [start for start, end in zip(starts, ends, strict=True) if end is not None and end > start[1]]
    indices = [index for index, _ in wrote]
    if any(after <= before for before, after in itertools.pairwise(indices)) or not wrote:
        return None
    if wrote[0][1] > 0:
        wrote.insert(0, (0, 0))
        indices.insert(0, 0)
    indices[0] = 0
    return [
        ((index, stop), offset) for index, stop, (_, offset) in zip(indices, [*indices[1:], count], wrote, strict=True)
    ]


def _block(template: ChatTemplate, borders: Borders, encode: Encode, talk: Sequence[Message]) -> str | None:
    """The second message's block, where every message has its own and encoding them apart changes nothing."""
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
    return None if found is None or ids != template.encode(rendering.text) else found.text


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
