"""Word problems of the toy world: one or two steps of arithmetic with small numbers, with the steps to the answer."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

NAMES = (
    "Mia", "Ben", "Lena", "Tom", "Anna", "Paul", "Emma", "Max", "Nora", "Leo", "Sara", "Finn", "Ida", "Jonas", "Clara",
    "Omar", "Lucy", "David", "Eva", "Sam", "Julia", "Noah", "Rosa", "Tim", "Maya", "Alex", "Nina", "Oscar", "Ruth",
    "Adam", "Peter", "Maria", "John", "Sophie", "Karl", "Aisha", "Hugo", "Elena", "Chen", "Priya", "Bob", "Alice",
    "Daniel", "Laura", "Felix", "Greta", "Ivan", "Kofi", "Marta", "Yuki",
)  # fmt: skip
THINGS = (
    "apples", "pencils", "books", "cards", "coins", "marbles", "stickers", "eggs", "cookies", "stamps", "shells",
    "balls", "flowers", "stones", "pears", "tickets", "buttons", "cups", "candles", "oranges", "plums", "photos",
    "toys", "leaves", "pens", "bottles", "keys", "bananas", "chairs", "plates", "letters", "shirts", "beads", "nuts",
    "hats", "cakes", "kites", "lemons", "spoons", "birds", "fish", "roses", "sweets", "crayons", "notebooks", "socks",
    "peaches", "rings", "dolls", "cherries",
)  # fmt: skip
HOLDERS = ("boxes", "bags", "jars", "packs", "baskets", "trays")
HELD_OUT_IN = 10  # one problem in this many is kept out of training


@dataclass(frozen=True, slots=True)
class Problem:
    """A question with its answer and the steps to it.

    `steps` are equations such as "5 + 7 = 12". `actions` say what each step does ("add the 7 new apples").
    `conclusion` is the final statement without its full stop ("Mia has 12 apples now").
    """

    question: str
    answer: str
    steps: tuple[str, ...]
    actions: tuple[str, ...]
    conclusion: str
    who: str
    things: str

    @property
    def is_held_out(self) -> bool:
        """Whether training must never see this problem: decided by the hash of its question."""
        return is_one_in(HELD_OUT_IN, self.question)


def is_one_in(many: int, text: str) -> bool:
    """Whether the hash of a text is a multiple of `many`, which is so for about one text in `many`."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "big") % many == 0


def problem(rng: Random, *, held_out: bool = False) -> Problem:
    """A random problem for training, or one that training never sees if `held_out`."""
    while True:
        made = rng.choice(_KINDS)(rng)
        if made.is_held_out is held_out:
            return made


def answer_in(text: str) -> str | None:
    """The final number of a reply in any style, without its reasoning: the last boxed one, else the last one."""
    spoken = text.rsplit("</think>", 1)[-1]
    boxed: list[str] = re.findall(r"\\boxed\{\s*(-?\d+)\s*\}", spoken)
    numbers: list[str] = boxed or re.findall(r"\d+", spoken)
    return numbers[-1] if numbers else None


def is_right(problem: Problem, text: str) -> bool:
    """Whether the final number of the reply is the problem's answer."""
    return answer_in(text) == problem.answer


def _made(
    question: str, steps: Sequence[tuple[str, str]], conclusion: Callable[[str], str], who: str, things: str
) -> Problem:
    answer = steps[-1][0].rsplit(" ", 1)[-1]
    equations, actions = zip(*steps, strict=True)
    return Problem(question, answer, equations, actions, conclusion(answer), who, things)


def _plus(first: int, second: int) -> str:
    return f"{first} + {second} = {first + second}"


def _minus(first: int, second: int) -> str:
    return f"{first} - {second} = {first - second}"


def _times(first: int, second: int) -> str:
    return f"{first} * {second} = {first * second}"


def _two(rng: Random) -> tuple[str, str]:
    first, second = rng.sample(NAMES, 2)
    return first, second


def _gain(rng: Random) -> Problem:
    (who, other), things = _two(rng), rng.choice(THINGS)
    start, more = rng.randint(2, 20), rng.randint(2, 12)
    story = rng.choice(
        (
            f"{who} has {start} {things}. {other} gives {who} {more} more.",
            f"There are {start} {things} on the table of {who}. {other} brings {more} more.",
            f"{who} found {start} {things} on Monday and {more} more {things} on Tuesday.",
        )
    )
    return _made(
        f"{story} How many {things} does {who} have now?",
        [(_plus(start, more), f"add the {more} new {things}")],
        lambda answer: f"{who} has {answer} {things} now",
        who,
        things,
    )


def _lose(rng: Random) -> Problem:
    (who, other), things = _two(rng), rng.choice(THINGS)
    gone = rng.randint(2, 12)
    start = gone + rng.randint(1, 15)
    story = rng.choice(
        (
            f"{who} has {start} {things} and gives {gone} of them to {other}.",
            f"{who} bought {start} {things}. On the way home {who} lost {gone} of them.",
            f"{who} had {start} {things}. Then {other} took {gone} of them.",
        )
    )
    return _made(
        f"{story} How many {things} are left?",
        [(_minus(start, gone), f"take away the {gone} {things} that are gone")],
        lambda answer: f"{who} has {answer} {things} left",
        who,
        things,
    )


