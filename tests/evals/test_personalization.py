"""A plan: which trials there are, what is kept and not run again, and what its figures say."""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from openclaw_rl.config import read_config
from openclaw_rl.errors import ConfigError
from openclaw_rl.evals.personalization.figures import figures, median
from openclaw_rl.evals.personalization.methods import (
    METHODS,
    MOST_NOTES,
    Memory,
    Mode,
    chosen,
    config_text,
    read_recipe,
)
from openclaw_rl.evals.personalization.plan import EvalPlan, FinishedTrial, conditions_of, run_plan
from openclaw_rl.evals.personalization.report import as_html, running, table, write_results
from openclaw_rl.evals.personalization.trials import (
    AGAIN,
    BEFORE,
    CONVERGED,
    TWICE,
    FaultyReply,
    MeasuredShares,
    Point,
    Trial,
    TrialSession,
)
from openclaw_rl.evals.personalization.view import line
from openclaw_rl.evals.report import put_section

KEYS = {
    "sessions",
    "median",
    "gated",
    "raw",
    "corrections",
    "accuracy_drop_points",
    "interference_points",
    "degenerate",
}
USERS = ("student", "assistant", "teacher")

BRIDGE = Path(__file__).parent.parent.parent / "recipes" / "bridge.toml"


def session(person: str, number: int, mark: str) -> TrialSession:
    """`+` counts, `w` follows the wish and is wrong, `f` is good but for the file, `-` is nothing."""
    return TrialSession(
        person=person,
        number=number,
        follows=mark != "-",
        right=mark != "w",
        odd=(),
        filed=False if mark == "f" else None,
        corrections=0 if mark == "+" else 1,
        turns=1,
        hints=() if mark == "+" else ("Write plainly.",),
        samples=1,
        version="shared.0",
        reply="",
        seconds=1.0,
        is_settled=True,
    )


def shares(person: str, wish: int, right: int, degenerate: int = 0) -> MeasuredShares:
    return MeasuredShares(person, 50, wish, right, min(wish, right), degenerate, 80.0, 100.0, "shared.0")


def trial(method: str, seed: int, marks: dict[str, str], points: tuple[Point, ...] = ()) -> Trial:
    sessions = tuple(session(name, at, mark) for name, row in marks.items() for at, mark in enumerate(row, 1))
    before = Point(BEFORE, 0, tuple(shares(name, 1, 50) for name in USERS))
    return Trial(method, seed, tuple(marks), sessions, (before, *points), 3, 2, 0, 0, 9.0)


def plan(folder: Path, *, mode: Mode = Mode.SEPARATE, methods: tuple[str, ...] = ("recipe", "binary")) -> EvalPlan:
    return EvalPlan(mode, chosen(methods), (0, 1), {}, folder)


def separate() -> list[Trial]:
    """The recipe converges at 4 and 6, binary at none; the assistant and the teacher always at 3."""
    after = (
        Point(
            CONVERGED, 4, (shares("student", 48, 49), shares("assistant", 0, 40), shares("teacher", 1, 50)), "student"
        ),
        Point(AGAIN, 8, (shares("student", 50, 48), shares("assistant", 1, 40), shares("teacher", 1, 50))),
        Point(TWICE, 12, (shares("student", 50, 47, 2), shares("assistant", 1, 40), shares("teacher", 0, 45))),
    )
    made = [trial("recipe", 0, {"student": "-+++"}, after), trial("recipe", 1, {"student": "-w-+++"}, after)]
    made += [trial("binary", seed, {"student": "-w-w-w"}) for seed in (0, 1)]
    made += [
        trial(method, seed, {name: "+++"})
        for method in ("recipe", "binary")
        for seed in (0, 1)
        for name in ("assistant", "teacher")
    ]
    return made


