"""Cases that test what the bundled model was taught, by skill: problems and often wordings that training never saw."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from openclaw_rl.core.hint import Hint, hinted
from openclaw_rl.core.message import Message, Role, Tool, message
from openclaw_rl.judge.prompt import Question
from openclaw_rl.tiny import agents, dialogues, homework, judging, manners, wishes
from openclaw_rl.tiny.dialogues import Dialogue, DialogueTask
from openclaw_rl.tiny.manners import Aspect, TaskKind, Wish
from openclaw_rl.tiny.problems import answer_in
from openclaw_rl.tiny.styles import Style, follows, has_markup


@dataclass(frozen=True, slots=True)
class SkillCase:
    """A prompt, and a check of whether a reply to it is good."""

    messages: Sequence[Message]
    good: Callable[[str], bool]
    tools: tuple[Tool, ...] = ()
    thinking: bool = False


@dataclass(frozen=True, slots=True)
class Skill:
    """A kind of case, and the temperature at which its replies are sampled (0 is greedy)."""

    name: str
    case: Callable[[Random], SkillCase]
    temperature: float = 0.0


def _right(task: DialogueTask, style: Style | None, text: str) -> bool:
    """Whether a reply is right for the task and, if a style is given, strictly follows it.

    A reply in another style than AI must also have no markup.
    """
    if style is not None and (not follows(text, style) or (style is Style.AI) is not has_markup(text)):
        return False
    if task.kind is TaskKind.SOLVE:
        return answer_in(text) == task.problem.answer
    made = task.answer(Style.AI, Random(0))  # contains the grade, and whether the work is right
    if task.kind is TaskKind.GRADE:
        grade = re.search(r"(\d+)/10", made)
        said = re.search(r"(\d+)(?:/10| out of 10)", text)
        return grade is not None and said is not None and grade[1] == said[1]
    return ("Incorrect" in made) is ("Incorrect" in text or "not right" in text)


def _case(task: DialogueTask, dialogue: Dialogue, style: Style | None) -> SkillCase:
    return SkillCase(
        dialogue.messages, lambda text: _right(task, style, text), tools=dialogue.tools, thinking=dialogue.thinking
    )


def _plain(kind: TaskKind, style: Style | None) -> Callable[[Random], SkillCase]:
    def case(rng: Random) -> SkillCase:
        task = dialogues.task(rng, kind=kind, held_out=True)
        return _case(task, _asked(task), style)

    return case


def _asked(task: DialogueTask, *, thinking: bool = False, tools: tuple[Tool, ...] = ()) -> Dialogue:
    dialogue = Dialogue(tools=tools, thinking=thinking)
    dialogue.user(task.asked)
    return dialogue


def _hinted(kind: TaskKind, style: Style) -> Callable[[Random], SkillCase]:
    """Cases with a hint for a style, in a judge's words or in others."""

    def case(rng: Random) -> SkillCase:
        task = dialogues.task(rng, kind=kind, held_out=True)
        dialogue, wish = _asked(task), Wish(Aspect.STYLE, style)
        dialogue.hint(wish.stated(kind, rng) if rng.random() < 0.5 else wish.hint(rng))
        return _case(task, dialogue, style)

    return case


def _dressed(kind: TaskKind, aspect: Aspect, *, is_hinted: bool) -> Callable[[Random], SkillCase]:
    """Cases with words to begin or to end with, which a hint or a correction asks for."""

    def case(rng: Random) -> SkillCase:
        task = dialogues.task(rng, kind=kind, held_out=True)
        words = manners.words_first(rng) if aspect is Aspect.FIRST else manners.words_last(rng)
        dialogue, wish = _asked(task), Wish(aspect, words)
        if is_hinted:
            dialogue.hint(wish.stated(kind, rng))
        else:
            dialogue.assistant(task.answer(Style.AI, rng), "")
            dialogue.user(wish.correction(rng, held_out=True))
        return SkillCase(dialogue.messages, lambda text: wish.holds(text) and _right(task, None, text))

    return case


def _remembered(count: int) -> Callable[[Random], SkillCase]:
    """Cases with `count` wishes in the system text: only those about solving should be followed."""

    def case(rng: Random) -> SkillCase:
        task = dialogues.task(rng, kind=TaskKind.SOLVE, held_out=True)
        given = manners.several(rng, count)
        dialogue = _asked(task)
        lines = "\n".join(f"- {wish.stated(wish.scope or TaskKind.SOLVE, rng)}" for wish in given)
        text = f"{dialogues.SYSTEM_TEXTS[0]}\n\nWhat this user has wished before:\n{lines}"
        dialogue.messages.insert(0, message(Role.SYSTEM, text))
        manner = manners.manner(given, TaskKind.SOLVE)

        def good(text: str) -> bool:
            dressed = text.strip().startswith(manner.first) and text.strip().endswith(manner.last)
            return dressed and _right(task, manner.style or Style.AI, text)

        return SkillCase(dialogue.messages, good)

    return case


