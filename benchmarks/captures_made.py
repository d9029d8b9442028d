"""Traffic with the structure of a dozen clients, in other words and languages, labelled as it is made.

One half is worded as the released clients word their own prompts, around owners and replies in languages that no rule
file knows. The other half is held out: the clients' prompts, tags and reminders are worded otherwise (as by a next
release, or a translation), beside a client that nobody has heard of. It was made after the rules and signs, and these
were not changed by what came out of it.
"""

from __future__ import annotations

import itertools
import random
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.captures_replay import CALL_DIGITS, Labelled
from openclaw_rl.core.message import Json

WORDS = Path(__file__).with_name("captures_words.toml")
AGAIN = ("fi", "id")
CHAT, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/messages", "/v1/responses"
Words = Mapping[str, str]


@dataclass(slots=True)
class Said:
    """One message of a conversation: whose, its text as it stands in history, and as it is sent when it is newest."""

    role: str
    text: str
    sent: str = ""
    call: tuple[str, str, str] | None = None  # id, name, arguments
    answers: str = ""  # the id of the call that a result answers

    def shown(self, *, is_newest: bool) -> str:
        """Its text there."""
        return self.sent if is_newest and self.sent else self.text


@dataclass(slots=True)
class Talk:
    """A conversation as its client keeps it, and the exchanges that came of it."""

    client: str
    name: str
    wire: Callable[[Talk, list[Said], bool], dict[str, Json]]
    path: str
    headers: dict[str, str]
    system: str
    tools: bool
    draw: random.Random
    made: list[Labelled]
    counter: Iterator[int]
    history: list[Said] = field(default_factory=list)
    newest: list[str] = field(default_factory=list)  # what its owner typed and nobody has answered
    last: int | None = None
    is_summed: bool = False

    def asks(self, words: str, *, sent: str = "", text: str = "") -> None:
        """Its owner types something; `sent` is what the client makes of it, `text` how it stands in history."""
        self.newest.append(words)
        self.history.append(Said("user", text or words, sent))

    def notes(self, text: str) -> None:
        """The client says something in its owner's place."""
        self.history.append(Said("user", text))

    def gives(self, text: str, *, as_user: bool = False) -> None:
        """A tool gives something back."""
        call = next((item.call[0] for item in reversed(self.history) if item.call is not None), "")
        self.history.append(Said("user", text) if as_user else Said("tool", text, answers=call))

    def answered(self, text: str, *, kept: str | None = None, call: tuple[str, str] | None = None) -> Labelled:
        """The model's turn; `kept` is the reply as the client keeps it, `call` a tool and its arguments."""
        turn = f"{self.draw.getrandbits(128):032x}"
        reply = text
        if call is not None:
            reply = f'{text}\n<tool_call>\n{{"name": "{call[0]}", "arguments": {call[1]}}}\n</tool_call>'.strip()
        since = list(itertools.takewhile(lambda item: item.role != "assistant", reversed(self.history)))
        has_results = any(
            item.role == "tool" or item.text.startswith(("Observation:", "<returncode>")) for item in since
        )
        label = self._label("main", None, self.wire(self, self.history, self.tools), reply, turn)
        label.words, label.answers = list(self.newest), self.last
        label.has_results, label.after_summary = has_results, self.is_summed
        made = (f"call_{turn[-CALL_DIGITS:]}0", *call) if call is not None else None
        self.history.append(Said("assistant", text if kept is None else kept, call=made))
        self.newest, self.last, self.is_summed = [], label.at, False
        return label

    def errand(
        self, errand: str, said: list[Said], *, system: str | None = None, tools: bool = False, reply: str
    ) -> None:
        """A request of the client's own."""
        own = Talk(**{name: getattr(self, name) for name in self.__slots__})
        own.system = self.system if system is None else system
        self._label("side", errand, self.wire(own, said, tools), reply, f"{self.draw.getrandbits(128):032x}")

    def summed(self, opening: str) -> None:
        """What was said before gives way to a summary."""
        self.history, self.is_summed = [Said("user", opening)], True

    def _label(self, kind: str, errand: str | None, body: dict[str, Json], reply: str, turn: str) -> Labelled:
        label = Labelled(
            client=self.client,
            at=next(self.counter),
            session=self.name,
            kind=kind,
            errand=errand,
            words=[],
            answers=None,
            path=self.path,
            headers=dict(self.headers),
            body=body,
            reply=reply,
            turns=[turn],
        )
        self.made.append(label)
        return label


@dataclass(frozen=True, slots=True)
class Tongue:
    """A language's words, drawn from. What opens a conversation, answers or sums up differs by a number, as real texts
    do by more; corrections and the programs' prompts are the same wherever they come.
    """

    words: Mapping[str, object]
    draw: random.Random

    def one(self, name: str) -> str:
        """A text, or one of a list."""
        held = self.words[name]
        text = str(self.draw.choice(held)) if isinstance(held, list) else str(held)
        return (
            f"{text} ({self.draw.randint(100, 9999)})" if name in ("openings", "replies", "task", "summary") else text
        )


