"""Whether an answer is right: numbers are compared exactly, the rest as text, then mathematically."""

from __future__ import annotations

import re

from openclaw_rl.envs.answers.exact import final_answer, final_quantity, is_same_text, quantity_of
from openclaw_rl.envs.answers.verify import MathChecker, MathVerdict
from openclaw_rl.envs.task import Failure, Score

SHOWN = 200
COMMAND = re.compile(r"\\[A-Za-z]+(?:\{[A-Za-z ]*\})?")
PROSE = re.compile(r"[A-Za-z]{2,}\s+[A-Za-z]{2,}")
MATHEMATICS = re.compile(r"[\\^{}()\[\]=+*/<>!|]|pi\b|sqrt|\d[A-Za-z]|[A-Za-z]\d")


async def judged(text: str, right: str, checker: MathChecker) -> Score:
    """1 if the answer that a text comes to is `right`, else 0.

    Two numbers are compared exactly, and that is final. Anything else is compared as text, then by `checker`
    if math-verify is installed. A checker that hangs or dies over an answer counts against the answer.
    """
    answer, number = final_answer(text) or text.strip(), quantity_of(right)
    said = final_quantity(text) if number is not None else None
    words = f"{answer[:SHOWN]!r} was said, {right[:SHOWN]!r} is right"
    if number is not None and said is not None and not (quantity_of(answer) is None and is_formula(answer)):
        return Score(float(said.is_same(number)), details=f"{words} (exact)")
    if is_same_text(answer, right):
        return Score(1.0, details=f"{words} (text)")
    if not answer:
        return Score(0.0, details="nothing was said")
    verdict = await checker.check(answer, right)
    match verdict:
        case MathVerdict.SAME:
            return Score(1.0, details=f"{words} (math-verify)")
        case MathVerdict.OTHER | MathVerdict.MISSING:
            return Score(0.0, details=f"{words} ({verdict.value})")
        case MathVerdict.BROKEN:
            return Score(
                None, details=f"the checker of answers does not start: {words}", failure=Failure.INFRASTRUCTURE
            )
        case _:
            return Score(0.0, details=f"{words}; the checker {verdict.value}", failure=Failure.AGENT)


def is_formula(text: str) -> bool:
    """Whether a text is a single expression, not prose with numbers in it: 3\\sqrt{2}, 2^{10}, x+1, (1, 2)."""
    return bool(MATHEMATICS.search(text)) and not PROSE.search(COMMAND.sub(" ", text))
