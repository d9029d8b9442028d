"""The set of labelled cases, and the figures over a judge's verdicts on it."""

from __future__ import annotations

from collections import Counter

from openclaw_rl.core.message import Json, Role, message
from openclaw_rl.core.next_state import NextState, NextStateSource
from openclaw_rl.core.turn import Turn
from openclaw_rl.core.verdict import Verdict, VerdictSource, Vote
from openclaw_rl.errors import JudgeError
from openclaw_rl.evals.judging.cases import TAUGHT, JudgeCase, overruled_cases, spread, taught_cases, written_cases
from openclaw_rl.evals.judging.measure import JudgedCase, as_json, judged


def _case(kind: str, score: int, said: str = "Thanks!") -> JudgeCase:
    return JudgeCase(
        kind,
        "student",
        (message(Role.USER, "2 + 2?"),),
        message(Role.ASSISTANT, "4"),
        (message(Role.USER, said),),
        score,
    )


def _verdict(*votes: int | None) -> Verdict:
    counted = Counter(vote for vote in votes if vote is not None)
    score = counted.most_common(1)[0][0] if counted else None
    return Verdict("t", score, VerdictSource.VOTES, tuple(Vote("score", "", vote) for vote in votes))


def test_an_owners_verdicts_become_cases_once_each_and_only_where_somebody_reacted() -> None:
    row: dict[str, Json] = {"turn": "a", "score": -1, "asked": "2 + 2?", "reply": "5", "next_state": "hm"}
    row["source"] = "user"
    silent, older, by_tool = {"turn": "b", "next_state": None}, {"score": 1}, {"turn": "c", "source": "tool"}
    (case,) = overruled_cases([row, row | older, row | silent, row | by_tool])
    assert (case.score, case.next_state[0].text, case.reply.text) == (-1, "hm", "5")
    assert case.followed("a").source is NextStateSource.USER


def test_the_set_is_large_and_holds_every_kind_with_both_signs_where_it_should() -> None:
    cases = [*taught_cases(), *written_cases()]
    kinds = Counter(case.kind for case in cases)
    assert len(cases) >= 300
    assert len(kinds) == 16
    assert min(kinds.values()) >= 12
    scores = Counter(case.score for case in cases)
    assert min(scores.values()) >= 60
    assert {case.score for case in cases if case.kind == "injection"} == {-1, 1}


def test_no_two_written_cases_are_the_same() -> None:
    said = Counter((case.request, case.next_state) for case in written_cases())
    assert max(said.values()) == 1


def test_a_tools_result_answers_its_call_and_long_ones_end_on_what_matters() -> None:
    for index, case in enumerate(written_cases()):
        state = case.followed(f"c{index}")
        if state.source is NextStateSource.TOOL:
            assert case.next_state[0].tool_call_id == case.reply.tool_calls[0].id
        if case.kind == "long output":
            assert len(state.text) > 6000


async def test_figures_count_right_wrong_and_silent_verdicts_by_kind() -> None:
    results = [
        JudgedCase(_case("thanks", 1), _verdict(1, 1, 1)),
        JudgedCase(_case("thanks", 1), _verdict(1, 1, 0)),
        JudgedCase(_case("redo", -1), _verdict(1, 1, None)),
        JudgedCase(_case(TAUGHT, 0), None),
    ]
    found = as_json(results)
    assert found["accuracy"] == 0.5
    assert found["accuracy_taught"] == 0.0
    assert found["accuracy_rest"] == 0.6667
    assert found["abstained"] == 1
    assert found["vote_agreement"] == 0.7778  # pairs that agree: 3 of 3, 1 of 3, 1 of 1
    assert found["by_kind"] == {
        "thanks": {"cases": 2, "accuracy": 1.0, "said": {"+1": 2, "0": 0, "-1": 0, "none": 0}},
        "redo": {"cases": 1, "accuracy": 0.0, "said": {"+1": 1, "0": 0, "-1": 0, "none": 0}},
        TAUGHT: {"cases": 1, "accuracy": 0.0, "said": {"+1": 0, "0": 0, "-1": 0, "none": 1}},
    }


class _Moody:
    """Says +1 to thanks and cannot be reached otherwise."""

    async def judge(self, turn: Turn, next_state: NextState) -> Verdict:
        if "Thanks" not in next_state.text:
            raise JudgeError("away")
        return _verdict(1)


async def test_a_judge_that_is_away_for_one_case_abstains_there_and_results_keep_their_order() -> None:
    cases = [_case("thanks", 1), _case("redo", -1, "Again!"), _case("thanks", 1)]
    results = await judged(_Moody(), cases, at_once=2)
    assert [result.score for result in results] == [1, None, 1]
    assert [result.case for result in results] == cases


def test_a_quick_look_takes_cases_from_all_over() -> None:
    cases = written_cases()
    assert len(spread(cases, 40)) == 40
    assert len({case.kind for case in spread(cases, 40)}) >= 14
    assert spread(cases[:3], 40) == cases[:3]
