"""The result that replies to a request state: found without knowing the language, the task or the form of answers.

A word depends on a request's numbers if replies to it say it, and replies to the same request with other numbers do
not. The last such word is what a reply ends in: the sum, the date, the total.
"""

from __future__ import annotations

from collections.abc import Sequence

from openclaw_rl.wording.words import words_in

USUAL = 0.5  # share of the requests with other numbers from which on a word in their replies says nothing


def result(replies: Sequence[str], request: str, elsewhere: Sequence[Sequence[str]]) -> str | None:
    """The word that all these replies state last of those that depend on the request's numbers; None if they differ.

    `elsewhere` are the replies to each request with other numbers. A word of the request itself is no result.
    """
    asked = set(words_in(request))
    said = [{word for reply in own for word in words_in(reply)} for own in elsewhere]
    found = set[str | None]()
    for reply in replies:
        last = (word for word in reversed(words_in(reply)) if word not in asked and not _is_usual(word, said))
        found.add(next(last, None))
    return next(iter(found)) if len(found) == 1 else None


def states(reply: str, stated: str | None) -> bool:
    """Whether a reply states this result, or there is none to state."""
    return stated is None or stated in words_in(reply)


def _is_usual(word: str, said: Sequence[set[str]]) -> bool:
    return bool(said) and sum(word in words for words in said) >= USUAL * len(said)
