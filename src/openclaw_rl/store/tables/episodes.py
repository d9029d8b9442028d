"""Episodes and their steps as rows; `episode_book` decides about their turns."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from openclaw_rl.core.episode import Episode, EpisodeState, EpisodeStep, FailureClass
from openclaw_rl.core.ledger import DropReason, State
from openclaw_rl.store import codec
from openclaw_rl.store.codec import plain

COLUMNS = (
    "id, user, task, begun_s, group_name, group_size, seed, environment, state, ended_s, outcome, failure, why, "
    "closes, seen_s"
)


@dataclass(frozen=True, slots=True)
class StepRow:
    """A turn as a step of its episode. `state` is None for a side turn, `score` if there is none."""

    turn: str
    step: EpisodeStep
    score: float | None
    state: State | None
    reason: DropReason | None


@dataclass(frozen=True, slots=True)
class EpisodeRow:
    """An episode with its steps, in order. `seen_s` is when it last took one."""

    episode: Episode
    seen_s: float
    steps: tuple[StepRow, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupKey:
    """What the episodes of one group have in common; `alone` is the id of an episode without a group."""

    user: str
    task: str
    group: str | None
    alone: str = ""

    @classmethod
    def of(cls, episode: Episode) -> GroupKey:
        """The group that an episode belongs to."""
        return cls(episode.user, episode.task, episode.group, "" if episode.group is not None else episode.id)


def insert(sql: sqlite3.Connection, episode: Episode) -> None:
    """Enters a new episode."""
    sql.execute(
        "INSERT INTO episodes (id, begun_s, seen_s, user, task, group_name, group_size, seed, environment, state, "
        "failure, why) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, '')",
        (
            plain(episode.id),
            episode.begun_s,
            episode.begun_s,
            plain(episode.user),
            plain(episode.task),
            None if episode.group is None else plain(episode.group),
            episode.group_size,
            episode.seed,
            plain(episode.environment),
            EpisodeState.OPEN.value,
            FailureClass.NONE.value,
        ),
    )


def get(sql: sqlite3.Connection, name: str) -> EpisodeRow | None:
    """The episode of this id, with its steps."""
    row = sql.execute(f"SELECT {COLUMNS} FROM episodes WHERE id = ?", (plain(name),)).fetchone()
    return None if row is None else _with_steps(sql, row)


def find(sql: sqlite3.Connection, given: str) -> EpisodeRow | None:
    """The episode of this id, or the only one whose id is a key's name followed by this."""
    row = get(sql, given)
    if row is not None:
        return row
    names = sql.execute("SELECT id FROM episodes WHERE substr(id, instr(id, ':') + 1) = ?", (plain(given),)).fetchall()
    return get(sql, str(names[0][0])) if len(names) == 1 else None


def page(
    sql: sqlite3.Connection, *, limit: int, before: str | None, state: EpisodeState | None, task: str | None
) -> list[EpisodeRow]:
    """Newest first; `before` is an episode's id to page on from."""
    where, values = ["1"], list[str | int]()
    if state is not None:
        where.append("state = ?")
        values.append(state.value)
    if task is not None:
        where.append("task = ?")
        values.append(plain(task))
    if before is not None:
        where.append("seq < (SELECT seq FROM episodes WHERE id = ?)")
        values.append(plain(before))
    asked = f"SELECT {COLUMNS} FROM episodes WHERE {' AND '.join(where)} ORDER BY seq DESC LIMIT ?"
    return [_with_steps(sql, row) for row in sql.execute(asked, [*values, limit]).fetchall()]


def of_group(sql: sqlite3.Connection, key: GroupKey) -> list[EpisodeRow]:
    """All episodes of a group, oldest first."""
    if key.group is None:
        alone = get(sql, key.alone)
        return [] if alone is None else [alone]
    asked = f"SELECT {COLUMNS} FROM episodes WHERE user = ? AND task = ? AND group_name = ? ORDER BY seq"
    rows = sql.execute(asked, (plain(key.user), plain(key.task), plain(key.group))).fetchall()
    return [_with_steps(sql, row) for row in rows]


def waiting_groups(sql: sqlite3.Connection) -> list[GroupKey]:
    """The groups with an episode that has ended and is not settled, the one that waits longest first."""
    rows = sql.execute(
        f"SELECT {COLUMNS} FROM episodes WHERE state = ? ORDER BY seq", (EpisodeState.ENDED.value,)
    ).fetchall()
    return list(dict.fromkeys(GroupKey.of(_episode(row)) for row in rows))


def silent(sql: sqlite3.Connection, before_s: float) -> list[str]:
    """The open episodes that took no step since."""
    asked = "SELECT id FROM episodes WHERE state = ? AND seen_s < ? ORDER BY seq"
    return [str(row[0]) for row in sql.execute(asked, (EpisodeState.OPEN.value, before_s))]


