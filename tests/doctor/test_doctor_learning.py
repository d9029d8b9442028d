"""What the numbers of an installation say in plain words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pytest

from openclaw_rl.core.facts import CorrectionTrend, Overview, StoreFacts
from openclaw_rl.core.finding import Finding, Level
from openclaw_rl.core.ledger import WHAT_TO_DO, DropReason
from openclaw_rl.doctor import learning
from openclaw_rl.doctor.learning import Loop
from openclaw_rl.evals.steadiness import NO_EFFECT
from openclaw_rl.judge.status import JudgeStatus
from openclaw_rl.publish.status import PublishStatus
from openclaw_rl.train.status import TrainStatus


@dataclass(frozen=True)
class Signs:
    """The store's facts and the stages' statuses that a case is about."""

    counts: Mapping[str, int]
    seen: Overview
    needed: int
    ready: int
    learns: bool = True
    is_live: bool = False
    judge_s: float | None = None
    judge_error: str = ""
    calls: int = 0
    calls_limit: int = 0
    train_error: str = ""
    train_waits: str = ""
    is_training: bool = False
    doing: str = ""
    publish_notice: str = ""
    reused: float | None = None
    broken: Mapping[str, str] = field(default_factory=dict)

    @property
    def facts(self) -> StoreFacts:
        return StoreFacts(self.counts, self.seen)

    @property
    def loop(self) -> Loop:
        judge = JudgeStatus(
            last_error=self.judge_error, seconds_p50=self.judge_s, calls_today=self.calls, calls_limit=self.calls_limit
        )
        train = TrainStatus(
            ready=self.ready,
            needed=self.needed,
            is_training=self.is_training,
            doing=self.doing,
            why_waiting=self.train_waits,
            last_error=self.train_error,
        )
        return Loop(
            judge,
            train=train,
            publish=PublishStatus(notice=self.publish_notice),
            is_live=self.is_live,
            learns=self.learns,
            broken=self.broken,
            reused=self.reused,
        )


def learning_findings(signs: Signs) -> tuple[Finding, ...]:
    return learning.learning_findings(signs.facts, signs.loop)


def story(signs: Signs) -> str:
    return learning.story(signs.facts, signs.loop)


WELL = Signs(
    counts={
        "main": 12,
        "side": 3,
        "served": 3,
        "paired": 2,
        "ready": 3,
        "trained": 0,
        "dropped": 4,
        "dropped.empty": 4,
    },
    seen=Overview(paired=9, main=12, side=3, sessions=4, scores={1: 2, 0: 4, -1: 3}, zeros=4),
    needed=4,
    ready=3,
    is_live=True,
    judge_s=2.13,
)


def told(signs: Signs, level: Level = Level.MEND) -> list[tuple[str, str]]:
    return [(item.stage, item.said) for item in learning_findings(signs) if item.level is level]


def seen(signs: Signs, **changes: object) -> Signs:
    return replace(signs, seen=replace(signs.seen, **changes))  # type: ignore[arg-type]


TROUBLES = [
    (
        Signs({"side": 40}, Overview(side=40, side_why="side: has no Runtime line"), 16, 0),
        "collect",
        "all 40 turns were side requests, so nothing is learned from them (mostly: side: has no Runtime line)",
    ),
    (
        seen(WELL, main=0, side=500, side_why="side: it says so"),
        "collect",
        "the last 500 turns were side requests, so nothing is learned from them (mostly: side: it says so)",
    ),
    (
        seen(WELL, paired=0),
        "collect",
        "none of 12 main turns has a next state: no request continued from a served reply",
    ),
    (
        seen(WELL, paired=0, unnamed=12, sessions=12),
        "collect",
        "no sessions were recognised: each of the last 12 main turns is alone in its session",
    ),
    (seen(WELL, main=20, sessions=1), "collect", "the last 20 main turns all belong to one session"),
    (replace(WELL, judge_error="refused"), "judge", "the judge does not answer, 2 turns wait: refused"),
    (replace(WELL, calls=50, calls_limit=50), "judge", "today's limit of 50 judge calls is used up; 2 turns wait"),
    (
        seen(WELL, scores={None: 5, 1: 5}),
        "judge",
        "the judge gave no valid vote on 5 of the last 10 turns",
    ),
    (seen(WELL, scores={1: 20}), "judge", "the judge voted 1 on each of the last 20 turns, which gives no information"),
    (
        seen(WELL, refused_in_a_row=3, refused_why="it loops"),
        "publish",
        "the gate refused the last 3 versions, the newest because it loops",
    ),
    (replace(WELL, train_error="out of memory"), "train", "the last step failed: out of memory"),
    (replace(WELL, publish_notice="version 2 is damaged"), "publish", "version 2 is damaged"),
    (
        replace(WELL, counts={**WELL.counts, "dropped": 8, "dropped.no_next_state": 4, "dropped.too_long": 4}),
        "teach",
        "8 of 12 main turns dropped: 4 empty, 4 no_next_state, 4 too_long",
    ),
]
TROUBLED = [signs for signs, _, _ in TROUBLES]


def test_what_was_made_of_requests_is_told_and_too_much_doubt_too() -> None:
    made = {"side: title (its title prompt, a rule of opencode)": 3}
    assert told(seen(WELL, told=made), Level.NOTE)[0][1] == (
        "of the last requests: 3 x side: title (its title prompt, a rule of opencode)"
    )
    doubt = {"spoke: nobody (a long text of many lines, which counts once the conversation continues from it)": 12}
    assert any(said.startswith("12 times it was unclear") for _, said in told(seen(WELL, told=doubt), Level.NOTE))


def test_the_story_is_one_sentence_with_the_numbers_that_matter() -> None:
    assert story(replace(WELL, reused=0.934)) == (
        "12 main turns, 9 have a next state, 4 judged 0, 3 ready; a step needs 4; 2 wait for the judge; the judge "
        "answers in 2.1 s; 0 were trained on, 4 were dropped; prompt tokens reused: 93%"
    )
    assert story(Signs({}, Overview(), 16, 0)) == "nothing has been served yet"
    assert (
        story(Signs({"side": 7}, Overview(), 16, 0)) == "all 7 turns were side requests: there is nothing to learn from"
    )
    assert story(replace(WELL, learns=False)) == "learning is off; 12 main turns were stored"


def test_a_stage_that_broke_is_named_even_before_anything_was_served() -> None:
    broke = {"train": "it broke once, last by KeyError: 'x'"}
    assert told(replace(WELL, broken=broke)) == [("train", "it broke once, last by KeyError: 'x'")]
    assert told(Signs({}, Overview(), 16, 0, broken=broke)) == [("train", "it broke once, last by KeyError: 'x'")]


def test_while_frozen_nobody_reads_that_turns_are_learned_from() -> None:
    frozen = seen(WELL, frozen_since_s=1_700_000_000.0)
    assert told(frozen) == told(frozen, Level.OK) == []
    (stage, said), *_ = told(replace(frozen, train_waits="frozen", doing=""), Level.NOTE)
    assert stage == "learn" and said.startswith("training is frozen by your order since 2023-11-1")
    assert "training is frozen" in story(frozen) and "a step needs" not in story(frozen)
    assert not any("no step now" in said for _, said in told(replace(frozen, train_waits="frozen"), Level.NOTE))


def test_a_pin_is_named_and_how_to_lift_it() -> None:
    pinned = seen(WELL, pinned=("shared.3",))
    (found,) = [item for item in learning_findings(pinned) if item.stage == "publish"]
    assert found.said == "pinned by your order: shared.3; what is trained is not served" and "unpin" in found.fix


def test_without_a_server_turns_are_learned_from_only_once_one_runs() -> None:
    assert told(replace(WELL, is_live=False), Level.OK) == [
        ("learn", "turns are learned from, or will be once a server runs and enough are ready")
    ]
    assert told(replace(WELL, learns=False), Level.OK) == []


def test_nobody_is_sent_to_a_route_where_there_is_a_command() -> None:
    words = [*WHAT_TO_DO.values(), *(item.fix for signs in TROUBLED for item in learning_findings(signs))]
    assert not [said for said in words if "/v1/rl" in said]
    assert [said for said in words if "openclaw-rl turns" in said]


def test_where_all_is_well_nothing_is_to_be_mended() -> None:
    assert told(WELL) == []
    assert told(WELL, Level.OK) == [("learn", "turns are learned from, or will be when enough are ready")]
    assert told(WELL, Level.NOTE) == [("teach", "4 of 12 main turns dropped: 4 empty")]


@pytest.mark.parametrize(("signs", "stage", "said"), TROUBLES)
def test_what_keeps_turns_from_teaching_is_told_with_what_to_do(signs: Signs, stage: str, said: str) -> None:
    assert (stage, said) in told(signs)
    assert all(item.fix for item in learning_findings(signs) if item.level is Level.MEND and item.stage == stage)
    assert told(signs, Level.OK) == []


@pytest.mark.parametrize(
    "signs",
    [
        seen(WELL, main=9, paired=0),  # too early to say
        seen(WELL, main=19, sessions=1),
        seen(WELL, main=20, sessions=2),
        seen(WELL, scores={1: 19}),
        seen(WELL, scores={None: 4, 1: 6}),
        seen(WELL, refused_in_a_row=2),
        replace(seen(WELL, main=500, sessions=1), counts={**WELL.counts, "trained": 1}),  # a long talk that teaches
        replace(WELL, counts={**WELL.counts, "dropped.not_followed": 9}),  # other answers were gone on with
        replace(WELL, calls=49, calls_limit=50),
        replace(WELL, calls=50),
    ],
)
def test_what_may_well_be_right_is_not_called_wrong(signs: Signs) -> None:
    assert told(signs) == []


def test_a_spent_budget_is_not_told_as_a_judge_that_is_away_too() -> None:
    spent = replace(WELL, calls=50, calls_limit=50, judge_error="today's limit of 50 judge calls is used up")
    assert [stage for stage, _ in told(spent)] == ["judge"]


def test_every_reason_to_drop_a_turn_has_something_to_do_about_it() -> None:
    assert WHAT_TO_DO.keys() == set(DropReason) - {DropReason.FORGOTTEN}


@pytest.mark.parametrize(
    ("one", "versions", "is_told"),
    [
        (CorrectionTrend("bob", 20, earlier=9, later=10), 8, True),
        (CorrectionTrend("bob", 20, earlier=15, later=8), 8, True),  # not half as many is not fewer enough
        (CorrectionTrend("bob", 20, earlier=14, later=7), 8, False),  # half as many
        (CorrectionTrend("bob", 20, earlier=5, later=5), 8, False),  # now and then is life
        (CorrectionTrend("bob", 20, earlier=9, later=10), 4, False),  # nothing was learned yet that could have helped
        (CorrectionTrend("bob", 9, earlier=9, later=9), 8, False),
    ],
)
def test_a_user_who_corrects_no_less_than_before_is_noticed(one: CorrectionTrend, versions: int, is_told: bool) -> None:
    found = told(seen(WELL, contentment=(one,), versions=versions))
    assert [stage for stage, _ in found] == (["learn"] if is_told else [])
    assert all("bob corrected" in said for _, said in found)
    assert all(NO_EFFECT in said for _, said in found)  # `make bench-steadiness` looks for these words


def test_nor_less_where_most_of_what_they_ask_for_changes_nothing() -> None:
    """Few versions are made where corrections are unheeded; they were tried all the same."""
    one = CorrectionTrend("bob", 20, earlier=9, later=10)
    counts = {**WELL.counts, "dropped": 6, "dropped.unheeded": 2}
    ((stage, said),) = told(replace(seen(WELL, contentment=(one,), versions=3), counts=counts))
    assert stage == "learn" and "over 3 versions made and 2 corrections that changed nothing" in said
    assert not told(replace(seen(WELL, contentment=(one,), versions=2), counts=counts))


def test_samples_set_aside_for_their_cost_are_named_with_a_cure() -> None:
    few = replace(WELL, counts={**WELL.counts, "trained": 30, "dropped.too_dear": 1})
    (found,) = [item for item in learning_findings(few) if "set aside" in item.said]
    assert found.level is Level.NOTE and found.said.startswith("1 sample set aside")
    assert "trainer.timeout_s" in found.fix and "GPU" in found.fix
    many = replace(few, counts={**few.counts, "dropped.too_dear": 3})
    assert ("train", found.said.replace("1 sample ", "3 samples ")) in told(many)


def test_the_step_under_way_is_told_with_how_far_it_has_come() -> None:
    words = "taking a step over 1 sample for shared: update 3 of at most 8, about 20 s to go"
    assert words in story(replace(WELL, is_training=True, doing=words))


@pytest.mark.parametrize(("trained", "is_told"), [(0, True), (20, True), (21, False)])
def test_samples_that_cannot_be_learned_are_told_unless_many_others_can(trained: int, is_told: bool) -> None:
    counts = {**WELL.counts, "dropped": 2, "dropped.not_learnable": 2, "trained": trained}
    found = [one for one in learning_findings(replace(WELL, counts=counts)) if "cannot be learned" in one.said]
    assert [(one.level, one.stage, bool(one.fix)) for one in found] == [(Level.MEND, "train", True)] * is_told
