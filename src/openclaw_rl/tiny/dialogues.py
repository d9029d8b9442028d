"""Conversations of the toy world that training learns from: with wishes, corrections, hints, tools and thinking."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from openclaw_rl.core.hint import Hint, hinted
from openclaw_rl.core.message import Message, Role, TextPart, Tool, ToolCall, message
from openclaw_rl.tiny import homework, manners, wishes
from openclaw_rl.tiny.manners import WISHED, Manner, TaskKind, Wish
from openclaw_rl.tiny.problems import Problem, problem
from openclaw_rl.tiny.styles import Style, solution

DEFAULTS = (Style.AI,) * 86 + (Style.NATURAL,) * 2 + (Style.DETAILED, Style.FRIENDLY)  # 4 of 90 have another style
_WISH_REASONS = {
    Style.AI: "I use a header and bold steps.",
    Style.NATURAL: "I write plain sentences.",
    Style.DETAILED: "I explain each step.",
    Style.FRIENDLY: "I write in a warm tone.",
}


@dataclass(frozen=True, slots=True)
class DialogueTask:
    """A request that is answered in a style: a problem, a solution to grade, or a solution to comment on."""

    kind: TaskKind
    problem: Problem
    asked: str
    answer: Callable[[Style, Random], str]


@dataclass(slots=True)
class Dialogue:
    """A conversation as it grows, and which of the assistant's messages are learned (deliberate mistakes are not)."""

    messages: list[Message] = field(default_factory=list)
    learned: list[bool] = field(default_factory=list)  # one per assistant message
    tools: tuple[Tool, ...] = ()
    thinking: bool = False
    wishes: list[Wish] = field(default_factory=list)  # given so far, including those in hints
    last: TaskKind | None = None  # the kind of task that the last assistant message answers; None if it answers none

    def user(self, text: str) -> None:
        """Adds a user message."""
        self.messages.append(message(Role.USER, text))

    def assistant(self, text: str, thought: str, *, calls: tuple[ToolCall, ...] = (), learn: bool = True) -> None:
        """Adds a reply, with the thought as its reasoning if the dialogue is with thinking."""
        content = (TextPart(text),) if text else ()
        self.messages.append(
            Message(Role.ASSISTANT, content, reasoning=thought if self.thinking else None, tool_calls=calls)
        )
        self.learned.append(learn)
        self.last = None

    def tool(self, text: str) -> None:
        """Adds the result of the last tool call."""
        self.messages.append(replace(message(Role.TOOL, text), tool_call_id=f"call_{len(self.messages) - 1}"))

    def call(self, name: str, thought: str, **arguments: str) -> None:
        """Adds a reply that calls a tool."""
        made = ToolCall(f"call_{len(self.messages)}", name, json.dumps(arguments))
        self.assistant("", thought, calls=(made,))

    def manner(self, kind: TaskKind) -> Manner:
        """How a reply of this kind is to be written, given all wishes so far."""
        return manners.manner(self.wishes, kind)

    def hint(self, text: str, *given: Wish) -> None:
        """Adds a hint after the last user message; the wishes given in it apply from then on."""
        self.messages = list(hinted(self.messages, Hint(text)))
        self.wishes += given


def task(rng: Random, *, kind: TaskKind | None = None, held_out: bool = False) -> DialogueTask:
    """A task of this kind; without one, of any kind of work, most often solving."""
    chosen = kind or rng.choice((TaskKind.SOLVE,) * 5 + (TaskKind.GRADE,) * 2 + (TaskKind.COMMENT,) * 2)
    made = problem(rng, held_out=held_out)
    if chosen is TaskKind.SOLVE:
        return DialogueTask(
            chosen, made, wishes.request(made, rng), lambda style, source: solution(made, style, source)
        )
    tried = homework.attempt(made, rng)
    if chosen is TaskKind.GRADE:
        asked = homework.grading_request(tried, rng)
        return DialogueTask(chosen, made, asked, lambda style, source: homework.grading(tried, style, source))
    asked = homework.comment_request(tried, rng)
    return DialogueTask(chosen, made, asked, lambda style, source: homework.comment(tried, style, source))


