"""What a forgetting erases: the turns that contain it, what it said about others, and the versions that learned it.

Every request repeats its whole conversation, so the text of a turn is in every later turn of it. Those are erased too.
The turn before is kept, but loses its next state and what it taught. Hints that were derived from any of it are
erased, and so are the turns that were answered with such a hint in the prompt.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from openclaw_rl.core.message import Message, Role
from openclaw_rl.core.scope import Owner, scope_of
from openclaw_rl.errors import ConfigError
from openclaw_rl.store import codec, pictures
from openclaw_rl.store.codec import listed, mapped, plain, text_or_none
from openclaw_rl.store.rows import VersionRow
from openclaw_rl.store.tables import hints, ledger, turns, versions


@dataclass(frozen=True, slots=True)
class ForgetTarget:
    """What to forget: a session, a user, a turn, an episode, or everything older than a time."""

    session: str | None = None
    user: str | None = None
    turn: str | None = None
    before_s: float | None = None
    episode: str | None = None

    def __post_init__(self) -> None:
        named = (self.session, self.user, self.turn, self.before_s, self.episode)
        if sum(item is not None for item in named) != 1:
            raise ConfigError("it is not clear what to forget", fix="name one session, user, turn, episode or date")


@dataclass(frozen=True, slots=True)
class ForgetSelection:
    """What is erased. `unsaid` are turns that lose their next state, `unread` those that only lose their sample;
    `thinned` keep a sample without its replies to erased requests and those with hints of `words`. `versions` learned
    from any of it.
    """

    turns: tuple[str, ...]  # oldest first
    unsaid: tuple[str, ...]
    unread: tuple[str, ...]
    hints: tuple[str, ...]
    sessions: tuple[str, ...]  # without any turn left
    versions: tuple[VersionRow, ...]  # oldest first
    user: str | None = None  # who is forgotten completely
    touched: tuple[str, ...] = ()  # the sessions that lose a turn
    thinned: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    episodes: tuple[str, ...] = ()  # named ones, or without any turn left
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def scope(self) -> str | None:
        """The scope of a forgotten user."""
        return None if self.user is None else scope_of(Owner.USER, self.user)

    @property
    def is_nothing(self) -> bool:
        """Whether there is nothing to erase."""
        return not (
            self.turns or self.unsaid or self.unread or self.hints or self.sessions or self.versions or self.episodes
        )


def going(sql: sqlite3.Connection, what: ForgetTarget) -> ForgetSelection:
    """What is erased. Raises ConfigError if nothing has that name."""
    first = _named(sql, what)
    talk = _UserTurns(sql, _users_of(sql, first))
    gone, unsaid, drawn, words = talk.closed(first)
    unread, thinned = talk.read_behind(words, gone, unsaid)
    if what.user is not None:
        drawn |= {item.id for item in hints.of_user(sql, what.user)}
    ordered = tuple(name for name in talk.order if name in gone)
    learned = gone | unsaid | unread
    scope = None if what.user is None else scope_of(Owner.USER, what.user)
    tainted = learners(versions.everything(sql), learned | thinned, scope)
    counts = {name: _count(sql, name, gone | unsaid) for name in ("next_states", "verdicts", "feedback")}
    counts["samples"] = _count(sql, "samples", learned)
    counts["pictures"] = pictures.count_of(versions.home_of(sql), sql, gone)
    return ForgetSelection(
        turns=ordered,
        unsaid=tuple(sorted(unsaid)),
        unread=tuple(sorted(unread)),
        hints=tuple(sorted(drawn)),
        sessions=_emptied(sql, gone, what.user),
        versions=tainted,
        user=what.user,
        touched=tuple(sorted(talk.sessions(gone))),
        thinned=tuple(sorted(thinned)),
        words=tuple(sorted(words)),
        episodes=_episodes(sql, gone, what),
        counts=counts,
    )


def learners(rows: Iterable[VersionRow], turns: Collection[str], scope: str | None = None) -> tuple[VersionRow, ...]:
    """The versions that learned from any of these turns, or are based on one that did, and all of `scope`; oldest
    first."""
    found: list[VersionRow] = []
    names = set()
    for row in rows:
        is_own = row.version.scope == scope and not row.version.is_base
        if is_own or row.parent in names or row.upon in names or not set(turns).isdisjoint(row.read):
            found.append(row)
            names.add(row.version)
    return tuple(found)


def _named(sql: sqlite3.Connection, what: ForgetTarget) -> set[str]:
    if what.turn is not None:
        found = _ids(sql, "id = ?", plain(what.turn))
        missing = f"there is no turn {what.turn}"
    elif what.session is not None:
        found = _ids(sql, "session = ?", _owned(sql, "sessions", "session", plain(what.session)))
        missing = f"session {what.session} has no turn"
    elif what.user is not None:
        found = _ids(sql, "user = ?", plain(what.user))
        known = found or hints.of_user(sql, what.user)
        missing = "" if known else f"there is no user {what.user}"
    elif what.episode is not None:
        name = _owned(sql, "episodes", "episode", plain(what.episode))
        found = {str(row[0]) for row in sql.execute("SELECT turn FROM episode_steps WHERE episode = ?", (name,))}
        has_row = sql.execute("SELECT 1 FROM episodes WHERE id = ?", (name,)).fetchone() is not None
        missing = "" if has_row else f"there is no episode {what.episode}"
    else:
        return _ids(sql, "at_s < ?", what.before_s)
    if missing and not found:
        raise ConfigError(missing, fix="`openclaw-rl export` writes all turns with their sessions and users")
    return found


def _owned(sql: sqlite3.Connection, table: str, kind: str, given: str) -> str:
    """The full name of a session or an episode, also for a client's own name of it."""
    named = [str(row[0]) for row in sql.execute(f"SELECT id FROM {table}")]
    if given in named:
        return given
    found = [name for name in named if name.partition(":")[2] == given]
    if len(found) > 1:
        raise ConfigError(f"several {kind}s are called {given}", fix=f"name one of {', '.join(found)}")
    return found[0] if found else given


