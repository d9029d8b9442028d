"""Exercises with tools: word problems of two or three operations, calculated with python. Written as JSON lines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from openclaw_rl.tiny.agent.exercise import Exercise, Family, Move, Setting

NAMES = ("Mia", "Tom", "Ana", "Leo", "Eva", "Sam", "Ida", "Max", "Zoe", "Ben", "Lia", "Jon")
THINGS = ("pens", "books", "cards", "coins", "shells", "stamps", "apples", "beads", "nuts", "seeds")
Draw = Callable[[Random], tuple[str, tuple[int, ...]]]
# Formulas of three and of four numbers. A problem has one; its wrong attempts use others with the same numbers.
THREE = ("{0} * {1} - {2}", "{0} * {1} + {2}", "({0} + {1}) // {2}", "{2} - {0} * {1}", "{0} + {0} + {1} + {2}",
         "{0} // {1} * {2}", "{0} + {1} - {2}", "({0} - {1}) * {2}")  # fmt: skip
FOUR = ("{0} * {1} + {2} * {3}", "{0} * {1} - {2} * {3}", "{0} + {1} + {2} + {3}", "({0} + {1}) * ({2} + {3})")


def _exercise(rng: Random, family: str, formula: str, question: str, numbers: Sequence[int]) -> Exercise:
    shapes = [shape for shape in (THREE if len(numbers) == 3 else FOUR) if shape != formula]
    right, answer = formula.format(*numbers), _value(formula, numbers)
    wrong = [(shape.format(*numbers), _value(shape, numbers)) for shape in shapes]
    attempts = [
        (_python(right, answer), _answer(answer)),
        *((_python(code, value), _answer(value)) for code, value in rng.sample(wrong, 3) if value != answer),
        (_python(right, answer), _answer(next(number for number in numbers if number != answer))),
    ]
    material = {"family": family, "question": question, "answer": str(answer), "solution": str(answer)}
    return Exercise(Setting.TOOLS, family, question, tuple(attempts), material)


def _value(formula: str, numbers: Sequence[int]) -> int:
    """The formula's value. Safe to evaluate: it contains only the operators and numbers of this module."""
    value = eval(formula.format(*numbers), {"__builtins__": {}})
    assert isinstance(value, int)
    return value


def _python(code: str, value: int) -> Move:
    return Move("python", {"code": f"print({code})"}, str(value))


def _answer(value: int) -> Move:
    return Move("answer", {"value": str(value)}, "", None)


def boxes(rng: Random) -> Exercise:
    """Boxes of things, some of which are given away."""
    many, each = rng.randint(3, 40), rng.randint(3, 40)
    gone, who, what = rng.randint(2, many * each - 1) % 98 + 1, rng.choice(NAMES), rng.choice(THINGS)
    question = rng.choice(
        (
            f"{who} has {many} boxes with {each} {what} each and gives away {gone}. How many {what} are left?",
            f"There are {many} boxes of {each} {what}. {who} takes out {gone}. How many {what} stay?",
        )
    )
    return _exercise(rng, "boxes", THREE[0], question, (many, each, gone))


def saving(rng: Random) -> Exercise:
    """The same number is added every day to what was there."""
    each, days, had, who = rng.randint(3, 40), rng.randint(3, 40), rng.randint(3, 99), rng.choice(NAMES)
    question = rng.choice(
        (
            f"{who} saves {each} coins a day for {days} days and had {had} before. How many coins are there now?",
            f"{who} earns {each} coins on each of {days} days. With the {had} from before, how many is that?",
        )
    )
    return _exercise(rng, "saving", THREE[1], question, (each, days, had))


def sharing(rng: Random) -> Exercise:
    """Two heaps of things are shared equally among friends."""
    friends, share = rng.randint(2, 9), rng.randint(3, 30)
    first = rng.randint(1, friends * share - 1)
    second, who, what = friends * share - first, rng.choice(NAMES), rng.choice(THINGS)
    question = rng.choice(
        (
            f"{who} has {first} {what} and gets {second} more. {friends} friends share them. How many has each?",
            f"{first} {what} and {second} {what} are shared by {friends} friends. How many does each friend get?",
        )
    )
    return _exercise(rng, "sharing", THREE[2], question, (first, second, friends))


def change(rng: Random) -> Exercise:
    """The change after paying for several tickets."""
    many, price = rng.randint(2, 9), rng.randint(3, 30)
    paid, who = many * price + rng.randint(1, 60), rng.choice(NAMES)
    question = rng.choice(
        (
            f"{who} buys {many} tickets at {price} coins each and pays with {paid} coins. What is the change?",
            f"{many} tickets cost {price} coins each. {who} hands over {paid}. How many coins come back?",
        )
    )
    return _exercise(rng, "change", THREE[3], question, (many, price, paid))


def selling(rng: Random) -> Exercise:
    """Some of several equal bags are sold."""
    bags, each = rng.randint(3, 12), rng.randint(3, 20)
    sold, who, what = rng.randint(2, bags), rng.choice(NAMES), rng.choice(THINGS)
    question = rng.choice(
        (
            f"{who} puts {bags * each} {what} into {bags} equal bags and sells {sold} bags. How many {what} are sold?",
            f"{bags * each} {what} fill {bags} bags evenly. {who} sells {sold} of them. How many {what} go?",
        )
    )
    return _exercise(rng, "selling", THREE[5], question, (bags * each, bags, sold))


def growing(rng: Random) -> Exercise:
    """Some things are added, and fewer are lost."""
    start, more, who, what = rng.randint(20, 99), rng.randint(20, 99), rng.choice(NAMES), rng.choice(THINGS)
    gone = rng.randint(2, 19)
    question = rng.choice(
        (
            f"{who} had {start} {what}, found {more} and lost {gone}. How many {what} has {who} now?",
            f"Of {start} {what}, with {more} added, {who} drops {gone}. How many {what} remain?",
        )
    )
    return _exercise(rng, "growing", THREE[6], question, (start, more, gone))


def rows(rng: Random) -> Exercise:
    """The total of two groups of rows of different things."""
    numbers = tuple(rng.randint(3, 30) for _ in range(4))
    one, other = rng.sample(THINGS, 2)
    question = (
        f"{numbers[0]} rows of {numbers[1]} {one} and {numbers[2]} rows of {numbers[3]} {other}: how many in all?"
    )
    return _exercise(rng, "rows", FOUR[0], question, numbers)


def leftover(rng: Random) -> Exercise:
    """A difference multiplied by a number of days."""
    start, times, who, what = rng.randint(30, 99), rng.randint(2, 12), rng.choice(NAMES), rng.choice(THINGS)
    gone = rng.randint(2, 29)
    question = f"Each of {times} days {who} picks {start} {what} and eats {gone}. How many {what} are kept in all?"
    return _exercise(rng, "leftover", THREE[7], question, (start, gone, times))


FAMILIES: dict[str, Family] = {
    "boxes": boxes,
    "saving": saving,
    "sharing": sharing,
    "change": change,
    "selling": selling,
    "growing": growing,
    "rows": rows,
}
HELD_BACK: dict[str, Family] = {"leftover": leftover}
