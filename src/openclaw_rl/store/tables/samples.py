"""Samples that wait for a step, and the one transaction in which a step consumes them and makes its version."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from openclaw_rl.core.event import EventKind, StoreEvent
from openclaw_rl.core.hashing import hashed
from openclaw_rl.core.ledger import State
from openclaw_rl.core.message import Json
from openclaw_rl.core.sample import HintPrompt, OtherRequestReply, Outcome, Peer, Sample, SampledReply
from openclaw_rl.core.version import SHARED, parse_version
from openclaw_rl.errors import DamageError
from openclaw_rl.store import codec
from openclaw_rl.store.codec import listed, mapped, number, plain, text_or_none
from openclaw_rl.store.rows import StepRecord, VersionStatus
from openclaw_rl.store.tables import ledger, lessons, versions
from openclaw_rl.store.threads import Transaction

MOST_REHEARSED = 512  # rehearsal samples that are considered again


def admit(transaction: Transaction, sample: Sample, scopes: Sequence[str] = (SHARED,)) -> None:
    """JUDGED to READY, the sample stored, to train each scope once. Raises ValueError from any other state."""
    ledger.move(transaction, sample.turn, State.READY)
    body, ids = _written(sample)
    transaction.sql.execute(
        "INSERT INTO samples (turn, body, ids, logp, mask, kind) VALUES (?, ?, ?, ?, ?, ?)",
        (
            plain(sample.turn),
            body,
            ids,
            codec.pack(codec.floats_bytes(sample.logp)),
            codec.pack(bytes(sample.mask)),
            kind_of(sample) if sample.is_rehearsal else None,
        ),
    )
    lessons.enter(transaction.sql, sample.turn, scopes)


def thin(sql: sqlite3.Connection, turn: str, gone: Collection[str], words: Collection[str]) -> None:
    """Removes from a sample its replies to the requests of erased turns, and those with hints of these texts.

    Erased steps are also removed from the peers of its own step.
    """
    sample = of_turn(sql, turn)
    if sample is None:
        return
    left = tuple(
        other
        for other in sample.elsewhere
        if other.turn not in gone and not any(each in other.hint.text for each in words)
    )
    peers = tuple(peer for peer in sample.peers if peer.turn not in gone)
    body, ids = _written(replace(sample, elsewhere=left, peers=peers))
    sql.execute("UPDATE samples SET body = ?, ids = ? WHERE turn = ?", (body, ids, plain(turn)))


def _written(sample: Sample) -> tuple[bytes, bytes]:
    """The text part of a sample, and its ids."""
    body: dict[str, Json] = {
        "turn": sample.turn,
        "session": sample.session,
        "user": sample.user,
        "version": str(sample.version),
        "score": sample.score,
        "baseline": sample.baseline,
        "outcome": None
        if sample.outcome is None
        else [sample.outcome.reward, sample.outcome.is_success, sample.outcome.detail],
        "peers": [[peer.turn, peer.outcome, peer.score, peer.shared] for peer in sample.peers],
        "hints": [hint.text for hint in sample.hints],
        "group": sample.group,
        "is_promoted": sample.is_promoted,
        "is_taught": sample.is_taught,
        "is_literal": sample.is_literal,
        "own": _said(sample.own),
        "shown": [_said(reply) for reply in sample.shown],
        "rehearses": list(sample.rehearses),
        "kept": list(sample.kept),
        "elsewhere": [
            [*listed(_said(other.reply)), other.turn, other.hint.text, other.is_check] for other in sample.elsewhere
        ],
    }
    ids = [codec.ids_bytes(each) for each in (sample.prompt, sample.response, *(h.tokens for h in sample.hints))]
    ids += [codec.ids_bytes(reply.tokens) for reply in (*sample.shown, sample.own) if reply is not None]
    others = ((other.prompt, other.hint.tokens, other.reply.tokens) for other in sample.elsewhere)
    ids += [codec.ids_bytes(each) for three in others for each in three]
    return codec.pack_json(body), codec.pack(codec.joined(ids))


def ready(sql: sqlite3.Connection, limit: int, scope: str = SHARED) -> tuple[list[Sample], list[str]]:
    """Samples that wait for a step of this scope, as admitted, and the turns of those that cannot be read."""
    rows = sql.execute(
        "SELECT samples.turn, samples.body, ids, logp, mask FROM lessons JOIN samples ON samples.turn = lessons.turn "
        "WHERE lessons.scope = ? AND step IS NULL AND reason IS NULL ORDER BY samples.seq LIMIT ?",
        (plain(scope), limit),
    ).fetchall()
    found, damaged = [], []
    for turn, *row in rows:
        try:
            found.append(sample_of_row(row))
        except DamageError:
            damaged.append(str(turn))
    return found, damaged


def kind_of(rehearsal: Sample) -> str:
    """A digest that identifies whose reply it is and what it rehearses, without revealing either."""
    words = json.dumps([rehearsal.user, *rehearsal.rehearses])
    return hashed((words,), size=8)


def rehearsed(sql: sqlite3.Connection, scope: str, most: int) -> list[tuple[Sample, float]]:
    """The rehearsal samples of this scope so far, oldest first, and when each was sampled; the newest `most` of a kind.

    Those that cannot be read are left out.
    """
    rows = sql.execute(
        "SELECT body, ids, logp, mask, at_s FROM (SELECT samples.body AS body, ids, logp, mask, at_s, samples.seq AS "
        "place, row_number() OVER (PARTITION BY samples.kind ORDER BY samples.seq DESC) AS back FROM samples "
        "JOIN lessons ON lessons.turn = samples.turn JOIN turns ON turns.id = samples.turn "
        "WHERE samples.kind IS NOT NULL AND scope = ? AND lessons.step IS NOT NULL) "
        "WHERE back <= ? ORDER BY place DESC LIMIT ?",
        (plain(scope), most, MOST_REHEARSED),
    ).fetchall()
    found: list[tuple[Sample, float]] = []
    for *row, at_s in reversed(rows):
        try:
            found.append((sample_of_row(row), float(at_s)))
        except DamageError:
            continue
    return found


def of_turn(sql: sqlite3.Connection, turn: str) -> Sample | None:
    """The sample of a turn."""
    row = sql.execute("SELECT body, ids, logp, mask FROM samples WHERE turn = ?", (plain(turn),)).fetchone()
    return None if row is None else sample_of_row(row)


def commit_step(transaction: Transaction, step: StepRecord) -> None:
    """Commits the settled samples, the step and its version as CANDIDATE; nothing of it if it raises ValueError.

    A turn is TRAINED or DROPPED once every scope it belongs to has settled it.
    """
    sql = transaction.sql
    if sql.execute("SELECT 1 FROM steps WHERE id = ?", (step.id,)).fetchone() is not None:
        raise ValueError(f"step {step.id} is committed already")
    made = None if step.version is None else step.version.version
    sql.execute(
        "INSERT INTO steps VALUES (?, ?, ?, ?, ?, ?)",
        (
            step.id,
            step.started_s,
            step.ended_s,
            None if made is None else made.scope,
            None if made is None else made.number,
            codec.metrics_text(step.metrics),
        ),
    )
    for turn in step.trained:
        lessons.train(transaction, turn, step.scope, step.id)
    for turn, reason in step.dropped:
        if not lessons.drop(transaction, turn, reason, scope=step.scope):
            raise ValueError(f"turn {turn} cannot be dropped: it has ended")
        sql.execute("UPDATE turns SET step = coalesce(step, ?) WHERE id = ?", (step.id, plain(turn)))
    if step.version is not None:
        if step.version.status is not VersionStatus.CANDIDATE:
            raise ValueError(f"version {step.version.version} is {step.version.status} before it met the gate")
        versions.insert(sql, step.version)
    transaction.events.append(_event(step))


def _event(step: StepRecord) -> StoreEvent:
    facts: dict[str, Json] = {"samples": len(step.trained), "dropped": len(step.dropped), "ended_s": step.ended_s}
    facts |= {"scope": step.scope, "metrics": dict(step.metrics)}
    made = None if step.version is None else step.version.version
    return StoreEvent(EventKind.STEP, step.trained, made, step.started_s, facts)


def sample_of_row(row: Sequence[object]) -> Sample:
    """The sample of a row of `body, ids, logp, mask`."""
    with codec.reading("a sample"):
        packed, packed_ids, logp, mask = (each if isinstance(each, bytes) else b"" for each in row)
        body = mapped(codec.unpack_json(packed))
        prompt, response, *hinted = (codec.ids_of(piece) for piece in codec.split(codec.unpack(packed_ids)))
        texts = [str(text) for text in listed(body["hints"])]
        elsewhere = _others(listed(body.get("elsewhere", [])), hinted)
        own = _reply(body.get("own"), hinted)
        shown = _replies(body.get("shown"), hinted)
        return Sample(
            turn=str(body["turn"]),
            session=str(body["session"]),
            user=str(body["user"]),
            prompt=prompt,
            response=response,
            logp=codec.floats_of(codec.unpack(logp)),
            mask=tuple(bool(flag) for flag in codec.unpack(mask)),
            version=parse_version(str(body["version"])),
            score=_float_or_none(body["score"]),
            baseline=_float_or_none(body["baseline"]),
            outcome=_outcome(body["outcome"]),
            peers=tuple(_peer(one) for one in listed(body.get("peers", []))),
            hints=tuple(HintPrompt(text, ids) for text, ids in zip(texts, hinted, strict=True)),
            group=text_or_none(body["group"]),
            is_promoted=bool(body["is_promoted"]),
            is_taught=bool(body.get("is_taught", False)),
            is_literal=bool(body.get("is_literal", False)),
            own=own,
            shown=shown,
            elsewhere=elsewhere,
            rehearses=tuple(str(words) for words in listed(body.get("rehearses", []))),
            kept=tuple(codec.real(value) for value in listed(body.get("kept", []))),
        )


def _said(reply: SampledReply | None) -> Json:
    return None if reply is None else [str(reply.version), list(reply.logp)]


def _reply(held: Json, ids: list[tuple[int, ...]]) -> SampledReply | None:
    """The stored reply, its ids taken from the end of `ids`: `own` comes last."""
    if held is None:
        return None
    version, logp = listed(held)
    return SampledReply(ids.pop(), tuple(codec.real(value) for value in listed(logp)), parse_version(str(version)))


def _replies(held: Json, ids: list[tuple[int, ...]]) -> tuple[SampledReply, ...]:
    """The stored replies, in order; an older store has at most one, not in a list."""
    kept = [] if held is None else listed(held)
    if kept and isinstance(kept[0], str):
        kept = [held]
    found = [_reply(one, ids) for one in reversed(kept)]
    return tuple(reply for reply in reversed(found) if reply is not None)


def _others(held: Sequence[Json], ids: list[tuple[int, ...]]) -> tuple[OtherRequestReply, ...]:
    """The replies to other requests, the ids of each taken from the end of `ids`."""
    found: list[OtherRequestReply] = []
    for one in reversed(held):
        version, logp, turn, hint, *more = listed(one)  # older stores have four values
        reply = _reply([version, logp], ids)
        hinted, prompt = HintPrompt(str(hint), ids.pop()), ids.pop()
        if reply is not None:
            found.append(OtherRequestReply(prompt, hinted, reply, str(turn), more == [True]))
    return tuple(reversed(found))


def _outcome(held: Json) -> Outcome | None:
    if held is None:
        return None
    reward, is_success, detail = listed(held)
    return Outcome(codec.real(reward), bool(number(is_success)), str(detail))


def _peer(held: Json) -> Peer:
    turn, outcome, score, *more = listed(held)  # older stores have three values
    return Peer(str(turn), codec.real(outcome), _float_or_none(score), *(int(codec.real(one)) for one in more))


def _float_or_none(value: Json) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def samples_of(sql: sqlite3.Connection, turns: Iterable[str]) -> list[Sample]:
    """The samples of these turns, in the order given; those that are gone are left out."""
    found: list[Sample] = []
    for turn in turns:
        row = sql.execute("SELECT body, ids, logp, mask FROM samples WHERE turn = ?", (plain(turn),)).fetchone()
        if row is not None:
            found.append(sample_of_row(row))
    return found
