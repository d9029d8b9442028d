"""A small network that recognises what was said, computed from a model folder's own weights; it needs no torch.

`judge/judge.json` in the folder lists what it can recognise, how sure it must be, and the words of each hint;
`judge/judge.safetensors` contains the weights. `tiny/hearing_build.py` makes them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from openclaw_rl.errors import ModelError
from openclaw_rl.judge.reading import MOST_WORDS, TurnReading

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float32]

UNKNOWN = 0  # the row of every word that is not known
SHORTEST_SLIP = 4  # letters of a word that may be a misspelling
_SIZES = (3, 4, 5)
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_VOWELS, _DOUBLED, _ONE = re.compile("[aeiou]"), re.compile(r"(.)\1+"), r"\1"
# In a separate folder: other programs take every *.safetensors next to a model for its weights.
ABOUT, WEIGHTS = "judge/judge.json", "judge/judge.safetensors"
FORMAT = 2
SPELLING = "spelling"  # the name of the words among the weights
KINDS = ("user", "tool", "error")
TABLE, SCALES = "pieces.weight", "pieces.scale"  # whole numbers of one byte, and what each row's are times
_MOST_LITERAL = 12  # words
_SPANS = 8  # likeliest ones that a literal is chosen of
_SENTENCE_ENDS = (".", "!", "?")
_FIX = f"take {ABOUT} and {WEIGHTS} out of the folder: the model judges itself then"


@dataclass(frozen=True, slots=True)
class Class:
    """Something that can be recognised: its hint's words ({x} is a literal), and how sure the network must be.

    `holds` says what its literal is: "words" of the user's, a "language" they named, or nothing.
    """

    name: str
    hint: str = ""
    holds: str = ""
    sure: float = 1.0


@dataclass(frozen=True, slots=True)
class About:
    """What a folder's `judge.json` says."""

    members: int
    heads: int
    layers: int
    scores: tuple[int, ...]
    score_sure: float
    place_sure: float
    wishes: tuple[Class, ...]
    places: tuple[str, ...]  # how a hint begins that is about one kind of work; empty for any
    languages: Mapping[str, tuple[str, ...]]  # by their English names: what people call them


@dataclass(frozen=True, slots=True)
class Sound:
    """How likely each score, wish and place is; the words of a literal and how likely they are the right ones."""

    scores: tuple[float, ...]
    wishes: tuple[float, ...]
    places: tuple[float, ...]
    first: int = 0
    last: int = 0
    literal: float = 0.0


def has_classifier(folder: Path) -> bool:
    """Whether a model folder contains a classifier that judges in place of the model."""
    return (folder / ABOUT).is_file() and (folder / WEIGHTS).is_file()


def about_of(folder: Path) -> About:
    """What the folder's classifier can recognise. Raises ModelError."""
    path = folder / ABOUT
    try:
        held = json.loads(path.read_text("utf-8"))
        if held["format"] != FORMAT:
            raise ModelError(f"{path} has format {held['format']}, this version reads {FORMAT}", fix=_FIX)
        return About(
            members=int(held["members"]),
            heads=int(held["heads"]),
            layers=int(held["layers"]),
            scores=tuple(int(score) for score in held["scores"]),
            score_sure=float(held["score_sure"]),
            place_sure=float(held["place_sure"]),
            wishes=tuple(Class(**entry) for entry in held["wishes"]),
            places=tuple(str(place) for place in held["places"]),
            languages={str(name): tuple(words) for name, words in held["languages"].items()},
        )
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise ModelError(f"{path} cannot be read: {problem!r}", fix=_FIX) from problem


class Encoder:
    """The networks of a folder; their outputs are averaged. Made by `load`."""

    def __init__(self, about: About, spelling: Spelling, members: Sequence[Mapping[str, Array]]) -> None:
        self.about = about
        self.spelling = spelling
        self.members = tuple(members)

    @classmethod
    def load(cls, folder: Path) -> Encoder:
        """The classifier of a model folder. Raises ModelError."""
        import numpy as np
        from safetensors import SafetensorError
        from safetensors.numpy import load_file

        about = about_of(folder)
        try:
            found = load_file(folder / WEIGHTS)
        except (OSError, SafetensorError) as problem:
            raise ModelError(f"{folder / WEIGHTS} cannot be read: {problem}", fix=_FIX) from problem
        if SPELLING not in found:
            raise ModelError(f"{folder / WEIGHTS} holds no words", fix=_FIX)
        members: list[dict[str, Array]] = [{} for _ in range(about.members)]
        spelling = spelling_of(found.pop(SPELLING).tobytes())
        for name, value in found.items():
            number, _, rest = name.partition(".")
            # The table of words is not converted, one byte per weight: a turn reads a few hundred of its rows.
            members[int(number)][rest] = value if rest == TABLE else value.astype(np.float32)
        return cls(about, spelling, members)

    def hear(self, read: TurnReading) -> Sound:
        """What is recognised in a reading: the mean of all members' outputs. Takes a few milliseconds on one core."""
        import numpy as np

        rows = {word: self.spelling.rows(word) for word in {*read.words, *read.request, *read.reply}}
        heard = [_Member(self.about, rows, held).hear(read) for held in self.members]
        scores, wishes, places = (
            tuple(float(share) for share in np.mean([one[head] for one in heard], 0)) for head in range(3)
        )
        if not read.words:
            return Sound(scores, wishes, places)
        ends = np.stack([one[3] for one in heard])
        spans = np.triu(np.tril((ends[:, 0, :, None] * ends[:, 1, None, :]).mean(0), _MOST_LITERAL - 1))
        first, last = _likeliest(spans, read.words)
        again = _where(read.words[first : last + 1], read.words)  # said twice, each place has a part of the share
        share = ends[:, 0, again].sum(1) * ends[:, 1, [at + last - first for at in again]].sum(1)
        return Sound(scores, wishes, places, first, last, float(share.mean()))


