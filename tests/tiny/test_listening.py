"""What the bundled judge is taught of people's words: its hints pass the product's own rules."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from openclaw_rl.core.message import Role
from openclaw_rl.judge.hint import is_said, marked_text, says_something
from openclaw_rl.judge.quoted import own_words
from openclaw_rl.tiny.listening import heard, hint_of, rounds
from openclaw_rl.tiny.manners import TaskKind
from openclaw_rl.tiny.wordings import FILES, TONES, WISHES, parts, remark, wording

PROSE = ("Some ordinary prose, line by line, that has nothing to do with anything.\n" * 40,)


def test_there_are_thousands_of_wordings_of_every_wish_tone_and_language() -> None:
    rng = Random(0)
    drawn = [wording(rng) for _ in range(12_000)]
    assert len({said.text for said in drawn}) > 10_000
    assert set(Counter(said.wish for said in drawn)) == set(WISHES)
    assert set(Counter(said.tone for said in drawn)) == set(TONES)
    assert len({said.language for said in drawn}) == len(FILES)


@pytest.mark.parametrize("code", FILES)
def test_every_language_has_parts_for_every_wish_and_every_tone(code: str) -> None:
    held = parts(code)
    assert set(held.wishes) == set(WISHES)
    assert set(held.frames) == set(TONES) - {"shouting", "typos"}
    rng = Random(1)
    for wish in WISHES:
        for _ in range(40):
            assert "{" not in wording(rng, wish=wish, code=code).text
    for about in set(held.nothing) - {"topics", "facts", "quoted"}:
        assert "{" not in remark(rng, about, code=code, asked="What is tea?").text


def test_a_literal_stands_as_it_is_in_what_is_said_whatever_the_tone() -> None:
    rng = Random(2)
    for _ in range(2_000):
        said = wording(rng, wish=rng.choice(("first", "last", "name")))
        assert not said.literal or said.literal in said.text, said


def test_what_is_taught_as_a_hint_says_only_what_was_said_and_would_be_accepted() -> None:
    rng = Random(3)
    for _ in range(2_000):
        judged = heard(rng, PROSE)
        if judged.hint is None:
            continue
        said = own_words(judged.next_state[0].text)
        assert judged.score == -1
        assert says_something(judged.hint)
        if "Write the reply in" not in judged.hint:  # a language's name may be mistyped
            assert is_said(judged.hint, said, asked=judged.request[-1].text), (judged.hint, said)


def test_thanks_questions_small_talk_and_others_words_are_taught_to_be_no_hint() -> None:
    rng = Random(4)
    seen = Counter((judged.score, judged.hint is None) for judged in (heard(rng, PROSE) for _ in range(2_000)))
    assert all(seen[(score, True)] > 100 for score in (-1, 0, 1))
    assert not seen[(0, False)] and not seen[(1, False)]


def test_several_turns_stand_under_one_instruction_and_each_is_answered() -> None:
    rng = Random(5)
    lengths = set()
    for _ in range(100):
        made = rounds(rng, PROSE)
        assert [item.role for item in made[1:]] == [Role.USER, Role.ASSISTANT] * (len(made) // 2)
        is_hint = "[HINT_START]" in made[0].text
        for answer in made[2::2]:
            assert answer.text.endswith("}")
            assert is_hint or marked_text(answer.text) is None
        lengths.add(len(made) // 2)
    assert {1, 8} <= lengths


def test_a_wish_is_stated_alike_whatever_was_said_and_begins_with_the_kind_of_work() -> None:
    assert hint_of("short", "", None, Random(0)) == hint_of("short", "", None, Random(9)) == "Keep the reply short."
    assert hint_of("natural", "", None, Random(0)) == hint_of("natural", "", None, Random(9))
    assert hint_of("name", "Mimi", TaskKind.GRADE, Random(0)) == 'In grades: Call the user "Mimi".'
