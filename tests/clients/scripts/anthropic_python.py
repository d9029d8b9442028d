"""The official anthropic library for Python: messages, streams, tools, counting, structured answers."""

from __future__ import annotations

import base64

import anthropic
from persons import Person
from talking import (
    API_KEY,
    BASE_URL,
    LONG,
    PLAIN_TALK,
    call,
    calls,
    note,
    note_image,
    play,
    red_square,
    say,
    slow,
    small_room,
    wait_quiet,
    weather,
)

client = anthropic.Anthropic(base_url=BASE_URL, api_key=API_KEY, max_retries=0)
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = [{"name": "get_weather", "description": "The weather of a city.", "input_schema": SCHEMA}]


def chat(messages: list, text: object, **more: object) -> str:
    messages.append({"role": "user", "content": text})
    while True:
        reply = client.messages.create(model="default", max_tokens=500, messages=messages, **more)
        messages.append(
            {"role": "assistant", "content": [each.model_dump(exclude_none=True) for each in reply.content]}
        )
        made = [each for each in reply.content if each.type == "tool_use"]
        if not made:
            return "".join(each.text for each in reply.content if each.type == "text")
        messages.append({"role": "user", "content": [ran(each) for each in made]})


def ran(made: object) -> dict:
    try:
        return {"type": "tool_result", "tool_use_id": made.id, "content": weather(**made.input)}
    except ValueError as problem:
        return {"type": "tool_result", "tool_use_id": made.id, "content": str(problem), "is_error": True}


def plain() -> None:
    messages: list = []
    texts = [chat(messages, say(kind, words), system="You are a helpful assistant.") for kind, words in PLAIN_TALK]
    note("runs", texts == [words for _, words in PLAIN_TALK], texts)


def streamed() -> None:
    messages: list = []
    for kind, words in (
        ("ask", "Seven is the number you want."),
        ("correction", "Seven is it."),
        ("more", "Eight then."),
    ):
        messages.append({"role": "user", "content": say(kind, words)})
        with client.messages.stream(model="default", max_tokens=500, messages=messages) as stream:
            pieces = list(stream.text_stream)
        messages.append({"role": "assistant", "content": "".join(pieces)})
        note("streams", "".join(pieces) == words and len(pieces) > 2, len(pieces))


def tools() -> None:
    messages: list = []
    chat(messages, say("ask", call("get_weather", city="Oslo"), "Rain in Oslo."), tools=TOOLS)
    chat(messages, say("more", call("get_weather", city="Atlantis"), "There is no such place."), tools=TOOLS)
    both = calls(("get_weather", {"city": "Bergen"}), ("get_weather", {"city": "Nowhere"}))
    text = chat(messages, say("more", {**both, "text": "I look at both."}, "Fog here, nothing there."), tools=TOOLS)
    last = chat(messages, say("correction", "Six degrees and fog."), tools=TOOLS)
    note("tools", (text, last) == ("Fog here, nothing there.", "Six degrees and fog."), [text, last])


def thinking_tools() -> None:
    messages: list = []
    thought = {"think": "The weather is what they want.", **call("get_weather", city="Porto")}
    more = {"tools": TOOLS, "thinking": {"type": "enabled", "budget_tokens": 1024}}
    chat(messages, say("ask", thought, {"think": "It is there.", "text": "Sun in Porto."}), **more)
    text = chat(messages, say("correction", {"think": "Shorter.", "text": "Sun."}), **more)
    note("tools", text == "Sun.", text)


def structured() -> None:
    text = say("ask", '{"name": "Ada", "age": 36}', more=" As a record.")
    messages = [{"role": "user", "content": text}]
    reply = client.messages.parse(model="default", max_tokens=200, messages=messages, output_format=Person)
    note("structured", reply.parsed_output == Person(name="Ada", age=36))


def structured_tool() -> None:
    for choice in ({"type": "any"}, {"type": "tool", "name": "get_weather"}):
        messages = [{"role": "user", "content": say("ask", call("get_weather", city="Porto"), more=" Use the tool.")}]
        reply = client.messages.create(
            model="default", max_tokens=200, messages=messages, tools=TOOLS, tool_choice=choice
        )
        note("structured", reply.stop_reason == "tool_use", choice)


def image() -> None:
    source = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(red_square()).decode()}
    parts = [{"type": "image", "source": source}, {"type": "text", "text": say("look", "I cannot see pictures.")}]
    note_image(lambda: chat([], parts), refusal=anthropic.BadRequestError)


def image_of_tool() -> None:
    messages: list = []
    source = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(red_square()).decode()}
    messages.append({"role": "user", "content": say("look", call("get_weather", city="Oslo"), "A picture of rain.")})
    reply = client.messages.create(model="default", max_tokens=200, messages=messages, tools=TOOLS)
    messages.append({"role": "assistant", "content": [each.model_dump(exclude_none=True) for each in reply.content]})
    given = [{"type": "text", "text": "the radar"}, {"type": "image", "source": source}]
    result = {"type": "tool_result", "tool_use_id": reply.content[-1].id, "content": given}
    chat(messages, [result], tools=TOOLS)
    note("image", chat(messages, say("correction", "Rain."), tools=TOOLS) == "Rain.")


def overflow() -> None:
    messages: list = []
    chat(messages, say("ask", "A short answer."))
    small_room(300)
    try:
        chat(messages, say("long", "Too long.", more=LONG * 60))
        note("overflow", False, "nothing was said")
    except anthropic.BadRequestError as problem:
        note("overflow", "prompt is too long:" in str(problem), problem)
    small_room(0)
    messages.pop()
    note("overflow", chat(messages, say("correction", "A shorter answer.")) == "A shorter answer.")


def counted() -> None:
    messages = [{"role": "user", "content": "Hello"}]
    note("counting", client.messages.count_tokens(model="default", messages=messages).input_tokens > 0)


def cancelled() -> None:
    messages: list = []
    chat(messages, say("ask", "First things first."))
    messages.append({"role": "user", "content": say("tell", "Once upon a time there was a lighthouse. " * 6)})
    heard = ""
    with slow():
        with client.messages.stream(model="default", max_tokens=500, messages=messages) as stream:
            for piece in stream.text_stream:
                heard += piece
                if len(heard) > 12:
                    break
        wait_quiet()
    messages.append({"role": "assistant", "content": heard.strip()})
    note("cancelled", chat(messages, say("on", "Hello.")) == "Hello.", heard)


play(
    plain,
    streamed,
    tools,
    thinking_tools,
    structured,
    structured_tool,
    image,
    image_of_tool,
    overflow,
    counted,
    cancelled,
)
