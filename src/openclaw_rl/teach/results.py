"""The result that replies to a request state: found without knowing the language, the task or the form of answers.

A result is what the end of a reply says, and the ends of replies to the same request with other numbers do not: the
sum, the date, the total. Only ends are compared, since small numbers occur somewhere in almost every reply.
"""

from __future__ import annotations

from collections.abc import Sequence

from openclaw_rl.wording.words import words_in

END = 12  # words of a reply that are its end
USUAL = 0.5  # share of the requests with other numbers from which on a word in the ends of their replies says nothing


def results(replies: Sequence[str], request: str, elsewhere: Sequence[Sequence[str]]) -> set[str | None]:
    """For each of these replies the last word in its end that depends on the request's numbers, None if it has none.

    `elsewhere` are the replies to each request with other numbers. Words of the request are no result, unless they have
    a digit: the sum may be equal to a number in the request.
    """
    asked = {word for word in words_in(request) if not any(character.isdigit() for character in word)}
    ends = [{word for reply in own for word in words_in(reply)[-END:]} for own in elsewhere]
    found = set[str | None]()
    for reply in replies:
        last = (word for word in reversed(words_in(reply)[-END:]) if word not in asked and not _is_usual(word, ends))
        found.add(next(last, None))
    return found


def shared(found: set[str | None]) -> str | None:
    """The result that all replies state; None if they state none, or different ones."""
    return next(iter(found)) if len(found) == 1 else None


def states(reply: str, stated: str | None) -> bool:
    """Whether a reply states this result, or there is none to state."""
    return stated is None or stated in words_in(reply)


def _is_usual(word: str, ends: Sequence[set[str]]) -> bool:
    return bool(ends) and sum(word in words for words in ends) >= USUAL * len(ends)
