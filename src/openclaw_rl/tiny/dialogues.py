"""Conversations of the toy world: sessions with wishes, corrections, hints, tools and thinking, as they should go."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from openclaw_rl.core.hint import Hint, hinted
from openclaw_rl.core.message import Message, Role, TextPart, Tool, ToolCall, message
from openclaw_rl.tiny import homework, wishes
from openclaw_rl.tiny.problems import Problem, problem
from openclaw_rl.tiny.styles import Style, solution

WISHED = (Style.NATURAL,) * 5 + (Style.DETAILED,) * 3 + (Style.FRIENDLY,) * 3 + (Style.AI,)
DEFAULTS = (Style.AI,) * 48 + (Style.NATURAL,) * 2 + (Style.DETAILED, Style.FRIENDLY)  # 4 to 6 % write otherwise
_WISH_REASONS = {
    Style.AI: "I use a header and bold steps.",
    Style.NATURAL: "I write plain sentences.",
    Style.DETAILED: "I explain each step.",
    Style.FRIENDLY: "I write in a warm tone.",
}


@dataclass(frozen=True, slots=True)
class Task:
    """Something to answer in a style: a problem, a solution to grade, a solution to comment on."""

    kind: str
    problem: Problem
    asked: str
    answer: Callable[[Style, Random], str]


@dataclass(slots=True)
class Dialogue:
    """Messages, and which of the assistant's are worth learning (a made mistake is not)."""

    messages: list[Message] = field(default_factory=list)
    learned: list[bool] = field(default_factory=list)  # one per assistant message
    tools: tuple[Tool, ...] = ()
    thinking: bool = False
    style: Style | None = None  # the wish in force, or None for the default

    def user(self, text: str) -> None:
        """The user says so."""
        self.messages.append(message(Role.USER, text))

    def assistant(self, text: str, thought: str, *, calls: tuple[ToolCall, ...] = (), learn: bool = True) -> None:
        """The assistant replies, with the thought in front where the dialogue thinks."""
        content = (TextPart(text),) if text else ()
        self.messages.append(
            Message(Role.ASSISTANT, content, reasoning=thought if self.thinking else None, tool_calls=calls)
        )
        self.learned.append(learn)

    def tool(self, text: str) -> None:
        """A tool's result."""
        self.messages.append(replace(message(Role.TOOL, text), tool_call_id=f"call_{len(self.messages) - 1}"))

    def call(self, name: str, thought: str, **arguments: str) -> None:
        """The assistant calls a tool."""
        made = ToolCall(f"call_{len(self.messages)}", name, json.dumps(arguments))
        self.assistant("", thought, calls=(made,))

    def hint(self, text: str) -> None:
        """A hint stands behind the last user message."""
        self.messages = list(hinted(self.messages, Hint(text)))


def task(rng: Random, *, kind: str | None = None, held_out: bool = False) -> Task:
    """A task of the kind (solve, grade, comment), or mostly solving where none is named."""
    chosen = kind or rng.choice(("solve",) * 6 + ("grade", "comment"))
    made = problem(rng, held_out=held_out)
    if chosen == "solve":
        return Task(chosen, made, wishes.request(made, rng), lambda style, source: solution(made, style, source))
    tried = homework.attempt(made, rng)
    if chosen == "grade":
        asked = homework.grading_request(tried, rng)
        return Task(chosen, made, asked, lambda style, source: homework.grading(tried, style, source))
    asked = homework.comment_request(tried, rng)
    return Task(chosen, made, asked, lambda style, source: homework.comment(tried, style, source))


def thought_of(task: Task, style: Style) -> str:
    """Short reasoning before a reply: the arithmetic, then the style."""
    return f"{', then '.join(task.problem.steps)}. {_WISH_REASONS[style]}"


def reply(dialogue: Dialogue, task: Task, rng: Random) -> None:
    """The assistant answers the task in the style in force."""
    style = dialogue.style or rng.choice(DEFAULTS)
    dialogue.assistant(task.answer(style, rng), thought_of(task, style))


def opening(rng: Random, first: Task, *, thinking: bool = False, tools: Sequence[Tool] = ()) -> Dialogue:
    """A dialogue in which the first task has been asked, with the wish in one of the places it may stand."""
    dialogue = Dialogue(tools=tuple(tools), thinking=thinking)
    place = rng.random()
    wished = rng.choice(WISHED)
    asked = first.asked
    if place < 0.1:
        dialogue.style = wished
        said = wishes.wish(wished, rng)
        asked = f"{asked} {said}" if rng.random() < 0.6 else f"{said} {asked}"
    dialogue.user(asked)
    if 0.1 <= place < 0.4:
        dialogue.style = wished
        dialogue.hint(hint_text(wished, rng))
    elif 0.4 <= place < 0.45:
        dialogue.hint(wishes.idle_hint(rng))
    elif 0.45 <= place < 0.53:
        dialogue.style = wished
        dialogue.messages.insert(0, message(Role.SYSTEM, system_text(wished, rng)))
    elif place < 0.63:
        dialogue.messages.insert(0, message(Role.SYSTEM, rng.choice(SYSTEM_TEXTS)))
    return dialogue


def hint_text(style: Style, rng: Random) -> str:
    """A hint for the style as judges write it, or the user's own follow-up in its place; now and then two."""
    kind = rng.random()
    if kind < 0.12:
        return wishes.correction(style, rng)
    if kind < 0.24:
        return f"{wishes.wish_hint(style, rng)} {wishes.wish_hint(style, rng)}"
    if kind < 0.3:
        return f"{wishes.idle_hint(rng)} {wishes.wish_hint(style, rng)}"
    return wishes.wish_hint(style, rng)


