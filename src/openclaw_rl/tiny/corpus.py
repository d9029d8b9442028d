"""Training samples: dialogues, turns to judge and ordinary text, rendered and cut into learned and unlearned pieces."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from openclaw_rl.core.message import Role, Tool, message
from openclaw_rl.judge.prompt import Question
from openclaw_rl.render.template import ChatTemplate
from openclaw_rl.tiny import agents, clients, dialogues, listening, ordinary
from openclaw_rl.tiny.dialogues import Dialogue
from openclaw_rl.tiny.homework import HOMEWORK_TOOLS
from openclaw_rl.tiny.judging import situation
from openclaw_rl.tiny.problems import NAMES, THINGS, problem

OTHER_TOOLS = tuple(
    Tool(name, text, {"type": "object", "properties": {word: {"type": "string"}}, "required": [word]})
    for name, text, word in (
        ("search", "Search the web.", "query"),
        ("exec", "Run a shell command and return what it prints.", "command"),
        ("edit", "Change a part of a file.", "path"),
        ("send_message", "Send a message to somebody.", "text"),
        ("list_files", "List the files in a folder.", "folder"),
    )
)
_OPENING = re.compile(r"(<\|im_start\|>user\n)(.*?<\|im_end\|>)", re.DOTALL)
_REPLY = re.compile(r"(<\|im_start\|>assistant\n(?:<think>\n)?)(.*?<\|im_end\|>)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class CorpusSample:
    """A text in pieces, each with whether its tokens are learned or only read."""

    pieces: tuple[tuple[str, bool], ...]


def sample(template: ChatTemplate, texts: Sequence[str], rng: Random, *, easy: bool = False) -> CorpusSample:
    """A fresh sample. `texts` are ordinary texts, to learn from and as filler in long agents' prompts.

    Easy samples are short and mostly contain one task: copying and calculating are learned from them first, at a third
    of the cost.
    """
    share = rng.random()
    if share < (0.12 if easy else 0.03):
        return CorpusSample(((_repeated(texts, rng), True), ("<|endoftext|>", True)))
    if share < (0.3 if easy else 0.05):
        return _sums(rng)
    if easy and share < 0.38:
        return rendered(template, dialogues.short_call(rng))
    if easy:
        return rendered(template, dialogues.short(rng))
    if share < 0.08:
        return CorpusSample(((ordinary.excerpt(texts, rng, rng.randint(200, 700)), True), ("<|endoftext|>", True)))
    if share < 0.3:
        judged = situation(rng)
        asked = rng.choice((Question.SCORE, Question.HINT))
        spoken = [*judged.prompt(asked), message(Role.ASSISTANT, judged.answer(asked))]
        return rendered(template, Dialogue(spoken, [True]))
    return rendered(template, _dialogue(texts, rng))


def second_sample(template: ChatTemplate, texts: Sequence[str], rng: Random) -> CorpusSample:
    """A fresh sample of the second stage: most are judgements of messages in many tones and five languages.

    In some the user's first message is learned too, because teaching a wish lets the model generate requests.
    """
    share = rng.random()
    if share < 0.6:
        spoken = listening.rounds(rng, texts)
        return rendered(template, Dialogue(spoken, [True] * sum(item.role is Role.ASSISTANT for item in spoken)))
    if share < 0.7:
        return _with_opening(rendered(template, _dialogue(texts, rng)))
    return sample(template, texts, rng)


def _with_opening(made: CorpusSample) -> CorpusSample:
    """The dialogue with its first user message learned, including the token that ends it."""
    (text, _), *others = made.pieces
    found = _OPENING.search(text)
    if found is None:
        return made
    return CorpusSample(((text[: found.start(2)], False), (found[2], True), (text[found.end() :], False), *others))


def _repeated(texts: Sequence[str], rng: Random) -> str:
    """A line or excerpt two or three times, from which copying is learned."""
    once = ordinary.excerpt(texts, rng, rng.randint(30, 150)).strip()
    if rng.random() < 0.5:
        once = " ".join(str(rng.choice((*NAMES, *THINGS, *range(2, 40)))) for _ in range(rng.randint(4, 16)))
    return "\n".join([once] * rng.choice((2, 2, 3)))


def _sums(rng: Random) -> CorpusSample:
    """A list of calculations, sometimes with results to compare; only results and verdicts are learned."""
    pieces: list[tuple[str, bool]] = []
    compares = rng.random() < 0.4
    for _ in range(rng.randint(8, 24)):
        asked, _, result = rng.choice(problem(rng).steps).partition(" = ")
        pieces += [(f"{asked} =", False), (f" {result}", True)]
        if compares:
            wrote = int(result) + rng.choice((-2, -1, 0, 0, 0, 0, 1, 2))
            verdict = "right" if wrote == int(result) else "not right"
            who = rng.choice(("you", "the student"))
            pieces += [(f", {who} wrote {wrote}, so it is", False), (f" {verdict}", True)]
        pieces.append((".\n", False))
    return CorpusSample((*pieces, ("<|endoftext|>", True)))


def rendered(template: ChatTemplate, dialogue: Dialogue) -> CorpusSample:
    """The dialogue rendered with the chat template; only the assistant's replies are learned, unless marked otherwise.

    Pieces end at special tokens and line ends, where the tokenizer cuts too. So the ids of the pieces, joined, are the
    ids of the whole text.
    """
    text = template.text(dialogue.messages, dialogue.tools, generation_prompt=False)
    pieces: list[tuple[str, bool]] = []
    start = 0
    for found, learn in zip(_REPLY.finditer(text), dialogue.learned, strict=True):
        pieces += [(text[start : found.start(2)], False), (found.group(2), learn)]
        start = found.end()
    return CorpusSample((*pieces, (text[start:], False)))


def _dialogue(texts: Sequence[str], rng: Random) -> Dialogue:
    thinking = rng.random() < 0.12
    kind = rng.random()
    if kind < 0.15:
        made = dialogues.file_session(rng, thinking=thinking, tools=_tools(rng))
    elif kind < 0.28:
        made = dialogues.session(rng, thinking=thinking, tools=_tools(rng))
    else:
        made = dialogues.session(rng, thinking=thinking)
    is_agents = rng.random() < 0.06
    if is_agents or rng.random() < 0.03:
        _lengthen(made, texts, rng)
    if is_agents or rng.random() < 0.03:
        clients.wrap(made, rng)
    if is_agents:
        offered = [*made.tools, *agents.tools(rng, count=rng.randint(0, 8))]
        rng.shuffle(offered)
        made.tools = tuple(offered)
    return made


def _tools(rng: Random) -> tuple[Tool, ...]:
    others = rng.sample(OTHER_TOOLS, rng.choice((0, 0, 1, 2)))
    offered = [*HOMEWORK_TOOLS, *others]
    if rng.random() < 0.5:
        rng.shuffle(offered)
    return tuple(offered)


def _lengthen(dialogue: Dialogue, texts: Sequence[str], rng: Random) -> None:
    """Adds an agent's long system text at the front of a dialogue, in place: text unrelated to the task."""
    chars = rng.choice((400, 800, 1600, 4000) if rng.random() < 0.85 else (10_000, 20_000, 40_000))
    filler = ordinary.excerpt(texts, rng, chars) if rng.random() < 0.3 else agents.system_text(rng, chars=chars)
    first = dialogue.messages[0]
    if first.role is Role.SYSTEM:
        own = f"{first.text}\n\n{filler}" if rng.random() < 0.5 else f"{filler}\n\n{first.text}"
        dialogue.messages[0] = first.with_text(own)
    else:
        front = f"{rng.choice(dialogues.SYSTEM_TEXTS)}\n\n{filler}" if rng.random() < 0.5 else filler
        dialogue.messages.insert(0, message(Role.SYSTEM, front))
