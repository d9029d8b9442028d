"""What a reply must be to count: prose without hidden markup, said once, to the point, without its reasoning.
The rules depend on the text alone, not on a model.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections import Counter
from decimal import Decimal
from fractions import Fraction

SANE_CHARS = (20, 2500)  # shorter than a sentence or longer than any solution is not an honest answer
READ_CHARS = 5000  # rules read no further: longer text is a defect anyway, and patterns take time
SANE_WORDS = 400
SANE_EQUATIONS = 15
TIMES = 3  # a run of words repeated this often is a loop
RUN = 6  # words in a run
CALCULATION = re.compile(r"\d\s*=\s*-?\$?\d")

SENTENCE_WORDS = 4  # a number with fewer words is not a sentence

_SENTENCE = re.compile(r"[^.!?\n]+[.!?]")
_LINE_ENDS = re.compile(r"\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")
_BLANKS: dict[str, str | int | None] = {
    "\u2800": " ",
    "\u3164": " ",
    "\u115f": " ",
    "\u1160": " ",
    "\uffa0": " ",
}  # they look blank, but are letters in Unicode
_DRAWN_LETTERS = re.compile(r"[\U0001d400-\U0001d7ff\u24b6-\u24e9]")  # bold, italic and circled alphabets

_MARKUP = re.compile(
    r"""
      ^\#{1,6}(?:\s|\w|\*|$)                          # headers
    | ^[=*_-]{3,}$                                    # rules
    | \*\*|__|~~|`                                    # bold, struck, code
    | (?<![\w*])\*(?=[^\s*])[^*\n]*[^\s*]\*(?![\w*])  # *emphasis*, not a product
    | (?<!\w)_(?=[^\s_])[^_\n]*[^\s_]_(?!\w)
    | ^[-*+•‣◦▪●○■□–—→►▶✓✔✗✘✅❌·](?!\d)             # bullets
    | ^\(?\d{1,2}[.):](?!\d)                          # numbered lines
    | ^\(?(?:[a-h]|[ivx]+)[.)]\s                      # lettered lines
    | ^(?:step|part)\s*\d+\s*[:.)-]                   # Step 1:
    | (?:^|[.:!?;]\s)1[.)]\s*[A-Z*].*?[.:!?;,]\s2[.)] # a list on one line
    | ^(?:solution|(?:final\s)?answer|explanation|result|conclusion|steps?|given|check|score)\s*:
    | \\(?:boxed|frac|text|times|cdot|begin|left|quad|mathbf|\(|\[)
    | \$(?!\s)[^$\n]*[^\s$]\$(?!\d)                   # $formula$, not a price
    | ^\||\|[^|\n]*\|[^|\n]*\|                        # tables
    | </?(?:b|i|u|em|strong|h[1-6]|li|ul|ol|p|br|hr|div|span|code|pre|table|tr|td|sub|sup)\b[^>]*>
    """,
    re.MULTILINE | re.VERBOSE | re.IGNORECASE,
)
_LEAK = re.compile(
    r"""
      </?\s*(?:think|thinking|thought|reasoning|scratchpad|tool_call|tool_response|analysis)\b[^>]*>?
    | <\|[^|>]*\|?>?
    | \[/?(?:INST|user's\ hint|HINT_START|HINT_END)\]
    | <<<|>>>
    | \bthe\ user(?:'s)?\ (?:wants?|asks?|asked|is\ asking|said|says|prefers?|needs?|would|dislikes|message|request)\b
    | \b(?:let\ me|i\ should|i\ need\ to|i'll)\ (?:think|re-?read|double-?check|reconsider|figure|respond|avoid)
    | ^(?:hmm+|wait|okay,?\ so|alright,?\ so|ok,?\ so)\b
    | \b(?:hmm+|wait),\ (?:but|no|let|maybe|actually|that|is)\b
    | ^(?:reasoning|thinking|thoughts?|chain\ of\ thought|analysis|scratchpad)\s*:
    | "name"\s*:\s*"(?:read|write|append)"
    """,
    re.MULTILINE | re.VERBOSE | re.IGNORECASE,
)
_NUMBER = re.compile(r"(?<![\w.])-?\d{1,3}(?:,\d{3})+(?:\.\d+)?(?!\d)|-?\d+(?:\.\d+)?")
_BOXED = re.compile(r"\\boxed\{\s*([^{}]*?)\s*\}")
_HEDGE = re.compile(
    r"\d\s*(?:,|/|;)?\s*(?:or|oder|either|maybe|perhaps|possibly)\s+(?:\w+\s+){0,2}?-?\d", re.IGNORECASE
)
_GRADE = re.compile(r"(?<![\d.])(\d+(?:\.\d+)?)\s*(?:/|out\s+of|of)\s*10(?![\d.]*\d)", re.IGNORECASE)
_ALOOF = re.compile(r"\bthe\s+(?:right|correct)\s+(?:answer|result|number|value|total|solution|way)\b", re.IGNORECASE)
_BAD = re.compile(
    r"\b(?:in-?correct(?:ly)?|wrong|mistaken|false"
    r"|(?:not|n't|isn't|never|no\s+longer)\s+(?:\w+\s+){0,2}?(?:right|correct|true)"
    r"|(?:a|an|one|small|the|this|little)\s+(?:\w+\s+)?(?:mistake|error|slip))\b",
    re.IGNORECASE,
)
_GOOD = re.compile(r"\b(?:right|correct(?:ly)?|true)\b", re.IGNORECASE)


def plain(text: str) -> str:
    """The text as it reads: look-alike characters folded, invisible ones gone, each blank one space, lines trimmed.

    Only the beginning of a very long text.
    """
    folded = unicodedata.normalize("NFKC", html.unescape(text[:READ_CHARS])).translate(str.maketrans(_BLANKS))
    lines = []
    for line in _LINE_ENDS.split(folded):
        seen = "".join(
            " " if unicodedata.category(sign) in ("Zs", "Cc") else sign for sign in line if _is_visible(sign)
        )
        lines.append(" ".join(seen.split()))
    return "\n".join(lines).strip()


def looks_generated(text: str) -> bool:
    """Whether any markdown, list, label, boxed answer, formula or drawn letter is in the text, however hidden."""
    return _DRAWN_LETTERS.search(text) is not None or _MARKUP.search(plain(text)) is not None


def leaks(text: str, reasoning: str = "") -> bool:
    """Whether a reply shows reasoning, a control token, or what was only meant for the model."""
    said = plain(text)
    thought = plain(reasoning)
    return _LEAK.search(said) is not None or (len(thought) >= 40 and thought[:200] in said)


def repeats(text: str) -> bool:
    """Whether the text repeats itself: a sentence said twice, or a run of words three times."""
    said = [" ".join(_words(sentence)) for sentence in re.split(r"[.!?\n]+", plain(text))]
    whole = [sentence for sentence in said if sentence.count(" ") >= 3]
    words = _words(plain(text))
    runs = [tuple(words[at : at + RUN]) for at in range(len(words) - RUN + 1)]
    stutters = any(len(set(words[at : at + 4])) == 1 and words[at].isalpha() for at in range(len(words) - 3))
    return len(set(whole)) < len(whole) or stutters or any(times >= TIMES for times in Counter(runs).values())


def has_prose(text: str, *, sentences: int = 1) -> bool:
    """Whether there are this many real sentences and a number in one of them: a bare number is not an answer."""
    said = [each for each in _SENTENCE.findall(plain(text)) if len(re.findall(r"[^\W\d_]+", each)) >= SENTENCE_WORDS]
    return len(said) >= sentences and any(re.search(r"\d", sentence) for sentence in said)


def oddities(text: str, reasoning: str = "", *, shortest: int = SANE_CHARS[0]) -> tuple[str, ...]:
    """The defects of a reply, in words; empty if there are none."""
    said = plain(text)
    found = {
        "too short": len(said) < shortest,
        "too long": len(text) > SANE_CHARS[1] or len(said.split()) > SANE_WORDS,
        "too many steps": len(CALCULATION.findall(said)) > SANE_EQUATIONS,
        "repeats itself": repeats(text),
        "reasoning leaked": leaks(text, reasoning),
    }
    return tuple(name for name, is_so in found.items() if is_so)


def shows_steps(text: str) -> bool:
    """Whether a solution says more than its result: two numbers and their result."""
    return len(_NUMBER.findall(plain(text))) >= 3


def number_in(text: str) -> Fraction | None:
    """The number a text ends on: the last boxed one, else the last one. None also if it hedges."""
    said = plain(text)
    if _HEDGE.search(said):
        return None
    found = [_value(number) for boxed in _BOXED.findall(said) for number in _NUMBER.findall(boxed)]
    found = found or [_value(number) for number in _NUMBER.findall(said)]
    return found[-1] if found else None


def is_number(text: str, answer: str) -> bool:
    """Whether a text ends on the answer, `1,200` and `1200.0` being the same."""
    return number_in(text) is not None and number_in(text) == number_in(answer)


def grade_in(text: str) -> float | None:
    """The grade out of ten that a text gives; None if it gives none or more than one."""
    found = {float(grade) for grade in _GRADE.findall(plain(text))}
    return found.pop() if len(found) == 1 else None


def says_right(text: str) -> bool | None:
    """Whether a text calls somebody's work right; None if it does not say, or says both."""
    said = _ALOOF.sub("", plain(text).replace("’", "'"))
    calls_bad = _BAD.search(said) is not None
    calls_good = _GOOD.search(_BAD.sub("", said)) is not None
    return None if calls_bad is calls_good else calls_good


def _is_visible(sign: str) -> bool:
    return unicodedata.category(sign) not in ("Cf", "Mn", "Me", "Cs", "Co")


def _words(text: str) -> list[str]:
    return re.findall(r"[\w']+", text.lower())


def _value(number: str) -> Fraction:
    return Fraction(Decimal(number.replace(",", "")))
