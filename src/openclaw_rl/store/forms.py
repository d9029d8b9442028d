"""Judged turns in the forms that other trainers read: TRL's, verl's and slime's. Each row is a line of JSON.

Every row names its turn, and all turns it is made of (`turn_ids`), so that forgetting finds it. Turns without a score
or an outcome are useless to those trainers and left out, as are those that must not be learned from.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum

from openclaw_rl.core.completion import Finish
from openclaw_rl.core.ledger import DropReason
from openclaw_rl.core.message import Json, Message
from openclaw_rl.core.turn import Turn
from openclaw_rl.store.codec import plain
from openclaw_rl.store.rows import TurnRow
from openclaw_rl.store.tables import listing, samples

# What must not be learned from here must not be learned from by other trainers either.
WITHHELD = frozenset(
    {
        DropReason.CANCELLED,
        DropReason.EMPTY,
        DropReason.LOOP,
        DropReason.CONTROL_TOKEN,
        DropReason.MAY_NOT_TEACH,
        DropReason.REDACTED,
        DropReason.REPEATED,
        DropReason.TOO_MANY,
        DropReason.ENVIRONMENT_FAILED,
        DropReason.INFRASTRUCTURE_FAILED,
        DropReason.EXCLUDED,
        DropReason.FORGOTTEN,
        DropReason.DAMAGED,
    }
)
_STATUS = {Finish.STOP: "completed", Finish.LENGTH: "truncated", Finish.CANCELLED: "aborted"}
SIBLINGS = 16  # the most answers to one request that are compared
Row = dict[str, Json]


class ExportForm(StrEnum):
    """The form of exported records."""

    RECORDS = "records"
    TRL_SFT = "trl-sft"
    TRL_KTO = "trl-kto"
    TRL_DPO = "trl-dpo"
    TRL_IDS = "trl-ids"
    VERL = "verl"
    SLIME = "slime"


def rows_in(form: ExportForm, sql: sqlite3.Connection, row: TurnRow) -> Iterator[Row]:
    """The rows of a turn in this form; none if it teaches nothing in it."""
    if not _is_given(row):
        return
    if form is ExportForm.TRL_DPO:
        yield from _pairs(sql, row)
        return
    reward = _reward(row)
    if reward is not None and (form is not ExportForm.TRL_SFT or reward > 0) and (form not in _SIGNED or reward):
        yield {**_FORMS[form](sql, row.turn, reward), "turn_id": row.turn.id, "turn_ids": [row.turn.id]}


def _conversation(_: sqlite3.Connection, turn: Turn, reward: float) -> Row:
    """TRL's prompt and completion, conversational; for KTO with the label as well."""
    return {"prompt": _said(turn.messages), "completion": [_message(turn.reply)], "label": reward > 0}


def _supervised(sql: sqlite3.Connection, turn: Turn, reward: float) -> Row:
    row = _conversation(sql, turn, reward)
    del row["label"]
    return row


def _ids(sql: sqlite3.Connection, turn: Turn, reward: float) -> Row:
    """Ids as sampled: TRL's SFT reads `input_ids` and `completion_mask`, its GRPO uses the others.

    The mask excludes tokens that a grammar forced. `logprobs` are of the model at temperature 1, nats.
    """
    prompt, response, mask = list(turn.prompt.tokens), list(turn.completion.tokens), _mask(sql, turn)
    return {
        "input_ids": [*prompt, *response],
        "completion_mask": [*[0] * len(prompt), *mask],
        "prompt_ids": [*prompt],
        "completion_ids": [*response],
        "logprobs": list(turn.completion.logp),
        "reward": reward,
        "version": str(turn.completion.version),
    }


def _verl(sql: sqlite3.Connection, turn: Turn, reward: float) -> Row:
    """A row in the shape of verl's data sets, with the response and its reward; the sampled ids are in `extra_info`."""
    return {
        "data_source": "openclaw-rl",
        "prompt": _said(turn.messages),
        "ability": "chat",
        "reward_model": {
            "style": "model",
            "ground_truth": "",
        },  # the right answer is unknown, only how the user received it
        "responses": [turn.reply.text],
        "extra_info": {
            "index": turn.id,
            "split": "train",
            "reward": reward,
            "session": turn.session,
            "version": str(turn.completion.version),
            "prompt_ids": list(turn.prompt.tokens),
            "response_ids": list(turn.completion.tokens),
            "response_mask": _mask(sql, turn),
            "rollout_log_probs": list(turn.completion.logp),
        },
    }


