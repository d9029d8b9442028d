"""A client with a rule file: its requests and messages are read by that file's rules.

Messages that no rule names are read by their form, as for an unknown client.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from openclaw_rl.collect.clients.blocks import NOTICE, RESULT, is_notice, is_result, without_blocks
from openclaw_rl.collect.clients.rulebook import Field, Program, Rulebook, Side, Wrapper
from openclaw_rl.core.message import ImagePart, Json, Message, Role, TextPart
from openclaw_rl.core.turn import Arrival, TurnKind

SYSTEM_HEAD = 4000  # letters of the system text in which a client is recognised


@dataclass(frozen=True, slots=True)
class SplitMessage:
    """A user's message in parts: the part kept in the compared history, the owner's words, and what was cut.

    `kept` and `heard` are None if nothing is left. `heard` is a tool's message if the client reports a result.
    """

    kept: Message | None
    heard: Message | None
    found: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RuleClient:
    """One client's habits, from its rule file."""

    book: Rulebook

    @property
    def name(self) -> str:
        """The name of the client."""
        return self.book.name

    def recognises(self, arrival: Arrival) -> bool:
        """Whether this client wrote the request: by one of its headers, or by its system text."""
        agent = arrival.headers.get("user-agent", "")
        if self.book.user_agents and agent.startswith(self.book.user_agents):
            return True
        if any(name in arrival.headers for name in self.book.headers):
            return True
        if self.book.system.fits(system_text(arrival.messages)[:SYSTEM_HEAD].strip()):
            return True
        return any(self.book.first.fits(text[:SYSTEM_HEAD].strip()) for text in _first(arrival.messages)[:1])

    def spoken(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """The conversation without what the client inserts and removes again."""
        kept: list[Message] = []
        replies: tuple[str, ...] = ()
        for item in messages:
            if item.role is Role.ASSISTANT and replies and item.text.strip() in replies:
                replies = ()
                continue
            replies = ()
            if item.role is not Role.USER:
                kept.append(item)
                continue
            split = self.split(item)
            if split.kept is not None:
                kept.append(split.kept)
            replies = self._said_to(split.found)
        return tuple(kept)

    def heard(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """Tool results, and what the owner typed."""
        heard = [item if item.role is not Role.USER else self.split(item).heard for item in messages]
        return tuple(item for item in heard if item is not None)

    def noted(self, messages: Sequence[Message]) -> tuple[str, ...]:
        """The names of the rules for what the client put into these messages."""
        found = [name for item in messages if item.role is Role.USER for name in self.split(item).found]
        return tuple(dict.fromkeys(found))

    def readable(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """The conversation with the owner's words as they typed them; a program's words count as a tool's."""
        return readable_of(self.heard, self.spoken(messages))

    def session(self, arrival: Arrival) -> tuple[str, str] | None:
        """The session that the client names, and the place where it names it; with its thread, if one is named."""
        for field in self.book.sessions:
            value = value_of(field, arrival)
            if value:
                return value, f"{_written(field)} (a rule of {self.name})"
        return None

    def thread(self, arrival: Arrival) -> str | None:
        """Which of several conversations of one session this is; None for the owner's own."""
        return next((value for field in self.book.threads if (value := value_of(field, arrival))), None)

    def stamps(self, messages: Sequence[Message]) -> bool:
        """No time stamps are known."""
        return False

    def kind(self, arrival: Arrival, *, has_stamped: bool = False) -> tuple[TurnKind, str] | None:
        """Side, if a rule recognises the request as the client's own."""
        places = {"newest": _newest(arrival.messages), "first": _first(arrival.messages)}
        places["system"] = [system_text(arrival.messages)]
        for side in self.book.sides:
            if _is_side(side, arrival, places[side.where]):
                return TurnKind.SIDE, f"{side.errand} ({side.name}, a rule of {self.name})"
        return None

    def is_summed(self, messages: Sequence[Message]) -> bool:
        """Whether a summary replaces what was said before."""
        summaries = [each for each in self.book.programs if each.is_summary]
        texts = [text for item in messages[:8] if item.role is Role.USER for text in _texts(item)]
        return any(_fits(each, text) for each in summaries for text in texts)

    def starts_over(self, messages: Sequence[Message]) -> bool:
        """Never known."""
        return False

    def split(self, item: Message) -> SplitMessage:
        """A user's message taken apart by the rules."""
        kept: list[TextPart | ImagePart] = []
        heard: list[TextPart | ImagePart] = []
        found: list[str] = []
        is_tool = False
        for part in item.content:
            if isinstance(part, ImagePart):
                kept.append(part)
                heard.append(part)
                continue
            is_wrapped = any(_unwrapped(each, part.text) is not None for each in self.book.wrappers)
            bare = "" if is_wrapped else part.text.strip()
            whole = next((each for each in self.book.programs if each.mark and each.mark.fits(bare)), None)
            if whole is not None:
                found.append(whole.name)
                is_tool = is_tool or whole.is_tool
                rest = self._without_parts(part.text)
                if whole.is_tool:
                    _add(heard, part, rest)
                if whole.is_kept or whole.is_summary or whole.is_tool:
                    _add(kept, part, rest)
                continue
            history, words, names = self._cut(part.text)
            found += names
            _add(kept, part, history)
            _add(heard, part, words)
        said = replace(item, content=tuple(heard)) if heard else None
        if said is not None and is_tool:
            said = replace(said, role=Role.TOOL)
        elif said is not None and shape_of(said.text):
            found.append(shape_of(said.text))
            said = by_shape(said)
        return SplitMessage(replace(item, content=tuple(kept)) if kept else None, said, tuple(dict.fromkeys(found)))

    def _cut(self, text: str) -> tuple[str, str, list[str]]:
        """What stays in the history, the owner's words, and the names of what was cut."""
        history = words = text
        found: list[str] = []
        for wrapper in self.book.wrappers:
            inside = _unwrapped(wrapper, words)
            if inside is not None:
                history = words = inside
                found.append(wrapper.name)
                break
        for each in self.book.programs:
            left = _without(each, words) if each.begin else words
            if left != words:
                found.append(each.name)
                words = left
                history = history if each.is_kept or each.is_summary else _without(each, history)
        left, names = without_blocks(words)
        return without_blocks(history)[0], left, [*found, *names]

    def _without_parts(self, text: str) -> str:
        """The client's own text without what it inserts and removes again."""
        for each in self.book.programs:
            text = _without(each, text) if each.begin and not each.is_kept else text
        return text

    def _said_to(self, found: Sequence[str]) -> tuple[str, ...]:
        return tuple(text for each in self.book.programs if each.name in found for text in each.reply)


def shape_of(text: str) -> str:
    """The kind of a user's message that no person typed, by its beginning; empty for any other."""
    return RESULT if is_result(text) else NOTICE if is_notice(text) else ""


def by_shape(item: Message) -> Message | None:
    """A user's message, as a tool's if it is the result of an agent's step; None for a notice."""
    shape = shape_of(item.text)
    return None if shape == NOTICE else replace(item, role=Role.TOOL) if shape else item


def system_text(messages: Sequence[Message]) -> str:
    """The system text before the first message; a developer message counts as one."""
    texts = []
    for item in messages:
        if item.role is not Role.SYSTEM:
            break
        texts.append(item.text)
    return "\n".join(texts)


def value_of(field: Field, arrival: Arrival) -> str:
    """The value of this header or field of the request; empty if it has none."""
    held: Json = arrival.headers.get(field.header) if field.header else _fact(field.fact, arrival)
    if field.key:
        held = _object(held).get(field.key)
    return str(held).strip() if isinstance(held, str | int) and not isinstance(held, bool) else ""


def readable_of(
    heard: Callable[[Sequence[Message]], Sequence[Message]], spoken: Sequence[Message]
) -> tuple[Message, ...]:
    """Each message as its author meant it; a program's as data."""
    read: list[Message] = []
    for item in spoken:
        words = heard([item])
        read.append(words[0] if words else replace(item, role=Role.TOOL))
    return tuple(read)


def _written(field: Field) -> str:
    where = f"the {field.header} header" if field.header else f"the body's {field.fact}"
    return f"{where}, its {field.key}" if field.key else where


def _is_side(side: Side, arrival: Arrival, texts: Sequence[str]) -> bool:
    if side.field is not None:
        value = value_of(side.field, arrival)
        return value in side.values if side.values else bool(value)
    return any(side.mark.fits(text.strip()) for text in texts)


def _newest(messages: Sequence[Message]) -> list[str]:
    """The texts of the users' messages after the last reply, whole and part by part."""
    found: list[str] = []
    for item in reversed(messages):
        if item.role is Role.ASSISTANT:
            break
        if item.role is Role.USER:
            found += _texts(item)
    return found


def _first(messages: Sequence[Message]) -> list[str]:
    first = next((item for item in messages if item.role is Role.USER), None)
    return [] if first is None else _texts(first)


def _texts(item: Message) -> list[str]:
    parts = [part.text for part in item.content if isinstance(part, TextPart)]
    return parts if len(parts) == 1 else [item.text, *parts]


def _fits(program: Program, text: str) -> bool:
    return program.mark.fits(text.strip()) if program.mark is not None else program.begin in text


def _add(parts: list[TextPart | ImagePart], part: TextPart, text: str) -> None:
    if text.strip():
        parts.append(part if text == part.text else TextPart(text))


def _spans(program: Program, text: str) -> Iterator[tuple[int, int]]:
    """The place of the program's text: from a line that begins with its mark on."""
    at = 0
    while (start := text.find(program.begin, at)) >= 0:
        at = start + len(program.begin)
        if start and text[start - 1] not in "\n>" and not program.begin.startswith("\n"):
            continue
        stop = len(text)
        if program.end:
            found = text.find(program.end, at)
            if found < 0:
                return
            stop = found + len(program.end)
        yield start, stop
        at = stop


def _without(program: Program, text: str) -> str:
    spans = list(_spans(program, text))
    if not spans:
        return text
    pieces, at = [], 0
    for start, stop in spans:
        pieces.append(text[at:start])
        at = stop
    return "".join([*pieces, text[at:]]).strip()


def _unwrapped(wrapper: Wrapper, text: str) -> str | None:
    """The owner's words; None if the client put nothing around them."""
    bare = text.strip()
    if wrapper.is_whole:
        inside = bare[len(wrapper.begin) : -len(wrapper.end)]
        is_wrapped = len(bare) > len(wrapper.begin) + len(wrapper.end) and bare.startswith(wrapper.begin)
        plain = inside.replace(wrapper.escaped, "") if wrapper.escaped else inside
        if not is_wrapped or not bare.endswith(wrapper.end) or wrapper.end in plain:
            return None
        return inside.replace(wrapper.escaped, wrapper.end) if wrapper.escaped else inside
    start = text.find(wrapper.begin)
    stop = text.rfind(wrapper.end) if wrapper.end else len(text)
    if start < 0 or stop < start:
        return None
    inside = text[start + len(wrapper.begin) : stop].strip()
    return inside if wrapper.end else inside.replace(f"\n{wrapper.begin}", "\n")  # it heads each of several words


def _fact(path: str, arrival: Arrival) -> Json:
    first, _, rest = path.partition(".")
    held = arrival.facts.get(first)
    return _object(held).get(rest) if rest else held


def _object(held: Json) -> dict[str, Json]:
    """An object, or the text of one; empty for anything else."""
    if isinstance(held, dict):
        return held
    try:
        found: Json = json.loads(held) if isinstance(held, str) and held.lstrip().startswith("{") else None
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
