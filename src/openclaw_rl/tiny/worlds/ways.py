"""Solutions written in each format, and strict checks that a reply follows a wish."""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random

from openclaw_rl.tiny.worlds.parts import (
    LanguageWords,
    ReplyFormat,
    WishPlace,
    WorldManner,
    WorldProblem,
    WorldWish,
    tongue,
)

SHORTEST_SENTENCE = 4  # words
MOST_WORDS_SHORT = 8

_MARKUP = re.compile(r"(^\s*#)|(\*\*)|(^\s*[-*+] )|(^\s*\d+[.)] )|(`)|(\\boxed)", re.MULTILINE)
_LABEL = re.compile(r"^\s*\w+: ", re.MULTILINE)
_LEAKED = re.compile(r"</?think>|<[|\w]+\|?>|user's hint")
_WORD = re.compile(r"[^\W\d_]+")
_LONGER_WORD = re.compile(r"[^\W\d_]{2,}")  # single letters of a spelled-out word do not count


def solution(problem: WorldProblem, manner: WorldManner, rng: Random) -> str:
    """The right solution, written as `manner` asks, in the problem's language."""
    return manner.dressed(_WRITERS[manner.way](problem, tongue(problem.language), rng))


def holds(text: str, wish: WorldWish, language: str = "en") -> bool:
    """Whether a reply follows the wish, by a strict rule."""
    said = text.strip()
    if wish.way is None:
        return said.startswith(wish.value) if wish.place is WishPlace.FIRST else said.endswith(wish.value)
    return follows(said, wish.way, language)


def follows(text: str, way: ReplyFormat, language: str = "en") -> bool:
    """Whether a reply has the format, by a strict rule.

    False if it is empty, or contains thinking marks, control tokens or the label of a hint.
    """
    if _LEAKED.search(text) or not text.strip():
        return False
    return _CHECKS[way](text, tongue(language))


def _is_list(text: str, words: LanguageWords) -> bool:
    lines = [line for line in text.splitlines() if line.strip()]
    return sum(line.startswith("- ") for line in lines) >= 2 and "#" not in text


def _is_markdown(text: str, words: LanguageWords) -> bool:
    return re.search(r"^## \w", text, re.MULTILINE) is not None and text.count("**") >= 2


def _is_numbered(text: str, words: LanguageWords) -> bool:
    return re.search(r"^1\. ", text, re.MULTILINE) is not None and "#" not in text


def _is_labelled(text: str, words: LanguageWords) -> bool:
    label = words.labels["answer"]
    return re.search(rf"^{label}: ", text, re.MULTILINE) is not None and not _MARKUP.search(text)


def _is_short(text: str, words: LanguageWords) -> bool:
    return not _is_marked(text) and len(_WORD.findall(text)) <= MOST_WORDS_SHORT


def _is_prose(text: str, words: LanguageWords) -> bool:
    sentences = [
        part for part in re.split(r"[.!?](?:\s|$)", text) if len(_LONGER_WORD.findall(part)) >= SHORTEST_SENTENCE
    ]
    return not _is_marked(text) and bool(sentences)


def _is_plain(text: str, words: LanguageWords) -> bool:
    return _is_prose(text, words)


def _is_detailed(text: str, words: LanguageWords) -> bool:
    return _is_prose(text, words) and words.because in text.lower() and len(re.findall(r"[.!?](?:\s|$)", text)) >= 3


def _is_friendly(text: str, words: LanguageWords) -> bool:
    return _is_prose(text, words) and "!" in text and any(warm in text.lower() for warm in words.warm)


def _is_marked(text: str) -> bool:
    return _MARKUP.search(text) is not None or _LABEL.search(text) is not None or "\n" in text.strip()


def _list(problem: WorldProblem, words: LanguageWords, rng: Random) -> str:
    label = words.labels["result"]
    return f"- {_capital(problem.action)}: {problem.equation}\n- {label}: {problem.result}"


def _markdown(problem: WorldProblem, words: LanguageWords, rng: Random) -> str:
    heading, label = words.labels["solution"], words.labels["result"]
    return f"## {heading}\n\n{_capital(problem.action)}: {problem.equation}\n\n**{label}:** {problem.result}"


def _numbered(problem: WorldProblem, words: LanguageWords, rng: Random) -> str:
    return f"1. {_capital(problem.action)}: {problem.equation}\n2. {_capital(problem.conclusion)}."


def _labelled(problem: WorldProblem, words: LanguageWords, rng: Random) -> str:
    return f"{words.labels['working']}: {problem.equation}\n{words.labels['answer']}: {problem.result}"


def _short(problem: WorldProblem, words: LanguageWords, rng: Random) -> str:
    return f"{problem.equation}, {problem.result}."  # a small model cannot calculate without writing the equation


def _framed(way: ReplyFormat) -> Callable[[WorldProblem, LanguageWords, Random], str]:
    def written(problem: WorldProblem, words: LanguageWords, rng: Random) -> str:
        return rng.choice(words.frames[way]).format(
            action=problem.action,
            Action=_capital(problem.action),
            equation=problem.equation,
            conclusion=problem.conclusion,
            Conclusion=_capital(problem.conclusion),
            greeting=rng.choice(words.frames["greeting"]),
            cheer=rng.choice(words.frames["cheer"]),
        )

    return written


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


_WRITERS: dict[ReplyFormat, Callable[[WorldProblem, LanguageWords, Random], str]] = {
    ReplyFormat.LIST: _list,
    ReplyFormat.MARKDOWN: _markdown,
    ReplyFormat.NUMBERED: _numbered,
    ReplyFormat.LABELLED: _labelled,
    ReplyFormat.SHORT: _short,
    ReplyFormat.PLAIN: _framed(ReplyFormat.PLAIN),
    ReplyFormat.DETAILED: _framed(ReplyFormat.DETAILED),
    ReplyFormat.FRIENDLY: _framed(ReplyFormat.FRIENDLY),
}
_CHECKS: dict[ReplyFormat, Callable[[str, LanguageWords], bool]] = {
    ReplyFormat.LIST: _is_list,
    ReplyFormat.MARKDOWN: _is_markdown,
    ReplyFormat.NUMBERED: _is_numbered,
    ReplyFormat.LABELLED: _is_labelled,
    ReplyFormat.SHORT: _is_short,
    ReplyFormat.PLAIN: _is_plain,
    ReplyFormat.DETAILED: _is_detailed,
    ReplyFormat.FRIENDLY: _is_friendly,
}