def test_the_figures_have_the_keys_that_are_promised_for_each_user(tmp_path: Path) -> None:
    found = figures(plan(tmp_path), separate())
    assert json.loads(json.dumps(found)) == found
    for method in ("recipe", "binary"):
        for user in USERS:
            assert set(found["methods"][method][user]) >= KEYS  # type: ignore[index,call-overload]
    student = found["methods"]["recipe"]["student"]  # type: ignore[index,call-overload]
    assert (student["sessions"], student["median"], student["spread"]) == ([4, 6], 5, [4, 6])
    # 50 right before, 49 at convergence and 47 after twice as many again, of 50: 2 and 6 points
    assert (student["accuracy_drop_points"], student["accuracy_drop_points_twice"]) == (2, 6)
    # the assistant's wish stayed at 1 of 50, the teacher's fell from 1 to 0: 2 points; and 10 right of 50 were lost
    assert (student["interference_points"], student["others_accuracy_drop_points"]) == (2, 20)
    assert student["degenerate"] == 4  # 2 in each of two seeds
    assert (student["corrections"], student["hints"]) == ([1, 3], [1, 3])
    assert (found["best_method"], found["best_baseline"]) == ("recipe", None)
    # 40 of 50 right, and 0 of 50, 45 of 50
    moments = student["moments"]
    assert moments["converged"]["others_accuracy"] == {"assistant": 0.8, "teacher": 1}
    assert moments["twice"]["others_wish"] == {"assistant": 0.02, "teacher": 0}


def test_what_never_converged_is_null_and_raw_is_told_apart(tmp_path: Path) -> None:
    trials = [trial("binary", seed, {"student": "-www"}) for seed in (0, 1)]
    student = figures(plan(tmp_path, methods=("binary",)), trials)["methods"]["binary"]["student"]  # type: ignore[index,call-overload]
    assert (student["sessions"], student["median"], student["accuracy_drop_points"]) == ([None, None], None, None)
    assert student["raw"]["sessions"] == [4, 4]


def test_of_methods_with_like_medians_the_one_is_best_that_every_seed_got_there_with(tmp_path: Path) -> None:
    """A seed that fell apart does not show in a median; nor does one that took longer."""

    def best(methods: tuple[str, ...], **marks: tuple[str, str, str]) -> object:
        trials = [
            trial(name.replace("_", "-"), seed, {user: mark})
            for name, row in marks.items()
            for seed, mark in enumerate(row)
            for user in USERS
        ]
        return figures(plan(tmp_path, methods=methods), trials)["best_method"]

    both = ("followup-hint", "recipe")
    apart, late, quick = ("-+++", "-+++", "------"), ("-+++", "-+++", "---+++"), ("-+++", "-+++", "-+++")
    assert best(both, followup_hint=apart, recipe=late) == "recipe"
    assert best(both, followup_hint=quick, recipe=late) == "followup-hint"


def test_a_seed_that_never_got_there_counts_as_later_than_any() -> None:
    assert median([4, None, 6]) == 6
    assert median([None, None, 6]) is None
    assert median([4, 5]) == 4.5
    assert median([]) is None


def test_in_joint_mode_interference_is_what_a_users_own_wish_lost_after_it_held(tmp_path: Path) -> None:
    marks = dict.fromkeys(USERS, "-+++++")
    held = tuple(
        Point(CONVERGED, 4, tuple(shares(name, 50, 50) for name in USERS), whose) for whose in ("student", "teacher")
    )
    end = Point(TWICE, 12, (shares("student", 40, 50), shares("assistant", 50, 50), shares("teacher", 50, 50)))
    trials = [trial("recipe", 0, marks, (*held, end))]
    found = figures(plan(tmp_path, mode=Mode.JOINT, methods=("recipe",)), trials)["methods"]["recipe"]  # type: ignore[index,call-overload]
    assert [found[name]["interference_points"] for name in USERS] == [20, None, 0]


def test_a_session_whose_file_did_not_come_out_does_not_count() -> None:
    made = trial("recipe", 0, {"student": "-+f+++"})
    assert (made.converged_at("student"), made.converged_at("student", gated=False)) == (6, 4)


