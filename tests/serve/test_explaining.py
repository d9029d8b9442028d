"""Every decision about a turn is told in plain words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from openclaw_rl.core.hint import PlacedHint
from openclaw_rl.core.ledger import DropReason, State
from openclaw_rl.core.message import Role, message
from openclaw_rl.core.next_state import NextState, NextStateSource
from openclaw_rl.core.sample import HintPrompt, Outcome, Sample, SampledReply
from openclaw_rl.core.turn import TurnKind
from openclaw_rl.core.verdict import Verdict, VerdictSource, Vote
from openclaw_rl.core.version import BASE, PolicyVersion
from openclaw_rl.serve.control.explain import DROPPED, STANDS, explained, lesson_explained
from openclaw_rl.serve.control.views import turn_json
from openclaw_rl.store.rows import TurnRow
from openclaw_rl.testing.turns import a_turn

WHY = "main: no rule says otherwise; session from X-Session-Id; continues turn t0"
TURN = replace(a_turn("t"), why=WHY)
SAID = NextState("t", (message(Role.USER, "no"),), NextStateSource.USER)


def votes(*scores: int | None) -> tuple[Vote, ...]:
    return tuple(Vote("score", "", score) for score in scores)


def test_the_way_of_a_turn_is_told_from_its_kind_to_its_end() -> None:
    verdict = Verdict("t", -1, VerdictSource.VOTES, votes=(*votes(-1, None, -1), Vote("hint", "", 1)))
    row = TurnRow(TURN, State.TRAINED, None, SAID, verdict, step="5", trained_version=PolicyVersion("shared", 2))
    assert explained(row) == [
        "main: no rule says otherwise",
        "session from X-Session-Id",
        "continues turn t0",
        "its next state is the user's next words",
        "judged -1 by 2 valid votes of 3 (-1, -1)",
        "trained on in step 5, which made version shared.2",
    ]
    assert turn_json(row)["explained"] == explained(row)


@pytest.mark.parametrize(
    ("verdict", "said"),
    [
        (Verdict("t", None, VerdictSource.VOTES, votes(None, None)), "not judged: none of the 2 votes was valid"),
        (Verdict("t", 1, VerdictSource.FEEDBACK), "judged 1 by the user's feedback"),
        (Verdict("t", -1, VerdictSource.ENVIRONMENT), "judged -1 by the status the tools reported"),
    ],
)
def test_who_judged_is_told(verdict: Verdict, said: str) -> None:
    assert explained(TurnRow(TURN, State.JUDGED, None, SAID, verdict))[-2:] == [said, STANDS[State.JUDGED]]


def test_a_judge_who_was_asked_nothing_is_explained() -> None:
    nothing = Verdict("t", None, VerdictSource.VOTES)
    row = TurnRow(TURN, State.JUDGED, None, SAID, nothing)
    assert "not judged: the next message is all quotation, so none of it is the user's own words" in explained(row)
    given = NextState("t", (message(Role.TOOL, "x"),), NextStateSource.TOOL)
    assert any("the user said nothing" in each for each in explained(TurnRow(TURN, State.JUDGED, None, given, nothing)))


def test_every_state_and_every_reason_has_its_words() -> None:
    assert DROPPED.keys() == set(DropReason)
    assert STANDS.keys() == set(State) - {State.TRAINED, State.DROPPED}
    assert explained(TurnRow(TURN, State.DROPPED, DropReason.LOOP))[-1] == (
        "dropped (loop): the answer says one thing over and over"
    )
    side = TurnRow(replace(a_turn("t", kind=TurnKind.SIDE), why="side: it asks for a title"), None, None)
    assert explained(side) == [
        "side: it asks for a title",
        "side turns are served and counted, and never learned from",
    ]


def test_a_lesson_says_what_a_turn_is_learned_from_as() -> None:
    scored = Sample("t", "s", "ann", (1,), (2,), (-0.1,), (True,), BASE, score=1.0)
    hinted = replace(scored, hints=(HintPrompt("Be brief.", (1, 5)),))
    rehearsal = replace(scored, score=0.0, is_promoted=True)
    taught = replace(hinted, is_taught=True)
    shown = (SampledReply((3,), (-0.1,), BASE),) * 2
    behind = replace(TURN, carried=(PlacedHint(0, "h", "Be brief."),))
    told = [
        lesson_explained(sample, turn)
        for sample, turn in (
            (scored, TURN),
            (hinted, TURN),
            (replace(hinted, shown=shown), TURN),
            (rehearsal, TURN),
            (replace(rehearsal, hints=hinted.hints, rehearses=("Be brief.",)), TURN),
            (taught, TURN),
            (taught, behind),
            (replace(scored, outcome=Outcome(1.0, True)), TURN),
        )
    ]
    assert told == [
        "it is learned from by its score alone",
        "the teacher reads the hint after the request",
        "the teacher reads the hint after the request, and shows 2 replies of its own",
        "nobody corrected it: it is a rehearsal sample, and keeps the policy where the base model is",
        "nobody corrected it: it is a rehearsal sample, and keeps the policy to what these hints ask for",
        "accepted after corrections, it answers what was asked first; the teacher reads the whole conversation",
        "it was sampled with hints in the prompt: the policy learns to give it without them",
        "it is learned from by the outcome of its episode, 1",
    ]
