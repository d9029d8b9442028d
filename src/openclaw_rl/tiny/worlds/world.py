"""A synthetic world: the problems its users pose, the model that answers them, and the users' wishes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from random import Random

from openclaw_rl.tiny.train import Schedule, TinyShape
from openclaw_rl.tiny.worlds.parts import ReplyFormat, WishPlace, WorldProblem, WorldWish
from openclaw_rl.tiny.worlds.templates import Template


class Architecture(StrEnum):
    """The architecture of a model in transformers."""

    QWEN3 = "qwen3"
    LLAMA = "llama"
    GEMMA3 = "gemma3"
    QWEN3_MOE = "qwen3-moe"
    PHI3 = "phi3"
    OLMO2 = "olmo2"


class TokenizerKind(StrEnum):
    """How a tokenizer cuts text."""

    BYTES = "bytes"  # byte-level BPE
    PIECES = "pieces"  # unigram pieces with a mark for blanks, as SentencePiece makes them
    MERGES = "merges"  # merged characters with a mark for blanks


@dataclass(frozen=True, slots=True)
class World:
    """One world. `kinds` are the functions that make problems, by kind.

    Simulated users never correct replies to problems of the kind `never_corrected`. `systems` are the system texts that
    its dialogues may begin with; empty if the template accepts none or none is used. In a world `by_kind` each wish is
    about one kind of problem, and a prompt may have many hints.
    """

    name: str
    architecture: Architecture
    shape: TinyShape
    schedule: Schedule
    cut: TokenizerKind
    template: Template
    kinds: Mapping[str, Callable[[Random, str], WorldProblem]]
    never_corrected: str
    default: ReplyFormat
    wishes: tuple[WorldWish, ...]
    systems: tuple[str, ...] = ()
    languages: tuple[str, ...] = ("en",)
    by_kind: bool = False

    @property
    def ways(self) -> tuple[ReplyFormat, ...]:
        """The formats that users may ask for: all of `ASKED` but the default."""
        return tuple(way for way in ASKED if way is not self.default)

    @property
    def taught(self) -> tuple[str, ...]:
        """The kinds of problem that users correct."""
        return tuple(kind for kind in self.kinds if kind != self.never_corrected)

    def problem(
        self, rng: Random, *, kinds: tuple[str, ...] = (), language: str = "", held_out: bool = False
    ) -> WorldProblem:
        """A random problem of one of the kinds, or of any; held-out problems are never seen in training."""
        while True:
            kind = rng.choice(kinds or tuple(self.kinds))
            made = self.kinds[kind](rng, language or rng.choice(self.languages))
            if made.is_held_out is held_out:
                return made


ASKED = (
    ReplyFormat.PLAIN,
    ReplyFormat.LIST,
    ReplyFormat.MARKDOWN,
    ReplyFormat.SHORT,
    ReplyFormat.DETAILED,
    ReplyFormat.FRIENDLY,
)  # the formats that users ask for


def way(value: ReplyFormat, kind: str = "") -> WorldWish:
    """A wish for a format of the body."""
    return WorldWish(WishPlace.BODY, value.value, kind)


def first(words: str, kind: str = "") -> WorldWish:
    """A wish for words to begin with."""
    return WorldWish(WishPlace.FIRST, words, kind)


def last(words: str, kind: str = "") -> WorldWish:
    """A wish for words to end with."""
    return WorldWish(WishPlace.LAST, words, kind)