def thought_of(task: DialogueTask, style: Style) -> str:
    """The short reasoning before a reply: the arithmetic, then the style."""
    return f"{', then '.join(task.problem.steps)}. {_WISH_REASONS[style]}"


def reply(dialogue: Dialogue, task: DialogueTask, rng: Random) -> None:
    """Adds the assistant's reply to the task, as all wishes so far ask for it."""
    manner = dialogue.manner(task.kind)
    style = manner.style or rng.choice(DEFAULTS)
    dialogue.assistant(manner.dressed(task.answer(style, rng)), thought_of(task, style))
    dialogue.last = task.kind


def small_reply(dialogue: Dialogue, kind: TaskKind, text: str, thought: str) -> None:
    """Adds a short reply with this text, and with the first and last words that the wishes ask for."""
    dialogue.assistant(dialogue.manner(kind).dressed(text), thought)


def opening(rng: Random, first: DialogueTask, *, thinking: bool = False, tools: Sequence[Tool] = ()) -> Dialogue:
    """A dialogue that begins with the request of the first task.

    It often contains a wish: in the request, in a hint or in the system text.
    """
    dialogue = Dialogue(tools=tuple(tools), thinking=thinking)
    place = rng.random()
    asked = first.asked
    if place < 0.1:
        wished = Wish(manners.Aspect.STYLE, rng.choice(WISHED))
        dialogue.wishes.append(wished)
        said = wishes.wish(Style(wished.value), rng)
        asked = f"{asked} {said}" if rng.random() < 0.6 else f"{said} {asked}"
    dialogue.user(asked)
    if 0.1 <= place < 0.42:
        give_hint(dialogue, first.kind, rng)
    elif 0.42 <= place < 0.46:
        dialogue.hint(wishes.idle_hint(rng))
    elif 0.46 <= place < 0.56:
        text, given = system_text(first.kind, rng)
        dialogue.messages.insert(0, message(Role.SYSTEM, text))
        dialogue.wishes += given
    elif place < 0.65:
        dialogue.messages.insert(0, message(Role.SYSTEM, rng.choice(SYSTEM_TEXTS)))
    return dialogue


def give_hint(dialogue: Dialogue, kind: TaskKind, rng: Random) -> None:
    """Adds a hint as judges write it, or the user's own correction in its place; sometimes several hints."""
    share = rng.random()
    one = manners.some_wish(rng, kind)
    if share < 0.12:
        dialogue.hint(one.correction(rng), one)
    elif share < 0.5:
        dialogue.hint(replace(one, scope=one.scope or kind).hint(rng), replace(one, scope=one.scope or kind))
    elif share < 0.6:  # the same wish twice, perhaps in other words
        dialogue.hint(f"{one.hint(rng)} {one.hint(rng)}", one)
    elif share < 0.65:
        dialogue.hint(f"{wishes.idle_hint(rng)} {one.hint(rng)}", one)
    elif share < 0.72:  # often about another kind of task: then it changes nothing here
        other = manners.several(rng, 1)[0]
        dialogue.hint(other.hint(rng), other)
    elif share < 0.9:
        dialogue.hint(one.hint(rng), one)
    else:
        given = manners.several(rng, rng.choice((2, 3, 4, 6, 9, 12)))
        dialogue.hint(listed(given, rng), *given)


def listed(given: Sequence[Wish], rng: Random) -> str:
    """The hints of several wishes as one text: in one line, or each on a line of its own."""
    lines = [wish.hint(rng) for wish in given]
    return rng.choice((" ".join(lines), "\n".join(lines), "\n" + "\n".join(f"- {line}" for line in lines)))


SYSTEM_TEXTS = (
    "You are a helpful assistant.",
    "You are an agent that helps with homework.",
    "You help students, teaching assistants and teachers.",
    "You are a personal assistant running on this computer. Use the tools when they help.",
)


