"""Histories held between a request's placing and its turn's entering: bounded by their size, and gone when entered."""

from __future__ import annotations

from openclaw_rl.collect.histories import RequestMemory, history_of
from openclaw_rl.core.message import Message, Role, message


def _talk(count: int) -> tuple[Message, ...]:
    return tuple(message(Role.USER, f"word {at}") for at in range(count))


def test_a_history_is_found_by_its_own_messages_alone_until_its_turn_is_entered() -> None:
    held, mine = RequestMemory(), _talk(3)
    history = history_of("owner", mine)
    held.note(mine, history)
    noted = held.of(mine)
    assert noted is not None and noted.history is history
    assert held.of(_talk(3)) is None  # the same words, another request
    held.forget(mine)
    assert (held.of(mine), len(held), held.size) == (None, 0, 0)


def test_long_histories_give_way_to_later_ones_by_their_messages() -> None:
    held = RequestMemory(most=100, most_messages=10)
    talks = [_talk(4) for _ in range(4)]  # 4 + 4 messages fit, a third history does not
    for talk in talks:
        held.note(talk, history_of("owner", talk))
    assert [held.of(talk) is not None for talk in talks] == [False, False, True, True]
    huge = _talk(1000)
    held.note(huge, history_of("owner", huge))
    assert (len(held), held.size) == (1, 1000)  # the request under way is not digested twice, however long
    held.note(talks[0], history_of("owner", talks[0]))
    assert (len(held), held.size) == (1, 4)


def test_no_more_requests_are_held_than_allowed() -> None:
    held = RequestMemory(most=2, most_messages=100)
    talks = [_talk(1) for _ in range(3)]
    for talk in talks:
        held.note(talk, history_of("owner", talk))
    assert [held.of(talk) is not None for talk in talks] == [False, True, True]
