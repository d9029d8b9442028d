"""The examples that teach the bundled judge's classifier: turns with what followed, scores, wishes and literals."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from random import Random

from openclaw_rl.core.message import Message, Role, ToolCall, message
from openclaw_rl.judge.quoted import LEFT_OUT
from openclaw_rl.judge.reading import TurnReading, reading
from openclaw_rl.tiny import dialogues, ordinary
from openclaw_rl.tiny.judging import situation
from openclaw_rl.tiny.lexicon import brief, idle
from openclaw_rl.tiny.manners import Aspect, TaskKind
from openclaw_rl.tiny.sayings import OTHERS, called, other_saying, phrase, saying
from openclaw_rl.tiny.slips import typed
from openclaw_rl.tiny.styles import Style
from openclaw_rl.tiny.wordings import FILES, WISHES, Wording, parts, remark, table, wording

NONE, OTHER = "none", "other"
LITERAL = ("first", "last", "name", "language")  # wishes with a literal: words that the user gives
HEARD = (NONE, OTHER, *WISHES)  # the classes of wishes
PLACES = ("anywhere", *(kind.value for kind in TaskKind))  # the first for any reply, then the toy world's task kinds
SCORES = (-1, 0, 1)
_OF_STYLE = {Style.NATURAL: "natural", Style.FRIENDLY: "friendly", Style.DETAILED: "detailed", Style.AI: "markdown"}
_REMARKS = {  # the kinds of messages without a wish: score, and weight when one is drawn
    "thanks": (1, 4), "praise": (1, 4), "go_on": (1, 4), "next": (1, 7), "quoting": (1, 4), "pasted": (1, 2),
    "small": (0, 5), "mind": (0, 4), "blame": (-1, 5), "sarcasm": (-1, 4), "wrong": (-1, 4), "same": (-1, 4),
}  # fmt: skip
_SPOKEN = {"thanks": 1, "next": 1, "blame": -1, "small": 0, "mind": 0, "go_on": 1}
HURRIED = 0.3  # share typed with errors or in short forms: of messages with a wish, and of `_other_message`
QUOTES = frozenset("\"'“”„«»")
_TOOLS = {"success": 1, "error": -1, "useless": 0}


@dataclass(frozen=True, slots=True)
class Heard:
    """A turn as the classifier reads it, and what a good judge recognises in it.

    `first` and `last` are the indexes of the first and the last word of the literal in the reading; -1 without one.
    """

    reading: TurnReading
    score: int
    wish: str
    place: str = PLACES[0]
    first: int = -1
    last: int = -1
    literal: str = ""
    language: str = ""


def heard(rng: Random, texts: Sequence[str]) -> Heard:
    """One example: from the toy world, a wish, an unknown wish or a similar message, a remark, or a tool result."""
    part = rng.random()
    if part < 0.14:
        return _of_the_toy_world(rng)
    if part < 0.54:
        return _wished(rng, texts)
    if part < 0.74:
        return _of_others(rng, texts)
    if part < 0.93:
        return _remarked(rng, texts)
    return _tool(rng)


def _of_the_toy_world(rng: Random) -> Heard:
    made = situation(rng)
    read = reading(made.request, made.reply, made.next_state)
    if made.wish is None:
        return Heard(read, made.score, NONE)
    if made.wish.aspect is Aspect.STYLE:
        return Heard(read, made.score, _OF_STYLE[Style(made.wish.value)], made.kind.value)
    wish = "first" if made.wish.aspect is Aspect.FIRST else "last"
    at = read.text.find(f'"{made.wish.value}"') + 1
    return _placed(read, made.score, wish, made.kind.value, at=at, literal=made.wish.value, written=made.wish.value)


def _wished(rng: Random, texts: Sequence[str]) -> Heard:
    code = _code(rng)
    said = _said(rng, code)
    text, at = said.text, said.at
    if rng.random() < 0.2:  # with the next request before or after it
        question = _asked(rng, _code_of(said))
        text, at = _beside(rng, text, at, question, ends=(".", ".", "?", "!", ",", "\n"), before=0.6)
    if rng.random() < 0.2:  # with something else in the same message
        aside = remark(rng, rng.choice(("small", "praise", "blame", "thanks")), code=_code_of(said)).text
        text, at = _beside(rng, text, at, aside, ends=(".", ".", ",", "!"), before=0.75)
    if rng.random() < HURRIED:
        text, at = typed(rng, text, code, at=at if said.at >= 0 else -1, written=said.written)
    return wish_heard(rng, texts, replace(said, text=text, at=at if said.at >= 0 else -1))


def _beside(rng: Random, text: str, at: int, other: str, *, ends: Sequence[str], before: float) -> tuple[str, int]:
    """The text with another one before it (with this probability) or after it, and the new place of what is at `at`."""
    other += "" if other[-1] in ".!?" else rng.choice(ends)
    if rng.random() < before:
        return f"{other} {text}", at + len(other) + 1
    return (f"{text} {other}" if text[-1] in ".!?" else f"{text}. {other}"), at


def wish_heard(rng: Random, texts: Sequence[str], said: Wording) -> Heard:
    """The example of a message with a wish, after a turn that is drawn."""
    request, reply, place = _turn(rng, texts, said.language)
    read = reading(request, reply, (message(Role.USER, said.text),))
    assert said.wish is not None
    if said.wish in LITERAL:
        if said.at < 0:
            return Heard(read, -1, OTHER, place, language=said.language)
        return _placed(
            read, -1, said.wish, place, at=said.at, literal=said.literal, written=said.written, language=said.language
        )
    return Heard(read, -1, said.wish, place, language=said.language)


def _said(rng: Random, code: str) -> Wording:
    """A message with a wish, in one of three ways: a whole message, a short one, or one from the grammar."""
    form = rng.random()
    if form < 0.68:
        return saying(rng, code, wish=_wish(rng))
    if form < 0.8:
        return brief(rng, code)
    said = wording(rng, wish=_wish(rng), code=code)
    if said.wish not in ("first", "last", "name") or said.at < 0 or rng.random() < 0.4:
        return said
    if said.text.count(said.written) > 1:
        return said
    made = called(rng) if said.wish == "name" else phrase(rng)  # replaces the literal, within the same quotes
    bare = said.text[said.at - 1 : said.at].strip() not in QUOTES
    made = made.rstrip("!?.:,") if bare and said.wish != "name" else made
    after = said.text[said.at + len(said.written) :]
    return replace(said, text=said.text[: said.at] + made + after, literal=made, written=made)


def _wish(rng: Random) -> str:
    """The wish of an example; wishes that are harder to learn come more often."""
    return rng.choice((*WISHES, "first", "last", "name", "name", "natural", "short", "friendly", "detailed"))


def _placed(
    read: TurnReading, score: int, wish: str, place: str, *, at: int, literal: str, written: str, language: str = ""
) -> Heard:
    """An example with the words of its literal marked; if they were all cut from the reading, the wish is `OTHER`."""
    inside = [index for index, (start, end) in enumerate(read.places) if start >= at and end <= at + len(written)]
    if not inside:
        return Heard(read, score, OTHER, place, language=language)
    return Heard(read, score, wish, place, inside[0], inside[-1], literal, language)


def _remarked(rng: Random, texts: Sequence[str]) -> Heard:
    about = rng.choices(list(_REMARKS), weights=[weight for _, weight in _REMARKS.values()])[0]
    code = _code(rng)
    language = parts(code).language
    request, reply, place = _turn(rng, texts, language)
    asked = request[-1].text
    if about == "same":
        words = asked.rstrip("?.! ").split()
        asked = " ".join(words[rng.randrange(max(1, len(words) // 3)) :]) if rng.random() < 0.5 else asked
        if rng.random() < 0.15:  # the request again, and nothing else
            return Heard(reading(request, reply, (message(Role.USER, asked),)), -1, NONE, place, language=language)
    text = _asked(rng, code) if about == "next" else remark(rng, about, code=code, asked=asked[:200]).text
    if about == "pasted":
        text = f"{text}\n{LEFT_OUT}" if rng.random() < 0.5 else f"{LEFT_OUT}\n{text}"
    if about in ("thanks", "praise") and rng.random() < 0.25:
        text = f"{text} {_asked(rng, code)}"
    read = reading(request, reply, (message(Role.USER, text),))
    return Heard(read, _REMARKS[about][0], NONE, place, language=language)


def _of_others(rng: Random, texts: Sequence[str]) -> Heard:
    """A message with an unknown wish, one with a wish's words in another sense, or one in another language."""
    if rng.random() < 0.5:
        return _other_message(rng, texts)
    held = table("others")
    about = rng.random()
    if about < 0.22:
        said = held["spoken"]
        assert isinstance(said, dict)
        name = rng.choice(list(said))
        kind = rng.choice(list(said[name]))
        request, reply, place = _turn(rng, texts, "English")
        text = _varied(rng.choice(said[name][kind]), rng)
        return Heard(reading(request, reply, (message(Role.USER, text),)), _SPOKEN[kind], NONE, place)
    code = _code(rng)
    listed = held[code]
    assert isinstance(listed, dict)
    request, reply, place = _turn(rng, texts, parts(code).language)
    if about < 0.27:
        text, score = idle(rng, code)
        return Heard(
            reading(request, reply, (message(Role.USER, text),)), score, NONE, place, language=parts(code).language
        )
    if about < 0.72:
        is_named = about < 0.5
        text = rng.choice(_strings(listed["other"])) if is_named else _fragment(rng, code)
        if not is_named or rng.random() < 0.6:
            text = rng.choice(_simple_frames(code)).replace("{do}", text).replace("{short}", text)
        score, wish = -1, OTHER
    else:
        text = rng.choice(_strings(listed["content"]))
        if rng.random() < 0.3:
            text = f"{remark(rng, rng.choice(('thanks', 'praise')), code=code).text}. {text}"
        score, wish = 1, NONE
    read = reading(request, reply, (message(Role.USER, _varied(text, rng)),))
    return Heard(read, score, wish, place, language=parts(code).language)


