"""instructor: records out of text in each of its modes, asked again where they do not fit."""

from __future__ import annotations

import instructor
from instructor import Mode
from openai import OpenAI
from pydantic import BaseModel, field_validator
from talking import API_KEY, BASE_URL, PLAIN_TALK, call, note, note_image, picture, play, say

openai = OpenAI(base_url=f"{BASE_URL}/v1", api_key=API_KEY, max_retries=0)
ADA = '{"name": "Ada", "age": 36}'
YOUNG = '{"name": "Ada", "age": -1}'


class Person(BaseModel):
    name: str
    age: int

    @field_validator("age")
    @classmethod
    def is_born(cls, age: int) -> int:
        """Nobody is younger than nothing."""
        if age < 0:
            raise ValueError("an age is at least 0")
        return age


def of(mode: Mode) -> None:
    client = instructor.from_openai(openai, mode=mode)
    is_tool = mode in (Mode.TOOLS, Mode.TOOLS_STRICT, Mode.PARALLEL_TOOLS)
    reply = call("Person", name="Ada", age=36) if is_tool else f"```json\n{ADA}\n```" if mode is Mode.MD_JSON else ADA
    messages = [{"role": "user", "content": say("ask", reply)}]
    found = client.chat.completions.create(model="default", messages=messages, response_model=Person, max_retries=0)
    note("structured", (found.name, found.age) == ("Ada", 36), mode)
    messages += [
        {"role": "assistant", "content": found.model_dump_json()},
        {"role": "user", "content": say("correction", reply)},
    ]
    found = client.chat.completions.create(model="default", messages=messages, response_model=Person, max_retries=0)
    note("structured", (found.name, found.age) == ("Ada", 36), mode)


def structured_tools() -> None:
    of(Mode.TOOLS)


def structured_strict() -> None:
    of(Mode.TOOLS_STRICT)


def structured_json() -> None:
    of(Mode.JSON)


def structured_schema() -> None:
    of(Mode.JSON_SCHEMA)


def structured_markdown() -> None:
    of(Mode.MD_JSON)


def structured_again() -> None:
    client = instructor.from_openai(openai, mode=Mode.MD_JSON)
    messages = [{"role": "user", "content": say("ask", f"```json\n{YOUNG}\n```", f"```json\n{ADA}\n```")}]
    found = client.chat.completions.create(model="default", messages=messages, response_model=Person, max_retries=2)
    note("structured", found.age == 36, found)


def structured_streamed() -> None:
    client = instructor.from_openai(openai, mode=Mode.MD_JSON)
    messages = [{"role": "user", "content": say("ask", f"```json\n{ADA}\n```")}]
    parts = list(client.chat.completions.create_partial(model="default", messages=messages, response_model=Person))
    note("streams", len(parts) > 2 and parts[-1].age == 36, len(parts))


def structured_retries_by_tool() -> None:
    client = instructor.from_openai(openai, mode=Mode.TOOLS)
    wrong, right = call("Person", name="Ada", age=-1), call("Person", name="Ada", age=36)
    messages = [{"role": "user", "content": say("ask", wrong, right)}]
    found = client.chat.completions.create(model="default", messages=messages, response_model=Person, max_retries=2)
    note("structured", found.age == 36, found)


def plain() -> None:
    client = instructor.from_openai(openai, mode=Mode.TOOLS)
    messages: list = []
    for kind, words in PLAIN_TALK:
        messages.append({"role": "user", "content": say(kind, words)})
        reply = client.chat.completions.create(model="default", messages=messages, response_model=None)
        messages.append({"role": "assistant", "content": reply.choices[0].message.content})
        note("runs", reply.choices[0].message.content == words)


def image() -> None:
    client = instructor.from_openai(openai, mode=Mode.MD_JSON)
    content = [say("look", f"```json\n{ADA}\n```"), instructor.Image.from_base64(picture())]
    messages = [{"role": "user", "content": content}]
    note_image(lambda: client.chat.completions.create(model="default", messages=messages, response_model=Person))


play(
    plain,
    structured_tools,
    structured_strict,
    structured_json,
    structured_schema,
    structured_markdown,
    structured_again,
)
play(structured_streamed, structured_retries_by_tool, image)
