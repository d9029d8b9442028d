"""Text to ids without holding up everybody else, and how many ids a text has at least.

A tokenizer's plain call holds the interpreter until it has ended, which takes a second for each megabyte; its batch
call gives it up meanwhile, and gives the same ids. What is longer than any context is known before it is encoded: no
id stands for more characters than the longest token has.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from tokenizers import Encoding, Tokenizer
from tokenizers.pre_tokenizers import ByteLevel

from openclaw_rl.core.message import Json

LONG_CHARS = 4_000  # shorter text is encoded in some milliseconds; the batch call costs more than it saves
_BYTES = 256
_SHRINKS = 4  # composing makes one character of at most four
_KEEPS = frozenset({"Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"})


@dataclass(frozen=True, slots=True)
class LongestToken:
    """How many characters one id stands for at most, and how many of a text's may become one before it is encoded."""

    chars: int
    shrinks: int = 1

    def least(self, text: str) -> int:
        """How many ids the text has at least."""
        shrinks = 1 if text.isascii() else self.shrinks  # composing leaves ASCII as it is
        return -(-len(text) // (self.chars * shrinks))


class TooManyTokens(Exception):
    """A text has more ids than were allowed: `least` or more."""

    def __init__(self, least: int) -> None:
        super().__init__(f"at least {least} tokens")
        self.least = least


def encoded(tokenizer: Tokenizer, text: str, *, most: int | None = None) -> list[int]:
    """Ids of text that may hold special tokens; nothing is added in front. Raises TooManyTokens above `most`."""
    found = _encoding(tokenizer, text)
    if most is not None and len(found) > most:
        raise TooManyTokens(len(found))
    ids: list[int] = found.ids
    return ids


def count(tokenizer: Tokenizer, text: str) -> int:
    """How many ids the text has."""
    return len(_encoding(tokenizer, text))


def longest_token(tokenizer: Tokenizer) -> LongestToken | None:
    """By what a text's ids are counted before it is encoded; None where that cannot be determined.

    It can for byte-pair encoding that knows every byte, where nothing drops or joins characters on the way: otherwise
    one id may stand for a whole word that is not known, or for nothing.
    """
    told = json.loads(tokenizer.to_str())
    model, shrinks = told["model"], _shrinks(told.get("normalizer"))
    is_plain = model.get("type") == "BPE" and not told.get("truncation") and not told.get("padding")
    if not is_plain or shrinks is None or any(each["lstrip"] or each["rstrip"] for each in told["added_tokens"]):
        return None
    steps = _steps(told.get("pre_tokenizer"), "pretokenizers")
    if not all(_keeps_all(step) for step in steps):
        return None
    vocabulary = tokenizer.get_vocab()
    if any(step["type"] == "ByteLevel" for step in steps):
        knows_bytes = set(ByteLevel.alphabet()) <= vocabulary.keys()
    else:
        knows_bytes = bool(model.get("byte_fallback")) and all(f"<0x{at:02X}>" in vocabulary for at in range(_BYTES))
    return LongestToken(max(map(len, vocabulary)), shrinks) if knows_bytes else None


def _encoding(tokenizer: Tokenizer, text: str) -> Encoding:
    if len(text) < LONG_CHARS:
        return tokenizer.encode(text, add_special_tokens=False)
    return tokenizer.encode_batch_fast([text], add_special_tokens=False)[0]


def _shrinks(told: Json) -> int | None:
    """By how much a normalizer may shorten a text at most; None where that cannot be determined."""
    found = 1
    for step in _steps(told, "normalizers"):
        pattern = step.get("pattern")
        match step.get("type"):
            case "NFC" | "NFKC":
                found *= _SHRINKS
            case "NFD" | "NFKD" | "Prepend":
                pass
            case "Replace" if isinstance(pattern, dict) and _is_no_shorter(pattern.get("String"), step.get("content")):
                pass
            case _:
                return None
    return found


def _is_no_shorter(before: Json, after: Json) -> bool:
    return isinstance(before, str) and isinstance(after, str) and len(after) >= len(before)


def _steps(told: Json, name: str) -> list[dict[str, Json]]:
    if not isinstance(told, dict):
        return []
    inner = told.get(name)
    if told.get("type") != "Sequence" or not isinstance(inner, list):
        return [told]
    return [step for each in inner for step in _steps(each, name)]


def _keeps_all(step: dict[str, Json]) -> bool:
    """Whether every character comes out of it again."""
    match step.get("type"):
        case "ByteLevel" | "Digits" | "Metaspace":
            return True
        case "Split" | "Punctuation":
            return step.get("behavior") in _KEEPS
    return False
