"""Repairs of the agent model's modules: each is one line's, and only the right ones make the right file."""

from __future__ import annotations

import re
from random import Random

from openclaw_rl.tiny.agent import repairs
from openclaw_rl.tiny.agent.exercise import Move


def test_each_repair_stands_in_one_line_and_only_the_first_attempt_makes_the_right_file() -> None:
    rng = Random(5)
    for number in range(600):
        families = repairs.HELD_BACK if number % 4 == 0 else repairs.FAMILIES
        made = families[rng.choice([*families])](rng)
        files, gold = made.material["files"], made.material["gold"]
        assert isinstance(files, dict) and isinstance(gold, dict)
        ((file, before),) = files.items()
        after = [repaired(str(before), attempt) for attempt in made.attempts]
        assert [text == gold[file] for text in after] == [True, *[False] * (len(after) - 1)], made.instruction


def repaired(text: str, attempt: tuple[Move, ...]) -> str:
    """The file after the attempt's repairs, each of which must be for one line alone."""
    for move in attempt:
        command = str(move.arguments.get("command", ""))
        if command.startswith("sed"):
            _, old, new, _ = command.split("|")
            lines = text.split("\n")
            fitting = [line for line in lines if fits(old, line)]
            assert len(fitting) == 1, (command, text)
            if command.startswith("sed -i"):
                place = lines.index(fitting[0])
                text = "\n".join([*lines[:place], f"    return {new}", *lines[place + 1 :]])
    return text


def fits(pattern: str, line: str) -> bool:
    """As sed finds it: of the signs that stand here, only these four mean more than themselves."""
    return re.search("".join(sign if sign in ".*[]" else re.escape(sign) for sign in pattern), line) is not None
