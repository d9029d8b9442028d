"""Messages between the engine and the process that follows grammars.

Those of every step are tuples: they pickle faster.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from openclaw_rl.core.sampling import Grammar


@dataclass(frozen=True, slots=True)
class Open:
    """An answer begins to follow its grammar, after what it has said already. It is not answered."""

    guide: int
    grammar: Grammar
    said: tuple[int, ...]


class Ask(NamedTuple):
    """What may come next: of each guide (its number, the tokens taken since it was asked last). `gone` are not needed
    any more. Without `next_too` only whether they are over is asked.
    """

    guides: tuple[tuple[int, tuple[int, ...]], ...]
    gone: tuple[int, ...]
    next_too: bool


class Answer(NamedTuple):
    """Bits [guides, words] as bytes; where one token is left, and where the answer may end or is over.

    `problems` holds, by entry, what is wrong.
    """

    bits: bytes
    forced: tuple[bool, ...]
    complete: tuple[bool, ...]
    over: tuple[bool, ...]
    problems: dict[int, str]


@dataclass(frozen=True, slots=True)
class GrammarRefusal:
    """A grammar that the library does not take."""

    problem: str
    fix: str
    code: str | None