def test_separate_mode_has_a_trial_for_each_user_and_joint_mode_one_for_all(tmp_path: Path) -> None:
    alone = [cell.name for cell in plan(tmp_path, methods=("recipe",)).cells()]
    assert alone == [f"recipe-{seed}-{name}" for seed in (0, 1) for name in USERS]
    together = [cell.name for cell in plan(tmp_path, mode=Mode.JOINT, methods=("recipe",)).cells()]
    assert together == ["recipe-0-all", "recipe-1-all"]


class Seen:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.started_cells: list[str] = []
        self.kept: list[str] = []

    def started(self, cell: str) -> None:
        self.started_cells.append(cell)

    def progressed(self, cell: str, done: int, of: int, what: str) -> None:
        raise AssertionError("nothing runs")

    def finished(self, cell: str, trial: Trial, *, is_kept: bool) -> None:
        assert is_kept
        self.kept.append(cell)


async def test_what_is_finished_is_not_run_again(tmp_path: Path) -> None:
    asked = plan(tmp_path, mode=Mode.JOINT, methods=("recipe",))
    conditions = conditions_of(asked, asked.methods[0])
    made = [trial("recipe", seed, dict.fromkeys(USERS, "-+++")) for seed in (0, 1)]
    for cell, each in zip(asked.cells(), made, strict=True):
        FinishedTrial(tmp_path / f"joint-{cell.name}-{conditions[:8]}.json", conditions).write(each)
    seen = Seen()
    assert await run_plan(asked, seen) == made
    assert (seen.started_cells, seen.kept) == ([], ["recipe-0-all", "recipe-1-all"])


def test_a_trial_is_kept_for_its_own_conditions_alone_and_a_torn_file_is_none(tmp_path: Path) -> None:
    asked = plan(tmp_path)
    mine = conditions_of(asked, asked.methods[0])
    others = [
        conditions_of(asked, asked.methods[1]),
        conditions_of(replace(asked, judge="scripted"), asked.methods[0]),
        conditions_of(replace(asked, settings=replace(asked.settings, problems=7)), asked.methods[0]),
        conditions_of(replace(asked, model=str(tmp_path)), asked.methods[0]),
        conditions_of(replace(asked, mode=Mode.JOINT), asked.methods[0]),
    ]
    assert len({mine, *others}) == 6
    path = tmp_path / "one.json"
    made = trial("recipe", 0, {"student": "-+f+"})
    FinishedTrial(path, mine).write(made)
    assert FinishedTrial(path, mine).read() == made
    assert FinishedTrial(path, others[0]).read() is None
    path.write_bytes(path.read_bytes()[:-20])
    assert FinishedTrial(path, mine).read() is None


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_every_method_is_a_file_that_the_server_reads(method: object, tmp_path: Path) -> None:
    found = next(item for item in METHODS if item == method)
    file = tmp_path / "settings.toml"
    file.write_text(config_text({}, found.changes), "utf-8")
    config = read_config(file, environment={})
    assert (config.train.batch_size > 1000) is (found.name == "memory")


def test_a_recipe_comes_out_of_its_text_as_it_went_in() -> None:
    whole = read_recipe(BRIDGE)
    assert tomllib.loads(config_text(whole, {})) == whole
    changed = tomllib.loads(config_text(whole, {"judge.url": 'a"b\\c', "new.deep.list": [1, True, "x"]}))
    assert changed["judge"]["url"] == 'a"b\\c'
    assert changed["new"]["deep"]["list"] == [1, True, "x"]


def test_methods_are_chosen_by_name_as_all_or_by_file(tmp_path: Path) -> None:
    assert chosen(["all"]) == METHODS
    assert [method.name for method in chosen(["opd", "recipe", "opd"])] == ["opd", "recipe"]
    file = tmp_path / "mine.toml"
    file.write_text("[trainer]\nlr = 0.5\n", "utf-8")
    assert chosen([str(file)])[0].changes == {"trainer.lr": 0.5}
    with pytest.raises(ConfigError, match="no method 'hybird'"):
        chosen(["hybird"])


