"""What a version must show before it is served."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from publish_doubles import GOOD, Flow, Minds, flowing, prompts_of, turn, version

from openclaw_rl.core.hint import PlacedHint
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.turn import TurnKind
from openclaw_rl.publish.divergence import divergence
from openclaw_rl.publish.gate import GateReport
from openclaw_rl.publish.replies import is_loop
from openclaw_rl.publish.settings import PublishSettings


def top(**chances: float) -> tuple[tuple[int, float], ...]:
    return tuple((int(name[1:]), math.log(chance)) for name, chance in chances.items())


BASE_TOP = top(t1=0.9, t2=0.05)  # 0.05 for all others


def test_a_model_is_at_no_distance_from_itself() -> None:
    assert divergence(BASE_TOP, BASE_TOP) == pytest.approx(0.0, abs=1e-12)


def test_tokens_both_name_are_compared_one_by_one_and_the_others_as_one() -> None:
    # 0.5 ln(0.5/0.9) + 0.4 ln(0.4/0.05) + 0.1 ln(0.1/0.05) = -0.29389 + 0.83178 + 0.06931
    assert divergence(top(t1=0.5, t2=0.4), BASE_TOP) == pytest.approx(0.60720, abs=1e-5)


def test_noise_is_far_though_it_names_none_of_the_bases_tokens() -> None:
    # Uniform over 1000: at most 2 * 0.001 on the two tokens of the base, so
    # 0.002 ln(0.002/0.95) + 0.998 ln(0.998/0.05) = -0.01233 + 2.98774
    assert divergence(top(t7=0.001, t8=0.001), BASE_TOP) == pytest.approx(2.97541, abs=1e-5)


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(0.01, 1.0), st.floats(0.01, 1.0)), min_size=4, max_size=12), st.integers(1, 6))
def test_what_is_measured_is_never_more_than_the_true_divergence(pairs: list[tuple[float, float]], many: int) -> None:
    chances = [[value / sum(column) for value in column] for column in zip(*pairs, strict=True)]
    true = sum(p * math.log(p / q) for p, q in zip(*chances, strict=True))

    def likeliest(column: Sequence[float]) -> tuple[tuple[int, float], ...]:
        order = sorted(range(len(column)), key=lambda index: -column[index])[:many]
        return tuple((index, math.log(column[index])) for index in order)

    measured = divergence(likeliest(chances[0]), likeliest(chances[1]))
    assert -1e-6 < measured < true + 1e-6


@pytest.mark.parametrize(
    ("tokens", "answer"),
    [
        ([1, 2, 3] * 8, True),  # 24 tokens
        ([1, 2, 3] * 7, False),
        ([7] * 24, True),
        ([7] * 23, False),
        ([9, 9, *range(12)] + [1, 2, 3] * 8, True),  # only the end counts
        ([1, 2, 3] * 8 + [4], False),
        (list(range(40)) * 4, True),
        (list(range(41)) * 4, False),  # too long to be called a loop
        (list(range(200)), False),
        ([], False),
    ],
)
def test_a_loop_is_a_run_that_ends_the_answer_again_and_again(tokens: list[int], answer: bool) -> None:
    assert is_loop(tokens) is answer


async def report(flow: Flow) -> GateReport:
    """The gate's report on version 1, made from the base model."""
    row = await flow.candidate(1)
    await flow.served.load(row)
    return await flow.stage.gate.check(row, parent=version(0))


async def test_a_version_near_the_base_that_speaks_well_passes(flow: Flow) -> None:
    await flow.talk(turn("a"), turn("b"), turn("side", kind=TurnKind.SIDE))
    found = await report(flow)
    assert (found.passed, found.why) == (True, "passed the gate")
    assert found.metrics == {
        "gate_turns": 2.0,
        "gate_kl": 0.0,
        "gate_faults": 0.0,
        "gate_length": 12.0,
        "gate_repetition": 0.0,
        "gate_departs": 0.0,
        "gate_departs_of": 2.0,
        "gate_departs_unasked": 0.0,
        "gate_departs_unasked_of": 4.0,
        "gate_length_told": 12.0,
    }


async def test_a_version_is_tried_without_the_hints_that_others_were_served_with(tmp_path: Path) -> None:
    async with flowing(tmp_path, settings=PublishSettings(probe_others=0)) as flow:
        behind = turn("a", "Question a?")
        hint = PlacedHint(0, "hint-1", "Be brief.")
        read = Prompt(tuple(map(ord, "Question a? Be brief.")))
        await flow.talk(replace(behind, prompt=read, carried=(hint,)), turn("b"))
        assert (await report(flow)).passed
        by_version = ["Question a?", "Question b?"]
        assert sorted(prompts_of(flow.engine)) == sorted((*by_version, *by_version))  # the version, and the base model