def tongues(seed: str, *, is_again: bool) -> list[Tongue]:
    """The languages; `is_again` those of the second held-out set alone."""
    held = tomllib.loads(WORDS.read_text("utf-8"))
    return [
        Tongue(words, random.Random(f"{seed}/{code}")) for code, words in held.items() if (code in AGAIN) == is_again
    ]


def in_turns(exchanges: Sequence[Labelled]) -> list[Labelled]:
    """Conversations that go on beside each other, as under one key they do: numbered anew, in turns."""
    talks: dict[tuple[str, str], list[Labelled]] = {}
    for each in exchanges:
        talks.setdefault((each.client, each.session), []).append(each)
    order = [each for row in itertools.zip_longest(*talks.values()) for each in row if each is not None]
    places = {(each.client, each.at): number for number, each in enumerate(order)}
    for each in order:
        each.answers = None if each.answers is None else places[each.client, each.answers]
        each.session = f"{each.client}/{each.session}"
    for number, each in enumerate(order):
        each.at = number
    return order


def chat_body(talk: Talk, said: list[Said], tools: bool) -> dict[str, Json]:
    """A body of the chat API."""
    messages: list[Json] = [{"role": "system", "content": talk.system}] if talk.system else []
    for item, is_newest in _newest(said):
        text = item.shown(is_newest=is_newest)
        if item.role == "tool":
            messages.append({"role": "tool", "tool_call_id": item.answers, "content": text})
        elif item.call is not None:
            name, arguments = item.call[1:]
            function: Json = {"name": name, "arguments": arguments}
            calls: Json = [{"id": item.call[0], "type": "function", "function": function}]
            messages.append({"role": "assistant", "content": text or None, "tool_calls": calls})
        else:
            messages.append({"role": item.role, "content": text})
    body: dict[str, Json] = {"model": "default", "messages": messages, "stream": True}
    parameters: Json = {"type": "object", "properties": {"command": {"type": "string"}, "prompt": {"type": "string"}}}
    if tools:
        names = ("bash", "task")
        functions: list[Json] = [{"name": name, "description": name, "parameters": parameters} for name in names]
        body["tools"] = [{"type": "function", "function": each} for each in functions]
    return body


def messages_body(talk: Talk, said: list[Said], tools: bool) -> dict[str, Json]:
    """A body of Anthropic's API."""
    messages: list[Json] = []
    for item, is_newest in _newest(said):
        blocks: list[Json] = [{"type": "text", "text": item.shown(is_newest=is_newest)}] if item.text else []
        if item.role == "tool":
            blocks = [{"type": "tool_result", "tool_use_id": item.answers, "content": item.text}]
        if item.call is not None:
            given: Json = {"command": "ls"} if item.call[1] == "bash" else {"prompt": item.call[2][12:-2]}
            blocks.append({"type": "tool_use", "id": item.call[0], "name": item.call[1], "input": given})
        messages.append({"role": "user" if item.role == "tool" else item.role, "content": blocks})
    body: dict[str, Json] = {"model": "default", "messages": messages, "max_tokens": 4000, "stream": True}
    body |= {"system": [{"type": "text", "text": talk.system}]} if talk.system else {}
    schema: Json = {"type": "object", "properties": {"command": {"type": "string"}}}
    listed: list[Json] = [{"name": name, "description": name, "input_schema": schema} for name in ("bash", "task")]
    return body | ({"tools": listed} if tools else {})


def responses_body(talk: Talk, said: list[Said], tools: bool) -> dict[str, Json]:
    """A body of the Responses API."""
    items: list[Json] = []
    for item, is_newest in _newest(said):
        text = item.shown(is_newest=is_newest)
        if item.role == "tool":
            items.append({"type": "function_call_output", "call_id": item.answers, "output": text})
            continue
        if text:
            kind = "output_text" if item.role == "assistant" else "input_text"
            items.append({"type": "message", "role": item.role, "content": [{"type": kind, "text": text}]})
        if item.call is not None:
            call, name, arguments = item.call
            items.append({"type": "function_call", "call_id": call, "name": name, "arguments": arguments})
    body: dict[str, Json] = {"model": "default", "instructions": talk.system, "input": items, "store": False}
    schema: Json = {"type": "object", "properties": {"command": {"type": "string"}}}
    listed: list[Json] = [{"type": "function", "name": name, "parameters": schema} for name in ("bash", "task")]
    return body | {"stream": True} | ({"tools": listed} if tools else {})


def _newest(said: list[Said]) -> Iterator[tuple[Said, bool]]:
    """Each message, and whether it is the newest of its owner's."""
    last = max((at for at, item in enumerate(said) if item.role == "user"), default=-1)
    for at, item in enumerate(said):
        yield item, at == last
