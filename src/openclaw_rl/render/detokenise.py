"""Ids to text, one id at a time, without ever cutting a character in two.

Published fast tokenizers come in two kinds, byte-level BPE and SentencePiece with byte fallback; both turn an id into
bytes that do not depend on its neighbours, so a table of bytes and one incremental UTF-8 decoder are exact and fast.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Sequence

from tokenizers import Tokenizer

_DECODER = codecs.getincrementaldecoder("utf-8")
_BYTE_TOKEN_CHARS = 6  # "<0x0A>"


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
        self.texts: dict[int, str] = {}  # of ids that were met and are whole characters
        self._silent: dict[frozenset[str], frozenset[int]] = {}

    def __call__(self, token: int) -> bytes:
        """The bytes this id stands for; none for an id the tokenizer does not know."""
        found = self._known.get(token)
        if found is None:
            found = self._known[token] = self._look_up(token)
        return found

    def silent(self, marks: frozenset[str]) -> frozenset[int]:
        """The special ids that are none of these marks; kept, since a family has few sets of marks."""
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
    """The text of one answer as its ids come. A character is given out with the id that completes it."""

    def __init__(self, table: TokenBytes) -> None:
        self._table = table
        self._texts = table.texts
        self._decoder = _DECODER("replace")
        self._drops_space = table.drops_first_space
        self._is_between = not self._drops_space  # two characters, where ids that are whole ones are read as such

    def feed(self, token: int) -> str:
        """The text this id completes."""
        text = self._texts.get(token) if self._is_between else None
        return self._decoded(token) if text is None else text

    def flush(self) -> str:
        """What is left of a broken character, as U+FFFD."""
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
    """GPT-2's characters for bytes: printable ones stand for themselves, the rest from U+0100 on."""
    plain = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAC + 1), *range(0xAE, 0xFF + 1)]
    others = [byte for byte in range(256) if byte not in set(plain)]
    table = {chr(byte): byte for byte in plain}
    table.update({chr(256 + index): byte for index, byte in enumerate(others)})
    return table
