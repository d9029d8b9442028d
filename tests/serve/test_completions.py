"""Plain completions: text or ids in, text out, never trained."""

from __future__ import annotations

import pytest
from openai import AsyncOpenAI, BadRequestError
from serve_doubles import Serving

from openclaw_rl.core.turn import TurnKind


async def test_text_goes_on_and_the_turn_is_a_side_turn(server: Serving, client: AsyncOpenAI) -> None:
    server.says("there <think>")
    answer = await client.completions.create(model="tiny", prompt="hello", logprobs=1)
    assert answer.choices[0].text == "there <think>"  # nothing is read into bare text
    assert answer.choices[0].logprobs is not None
    assert "".join(answer.choices[0].logprobs.tokens or []).startswith("there <think>")
    (turn,) = server.book.turns
    assert turn.kind is TurnKind.SIDE and turn.api == "completions"
    assert turn.prompt.tokens == server.parts.renderer.encode("hello")


async def test_ids_are_taken_as_they_are(server: Serving, client: AsyncOpenAI) -> None:
    server.says("x")
    await client.completions.create(model="tiny", prompt=[5, 6, 7])
    assert server.book.turns[0].prompt.tokens == (5, 6, 7)


async def test_a_stream_of_text_ends_with_usage(server: Serving, client: AsyncOpenAI) -> None:
    server.says("hello there")
    stream = await client.completions.create(
        model="tiny", prompt="x", stream=True, stream_options={"include_usage": True}
    )
    events = [event async for event in stream]
    assert "".join(event.choices[0].text for event in events if event.choices) == "hello there"
    assert events[-1].usage is not None


@pytest.mark.parametrize("prompt", ["", [], ["a", "b"]])
async def test_no_prompt_or_several_are_refused(server: Serving, client: AsyncOpenAI, prompt: str | list[str]) -> None:
    with pytest.raises(BadRequestError):
        await client.completions.create(model="tiny", prompt=prompt)
    assert not server.engine.asked
