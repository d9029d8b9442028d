"""Which judged turns become samples."""

from __future__ import annotations

from dataclasses import replace

import pytest
from train_doubles import judged, sample, turn, verdict

from openclaw_rl.core.hint import PlacedHint
from openclaw_rl.core.ledger import DropReason
from openclaw_rl.core.message import Role, ToolCall, message
from openclaw_rl.core.sample import Outcome, Wants, teaches
from openclaw_rl.store.rows import JudgedTurn
from openclaw_rl.teach.admit import Admission, admission, has_signal, refusal

NOBODY: frozenset[str] = frozenset()
ENDED = frozenset({"s1"})


def decide(*rows: JudgedTurn, wants: Wants = Wants.EITHER, contributing: frozenset[str] = NOBODY,
           complete: frozenset[str] = NOBODY) -> Admission:  # fmt: skip
    return admission(rows, wants, refused={}, contributing=contributing, complete=complete)


@pytest.mark.parametrize(
    ("score", "hints", "score_is", "hint_is", "either_is"),
    [
        (1, 0, True, False, True),
        (-1, 0, True, False, True),
        (-1, 1, True, True, True),
        (0, 1, False, True, True),
        (None, 1, False, True, True),
        (0, 0, False, False, False),
        (None, 0, False, False, False),
    ],
)
def test_the_method_says_what_a_signal_is(
    score: int | None, hints: int, score_is: bool, hint_is: bool, either_is: bool
) -> None:
    expected = {Wants.SCORE: score_is, Wants.HINT: hint_is, Wants.EITHER: either_is}
    for wants, answer in expected.items():
        assert has_signal(turn("t"), verdict("t", score, hints=hints), wants) is answer
        assert teaches(sample("t", score, hints=hints), wants) is answer


def test_a_rollouts_outcome_teaches_any_method() -> None:
    assert teaches(replace(sample("t", None), outcome=Outcome(0.0, False)), Wants.HINT)


def test_the_weights_of_a_method_say_what_it_wants() -> None:
    assert Wants.of(rl=1.0, hints=0.0) is Wants.SCORE
    assert Wants.of(rl=0.0, hints=1.0) is Wants.HINT
    assert Wants.of(rl=1.0, hints=0.5) is Wants.EITHER


def test_a_turn_can_be_refused_whatever_its_session_holds() -> None:
    good = verdict("t", -1)
    assert refusal(turn("t"), good, may_teach=True, max_tokens=5) is None
    assert refusal(turn("t"), good, may_teach=True, max_tokens=4) is DropReason.TOO_LONG  # 3 + 2 tokens
    assert refusal(turn("t"), good, may_teach=False, max_tokens=5) is DropReason.MAY_NOT_TEACH
    assert refusal(turn("t"), verdict("t", None), may_teach=True, max_tokens=5) is DropReason.NO_SIGNAL
    assert refusal(turn("t"), verdict("t", 0), may_teach=True, max_tokens=5) is None  # None is not 0
    assert refusal(turn("t"), verdict("t", None, hints=1), may_teach=True, max_tokens=5) is None


def test_a_turn_with_a_signal_is_admitted_and_a_zero_waits() -> None:
    up, zero = judged("a", 1), judged("b", 0, session_id="s2")
    assert decide(up, zero) == Admission(samples=(up,))


def test_a_zero_is_dropped_once_another_turn_of_its_session_contributes() -> None:
    zero = judged("b", 0, mean=0.3)
    beside = decide(judged("a", -1), zero, complete=ENDED)
    assert (beside.dropped, beside.promoted) == ((), ())  # the other one may yet turn out to teach nothing
    before = decide(zero, contributing=frozenset({"s1"}), complete=ENDED)
    assert before.dropped == (("b", DropReason.NO_SIGNAL),)
    assert before.promoted == ()


def test_of_a_session_of_zeros_the_best_voted_is_promoted_with_the_mean_of_its_votes() -> None:
    rows = [judged("a", 0, mean=-1 / 3), judged("b", 0, mean=1 / 3), judged("c", 0, mean=0.0)]
    done = decide(*rows, complete=ENDED)
    assert done.promoted == ((rows[1], 1 / 3),)
    assert done.dropped == (("a", DropReason.NO_SIGNAL), ("c", DropReason.NO_SIGNAL))
    assert decide(*rows) == Admission()  # the session goes on


def test_a_promoted_turn_whose_votes_cancel_out_trains_the_anchor_alone() -> None:
    row = judged("a", 0, mean=0.0)
    assert decide(row, complete=ENDED).promoted == ((row, 0.0),)


def test_a_method_of_hints_promotes_without_a_reward() -> None:
    praised = judged("a", 1, mean=1.0)  # a score that this method has no use for
    assert decide(praised, wants=Wants.HINT) == Admission()
    assert decide(praised, wants=Wants.HINT, complete=ENDED).promoted == ((praised, 0.0),)
    zero = judged("a", 0, mean=1 / 3)
    assert decide(zero, wants=Wants.HINT, complete=ENDED).promoted == ((zero, 0.0),)


def test_a_method_of_hints_does_not_hold_the_model_at_a_reply_that_was_complained_about() -> None:
    """The judge heard a complaint, and not about what: the reply teaches nothing, and is nothing to preserve."""
    rows = [judged("a", -1, mean=-1.0), judged("b", 0, mean=-1 / 3)]
    assert decide(*rows, wants=Wants.HINT, complete=ENDED).promoted == ((rows[1], 0.0),)
    alone = decide(rows[0], wants=Wants.HINT, complete=ENDED)
    assert alone == Admission(dropped=(("a", DropReason.NO_SIGNAL),))
    assert decide(rows[0], wants=Wants.HINT) == Admission()  # the session goes on


