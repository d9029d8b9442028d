"""Answers compared exactly: numbers as they are written, and texts without their decoration."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from fractions import Fraction

MOST_CHARACTERS = 100_000  # read of a text, counted from its end
MOST_DIGITS = 4_000
MOST_BOXES, MOST_BOXED = 20, 4_000
SIGNS = str.maketrans({"−": "-", "–": "-", "⁄": "/", "，": ",", "％": "%", "\u00a0": " ", "\u202f": " "})
INTEGER = r"(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)"
NUMBER = re.compile(
    rf"[$€£]?\s?(?P<sign>(?<![\w)])[-+])?\s?[$€£]?\s?(?P<number>{INTEGER}(?:\.\d*)?|\.\d+)"
    r"(?:(?:[eE]|\s?(?:\\times|\\cdot|×)\s?10\^)\{?(?P<power>[-+]?\d{1,3})\}?(?!\d))?"
    r"(?:\s?/\s?(?P<below>\d+))?(?P<percent>\s?%)?"
)
FRACTION = re.compile(
    r"(?P<sign>[-+])?\s?(?P<whole>\d+)?\s?\\frac\s?(?:\{\s?(?P<above>-?\d+)\s?\}\s?\{\s?(?P<below>\d+)\s?\}|(?P<first>\d)(?P<second>\d))"
)
MIXED = re.compile(r"(?P<sign>[-+])?\s?(?P<whole>\d+) (?P<above>\d+)\s?/\s?(?P<below>\d+)")
ASSIGNED = re.compile(r"^\\?[A-Za-z]\w{0,20}\s*=\s*")
UNIT = re.compile(r"\\(?:text|mathrm|textbf|mbox)\s*\{[^{}]*\}|\^\{?\\circ\}?|\\degree")
DROPPED = re.compile(r"\\left|\\right|\\[,;:! ]|\\displaystyle|\\\(|\\\)|\\\[|\\\]|\$\$|(?<!\d)~")
SAYS_ANSWER = re.compile(r"####\s*([^\n]+)|[Aa]nswer\s*(?:is|:|=)\s*([^\n]+)")
BOX = re.compile(r"\\(?:boxed|fbox)\s*\{")


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number as written: 12.5% has the value 12.5 and is a percentage."""

    value: Fraction
    is_percent: bool = False

    def is_same(self, other: Quantity) -> bool:
        """Whether both are the same number. If only one is a percentage, 50% equals both 50 and one half."""
        if self.value == other.value:
            return True
        if self.is_percent == other.is_percent:
            return False
        return self.value == other.value * 100 if self.is_percent else self.value * 100 == other.value


def final_answer(text: str) -> str | None:
    """The answer in a text: boxed, after ####, after `answer`, whichever comes last; None if there is none."""
    text = text[-MOST_CHARACTERS:]
    marked = [(found.start(), next(filter(None, found.groups()), "")) for found in SAYS_ANSWER.finditer(text)]
    marked += [(start, inner) for start, inner in _boxed(text)]
    said = max(marked, default=(0, ""))[1].strip()
    inner = [boxed for _, boxed in _boxed(said)]
    return (inner[-1].strip() if inner else said) or None


def _boxed(text: str) -> Iterator[tuple[int, str]]:
    """Where each of the last boxes starts, and what is in it; braces within it are balanced."""
    for found in list(BOX.finditer(text))[-MOST_BOXES:]:
        depth = 1
        for place in range(found.end(), min(len(text), found.end() + MOST_BOXED)):
            depth += {"{": 1, "}": -1}.get(text[place], 0)
            if depth == 0:
                yield found.start(), text[found.end() : place]
                break


def final_quantity(text: str) -> Quantity | None:
    """The number a text gives, and whether it is a percentage: of its answer, else the last; None if there is none."""
    answer = final_answer(text)
    if answer is not None:
        number = quantity_of(answer) or next(_quantities(answer), None)
        if number is not None:
            return number
    return quantity_of(text) or next(_quantities(text, from_end=True), None)


def quantity_of(text: str) -> Quantity | None:
    """The number, if a text is a number as a whole; else None.

    It reads 1,200, $3.50, 7/8, 2 1/2, 50%, \\frac{3}{4}, 1.5e3, 3 \\times 10^5, x = 4, and the digits of any script.
    """
    if len(text) > 2 * MOST_DIGITS:
        return None
    plain = ASSIGNED.sub("", plain_text(text)).rstrip(".")
    for pattern in (FRACTION, MIXED):
        if match := pattern.fullmatch(plain):
            parts = {"first": None, "second": None, **match.groupdict()}
            above, below = (
                int(parts[name] or parts[other] or 0) for name, other in (("above", "first"), ("below", "second"))
            )
            if below == 0:
                return None
            value = int(parts["whole"] or 0) + Fraction(above, below)
            return Quantity(-value if parts["sign"] == "-" else value)
    match = NUMBER.fullmatch(plain)
    return _quantity(match) if match else None


def _quantities(text: str, *, from_end: bool = False) -> Iterator[Quantity]:
    found = list(NUMBER.finditer(text[-MOST_CHARACTERS:].translate(SIGNS)))
    for match in reversed(found) if from_end else found:
        if (one := _quantity(match)) is not None:
            yield one


def _quantity(match: re.Match[str]) -> Quantity | None:
    digits = match["number"].replace(",", "")
    if len(digits) > MOST_DIGITS or len(match["below"] or "") > MOST_DIGITS:
        return None
    try:
        value = Fraction(Decimal(digits)) * Fraction(10) ** int(match["power"] or 0)
        if match["below"]:
            value /= Fraction(Decimal(match["below"]))
    except (InvalidOperation, ZeroDivisionError):
        return None
    return Quantity(-value if match["sign"] == "-" else value, bool(match["percent"]))


def plain_text(text: str) -> str:
    """A text without parts that do not change its meaning: dollars of LaTeX, spacing, units, sizes of fractions."""
    plain = text.strip().translate(SIGNS).replace("{,}", ",").replace("\\!", "")
    plain = re.sub(r"\\[dt]frac", r"\\frac", plain).replace("\\%", "%").replace("\\$", "$")
    plain = DROPPED.sub(" ", UNIT.sub(" ", plain)).strip()
    if plain.startswith("$") and plain.endswith("$") and len(plain) > 1:
        plain = plain[1:-1]
    return re.sub(r"\s+", " ", plain).strip()


def is_same_text(said: str, right: str) -> bool:
    """Whether two answers are the same text, apart from spaces and decoration."""
    first, second = (plain_text(text).replace(" ", "").rstrip(".") for text in (said, right))
    return bool(first) and first == second