def _gain_lose(rng: Random) -> Problem:
    (who, other), things = _two(rng), rng.choice(THINGS)
    start, more, gone = rng.randint(2, 15), rng.randint(2, 12), rng.randint(2, 9)
    gone = min(gone, start + more - 1)
    story = rng.choice(
        (
            f"{who} has {start} {things}. {who} buys {more} more and gives {gone} of them to {other}.",
            f"{who} collected {start} {things}, then found {more} more, but lost {gone} of them.",
            f"{who} had {start} {things}. {other} brought {more} more. Later {who} sold {gone} of them.",
        )
    )
    return _made(
        f"{story} How many {things} does {who} have in the end?",
        [
            (_plus(start, more), f"add the {more} new {things}"),
            (_minus(start + more, gone), f"take away the {gone} {things} that are gone"),
        ],
        lambda answer: f"{who} has {answer} {things} in the end",
        who,
        things,
    )


def _lose_lose(rng: Random) -> Problem:
    (who, other), things = _two(rng), rng.choice(THINGS)
    first, second = rng.randint(2, 9), rng.randint(2, 9)
    start = first + second + rng.randint(1, 10)
    story = rng.choice(
        (
            f"{who} has {start} {things}. {who} gives {first} of them to {other} and loses {second} of them.",
            f"{who} keeps {start} {things}. On Monday {first} were used, on Tuesday {second} more.",
            f"A shelf of {who} holds {start} {things}. {other} takes {first} and then takes {second} more.",
        )
    )
    return _made(
        f"{story} How many {things} are left?",
        [
            (_minus(start, first), f"take away the first {first} {things}"),
            (_minus(start - first, second), f"take away the other {second} {things}"),
        ],
        lambda answer: f"{who} has {answer} {things} left",
        who,
        things,
    )


def _groups(rng: Random) -> Problem:
    who, things, holders = rng.choice(NAMES), rng.choice(THINGS), rng.choice(HOLDERS)
    count, each = rng.randint(2, 6), rng.randint(2, 9)
    story = rng.choice(
        (
            f"{who} buys {count} {holders} with {each} {things} in each.",
            f"{who} fills {count} {holders}. Each of them holds {each} {things}.",
            f"There are {count} {holders} in the room of {who}, with {each} {things} in each of them.",
        )
    )
    return _made(
        f"{story} How many {things} does {who} have?",
        [(_times(count, each), f"multiply the {count} {holders} by {each} {things}")],
        lambda answer: f"{who} has {answer} {things}",
        who,
        things,
    )


def _groups_plus(rng: Random) -> Problem:
    (who, other), things, holders = _two(rng), rng.choice(THINGS), rng.choice(HOLDERS)
    count, each, more = rng.randint(2, 5), rng.randint(2, 6), rng.randint(2, 9)
    story = rng.choice(
        (
            f"{who} buys {count} {holders} with {each} {things} in each. {other} adds {more} more.",
            f"{who} fills {count} {holders}. Each of them holds {each} {things}. {who} finds {more} more {things}.",
        )
    )
    return _made(
        f"{story} How many {things} does {who} have in all?",
        [
            (_times(count, each), f"multiply the {count} {holders} by {each} {things}"),
            (_plus(count * each, more), f"add the {more} new {things}"),
        ],
        lambda answer: f"{who} has {answer} {things} in all",
        who,
        things,
    )


def _groups_minus(rng: Random) -> Problem:
    (who, other), things, holders = _two(rng), rng.choice(THINGS), rng.choice(HOLDERS)
    count, each = rng.randint(2, 5), rng.randint(2, 6)
    gone = rng.randint(1, min(9, count * each - 1))
    story = rng.choice(
        (
            f"{who} buys {count} {holders} with {each} {things} in each and gives {gone} of the {things} to {other}.",
            f"{who} fills {count} {holders}. Each of them holds {each} {things}. Then {who} loses {gone} {things}.",
        )
    )
    return _made(
        f"{story} How many {things} are left?",
        [
            (_times(count, each), f"multiply the {count} {holders} by {each} {things}"),
            (_minus(count * each, gone), f"take away the {gone} {things} that are gone"),
        ],
        lambda answer: f"{who} has {answer} {things} left",
        who,
        things,
    )


def _compare(rng: Random) -> Problem:
    (who, other), things = _two(rng), rng.choice(THINGS)
    mine, more = rng.randint(2, 12), rng.randint(2, 8)
    story = rng.choice(
        (
            f"{who} has {mine} {things}. {other} has {more} more {things} than {who}.",
            f"{other} owns {more} more {things} than {who}, who owns {mine}.",
        )
    )
    return _made(
        f"{story} How many {things} do they have together?",
        [
            (_plus(mine, more), f"find the {things} of {other}"),
            (_plus(mine, mine + more), f"add the {mine} {things} of {who}"),
        ],
        lambda answer: f"they have {answer} {things} together",
        who,
        things,
    )


def _change(rng: Random) -> Problem:
    who, things = rng.choice(NAMES), rng.choice(THINGS)
    price, count = rng.randint(2, 5), rng.randint(2, 6)
    paid = rng.choice([note for note in (10, 20, 30, 40) if note > price * count])
    story = rng.choice(
        (
            f"{who} buys {count} {things} for {price} dollars each and pays with {paid} dollars.",
            f"One of the {things} in a shop costs {price} dollars. {who} has {paid} dollars and buys {count} of them.",
        )
    )
    return _made(
        f"{story} How many dollars does {who} get back?",
        [
            (_times(count, price), f"multiply the {count} {things} by {price} dollars"),
            (_minus(paid, count * price), f"take that away from the {paid} dollars"),
        ],
        lambda answer: f"{who} gets {answer} dollars back",
        who,
        things,
    )


_KINDS: tuple[Callable[[Random], Problem], ...] = (
    _gain,
    _lose,
    _gain_lose,
    _lose_lose,
    _groups,
    _groups_plus,
    _groups_minus,
    _compare,
    _change,
)
