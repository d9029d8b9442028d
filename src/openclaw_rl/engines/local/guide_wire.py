"""Messages between the engine and the process that follows grammars.

Those of every step are tuples: they pickle faster.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from openclaw_rl.core.sampling import Grammar


@dataclass(frozen=True, slots=True)
class Open:
    """Begins to follow an answer's grammar, after the tokens it already has. There is no reply."""

    guide: int
    grammar: Grammar
    said: tuple[int, ...]


class Ask(NamedTuple):
    """What may come next: for each guide (its number, the tokens taken since the last request). `gone` are not needed
    any more. Without `next_too` only whether they are over is requested.
    """

    guides: tuple[tuple[int, tuple[int, ...]], ...]
    gone: tuple[int, ...]
    next_too: bool


class Answer(NamedTuple):
    """Bits [guides, words] as bytes; entries with one token left, and entries where the answer may end or is over.

    `problems` is what is wrong, by entry.
    """

    bits: bytes
    forced: tuple[bool, ...]
    complete: tuple[bool, ...]
    over: tuple[bool, ...]
    problems: dict[int, str]


@dataclass(frozen=True, slots=True)
class GrammarRefusal:
    """A grammar that the library refuses."""

    problem: str
    fix: str
    code: str | None
