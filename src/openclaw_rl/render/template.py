"""A model's chat template and tokenizer, read from its folder without loading transformers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

import jinja2
import jinja2.ext
import jinja2.sandbox
from tokenizers import Tokenizer

from openclaw_rl.core.message import Json, Message, Role, TextPart, Tool, ToolCall, message
from openclaw_rl.errors import ModelError, RequestError
from openclaw_rl.render.encoding import encoded
from openclaw_rl.render.held import CachedJson, KnownTools
from openclaw_rl.render.passes import Rendering, compiled, names_read, rendered


class _Generation(jinja2.ext.Extension):
    """`{% generation %}` marks the assistant's text; it does not change the text."""

    tags = {"generation"}  # noqa: RUF012  jinja2 declares it so

    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        next(parser.stream)
        return list(parser.parse_statements(("name:endgeneration",), drop_needle=True))


@dataclass(frozen=True, slots=True)
class TemplateConventions:
    """The form in which a template takes thinking and calls; `settled` determines it.

    `thinking` is the field it reads thinking from. With `is_content_none` a reply without text has the content None
    rather than an empty text; with `are_arguments_text` a call's arguments are the text as written, not data.
    """

    thinking: str = "reasoning_content"
    is_content_none: bool = False
    are_arguments_text: bool = False


@dataclass(frozen=True, slots=True)
class ChatTemplate:
    """Renders messages to text exactly as `apply_chat_template` does, and encodes text to ids."""

    tokenizer: Tokenizer
    template: jinja2.Template
    special: Mapping[str, str]  # bos_token, eos_token and the like, as templates name them
    manner: TemplateConventions = TemplateConventions()
    tools: KnownTools = field(default_factory=KnownTools, compare=False)

    def text(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool] = (),
        *,
        generation_prompt: bool,
        options: Mapping[str, Json] | None = None,
    ) -> str:
        """The conversation as the model reads it. Raises RequestError if the template refuses it."""
        return self.rendered(messages, tools, generation_prompt=generation_prompt, options=options).text

    def rendered(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool] = (),
        *,
        generation_prompt: bool,
        options: Mapping[str, Json] | None = None,
    ) -> Rendering:
        """The same, with the start of each message's part."""
        offered = self.tools.told(tools)
        given: dict[str, object] = {
            **self.special,
            **(options or {}),
            "tools": offered or None,
            "add_generation_prompt": generation_prompt,
        }
        problem: Exception | None = None
        for talk, manner, is_object in self._attempts(messages):
            messages_seen = [_as_template_sees(item, manner, is_object) for item in talk]
            try:
                found = rendered(self.template, messages_seen, given)
            except (jinja2.TemplateError, TypeError, ValueError) as refused:
                problem = problem or refused
            else:
                self.tools.keep(tools, offered)
                return found if talk is messages else replace(found, ends={})  # then parts cannot be distinguished
        raise RequestError(
            f"the model's chat template refuses these messages: {problem}", param="messages"
        ) from problem

    def _attempts(self, messages: Sequence[Message]) -> list[tuple[Sequence[Message], TemplateConventions, bool]]:
        """The forms to try in order until the template accepts one; without calls there is only one."""
        plain: tuple[Sequence[Message], TemplateConventions, bool] = (messages, self.manner, False)
        if not any(item.tool_calls for item in messages):
            return [plain]
        as_text = replace(self.manner, are_arguments_text=True)
        one_each = _one_call_each(messages)
        return [
            plain,
            (messages, as_text, False),  # some join arguments to text, and need them as written
            (messages, self.manner, True),
            (one_each, self.manner, True),  # some take one call per message
            (one_each, as_text, True),
        ]

    @property
    def options(self) -> frozenset[str]:
        """The names that it reads: only options among them have an effect."""
        return names_read(self.template)

    def encode(self, text: str, *, most: int | None = None) -> list[int]:
        """Ids of text that may hold the template's own special tokens; nothing is prepended.

        Raises TooManyTokens if there are more than `most`.
        """
        return encoded(self.tokenizer, text, most=most)

    def eos_ids(self) -> tuple[int, ...]:
        """Ids that end an answer according to the tokenizer; the model's configuration may name more."""
        found = self.tokenizer.token_to_id(self.special.get("eos_token", ""))
        return () if found is None else (found,)


def read_template(folder: Path) -> ChatTemplate:
    """The tokenizer and chat template of a model folder. Raises ModelError with what is missing."""
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise ModelError(f"{folder} holds no tokenizer.json", fix="save the model's fast tokenizer into that folder")
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as problem:  # the library raises plain Exception for any broken file
        raise ModelError(f"{path} cannot be read: {problem}", fix="copy the model folder again") from problem
    settings = _settings(folder)
    return ChatTemplate(tokenizer, compile_template(_source(folder, settings)), _special(settings))


def compile_template(source: str) -> jinja2.Template:
    """A compiled template in the sandbox, with the helpers that Hugging Face templates rely on."""
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return compiled(environment, source)


def _settings(folder: Path) -> dict[str, Json]:
    path = folder / "tokenizer_config.json"
    if not path.is_file():
        return {}
    try:
        settings = json.loads(path.read_text("utf-8"))
    except ValueError as problem:
        raise ModelError(f"{path} is not valid JSON: {problem}", fix="copy the model folder again") from problem
    return settings if isinstance(settings, dict) else {}


def _source(folder: Path, settings: Mapping[str, Json]) -> str:
    path = folder / "chat_template.jinja"
    if path.is_file():
        return path.read_text("utf-8")
    held = settings.get("chat_template")
    if isinstance(held, list):  # several named templates: the default one serves chat
        named = {str(item["name"]): str(item["template"]) for item in held if isinstance(item, dict)}
        held = named.get("default")
    if isinstance(held, str):
        return held
    raise ModelError(
        f"{folder} has no chat template", fix="use an instruct model, or put a chat_template.jinja into the folder"
    )


