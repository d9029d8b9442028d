"""Text to ids without blocking other threads, a lower bound for a text's ids, and ids to text.

A tokenizer's plain call blocks the interpreter until it ends, which takes a second for each megabyte; its batch
call releases it, and returns the same ids. Text longer than any context is detected before it is encoded: no
id has more characters than the longest token.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
from tokenizers import Encoding, Tokenizer
from tokenizers.pre_tokenizers import ByteLevel

from openclaw_rl.core.message import Json

LONG_CHARS = 4_000  # shorter text is encoded in some milliseconds; the batch call costs more than it saves
_BYTES = 256
_SHRINKS = 4  # composing turns at most four characters into one
_KEEPS = frozenset({"Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"})
_DECODER = codecs.getincrementaldecoder("utf-8")
_BYTE_TOKEN_CHARS = 6  # "<0x0A>"


@dataclass(frozen=True, slots=True)
class LongestToken:
    """The most characters of one id, and the most characters of a text that become one before it is encoded."""

    chars: int
    shrinks: int = 1

    def least(self, text: str) -> int:
        """The least number of ids of the text."""
        shrinks = 1 if text.isascii() else self.shrinks  # composing leaves ASCII as it is
        return -(-len(text) // (self.chars * shrinks))


class TooManyTokens(Exception):
    """A text has more ids than were allowed: `least` or more."""

    def __init__(self, least: int) -> None:
        super().__init__(f"at least {least} tokens")
        self.least = least


def encoded(tokenizer: Tokenizer, text: str, *, most: int | None = None) -> list[int]:
    """Ids of text that may hold special tokens; nothing is prepended. Raises TooManyTokens above `most`."""
    found = _encoding(tokenizer, text)
    if most is not None and len(found) > most:
        raise TooManyTokens(len(found))
    ids: list[int] = found.ids
    return ids


def count(tokenizer: Tokenizer, text: str) -> int:
    """The number of ids of the text."""
    return len(_encoding(tokenizer, text))


def longest_token(tokenizer: Tokenizer) -> LongestToken | None:
    """The bounds for counting a text's ids before it is encoded; None if they cannot be determined.

    They exist for byte-pair encoding that knows every byte and drops or joins no characters. Otherwise
    one id may be a whole unknown word, or nothing.
    """
    config = json.loads(tokenizer.to_str())
    model, shrinks = config["model"], _shrinks(config.get("normalizer"))
    is_plain = model.get("type") == "BPE" and not config.get("truncation") and not config.get("padding")
    if not is_plain or shrinks is None or any(each["lstrip"] or each["rstrip"] for each in config["added_tokens"]):
        return None
    steps = _steps(config.get("pre_tokenizer"), "pretokenizers")
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


def _shrinks(config: Json) -> int | None:
    """By how much a normalizer may shorten a text at most; None if that cannot be determined."""
    found = 1
    for step in _steps(config, "normalizers"):
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


def _steps(config: Json, name: str) -> list[dict[str, Json]]:
    if not isinstance(config, dict):
        return []
    inner = config.get(name)
    if config.get("type") != "Sequence" or not isinstance(inner, list):
        return [config]
    return [step for each in inner for step in _steps(each, name)]


def _keeps_all(step: dict[str, Json]) -> bool:
    """Whether every character survives it."""
    match step.get("type"):
        case "ByteLevel" | "Digits" | "Metaspace":
            return True
        case "Split" | "Punctuation":
            return step.get("behavior") in _KEEPS
    return False


class TokenBytes:
    """The bytes of every id of a tokenizer, looked up once each."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        added = tokenizer.get_added_tokens_decoder()
        self._added: dict[int, str] = {token: item.content for token, item in added.items()}
        self.special = frozenset(token for token, item in added.items() if item.special)
        kinds = _decoder_kinds(tokenizer)
        self._is_byte_level = "ByteLevel" in kinds
        self._is_sentence_piece = not self._is_byte_level and bool(kinds & {"ByteFallback", "Metaspace", "Replace"})
        self.drops_first_space = self._is_sentence_piece and bool(kinds & {"Strip", "Metaspace"})
        self._alphabet = _byte_alphabet()
        self._known: dict[int, bytes] = {}
        self._as_json: dict[int, tuple[bytes, bytes]] = {}
        self.texts: dict[int, str] = {}  # of ids seen so far that are whole characters
        self._silent: dict[frozenset[str], frozenset[int]] = {}

    def __call__(self, token: int) -> bytes:
        """The bytes of this id; none for an unknown id."""
        found = self._known.get(token)
        if found is None:
            found = self._known[token] = self._look_up(token)
        return found

    def as_json(self, token: int) -> tuple[bytes, bytes]:
        """This id's text and its list of bytes, as JSON."""
        found = self._as_json.get(token)
        if found is None:
            held = self(token)
            text = msgspec.json.encode(held.decode("utf-8", "replace"))
            found = self._as_json[token] = text, msgspec.json.encode(list(held))
        return found

    def silent(self, marks: frozenset[str]) -> frozenset[int]:
        """The special ids that are not among these marks; cached, since a family has few sets of marks."""
        found = self._silent.get(marks)
        if found is None:
            found = frozenset(token for token in self.special if self(token).decode() not in marks)
            self._silent[marks] = found
        return found

    def text(self, tokens: Sequence[int]) -> str:
        """All ids as one text, special ones included."""
        return b"".join(self(token) for token in tokens).decode("utf-8", "replace")

    def _look_up(self, token: int) -> bytes:
        if token in self._added:
            return self._added[token].encode()
        piece: str | None = self._tokenizer.id_to_token(token)
        if piece is None:
            return b""
        if self._is_byte_level:
            return b"".join(
                bytes((self._alphabet[char],)) if char in self._alphabet else char.encode() for char in piece
            )
        if self._is_sentence_piece:
            if len(piece) == _BYTE_TOKEN_CHARS and piece.startswith("<0x") and piece.endswith(">"):
                return bytes((int(piece[3:5], 16),))
            return piece.replace("\u2581", " ").encode()
        return str(self._tokenizer.decode([token], skip_special_tokens=False)).encode()


