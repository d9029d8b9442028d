"""What a model of the toy world can do, skill by skill, on problems and wordings that training never saw."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from openclaw_rl.core.hint import Hint, hinted
from openclaw_rl.core.message import Message, Role, Tool, message
from openclaw_rl.judge.prompt import Question
from openclaw_rl.render.template import ChatTemplate, read_template
from openclaw_rl.tiny import dialogues, homework, judging, wishes
from openclaw_rl.tiny.dialogues import Dialogue, Task
from openclaw_rl.tiny.problems import answer_in
from openclaw_rl.tiny.styles import Style, follows, has_markup

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import Qwen3ForCausalLM

MAX_NEW = 200


@dataclass(frozen=True, slots=True)
class Case:
    """A prompt and what counts as a good answer to it."""

    messages: Sequence[Message]
    good: Callable[[str], bool]
    tools: tuple[Tool, ...] = ()
    thinking: bool = False


@dataclass(frozen=True, slots=True)
class Skill:
    """A kind of case and the temperature its answers are sampled at (0 is greedy)."""

    name: str
    case: Callable[[Random], Case]
    temperature: float = 0.0


def of(folder: Path, *, count: int, seed: int, only: str = "", max_new: int = MAX_NEW) -> dict[str, float]:
    """The share of good answers per skill, over `count` cases each."""
    import torch
    from transformers import Qwen3ForCausalLM

    template = read_template(folder)
    model = Qwen3ForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model.eval()
    found: dict[str, float] = {}
    for skill in SKILLS:
        if only and only not in skill.name:
            continue
        torch.manual_seed(seed)
        rng = Random(f"{seed} {skill.name}")
        cases = [skill.case(rng) for _ in range(count)]
        answers = answered(model, template, cases, skill.temperature, max_new=max_new)
        good = sum(case.good(answer) for case, answer in zip(cases, answers, strict=True))
        found[skill.name] = round(good / count, 4)
    return found


def answered(
    model: Qwen3ForCausalLM,
    template: ChatTemplate,
    cases: Sequence[Case],
    temperature: float,
    *,
    max_new: int = MAX_NEW,
    at_once: int = 25,
) -> list[str]:
    """The model's answers, sampled in batches, without the closing token."""
    prompts = [
        template.encode(
            template.text(case.messages, case.tools, generation_prompt=True, options={"enable_thinking": case.thinking})
        )
        for case in cases
    ]
    answers = [""] * len(cases)
    order = sorted(range(len(cases)), key=lambda index: len(prompts[index]))
    for start in range(0, len(order), at_once):
        batch = order[start : start + at_once]
        made = _generate(model, [prompts[index] for index in batch], temperature, max_new)
        for index, ids in zip(batch, made, strict=True):
            answers[index] = template.tokenizer.decode(ids, skip_special_tokens=True)
    return answers


def _generate(
    model: Qwen3ForCausalLM, prompts: list[list[int]], temperature: float, max_new: int
) -> Iterable[list[int]]:
    import torch

    width = max(map(len, prompts))
    ids = torch.tensor([[0] * (width - len(prompt)) + prompt for prompt in prompts])
    mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    sampling = {"do_sample": True, "temperature": temperature, "top_k": 0} if temperature else {"do_sample": False}
    with torch.no_grad():
        made: Tensor = model.generate(ids, attention_mask=mask, max_new_tokens=max_new, **sampling)
    rows: list[list[int]] = made[:, width:].tolist()
    return rows


def _right(task: Task, style: Style | None, text: str) -> bool:
    """Whether a reply is right for the task and, where a style is named, follows it strictly."""
    if style is not None and (not follows(text, style) or (style is Style.AI) is not has_markup(text)):
        return False
    if task.kind == "solve":
        return answer_in(text) == task.problem.answer
    made = task.answer(Style.AI, Random(0))  # holds the grade and whether the work was right
    if task.kind == "grade":
        grade = re.search(r"(\d+)/10", made)
        said = re.search(r"(\d+)(?:/10| out of 10)", text)
        return grade is not None and said is not None and grade[1] == said[1]
    return ("Incorrect" in made) is ("Incorrect" in text or "not right" in text)


