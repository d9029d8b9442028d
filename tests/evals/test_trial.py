"""A trial against a scripted server over real HTTP, with the official client and a real folder for each session."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from learner_double import Learner, learning

from openclaw_rl.evals.client import Client
from openclaw_rl.evals.people.exercises import ToyExercises
from openclaw_rl.evals.people.voices import ScriptedVoice
from openclaw_rl.evals.personalization.methods import METHODS, EvalMethod
from openclaw_rl.evals.personalization.plan import three
from openclaw_rl.evals.personalization.probes import ODD_KEPT, BaseShares, MeasurementTarget, Probes
from openclaw_rl.evals.personalization.trial import TrialRun
from openclaw_rl.evals.personalization.trials import AGAIN, BEFORE, CONVERGED, LAST, TOLD, TWICE, Trial, TrialSettings

PEOPLE = three(ToyExercises(), 0)
STUDENT, ASSISTANT, TEACHER = PEOPLE
SETTINGS = TrialSettings(sessions=6, most_sessions=40, problems=4, poll_s=0.0)  # a look takes no time here
METHOD = {method.name: method for method in METHODS}


async def tried(
    mind: Learner, folder: Path, *, people: tuple[str, ...] = ("student",), method: EvalMethod = METHOD["recipe"]
) -> Trial:
    async with learning(mind) as server, Client(server.base_url, "key", "toy") as client:
        chosen = tuple(person for person in PEOPLE if person.name in people)
        probes = Probes(client, SETTINGS, BaseShares(folder, "test"))
        return await TrialRun(client, method, 0, chosen, PEOPLE, ScriptedVoice(), SETTINGS, probes).run()


async def test_a_trial_counts_the_sessions_the_corrections_and_the_files(tmp_path: Path) -> None:
    trial = await tried(Learner(PEOPLE), tmp_path)
    # Sessions 1 and 2 need a correction each; 3, 4 and 5 are good unasked; on it goes to 3 * 5.
    assert trial.converged_at("student") == 5
    assert [session.corrections for session in trial.sessions[:4]] == [1, 1, 0, 0]
    assert all(session.filed for session in trial.sessions)
    assert len(trial.sessions) == 15
    assert (trial.steps, trial.versions, trial.refused) == (2, 1, 0)
    assert (trial.hints_in_use, trial.hints_retired) == (1, 2)
    # asked and corrected, then the call, the report; thanks are not counted
    assert [session.turns for session in trial.sessions[:3]] == [4, 4, 3]


async def test_everybody_is_measured_before_at_convergence_and_twice_after(tmp_path: Path) -> None:
    trial = await tried(Learner(PEOPLE), tmp_path)
    assert [(point.label, point.after_session) for point in trial.points] == [
        (BEFORE, 0),
        (CONVERGED, 5),
        (AGAIN, 10),
        (TWICE, 15),
    ]
    assert [point.of("student").wish for point in trial.points] == [0, 4, 4, 4]
    assert [point.of("teacher").wish for point in trial.points] == [0, 0, 0, 0]
    assert all(shares.right == shares.of == 4 for point in trial.points for shares in point.shares)
    assert all(shares.degenerate == 0 for point in trial.points for shares in point.shares)


async def test_a_file_that_was_overwritten_spoils_every_session_but_not_the_raw_count(tmp_path: Path) -> None:
    trial = await tried(Learner(PEOPLE, tool="write"), tmp_path)
    assert [session.filed for session in trial.sessions] == [False] * 6
    assert trial.converged_at("student") is None
    assert trial.converged_at("student", gated=False) == 5
    assert [point.label for point in trial.points] == [BEFORE, LAST]


async def test_a_wish_followed_with_wrong_answers_does_not_count(tmp_path: Path) -> None:
    trial = await tried(Learner(PEOPLE, forgets=True), tmp_path, people=("student",))
    assert trial.converged_at("student") is None
    assert trial.converged_at("student", gated=False) == 5
    assert trial.end.of("student").right == 0
    assert trial.end.of("student").good == 0


async def test_three_on_one_model_take_turns_and_go_on_until_the_last_has_converged(tmp_path: Path) -> None:
    mind = Learner(PEOPLE)
    trial = await tried(mind, tmp_path, people=("student", "assistant", "teacher"))
    assert [trial.converged_at(person.name) for person in PEOPLE] == [5, 5, 5]
    assert [session.person for session in trial.sessions[:4]] == ["student", "assistant", "teacher", "student"]
    assert [point.person for point in trial.points if point.label == CONVERGED] == ["student", "assistant", "teacher"]
    assert len(trial.sessions) == 45
    assert {request["user"] for request in mind.requests} == {"student", "assistant", "teacher"}


async def test_measured_requests_are_side_requests_and_each_has_the_tools(tmp_path: Path) -> None:
    mind = Learner(PEOPLE)
    await tried(mind, tmp_path)
    measured = [request for request in mind.requests if request["kind"] == "side"]
    # three people with four problems: once before, once after the only new version
    assert len(measured) == 3 * 4 * 2
    assert all(len(request["tools"]) == 3 for request in mind.requests)  # type: ignore[arg-type]


async def test_what_the_base_model_knew_is_measured_once_for_all_methods(tmp_path: Path) -> None:
    first = await tried(Learner(PEOPLE, needed=1000), tmp_path)
    mind = Learner(PEOPLE, needed=1000)
    second = await tried(mind, tmp_path, method=METHOD["binary"])
    assert not [request for request in mind.requests if request["kind"] == "side"]
    assert second.points[0].shares == first.points[0].shares


async def test_a_memory_holds_the_hints_and_only_for_the_one_who_gave_them(tmp_path: Path) -> None:
    mind = Learner(PEOPLE, needed=1000, obeys_notes=True)
    trial = await tried(mind, tmp_path, method=METHOD["memory"])
    assert trial.converged_at("student") == 4
    systems = {(request["user"], request["messages"][0]["content"]) for request in mind.requests}  # type: ignore[index]
    noted = {user for user, text in systems if str(text).startswith("What this user has wished before:")}
    assert noted == {"student"}
    assert trial.end.of("student").wish == 4
    assert trial.end.of("teacher").wish == 0


async def test_followups_are_remembered_in_the_users_own_words(tmp_path: Path) -> None:
    mind = Learner(PEOPLE, needed=1000, obeys_notes=True)
    trial = await tried(mind, tmp_path, method=METHOD["memory-followups"])
    assert trial.converged_at("student") == 4
    last = mind.requests[-1]["messages"]
    said = [item["content"] for request in mind.requests for item in request["messages"] if item["role"] == "user"]  # type: ignore[attr-defined]
    assert last[0]["content"].splitlines()[1].removeprefix("- ") in said  # type: ignore[index]


async def test_where_hints_may_be_carried_main_requests_are_measured_in_the_end_beside_bare_ones(
    tmp_path: Path,
) -> None:
    mind = Learner(PEOPLE)
    trial = await tried(mind, tmp_path, method=replace(METHOD["recipe"], carries=True))
    assert [point.of("student").bare for point in trial.points] == [None, None, None, 4]
    # A measured request is a session of its own that nothing follows, so that nothing is learned from it.
    alone = [request for request in mind.requests if request["kind"] == "main" and len(request["messages"]) == 1]  # type: ignore[arg-type]
    assert len(alone) == 15 + 3 * 4
    assert [name for name in mind.ended if name.startswith("measure")] == []


async def test_some_degenerate_replies_are_kept_to_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Learner, "_message", lambda mind, messages, *, is_main: ({"content": "7"}, "stop"))
    async with learning(Learner(PEOPLE)) as server, Client(server.base_url, "key", "toy") as client:
        found = await Probes(client, SETTINGS, BaseShares(tmp_path, "test")).shares(MeasurementTarget(TEACHER))
    assert (found.degenerate, len(found.odd)) == (4, ODD_KEPT)
    assert {(odd.why, odd.reply, bool(odd.asked)) for odd in found.odd} == {(("too short",), "7", True)}


async def test_taught_in_turn_each_goes_on_until_they_converge_or_are_given_up(tmp_path: Path) -> None:
    mind = Learner(PEOPLE)
    async with learning(mind) as server, Client(server.base_url, "key", "toy") as client:
        one = tuple(replace(person, user="one") for person in PEOPLE)
        probes = Probes(client, SETTINGS, BaseShares(tmp_path, "test"))
        mind.corrections[TEACHER.wish.name] = -100  # never learned
        trial = await TrialRun(client, METHOD["recipe"], 0, one, one, ScriptedVoice(), SETTINGS, probes).run_in_turn()
    taught = [session.person for session in trial.sessions]
    assert taught == ["student"] * 5 + ["assistant"] * 5 + ["teacher"] * 6
    assert [(point.label, point.after_session) for point in trial.points] == [(BEFORE, 0), (TOLD, 0), (LAST, 16)]
    told = trial.points[1]
    assert [told.of(person.name).wish for person in PEOPLE] == [4, 4, 4]  # with their hints after each request
    assert [trial.end.of(person.name).wish for person in PEOPLE] == [4, 4, 0]
    assert {request["user"] for request in mind.requests} == {"one"}


async def test_what_is_said_is_told_with_what_it_means(tmp_path: Path) -> None:
    told: list[tuple[str, int, str]] = []
    async with learning(Learner(PEOPLE)) as server, Client(server.base_url, "key", "toy") as client:
        probes = Probes(client, SETTINGS, BaseShares(tmp_path, "test"))
        run = TrialRun(client, METHOD["recipe"], 0, (STUDENT,), (STUDENT,), ScriptedVoice(), SETTINGS, probes)
        run.tell = lambda said, score, hint: told.append((said, score, hint))
        await run.run()
    scores = [score for _, score, _ in told[:6]]
    assert scores == [-1, 1, 1, -1, 1, 1]  # corrected, asked for the file, thanked; and again
    assert told[0][2]
    assert [hint for _, score, hint in told if score == 1 and hint] == []


@pytest.mark.parametrize("person", PEOPLE, ids=lambda person: person.name)
def test_the_same_number_makes_the_same_task_and_held_out_ones_are_held_out(person: object) -> None:
    assert person in PEOPLE
    index = PEOPLE.index(person)  # type: ignore[arg-type]
    first, second = three(ToyExercises(), 0)[index].job(3), three(ToyExercises(), 0)[index].job(3)
    assert (first.opening, first.path) == (second.opening, second.path)
    assert not first.problem.is_held_out
    assert PEOPLE[index].job(3, held_out=True).problem.is_held_out
