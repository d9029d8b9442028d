"""LangChain and LangGraph: an agent with memory, tools, a summary in place of old messages, structured answers."""

from __future__ import annotations

from langchain.agents import create_agent
from langchain.agents.middleware import SummarizationMiddleware
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from pydantic import BaseModel
from talking import (
    API_KEY,
    BASE_URL,
    BOTH_CITIES,
    PLAIN_TALK,
    WEATHER_TALK,
    call,
    direct,
    note,
    note_image,
    note_weather,
    picture,
    play,
    say,
    slow,
    too_long,
    wait_quiet,
)
from talking import weather as looked_up

model = ChatOpenAI(model="default", base_url=f"{BASE_URL}/v1", api_key=API_KEY, max_retries=0)
responses = ChatOpenAI(
    model="default", base_url=f"{BASE_URL}/v1", api_key=API_KEY, max_retries=0, use_responses_api=True
)
SUMMARY = "The owner asked small things and was answered."


class Person(BaseModel):
    """A person."""

    name: str
    age: int


@tool
def get_weather(city: str) -> str:
    """The weather of a city."""
    try:
        return looked_up(city)
    except ValueError as problem:
        return f"Error: {problem}"


def asked(agent: object, text: object, thread: str) -> str:
    config = {"configurable": {"thread_id": thread}}
    return agent.invoke({"messages": [{"role": "user", "content": text}]}, config)["messages"][-1].text


def agent_of(chat: object, **more: object) -> object:
    return create_agent(chat, tools=[get_weather], checkpointer=InMemorySaver(), system_prompt="You help.", **more)


def plain() -> None:
    messages: list = [("system", "You help.")]
    for kind, words in PLAIN_TALK:
        messages.append(("user", say(kind, words)))
        reply = model.invoke(messages)
        messages.append(reply)
        note("runs", reply.text == words, reply.text)


def streamed() -> None:
    messages: list = []
    for kind, words in (("ask", "Seven is the number here."), ("correction", "Seven it is then.")):
        messages.append(("user", say(kind, words)))
        pieces = [each.text for each in model.stream(messages)]
        messages.append(("assistant", "".join(pieces)))
        note("streams", "".join(pieces) == words and len(pieces) > 2, len(pieces))


def tools_of(chat: object) -> None:
    agent = agent_of(chat)
    note_weather([asked(agent, say(kind, *replies), "t") for kind, *replies in WEATHER_TALK])


def tools_chat() -> None:
    tools_of(model)


def tools_responses() -> None:
    tools_of(responses)


def tools_streamed() -> None:
    agent, config = agent_of(model), {"configurable": {"thread_id": "s"}}
    text = say("ask", BOTH_CITIES, "Fog and snow.")
    pieces = list(agent.stream({"messages": [("user", text)]}, config, stream_mode="messages"))
    note("tools", len(pieces) > 4, len(pieces))
    note("tools", asked(agent, say("correction", "Fog. Snow."), "s") == "Fog. Snow.")


def summed_up() -> None:
    rule = {
        "kind": "summary",
        "where": "any",
        "has": ["Context Extraction Assistant", "extract the most important context"],
    }
    direct("errands", errands=[{**rule, "reply": SUMMARY}])
    agent = agent_of(model, middleware=[SummarizationMiddleware(model, trigger=("messages", 5), keep=("messages", 1))])
    told = [("ask", "One."), ("correction", "Two."), ("more", "Three."), ("correction", "Four."), ("more", "Five.")]
    texts = [asked(agent, say(kind, words), "c") for kind, words in told]
    note("compaction", texts == ["One.", "Two.", "Three.", "Four.", "Five."], texts)


def structured_schema() -> None:
    for method in ("json_schema", "function_calling", "json_mode"):
        reply = '{"name": "Ada", "age": 36}'
        made = call("Person", name="Ada", age=36) if method == "function_calling" else reply
        chat = model.with_structured_output(Person, method=method)
        try:
            note("structured", chat.invoke(say("ask", made, more=" As JSON.")) == Person(name="Ada", age=36), method)
        except Exception as problem:
            note("structured", False, f"{method}: {problem}")


def structured_agent() -> None:
    agent = create_agent(model, tools=[get_weather], response_format=Person)
    text = say("ask", call("Person", name="Ada", age=36), more=" As a person.")
    found = agent.invoke({"messages": [("user", text)]})["structured_response"]
    note("structured", found == Person(name="Ada", age=36), found)


def image() -> None:
    parts = [
        {"type": "text", "text": say("look", "I cannot see.")},
        {"type": "image_url", "image_url": {"url": picture()}},
    ]
    note_image(lambda: model.invoke([{"role": "user", "content": parts}]).text)


def overflow() -> None:
    agent = agent_of(model)
    asked(agent, say("ask", "Short."), "o")
    too_long(lambda text: asked(agent, text, "o"))
    note("overflow", asked(agent, say("correction", "Shorter."), "o") == "Shorter.")


def cancelled() -> None:
    messages: list = [("user", say("ask", "First."))]
    messages.append(model.invoke(messages))
    messages.append(("user", say("tell", "Once upon a time there was a lighthouse. " * 6)))
    heard = ""
    with slow():
        stream = model.stream(messages)
        for piece in stream:
            heard += piece.text
            if len(heard) > 12:
                break
        stream.close()
        wait_quiet()
    messages += [("assistant", heard), ("user", say("on", "Hello."))]
    note("cancelled", model.invoke(messages).text == "Hello.")


play(plain, streamed, tools_chat, tools_responses, tools_streamed, structured_schema, structured_agent, image, overflow)
play(cancelled, summed_up)