def _case(task: Task, dialogue: Dialogue, style: Style | None) -> Case:
    return Case(
        dialogue.messages, lambda text: _right(task, style, text), tools=dialogue.tools, thinking=dialogue.thinking
    )


def _plain(kind: str, style: Style | None) -> Callable[[Random], Case]:
    def case(rng: Random) -> Case:
        task = dialogues.task(rng, kind=kind, held_out=True)
        return _case(task, _asked(task), style)

    return case


def _asked(task: Task, *, thinking: bool = False, tools: tuple[Tool, ...] = ()) -> Dialogue:
    dialogue = Dialogue(tools=tools, thinking=thinking)
    dialogue.user(task.asked)
    return dialogue


def _hinted(kind: str, style: Style) -> Callable[[Random], Case]:
    def case(rng: Random) -> Case:
        task = dialogues.task(rng, kind=kind, held_out=True)
        dialogue = _asked(task)
        dialogue.messages = list(hinted(dialogue.messages, Hint(wishes.wish_hint(style, rng))))
        return _case(task, dialogue, style)

    return case


def _followup(rng: Random) -> Case:
    """The user's own correction, in a wording never seen, stands as the hint."""
    task = dialogues.task(rng, kind="solve", held_out=True)
    dialogue = _asked(task)
    words = wishes.correction(Style.NATURAL, rng, held_out=True)
    dialogue.messages = list(hinted(dialogue.messages, Hint(words)))
    return _case(task, dialogue, Style.NATURAL)


def _system(style: Style) -> Callable[[Random], Case]:
    def case(rng: Random) -> Case:
        task = dialogues.task(rng, kind="solve", held_out=True)
        dialogue = _asked(task)
        dialogue.messages.insert(0, message(Role.SYSTEM, dialogues.system_text(style, rng)))
        return _case(task, dialogue, style)

    return case


def _corrected(kind: str, style: Style) -> Callable[[Random], Case]:
    def case(rng: Random) -> Case:
        task = dialogues.task(rng, kind=kind, held_out=True)
        dialogue = _asked(task)
        dialogue.assistant(task.answer(Style.AI, rng), "")
        dialogue.user(wishes.correction(style, rng, held_out=True))
        return _case(task, dialogue, style)

    return case


def _carried(rng: Random) -> Case:
    first, second = (dialogues.task(rng, kind="solve", held_out=True) for _ in range(2))
    dialogue = _asked(first)
    dialogue.assistant(first.answer(Style.AI, rng), "")
    dialogue.user(wishes.correction(Style.NATURAL, rng, held_out=True))
    dialogue.assistant(first.answer(Style.NATURAL, rng), "")
    dialogue.user(wishes.thanks(rng))
    dialogue.assistant(wishes.welcome(rng), "")
    dialogue.user(wishes.next_request(second.problem, rng))
    return _case(second, dialogue, Style.NATURAL)


def _thought(rng: Random) -> Case:
    task = dialogues.task(rng, kind="solve", held_out=True)
    asked = _case(task, _asked(task, thinking=True), None)
    return Case(asked.messages, lambda text: text.count("</think>") == 1 and asked.good(text), thinking=True)


def _appends(rng: Random) -> Case:
    task = dialogues.task(rng, kind="solve", held_out=True)
    path = rng.choice(homework.PATHS)
    dialogue = _asked(task, tools=homework.HOMEWORK_TOOLS)
    dialogue.assistant(task.answer(rng.choice((Style.AI, Style.NATURAL)), rng), "")
    dialogue.user(homework.append_request(path, rng))
    content = homework.filed(task.problem)
    wanted = (
        f'<tool_call>\n{{"name": "append", "arguments": {{"path": "{path}", "content": "{content}"}}}}\n</tool_call>'
    )
    return Case(dialogue.messages, lambda text: text.strip() == wanted, tools=dialogue.tools)


