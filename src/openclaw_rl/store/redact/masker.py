"""Masks what is private in turns, next states and feedback before they are stored.

What was served is not touched: the turn in memory keeps its ids and continues exactly. On the disk, a turn that held
something private has marks in its text and no ids at all, since ids say what the text said; it is never learned from
(docs/decisions/0006-redaction.md).
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from openclaw_rl.core.completion import Completion
from openclaw_rl.core.hashing import hashed
from openclaw_rl.core.masked import Private, mark, told
from openclaw_rl.core.message import ImagePart, Json, Message, TextPart, Tool
from openclaw_rl.core.next_state import Feedback, NextState
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.turn import Turn
from openclaw_rl.store.redact.find import Finder, Found, finders
from openclaw_rl.store.settings import Redact

LONG_CHARS = 65_536  # it takes some hundredths of a second to look through so much
REMEMBERED_LONG = 64  # of those that hold something private, with what they hold
REMEMBERED = 20_000  # texts known to hold nothing private: a conversation comes again whole with every request
NO_IDS = Prompt((0,))
Result = TypeVar("Result")


@dataclass(slots=True)
class Masker:
    """Puts marks in the place of what its finders find: in the store's writing thread, and `look` beside it."""

    finders: tuple[Finder, ...]
    counted: Counter[Private] = field(default_factory=Counter)
    _clean: OrderedDict[str, None] = field(default_factory=OrderedDict)
    _held: OrderedDict[str, list[Found]] = field(default_factory=OrderedDict)  # by long texts
    _lock: threading.Lock = field(default_factory=threading.Lock)  # of what is remembered, never while looking

    @classmethod
    def of(cls, kinds: Sequence[Redact]) -> Masker:
        """A masker of these kinds."""
        return cls(finders(kinds))

    def text(self, text: str) -> str:
        """The text with marks; the text itself where it holds nothing private."""
        if not self.finders or len(text) < 6:
            return text
        found = self._found(text)
        if not found:
            return text
        pieces, at = list[str](), 0
        for item in found:
            pieces += [text[at : item.start], mark(item.kind)]
            self.counted[item.kind] += 1
            at = item.stop
        return "".join((*pieces, text[at:]))

    def look(self, texts: Iterable[str]) -> None:
        """Looks through long texts, so that `text` need not. May be called beside it."""
        for text in texts:
            if self.finders:
                self._found(text)

    def _found(self, text: str) -> list[Found]:
        """What the text holds, by what is remembered where it is."""
        digest = hashed((text,))
        with self._lock:
            if digest in self._clean:
                self._clean.move_to_end(digest)
                return []
            if digest in self._held:
                return self._held[digest]
        found = _apart(item for finder in self.finders for item in finder(text))
        with self._lock:
            if not found:
                self._clean[digest] = None
                if len(self._clean) > REMEMBERED:
                    self._clean.popitem(last=False)
            elif len(text) > LONG_CHARS:
                self._held[digest] = found
                if len(self._held) > REMEMBERED_LONG:
                    self._held.popitem(last=False)
        return found

    def json(self, value: Json) -> Json:
        """The same data with its texts masked, names of fields aside."""
        match value:
            case str():
                return self.text(value)
            case list():
                return [self.json(item) for item in value]
            case dict():
                return {name: self.json(item) for name, item in value.items()}
        return value

    def message(self, item: Message) -> Message:
        """The message, its reasoning and its calls masked; the message itself where nothing was."""
        masked = replace(
            item,
            content=tuple(self._part(part) for part in item.content),
            reasoning=None if item.reasoning is None else self.text(item.reasoning),
            tool_calls=tuple(replace(call, arguments=self.text(call.arguments)) for call in item.tool_calls),
        )
        return item if masked == item else masked

    def turn(self, turn: Turn) -> Turn:
        """The turn as it may be kept: the turn itself, or one with marks and without ids."""
        before = Counter(self.counted)
        masked = replace(
            turn,
            messages=tuple(self.message(item) for item in turn.messages),
            tools=tuple(self._tool(item) for item in turn.tools),
            reply=self.message(turn.reply),
            options=self._mapping(turn.options),
            shown=self._mapping(turn.shown),
            carried=tuple(replace(item, text=self.text(item.text)) for item in turn.carried),
        )
        found = self.counted - before
        if not found:
            return turn
        completion = turn.completion
        return replace(
            masked,
            prompt=NO_IDS,
            completion=Completion((), (), (), completion.version, completion.finish),
            why=f"{turn.why}; masked before it was stored: {told(found)}, and its ids are not kept",
        )

    def next_state(self, next_state: NextState) -> NextState:
        """What followed, masked: the judge and every hint see only this."""
        return replace(next_state, messages=tuple(self.message(item) for item in next_state.messages))

    def feedback(self, feedback: Feedback) -> Feedback:
        """The words beside a thumb, masked."""
        return feedback if feedback.text is None else replace(feedback, text=self.text(feedback.text))

    def _part(self, part: TextPart | ImagePart) -> TextPart | ImagePart:
        if isinstance(part, TextPart):
            return TextPart(self.text(part.text))
        return part if part.url.startswith("data:") else ImagePart(self.text(part.url))

    def _tool(self, item: Tool) -> Tool:
        return replace(item, description=self.text(item.description), parameters=self._mapping(item.parameters))

    def _mapping(self, held: Mapping[str, Json]) -> dict[str, Json]:
        return {name: self.json(value) for name, value in held.items()}


def _apart(found: Iterable[Found]) -> list[Found]:
    """The pieces in their order, those that overlap made one."""
    apart: list[Found] = []
    for item in sorted(found, key=lambda each: (each.start, -each.stop)):
        if apart and item.start < apart[-1].stop:
            apart[-1] = replace(apart[-1], stop=max(apart[-1].stop, item.stop))
        else:
            apart.append(item)
    return apart


class LongTexts:
    """Looks through the long texts of turns and next states, one after the other, and then has them written.

    This takes a second for a megabyte, and whoever ends an answer waits for the writing thread. So it is done before
    that thread's turn: the masks found are remembered, and the thread only puts them in.
    """

    def __init__(self, masker: Masker) -> None:
        self._masker = masker
        self._last: asyncio.Future[Any] | None = None

    def written(self, texts: Sequence[str], write: Callable[[], Awaitable[Result]]) -> asyncio.Future[Result]:
        """What `write` gives, begun once these texts and all that came before were looked through.

        It is finished though whoever waits for it is cancelled.
        """
        task = asyncio.ensure_future(self._after(self._last, texts, write))
        self._last = task
        return asyncio.shield(task)

    async def settled(self) -> None:
        """Returns once all that was to be written by now has been."""
        if self._last is not None and not self._last.done():
            await asyncio.wait([self._last])

    async def _after(
        self, before: asyncio.Future[Any] | None, texts: Sequence[str], write: Callable[[], Awaitable[Result]]
    ) -> Result:
        if before is not None and not before.done():
            await asyncio.wait([before])
        await asyncio.to_thread(self._masker.look, texts)
        return await write()


def long_texts(messages: Iterable[Message]) -> list[str]:
    """The texts of these messages that take long to look through."""
    texts = [part.text for item in messages for part in item.content if isinstance(part, TextPart)]
    texts += [call.arguments for item in messages for call in item.tool_calls]
    return [text for text in texts if len(text) > LONG_CHARS]