def _other_message(rng: Random, texts: Sequence[str]) -> Heard:
    """A whole message without any of the known wishes, sometimes typed in a hurry or after something else."""
    code = _code(rng)
    text, about = other_saying(rng, code)
    if rng.random() < 0.12 and about != "minus":
        aside = remark(rng, rng.choice(("thanks", "praise", "small")), code=code).text
        text, about = f"{aside} {text}", "plus" if about == "zero" else about
    if rng.random() < HURRIED:
        text, _ = typed(rng, text, code, at=-1, written="")
    return other_heard(rng, texts, code, text, about)


def other_heard(rng: Random, texts: Sequence[str], code: str, text: str, about: str) -> Heard:
    """The example of a message of one of the kinds in `OTHERS`, after a turn that is drawn."""
    language = parts(code).language
    request, reply, place = _turn(rng, texts, language)
    wish = OTHER if about == "other" else NONE
    read = reading(request, reply, (message(Role.USER, text),))
    return Heard(read, OTHERS[about], wish, place, language=language)


@lru_cache
def _simple_frames(code: str) -> list[str]:
    """The frames with one slot, for what is wished."""
    frames = [one for tone in parts(code).frames.values() for one in tone]
    return [one for one in frames if re.sub(r"\{(?:do|short)\}", "", one).count("{") == 0 and one.count("{") == 1]