def _special(settings: Mapping[str, Json]) -> dict[str, str]:
    special: dict[str, str] = {}
    for name in ("bos_token", "eos_token", "pad_token", "unk_token"):
        held = settings.get(name)
        if isinstance(held, dict):
            held = held.get("content")
        if isinstance(held, str):
            special[name] = held
    return special


def _as_template_sees(item: Message, manner: TemplateConventions, is_object: bool) -> dict[str, Json]:
    """Content as a string, tool arguments as data: the shape that most published templates are written for."""
    body: dict[str, Json] = {"role": item.role.value, "content": item.text}
    if item.reasoning is not None and item.role is Role.ASSISTANT:
        body[manner.thinking] = item.reasoning
    if item.tool_calls:
        body["tool_calls"] = [_call_as_template_sees(call, manner, is_object) for call in item.tool_calls]
        if manner.is_content_none and not item.text:
            body["content"] = None
        if manner.thinking == "thinking" and item.reasoning:
            body["content"] = ""  # such templates refuse text next to thinking in a message with calls
    if item.tool_call_id is not None:
        body["tool_call_id"] = item.tool_call_id
    if item.name is not None:
        body["name"] = item.name
    return body


def _one_call_each(messages: Sequence[Message]) -> list[Message]:
    """The messages with several calls split, each call before its result."""
    found: list[Message] = []
    waiting: list[Message] = []
    for item in messages:
        if len(item.tool_calls) > 1:
            found.append(replace(item, tool_calls=item.tool_calls[:1]))
            waiting = [Message(Role.ASSISTANT, (), tool_calls=(call,)) for call in item.tool_calls[1:]]
            continue
        due = next((each for each in waiting if each.tool_calls[0].id == item.tool_call_id), None)
        if due is not None:
            waiting.remove(due)
            found.append(due)
        found.append(item)
    return found


def _call_as_template_sees(call: ToolCall, manner: TemplateConventions, is_object: bool) -> dict[str, Json]:
    """With `is_object`, invalid arguments, as of a cut call, are wrapped in an object: some templates need one."""
    arguments = call.arguments if manner.are_arguments_text else call.parsed()
    if is_object and not isinstance(arguments, dict):
        arguments = {"arguments": arguments}
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _to_json(
    value: Json,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    if isinstance(value, CachedJson):
        return value.text(ensure_ascii, indent, separators, sort_keys)
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _refuse(reason: str) -> None:
    raise jinja2.TemplateError(reason)


_WORDS = "Quartz feldspar granite"


@dataclass(frozen=True, slots=True)
class UserOpening:
    """The ids before a user's words, the blanks that the words begin with, and the special token after them.

    A blank before a word is a part of the word's first token, so the ids do not end in one.
    """

    ids: tuple[int, ...]
    blanks: str
    end: int


def user_opening(
    template: ChatTemplate, before: Sequence[Message], tools: Sequence[Tool], options: Mapping[str, Json] | None
) -> UserOpening | None:
    """The opening of a user's turn after these messages; None if the template does not show it, or refuses them."""
    try:
        text = template.text((*before, message(Role.USER, _WORDS)), tools, generation_prompt=False, options=options)
    except RequestError:
        return None
    front, found, rest = text.rpartition(_WORDS)
    if not found:
        return None
    special = template.tokenizer.get_added_tokens_decoder()
    for end in template.encode(rest.lstrip())[:1]:
        if end in special and special[end].special:
            opening = front.rstrip(" ")
            return UserOpening(tuple(template.encode(opening)), front[len(opening) :], end)
    return None


_TOOL = Tool("probe", "A probe.", {"type": "object", "properties": {}})
_CALL = ToolCall("probe0000", "probed_name", '{"probed_key": "probed_value"}')
_MANNERS = [
    TemplateConventions(is_content_none=is_none, are_arguments_text=are_text)
    for are_text in (False, True)
    for is_none in (False, True)
]


def settled(template: ChatTemplate) -> ChatTemplate:
    """The template with the first manner in which it writes calls and thinking completely; unchanged if none does.

    Found out by trying.
    """
    for manner in _MANNERS:
        tried = replace(template, manner=manner)
        if _writes_call(tried):
            return _with_thinking(tried)
    return _with_thinking(template)


def _writes_call(template: ChatTemplate) -> bool:
    """Whether name and arguments are in the text, and neither the word None nor arguments in Python's notation."""
    text = _written(template, Message(Role.ASSISTANT, (), tool_calls=(_CALL,)))
    if text is None or _CALL.name not in text or "None" in text:
        return False
    return "probed_value" in text and "'probed_key'" not in text


def _with_thinking(template: ChatTemplate) -> ChatTemplate:
    replies = [
        Message(Role.ASSISTANT, (), reasoning="probed thought", tool_calls=(_CALL,)),
        Message(Role.ASSISTANT, (TextPart("said"),), reasoning="probed thought"),
    ]
    for name in ("reasoning_content", "thinking", "reasoning"):
        tried = replace(template, manner=replace(template.manner, thinking=name))
        if any("probed thought" in (_written(tried, reply) or "") for reply in replies):
            return tried
    return template


def _written(template: ChatTemplate, reply: Message) -> str | None:
    """The reply as the template writes it after a question, its call answered."""
    results = [
        Message(Role.TOOL, (TextPart("done"),), tool_call_id=call.id, name=call.name) for call in reply.tool_calls
    ]
    talk = [message(Role.USER, "asked"), reply, *results]
    try:
        return template.text(talk, (_TOOL,) if results else (), generation_prompt=bool(results))
    except RequestError:
        return None
