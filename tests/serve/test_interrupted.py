"""What is kept of answers whose request is cancelled at an unlucky moment."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from serve_doubles import Serving

from openclaw_rl.core.completion import Finish, SampledToken
from openclaw_rl.core.message import Role, message
from openclaw_rl.core.sampling import Sampling
from openclaw_rl.render.parsers import ReplyDelta
from openclaw_rl.serve.answers import Choice
from openclaw_rl.serve.generate import GenerationRequest, begin


class _Unread:
    """A sink that takes everything."""

    def piece(self, choice: Choice, deltas: Sequence[ReplyDelta], sampled: Sequence[SampledToken]) -> bool:
        return False

    async def drain(self) -> None:
        raise NotImplementedError


async def test_a_client_that_goes_away_while_its_turns_are_being_stored_loses_none_of_them(server: Serving) -> None:
    server.book.may_commit.clear()
    for text in ("one", "two", "three"):
        server.says(text)
    sampling = Sampling(50, stop_ids=server.parts.eos_ids)
    asked = GenerationRequest("chat", (message(Role.USER, "count"),), (), sampling, 50, count=3)
    generation = await begin(server.parts, asked, {}, "alice")
    running = asyncio.ensure_future(generation.run(_Unread()))
    for _ in range(3):
        await server.given.get()
    for _ in range(3):  # a handler that is cancelled, and then the server that stops
        await asyncio.wait([running], timeout=0.01)
        running.cancel()
    await asyncio.wait([running], timeout=0.01)
    assert not running.done()
    server.book.may_commit.set()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert [turn.reply.text for turn in server.book.turns] == ["one", "two", "three"]
    assert {turn.completion.finish for turn in server.book.turns} == {Finish.STOP}