@pytest.mark.parametrize(
    ("wants", "score", "calls", "parent", "is_rehearsed"),
    [
        (Wants.HINT, 0, True, None, True),
        (Wants.HINT, 1, True, None, True),
        (Wants.HINT, 0, False, None, False),
        (Wants.HINT, 0, True, "t0", False),  # one of a session, however many it holds
        (Wants.HINT, -1, True, None, False),
        (Wants.EITHER, 0, True, None, False),
    ],
)
def test_a_sessions_first_answer_rides_beside_its_samples_if_it_calls_tools(
    wants: Wants, score: int, calls: bool, parent: str | None, is_rehearsed: bool
) -> None:
    """Of a session where the last words alone are corrected: nothing else would hold how tools are called."""
    row = judged("t", score)
    reply = replace(row.turn.reply, tool_calls=(ToolCall("c", "read", "{}"),) if calls else ())
    row = replace(row, turn=replace(row.turn, reply=reply, parent=parent))
    found = decide(row, wants=wants, contributing=frozenset({"s1"}))
    assert [(one.turn.id, reward) for one, reward in found.promoted] == ([("t", 0.0)] if is_rehearsed else [])
    assert bool(found.dropped or found.samples) is not is_rehearsed
    assert decide(row, wants=wants).promoted == ()  # not before it is known to contribute


@pytest.mark.parametrize(
    ("roles", "score", "wants", "is_rehearsed"),
    [
        ((Role.USER, Role.ASSISTANT, Role.TOOL), 1, Wants.HINT, True),
        ((Role.USER, Role.ASSISTANT, Role.TOOL, Role.TOOL, Role.USER), 0, Wants.HINT, True),  # two calls at once
        ((Role.USER, Role.ASSISTANT, Role.TOOL, Role.ASSISTANT, Role.TOOL), 1, Wants.HINT, False),  # not the first
        ((Role.USER, Role.ASSISTANT, Role.USER), 1, Wants.HINT, False),
        ((Role.USER, Role.ASSISTANT, Role.TOOL), -1, Wants.HINT, False),
        ((Role.USER, Role.ASSISTANT, Role.TOOL), 1, Wants.EITHER, False),
    ],
)
@pytest.mark.parametrize("ended", [False, True])
def test_the_answer_to_a_sessions_first_tool_result_rides_beside_its_samples(
    ended: bool, roles: tuple[Role, ...], score: int, wants: Wants, is_rehearsed: bool
) -> None:
    """Beside those of a session that contributes, and beside the best of a session that ended without a sample."""
    row, best = judged("t", score), judged("best", 0, mean=1.0)
    said = tuple(message(role, "x") for role in roles)
    row = replace(row, turn=replace(row.turn, messages=said, parent="t0"))
    found = (
        decide(best, row, wants=wants, complete=ENDED)
        if ended
        else decide(row, wants=wants, contributing=frozenset({"s1"}))
    )
    promoted = [one.turn.id for one, _ in found.promoted]
    assert ("t" in promoted) is is_rehearsed
    assert wants is Wants.EITHER or ("best" in promoted) is ended


def test_sessions_are_decided_apart() -> None:
    one, other = judged("a", 0), judged("b", 0, session_id="s2")
    assert decide(one, other, complete=frozenset({"s2"})) == Admission(promoted=((other, 0.0),))


def test_refused_turns_are_dropped_with_their_reason_and_never_promoted() -> None:
    done = admission(
        [judged("a", 1), judged("b", 0)],
        Wants.EITHER,
        refused={"a": DropReason.TOO_LONG, "b": DropReason.MAY_NOT_TEACH},
        contributing=NOBODY,
        complete=ENDED,
    )
    assert done == Admission(dropped=(("a", DropReason.TOO_LONG), ("b", DropReason.MAY_NOT_TEACH)))


def behind_hints(name: str, score: int | None, *, hints: int = 0) -> JudgedTurn:
    made = judged(name, score, hints=hints)
    return replace(made, turn=replace(made.turn, carried=(PlacedHint(0, "hint-1", "Be brief."),)))


@pytest.mark.parametrize("wants", Wants)
def test_what_was_sampled_behind_hints_teaches_whatever_the_method_unless_it_was_bad_and_nobody_said_why(
    wants: Wants,
) -> None:
    rows = [
        behind_hints("praised", 1),
        behind_hints("quiet", 0),
        behind_hints("corrected", -1, hints=1),
        behind_hints("bad", -1),
    ]
    found = admission(rows, wants, refused={}, contributing=NOBODY, complete=ENDED)
    assert [row.turn.id for row in found.samples] == ["praised", "quiet", "corrected"]
    assert found.promoted == () and found.dropped == (("bad", DropReason.NO_SIGNAL),)


def test_where_only_the_prompt_remembers_nothing_becomes_a_sample() -> None:
    made = judged("t", 1)
    reason = refusal(made.turn, made.verdict, may_teach=True, max_tokens=100, weights_learn=False)
    assert reason is DropReason.MEMORY_ONLY


def test_a_taught_sample_is_enough_for_a_step() -> None:
    assert all(teaches(replace(sample("t", None), is_taught=True), wants) for wants in Wants)
