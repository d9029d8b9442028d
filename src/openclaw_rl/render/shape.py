"""How a model's template cuts a conversation into blocks, found out once by rendering a few small conversations.

A block is the text from one message's opening token up to the next one's. Most templates write one for each message,
some put a block of their own in front, write consecutive tool results as one, or fold the system text into the first
user message. What cannot be told exactly is not guessed: then `blocks` and `runs` give None.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from openclaw_rl.core.message import Json, Message, Role, TextPart, Tool, ToolCall, message
from openclaw_rl.errors import RequestError
from openclaw_rl.render.template import ChatTemplate

Run = tuple[int, int]  # messages[start:stop]; empty for a block that the template writes by itself
_TOOL = Tool("probe", "A probe.", {"type": "object", "properties": {}})
_WORDS = ("alpha", "beta", "gamma", "delta")


@dataclass(frozen=True, slots=True)
class Shape:
    """What a template does with a conversation.

    `opener` is the text of the special token that begins every block, `tail` what follows a reply's own text.
    `extra` tells, for (system message, tools), how many blocks more than messages there are: 1 where the template
    writes one of its own in front, -1 where the system text is folded into the next message; None where refused.
    """

    opener: str
    tail: str
    joins_tools: bool
    extra: Mapping[tuple[bool, bool], int | None]

    def runs(self, messages: Sequence[Message], tools: Sequence[Tool]) -> list[Run] | None:
        """Which messages each block renders, in order."""
        if not messages:
            return None
        found: list[Run] = []
        for index, item in enumerate(messages):
            joins = self.joins_tools and item.role is Role.TOOL and index > 0
            if joins and messages[index - 1].role is Role.TOOL:
                found[-1] = (found[-1][0], index + 1)
            else:
                found.append((index, index + 1))
        extra = self.extra.get((messages[0].role is Role.SYSTEM, bool(tools)))
        if extra == 1:
            return [(0, 0), *found]
        if extra == -1 and len(found) > 1:
            return [(0, found[1][1]), *found[2:]]
        return found if extra == 0 else None

    def blocks(self, text: str, messages: Sequence[Message], runs: Sequence[Run], *, opened: bool) -> list[str] | None:
        """The rendered text cut into one block for each run, and one more where an answer is `opened`."""
        found = _cut(text, self.opener)
        if len(found) != len(runs) + opened:
            return None
        for (start, stop), block in zip(runs, found[: len(runs)], strict=True):
            said = (item.text.strip() for item in messages[start:stop] if item.role is not Role.ASSISTANT)
            if not all(text in block for text in said):
                return None
        return found


def shape_of(template: ChatTemplate) -> Shape | None:
    """The template's shape, or None where it has no token that begins every block."""
    asked, said, more, last = _WORDS
    talk = [
        message(Role.USER, asked),
        message(Role.ASSISTANT, said),
        message(Role.USER, more),
        message(Role.ASSISTANT, last),
    ]
    text = _text(template, talk)
    opened = _text(template, talk[:3], generation_prompt=True)
    closed = _text(template, talk[:3])
    if text is None or opened is None or closed is None or not opened.startswith(closed):
        return None
    opener = _opener(template, text, opened[len(closed) :])
    if opener is None:
        return None
    # Pieces are encoded one by one, so that must give what encoding the whole gives.
    if [token for block in _cut(text, opener) for token in template.encode(block)] != template.encode(text):
        return None
    return Shape(
        opener,
        text[text.rindex(last) + len(last) :],
        _joins_tools(template, opener),
        {
            (system, tools): _extra(template, opener, system, tools)
            for system in (True, False)
            for tools in (True, False)
        },
    )


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


def _opener(template: ChatTemplate, text: str, generation: str) -> str | None:
    added = template.tokenizer.get_added_tokens_decoder()
    for item in added.values():
        if not generation.startswith(item.content) or generation.count(item.content) != 1:
            continue
        blocks = [block for block in _cut(text, item.content) if any(word in block for word in _WORDS)]
        if len(blocks) == len(_WORDS) and all(word in block for word, block in zip(_WORDS, blocks, strict=True)):
            return item.content
    return None


def _joins_tools(template: ChatTemplate, opener: str) -> bool:
    calls = (ToolCall("probe0000", "probe", "{}"), ToolCall("probe0001", "probe", "{}"))
    results = [Message(Role.TOOL, (TextPart("gamma"),), tool_call_id=call.id, name=call.name) for call in calls]
    talk = [message(Role.USER, "alpha"), Message(Role.ASSISTANT, (), tool_calls=calls), *results]
    one, two = _text(template, talk[:-1]), _text(template, talk)
    return one is not None and two is not None and one.count(opener) == two.count(opener)


def _extra(template: ChatTemplate, opener: str, has_system: bool, has_tools: bool) -> int | None:
    talk = [message(Role.SYSTEM, "omega")] if has_system else []
    talk.append(message(Role.USER, "alpha"))
    text = _text(template, talk, (_TOOL,) if has_tools else ())
    return None if text is None else len(_cut(text, opener)) - len(talk)


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


def _cut(text: str, opener: str) -> list[str]:
    """The text cut in front of each opener; what stands before the first belongs to the first block."""
    first, *rest = text.split(opener)
    if not rest:
        return [text]
    return [first + opener + rest[0], *(opener + block for block in rest[1:])]
