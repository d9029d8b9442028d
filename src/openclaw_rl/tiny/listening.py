"""What the bundled model is taught about judging messages from outside the toy world: their scores and hints."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from random import Random

from openclaw_rl.core.message import Message, Role, ToolCall, message
from openclaw_rl.judge.prompt import Question
from openclaw_rl.judge.quoted import LEFT_OUT
from openclaw_rl.tiny import dialogues, ordinary
from openclaw_rl.tiny.judging import JudgingExample, situation
from openclaw_rl.tiny.manners import Aspect, TaskKind, Wish, place_of
from openclaw_rl.tiny.styles import Style
from openclaw_rl.tiny.wishes import stated_wish
from openclaw_rl.tiny.wordings import FILES, Wording, parts, remark, table, wording

_STYLES = {
    "natural": Style.NATURAL, "friendly": Style.FRIENDLY, "detailed": Style.DETAILED, "markdown": Style.AI,
}  # fmt: skip
_HINTS = {
    "short": "Keep the reply short.",
    "list": "Write the reply as a list with bullet points.",
    "emoji": "Do not use any emoji.",
    "language": "Write the reply in {x}.",
    "name": 'Call the user "{x}".',
    "direct": "Begin at once with the answer, without any introduction.",
    "simple": "Use simple words that a child understands.",
    "example": "Give an example.",
}
_ASPECTS = {"first": Aspect.FIRST, "last": Aspect.LAST}
_SCORES = {  # the kinds of messages without a wish: score and reason
    "thanks": (1, "The user gives thanks."),
    "praise": (1, "The user is content."),
    "go_on": (1, "The user moves on to the next task."),
    "next": (1, "The user moves on to the next task."),
    "quoting": (1, "The user moves on to the next task."),
    "pasted": (1, "The user moves on to the next task."),
    "small": (0, "The message says nothing about the reply."),
    "mind": (0, "The message says nothing about the reply."),
    "blame": (-1, "The user says that the answer is bad."),
    "sarcasm": (-1, "The user says that the answer is bad."),
    "wrong": (-1, "The user says that the answer is wrong."),
    "same": (-1, "The user asks the same again."),
}
_TOOLS = {
    "success": (1, "The tool reports success."),
    "error": (-1, "The tool reports an error."),
    "useless": (0, "The tool's result is of no use."),
}


def hint_of(wish: str, literal: str, kind: TaskKind | None, rng: Random) -> str:
    """The hint that a judge writes for a wish; `kind` is the kind of work if the reply is from the toy world."""
    if wish in _STYLES:
        said = stated_wish(_STYLES[wish], Random(0))
    elif wish in _ASPECTS:
        said = Wish(_ASPECTS[wish], literal).stated(TaskKind.SOLVE, rng).partition(": ")[2]
    else:
        said = _HINTS[wish].format(x=literal)
    return said if kind is None else f"{place_of(kind)}: {said}"


def heard(rng: Random, texts: Sequence[str]) -> JudgingExample:
    """A turn and what followed it; most of them are from outside the toy world."""
    share = rng.random()
    if share < 0.62:
        return _wished(rng, texts)
    if share < 0.92:
        return _unwished(rng, texts)
    return _tool(rng)


def rounds(rng: Random, texts: Sequence[str]) -> list[Message]:
    """One or several turns to judge after one instruction, so that it is read only once.

    The product's prompt contains a single turn.
    """
    asked = rng.choice((Question.SCORE, Question.HINT, Question.HINT))
    made: list[Message] = []
    for _ in range(rng.choice((1, 1, 4, 6, 8))):
        judged = heard(rng, texts)
        while asked is Question.HINT and judged.next_state[0].role is not Role.USER:
            judged = heard(rng, texts)  # tool results are never asked for a hint
        system, body = judged.prompt(asked)
        made += [body if made else system, *([] if made else [body])]
        made.append(message(Role.ASSISTANT, judged.answer(asked)))
    return made


def _wished(rng: Random, texts: Sequence[str]) -> JudgingExample:
    said = wording(rng)
    if rng.random() < 0.12:  # after something else in the same message
        aside = remark(rng, rng.choice(("small", "praise", "blame", "thanks"))).text
        mark = "" if aside[-1] in ".!?" else "."
        said = replace(said, text=f"{aside}{mark} {said.text}")
    turn, kind = _turn(rng, texts, said)
    assert said.wish is not None
    about = "with other words" if said.wish in ("first", "last", "name") else "in another style"
    hint = hint_of(said.wish, said.literal, kind, rng)
    return replace(turn, score=-1, reason=f"The user asks for a redo {about}.", hint=hint)


def _unwished(rng: Random, texts: Sequence[str]) -> JudgingExample:
    about = rng.choice((*_SCORES, "small", "mind", "next", "go_on"))
    code = FILES[0] if rng.random() < 0.5 else rng.choice(FILES[1:])
    turn, _ = _turn(rng, texts, Wording("", parts(code).language, "plain", None))
    asked = turn.request[-1].text
    if about == "same":
        words = asked.rstrip("?.! ").split()
        asked = " ".join(words[rng.randrange(max(1, len(words) // 3)) :]) if rng.random() < 0.5 else asked
    text = _asked(rng, code) if about == "next" else remark(rng, about, code=code, asked=asked[:200]).text
    if about == "pasted":
        text = f"{text}\n{LEFT_OUT}" if rng.random() < 0.5 else f"{LEFT_OUT}\n{text}"
    if about in ("thanks", "praise") and rng.random() < 0.2:
        text = f"{text} {remark(rng, 'next', code=code).text}"
    score, reason = _SCORES[about]
    return replace(turn, next_state=(message(Role.USER, text),), score=score, reason=reason)


def _asked(rng: Random, code: str) -> str:
    """A further request: about a topic, a question, a task of the toy world, or one that begins a conversation."""
    form = rng.random()
    if form < 0.5:
        return remark(rng, "next", code=code).text
    if form < 0.7:
        return rng.choice(parts(code).slots["question"])
    if form < 0.8:
        return dialogues.task(rng).asked
    scenes = table("scenes")["scenes"]
    assert isinstance(scenes, dict)
    request: str = rng.choice(scenes[parts(code).language])[0]
    return request


def _turn(rng: Random, texts: Sequence[str], said: Wording) -> tuple[JudgingExample, TaskKind | None]:
    """A turn with the message that followed it, and its kind of work if it is from the toy world.

    The request and the reply are from the toy world, the reply is an excerpt of ordinary text, or both are from the
    scenes, then mostly in the message's language.
    """
    share, kind = rng.random(), None
    if share < 0.3:
        task = dialogues.task(rng)
        kind, request = task.kind, task.asked
        reply = task.answer(rng.choice(dialogues.DEFAULTS), rng)
    elif share < 0.45:
        request = remark(rng, "next").text
        reply = ordinary.excerpt(texts, rng, rng.randint(30, 160)).strip() or "Yes."
    else:
        scenes = table("scenes")["scenes"]
        assert isinstance(scenes, dict)
        request, reply = rng.choice(scenes[said.language if rng.random() < 0.7 else "English"])
    turn = JudgingExample(
        (message(Role.USER, request),), message(Role.ASSISTANT, reply), (message(Role.USER, said.text),), 0, ""
    )
    if rng.random() < 0.12:
        earlier = situation(rng)
        turn = replace(turn, request=(*earlier.request, earlier.reply, *turn.request))
    return turn, kind


def _tool(rng: Random) -> JudgingExample:
    held = table("scenes")["tools"]
    assert isinstance(held, dict)
    request, name, key, value = rng.choice(held["calls"])
    about = rng.choice(tuple(_TOOLS))
    call = Message(Role.ASSISTANT, tool_calls=(ToolCall("call_1", name, json.dumps({key: value})),))
    printed = _printed(held[about], rng)
    if rng.random() < 0.25:
        lines = [_printed(held["success"], rng) for _ in range(rng.randint(2, 14))]
        printed = "\n".join([*lines, printed])
    state = replace(message(Role.TOOL, printed), tool_call_id="call_1")
    score, reason = _TOOLS[about]
    return JudgingExample((message(Role.USER, request),), call, (state,), score, reason)


def _printed(lines: list[str], rng: Random) -> str:
    return rng.choice(lines).format(n=rng.randint(1, 600))