def _fragment(rng: Random, code: str) -> str:
    """Some words about anything: put into a frame, they are a wish that is not a known one."""
    form = rng.random()
    held = parts(code)
    if form < 0.5:
        text = _scene(rng, held.language)[rng.random() < 0.6]
    elif form < 0.75:
        text = remark(rng, rng.choice(("small", "next")), code=code).text
    else:
        text = f"{rng.choice(held.nothing['topics'])} {rng.choice(held.nothing['facts'])}"
    words = text.split()
    length = rng.choice((2, 3, 3, 4, 5, 6, 8))
    at = rng.randrange(max(1, len(words) - length + 1))
    return " ".join(words[at : at + length]).strip(".,;:!? ").lower() or "that"


def _strings(listed: object) -> list[str]:
    assert isinstance(listed, list)
    return listed


def _varied(text: str, rng: Random) -> str:
    form = rng.random()
    if form < 0.1:
        text = text.upper()
    elif form < 0.5:
        text = text[:1].upper() + text[1:]
    return text + rng.choice(("", "", ".", "!", "...")) if text[-1:].isalnum() else text


def _code(rng: Random) -> str:
    return FILES[0] if rng.random() < 0.5 else rng.choice(FILES[1:])


def _code_of(said: Wording) -> str:
    return next(code for code in FILES if parts(code).language == said.language)


