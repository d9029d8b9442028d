"""OpenAI's Responses API over real HTTP with the official client."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from openai import AsyncOpenAI, NotFoundError
from openai.types.responses import Response, ResponseInputParam
from serve_doubles import READ, THINKS_AND_CALLS, VERSION, Serving, serving

from openclaw_rl.core.completion import Finish
from openclaw_rl.core.message import Role
from openclaw_rl.errors import EngineError
from openclaw_rl.render.renderer import ChatRenderer
from openclaw_rl.store.db import Store


def _names(answer: Response) -> list[str | None]:
    return [item.id for item in answer.output]


async def test_a_response_comes_whole_with_its_turn_version_and_usage(server: Serving, client: AsyncOpenAI) -> None:
    ids = server.says("<think>\nhm\n</think>\n\nhello there")
    raw = await client.responses.with_raw_response.create(
        model="tiny", input="hello", instructions="Be kind.", metadata={"topic": "tea"}, user="u"
    )
    answer = raw.parse()
    (turn,) = server.book.turns
    assert answer.id == f"resp_{turn.id}" and raw.headers["x-openclaw-rl-turn"] == turn.id
    assert raw.headers["x-openclaw-rl-version"] == str(VERSION)
    assert answer.output_text == "hello there" and answer.status == "completed" and answer.error is None
    assert [item.type for item in answer.output] == ["reasoning", "message"]
    assert answer.usage is not None
    assert answer.usage.input_tokens == len(turn.prompt) and answer.usage.output_tokens == len(ids)
    assert answer.usage.total_tokens == len(turn.prompt) + len(ids)
    assert answer.usage.input_tokens_details.cached_tokens == 5
    assert answer.usage.output_tokens_details.reasoning_tokens == len(server.parts.renderer.encode("hm"))
    assert (answer.instructions, answer.metadata, answer.user) == ("Be kind.", {"topic": "tea"}, "u")
    assert [(item.role, item.text) for item in turn.messages] == [(Role.SYSTEM, "Be kind."), (Role.USER, "hello")]
    assert turn.api == "responses"
    assert server.book.arrivals[0].facts == {"metadata": {"topic": "tea"}, "user": "u"}


async def test_the_events_come_in_the_official_order_and_are_numbered(server: Serving, client: AsyncOpenAI) -> None:
    server.says("<think>\nhm\n</think>\n\nhello")
    stream = await client.responses.create(model="tiny", input="hello", stream=True)
    events = [event async for event in stream]
    assert [event.sequence_number for event in events] == list(range(len(events)))  # type: ignore[union-attr]
    kinds = [event.type.removeprefix("response.") for event in events]
    folded = [kind for at, kind in enumerate(kinds) if at == 0 or kinds[at - 1] != kind]
    assert folded == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "reasoning_text.delta",
        "reasoning_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]


async def test_a_stream_tells_the_same_as_the_response_fetched_later(server: Serving, client: AsyncOpenAI) -> None:
    ids = server.says(THINKS_AND_CALLS)
    done: list[str | None] = []
    async with client.responses.stream(model="tiny", input="hello", tools=[READ]) as stream:
        async for event in stream:
            if event.type == "response.output_item.done":
                done.append(event.item.id)
        answer = await stream.get_final_response()
    (turn,) = server.book.turns
    assert done == _names(answer)
    thought, said, one, two = answer.output
    assert thought.type == "reasoning" and thought.content is not None
    assert thought.content[0].text == "first the file" and thought.id == f"rs_{turn.id}"
    assert said.type == "message" and answer.output_text == "I read it."
    assert one.type == "function_call" and one.name == "read" and one.arguments == '{"path": "a ü"}'
    assert two.type == "function_call" and two.arguments == '{"path": "b"}'
    assert [one.call_id, two.call_id] == [call.id for call in turn.reply.tool_calls]
    assert answer.usage is not None and answer.usage.output_tokens == len(ids)
    fetched = (await client.responses.retrieve(answer.id)).to_dict()
    assert {**fetched, "output": []} == {**answer.to_dict(), "output": []}
    items = fetched["output"]
    assert isinstance(items, list)
    assert [item["id"] for item in items] == done


async def test_whole_and_streamed_responses_have_the_same_output(server: Serving, client: AsyncOpenAI) -> None:
    outputs = []
    for is_streamed in (False, True):
        server.says(THINKS_AND_CALLS)
        if is_streamed:
            async with client.responses.stream(model="tiny", input="hello", tools=[READ]) as stream:
                answer: Response = await stream.get_final_response()
        else:
            answer = await client.responses.create(model="tiny", input="hello", tools=[READ])
        turn = server.book.turns[-1]
        call = turn.reply.tool_calls[0].id.removesuffix("0")
        told = [item.to_dict() for item in answer.output]
        for item in told:
            item.pop("parsed_arguments", None)
        outputs.append(str(told).replace(turn.id, "TURN").replace(call, "CALL").replace(", 'parsed': None", ""))
    assert outputs[0] == outputs[1]


async def test_two_calls_are_answered_and_the_loop_goes_on_from_the_served_ids(
    server: Serving, client: AsyncOpenAI
) -> None:
    server.says(THINKS_AND_CALLS)
    talk: ResponseInputParam = [{"role": "user", "content": "hello"}]
    answer = await client.responses.create(model="tiny", input=talk, tools=[READ])
    (first,) = server.book.turns
    talk += [item.to_dict() for item in answer.output]  # type: ignore[misc]
    calls = [item for item in answer.output if item.type == "function_call"]
    talk.append({"type": "function_call_output", "call_id": calls[0].call_id, "output": "A"})
    parts: object = [{"type": "input_text", "text": "B"}]
    talk.append({"type": "function_call_output", "call_id": calls[1].call_id, "output": parts})  # type: ignore[typeddict-item]
    server.says("done")
    await client.responses.create(model="tiny", input=talk, tools=[READ])
    second = server.book.turns[1]
    assert [item.role.value for item in second.messages] == ["user", "assistant", "tool", "tool"]
    assert [item.tool_call_id for item in second.messages[2:]] == [call.call_id for call in calls]
    assert second.messages[1].reasoning == "first the file" and len(second.messages[1].tool_calls) == 2
    served = (*first.prompt.tokens, *first.completion.tokens)
    assert second.prompt.tokens[: len(served)] == served and second.prompt.continued == len(served)


async def test_a_response_goes_on_from_the_one_it_names_without_its_instructions(
    server: Serving, client: AsyncOpenAI
) -> None:
    server.says("one")
    first = await client.responses.create(model="tiny", input="hello", instructions="Be kind.")
    server.says("two")
    second = await client.responses.create(
        model="tiny", input="and?", instructions="Be brief.", previous_response_id=first.id
    )
    server.says("three")
    await client.responses.create(model="tiny", input="last", previous_response_id=second.id)
    read = [[(item.role.value, item.text) for item in turn.messages] for turn in server.book.turns]
    talk = [("user", "hello"), ("assistant", "one"), ("user", "and?")]
    assert read[1] == [("system", "Be brief."), *talk]
    assert read[2] == [*talk, ("assistant", "two"), ("user", "last")]
    assert second.previous_response_id == first.id and second.instructions == "Be brief."
    assert server.book.arrivals[1].facts["previous_response_id"] == first.id


async def test_items_named_by_id_are_those_that_were_served(server: Serving, client: AsyncOpenAI) -> None:
    server.says(THINKS_AND_CALLS)
    answer = await client.responses.create(model="tiny", input="hello", tools=[READ])
    (first,) = server.book.turns
    talk: list[Mapping[str, object]] = [{"role": "user", "content": "hello"}]
    talk += [{"type": "item_reference", "id": item.id} for item in answer.output]
    talk += [{"type": "function_call_output", "call_id": call.id, "output": ""} for call in first.reply.tool_calls]
    server.says("done")
    await client.responses.create(model="tiny", input=talk, tools=[READ])  # type: ignore[arg-type]
    assert server.book.turns[1].messages[1] == first.reply
    with pytest.raises(NotFoundError, match="not known here"):
        unknown: object = [{"type": "item_reference", "id": f"msg_{'0' * 32}"}]
        await client.responses.create(model="tiny", input=unknown)  # type: ignore[arg-type]


@pytest.mark.parametrize("given", ["resp_nothing", "nothing", f"resp_{'0' * 32}", "resp_"])
async def test_a_response_nobody_gave_is_not_found(server: Serving, client: AsyncOpenAI, given: str) -> None:
    with pytest.raises(NotFoundError) as caught:
        await client.responses.create(model="tiny", input="x", previous_response_id=given)
    assert (caught.value.code, caught.value.param) == ("previous_response_not_found", "previous_response_id")
    with pytest.raises(NotFoundError):
        await client.responses.retrieve(given)
    assert not server.engine.asked


async def test_a_response_that_was_not_to_be_stored_is_not_given_again(server: Serving, client: AsyncOpenAI) -> None:
    server.says("one")
    answer = await client.responses.create(model="tiny", input="hello", store=False)
    assert answer.model_extra is not None and answer.model_extra["store"] is False
    for ask in (
        client.responses.retrieve(answer.id),
        client.responses.create(model="tiny", input="x", previous_response_id=answer.id),
    ):
        with pytest.raises(NotFoundError):
            await ask
    assert len(server.book.turns) == 1  # what is learned from is the ledger's, whatever the client may fetch


async def test_nobody_reads_or_continues_somebody_elses_response(renderer: ChatRenderer, store: Store) -> None:
    async with serving(renderer, store, keys={"alice": "secret", "bob": "other"}) as server:
        server.says("one")
        async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key="secret", max_retries=0) as alice:
            answer = await alice.responses.create(model="tiny", input="hello")
        async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key="other", max_retries=0) as bob:
            refers: object = [{"type": "item_reference", "id": answer.output[0].id}]
            for ask in (
                bob.responses.retrieve(answer.id),
                bob.responses.input_items.list(answer.id),
                bob.responses.create(model="tiny", input="x", previous_response_id=answer.id),
                bob.responses.create(model="tiny", input=refers),  # type: ignore[arg-type]
            ):
                with pytest.raises(NotFoundError):
                    await ask
        assert len(server.engine.asked) == 1


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_a_limit_makes_the_response_and_its_last_item_incomplete(
    server: Serving, client: AsyncOpenAI, is_streamed: bool
) -> None:
    server.says("hello there")
    if is_streamed:
        stream = await client.responses.create(model="tiny", input="hello", max_output_tokens=2, stream=True)
        last = [event async for event in stream][-1]
        assert last.type == "response.incomplete"
        answer = last.response
    else:
        answer = await client.responses.create(model="tiny", input="hello", max_output_tokens=2)
    assert answer.status == "incomplete" and answer.incomplete_details is not None
    assert answer.incomplete_details.reason == "max_output_tokens"
    assert [item.status for item in answer.output if item.type == "message"] == ["incomplete"]
    assert len(server.book.turns[0].completion.tokens) == 2 and answer.output_text
    assert (await client.responses.retrieve(answer.id)).status == "incomplete"


async def test_a_stream_is_live_and_its_end_is_held_until_the_turn_is_stored(
    server: Serving, client: AsyncOpenAI
) -> None:
    server.book.may_commit.clear()
    server.says("hello there", waits_at=1)
    stream = await client.responses.create(model="tiny", input="hello", stream=True)
    events = aiter(stream)
    kinds = [(await anext(events)).type for _ in range(5)]  # the engine still waits in front of its second token
    assert kinds[-1] == "response.output_text.delta"
    assert (await server.stored_before_the_end(events))[-1] == "response.completed"


async def test_a_client_that_goes_away_frees_the_engine_and_leaves_a_cancelled_turn(
    server: Serving, client: AsyncOpenAI
) -> None:
    ids = server.says("hello there", waits_at=2)
    stream = await client.responses.create(model="tiny", input="hello", stream=True)
    await anext(aiter(stream))
    await stream.close()
    turn = await server.book.committed.get()
    assert turn.completion.finish is Finish.CANCELLED and turn.completion.tokens == ids[:2]
    assert await server.given.get() == 2
    assert (await client.responses.retrieve(f"resp_{turn.id}")).status == "cancelled"


async def test_an_engine_that_fails_in_a_stream_ends_it_with_an_error_and_a_failed_response(
    server: Serving, client: AsyncOpenAI
) -> None:
    server.says("hello there", waits_at=1, fails_at=2, problem=EngineError("the engine is gone"))
    stream = await client.responses.create(model="tiny", input="hello", stream=True)
    server.engine.go.set()
    told, failed = [event async for event in stream][-2:]
    assert told.type == "error" and told.code == "engine_unavailable" and "the engine is gone" in told.message
    assert failed.type == "response.failed" and failed.sequence_number == told.sequence_number + 1
    assert failed.response.status == "failed" and failed.response.error is not None
    assert "the engine is gone" in failed.response.error.message and not server.book.turns


async def test_text_behind_a_call_is_an_item_of_its_own_and_comes_back_as_one_message(
    server: Serving, client: AsyncOpenAI
) -> None:
    server.says('a<tool_call>\n{"name": "read", "arguments": {}}\n</tool_call>b')
    async with client.responses.stream(model="tiny", input="hello", tools=[READ]) as stream:
        answer = await stream.get_final_response()
    assert [item.type for item in answer.output] == ["message", "function_call", "message"]
    assert len(set(_names(answer))) == 3
    (first,) = server.book.turns
    server.says("done")
    await client.responses.create(
        model="tiny",
        input=[{"role": "user", "content": "hello"}, *(item.to_dict() for item in answer.output)],  # type: ignore[list-item]
        tools=[READ],
    )
    again = server.book.turns[1]
    assert again.messages[1].text == "ab" and again.prompt.continued >= len(first.prompt) + len(first.completion.tokens)
