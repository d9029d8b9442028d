"""Words looked for in what was said: a turn's record is skimmed as text first, and read only where it may hold them.

To skim takes a tenth of the time that reading takes, and most turns hold no word of what is looked for.
"""

from __future__ import annotations

import sqlite3

from openclaw_rl.core.message import Role
from openclaw_rl.core.turn import Turn
from openclaw_rl.errors import DamageError
from openclaw_rl.store import codec
from openclaw_rl.store.codec import plain
from openclaw_rl.store.tables import ledger, turns

MOST_TURNS = 400  # of one conversation that are searched
DIGEST = 16  # bytes of a long text's digest
PART = '"type":"text"'  # a message in several parts: words may stand across two of them, which are apart in the record


class Search:
    """Looks for words within one read of the store."""

    def __init__(self, sql: sqlite3.Connection, words: str) -> None:
        self._sql = sql
        self._words = words.casefold()
        self._written = codec.json_bytes(self._words)[1:-1].decode("utf-8", "surrogatepass")
        self._long: dict[bytes, bool] = {}  # long texts that were looked at; they come again with every request

    def holds(self, session: str) -> bool:
        """Whether the words stand in what was said in a conversation. Its newest request holds the older ones."""
        rows = self._sql.execute(
            "SELECT turns.id, bodies.body, bodies.texts, next_states.messages FROM turns JOIN bodies USING (seq) "
            "LEFT JOIN next_states ON next_states.turn = turns.id WHERE session = ? ORDER BY turns.seq DESC LIMIT ?",
            (plain(session), MOST_TURNS),
        )
        return any(
            self._may_hold(body, texts, after) and self._is_said(str(name), is_newest=at == 0)
            for at, (name, body, texts, after) in enumerate(rows.fetchall())
        )

    def _may_hold(self, body: bytes, texts: bytes, after: bytes | None) -> bool:
        """Whether the words, as JSON writes them, stand anywhere in a turn's record."""
        digests = (texts[at : at + DIGEST] for at in range(0, len(texts), DIGEST))
        return self._stands(body) or (after is not None and self._stands(after)) or any(map(self._stands_in, digests))

    def _stands_in(self, digest: bytes) -> bool:
        if (known := self._long.get(digest)) is None:
            row = self._sql.execute("SELECT body FROM texts WHERE digest = ?", (digest,)).fetchone()
            known = self._long[digest] = row is None or self._stands(row[0])
        return known

    def _stands(self, blob: bytes) -> bool:
        try:
            with codec.reading("a record"):
                text = codec.unpack(blob).decode("utf-8", "surrogatepass")
        except DamageError:
            return True  # whoever reads the turn finds out what is wrong with it
        return self._written in text.casefold() or PART in text

    def _is_said(self, name: str, *, is_newest: bool) -> bool:
        """Whether the words stand in the reply, the last question or what followed; in the newest, in any message."""
        try:
            turn, after = turns.get(self._sql, name), ledger.next_state_of(self._sql, name)
        except DamageError:
            return False
        if turn is None:
            return False
        said = [turn.reply.text, last_words(turn), "" if after is None else after.text]
        said += [item.text for item in turn.messages] if is_newest else []
        return any(self._words in text.casefold() for text in said)


def last_words(turn: Turn) -> str:
    """What was asked last: the newest words of a user in the request."""
    return next((item.text for item in reversed(turn.messages) if item.role is Role.USER), "")
