"""Wishes about how a reply is written: what they are about, how they add up, and when they hold."""

from __future__ import annotations

from random import Random

import pytest

from openclaw_rl.core.message import Role
from openclaw_rl.tiny import clients, dialogues
from openclaw_rl.tiny.manners import (
    WORK,
    Aspect,
    Manner,
    TaskKind,
    Wish,
    manner,
    several,
    some_wish,
    words_first,
    words_last,
)
from openclaw_rl.tiny.styles import Style


def test_the_later_of_two_wishes_counts_and_a_scoped_one_stays_in_its_place() -> None:
    told = [
        Wish(Aspect.STYLE, Style.NATURAL),
        Wish(Aspect.STYLE, Style.DETAILED, TaskKind.GRADE),
        Wish(Aspect.FIRST, "Hello!"),
        Wish(Aspect.FIRST, "Hi there!", TaskKind.THANKS),
    ]
    assert manner(told, TaskKind.SOLVE) == Manner(Style.NATURAL, "Hello!", "")
    assert manner(told, TaskKind.GRADE) == Manner(Style.DETAILED, "Hello!", "")
    assert manner(told, TaskKind.THANKS) == Manner(None, "Hi there!", "")
    assert manner(told, TaskKind.FILED) == Manner()


def test_first_and_last_words_stand_apart_from_markup_and_beside_prose() -> None:
    dressed = Manner(first="Hello!", last="Bye for now.")
    assert dressed.dressed("Mia has 12 apples.") == "Hello! Mia has 12 apples. Bye for now."
    assert dressed.dressed("## Grade") == "Hello!\n\n## Grade\n\nBye for now."


@pytest.mark.parametrize(
    ("wish", "good", "bad"),
    [
        (Wish(Aspect.FIRST, "Hello!"), "Hello! Mia has 12 apples.", "Mia has 12 apples. Hello!"),
        (Wish(Aspect.LAST, "Bye."), "Mia has 12 apples. Bye.", "Bye. Mia has 12 apples."),
        (Wish(Aspect.STYLE, Style.NATURAL), "So Mia has 12 apples now.", "## Solution"),
    ],
)
def test_a_wish_holds_by_a_strict_rule(wish: Wish, good: str, bad: str) -> None:
    assert wish.holds(good)
    assert not wish.holds(bad)


def test_a_judges_hint_states_its_wish_and_its_kind_and_no_other() -> None:
    rng = Random(1)
    for _ in range(300):
        kind = rng.choice(list(TaskKind))
        wish = some_wish(rng, kind)
        said = wish.stated(kind, rng)
        assert wish.is_stated(said, kind)
        assert not any(wish.is_stated(said, other) for other in TaskKind if other is not kind)
        other = some_wish(rng, kind)
        assert other.is_stated(said, kind) is (
            (other.aspect is wish.aspect and other.value == wish.value) or (other.value in said and other.style is None)
        )


def test_several_wishes_never_contradict_each_other() -> None:
    rng = Random(2)
    for count in (1, 3, 12, 50):
        told = several(rng, count)
        places = [(wish.aspect, wish.scope) for wish in told]
        assert len(set(places)) == len(places) == min(count, 13)
        assert all(wish.scope in WORK for wish in told if wish.aspect is Aspect.STYLE)


def test_held_out_corrections_of_words_are_never_seen_in_training() -> None:
    rng = Random(3)
    for wish in (Wish(Aspect.FIRST, words_first(rng)), Wish(Aspect.LAST, words_last(rng))):
        seen = {wish.correction(rng) for _ in range(300)}
        kept = {wish.correction(rng, held_out=True) for _ in range(50)}
        assert len(kept) == 2
        assert not seen & kept


def test_every_learned_reply_of_a_session_keeps_to_the_manner_told_so_far() -> None:
    rng = Random(4)
    for _ in range(200):
        dialogue = dialogues.short(rng)
        asked = dialogues.manners.manner(dialogue.wishes, TaskKind.SOLVE)
        if dialogue.last is TaskKind.SOLVE:
            text = dialogue.messages[-1].text
            assert text.startswith(asked.first)
            assert text.endswith(asked.last)
            assert asked.style is None or Wish(Aspect.STYLE, asked.style).holds(text)


def test_a_clients_wrapping_keeps_every_word_and_adds_only_around_users() -> None:
    rng = Random(5)
    for _ in range(100):
        dialogue = dialogues.session(rng)
        before = [item for item in dialogue.messages if item.role is not Role.USER]
        spoken = [item.text.partition("\n\n[user's hint]")[0] for item in dialogue.messages if item.role is Role.USER]
        clients.wrap(dialogue, rng)
        assert [item for item in dialogue.messages if item.role is not Role.USER] == before
        together = "\n".join(item.text for item in dialogue.messages if item.role is Role.USER)
        assert all(words in together for words in spoken)