def _ids(sql: sqlite3.Connection, where: str, value: str | float | None) -> set[str]:
    return {str(row[0]) for row in sql.execute(f"SELECT id FROM turns WHERE {where}", (value,))}


def _users_of(sql: sqlite3.Connection, names: Collection[str]) -> set[str]:
    return {str(user) for name, user in sql.execute("SELECT id, user FROM turns") if name in names}


def _count(sql: sqlite3.Connection, table: str, names: Collection[str]) -> int:
    return sum(1 for (name,) in sql.execute(f"SELECT turn FROM {table}") if name in names)


def _emptied(sql: sqlite3.Connection, gone: Collection[str], user: str | None) -> tuple[str, ...]:
    left = {str(session) for name, session in sql.execute("SELECT id, session FROM turns") if name not in gone}
    touched = {str(session) for name, session in sql.execute("SELECT id, session FROM turns") if name in gone}
    if user is not None:
        touched |= {str(row[0]) for row in sql.execute("SELECT id FROM sessions WHERE user = ?", (plain(user),))}
    return tuple(sorted(touched - left))


def _episodes(sql: sqlite3.Connection, gone: Collection[str], what: ForgetTarget) -> tuple[str, ...]:
    """Episodes that are named, of a forgotten user, or without any turn left."""
    steps = [(str(turn), str(episode)) for turn, episode in sql.execute("SELECT turn, episode FROM episode_steps")]
    left = {episode for turn, episode in steps if turn not in gone}
    found = {episode for turn, episode in steps if turn in gone} - left
    if what.user is not None:
        found |= {str(row[0]) for row in sql.execute("SELECT id FROM episodes WHERE user = ?", (plain(what.user),))}
    if what.episode is not None:
        found.add(_owned(sql, "episodes", "episode", plain(what.episode)))
    return tuple(sorted(found))


@dataclass(frozen=True, slots=True)
class _SearchedTurn:
    """A turn as the search needs it; `carried` are the ids and texts of the hints that were in its prompt."""

    seq: int
    session: str
    prefix: str
    parent: str | None
    carried: frozenset[str]


