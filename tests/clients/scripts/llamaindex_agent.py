"""LlamaIndex: chat engines, agents with tools, retrieved context around the question, structured answers."""

from __future__ import annotations

import asyncio

from llama_index.core.agent.workflow import FunctionAgent, ReActAgent
from llama_index.core.base.llms.types import ChatMessage, ImageBlock, TextBlock
from llama_index.core.chat_engine import SimpleChatEngine
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.core.prompts import PromptTemplate
from llama_index.core.workflow import Context
from llama_index.llms.openai_like import OpenAILike
from pydantic import BaseModel
from talking import (
    API_KEY,
    BASE_URL,
    LONG,
    call,
    calls,
    note,
    play,
    red_square,
    say,
    slow,
    small_room,
    wait_quiet,
    were_asked,
)
from talking import weather as looked_up

llm = OpenAILike(
    model="default",
    api_base=f"{BASE_URL}/v1",
    api_key=API_KEY,
    is_chat_model=True,
    is_function_calling_model=True,
    max_retries=0,
    context_window=1_000_000,
)


class Person(BaseModel):
    """A person."""

    name: str
    age: int


def get_weather(city: str) -> str:
    """The weather of a city."""
    return looked_up(city)


def plain() -> None:
    engine = SimpleChatEngine.from_defaults(llm=llm, system_prompt="You help.")
    told = (("ask", "It is **seven**!"), ("correction", "It is seven."), ("more", "Thirteen."))
    texts = [str(engine.chat(say(kind, words))) for kind, words in told]
    note("runs", texts == [words for _, words in told], texts)


def streamed() -> None:
    engine = SimpleChatEngine.from_defaults(llm=llm)
    for kind, words in (("ask", "Seven is the number here."), ("correction", "Seven it is then.")):
        pieces = list(engine.stream_chat(say(kind, words)).response_gen)
        note("streams", "".join(pieces).strip() == words and len(pieces) > 2, len(pieces))


def tools() -> None:
    both = calls(("get_weather", {"city": "Bergen"}), ("get_weather", {"city": "Turku"}))
    told = [("ask", call("get_weather", city="Oslo"), "Rain in Oslo.")]
    told.append(("more", call("get_weather", city="Atlantis"), "There is no such place."))
    told += [("more", both, "Fog and snow."), ("correction", "Six and minus one.")]

    async def talk() -> list:
        agent = FunctionAgent(tools=[get_weather], llm=llm, system_prompt="You help.")
        context = Context(agent)
        return [str(await agent.run(say(kind, *replies), ctx=context)) for kind, *replies in told]

    texts = asyncio.run(talk())
    is_right = were_asked("Oslo", "Atlantis", "Bergen", "Turku")
    note(
        "tools",
        is_right and texts[2:] == ["Fog and snow.", "Six and minus one."],
        f"{texts}, right arguments: {is_right}",
    )


def tools_malformed() -> None:
    async def talk() -> list:
        agent = FunctionAgent(tools=[get_weather], llm=llm)
        context = Context(agent)
        told = [("ask", call("no_such_tool", a=1), "I used the wrong tool."), ("correction", "Never mind it.")]
        return [str(await agent.run(say(kind, *replies), ctx=context)) for kind, *replies in told]

    texts = asyncio.run(talk())
    note("malformed", texts[1:] == ["Never mind it."], texts)


def react() -> None:
    act = 'Thought: I look it up.\nAction: get_weather\nAction Input: {"city": "Oslo"}'

    async def talk() -> list:
        agent = ReActAgent(tools=[get_weather], llm=llm)
        context = Context(agent)
        told = [("ask", act, "Thought: I know.\nAnswer: Rain."), ("correction", "Thought: Shorter.\nAnswer: Wet.")]
        return [str(await agent.run(say(kind, *replies), ctx=context)) for kind, *replies in told]

    texts = asyncio.run(talk())
    note("tools", texts == ["Rain.", "Wet."], texts)


def retrieved() -> None:
    """What a chat over documents does: the newest question stands among what was found, in history it stands alone."""
    prompt = PromptTemplate(
        "Context information is below.\n-----\n{found}\n-----\nGiven the context, answer: {asked}\n"
    )
    memory = ChatMemoryBuffer.from_defaults(llm=llm)
    for kind, words in (("ask", "Four of them."), ("correction", "4."), ("more", "5.")):
        text = say(kind, words)
        asked = ChatMessage(role="user", content=prompt.format(found="notes.txt: apples 3, pears 4", asked=text))
        reply = llm.chat([*memory.get(), asked])
        memory.put(ChatMessage(role="user", content=text))
        memory.put(reply.message)
        note("runs", reply.message.content == words)


def structured() -> None:
    ada = Person(name="Ada", age=36)
    found = llm.as_structured_llm(Person).complete(say("ask", call("Person", name="Ada", age=36))).raw
    note("structured", found == ada, found)


def structured_predicted() -> None:
    prompt = PromptTemplate("{asked}")
    found = llm.structured_predict(Person, prompt, asked=say("ask", call("Person", name="Ada", age=36)))
    note("structured", found == Person(name="Ada", age=36), found)


def image() -> None:
    blocks = [TextBlock(text=say("look", "I cannot see.")), ImageBlock(image=red_square(), image_mimetype="image/png")]
    try:
        note("image", True, llm.chat([ChatMessage(role="user", blocks=blocks)]))
    except Exception as problem:
        note("image", "image" in str(problem), problem)


def overflow() -> None:
    engine = SimpleChatEngine.from_defaults(llm=llm)
    engine.chat(say("ask", "Short."))
    small_room(200)
    try:
        engine.chat(say("long", "Too long.", more=LONG * 40))
        note("overflow", False, "nothing was said")
    except Exception as problem:
        note("overflow", "context" in str(problem), problem)
    small_room(0)
    note("overflow", str(engine.chat(say("correction", "Shorter."))) == "Shorter.")


def cancelled() -> None:
    messages = [ChatMessage(role="user", content=say("ask", "First."))]
    messages.append(llm.chat(messages).message)
    messages.append(ChatMessage(role="user", content=say("tell", "Once upon a time there was a lighthouse. " * 6)))
    heard = ""
    with slow():
        stream = llm.stream_chat(messages)
        for piece in stream:
            heard += piece.delta or ""
            if len(heard) > 12:
                break
        stream.close()
        wait_quiet()
    messages += [ChatMessage(role="assistant", content=heard), ChatMessage(role="user", content=say("on", "Hello."))]
    note("cancelled", llm.chat(messages).message.content == "Hello.")


play(
    plain,
    streamed,
    tools,
    tools_malformed,
    react,
    retrieved,
    structured,
    structured_predicted,
    image,
    overflow,
    cancelled,
)
