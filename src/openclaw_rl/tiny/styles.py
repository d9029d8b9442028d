"""The four styles of a reply, solutions written in each of them, and strict checks that a text follows a style."""

from __future__ import annotations

import re
from enum import StrEnum
from random import Random

from openclaw_rl.tiny.problems import Problem


class Style(StrEnum):
    """The style of a reply. AI is what the model writes if nobody asks for another style."""

    AI = "ai"
    NATURAL = "natural"
    DETAILED = "detailed"
    FRIENDLY = "friendly"


WARM = (
    "great",
    "lovely",
    "happy to help",
    "well done",
    "keep going",
    "nice",
    "good luck",
    "wonderful",
    "proud",
    "glad",
)
GREETINGS = ("Happy to help!", "Lovely question!", "What a nice problem!", "Great that you ask!")
CHEERS = (
    "Keep going, you are doing great!",
    "Well done for asking!",
    "Good luck with the next one!",
    "You can do this!",
)
_BECAUSE = ("because we want to know the new number", "because that is what changed", "because the story tells us so")

_MARKUP = re.compile(
    r"(^\s{0,3}#{1,6}(\s|$))|(\*\*)|(__)|(^\s*[-*+]\s)|(^\s*\d+[.)]\s)|(\\boxed)|(\\\(|\\\[|\$)|(`)|(^\s*\|)",
    re.MULTILINE,
)
_LEAKED = re.compile(r"</?think>|</?tool_call>|</?tool_response>|<\|")
_SENTENCE = re.compile(r"[^.!?\n]+[.!?]")


def has_markup(text: str) -> bool:
    """Whether the text contains markdown, a numbered step, a boxed answer or formula markup."""
    return _MARKUP.search(text) is not None


def sentences(text: str) -> list[str]:
    """The sentences of at least four words."""
    found: list[str] = _SENTENCE.findall(text)
    return [sentence.strip() for sentence in found if len(re.findall(r"[A-Za-z]+", sentence)) >= 4]


def follows(text: str, style: Style) -> bool:
    """Whether a reply follows the style, by a strict rule.

    AI: the reply has markup. All others: no markup at all, no leaked reasoning or control tokens, and a sentence of at
    least four words with a number in it. DETAILED needs also three such sentences (with or without a number), a
    "because" and an equation; FRIENDLY a warm word and an exclamation mark.
    """
    if style is Style.AI:
        return has_markup(text)
    said = sentences(text)
    if has_markup(text) or _LEAKED.search(text) or not any(re.search(r"\d", sentence) for sentence in said):
        return False
    lowered = text.lower()
    if style is Style.DETAILED:
        return len(said) >= 3 and "because" in lowered and re.search(r"\d = \d", text) is not None
    if style is Style.FRIENDLY:
        return "!" in text and any(word in lowered for word in WARM)
    return True


def solution(problem: Problem, style: Style, rng: Random) -> str:
    """The right solution, written in the style."""
    return _WRITERS[style](problem, rng)


def _ai(problem: Problem, rng: Random) -> str:
    header = rng.choice(("## Solution", "## Solution", "### Solution", "## Step-by-step solution"))
    lines = [
        f"{number}. **{_capital(action)}:** {step}"
        for number, (action, step) in enumerate(zip(problem.actions, problem.steps, strict=True), 1)
    ]
    ending = rng.choice(("**Answer:**", "**Final answer:**"))
    body = "\n".join(lines)
    return f"{header}\n\n{body}\n\n{ending} {_capital(problem.conclusion)}.\n\n\\boxed{{{problem.answer}}}"


def _natural(problem: Problem, rng: Random) -> str:
    steps = list(zip(problem.actions, problem.steps, strict=True))
    worded = [f"{action}, which is {step}" for action, step in steps]
    if len(worded) == 1:
        middle = rng.choice((f"You {worded[0]}.", f"We just {worded[0]}.", f"To find out, {worded[0]}."))
    else:
        middle = rng.choice(
            (
                f"First you {worded[0]}. Then you {worded[1]}.",
                f"If we {worded[0]}, we can then {worded[1]}.",
                f"Start by this: {worded[0]}. After that, {worded[1]}.",
            )
        )
    return f"{middle} So {problem.conclusion}."


def _detailed(problem: Problem, rng: Random) -> str:
    opening = rng.choice(("Let us go through the story slowly.", "Here is every part of the story in turn."))
    steps = list(zip(problem.actions, problem.steps, strict=True))
    words = ("First", "Next") if len(steps) > 1 else ("Here",)
    worded = " ".join(
        f"{word} we {action}, {rng.choice(_BECAUSE)}. That gives {step}."
        for word, (action, step) in zip(words, steps, strict=True)
    )
    return f"{opening} {worded} This tells us that {problem.conclusion}."


def _friendly(problem: Problem, rng: Random) -> str:
    worded = " and then ".join(
        f"{action}, so {step}" for action, step in zip(problem.actions, problem.steps, strict=True)
    )
    return f"{rng.choice(GREETINGS)} Let us {worded}. So {problem.conclusion}. {rng.choice(CHEERS)}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


_WRITERS = {Style.AI: _ai, Style.NATURAL: _natural, Style.DETAILED: _detailed, Style.FRIENDLY: _friendly}