class Detokeniser:
    """Ids to text, one id at a time, without ever cutting a character in two.

    Published fast tokenizers come in two kinds, byte-level BPE and SentencePiece with byte fallback; both turn an id
    into bytes that do not depend on its neighbours, so a table of bytes and one incremental UTF-8 decoder are exact and
    fast.

    Produces the text of one answer as its ids come. A character appears with the id that completes it.
    """

    def __init__(self, table: TokenBytes) -> None:
        self._table = table
        self._texts = table.texts
        self._decoder = _DECODER("replace")
        self._drops_space = table.drops_first_space
        self._is_between = (
            not self._drops_space
        )  # between two characters, so that ids of whole characters are read directly

    def feed(self, token: int) -> str:
        """The text this id completes."""
        text = self._texts.get(token) if self._is_between else None
        return self._decoded(token) if text is None else text

    def flush(self) -> str:
        """The rest of a broken character, as U+FFFD."""
        self._is_between = not self._drops_space
        return self._decoder.decode(b"", final=True)

    def _decoded(self, token: int) -> str:
        held = self._table(token)
        if self._drops_space and held:
            self._drops_space = False
            held = held.removeprefix(b" ")
        was_between = self._is_between
        text = self._decoder.decode(held)
        self._is_between = not self._drops_space and not self._decoder.getstate()[0]
        if was_between and self._is_between:
            self._texts[token] = text
        return text


def _decoder_kinds(tokenizer: Tokenizer) -> frozenset[str]:
    held = json.loads(tokenizer.to_str()).get("decoder") or {}
    parts = held.get("decoders", []) if held.get("type") == "Sequence" else [held]
    return frozenset(str(part.get("type")) for part in parts)


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's characters for bytes: printable ones are themselves, the rest from U+0100 on."""
    plain = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAC + 1), *range(0xAE, 0xFF + 1)]
    others = [byte for byte in range(256) if byte not in set(plain)]
    table = {chr(byte): byte for byte in plain}
    table.update({chr(256 + index): byte for index, byte in enumerate(others)})
    return table