class _UserTurns:
    """The turns of some users, by id, and how they are connected."""

    def __init__(self, sql: sqlite3.Connection, users: Collection[str]) -> None:
        self._sql = sql
        self._users = users
        self.order: list[str] = []
        self._turns: dict[str, _SearchedTurn] = {}
        rows = sql.execute(
            "SELECT turns.id, turns.seq, session, prefix, user, body FROM turns JOIN bodies USING (seq) ORDER BY seq"
        )
        for name, seq, session, prefix, user, body in rows:
            if user not in users:
                continue
            held = mapped(codec.unpack_json(bytes(body)))
            placed = [[str(part) for part in listed(item)[1:]] for item in listed(held.get("carried", []))]
            carried = frozenset(part for item in placed for part in item if part)
            said = _SearchedTurn(int(seq), str(session), str(prefix), text_or_none(held["parent"]), carried)
            self.order.append(str(name))
            self._turns[str(name)] = said

    def sessions(self, names: Collection[str]) -> set[str]:
        """The sessions of these turns."""
        return {self._turns[name].session for name in names}

    def closed(self, first: set[str]) -> tuple[set[str], set[str], set[str], set[str]]:
        """All turns that contain text of the first ones, those they answered, the hints derived from either, and the
        texts of hints for these turns and no others.
        """
        gone = set(first)
        while True:
            gone |= self._later(gone)
            unsaid = self._answered(gone)
            drawn, words = self._drawn(gone | unsaid)
            behind = self._behind(drawn | words) - gone
            if not behind:
                return gone, unsaid, drawn, words
            gone |= behind

    def _later(self, gone: set[str]) -> set[str]:
        """Turns that continue these, and turns with the same request in their sessions."""
        found = set(gone)
        start: dict[str, int] = {}
        for name in self.order:
            turn = self._turns[name]
            if name in gone:
                start.setdefault(turn.session, turn.seq)
        asked = {(self._turns[name].session, self._turns[name].prefix) for name in gone if self._turns[name].prefix}
        for name in self.order:  # oldest first: a turn comes before those that continue from it
            turn = self._turns[name]
            is_later = turn.session in start and turn.seq >= start[turn.session]
            if is_later or turn.parent in found or (turn.session, turn.prefix) in asked:
                found.add(name)
                start[turn.session] = min(start.get(turn.session, turn.seq), turn.seq)
        return found if found == gone else self._later(found)

    def _answered(self, gone: set[str]) -> set[str]:
        """The kept turns whose next state is in an erased turn."""
        found: set[str] = set()
        sessions = {self._turns[name].session for name in gone}
        staying: dict[str, list[str]] = {}
        for name in self.order:
            if name not in gone and self._turns[name].session in sessions:
                staying.setdefault(self._turns[name].session, []).append(name)
        for name in gone:
            turn = self._turns[name]
            if turn.parent in gone:
                continue
            if turn.parent is not None and turn.parent in self._turns:
                found.add(turn.parent)
            told = turns.get(self._sql, name)
            own = set() if told is None else _own_words(told.messages)
            for other in staying.get(turn.session, []):
                if other not in found:
                    followed = ledger.next_state_of(self._sql, other)
                    if followed is not None and not own.isdisjoint(item.text for item in followed.messages):
                        found.add(other)
        return found

    def _drawn(self, names: set[str]) -> tuple[set[str], set[str]]:
        """The kept hints that come from these turns, and the texts of hints for them and no others."""
        kept = [item for user in self._users for item in hints.of_user(self._sql, user)]
        said: set[str] = set()
        elsewhere: set[str] = set()
        for name in self.order:
            verdict = ledger.verdict_of(self._sql, name)
            texts = {hint.text.strip() for hint in verdict.hints} if verdict is not None else set()
            (said if name in names else elsewhere).update(texts)
        words = said - elsewhere
        drawn = {item.id for item in kept if item.turn in names or item.text in words}
        return drawn, words | {item.text for item in kept if item.id in drawn and item.text not in elsewhere}

    def _behind(self, marks: set[str]) -> set[str]:
        return {name for name in self.order if not self._turns[name].carried.isdisjoint(marks)}

    def read_behind(self, words: set[str], gone: set[str], unsaid: set[str]) -> tuple[set[str], set[str]]:
        """Other turns whose samples' hints contain any of these texts, and those with such a text only in replies to
        other requests, with a reply to the request of an erased turn, or that were compared with one.
        """
        read: set[str] = set()
        beside: set[str] = set()
        for name, packed in self._sql.execute("SELECT turn, body FROM samples"):
            if str(name) not in self._turns or str(name) in gone | unsaid:
                continue
            body = mapped(codec.unpack_json(bytes(packed)))
            others = [[str(part) for part in listed(one)[2:4]] for one in listed(body.get("elsewhere", []))]
            if any(word in str(text) for word in words for text in listed(body["hints"])):
                read.add(str(name))
            elif any(
                turn in gone or any(word in hint for word in words) for turn, hint in others
            ) or not gone.isdisjoint(str(listed(peer)[0]) for peer in listed(body.get("peers", []))):
                beside.add(str(name))
        return read, beside


def _own_words(messages: tuple[Message, ...]) -> set[str]:
    """The texts after the last reply: the new part of a request."""
    own: set[str] = set()
    for item in reversed(messages):
        if item.role is Role.ASSISTANT:
            break
        if item.text.strip() and item.role is not Role.SYSTEM:
            own.add(item.text)
    return own