def _behind_long_text(chars: int) -> Callable[[Random], SkillCase]:
    """Cases with an agent's system text of at least `chars` characters in front: read a file, or solve a problem."""

    def case(rng: Random) -> SkillCase:
        made = _reads(rng) if rng.random() < 0.5 else _plain(TaskKind.SOLVE, None)(rng)
        front = message(Role.SYSTEM, agents.system_text(rng, chars=chars))
        return SkillCase([front, *made.messages], made.good, tools=homework.HOMEWORK_TOOLS)

    return case


def _followup(rng: Random) -> SkillCase:
    """A case in which the hint is a user's correction, in a wording that training never saw."""
    task = dialogues.task(rng, kind=TaskKind.SOLVE, held_out=True)
    dialogue = _asked(task)
    words = wishes.correction(Style.NATURAL, rng, held_out=True)
    dialogue.messages = list(hinted(dialogue.messages, Hint(words)))
    return _case(task, dialogue, Style.NATURAL)


def _system(style: Style) -> Callable[[Random], SkillCase]:
    def case(rng: Random) -> SkillCase:
        task = dialogues.task(rng, kind=TaskKind.SOLVE, held_out=True)
        dialogue = _asked(task)
        line = wishes.system_wish(style, rng) if rng.random() < 0.5 else wishes.wish_hint(style, rng)
        dialogue.messages.insert(0, message(Role.SYSTEM, f"{dialogues.SYSTEM_TEXTS[0]} {line}"))
        return _case(task, dialogue, style)

    return case


def _corrected(kind: TaskKind, style: Style) -> Callable[[Random], SkillCase]:
    def case(rng: Random) -> SkillCase:
        task = dialogues.task(rng, kind=kind, held_out=True)
        dialogue = _asked(task)
        dialogue.assistant(task.answer(Style.AI, rng), "")
        dialogue.user(wishes.correction(style, rng, held_out=True))
        return _case(task, dialogue, style)

    return case


def _carried(rng: Random) -> SkillCase:
    first, second = (dialogues.task(rng, kind=TaskKind.SOLVE, held_out=True) for _ in range(2))
    dialogue = _asked(first)
    dialogue.assistant(first.answer(Style.AI, rng), "")
    dialogue.user(wishes.correction(Style.NATURAL, rng, held_out=True))
    dialogue.assistant(first.answer(Style.NATURAL, rng), "")
    dialogue.user(wishes.thanks(rng))
    dialogue.assistant(wishes.welcome(rng), "")
    dialogue.user(wishes.next_request(second.problem, rng))
    return _case(second, dialogue, Style.NATURAL)


def _thought(rng: Random) -> SkillCase:
    task = dialogues.task(rng, kind=TaskKind.SOLVE, held_out=True)
    asked = _case(task, _asked(task, thinking=True), None)
    return SkillCase(asked.messages, lambda text: text.count("</think>") == 1 and asked.good(text), thinking=True)


def _appends(rng: Random) -> SkillCase:
    task = dialogues.task(rng, kind=TaskKind.SOLVE, held_out=True)
    path = homework.path(rng)
    dialogue = _asked(task, tools=homework.HOMEWORK_TOOLS)
    dialogue.assistant(task.answer(rng.choice((Style.AI, Style.NATURAL)), rng), "")
    dialogue.user(homework.append_request(path, rng))
    content = homework.filed(task.problem)
    wanted = (
        f'<tool_call>\n{{"name": "append", "arguments": {{"path": "{path}", "content": "{content}"}}}}\n</tool_call>'
    )
    return SkillCase(dialogue.messages, lambda text: text.strip() == wanted, tools=dialogue.tools)


def _reads(rng: Random) -> SkillCase:
    path = homework.path(rng)
    messages = [message(Role.USER, homework.read_request(path, rng))]
    wanted = f'<tool_call>\n{{"name": "read", "arguments": {{"path": "{path}"}}}}\n</tool_call>'
    return SkillCase(messages, lambda text: text.strip() == wanted, tools=homework.HOMEWORK_TOOLS)