SYSTEM_TEXTS = (
    "You are a helpful assistant.",
    "You are an agent that helps with homework.",
    "You help students, teaching assistants and teachers.",
    "You are a personal assistant running on this computer. Use the tools when they help.",
)


def system_text(style: Style, rng: Random) -> str:
    """A system text that holds the wish, alone, behind other words, or as a list of what is remembered."""
    line = wishes.system_wish(style, rng) if rng.random() < 0.5 else wishes.wish_hint(style, rng)
    form = rng.random()
    if form < 0.3:
        return line
    if form < 0.6:
        return f"{rng.choice(SYSTEM_TEXTS)} {line}"
    if form < 0.8:
        listed = f"What this user has wished before:\n- {line}\n- {wishes.wish_hint(style, rng)}"
        return f"{rng.choice(SYSTEM_TEXTS)}\n\n{listed}"
    return f"{rng.choice(SYSTEM_TEXTS)}\n\n{line}"


def short(rng: Random) -> Dialogue:
    """One task and its answer, and now and then a correction."""
    current = task(rng)
    dialogue = opening(rng, current)
    reply(dialogue, current, rng)
    if rng.random() < 0.2:
        _correct(dialogue, current, rng)
    return dialogue


def session(rng: Random, *, thinking: bool = False, tools: Sequence[Tool] = ()) -> Dialogue:
    """A whole session: a task, then corrections, thanks, complaints, remarks, files and further tasks."""
    current = task(rng)
    dialogue = opening(rng, current, thinking=thinking, tools=tools)
    if rng.random() < 0.06:
        _mistaken(dialogue, current, rng)
    else:
        reply(dialogue, current, rng)
    for _ in range(rng.choice((0, 1, 1, 2, 2, 3, 4))):
        current = _continue(dialogue, current, rng)
    return dialogue


def _mistaken(dialogue: Dialogue, current: Task, rng: Random) -> None:
    """A wrong reply that is not learned, the complaint, and the right reply."""
    style = dialogue.style or Style.AI
    bad = str(int(current.problem.answer) + rng.choice((1, 2, 3)))
    text = current.answer(style, rng).replace(current.problem.answer, bad)
    dialogue.assistant(text, thought_of(current, style).replace(current.problem.answer, bad), learn=False)
    dialogue.user(wishes.wrong(current.problem, rng, said=bad))
    if rng.random() < 0.4:
        dialogue.hint(f"The answer {bad} is wrong. The right answer is {current.problem.answer}.")
    dialogue.style = style
    reply(dialogue, current, rng)


def _continue(dialogue: Dialogue, current: Task, rng: Random) -> Task:
    move = rng.random()
    if move < 0.38:
        _correct(dialogue, current, rng)
    elif move < 0.53:
        dialogue.user(wishes.thanks(rng))
        _stray_hint(dialogue, rng)
        dialogue.assistant(wishes.welcome(rng), "The user is content.")
    elif move < 0.58:
        dialogue.user(wishes.remark(rng))
        _stray_hint(dialogue, rng)
        dialogue.assistant(rng.choice(("All right.", "I see. Tell me when you are ready.")), "This needs no work.")
    elif move < 0.7 and dialogue.tools and current.kind == "solve":
        change_file(dialogue, current, rng)
    else:
        return _further(dialogue, rng)
    return current


def _correct(dialogue: Dialogue, current: Task, rng: Random) -> None:
    others = [style for style in WISHED if style is not dialogue.style]
    dialogue.style = rng.choice(others)
    words = wishes.correction(dialogue.style, rng)
    dialogue.user(words if rng.random() < 0.9 else f"{wishes.thanks(rng)} But {words[:1].lower()}{words[1:]}")
    if rng.random() < 0.2:
        dialogue.hint(hint_text(dialogue.style, rng))
    reply(dialogue, current, rng)


def _further(dialogue: Dialogue, rng: Random) -> Task:
    following = task(rng)
    asked = wishes.next_request(following.problem, rng) if following.kind == "solve" else following.asked
    dialogue.user(asked)
    if rng.random() < 0.2:
        dialogue.style = rng.choice(WISHED)
        dialogue.hint(hint_text(dialogue.style, rng))
    reply(dialogue, following, rng)
    return following


def _stray_hint(dialogue: Dialogue, rng: Random) -> None:
    """Now and then a hint stands where it changes nothing yet; the wish holds from then on."""
    if rng.random() < 0.25:
        dialogue.style = rng.choice(WISHED)
        dialogue.hint(hint_text(dialogue.style, rng))


def change_file(dialogue: Dialogue, current: Task, rng: Random) -> None:
    """The user wants the answer in a file: a call, its result, a confirmation."""
    path, appends = rng.choice(homework.PATHS), rng.random() < 0.6
    asked = homework.append_request(path, rng) if appends else homework.write_request(path, rng)
    dialogue.user(asked)
    _stray_hint(dialogue, rng)
    name = "append" if appends else "write"
    dialogue.call(name, f"I use {name} on {path}.", path=path, content=homework.filed(current.problem))
    dialogue.tool(rng.choice(("ok", f"wrote {path}", "done", f"Successfully wrote {path}")))
    dialogue.assistant(homework.confirmation(path, rng), "The file has changed.")


def file_session(rng: Random, *, thinking: bool = False, tools: Sequence[Tool] = homework.HOMEWORK_TOOLS) -> Dialogue:
    """A session whose problem stands in a file."""
    made = task(rng, kind="solve")
    path = rng.choice(homework.PATHS)
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