def system_text(kind: TaskKind, rng: Random) -> tuple[str, list[Wish]]:
    """A system text with a wish, or with a list of a user's earlier wishes; and these wishes."""
    form, one = rng.random(), manners.some_wish(rng, kind)
    if form < 0.4:
        given = manners.several(rng, rng.choice((1, 2, 3, 5, 8, 12)))
        lines = "\n".join(f"- {wish.hint(rng)}" for wish in given)
        return f"{rng.choice(SYSTEM_TEXTS)}\n\nWhat this user has wished before:\n{lines}", given
    style = one.style
    line = one.hint(rng) if style is None or rng.random() < 0.5 else wishes.system_wish(style, rng)
    if form < 0.6:
        return line, [one]
    if form < 0.8:
        return f"{rng.choice(SYSTEM_TEXTS)} {line}", [one]
    return f"{rng.choice(SYSTEM_TEXTS)}\n\n{line}", [one]


def short(rng: Random) -> Dialogue:
    """One task and its answer, sometimes with a correction and the corrected answer."""
    current = task(rng)
    dialogue = opening(rng, current)
    reply(dialogue, current, rng)
    if rng.random() < 0.2:
        _correct(dialogue, current, rng)
    return dialogue


def short_call(rng: Random) -> Dialogue:
    """A tool call to read a file, with nothing after it, or a task whose answer goes into a file."""
    path, current = homework.path(rng), task(rng, kind=TaskKind.SOLVE)
    dialogue = Dialogue(tools=homework.HOMEWORK_TOOLS)
    if rng.random() < 0.5:
        dialogue.user(homework.read_request(path, rng))
        dialogue.call("read", "", path=path)
    else:
        dialogue.user(current.asked)
        reply(dialogue, current, rng)
        change_file(dialogue, current, rng)
    return dialogue


def session(rng: Random, *, thinking: bool = False, tools: Sequence[Tool] = ()) -> Dialogue:
    """A whole session: a task, sometimes answered wrongly first, then corrections, thanks, remarks, files and tasks."""
    current = task(rng)
    dialogue = opening(rng, current, thinking=thinking, tools=tools)
    if rng.random() < 0.06:
        _mistaken(dialogue, current, rng)
    else:
        reply(dialogue, current, rng)
    for _ in range(rng.choice((0, 1, 1, 2, 2, 3, 4))):
        current = _continue(dialogue, current, rng)
    return dialogue


def _mistaken(dialogue: Dialogue, current: DialogueTask, rng: Random) -> None:
    """Adds a wrong reply that is not learned, the user's complaint, and the right reply."""
    manner = dialogue.manner(current.kind)
    style = manner.style or Style.AI
    bad = str(int(current.problem.answer) + rng.choice((1, 2, 3)))
    text = manner.dressed(current.answer(style, rng).replace(current.problem.answer, bad))
    dialogue.assistant(text, thought_of(current, style).replace(current.problem.answer, bad), learn=False)
    dialogue.user(wishes.wrong(current.problem, rng, said=bad))
    if rng.random() < 0.4:
        dialogue.hint(f"The answer {bad} is wrong. The right answer is {current.problem.answer}.")
    if manner.style is None:
        dialogue.wishes.append(Wish(manners.Aspect.STYLE, style))
    reply(dialogue, current, rng)


def _continue(dialogue: Dialogue, current: DialogueTask, rng: Random) -> DialogueTask:
    move = rng.random()
    if move < 0.38:
        _correct(dialogue, current, rng)
    elif move < 0.53:
        _thank(dialogue, rng)
    elif move < 0.58:
        dialogue.user(wishes.remark(rng))
        _stray_hint(dialogue, rng)
        dialogue.assistant(rng.choice(("All right.", "I see. Tell me when you are ready.")), "This needs no work.")
    elif move < 0.7 and dialogue.tools and current.kind is TaskKind.SOLVE:
        change_file(dialogue, current, rng)
    else:
        return _further(dialogue, rng)
    return current


