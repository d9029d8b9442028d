"""Turns as rows: a small row that moves through the ledger, and a large one that is written once."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from openclaw_rl.core.completion import Completion, Finish, Span, SpanKind
from openclaw_rl.core.episode import EpisodeStep
from openclaw_rl.core.event import EventKind, StoreEvent
from openclaw_rl.core.hint import PlacedHint
from openclaw_rl.core.ledger import DropReason, State
from openclaw_rl.core.message import Json
from openclaw_rl.core.prompt import Prompt, Segment
from openclaw_rl.core.turn import Turn, TurnKind
from openclaw_rl.core.version import parse_version
from openclaw_rl.store import codec
from openclaw_rl.store.codec import listed, mapped, number, plain, text_or_none
from openclaw_rl.store.tables import episodes

MOST_ALIKE = 64  # turns of one digest that are returned: the same short exchange may occur a thousand times


@dataclass(frozen=True, slots=True)
class ServedTurn:
    """A turn's facts for finding what a request continues from."""

    turn: str
    session: str
    chain: str
    state: State | None


class _Texts:
    """Long texts by their digest, each kept once."""

    def __init__(self, sql: sqlite3.Connection) -> None:
        self._sql = sql
        self.digests: list[bytes] = []

    def keep(self, body: bytes) -> str:
        digest = hashlib.blake2b(body, digest_size=16).digest()
        self.digests.append(digest)
        if self._sql.execute("SELECT 1 FROM texts WHERE digest = ?", (digest,)).fetchone() is None:
            self._sql.execute("INSERT INTO texts VALUES (?, ?)", (digest, codec.pack(body)))
        return digest.hex()

    def find(self, name: str) -> bytes:
        row = self._sql.execute("SELECT body FROM texts WHERE digest = ?", (bytes.fromhex(name),)).fetchone()
        if row is None:
            raise codec.damaged(f"the text {name} is missing")
        return codec.unpack(bytes(row[0]))


def stored(turn: Turn) -> StoreEvent:
    """The event that the turn is in the store. It has no facts about the speaker."""
    facts: dict[str, Json] = {
        "kind": turn.kind.value,
        "api": turn.api,
        "finish": turn.completion.finish.value,
        "prompt_tokens": len(turn.prompt),
        "sampled_tokens": len(turn.completion.tokens),
    }
    return StoreEvent(EventKind.TURN, (turn.id,), turn.completion.version, turn.at_s, facts)


def insert(sql: sqlite3.Connection, turn: Turn, *, chain: str, prefix: str, reason: DropReason | None) -> State | None:
    """Enters the turn; returns its state. A step of an episode that has ended teaches nothing."""
    state = None
    if turn.is_main and reason is None and not episodes.takes(sql, turn.step):
        reason = DropReason.NO_NEXT_STATE
    if turn.is_main:
        state = State.SERVED if reason is None else State.DROPPED
    elif reason is not None:
        raise ValueError(f"side turn {turn.id} has no state and cannot be dropped as {reason}")
    body, texts = _packed(sql, turn)
    seq = sql.execute(
        "INSERT INTO turns (id, session, user, kind, state, reason, at_s, version, chain, prefix) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            plain(turn.id),
            plain(turn.session),
            plain(turn.user),
            turn.kind.value,
            None if state is None else state.value,
            None if reason is None else reason.value,
            turn.at_s,
            str(turn.completion.version),
            chain,
            prefix,
        ),
    ).lastrowid
    completion = turn.completion
    response = codec.joined(
        [
            codec.ids_bytes(completion.tokens),
            codec.floats_bytes(completion.logp_sampled),
            codec.floats_bytes(completion.logp),
        ]
    )
    sql.execute(
        "INSERT INTO bodies (seq, body, prompt, response, texts, masked) VALUES (?, ?, ?, ?, ?, ?)",
        (seq, body, codec.pack(codec.ids_bytes(turn.prompt.tokens)), codec.pack(response), texts, _masked(completion)),
    )
    if turn.step is not None:
        episodes.enter_step(sql, turn.id, turn.step, turn.at_s)
    return state


def get(sql: sqlite3.Connection, turn: str) -> Turn | None:
    """The turn of this id."""
    return _one(sql, "WHERE turns.id = ?", (plain(turn),))


def last_seq(sql: sqlite3.Connection) -> int:
    """The `seq` of the newest turn; 0 if there is none."""
    return int(sql.execute("SELECT coalesce(max(seq), 0) FROM turns").fetchone()[0])


def since(sql: sqlite3.Connection, seq: int) -> list[Turn]:
    """The turns entered after that `seq`, oldest first."""
    names = sql.execute("SELECT id FROM turns WHERE seq > ? ORDER BY seq", (seq,)).fetchall()
    return [turn for (name,) in names if (turn := get(sql, str(name))) is not None]


def last_of(sql: sqlite3.Connection, session: str) -> Turn | None:
    """The newest main turn of a session."""
    return _one(
        sql, "WHERE turns.session = ? AND turns.kind = 'main' ORDER BY turns.seq DESC LIMIT 1", (plain(session),)
    )


def served(sql: sqlite3.Connection, chains: Sequence[str], session: str | None) -> list[ServedTurn]:
    """The latest turns whose conversations have these digests, in this session or in any, oldest first."""
    found: list[tuple[int, ServedTurn]] = []
    of_session, values = ("", ()) if session is None else ("AND session = ? ", (plain(session),))
    asked = f"SELECT seq, id, session, chain, state FROM turns WHERE chain = ? {of_session}ORDER BY seq DESC LIMIT ?"
    for each in chains:
        for seq, turn, name, chain, state in sql.execute(asked, (each, *values, MOST_ALIKE)):
            stands = None if state is None else State(state)
            found.append((int(seq), ServedTurn(str(turn), str(name), str(chain), stands)))
    return [item for _, item in sorted(found, key=lambda pair: pair[0])]


