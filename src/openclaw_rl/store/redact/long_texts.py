"""Long texts are looked through for secrets before their rows are written, beside the thread that writes.

Looking takes a second for a megabyte, and whoever ends an answer waits for the writing thread. What was found is
remembered, so that the writing thread only has to put it in.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeVar

from openclaw_rl.core.message import Message, TextPart
from openclaw_rl.store.redact.masker import LONG_CHARS, Masker

Result = TypeVar("Result")


class LongTexts:
    """Looks through the long texts of turns and next states, one after the other, and then has them written."""

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
