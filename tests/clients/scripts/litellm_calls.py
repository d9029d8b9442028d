"""litellm: completions, responses and messages through it, tools, structured answers."""

from __future__ import annotations

import asyncio
import json

import litellm
from persons import Person
from talking import (
    API_KEY,
    BASE_URL,
    LONG,
    PLAIN_TALK,
    WEATHER_TALK,
    note,
    note_image,
    note_weather,
    picture,
    play,
    say,
    slow,
    small_room,
    wait_quiet,
    weather,
)

litellm.telemetry = False
WAY = {"model": "openai/default", "api_base": f"{BASE_URL}/v1", "api_key": API_KEY, "num_retries": 0}
CLAUDE = {"model": "anthropic/default", "api_base": BASE_URL, "api_key": API_KEY, "num_retries": 0}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
FUNCTION = {"name": "get_weather", "description": "The weather of a city.", "parameters": SCHEMA}
TOOLS = [{"type": "function", "function": FUNCTION}]


def chat(messages: list, text: str, way: dict, **more: object) -> str:
    messages.append({"role": "user", "content": text})
    while True:
        reply = litellm.completion(messages=messages, **way, **more).choices[0].message
        messages.append(reply.model_dump(exclude_none=True))
        if not reply.tool_calls:
            return reply.content or ""
        for each in reply.tool_calls:
            try:
                found = weather(**json.loads(each.function.arguments))
            except ValueError as problem:
                found = f"Error: {problem}"
            messages.append({"role": "tool", "tool_call_id": each.id, "content": found})


def talk(way: dict) -> None:
    messages: list = [{"role": "system", "content": "You help."}]
    for kind, words in PLAIN_TALK:
        text = chat(messages, say(kind, words), way)
        note("runs", text == words, text)


def plain() -> None:
    talk(WAY)


def plain_anthropic() -> None:
    talk(CLAUDE)


def plain_responses() -> None:
    last = None
    for kind, words in (("ask", "It is **nine**!"), ("correction", "It is nine."), ("more", "Ten.")):
        last = litellm.responses(input=say(kind, words), previous_response_id=last and last.id, **WAY)
        text = "".join(part.text for item in last.output if item.type == "message" for part in item.content)
        note("runs", text == words, text)


def streamed_by(way: dict) -> None:
    messages: list = []
    for kind, words in (("ask", "Seven is the number here."), ("correction", "Seven it is then.")):
        messages.append({"role": "user", "content": say(kind, words)})
        stream = litellm.completion(messages=messages, stream=True, **way)
        pieces = [each.choices[0].delta.content or "" for each in stream if each.choices]
        messages.append({"role": "assistant", "content": "".join(pieces)})
        note("streams", "".join(pieces) == words and len(pieces) > 2, len(pieces))


def streamed() -> None:
    streamed_by(WAY)


def streamed_anthropic() -> None:
    streamed_by(CLAUDE)


def tools_of(way: dict) -> None:
    messages: list = []
    note_weather([chat(messages, say(kind, *replies), way, tools=TOOLS) for kind, *replies in WEATHER_TALK])


def tools() -> None:
    tools_of(WAY)


def tools_anthropic() -> None:
    tools_of(CLAUDE)


def structured() -> None:
    messages = [{"role": "user", "content": say("ask", '{"name": "Ada", "age": 36}')}]
    reply = litellm.completion(messages=messages, response_format=Person, **WAY)
    note("structured", Person.model_validate_json(reply.choices[0].message.content).age == 36)


def structured_json() -> None:
    messages = [{"role": "user", "content": say("ask", '{"age": 36}', more=" As JSON.")}]
    reply = litellm.completion(messages=messages, response_format={"type": "json_object"}, **WAY)
    note("structured", json.loads(reply.choices[0].message.content) == {"age": 36})


def image() -> None:
    parts = [
        {"type": "text", "text": say("look", "I cannot see.")},
        {"type": "image_url", "image_url": {"url": picture()}},
    ]
    note_image(lambda: litellm.completion(messages=[{"role": "user", "content": parts}], **WAY))


def overflow() -> None:
    messages: list = []
    chat(messages, say("ask", "Short."), WAY)
    small_room(200)
    try:
        chat(messages, say("long", "Too long.", more=LONG * 40), WAY)
        note("overflow", False, "nothing was said")
    except litellm.ContextWindowExceededError:
        note("overflow", True)
    except Exception as problem:
        note("overflow", False, f"{type(problem).__name__}: {problem}")
    small_room(0)
    messages.pop()
    note("overflow", chat(messages, say("correction", "Shorter."), WAY) == "Shorter.")


def cancelled() -> None:
    messages: list = []
    chat(messages, say("ask", "First."), WAY)
    messages.append({"role": "user", "content": say("tell", "Once upon a time there was a lighthouse. " * 6)})
    heard = []

    async def leave() -> None:
        stream = await litellm.acompletion(messages=messages, stream=True, **WAY)
        async for each in stream:
            heard.append(each.choices[0].delta.content or "")
            if len(heard) > 4:
                break
        await stream.completion_stream.close()

    with slow():
        asyncio.run(leave())
        wait_quiet()
    messages.append({"role": "assistant", "content": "".join(heard)})
    note("cancelled", chat(messages, say("on", "Hello."), WAY) == "Hello.", heard)


play(
    plain,
    plain_anthropic,
    plain_responses,
    streamed,
    streamed_anthropic,
    tools,
    tools_anthropic,
    structured,
    structured_json,
    image,
    overflow,
)
play(cancelled)