async def test_a_version_far_from_the_base_is_refused_with_the_distance(tmp_path: Path) -> None:
    async with flowing(tmp_path, Minds(chance={version(1): 0.01})) as flow:
        await flow.talk(turn("a"))
        found = await report(flow)
        # 0.01 ln(0.01/0.9) + 2 * 0.495 ln(0.495/0.05) = -0.04500 + 2.26961
        assert found.metrics["gate_kl"] == pytest.approx(2.22461, abs=1e-5)
        assert (found.passed, found.why) == (
            False,
            "it is 2.22 nats a token from the base model; 1.5 are allowed",
        )
        assert not [call for call in flow.engine.calls if call.startswith("generate")]


async def test_a_version_whose_numbers_are_not_finite_is_refused(tmp_path: Path) -> None:
    async with flowing(tmp_path, Minds(chance={version(1): math.nan})) as flow:
        await flow.talk(turn("a"))
        found = await report(flow)
        assert (found.passed, found.why) == (False, "its log-probabilities are not finite")
        assert all(math.isfinite(value) for value in found.metrics.values())


@pytest.mark.parametrize(
    ("says", "kind"),
    [
        ("$", "empty"),
        ("  $", "empty"),
        ("no no no no no no no no no no ", "a loop"),
        ("".join(map(chr, range(1000, 1300))), "does not end"),
        ("?what$", "cannot be read"),
    ],
)
async def test_a_version_that_answers_badly_is_refused_unless_its_parent_did_too(
    tmp_path: Path, says: str, kind: str
) -> None:
    for number, minds in enumerate((Minds({version(1): says}), Minds({version(1): says, version(0): says}))):
        async with flowing(tmp_path / str(number), minds) as flow:
            await flow.talk(turn("a"), turn("b"))
            found = await report(flow)
            assert found.metrics["gate_faults"] == 2.0
            assert found.metrics["gate_faults_before"] == 2.0 * number
            assert found.passed is bool(number)
            if not number:
                assert found.why == f"2 of 2 trial replies are degenerate ({kind}), 0 before"


async def test_a_long_answer_where_long_ones_were_given_is_no_fault(tmp_path: Path) -> None:
    text = "".join(map(chr, range(1000, 1300)))
    async with flowing(tmp_path, Minds({version(1): text})) as flow:
        await flow.talk(turn("a", answer=text[:100] + "$"))  # 160 tokens are tried, twice 101 and 32 would be too many
        assert (await report(flow)).passed


async def test_prompts_the_version_was_not_trained_on_are_tried_first_and_each_once(tmp_path: Path) -> None:
    settings = PublishSettings(kl_turns=2, probes=2, probe_others=0)
    async with flowing(tmp_path, settings=settings) as flow:
        await flow.talk(turn("again"), turn("twice", "Question again?"), turn("trained"), turn("long", "x" * 5000))
        row = await flow.candidate(1, turns=("trained",))
        await flow.served.load(row)
        await flow.stage.gate.check(row, parent=version(0))
        assert prompts_of(flow.engine)[:2] == ["Question again?", "Question trained?"]
        assert set(prompts_of(flow.engine)[2:]) == set(prompts_of(flow.engine)[:2])  # the base model


async def test_without_prompts_or_with_the_gate_off_nothing_is_tried(tmp_path: Path) -> None:
    async with flowing(tmp_path / "a") as flow:
        assert (await report(flow)).why == "passed the gate: no prompts to try it on yet"
    async with flowing(tmp_path / "b", Minds({version(1): "$"}), PublishSettings(gate=False)) as flow:
        await flow.talk(turn("a"))
        assert (await report(flow)).passed
        assert flow.engine.calls == ["load shared.1"]


def test_the_double_says_something_good() -> None:
    assert not is_loop([ord(letter) for letter in GOOD])


async def test_where_all_prompts_are_long_one_of_them_is_used(tmp_path: Path) -> None:
    """Some clients send thousands of tokens of their own with each request; a version is tried all the same."""
    settings = PublishSettings(probe_prompt_tokens=20, probe_others=0)
    long = "A question that takes more than twenty tokens?"
    async with flowing(tmp_path / "long", Minds(chance={version(1): 0.5}), settings) as flow:
        await flow.talk(turn("a", long), turn("b", long + " Why?"))
        found = await report(flow)
        assert found.metrics["gate_turns"] == 1.0 and found.metrics["gate_kl"] > 0.1
        assert set(prompts_of(flow.engine)) == {long + " Why?"}  # the newest
    async with flowing(tmp_path / "both", Minds(), settings) as flow:
        await flow.talk(turn("a", "Short?"), turn("b", long))
        await report(flow)
        assert set(prompts_of(flow.engine)) == {"Short?"}
