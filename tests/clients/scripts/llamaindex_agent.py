"""LlamaIndex: chat engines, agents with tools, retrieved context around the question, structured answers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

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
    texts = [str(engine.chat(say(kind, words))) for kind, words in PLAIN_TALK]
    note("runs", texts == [words for _, words in PLAIN_TALK], texts)


def streamed() -> None:
    engine = SimpleChatEngine.from_defaults(llm=llm)
    for kind, words in (("ask", "Seven is the number here."), ("correction", "Seven it is then.")):
        pieces = list(engine.stream_chat(say(kind, words)).response_gen)
        note("streams", "".join(pieces).strip() == words and len(pieces) > 2, len(pieces))


def talk(agent: object, told: Sequence[tuple]) -> list[str]:
    async def go_on() -> list:
        context = Context(agent)
        return [str(await agent.run(say(kind, *replies), ctx=context)) for kind, *replies in told]

    return asyncio.run(go_on())


def tools() -> None:
    note_weather(talk(FunctionAgent(tools=[get_weather], llm=llm, system_prompt="You help."), WEATHER_TALK))


def tools_malformed() -> None:
    told = [("ask", call("no_such_tool", a=1), "I used the wrong tool."), ("correction", "Never mind it.")]
    texts = talk(FunctionAgent(tools=[get_weather], llm=llm), told)
    note("malformed", texts[1:] == ["Never mind it."], texts)


def react() -> None:
    act = 'Thought: I look it up.\nAction: get_weather\nAction Input: {"city": "Oslo"}'
    told = [("ask", act, "Thought: I know.\nAnswer: Rain."), ("correction", "Thought: Shorter.\nAnswer: Wet.")]
    texts = talk(ReActAgent(tools=[get_weather], llm=llm), told)
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
    note_image(lambda: llm.chat([ChatMessage(role="user", blocks=blocks)]))


def overflow() -> None:
    engine = SimpleChatEngine.from_defaults(llm=llm)
    engine.chat(say("ask", "Short."))
    too_long(engine.chat)
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