def test_the_page_and_the_document_hold_a_row_for_each_user_and_a_picture_for_each_method(tmp_path: Path) -> None:
    asked = plan(tmp_path)
    found = figures(asked, separate())
    rows = table(asked, found)
    assert [row[:2] for row in rows] == [[method, user] for method in ("recipe", "binary") for user in USERS]
    assert rows[0][2:5] == ["4 6", "5 (4 to 6)", "5"]
    page = as_html(asked, found, separate())
    assert page.count("<figure>") == 2
    assert not re.search(r'(src|href)="', page)
    document = tmp_path / "results.md"
    document.write_text("# R\n<!-- eval-separate -->\nold\n<!-- /eval-separate -->\nrest\n", "utf-8")
    for _ in range(2):
        write_results(document, asked, found, separate())
    text = document.read_text("utf-8")
    assert (text.count("| recipe |"), "old" in text, text.endswith("rest\n")) == (3, False, True)
    ElementTree.parse(tmp_path / "results-separate.svg")


def test_degenerate_replies_can_be_read_in_the_figures_and_on_the_page(tmp_path: Path) -> None:
    odd = FaultyReply(("too short",), "What is 2 + 2?", "<4>")
    after = replace(shares("student", 1, 50, 1), odd=(odd,))
    others = tuple(shares(name, 1, 50) for name in USERS[1:])
    tried = [trial("recipe", 2, {"student": "-+++"}, (Point(CONVERGED, 4, (after, *others), "student"),))]
    asked = plan(tmp_path, methods=("recipe",))
    found = figures(asked, tried)
    own = found["methods"]["recipe"]["student"]  # type: ignore[index,call-overload]
    told = {"seed": 2, "after_session": 4, "why": ["too short"], "reply": "<4>"}
    assert own["degenerate_replies"] == [told]  # type: ignore[index,call-overload]
    assert "recipe, student, seed 2, after session 4 (too short): &lt;4&gt;" in as_html(asked, found, tried)
    assert "<details>" not in as_html(asked, figures(asked, separate()), separate())


def test_a_document_without_the_place_says_so(tmp_path: Path) -> None:
    document = tmp_path / "results.md"
    document.write_text("# R\n", "utf-8")
    with pytest.raises(ConfigError, match="no place for eval-joint"):
        put_section(document, "eval-joint", "text")


def test_the_curve_of_a_method_is_the_share_of_good_first_replies_of_the_last_three_sessions() -> None:
    trials = [trial("recipe", 0, {"student": "-+++"}), trial("recipe", 1, {"student": "--++"})]
    # 0 of 2, 1 of 4, then 3 of 6 over sessions 1 to 3, and 5 of 6 over sessions 2 to 4
    assert running(trials, "student") == pytest.approx([0, 1 / 4, 3 / 6, 5 / 6])


def test_a_trial_in_a_line() -> None:
    said = line("recipe-0-student", trial("recipe", 0, {"student": "-w+++"}), is_kept=False)
    assert said == "recipe-0-student: student 5 (wish alone 4) --+++; 9 s, 3 steps"


def test_a_memory_keeps_each_note_once_and_not_too_many() -> None:
    memory = Memory()
    assert memory.system == ""
    for text in ("Write plainly.", "write  plainly", "No lists.", " "):
        memory.add(text)
    assert memory.system == "What this user has wished before:\n- Write plainly.\n- No lists."
    for number in range(MOST_NOTES):
        memory.add(f"Note {number}.")
    assert len(memory.notes) == MOST_NOTES
    assert memory.notes[0] == "Note 0."


def test_the_command_teaches_how_it_is_used_and_refuses_what_is_none() -> None:
    from openclaw_rl.cli import app

    told = CliRunner().invoke(app, ["eval", "personalization", "--help"], env={"COLUMNS": "200"})
    assert told.exit_code == 0
    assert "hidden wishes" in told.output
    wrong = CliRunner().invoke(app, ["eval", "personalization", "--method", "none"])
    assert isinstance(wrong.exception, ConfigError)
