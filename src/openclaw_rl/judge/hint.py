"""Which texts are hints: found between marks, accepted if they say only what the user said, and deduplicated."""

from __future__ import annotations

import re
from collections.abc import Sequence

from openclaw_rl.core.hint import Hint
from openclaw_rl.core.verdict import Vote
from openclaw_rl.wording import words
from openclaw_rl.wording.quotes import quoted, without_quotes
from openclaw_rl.wording.words import language, language_of, languages_named, number_words, patterns, plain, telling

MIN_CHARS = 10  # letters of an alphabet; fewer of a script in which letters are words
_MARKED = re.compile(r"\[HINT_START\](.*?)\[HINT_END\]", re.DOTALL)
_NUMBER = re.compile(r"\d+")
_NAME = re.compile(r"(?<=[^.!?:\n\"“„«] )[A-ZÀ-ÖØ-Þ][a-zß-öø-ÿ]+\b")
_LATIN = re.compile("[A-Za-zÀ-ÖØ-öø-ÿ]")


def marked_text(reply: str) -> str | None:
    """The text between the last pair of hint marks, or None."""
    found = _MARKED.findall(reply)
    return found[-1].strip() or None if found else None


def says_something(text: str) -> bool:
    """Whether a text is long enough for a hint and says more than that the reply was bad.

    It does if at least one word is not among those that only blame: "The reply was wrong." says nothing,
    "Be concise." says how. A word in a language without a file of such words counts as saying something.
    """
    return words.length(text.strip()) > MIN_CHARS and bool(words.telling(text, "blame"))


def accepted(votes: Sequence[Vote], said: str, asked: str) -> list[Hint]:
    """The hints of answers that vote 1 themselves and say only what the user said, in the order they came."""
    return [
        Hint(vote.hint)
        for vote in votes
        if vote.score == 1
        and vote.hint is not None
        and says_something(vote.hint)
        and is_said(vote.hint, said, asked=asked)
    ]


def distinct(hints: Sequence[Hint]) -> tuple[Hint, ...]:
    """The hints without repetitions, in their order. Which of them is learned from, the trainer's method says."""
    seen: dict[str, Hint] = {}
    for hint in hints:
        seen.setdefault(normalised(hint.text), hint)
    return tuple(seen.values())


def normalised(text: str) -> str:
    """The text's words alone: two hints that differ in case, spaces or punctuation are one."""
    return " ".join(words.words_in(text))


def is_said(hint: str, said: str, *, asked: str = "") -> bool:
    """Whether all literal text in a hint is the user's.

    Quoted words must be in what they `said` to the reply; numbers and names may also be in what they `asked` before.
    Case, spaces and the kind of quotation marks do not count. A judge that misunderstands often invents a literal
    ("begin with ..."), and the user never said it, however many votes agree. A literal that cannot be compared, since
    no file knows the language or the script is another, is accepted.
    """
    return (
        _are_quotes_said(hint, plain(said))
        and _are_numbers_said(hint, said, asked)
        and _are_names_said(hint, said, asked)
        and _are_languages_said(hint, said, asked)
    )


def _are_quotes_said(hint: str, said: str) -> bool:
    quotes = quoted(hint)
    bare = [] if quotes else [found["x"] for pattern in patterns("literal") for found in pattern.finditer(hint)]
    # "with a short summary" describes; "with Good morning" is to be written literally.
    literal = [text for text in bare if text[:1].isupper() or text.rstrip().endswith(("!", "?"))]
    return all(plain(text) in said for text in (*quotes, *literal))


def _are_numbers_said(hint: str, said: str, asked: str) -> bool:
    counted = {int(number) for number in _NUMBER.findall(hint)}
    if not counted:
        return True
    known = {int(number) for number in _NUMBER.findall(f"{said} {asked}")} | number_words(f"{said} {asked}")
    return counted <= known or (language_of(said) is None and not _NUMBER.search(said))


def _are_names_said(hint: str, said: str, asked: str) -> bool:
    """A capital within a sentence marks a name, unless all nouns have one; known only if both are in Latin script."""
    spoken = language_of(hint)
    if spoken is None or language(spoken).capitals != "names" or not _LATIN.search(said):
        return True
    names = telling(" ".join(_NAME.findall(without_quotes(hint))), "known", "idle", "blame", "forbids")
    heard = plain(f"{said} {asked}")
    return all(name in heard for name in names)


def _are_languages_said(hint: str, said: str, asked: str) -> bool:
    """A language that the hint asks for is one the user named, or wrote in."""
    wished, heard = languages_named(hint), languages_named(f"{said} {asked}")
    spoken = language_of(said)
    return not wished or wished <= heard | {spoken} or (not heard and spoken is None)