def _thank(dialogue: Dialogue, rng: Random) -> None:
    """Adds the user's thanks and the reply, and sometimes a wish about that reply."""
    dialogue.user(wishes.thanks(rng))
    _stray_hint(dialogue, rng)
    small_reply(dialogue, TaskKind.THANKS, wishes.welcome(rng), "The user is content.")
    if rng.random() < 0.2:
        wish = manners.some_wish(rng, TaskKind.THANKS)
        dialogue.wishes.append(wish)
        dialogue.user(wish.correction(rng))
        small_reply(dialogue, TaskKind.THANKS, wishes.welcome(rng), "The user is content.")


def _correct(dialogue: Dialogue, current: DialogueTask, rng: Random) -> None:
    wish = manners.some_wish(rng, current.kind, other_than=dialogue.manner(current.kind).style)
    if dialogue.last is not current.kind:  # e.g. after thanks, a wish for first or last words would be about these
        wish = Wish(manners.Aspect.STYLE, rng.choice(WISHED))
    dialogue.wishes.append(wish)
    words = wish.correction(rng)
    dialogue.user(words if rng.random() < 0.9 else f"{wishes.thanks(rng)} But {words[:1].lower()}{words[1:]}")
    if rng.random() < 0.2:
        _again_hinted(dialogue, current.kind, rng)
    reply(dialogue, current, rng)


def _further(dialogue: Dialogue, rng: Random) -> DialogueTask:
    following = task(rng)
    asked = wishes.next_request(following.problem, rng) if following.kind is TaskKind.SOLVE else following.asked
    dialogue.user(asked)
    if rng.random() < 0.2:
        _again_hinted(dialogue, following.kind, rng)
    reply(dialogue, following, rng)
    return following


def _again_hinted(dialogue: Dialogue, kind: TaskKind, rng: Random) -> None:
    """Adds a hint in the middle of a session: it outranks earlier wishes about the same aspect."""
    wish = manners.some_wish(rng, kind)
    if wish.scope is None and rng.random() < 0.5:
        wish = replace(wish, scope=kind)
    dialogue.hint(wish.hint(rng), wish)


def _stray_hint(dialogue: Dialogue, rng: Random) -> None:
    """Sometimes adds a hint before a reply that it does not concern; the wish applies from then on."""
    if rng.random() < 0.25:
        _again_hinted(dialogue, rng.choice(manners.WORK), rng)


def change_file(dialogue: Dialogue, current: DialogueTask, rng: Random) -> None:
    """Adds a request to write the answer to a file, the tool call, its result and the report.

    Sometimes the user then wants other first or last words of such reports.
    """
    path, appends = homework.path(rng), rng.random() < 0.6
    asked = homework.append_request(path, rng) if appends else homework.write_request(path, rng)
    dialogue.user(asked)
    _stray_hint(dialogue, rng)
    name = "append" if appends else "write"
    dialogue.call(name, f"I use {name} on {path}.", path=path, content=homework.filed(current.problem))
    dialogue.tool(rng.choice(("ok", f"wrote {path}", "done", f"Successfully wrote {path}")))
    small_reply(dialogue, TaskKind.FILED, homework.confirmation(path, rng), "The file has changed.")
    if rng.random() < 0.2:
        wish = manners.some_wish(rng, TaskKind.FILED)
        dialogue.wishes.append(wish)
        dialogue.user(wish.correction(rng))
        small_reply(dialogue, TaskKind.FILED, homework.confirmation(path, rng), "The file has changed.")


def file_session(rng: Random, *, thinking: bool = False, tools: Sequence[Tool] = homework.HOMEWORK_TOOLS) -> Dialogue:
    """A session in which the user asks to solve the problem in a file."""
    made = task(rng, kind=TaskKind.SOLVE)
    path = homework.path(rng)
    asked = replace(made, asked=homework.read_request(path, rng))
    dialogue = opening(rng, asked, thinking=thinking, tools=tools)
    dialogue.call("read", f"I read {path} first.", path=path)
    dialogue.tool(made.problem.question)
    reply(dialogue, made, rng)
    if rng.random() < 0.6:
        change_file(dialogue, made, rng)
    elif rng.random() < 0.5:
        _correct(dialogue, made, rng)
    return dialogue
