"""The result that replies to a request state: found without knowing the language, the task or the form of answers.

A result is what the end of a reply says, and the ends of replies to the same request with other numbers do not: the
sum, the date, the total. Only ends are compared, since small numbers occur somewhere in almost every reply.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from openclaw_rl.wording.words import words_in

END = 12  # words of a reply that are its end
_NUMBER = re.compile(r"\d+")
_WITHIN = re.compile(r"(?<=\d)[.,'](?=\d)")  # what may stand within a number, and differs between languages
_ITEM = re.compile(r"^\W*\d+[.):]\s", re.MULTILINE)  # the number of an item in a list
USUAL = 0.5  # share of the requests with other numbers from which on a word in the ends of their replies says nothing
USUAL_NUMBER = 0.8  # and a number: small ones are in many ends by chance


def results(replies: Sequence[str], request: str, elsewhere: Sequence[Sequence[str]]) -> set[str | None]:
    """For each of these replies the last word in its end that depends on the request's numbers, None if it has none.

    `elsewhere` are the replies to each request with other numbers. Words of the request are no result, unless they have
    a digit: the sum may be equal to a number in the request.
    """
    asked = {word for word in words_in(request) if not has_digit(word)}
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


def last_number(reply: str, request: str) -> str | None:
    """The last number in the end of a reply: a result, most likely.

    Numbers of the request are none, nor are those that count the items of a list. None if there is no other.
    """
    given, end = _numbers(request), " ".join(words_in(_WITHIN.sub("", _ITEM.sub("", reply)))[-END:])
    stated = [number for number in _numbers(end) if number not in given]
    return stated[-1] if stated else None


def loses_number(told: str, untold: str, request: str) -> bool:
    """Whether a reply with a hint lacks the number with which the reply without it ends."""
    number = last_number(untold, request)
    return number is not None and number not in _numbers(told)


def _numbers(text: str) -> list[str]:
    """The numbers in a text, each as its digits alone."""
    return _NUMBER.findall(_WITHIN.sub("", text))


def _is_usual(word: str, ends: Sequence[set[str]]) -> bool:
    share = USUAL_NUMBER if has_digit(word) else USUAL
    return bool(ends) and sum(word in words for words in ends) >= share * len(ends)


def has_digit(word: str) -> bool:
    """Whether a word contains a digit."""
    return any(character.isdigit() for character in word)