def turn_of(sql: sqlite3.Connection, row: Sequence[object]) -> Turn:
    """The turn of a row of `COLUMNS`."""
    with codec.reading("a turn"):
        kind, at_s, version, body, prompt, response, masked = row
        assert isinstance(body, bytes)
        assert isinstance(prompt, bytes)
        assert isinstance(response, bytes)
        assert masked is None or isinstance(masked, bytes)
        held = mapped(codec.unpack_json(body))
        if held.get("columns", [kind, at_s, version]) != [kind, at_s, version]:
            raise codec.damaged(f"turn {held['id']} has other columns than it was written with")
        texts = _Texts(sql)
        tokens, logp_sampled, logp = codec.split(codec.unpack(response))
        logp_masked, forced = ((), b"") if masked is None else _unmasked(masked)
        return Turn(
            id=str(held["id"]),
            session=str(held["session"]),
            user=str(held["user"]),
            agent=str(held["agent"]),
            kind=TurnKind(str(kind)),
            why=str(held["why"]),
            messages=codec.messages_of(held["messages"], texts.find),
            tools=codec.tools_of(held["tools"], texts.find),
            prompt=_prompt(held, codec.ids_of(codec.unpack(prompt))),
            completion=Completion(
                tokens=codec.ids_of(tokens),
                logp_sampled=codec.floats_of(logp_sampled),
                logp=codec.floats_of(logp),
                version=parse_version(str(version)),
                finish=Finish(str(held["finish"])),
                spans=tuple(_span(item) for item in listed(held["spans"])),
                logp_masked=logp_masked,
                forced=tuple(bool(flag) for flag in forced),
            ),
            reply=codec.messages_of(held["reply"], texts.find)[0],
            at_s=codec.real(at_s),
            parent=text_or_none(held["parent"]),
            group=text_or_none(held["group"]),
            api=str(held["api"]),
            options=mapped(held["options"]),
            shown=mapped(held.get("shown", {})),
            carried=tuple(_placed(item) for item in listed(held.get("carried", []))),
            step=_step(held.get("episode")),
        )


COLUMNS = "turns.kind, turns.at_s, turns.version, bodies.body, bodies.prompt, bodies.response, bodies.masked"


def _one(sql: sqlite3.Connection, where: str, values: tuple[str, ...]) -> Turn | None:
    row = sql.execute(f"SELECT {COLUMNS} FROM turns JOIN bodies USING (seq) {where}", values).fetchone()
    return None if row is None else turn_of(sql, row)


def _masked(completion: Completion) -> bytes | None:
    """The effect of a grammar on an answer; None without a grammar."""
    if not completion.forced:
        return None
    return codec.pack(codec.joined([codec.floats_bytes(completion.logp_masked), bytes(completion.forced)]))


def _unmasked(blob: bytes) -> tuple[tuple[float, ...], bytes]:
    """The reverse of `_masked`."""
    logp, forced = codec.split(codec.unpack(blob))
    return codec.floats_of(logp), forced


def _packed(sql: sqlite3.Connection, turn: Turn) -> tuple[bytes, bytes]:
    """The JSON part of a turn, and the digests of the long texts it names."""
    texts = _Texts(sql)
    body: dict[str, Json] = {
        "id": turn.id,
        "columns": [turn.kind.value, turn.at_s, str(turn.completion.version)],
        "session": turn.session,
        "user": turn.user,
        "agent": turn.agent,
        "why": turn.why,
        "api": turn.api,
        "parent": turn.parent,
        "group": turn.group,
        "options": dict(turn.options),
        "shown": dict(turn.shown),
        "carried": [[item.at, item.id, item.text] for item in turn.carried],
        "episode": None if turn.step is None else [turn.step.episode, turn.step.index, turn.step.observation],
        "finish": turn.completion.finish.value,
        "spans": [[span.kind.value, span.start, span.stop] for span in turn.completion.spans],
        "segments": [[item.start, item.stop, item.key] for item in turn.prompt.segments],
        "continued": turn.prompt.continued,
        "images": list(turn.prompt.images),
        "messages": codec.messages_json(turn.messages, texts.keep),
        "reply": codec.messages_json([turn.reply], texts.keep),
        "tools": codec.tools_json(turn.tools, texts.keep),
    }
    return codec.pack_json(body), b"".join(texts.digests)


def _prompt(held: dict[str, Json], tokens: tuple[int, ...]) -> Prompt:
    segments = []
    for item in listed(held["segments"]):
        start, stop, key = listed(item)
        segments.append(Segment(number(start), number(stop), str(key)))
    return Prompt(tokens, tuple(segments), number(held["continued"]), tuple(str(url) for url in listed(held["images"])))


def _placed(item: Json) -> PlacedHint:
    at, name, text = listed(item)
    return PlacedHint(number(at), str(name), str(text))


def _step(held: Json) -> EpisodeStep | None:
    """The step of an episode; None for a turn without one, and in a store older than episodes."""
    if held is None:
        return None
    episode, index, observation = listed(held)
    return EpisodeStep(str(episode), number(index), str(observation))


def _span(item: Json) -> Span:
    kind, start, stop = listed(item)
    return Span(SpanKind(str(kind)), number(start), number(stop))