def _likeliest(spans: Array, words: tuple[str, ...]) -> tuple[int, int]:
    """The first and the last word of the literal, of [T, T] shares of all spans.

    Words that are said twice have the shares of both places, and that of "these words. These words".
    """
    shares: dict[tuple[str, ...], float] = {}
    places: dict[tuple[str, ...], tuple[int, int]] = {}
    for flat in (-spans).argsort(axis=None)[:_SPANS]:
        first, last = divmod(int(flat), len(spans))
        if last < first:  # no span, as those that are left
            break
        part, middle = words[first : last + 1], (last - first) // 2
        if middle and part[middle] in _SENTENCE_ENDS and part[:middle] == part[middle + 1 :]:
            part, last = part[:middle], first + middle - 1
        shares[part] = shares.get(part, 0.0) + float(spans.flat[flat])
        places.setdefault(part, (first, last))
    return places[max(shares, key=shares.__getitem__)]


def _where(part: tuple[str, ...], words: tuple[str, ...]) -> list[int]:
    """The places at which words begin that are these."""
    return [at for at in range(len(words) - len(part) + 1) if words[at : at + len(part)] == part]


@dataclass(frozen=True, slots=True)
class _Member:
    """One network; `rows` are those of every word it is to read."""

    about: About
    rows: Mapping[str, WordRows]
    held: Mapping[str, Array]

    def hear(self, read: TurnReading) -> tuple[Array, Array, Array, Array]:
        """Shares of scores, wishes and places, and [2, T] of a literal's first and of its last word."""
        import numpy as np

        states = self._states(read)
        spoken = states[3:]
        mean = spoken.mean(0) if len(spoken) else np.zeros_like(states[0])
        highest = spoken.max(0) if len(spoken) else np.zeros_like(states[0])
        pooled = np.concatenate((states[0], mean, highest))
        scores, wishes, places = (_softmax(self._linear(name, pooled)) for name in ("score", "wish", "place"))
        ends = self._linear("ends", spoken).T
        return scores, wishes, places, np.stack([_softmax(row) for row in ends]) if len(spoken) else ends

    def _states(self, read: TurnReading) -> Array:
        """[3 + T, D]: who speaks, the request, the reply, and each word."""
        import numpy as np

        held, count = self.held, len(read.words)
        front = np.stack([held["kinds.weight"][KINDS.index(read.kind)], *self._beside(read)])
        states = front
        if count:
            places = np.arange(count)
            words = np.stack([self._vector(word) for word in read.words])
            words = words + self._linear("marks", np.asarray(read.marks, dtype=np.float32))
            words = words + held["from_start.weight"][np.minimum(places, MOST_WORDS)]
            words = words + held["from_end.weight"][count - places]
            padded = np.pad(words, ((1, 1), (0, 0)))
            near = np.stack((padded[:-2], words, padded[2:]), 1)
            near = self._norm("norm_near", near).reshape(count, -1)
            words = words + np.maximum(self._linear("near", near), 0)
            states = np.concatenate((front, words))
        for index in range(self.about.layers):
            states = self._layer(f"blocks.{index}.", states)
        return self._norm("norm_out", states)

    def _beside(self, read: TurnReading) -> tuple[Array, Array]:
        """The request and the reply, a vector each."""
        import numpy as np

        width = self.held[TABLE].shape[1]
        means = [
            np.mean([self._vector(word) for word in words], 0) if words else np.zeros(width, np.float32)
            for words in (read.request, read.reply)
        ]
        request, reply = (self._linear("beside", np.asarray(mean)) for mean in means)
        return request[:width], reply[width:]

    def _vector(self, word: str) -> Array:
        import numpy as np

        found = self.rows[word]
        vector = self._row(found.whole) if found.whole != UNKNOWN else np.zeros_like(self._row(UNKNOWN))
        if not found.is_known:
            vector = vector + self._row(UNKNOWN)
        if found.parts:
            rows = list(found.parts)
            vector = vector + (self.held[TABLE][rows] * self.held[SCALES][rows, None]).mean(0)
        return vector

    def _row(self, row: int) -> Array:
        made: Array = self.held[TABLE][row] * self.held[SCALES][row]
        return made

    def _layer(self, name: str, states: Array) -> Array:
        import numpy as np

        length, width = states.shape
        heads = self.about.heads
        mixed = self._linear(f"{name}mix", self._norm(f"{name}norm_a", states))
        query, key, value = mixed.reshape(length, 3, heads, width // heads).transpose(1, 2, 0, 3)
        weight = _softmax(query @ key.transpose(0, 2, 1) / np.float32((width // heads) ** 0.5))
        looked = (weight @ value).transpose(1, 0, 2).reshape(length, width)
        states = states + self._linear(f"{name}out", looked)
        inner = np.maximum(self._linear(f"{name}up", self._norm(f"{name}norm_b", states)), 0)
        return states + self._linear(f"{name}down", inner)

    def _linear(self, name: str, given: Array) -> Array:
        made: Array = given @ self.held[f"{name}.weight"].T + self.held[f"{name}.bias"]
        return made

    def _norm(self, name: str, given: Array) -> Array:
        centred = given - given.mean(-1, keepdims=True)
        spread = (centred * centred).mean(-1, keepdims=True)
        made: Array = centred / (spread + 1e-5) ** 0.5 * self.held[f"{name}.weight"] + self.held[f"{name}.bias"]
        return made


def _softmax(logits: Array) -> Array:
    import numpy as np

    raised = np.exp(logits - logits.max(-1, keepdims=True))
    made: Array = raised / raised.sum(-1, keepdims=True)
    return made


@dataclass(frozen=True, slots=True)
class WordRows:
    """The rows of a table that a word is read by: `whole` is a known word's (UNKNOWN without one), `parts` letters'."""

    whole: int
    is_known: bool  # False if `whole` is only the word it may be a slip of
    parts: tuple[int, ...]


class Spelling:
    """Which words a classifier knows. It reads others as misspelt known words, and by their letters.

    A word that was not taught gets no number of its own: a random one would be less useful than its letters. Known
    words, the most frequent first, and known groups of letters have a row each, after that of the unknown.
    """

    def __init__(self, words: Sequence[str], parts: Sequence[str]) -> None:
        self._words = {word: row for row, word in enumerate(words, UNKNOWN + 1)}
        self._parts = {part: row for row, part in enumerate(parts, UNKNOWN + 1 + len(words))}
        self._bones: dict[str, int] = {}
        for word, row in self._words.items():
            if len(word) >= SHORTEST_SLIP:
                self._bones.setdefault(_bones(word), row)

    def rows(self, word: str) -> WordRows:
        """What a word, folded as `reading` folds it, is read by."""
        parts = tuple(self._parts[part] for part in letter_groups(word) if part in self._parts)
        row = self._words.get(word)
        if row is not None:
            return WordRows(row, is_known=True, parts=parts)
        return WordRows(self._meant(word), is_known=False, parts=parts)

    def _meant(self, word: str) -> int:
        """The most frequent known word that one slip makes into this, or one with the same consonants."""
        if len(word) < SHORTEST_SLIP or not word.isalpha():
            return UNKNOWN
        near = [self._words[one] for one in _one_slip_away(word) if one in self._words]
        return min(near) if near else self._bones.get(_bones(word), UNKNOWN)


def letter_groups(word: str) -> list[str]:
    """The groups of three to five letters of a word, with its ends marked; a punctuation mark has none."""
    whole = f"<{word}>"
    sizes = _SIZES if len(word) > 1 else ()
    return [whole[at : at + size] for size in sizes for at in range(len(whole) - size + 1)]


def spelling_bytes(words: Sequence[str], parts: Sequence[str]) -> bytes:
    """A spelling's words and groups, one per line with an empty line between them, as in a model folder."""
    return "\n\n".join("\n".join(listed) for listed in (words, parts)).encode()


def spelling_of(held: bytes) -> Spelling:
    """The spelling that `spelling_bytes` wrote."""
    words, _, parts = held.decode().partition("\n\n")
    return Spelling(words.splitlines(), parts.splitlines())


def _one_slip_away(word: str) -> Iterator[str]:
    """All that a letter too many, too few, another one, or two that changed places can have made into the word."""
    for at in range(len(word) + 1):
        before, after = word[:at], word[at:]
        for letter in _LETTERS:
            yield before + letter + after
            if after:
                yield before + letter + after[1:]
        if after:
            yield before + after[1:]
        if len(after) > 1:
            yield before + after[1] + after[0] + after[2:]


def _bones(word: str) -> str:
    """What is left of a word without its vowels and doubled letters."""
    return _DOUBLED.sub(_ONE, word[:1] + _VOWELS.sub("", word[1:]))
