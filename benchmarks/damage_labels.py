"""Whether a version is damaged: what it loses on problems that nobody was taught on, by rules that know no model.

Right answers on problems of the taught kinds and of kinds that are never corrected; and replies that hold words which
the base model never says, told the wish or not, that are half as long as its replies or twice as long, or that repeat
themselves. A version is damaged where any of these is five points or more, and good where none is above two.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.damage_fields import Asked, WishOfField
from benchmarks.damage_made import Maker
from openclaw_rl.publish.replies import is_loop

TAUGHT, RARE = 120, 80  # problems: with half as many, five points are two replies
DAMAGED, GOOD = 5.0, 2.0  # points
RUN = 12  # tokens that stand in a reply twice
SEED = 7
_WORD = re.compile(r"[^\W\d_]+")


@dataclass(frozen=True, slots=True)
class Counted:
    """Which replies were right, odd, of another length, and repeated themselves."""

    right: tuple[bool, ...]
    wish: tuple[bool, ...]
    odd: tuple[bool, ...]
    length: tuple[bool, ...]
    repeats: tuple[bool, ...]


@dataclass(slots=True)
class Labels:
    """Measures versions of one model against its base, for one wish."""

    maker: Maker
    wish: WishOfField | None
    problems: list[Asked]
    prompts: list[tuple[int, ...]]
    lengths: list[tuple[int, int]]  # of the base model's replies: the shortest and the longest
    words: set[str]
    base: Counted
    told: Counted  # the base model told the wish: what it says oddly then is no fault of what was taught

    @classmethod
    def of(cls, maker: Maker, wish: WishOfField | None) -> Labels:
        """Ready to measure: the base model has answered each problem as it is, and told the wish, twice."""
        field = maker.field
        problems = field.some("held out", TAUGHT, held_out=True, is_rare=False)
        problems += field.some("held out rare", RARE, held_out=True, is_rare=True)
        bare = [maker.prompt(one.text) for one in problems]
        told = bare if wish is None else [maker.prompt(one.text, wish.told) for one in problems]
        said = [maker.replies(prompts, seed=SEED + 1, is_base=True) for prompts in (bare, told)]
        lengths = [(min(map(len, both)), max(map(len, both))) for both in zip(*said, strict=True)]
        words = {word for replies in said for reply in replies for word in _words(maker.text(reply))}
        made = cls(
            maker, wish, problems, bare, lengths, words, Counted((), (), (), (), ()), Counted((), (), (), (), ())
        )
        made.base = made._counted(maker.replies(bare, seed=SEED, is_base=True))
        made.told = made.base if wish is None else made._counted(maker.replies(told, seed=SEED, is_base=True))
        return made

    def losses(self) -> dict[str, float]:
        """What the version in the maker's weights loses, in points of a hundred replies."""
        now, base = self._counted(self.maker.replies(self.prompts, seed=SEED)), self.base
        odd, length, repeats = (
            max(_points(one), _points(other))
            for one, other in (
                (base.odd, self.told.odd), (base.length, self.told.length), (base.repeats, self.told.repeats)
            )
        )  # fmt: skip
        return {
            "right": _points(base.right[:TAUGHT]) - _points(now.right[:TAUGHT]),
            "right_never_corrected": _points(base.right[TAUGHT:]) - _points(now.right[TAUGHT:]),
            "odd_words": _points(now.odd) - odd,
            "length": _points(now.length) - length,
            "repeats": _points(now.repeats) - repeats,
        } | ({"wish": _points(now.wish)} if self.wish is not None else {})

    def _counted(self, replies: Sequence[tuple[int, ...]]) -> Counted:
        texts = [self.maker.text(reply) for reply in replies]
        return Counted(
            right=tuple(one.is_right(text) for one, text in zip(self.problems, texts, strict=True)),
            wish=tuple(self.wish is not None and self.wish.holds(text) for text in texts),
            odd=tuple(
                not _words(text) <= self.words | _words(one.text)
                for one, text in zip(self.problems, texts, strict=True)
            ),
            length=tuple(
                2 * len(reply) < shortest or len(reply) > 2 * longest
                for reply, (shortest, longest) in zip(replies, self.lengths, strict=True)
            ),
            repeats=tuple(is_loop(reply) or _has_twice(reply) for reply in replies),
        )


def label(losses: dict[str, float]) -> str:
    """damaged, good, or between the two, where it counts as neither."""
    worst = max(points for name, points in losses.items() if name != "wish")
    return "damaged" if worst >= DAMAGED else "good" if worst <= GOOD else "between"


def _points(values: Sequence[bool]) -> float:
    return round(100.0 * sum(values) / len(values), 2)


def _words(text: str) -> set[str]:
    return {word.casefold() for word in _WORD.findall(text)}


def _has_twice(reply: Sequence[int]) -> bool:
    runs = [tuple(reply[at : at + RUN]) for at in range(len(reply) - RUN + 1)]
    return len(set(runs)) < len(runs)
