"""The official openai library for Python: chat completions, responses, tools, structured answers."""

from __future__ import annotations

import json

import openai
from persons import Person
from talking import (
    API_KEY,
    BASE_URL,
    LONG,
    call,
    calls,
    note,
    note_image,
    picture,
    play,
    say,
    slow,
    small_room,
    wait_quiet,
    weather,
)

client = openai.OpenAI(base_url=f"{BASE_URL}/v1", api_key=API_KEY, max_retries=0)
TOOL = {
    "name": "get_weather",
    "description": "The weather of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
CHAT_TOOLS = [{"type": "function", "function": TOOL}]
RESPONSE_TOOLS = [{"type": "function", **TOOL, "strict": False}]


def chat(messages: list, text: str, **more: object) -> str:
    messages.append({"role": "user", "content": text})
    return go_on(messages, **more)


def go_on(messages: list, **more: object) -> str:
    while True:
        reply = client.chat.completions.create(model="default", messages=messages, **more).choices[0].message
        messages.append(reply.model_dump(exclude_none=True))
        if not reply.tool_calls:
            return reply.content or ""
        for each in reply.tool_calls:
            messages.append({"role": "tool", "tool_call_id": each.id, "content": ran(each.function.arguments)})


def ran(arguments: str) -> str:
    try:
        return weather(**json.loads(arguments))
    except ValueError as problem:
        return f"Error: {problem}"


def plain_chat() -> None:
    messages = [{"role": "system", "content": "You are a helpful assistant."}]
    first = chat(messages, say("ask", "It is **seven**, of course!"))
    second = chat(messages, say("correction", "It is seven."))
    third = chat(messages, say("more", "Thirteen."))
    note("runs", (first, second, third) == ("It is **seven**, of course!", "It is seven.", "Thirteen."), third)


def streamed_chat() -> None:
    messages: list = []
    for kind, words in (("ask", "Seven is the number you want."), ("correction", "Seven is it.")):
        messages.append({"role": "user", "content": say(kind, words)})
        stream = client.chat.completions.create(
            model="default", messages=messages, stream=True, stream_options={"include_usage": True}
        )
        pieces = [each.choices[0].delta.content or "" for each in stream if each.choices]
        messages.append({"role": "assistant", "content": "".join(pieces)})
        note("streams", "".join(pieces) == words and len(pieces) > 2, len(pieces))


def tools_chat() -> None:
    messages: list = [{"role": "system", "content": "Use the tools."}]
    chat(messages, say("ask", call("get_weather", city="Oslo"), "Rain in Oslo."), tools=CHAT_TOOLS)
    chat(messages, say("more", call("get_weather", city="Atlantis"), "There is no such place."), tools=CHAT_TOOLS)
    both = calls(("get_weather", {"city": "Bergen"}), ("get_weather", {"city": "Turku"}))
    text = chat(messages, say("more", both, "Fog here, snow there."), tools=CHAT_TOOLS)
    chat(messages, say("correction", "Six degrees here, minus one there."), tools=CHAT_TOOLS)
    results = [item["content"] for item in messages if item["role"] == "tool"]
    note("tools", text == "Fog here, snow there." and len(results) == 4 and results[1].startswith("Error"), results)


def structured_chat() -> None:
    messages = [{"role": "user", "content": say("ask", '{"name": "Ada", "age": 36}', more=" As a record.")}]
    reply = client.chat.completions.parse(model="default", messages=messages, response_format=Person)
    note("structured", reply.choices[0].message.parsed == Person(name="Ada", age=36))
    messages.append({"role": "assistant", "content": reply.choices[0].message.content})
    messages.append({"role": "user", "content": say("correction", '{"name": "Ada", "age": 37}')})
    reply = client.chat.completions.parse(model="default", messages=messages, response_format=Person)
    note("structured", reply.choices[0].message.parsed == Person(name="Ada", age=37))


def structured_forced() -> None:
    messages = [{"role": "user", "content": say("ask", call("get_weather", city="Porto"), more=" Use the tool.")}]
    named = {"type": "function", "function": {"name": "get_weather"}}
    for choice in ("required", named):
        reply = client.chat.completions.create(model="default", messages=messages, tools=CHAT_TOOLS, tool_choice=choice)
        made = reply.choices[0].message.tool_calls or []
        note("structured", [each.function.name for each in made] == ["get_weather"], f"tool_choice {choice}")
        messages = [
            {"role": "user", "content": say("ask", call("get_weather", city="Oslo"), more=" The tool, please.")}
        ]


def image_chat() -> None:
    text = say("look", "I cannot see pictures.")
    parts = [{"type": "text", "text": text}, {"type": "image_url", "image_url": {"url": picture()}}]
    messages = [{"role": "user", "content": parts}]
    note_image(lambda: go_on(messages), refusal=openai.BadRequestError)


def overflow_chat() -> None:
    messages: list = []
    chat(messages, say("ask", "A short answer."))
    small_room(300)
    try:
        chat(messages, say("long", "Too long.", more=LONG * 60))
        note("overflow", False, "nothing was said")
    except openai.BadRequestError as problem:
        note("overflow", problem.code == "context_length_exceeded", problem)
    small_room(0)
    messages[-1] = {"role": "user", "content": say("correction", "A shorter answer.")}
    note("overflow", go_on(messages) == "A shorter answer.")


def cancelled_chat() -> None:
    messages: list = []
    chat(messages, say("ask", "First things first."))
    messages.append({"role": "user", "content": say("tell", "Once upon a time there was a lighthouse. " * 6)})
    heard = ""
    with slow():
        stream = client.chat.completions.create(model="default", messages=messages, stream=True)
        for chunk in stream:
            heard += chunk.choices[0].delta.content or ""
            if len(heard) > 12:
                break
        stream.close()
        wait_quiet()
    messages.append({"role": "assistant", "content": heard})
    note("cancelled", chat(messages, say("on", "Hello.")) == "Hello.", heard)


def plain_responses() -> None:
    first = client.responses.create(model="default", input=say("ask", "It is **seven**."), instructions="Be brief.")
    text = say("correction", "It is seven.")
    second = client.responses.create(model="default", input=text, previous_response_id=first.id)
    third = client.responses.create(
        model="default", input=say("more", "Thirteen it is."), previous_response_id=second.id
    )
    note("runs", (first.output_text, second.output_text, third.output_text)[1:] == ("It is seven.", "Thirteen it is."))


def streamed_responses() -> None:
    items: list = []
    for kind, words in (("ask", "**Nine** of them."), ("correction", "Nine of them."), ("more", "Ten.")):
        items.append({"role": "user", "content": say(kind, words)})
        with client.responses.stream(model="default", input=items, store=False) as stream:
            pieces = [each.delta for each in stream if each.type == "response.output_text.delta"]
            final = stream.get_final_response()
        items += [each.model_dump(exclude_none=True) for each in final.output]
        note("streams", "".join(pieces) == words, len(pieces))


def responses_tools() -> None:
    both = calls(("get_weather", {"city": "Bergen"}), ("get_weather", {"city": "Nowhere"}))
    items: list = [{"role": "user", "content": say("ask", both, "Fog; and I found no second one.")}]
    for kind in ("", "correction"):
        if kind:
            items.append({"role": "user", "content": say(kind, "Six degrees and fog.")})
        while True:
            reply = client.responses.create(model="default", input=items, tools=RESPONSE_TOOLS, store=False)
            items += [each.model_dump(exclude_none=True) for each in reply.output]
            made = [each for each in reply.output if each.type == "function_call"]
            for each in made:
                items.append({"type": "function_call_output", "call_id": each.call_id, "output": ran(each.arguments)})
            if not made:
                break
    note("tools", reply.output_text == "Six degrees and fog.", reply.output_text)


def responses_structured() -> None:
    text = say("ask", '{"name": "Grace", "age": 85}', more=" As a record, please.")
    reply = client.responses.parse(model="default", input=text, text_format=Person)
    note("structured", reply.output_parsed == Person(name="Grace", age=85))


play(
    plain_chat, streamed_chat, tools_chat, structured_chat, structured_forced, image_chat, overflow_chat, cancelled_chat
)
play(plain_responses, streamed_responses, responses_tools, responses_structured)