def _asked(rng: Random, code: str) -> str:
    """A further request: about a topic, a question, a task of the toy world, or one that begins a conversation."""
    form = rng.random()
    if form < 0.5:
        return remark(rng, "next", code=code).text
    if form < 0.7:
        return rng.choice(parts(code).slots["question"])
    if form < 0.8:
        return dialogues.task(rng).asked
    return _scene(rng, parts(code).language)[0]


def _scene(rng: Random, language: str) -> tuple[str, str]:
    scenes = table("scenes")["scenes"]
    assert isinstance(scenes, dict)
    request, reply = rng.choice(scenes[language])
    return request, reply


def _turn(rng: Random, texts: Sequence[str], language: str) -> tuple[tuple[Message, ...], Message, str]:
    """A request, a reply, and the reply's kind of task as in `PLACES`.

    Both are from the toy world, the reply is an excerpt of ordinary text, or both are from the scenes, then mostly in
    the message's language.
    """
    form, place = rng.random(), PLACES[0]
    if form < 0.25:
        task = dialogues.task(rng)
        place, request = task.kind.value, task.asked
        reply = task.answer(rng.choice(dialogues.DEFAULTS), rng)
    elif form < 0.4:
        request = remark(rng, "next").text
        reply = ordinary.excerpt(texts, rng, rng.randint(30, 160)).strip() or "Yes."
    else:
        request, reply = _scene(rng, language if rng.random() < 0.7 else "English")
    return (message(Role.USER, request),), message(Role.ASSISTANT, reply), place


def _tool(rng: Random) -> Heard:
    held = table("scenes")["tools"]
    assert isinstance(held, dict)
    request, name, key, value = rng.choice(held["calls"])
    about = rng.choice(tuple(_TOOLS))
    call = Message(Role.ASSISTANT, tool_calls=(ToolCall("call_1", name, json.dumps({key: value})),))
    printed = rng.choice(held[about]).format(n=rng.randint(1, 600))
    form = rng.random()
    if form < 0.3:
        lines = [rng.choice(held["success"]).format(n=rng.randint(1, 600)) for _ in range(rng.randint(2, 14))]
        printed = "\n".join([*lines, printed])
    elif form < 0.4 and about != "useless":
        printed = f"{_line(rng)}\n{printed}"
    state = Message(Role.TOOL, message(Role.TOOL, printed).content, tool_call_id="call_1")
    read = reading((message(Role.USER, request),), call, (state,))
    return Heard(read, _TOOLS[about], NONE)


def _line(rng: Random) -> str:
    """A line such as long-running tools print."""
    mark = rng.choice(("[INFO]", ">", "$", "---", "step", "#"))
    return f"{mark} {rng.choice(('running', 'loading', 'checking', 'reading', 'part'))} {rng.randint(1, 90)}"