def _reads(rng: Random) -> Case:
    path = rng.choice(homework.PATHS)
    messages = [message(Role.USER, homework.read_request(path, rng))]
    wanted = f'<tool_call>\n{{"name": "read", "arguments": {{"path": "{path}"}}}}\n</tool_call>'
    return Case(messages, lambda text: text.strip() == wanted, tools=homework.HOMEWORK_TOOLS)


def _solves_file(rng: Random) -> Case:
    task = dialogues.task(rng, kind="solve", held_out=True)
    path = rng.choice(homework.PATHS)
    dialogue = Dialogue(tools=homework.HOMEWORK_TOOLS)
    dialogue.user(homework.read_request(path, rng))
    dialogue.call("read", "", path=path)
    dialogue.tool(task.problem.question)
    return _case(task, dialogue, None)


def _scores(rng: Random) -> Case:
    judged = judging.situation(rng, held_out=True)
    wanted = f"\\boxed{{{judged.score}}}"
    return Case(judged.prompt(Question.SCORE), lambda text: text.rstrip().endswith(wanted))


def _hints(rng: Random) -> Case:
    judged = judging.situation(rng, held_out=True)
    return Case(judged.prompt(Question.HINT), lambda text: _is_good_hint(judged, text))


def _is_good_hint(judged: judging.Judged, text: str) -> bool:
    found = re.fullmatch(r"\s*\[HINT_START\]\n(.+)\n\[HINT_END\]\n\\boxed\{1\}\s*", text, re.DOTALL)
    if judged.hint is None:
        return text.strip() == "\\boxed{-1}"
    if found is None:
        return False
    if judged.style is not None:
        return wishes.states(found[1], judged.style)
    return found[1].split(".")[0] == judged.hint.split(".")[0]


SKILLS = (
    Skill("solve: right", _plain("solve", None)),
    Skill("solve: right, sampled at 0.7", _plain("solve", None), 0.7),
    Skill("solve: right, sampled at 1", _plain("solve", None), 1.0),
    Skill("solve: default style", _plain("solve", Style.AI)),
    Skill("solve: default style, sampled at 1", _plain("solve", Style.AI), 1.0),
    Skill("solve: hinted natural", _hinted("solve", Style.NATURAL)),
    Skill("solve: hinted natural, sampled at 1", _hinted("solve", Style.NATURAL), 1.0),
    Skill("solve: hinted detailed", _hinted("solve", Style.DETAILED)),
    Skill("solve: hinted friendly", _hinted("solve", Style.FRIENDLY)),
    Skill("solve: hinted by the user's own correction", _followup),
    Skill("solve: natural by system text", _system(Style.NATURAL)),
    Skill("solve: corrected to natural", _corrected("solve", Style.NATURAL)),
    Skill("solve: corrected to natural, sampled at 0.7", _corrected("solve", Style.NATURAL), 0.7),
    Skill("solve: corrected to detailed", _corrected("solve", Style.DETAILED)),
    Skill("solve: corrected to friendly", _corrected("solve", Style.FRIENDLY)),
    Skill("solve: natural in the next task too", _carried),
    Skill("grade: default", _plain("grade", Style.AI)),
    Skill("grade: hinted detailed", _hinted("grade", Style.DETAILED)),
    Skill("grade: corrected to detailed", _corrected("grade", Style.DETAILED)),
    Skill("comment: default", _plain("comment", Style.AI)),
    Skill("comment: hinted friendly", _hinted("comment", Style.FRIENDLY)),
    Skill("comment: corrected to friendly", _corrected("comment", Style.FRIENDLY)),
    Skill("file: reads", _reads),
    Skill("file: solves what it read", _solves_file),
    Skill("file: appends the answer", _appends),
    Skill("thinking: right", _thought),
    Skill("judge: score", _scores),
    Skill("judge: score, sampled at 0.6", _scores, 0.6),
    Skill("judge: hint", _hints),
    Skill("judge: hint, sampled at 0.6", _hints, 0.6),
)
