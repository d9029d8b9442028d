"""pydantic-ai: agents with tools over chat and responses, retries, structured outputs in its three ways."""

from __future__ import annotations

import asyncio

from persons import Person
from pydantic_ai import Agent, BinaryContent, ModelRetry, NativeOutput, PromptedOutput, ToolOutput
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider
from talking import (
    API_KEY,
    BASE_URL,
    PLAIN_TALK,
    WEATHER_TALK,
    call,
    note,
    note_image,
    note_weather,
    play,
    red_square,
    say,
    slow,
    too_long,
    wait_quiet,
)
from talking import weather as looked_up

provider = OpenAIProvider(base_url=f"{BASE_URL}/v1", api_key=API_KEY)
CHAT, RESPONSES = OpenAIChatModel("default", provider=provider), OpenAIResponsesModel("default", provider=provider)


def agent_of(model: object) -> Agent:
    agent = Agent(model, instructions="You help.", retries=2)

    @agent.tool_plain
    def get_weather(city: str) -> str:
        """The weather of a city."""
        try:
            return looked_up(city)
        except ValueError as problem:
            raise ModelRetry(str(problem)) from problem

    return agent


def talk(agent: Agent, *told: tuple) -> list:
    history, texts = [], []
    for kind, *replies in told:
        result = agent.run_sync(say(kind, *replies), message_history=history)
        history = result.all_messages()
        texts.append(result.output)
    return texts


def plain() -> None:
    texts = talk(agent_of(CHAT), *PLAIN_TALK)
    note("runs", texts == [words for _, words in PLAIN_TALK], texts)


def plain_responses() -> None:
    texts = talk(agent_of(RESPONSES), ("ask", "It is **nine**!"), ("correction", "It is nine."), ("more", "Ten."))
    note("runs", texts == ["It is **nine**!", "It is nine.", "Ten."], texts)


def streamed() -> None:
    agent = agent_of(CHAT)

    async def listen() -> None:
        history: list = []
        for kind, words in (("ask", "Seven is the number here."), ("correction", "Seven it is then.")):
            async with agent.run_stream(say(kind, words), message_history=history) as result:
                pieces = [each async for each in result.stream_text(delta=True, debounce_by=None)]
            history = result.all_messages()
            note("streams", "".join(pieces) == words and len(pieces) > 2, len(pieces))

    asyncio.run(listen())


def tools_of(model: object) -> None:
    first, (kind, nowhere, said), *others = WEATHER_TALK
    note_weather(talk(agent_of(model), first, (kind, nowhere, call("get_weather", town="x"), said), *others))


def tools_chat() -> None:
    tools_of(CHAT)


def tools_responses() -> None:
    tools_of(RESPONSES)


def structured() -> None:
    ada = Person(name="Ada", age=36)
    made = call("final_result", name="Ada", age=36)
    ways = ((ToolOutput(Person), made), (NativeOutput(Person), '{"name": "Ada", "age": 36}'))
    ways += ((PromptedOutput(Person), '{"name": "Ada", "age": 36}'),)
    for way, reply in ways:
        try:
            note(
                "structured", Agent(CHAT, output_type=way).run_sync(say("ask", reply)).output == ada, type(way).__name__
            )
        except Exception as problem:
            note("structured", False, f"{type(way).__name__}: {problem}")


def structured_corrected() -> None:
    agent = Agent(CHAT, output_type=ToolOutput(Person))
    wrong, right = call("final_result", name="Ada"), call("final_result", name="Ada", age=36)
    result = agent.run_sync(say("ask", wrong, right))
    again = agent.run_sync(
        say("correction", call("final_result", name="ada", age=36)), message_history=result.all_messages()
    )
    note("structured", again.output == Person(name="ada", age=36))


def image() -> None:
    parts = [say("look", "I cannot see."), BinaryContent(red_square(), media_type="image/png")]
    note_image(lambda: Agent(CHAT).run_sync(parts).output)


def overflow() -> None:
    agent = agent_of(CHAT)
    history = agent.run_sync(say("ask", "Short.")).all_messages()
    too_long(lambda text: agent.run_sync(text, message_history=history))
    result = agent.run_sync(say("correction", "Shorter."), message_history=history)
    note("overflow", result.output == "Shorter.")


def cancelled() -> None:
    agent = agent_of(CHAT)
    history = agent.run_sync(say("ask", "First.")).all_messages()

    async def leave() -> None:
        async with agent.run_stream(
            say("tell", "A lighthouse, once upon a time. " * 9), message_history=history
        ) as result:
            async for text in result.stream_text(debounce_by=None):
                if len(text) > 12:
                    break

    with slow():
        asyncio.run(leave())
        wait_quiet()
    note("cancelled", agent.run_sync(say("on", "Hello."), message_history=history).output == "Hello.")


play(
    plain,
    plain_responses,
    streamed,
    tools_chat,
    tools_responses,
    structured,
    structured_corrected,
    image,
    overflow,
    cancelled,
)
