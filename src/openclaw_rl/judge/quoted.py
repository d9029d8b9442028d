"""What the author of a text wrote, without what they quoted; and foreign text that addresses its reader.

A person forwards a mail, pastes a page or quotes an answer: those words are not theirs, and must neither score a reply
nor become a hint. Text that tools fetched may be voted on, but not the lines in it that address its reader.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from openclaw_rl.wording.words import CODES, Language, language

LEFT_OUT = "[quoted text left out]"
LINE_LEFT_OUT = "[a line left out]"
_QUOTE_LINE = re.compile(r"^[ \t]*>.*(?:\n|\Z)", re.MULTILINE)
_TAGS = (
    "article|attachment|context|document|doc|email|file|mail|message|page|quote|quoted|result|results|search_results"
)
_TAGGED = re.compile(
    rf"<(?P<tag>(?:web_?|tool_?|forwarded_?|retrieved_?)?(?:{_TAGS}|blockquote|output|html))\b[^>\n]{{0,200}}>"
    r".*?(?:</(?P=tag)\s*>|\Z)",
    re.IGNORECASE | re.DOTALL,
)
_FENCED = re.compile(
    r"^[ \t]*(?P<fence>```+|~~~+)[ \t]*(?:text|txt|plain|md|markdown|html|xml|email|mail|eml|quote|page|web)[ \t]*\n"
    r".*?(?:^[ \t]*(?P=fence)[ \t]*$|\Z)",
    re.IGNORECASE | re.MULTILINE | re.DOTALL,
)
# A short quotation is a name, or the words that were wanted; a long one is another person's text.
_LONG_QUOTED = re.compile(
    r"\"[^\"]{40,}\"|“[^”]{40,}”|„[^“”]{40,}[“”]|«[^»]{40,}»|‹[^›]{40,}›|「[^」]{20,}」|『[^』]{20,}』|“[^”\x00-\u2fff]{20,}”"
)
# The marks in which judges answer, and those that set a model's turns apart: they speak to a reader in any language.
_MARKS = r"\\boxed|\[/?hint|<<<|>>>|<\|?(?:im_start|im_end|system|assistant)|\[/?inst\]"


def own_words(text: str) -> str:
    """What the author of a text wrote; a mark replaces what they quoted."""
    for pattern in (_TAGGED, _FENCED, _between()):
        text = pattern.sub(LEFT_OUT + "\n", text)
    text = _LONG_QUOTED.sub(LEFT_OUT, text)
    for pattern in (_forwarded(), _replied()):
        found = pattern.search(text)
        if found is not None:
            text = f"{text[: found.start()]}{LEFT_OUT}"
    text = _QUOTE_LINE.sub(LEFT_OUT + "\n", text)
    return re.sub(rf"(?:{re.escape(LEFT_OUT)}\s*)+", LEFT_OUT + "\n", text).strip()


def has_own_words(text: str) -> bool:
    """Whether anything is left of a text without what it quotes."""
    return bool(own_words(text).replace(LEFT_OUT, "").strip())


def disarmed(text: str) -> str:
    """Foreign text without the lines that address its reader."""
    addresses = _addresses()
    if addresses.search(text) is None:
        return text
    lines = [LINE_LEFT_OUT if addresses.search(line) else line for line in text.split("\n")]
    return "\n".join(lines)


@lru_cache
def _forwarded() -> re.Pattern[str]:
    """The line after which everything was written by another person, as mail programs mark it."""
    phrases = _any(phrase for each in _languages() for phrase in each.forwarded)
    senders = _any(word for each in _languages() for word in each.from_)
    headers = _any(word for each in _languages() for word in each.headers)
    colon = r"(?:[ \t\u00a0]?:[ \t]|：)"
    return re.compile(
        rf"^[ \t>]*(?:-{{2,}}[ \t]*{phrases}[ \t]*-{{2,}}|{phrases}[ \t\u00a0]*[:：]|_{{10,}}[ \t]*$"
        rf"|{senders}{colon}.{{1,200}}\n[ \t>]*{headers}{colon})",
        re.IGNORECASE | re.MULTILINE,
    )


@lru_cache
def _replied() -> re.Pattern[str]:
    """The line that says who wrote the next words."""
    wrote = "|".join(pattern for each in _languages() for pattern in each.wrote)
    return re.compile(rf"^[ \t]*(?:{wrote})[ \t\u00a0]*[:：][ \t]*$", re.IGNORECASE | re.MULTILINE)


@lru_cache
def _between() -> re.Pattern[str]:
    """The text between two lines, one that marks its beginning and one that marks its end."""
    begin = _any(word for each in _languages() for word in each.begin)
    end = _any(word for each in _languages() for word in each.end)
    rule = r"^[ \t]*(?:-{3,}|={3,}|#{3,}|\*{3,})[ \t]*"
    return re.compile(
        rf"{rule}{begin}[^\n]{{0,80}}\n.*?(?:{rule}{end}[^\n]{{0,80}}$|\Z)", re.IGNORECASE | re.MULTILINE | re.DOTALL
    )


@lru_cache
def _addresses() -> re.Pattern[str]:
    """A line that addresses a model, a judge or a grader, or that contains the marks in which judges answer."""
    return re.compile("|".join([_MARKS, *(one for each in _languages() for one in each.addresses)]), re.IGNORECASE)


def _languages() -> list[Language]:
    return [language(code) for code in CODES]


def _any(listed: Iterable[str]) -> str:
    """One of the words, as a whole."""
    return "(?:" + "|".join(re.escape(word) + (r"\b" if word.isascii() else r"") for word in listed) + ")"