def counts(sql: sqlite3.Connection) -> dict[str, int]:
    """Episodes by state, and those that ended by their failure class (`failure.CLASS`)."""
    found = {state.value: 0 for state in EpisodeState} | {f"failure.{each.value}": 0 for each in FailureClass}
    for state, failure, many in sql.execute("SELECT state, failure, count(*) FROM episodes GROUP BY state, failure"):
        found[str(state)] += int(many)
        if state != EpisodeState.OPEN.value:
            found[f"failure.{failure}"] += int(many)
    return found


def takes(sql: sqlite3.Connection, step: EpisodeStep | None) -> bool:
    """Whether a turn may be learned from: it is not a step, or its episode is open."""
    if step is None:
        return True
    row = sql.execute("SELECT state FROM episodes WHERE id = ?", (plain(step.episode),)).fetchone()
    return row is not None and row[0] == EpisodeState.OPEN.value


def is_gone(sql: sqlite3.Connection, step: EpisodeStep | None) -> bool:
    """Whether the step's episode is gone: it was forgotten while the turn was being answered."""
    if step is None:
        return False
    return sql.execute("SELECT 1 FROM episodes WHERE id = ?", (plain(step.episode),)).fetchone() is None


def enter_step(sql: sqlite3.Connection, turn: str, step: EpisodeStep, at_s: float) -> None:
    """Records that a turn is this step."""
    sql.execute(
        "INSERT INTO episode_steps (turn, episode, place, observation) VALUES (?, ?, ?, ?)",
        (plain(turn), plain(step.episode), step.index, plain(step.observation)),
    )
    sql.execute("UPDATE episodes SET seen_s = max(seen_s, ?) WHERE id = ?", (at_s, plain(step.episode)))


def next_index(sql: sqlite3.Connection, name: str, prefix: str) -> int:
    """The index of a step whose request names none: that of an equal earlier request, else one more than the last."""
    again = sql.execute(
        "SELECT place FROM episode_steps JOIN turns ON turns.id = episode_steps.turn "
        "WHERE episode = ? AND prefix = ? AND prefix <> '' ORDER BY place DESC LIMIT 1",
        (plain(name), prefix),
    ).fetchone()
    if again is not None:
        return int(again[0])
    last = sql.execute("SELECT max(place) FROM episode_steps WHERE episode = ?", (plain(name),)).fetchone()[0]
    return 0 if last is None else int(last) + 1


def set_score(sql: sqlite3.Connection, turn: str, score: float) -> None:
    """Stores a step's own reward; the last one counts."""
    sql.execute("UPDATE episode_steps SET score = ? WHERE turn = ?", (score, plain(turn)))


def episode_of(sql: sqlite3.Connection, turn: str) -> tuple[Episode, StepRow] | None:
    """The episode of a turn, and its step; None for a turn without one."""
    found = sql.execute("SELECT episode FROM episode_steps WHERE turn = ?", (plain(turn),)).fetchone()
    row = None if found is None else get(sql, str(found[0]))
    if row is None:
        return None
    return row.episode, next(step for step in row.steps if step.turn == turn)


def drop_empty(sql: sqlite3.Connection, before_s: float) -> None:
    """Removes older settled episodes without any step left."""
    sql.execute(
        "DELETE FROM episodes WHERE state = ? AND seen_s < ? AND ended_s < ? "
        "AND NOT EXISTS (SELECT 1 FROM episode_steps WHERE episode = episodes.id)",
        (EpisodeState.SETTLED.value, before_s, before_s),
    )


def _with_steps(sql: sqlite3.Connection, row: Sequence[object]) -> EpisodeRow:
    episode = _episode(row)
    asked = (
        "SELECT turn, place, observation, score, state, reason FROM episode_steps "
        "JOIN turns ON turns.id = episode_steps.turn WHERE episode = ? ORDER BY place, turns.seq"
    )
    with codec.reading(f"the steps of episode {episode.id}"):
        steps = tuple(
            StepRow(
                turn=str(turn),
                step=EpisodeStep(episode.id, codec.number(place), str(observation)),
                score=None if score is None else codec.real(score),
                state=None if state is None else State(state),
                reason=None if reason is None else DropReason(reason),
            )
            for turn, place, observation, score, state, reason in sql.execute(asked, (episode.id,))
        )
    return EpisodeRow(episode, codec.real(row[-1]), steps)


def _episode(row: Sequence[object]) -> Episode:
    name, user, task, begun_s, group, size, seed, environment, state, ended_s, outcome, failure, why, closes, _ = row
    with codec.reading(f"episode {name}"):
        return Episode(
            id=str(name),
            user=str(user),
            task=str(task),
            begun_s=codec.real(begun_s),
            group=None if group is None else str(group),
            group_size=size if isinstance(size, int) else None,
            seed=seed if isinstance(seed, int) else None,
            environment=str(environment),
            state=EpisodeState(str(state)),
            ended_s=None if ended_s is None else codec.real(ended_s),
            outcome=None if outcome is None else codec.real(outcome),
            failure=FailureClass(str(failure)),
            why=str(why),
            closes_group=bool(closes),
        )
