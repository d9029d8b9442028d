"""openai-agents: an agent with tools over responses and over chat, a hand-off, a structured answer."""

from __future__ import annotations

import asyncio

from agents import (
    Agent,
    AsyncOpenAI,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    SQLiteSession,
    function_tool,
    set_tracing_disabled,
)
from persons import Person
from talking import (
    API_KEY,
    BASE_URL,
    PLAIN_TALK,
    WEATHER_TALK,
    call,
    note,
    note_image,
    note_weather,
    picture,
    play,
    say,
    slow,
    too_long,
    wait_quiet,
    weather,
)

set_tracing_disabled(True)
client = AsyncOpenAI(base_url=f"{BASE_URL}/v1", api_key=API_KEY, max_retries=0)
LOOP = asyncio.new_event_loop()
CHAT = OpenAIChatCompletionsModel(model="default", openai_client=client)
RESPONSES = OpenAIResponsesModel(model="default", openai_client=client)


@function_tool(strict_mode=False)
def get_weather(city: str) -> str:
    """The weather of a city."""
    return weather(city)


def run(agent: Agent, text: object, session: SQLiteSession | None = None) -> object:
    return LOOP.run_until_complete(Runner.run(agent, text, session=session)).final_output


def talk(model: object, name: str) -> None:
    agent = Agent(name="Helper", instructions="You help.", model=model)
    session = SQLiteSession(name)
    texts = [run(agent, say(kind, words), session) for kind, words in PLAIN_TALK]
    note("runs", texts == [words for _, words in PLAIN_TALK], texts)


def plain_chat() -> None:
    talk(CHAT, "a")


def plain_responses() -> None:
    talk(RESPONSES, "b")


def streamed() -> None:
    agent, session = Agent(name="Helper", model=RESPONSES), SQLiteSession("c")

    async def listen(text: str) -> int:
        result, pieces = Runner.run_streamed(agent, text, session=session), 0
        async for event in result.stream_events():
            pieces += event.type == "raw_response_event" and event.data.type == "response.output_text.delta"
        return pieces

    for kind, words in (("ask", "Seven is the number here."), ("correction", "Seven it is then.")):
        pieces = LOOP.run_until_complete(listen(say(kind, words)))
        note("streams", pieces > 2, pieces)


def tools_of(model: object, name: str) -> None:
    agent, session = Agent(name="Helper", model=model, tools=[get_weather]), SQLiteSession(name)
    note_weather([run(agent, say(kind, *replies), session) for kind, *replies in WEATHER_TALK])


def tools_chat() -> None:
    tools_of(CHAT, "d")


def tools_responses() -> None:
    tools_of(RESPONSES, "e")


def handoff() -> None:
    other = Agent(name="Poet", instructions="You rhyme.", model=CHAT)
    agent, session = Agent(name="Helper", model=CHAT, handoffs=[other]), SQLiteSession("f")
    first = run(agent, say("ask", call("transfer_to_poet"), "Stone, alone."), session)
    second = run(other, say("correction", "Alone."), session)
    note("handoff", (first, second) == ("Stone, alone.", "Alone."), [first, second])


def structured_chat() -> None:
    agent = Agent(name="Helper", model=CHAT, output_type=Person)
    note("structured", run(agent, say("ask", '{"name": "Ada", "age": 36}')) == Person(name="Ada", age=36))


def structured_responses() -> None:
    agent = Agent(name="Helper", model=RESPONSES, output_type=Person)
    note("structured", run(agent, say("ask", '{"name": "Ada", "age": 36}')) == Person(name="Ada", age=36))


def image() -> None:
    parts = [
        {"type": "input_text", "text": say("look", "I cannot see.")},
        {"type": "input_image", "image_url": picture()},
    ]
    note_image(lambda: run(Agent(name="Helper", model=RESPONSES), [{"role": "user", "content": parts}]))


def overflow() -> None:
    agent, session = Agent(name="Helper", model=CHAT), SQLiteSession("g")
    run(agent, say("ask", "Short."), session)
    too_long(lambda text: run(agent, text, session))
    note("overflow", run(agent, say("correction", "Shorter."), session) == "Shorter.")


def cancelled() -> None:
    agent, session = Agent(name="Helper", model=CHAT), SQLiteSession("h")
    run(agent, say("ask", "First."), session)

    async def leave(text: str) -> None:
        result = Runner.run_streamed(agent, text, session=session)
        heard = 0
        async for event in result.stream_events():
            heard += event.type == "raw_response_event"
            if heard > 6:
                result.cancel()
                break

    with slow():
        LOOP.run_until_complete(leave(say("tell", "Once upon a time there was a lighthouse. " * 6)))
        wait_quiet()
    note("cancelled", run(agent, say("on", "Hello."), session) == "Hello.")


play(plain_chat, plain_responses, streamed, tools_chat, tools_responses, handoff, structured_chat, structured_responses)
play(image, overflow, cancelled)