def _slime(sql: sqlite3.Connection, turn: Turn, reward: float) -> Row:
    """A row for slime's `Sample.from_dict`."""
    return {
        "prompt": _said(turn.messages),
        "tokens": [*turn.prompt.tokens, *turn.completion.tokens],
        "response": turn.reply.text,
        "response_length": len(turn.completion.tokens),
        "label": None,
        "reward": reward,
        "loss_mask": _mask(sql, turn),
        "weight_versions": [str(turn.completion.version)],
        "rollout_log_probs": list(turn.completion.logp),
        "status": _STATUS[turn.completion.finish],
        "session_id": turn.session,
        "metadata": {"group": turn.group, "api": turn.api},
    }


_FORMS: Mapping[ExportForm, Callable[[sqlite3.Connection, Turn, float], Row]] = {
    ExportForm.TRL_SFT: _supervised,
    ExportForm.TRL_KTO: _conversation,
    ExportForm.TRL_IDS: _ids,
    ExportForm.VERL: _verl,
    ExportForm.SLIME: _slime,
}
_SIGNED = frozenset({ExportForm.TRL_KTO})  # a score of 0 is neither good nor bad


def _pairs(sql: sqlite3.Connection, row: TurnRow) -> Iterator[Row]:
    """An accepted reply paired with each rejected one: siblings of its request, and the corrected reply before it."""
    turn = row.turn
    if (_reward(row) or 0.0) <= 0:
        return
    others = [listing.row(sql, name) for name in _siblings(sql, turn)]
    before = None if turn.parent is None else listing.row(sql, turn.parent)
    for other in (*others, before):
        if other is None or not _is_given(other) or (_reward(other) or 0.0) >= 0:
            continue
        yield {
            "prompt": _said(other.turn.messages),
            "chosen": [_message(turn.reply)],
            "rejected": [_message(other.turn.reply)],
            "turn_id": turn.id,
            "turn_ids": [turn.id, other.turn.id],
        }


def _siblings(sql: sqlite3.Connection, turn: Turn) -> list[str]:
    rows = sql.execute(
        "SELECT other.id FROM turns JOIN turns AS other ON other.prefix = turns.prefix AND other.session = "
        "turns.session WHERE turns.id = ? AND turns.prefix != '' AND other.id != turns.id ORDER BY other.seq LIMIT ?",
        (plain(turn.id), SIBLINGS),
    )
    return [str(row[0]) for row in rows]


def _is_given(row: TurnRow) -> bool:
    return row.turn.is_main and row.reason not in WITHHELD and bool(row.turn.completion.tokens)


def _reward(row: TurnRow) -> float | None:
    """The outcome of an episode's step, the score of another turn; None if it was not judged."""
    if row.episode is not None:
        return row.episode.outcome
    score = None if row.verdict is None else row.verdict.score
    return None if score is None else float(score)


def _mask(sql: sqlite3.Connection, turn: Turn) -> list[Json]:
    """Which response ids are trained: a sample's mask; for another turn all but what a grammar forced."""
    sample = samples.of_turn(sql, turn.id)
    if sample is not None and not sample.is_taught:
        return [int(is_trained) for is_trained in sample.mask]
    return [int(not is_forced) for is_forced in turn.completion.forced] or [1] * len(turn.completion.tokens)


def _said(messages: Sequence[Message]) -> list[Json]:
    return [_message(item) for item in messages]


def _message(item: Message) -> Json:
    """Role and text, as chat templates read them, and tool calls; images are left out."""
    body = item.as_json()
    kept: dict[str, Json] = {"role": item.role.value, "content": item.text}
    return kept | {name: body[name] for name in ("tool_calls", "tool_call_id", "name") if body.get(name)}