def _solves_file(rng: Random) -> SkillCase:
    task = dialogues.task(rng, kind=TaskKind.SOLVE, held_out=True)
    path = homework.path(rng)
    dialogue = Dialogue(tools=homework.HOMEWORK_TOOLS)
    dialogue.user(homework.read_request(path, rng))
    dialogue.call("read", "", path=path)
    dialogue.tool(task.problem.question)
    return _case(task, dialogue, None)


def _scores(rng: Random) -> SkillCase:
    judged = judging.situation(rng, held_out=True)
    wanted = f"\\boxed{{{judged.score}}}"
    return SkillCase(judged.prompt(Question.SCORE), lambda text: text.rstrip().endswith(wanted))


def _hints(rng: Random) -> SkillCase:
    judged = judging.situation(rng, held_out=True)
    return SkillCase(judged.prompt(Question.HINT), lambda text: _is_good_hint(judged, text))


def _is_good_hint(judged: judging.JudgingExample, text: str) -> bool:
    found = re.fullmatch(r"\s*\[HINT_START\]\n(.+)\n\[HINT_END\]\n\\boxed\{1\}\s*", text, re.DOTALL)
    if judged.hint is None:
        return text.strip() == "\\boxed{-1}"
    if found is None:
        return False
    if judged.wish is not None:
        return judged.wish.is_stated(found[1], judged.kind)
    return found[1].split(".")[0] == judged.hint.split(".")[0]


SKILLS = (
    Skill("solve: right", _plain(TaskKind.SOLVE, None)),
    Skill("solve: right, sampled at 0.7", _plain(TaskKind.SOLVE, None), 0.7),
    Skill("solve: right, sampled at 1", _plain(TaskKind.SOLVE, None), 1.0),
    Skill("solve: default style", _plain(TaskKind.SOLVE, Style.AI)),
    Skill("solve: default style, sampled at 1", _plain(TaskKind.SOLVE, Style.AI), 1.0),
    Skill("solve: hinted natural", _hinted(TaskKind.SOLVE, Style.NATURAL)),
    Skill("solve: hinted natural, sampled at 1", _hinted(TaskKind.SOLVE, Style.NATURAL), 1.0),
    Skill("solve: hinted detailed", _hinted(TaskKind.SOLVE, Style.DETAILED)),
    Skill("solve: hinted friendly", _hinted(TaskKind.SOLVE, Style.FRIENDLY)),
    Skill("solve: hinted by the user's own correction", _followup),
    Skill("solve: natural by system text", _system(Style.NATURAL)),
    Skill("solve: corrected to natural", _corrected(TaskKind.SOLVE, Style.NATURAL)),
    Skill("solve: corrected to natural, sampled at 0.7", _corrected(TaskKind.SOLVE, Style.NATURAL), 0.7),
    Skill("solve: corrected to detailed", _corrected(TaskKind.SOLVE, Style.DETAILED)),
    Skill("solve: corrected to friendly", _corrected(TaskKind.SOLVE, Style.FRIENDLY)),
    Skill("solve: natural in the next task too", _carried),
    Skill("solve: first words by hint", _dressed(TaskKind.SOLVE, Aspect.FIRST, is_hinted=True)),
    Skill("solve: last words by correction", _dressed(TaskKind.SOLVE, Aspect.LAST, is_hinted=False)),
    Skill("grade: last words by hint", _dressed(TaskKind.GRADE, Aspect.LAST, is_hinted=True)),
    Skill("solve: 3 wishes remembered", _remembered(3)),
    Skill("solve: 12 wishes remembered", _remembered(12)),
    Skill("solves or reads behind 8,000 characters", _behind_long_text(8_000)),
    Skill("solves or reads behind 40,000 characters", _behind_long_text(40_000)),
    Skill("grade: default", _plain(TaskKind.GRADE, Style.AI)),
    Skill("grade: hinted detailed", _hinted(TaskKind.GRADE, Style.DETAILED)),
    Skill("grade: corrected to detailed", _corrected(TaskKind.GRADE, Style.DETAILED)),
    Skill("comment: default", _plain(TaskKind.COMMENT, Style.AI)),
    Skill("comment: hinted friendly", _hinted(TaskKind.COMMENT, Style.FRIENDLY)),
    Skill("comment: corrected to friendly", _corrected(TaskKind.COMMENT, Style.FRIENDLY)),
    Skill("file: reads", _reads),
    Skill("file: solves what it read", _solves_file),
    Skill("file: appends the answer", _appends),
    Skill("thinking: right", _thought),
    Skill("judge: score", _scores),
    Skill("judge: score, sampled at 0.6", _scores, 0.6),
    Skill("judge: hint", _hints),
    Skill("judge: hint, sampled at 0.6", _hints, 0.6),
)
