"""How often a version leaves what the base model could have said."""

from __future__ import annotations

import math

import pytest

from openclaw_rl.publish.divergence import Top, chance, departure, departures, reached


def top(**chances: float) -> Top:
    return tuple((int(name[1:]), math.log(value)) for name, value in chances.items())


PLAIN = top(t1=0.6, t2=0.39, t3=0.005)
TOLD = top(t4=0.7, t5=0.29, t3=0.005)
SEVEN = top(t7=0.97, t8=0.01)


def test_what_one_of_the_readings_would_say_is_no_departure() -> None:
    for said in (PLAIN, TOLD, top(t1=0.3, t2=0.2, t4=0.35, t5=0.15), top(t5=0.95, t4=0.05)):
        assert departure(said, [PLAIN, TOLD], temperature=1.0) == 0.0


def test_a_token_that_no_reading_would_say_counts_with_its_chance() -> None:
    # 9 is likelier than ten times the 0.005 that an unnamed token may have; 3 is twice as likely, no more
    said = top(t1=0.6, t9=0.2, t4=0.19, t3=0.01)
    assert departure(said, [PLAIN, TOLD], temperature=1.0) == pytest.approx(0.2, abs=1e-9)
    # at temperature 0.5 chances are squared: 0.04 / (0.36 + 0.04 + 0.0361 + 0.0001)
    assert departure(said, [PLAIN, TOLD], temperature=0.5) == pytest.approx(0.04 / 0.4362, abs=1e-9)


def test_what_all_readings_are_sure_of_may_not_be_lost() -> None:
    # 8 is only 8 times as likely as before, but 7 has lost 0.98989 - 0.91954; the named tokens alone are drawn
    said, again = top(t7=0.8, t8=0.07), top(t7=0.9, t8=0.01)
    lost = 0.97 / 0.98 - 0.8 / 0.87
    assert departure(said, [SEVEN, again], temperature=1.0) == pytest.approx(0.9 / 0.91 - 0.8 / 0.87, abs=1e-9)
    assert departure(said, [SEVEN], temperature=1.0) == pytest.approx(lost, abs=1e-9)
    assert departure(top(t7=0.999, t8=0.001), [SEVEN], temperature=1.0) == 0.0
    # where another reading is not sure, or sure of another token, the wish touches it
    assert departure(said, [SEVEN, top(t7=0.5, t8=0.4)], temperature=1.0) == 0.0
    assert departure(said, [SEVEN, top(t6=0.97, t8=0.01)], temperature=1.0) == 0.0


def test_what_a_wish_makes_likelier_is_not_lost_where_the_base_model_is_still_sure_without_it() -> None:
    # 8 ends a reply, 9 begins the last words that were asked for: told, the base model says them one time in eight
    plain, told = top(t8=0.93, t9=0.02, t1=0.01), top(t8=0.83, t9=0.12, t1=0.01)
    said = top(t8=0.4, t9=0.58, t1=0.02)
    assert departure(said, [plain, told], temperature=1.0) == pytest.approx(0.0, abs=1e-9)
    # the same words where no reading differs about them: no wish asks for them
    assert departure(said, [plain, plain], temperature=1.0) == pytest.approx(0.58, abs=1e-9)
    # words that the wish makes likelier but still unlikely, and other words than those
    rare = top(t8=0.94, t9=0.04, t1=0.01)
    assert departure(top(t8=0.7, t9=0.29, t1=0.01), [plain, rare], temperature=1.0) > 0.2
    assert departure(top(t8=0.5, t9=0.4, t1=0.1), [plain, told], temperature=1.0) == pytest.approx(0.0, abs=1e-9)
    assert departure(top(t8=0.5, t9=0.1, t1=0.4), [plain, told], temperature=1.0) == pytest.approx(0.4, abs=1e-9)
    # and far more of them than the base model would ever say
    assert departure(top(t9=0.99, t8=0.01), [plain, top(t8=0.9, t9=0.06, t1=0.01)], temperature=1.0) > 0.8


def test_a_reading_that_a_reply_has_left_does_not_lend_it_words() -> None:
    told, plain = [TOLD, SEVEN], [PLAIN, top(t8=0.97, t7=0.01)]
    began = [-0.4, 0.0], [-8.0, 0.0]  # nats of the first token: the plain reading would hardly begin so
    wrong, half = [TOLD, top(t8=0.97, t7=0.01)], [TOLD, top(t7=0.6, t8=0.39)]
    # only the plain reading would say 8, after words that are not its own
    assert departures(wrong, [told, plain], began, temperature=1.0) == [0.0, pytest.approx(0.97 / 0.98, abs=1e-9)]
    # a wish that is half learned: less likely than not
    assert departures(half, [told, plain], began, temperature=1.0) == [0.0, 0.0]
    # where both readings would begin so, either may go on
    near = [-0.4, 0.0], [-1.0, 0.0]
    assert departures(wrong, [told, plain], near, temperature=1.0) == [0.0, 0.0]


def test_an_engine_that_names_no_tokens_tells_nothing() -> None:
    assert departure((), [PLAIN], temperature=1.0) == 0.0
    assert departure(PLAIN, [PLAIN, ()], temperature=1.0) == 0.0


def test_the_chance_of_a_reply_is_that_of_any_of_its_tokens() -> None:
    # 1 - 0.9 * 0.8 = 0.28; with the second reached in half of all cases 1 - 0.9 * 0.9 = 0.19
    assert chance([0.1, 0.2]) == pytest.approx(0.28, abs=1e-12)
    assert chance([0.1, 0.2], [1.0, 0.5]) == pytest.approx(0.19, abs=1e-12)
    assert chance([]) == 0.0


def test_words_that_a_version_does_not_come_to_yet_do_not_count() -> None:
    logp = [math.log(value) for value in (0.01, 0.9, 0.9)]
    told, plain = [math.log(value) for value in (0.8, 0.9, 0.5)], [math.log(value) for value in (0.02, 0.3, 0.9)]
    # 0.01 of 0.8, then 0.9 of 0.9; never more than before
    assert reached(logp, [plain, told]) == pytest.approx([1.0, 0.0125, 0.0125], abs=1e-12)
    assert reached([0.0, 0.0], [[-1.0, -1.0]]) == [1.0, 1.0]
