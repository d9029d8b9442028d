"""The store as JSON lines in the published record shape, one line for each turn, oldest first.

    session_id, turn, timestamp, messages, prompt_text, response_text, tool_calls, next_state; votes, score, hint

`turn` counts a session's main turns from 1; a side request has none. Further facts follow, under names the published
shape does not use: kind, turn_id, user, agent, reasoning, state, reason, version, source, mean, hints, feedback,
episode.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from openclaw_rl.core.message import Json
from openclaw_rl.errors import StoreError
from openclaw_rl.store.codec import message_json
from openclaw_rl.store.db import Store
from openclaw_rl.store.exports import StoreSnapshot
from openclaw_rl.store.forms import ExportForm, rows_in
from openclaw_rl.store.rows import TurnRow
from openclaw_rl.store.tables import listing

ROWS_AT_ONCE = 25
TextOf = Callable[[Sequence[int]], str]


@dataclass(frozen=True, slots=True)
class ExportFilter:
    """Which turns: of a session, a user or everybody; side requests too, unless `with_side` is False.

    `text_of` turns a prompt's ids into text; without it `prompt_text` is None, since that needs a tokenizer. A `form`
    other than that of records exports only main turns, each as the rows it gives.
    """

    session: str | None = None
    user: str | None = None
    with_side: bool = True
    text_of: TextOf | None = None
    form: ExportForm = ExportForm.RECORDS


@dataclass(frozen=True, slots=True)
class ExportChunk:
    """Some lines, how many of them are of main turns and of side requests, and the last turn read."""

    lines: bytes
    main: int
    side: int
    last: str


async def pieces(snapshot: StoreSnapshot, wanted: ExportFilter) -> AsyncIterator[ExportChunk]:
    """The records, some at a time. Raises StoreError."""
    numbers: dict[str, int] = {}
    last: str | None = None
    while True:
        piece = await snapshot.do(lambda sql, after=last: _piece(sql, wanted, numbers, after))  # type: ignore[misc]
        if piece is None:
            return
        yield piece
        last = piece.last


async def export(store: Store, path: Path, wanted: ExportFilter | None = None) -> tuple[int, int]:
    """Writes the records to `path`, readable only by its owner; returns the numbers of main turns and side requests.

    The file appears complete or not at all. Raises StoreError.
    """
    main = side = 0
    async with store.exports.snapshot() as snapshot:
        with written(path) as lines:
            async for piece in pieces(snapshot, wanted or ExportFilter()):
                lines.write(piece.lines)
                main, side = main + piece.main, side + piece.side
    return main, side


@contextmanager
def written(path: Path) -> Iterator[BinaryIO]:
    """A file to write, readable only by its owner, that appears at `path` complete or not at all. Raises StoreError."""
    partial = path.with_name(f"{path.name}.part")
    try:
        partial.touch(mode=0o600)
        with partial.open("wb") as lines:
            yield lines
        partial.replace(path)
    except OSError as problem:
        raise StoreError(
            f"{path} cannot be written: {problem.strerror}",
            fix="free space there, or name another folder",
        ) from problem
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)


def _piece(
    sql: sqlite3.Connection, wanted: ExportFilter, numbers: dict[str, int], after: str | None
) -> ExportChunk | None:
    rows = listing.oldest(sql, limit=ROWS_AT_ONCE, session=wanted.session, user=wanted.user, after=after)
    lines: list[str] = []
    main = 0
    for row in rows:
        if wanted.form is not ExportForm.RECORDS:
            found = [json.dumps(each) + "\n" for each in rows_in(wanted.form, sql, row)]
            lines += found
            main += len(found)
        elif row.turn.is_main:
            main += 1
            numbers[row.turn.session] = numbers.get(row.turn.session, 0) + 1
            lines.append(json.dumps(record_of(row, numbers[row.turn.session], wanted.text_of)) + "\n")
        elif wanted.with_side:
            lines.append(json.dumps(record_of(row, None, wanted.text_of)) + "\n")
    return ExportChunk("".join(lines).encode(), main, len(lines) - main, rows[-1].turn.id) if rows else None


def record_of(row: TurnRow, number: int | None, text_of: TextOf | None) -> dict[str, Json]:
    """One turn in the published shape."""
    turn, verdict, feedback = row.turn, row.verdict, row.feedback
    reply = turn.reply.as_json()
    hints: list[Json] = [] if verdict is None else [hint.text for hint in verdict.hints]
    return {
        "session_id": turn.session,
        "turn": number,
        "timestamp": datetime.fromtimestamp(turn.at_s, UTC).isoformat(),
        "messages": [message_json(item) for item in turn.messages],
        "prompt_text": None if text_of is None else text_of(turn.prompt.tokens),
        "response_text": turn.reply.text,
        "tool_calls": reply.get("tool_calls", []),
        "next_state": None if row.next_state is None else [message_json(item) for item in row.next_state.messages],
        "votes": None if verdict is None else [vote.score for vote in verdict.votes if vote.asked != "hint"],
        "score": None if verdict is None else verdict.score,
        "hint": hints[0] if hints else None,
        "kind": turn.kind.value,
        "turn_id": turn.id,
        "user": turn.user,
        "agent": turn.agent,
        "reasoning": turn.reply.reasoning,
        "carried": [item.text for item in turn.carried],
        "state": None if row.state is None else row.state.value,
        "reason": None if row.reason is None else row.reason.value,
        "version": str(turn.completion.version),
        "source": None if verdict is None else verdict.source.value,
        "mean": None if verdict is None else verdict.mean,
        "hints": hints,
        "feedback": None if feedback is None else {"score": feedback.score, "text": feedback.text},
        "episode": _episode_json(row),
    }


def _episode_json(row: TurnRow) -> Json:
    """The episode and step of the turn, and how the episode ended; null for other turns."""
    step, episode = row.turn.step, row.episode
    if step is None:
        return None
    body: dict[str, Json] = {"id": step.episode, "step": step.index, "observation": step.observation}
    if episode is None:
        return body
    return body | {
        "score": row.step_score,
        "task": episode.task,
        "group": episode.group,
        "seed": episode.seed,
        "environment": episode.environment,
        "outcome": episode.outcome,
        "failure": episode.failure.value,
    }
