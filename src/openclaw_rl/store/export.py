"""The store as JSON lines in the published record shape, one line for each main turn, oldest first.

    session_id, turn, timestamp, messages, prompt_text, response_text, tool_calls, next_state; votes, score, hint

`turn` counts a session's main turns from 1. Our own facts stand behind, under names the published shape does not use:
turn_id, user, agent, reasoning, state, reason, version, source, mean, hints, feedback.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from openclaw_rl.core.message import Json
from openclaw_rl.errors import StoreError
from openclaw_rl.store.codec import message_json
from openclaw_rl.store.db import Store
from openclaw_rl.store.rows import TurnRow

ROWS_AT_ONCE = 100


async def records(
    store: Store,
    *,
    session: str | None = None,
    user: str | None = None,
    text_of: Callable[[Sequence[int]], str] | None = None,
) -> AsyncIterator[dict[str, Json]]:
    """The records of a session, a user or everybody.

    `text_of` turns a prompt's ids into text; without it `prompt_text` is None, since only a tokenizer can tell.
    """
    numbers: dict[str, int] = {}
    after: str | None = None
    while page := await store.history(limit=ROWS_AT_ONCE, session=session, user=user, after=after):
        for row in page:
            if row.turn.is_main:
                numbers[row.turn.session] = numbers.get(row.turn.session, 0) + 1
                yield record_of(row, numbers[row.turn.session], text_of)
        after = page[-1].turn.id


async def export(
    store: Store,
    path: Path,
    *,
    session: str | None = None,
    user: str | None = None,
    text_of: Callable[[Sequence[int]], str] | None = None,
) -> int:
    """Writes the records to `path`, readable by its owner alone; gives how many. Raises StoreError.

    The file appears whole or not at all.
    """
    partial = path.with_name(f"{path.name}.part")
    written = 0
    try:
        partial.touch(mode=0o600)
        with partial.open("w", encoding="utf-8") as lines:
            async for record in records(store, session=session, user=user, text_of=text_of):
                lines.write(json.dumps(record) + "\n")
                written += 1
        partial.replace(path)
    except OSError as problem:
        partial.unlink(missing_ok=True)
        raise StoreError(
            f"{path} cannot be written: {problem.strerror}",
            fix="free space there, or name another folder",
        ) from problem
    return written


def record_of(row: TurnRow, number: int, text_of: Callable[[Sequence[int]], str] | None) -> dict[str, Json]:
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
    }
