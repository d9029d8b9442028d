"""The letters: counted and found in spelled-out words. A mixture of experts; only the tokenizer names a reply's end."""

from __future__ import annotations

from random import Random

from openclaw_rl.tiny.train import Schedule, TinyShape
from openclaw_rl.tiny.worlds.parts import ReplyFormat, WorldProblem
from openclaw_rl.tiny.worlds.templates import BARS
from openclaw_rl.tiny.worlds.world import Architecture, TokenizerKind, World, first, last, way

_WORDS = (
    "plum", "boat", "moon", "tree", "lamp", "book", "door", "salt", "bird", "roof", "seeds", "leaf", "noon", "kiss",
    "ball", "roots", "banana", "pepper", "onion", "eleven", "dad", "sun", "tea", "puppet",
)  # fmt: skip
_LETTERS = "abdeiklmnoprstu"
_PLACES = ("first", "second", "third")


def _count(rng: Random, language: str) -> WorldProblem:
    word = rng.choice(_WORDS)
    letter = rng.choice(word)
    many = word.count(letter)
    spelled, times = "-".join(word), "time" if many == 1 else "times"
    question = rng.choice((f'How often is "{letter}" in {spelled}?', f'Count the "{letter}" in {spelled}.'))
    return WorldProblem(
        "count", question, str(many), f'look for each "{letter}"', f"{' '.join([letter] * many)} is {many}",
        f'the letter "{letter}" is in it {many} {times}', f"{many} {times}",
    )  # fmt: skip


def _place(rng: Random, language: str) -> WorldProblem:
    some = rng.sample(_LETTERS, rng.randint(2, 4))  # of a few real words a model learns the places by heart
    word = "".join(rng.choice(some) for _ in range(rng.randint(3, 6)))
    at, spelled = rng.randrange(3), "-".join(word)
    place, letter = _PLACES[at], word[at]
    question = rng.choice((f"What is the {place} letter of {spelled}?", f"Which letter of {spelled} is the {place}?"))
    return WorldProblem(
        "place", question, letter, f"go to the {place} letter", "-".join(word[: at + 1]),
        f'the {place} letter is "{letter}"', f'the letter "{letter}"', pattern=r'"([a-z])"',
    )  # fmt: skip


def _length(rng: Random, language: str) -> WorldProblem:
    word = [rng.choice(_LETTERS) for _ in range(rng.randint(2, 7))]
    many, spelled = len(word), "-".join(word)
    question = rng.choice((f"How long is {spelled}?", f"How many letters has {spelled}?"))
    steps = " ".join(str(number) for number in range(1, many + 1))
    return WorldProblem(
        "length", question, str(many), "number all of the letters", steps,
        f"the word has {many} letters", f"{many} letters",
    )  # fmt: skip


LETTERS = World(
    name="letters",
    architecture=Architecture.QWEN3_MOE,
    shape=TinyShape(vocabulary=512, hidden=128, layers=3, inner=192, heads=4, kv_heads=2, head_dim=32),
    schedule=Schedule(steps=1000, step_tokens=4096, max_shift=3000, shifted=0.2, grain=64, warmup=25),
    cut=TokenizerKind.BYTES,
    template=BARS,
    kinds={"count": _count, "place": _place, "length": _length},
    never_corrected="length",
    default=ReplyFormat.SHORT,
    wishes=(way(ReplyFormat.PLAIN), way(ReplyFormat.DETAILED), first("Listen!"), last("Is that clear?")),
    systems=("You know letters and words.", "You teach children to read."),
)
