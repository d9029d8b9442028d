"""Twelve wishes: that they can all be kept at once, how they are checked, and what is counted of them."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

from openclaw_rl.evals.people.exercises import ToyExercises
from openclaw_rl.evals.people.wishes import WishKind
from openclaw_rl.evals.personalization.methods import CARRIES, Mode
from openclaw_rl.evals.personalization.plan import EvalPlan
from openclaw_rl.evals.personalization.trials import BEFORE, LAST, TOLD, MeasuredShares, Point, Trial
from openclaw_rl.evals.wishes.report import as_html, as_markdown
from openclaw_rl.evals.wishes.run import TWELVE, as_wish, one_user, wish_figures
from openclaw_rl.tiny import manners

TOY = ToyExercises()


def test_there_are_twelve_and_none_contradicts_another() -> None:
    assert len({(wish.aspect, wish.scope) for wish in TWELVE}) == len(TWELVE) == 12
    assert {WishKind(wish.scope) for wish in TWELVE if wish.scope} == set(WishKind)


def test_first_and_last_words_are_looked_for_where_they_belong_as_the_text_reads() -> None:
    first, last = (
        as_wish(manners.Wish(aspect, "Hello friend!", manners.TaskKind.SOLVE))
        for aspect in (manners.Aspect.FIRST, manners.Aspect.LAST)
    )
    assert first.follows("Hello friend! It is 9.")
    assert first.follows("\u200bHello\u00a0friend! It is 9.")
    assert not first.follows("It is 9. Hello friend!")
    assert last.follows("It is 9. Hello friend!\n")
    assert not last.follows("Hello friend! It is 9.")
    assert 'Hello friend!"' in first.stated(Random(0))
    assert "Hello friend!" in first.correction(Random(0))


def test_one_user_has_them_all_in_an_order_of_the_seeds() -> None:
    first, second = one_user(TOY, 0), one_user(TOY, 1)
    assert {person.user_id for person in first} == {"user"}
    assert [person.name for person in first] != [person.name for person in second]
    assert {person.name for person in first} == {person.name for person in second}
    by_name = {person.name: person for person in first}
    thanked, filed = by_name["thanks-first"].job(1), by_name["filed-last"].job(1)
    assert len(thanked.before) == len(filed.before) == 2
    assert filed.path is not None
    assert filed.path in filed.opening


def shares(name: str, wish: int, tokens: float, bare: int | None = None) -> MeasuredShares:
    return MeasuredShares(name, 10, wish, 10 if wish else 9, wish, 0, 80.0, tokens, "shared.0", bare)


def test_what_holds_and_what_it_costs_is_counted_as_served_and_bare(tmp_path: Path) -> None:
    plan = EvalPlan(Mode.JOINT, CARRIES[2:], (0,), {}, tmp_path, cast=one_user, in_turn=True)
    before = Point(BEFORE, 0, (shares("a", 1, 100), shares("b", 0, 100), shares("c", 0, 100)))
    end = Point(LAST, 9, (shares("a", 8, 130, 10), shares("b", 7, 130, 2), shares("c", 10, 100, 10)))
    told_all = Point(TOLD, 0, (shares("a", 9, 150), shares("b", 8, 150), shares("c", 1, 150)))
    trial = Trial("bridge", 0, ("a", "b", "c"), (), (before, told_all, end), 0, 0, 0, 0, 1.0)
    found = wish_figures(plan, [trial])
    assert json.loads(json.dumps(found)) == found
    told = found["carries"]["bridge"]  # type: ignore[index,call-overload]
    # at least 8 of 10: a and c as served, a and c bare
    assert (told["held"], told["held_bare_by_seed"], told["of"]) == (2, [2], 3)
    # told all wishes the model follows a and b; of these a holds
    assert (told["told_by_seed"], told["held_of_told_by_seed"]) == ([2], [1])
    assert told["prompt_tokens_added"] == 20  # (30 + 30 + 0) / 3
    # right before: 10, 9, 9; in the end 10, 10, 10
    assert told["accuracy_drop_points"] == -6.67
    assert "| bridge | 2 | 2 | 2 | 1 |" in as_markdown(found)
    assert "10 % → 80 %" in as_html(found)
