"""The gate looks at the wishes of the step's own hints and of earlier ones, praise, tasks, length and repetition."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from publish_doubles import END, Flow, Minds, flowing, letters, turn, version, write_adapter

from openclaw_rl.core.hint import Hint
from openclaw_rl.core.message import Role, message
from openclaw_rl.core.next_state import NextState, NextStateSource
from openclaw_rl.core.sample import HintPrompt, Sample
from openclaw_rl.core.turn import Turn
from openclaw_rl.core.verdict import Verdict, VerdictSource
from openclaw_rl.errors import ConfigError
from openclaw_rl.publish.gate import GateReport
from openclaw_rl.publish.replies import repetition
from openclaw_rl.publish.settings import PublishSettings
from openclaw_rl.publish.tasks import TaskProbe, read_tasks
from openclaw_rl.publish.wishes import still_wished
from openclaw_rl.store.rows import StepRecord, VersionRow, VersionStatus

PLAIN, BRIEF = "Write in plain sentences.", "Name the river first."
SETTINGS = PublishSettings(kl_turns=0, probes=0)


def sample_of(said: Turn, hint: str = "", score: float | None = -1.0) -> Sample:
    hints = (HintPrompt(hint, (*said.prompt.tokens, *map(ord, hint))),) if hint else ()
    many = len(said.completion.tokens)
    return Sample(
        said.id, "s1", "ann", said.prompt.tokens, said.completion.tokens, said.completion.logp, (True,) * many,
        said.completion.version, score=score, hints=hints,
    )  # fmt: skip


async def trained(flow: Flow, number: int, *taught: tuple[str, str, float]) -> VersionRow:
    """A candidate from turns with (name, hint, score)."""
    for name, hint, score in taught:
        said = turn(name)
        await flow.talk(said)
        await flow.store.pair(NextState(name, (message(Role.USER, "no"),), NextStateSource.USER))
        hints = (Hint(hint),) if hint else ()
        await flow.store.judge(Verdict(name, int(score), VerdictSource.VOTES, hints=hints))
        await flow.store.admit(sample_of(said, hint, score))
    names = tuple(name for name, _, _ in taught)
    made, since = version(number), version(number - 1)
    adapter = write_adapter(flow.home, made, since)
    row = VersionRow(made, since, adapter.folder, adapter.digest, VersionStatus.CANDIDATE, "", 1.0, names)
    await flow.store.commit_step(StepRecord(f"step {made}", 1.0, 2.0, names, (), {}, row))
    return row


async def report(flow: Flow, row: VersionRow) -> GateReport:
    await flow.served.load(row)
    return await flow.stage.gate.check(row, parent=flow.served.current())


async def test_a_version_further_from_its_own_hints_is_refused_and_one_nearer_is_not(tmp_path: Path) -> None:
    # The base gives its likeliest token 0.9 and the next 0.05; at 0.5 and 0.25 the base is
    # 0.9 ln(0.9/0.5) + 0.05 ln(0.05/0.25) + 0.05 ln(0.05/0.25) = 0.5290 - 0.0805 - 0.0805 = 0.368 nats away
    async with flowing(tmp_path / "a", Minds(chance={version(1): 0.5}), SETTINGS) as flow:
        found = await report(flow, await trained(flow, 1, ("a", PLAIN, -1.0)))
        assert found.metrics["gate_wish"] == pytest.approx(0.368, abs=1e-3)
        assert found.metrics["gate_wish_before"] == pytest.approx(0.0, abs=1e-9)
        assert (found.passed, found.why) == (
            False,
            "it is further from what its own hints ask for: 0.37 nats a token, 0.00 before",
        )
    async with flowing(tmp_path / "b", Minds(chance={version(1): 0.5}), SETTINGS) as flow:
        await flow.publish(1)
        found = await report(flow, await trained(flow, 2, ("a", PLAIN, -1.0)))
        assert found.passed
        assert found.metrics["gate_wish_before"] > 0.36 > found.metrics["gate_wish"]


async def test_a_version_that_gives_up_more_of_earlier_wishes_than_it_wins_is_refused(tmp_path: Path) -> None:
    async with flowing(tmp_path, Minds(chance={version(2): 0.5}), SETTINGS) as flow:
        await flow.store.settle((await trained(flow, 1, ("a", PLAIN, -1.0))).version, VersionStatus.REFUSED, "", {})
        row = await flow.candidate(2, parent=0)
        found = await report(flow, row)
        assert (found.passed, found.why) == (
            False,
            "it is further from what earlier hints ask for: 0.37 nats a token, 0.00 before",
        )


async def test_a_wish_behind_a_long_prompt_is_measured_too(tmp_path: Path) -> None:
    settings = replace(SETTINGS, probe_prompt_tokens=4)
    async with flowing(tmp_path, Minds(chance={version(1): 0.5}), settings) as flow:
        found = await report(flow, await trained(flow, 1, ("a", PLAIN, -1.0), ("b", PLAIN, -1.0)))
        assert found.metrics["gate_wish"] == pytest.approx(0.368, abs=1e-3) and not found.passed
        assert flow.engine.calls.count("score shared.1") == 1  # one of them alone is read


def test_a_wish_that_is_taken_up_anew_or_turned_around_is_no_earlier_one() -> None:
    kept = [sample_of(turn("a"), PLAIN), sample_of(turn("b"), BRIEF), sample_of(turn("c"))]
    assert [one.turn for one in still_wished(kept, [sample_of(turn("d"), "Never write in plain sentences.")])] == ["b"]
    assert [one.turn for one in still_wished(kept, [])] == ["a", "b"]


@pytest.mark.parametrize(("score", "passes"), [(-1.0, True), (1.0, False)])
async def test_praised_replies_become_no_less_likely(tmp_path: Path, score: float, passes: bool) -> None:
    async with flowing(tmp_path, Minds(chance={version(1): 0.5}), SETTINGS) as flow:
        found = await report(flow, await trained(flow, 1, ("a", "", score)))
        # each token goes from ln 0.9 to ln 0.5, by -0.588
        assert found.metrics["gate_approval"] == pytest.approx(-0.588 * score, abs=1e-3)
        assert found.passed is passes


@pytest.mark.parametrize(
    ("says", "why"),
    [
        ("It is four, and here is more of it.$", "its trial replies have 36 tokens, 7 before; 28 are allowed"),
        ("abcdabcdabcdabcd$", "64% of its trial replies repeats itself, 0% before"),
    ],
)
async def test_replies_that_grow_or_repeat_themselves_are_refused(tmp_path: Path, says: str, why: str) -> None:
    given = "Four .$" if "four" in says else "abcdefghijklmnopq$"
    async with flowing(tmp_path, Minds({version(1): says})) as flow:
        await flow.talk(turn("a", answer=given), turn("b", answer=given))
        found = await report(flow, await flow.candidate(1))
        assert (found.passed, found.why) == (False, why)


def test_repetition_is_the_share_of_runs_that_stood_there_before() -> None:
    assert repetition([1, 2, 3, 4, 1, 2, 3, 4]) == pytest.approx(1 / 5)  # of five runs the last is the first
    assert repetition([1, 2, 3]) == 0.0


def tasks_file(folder: Path, many: int = 10) -> Path:
    path = folder / "tasks.jsonl"
    path.write_text("\n".join(json.dumps({"prompt": f"{n}?", "expect": r"\bfour\b"}) for n in range(many)) + "\n\n")
    return path


async def test_a_version_that_does_fewer_probe_tasks_is_refused_and_a_slow_loss_too(tmp_path: Path) -> None:
    minds = Minds({version(2): "It is five.$"})
    async with flowing(tmp_path, minds, SETTINGS) as flow:
        probe = TaskProbe(flow.engine, letters(), (END,), read_tasks(tasks_file(tmp_path)), 50)
        flow.stage.gate = replace(flow.stage.gate, tasks=probe)
        await flow.publish(1)
        assert (await flow.row(1)).metrics["gate_tasks"] == 1.0
        row = await flow.candidate(2)
        assert await flow.stage.once()
        assert (await flow.row(2)).why == "it does 0% of 10 probe tasks, 100% were done before"
        assert row.version not in flow.engine.loaded
        before = len(flow.engine.calls)
        assert await probe.share(version(1)) == 1.0
        assert len(flow.engine.calls) == before  # what is known is not asked again
        # The served version does no better now, but one before it did
        minds.says[version(1)] = "It is five.$"
        probe._known.clear()
        minds.says[version(3)] = "It is five.$"
        await flow.candidate(3, parent=1)
        assert await flow.stage.once()
        assert (await flow.row(3)).why == "it does 0% of 10 probe tasks, 100% were done before"


@pytest.mark.parametrize("line", ["what?", '{"prompt": "x"}', '{"prompt": "x", "expect": "("}', "[]"])
def test_a_file_of_probe_tasks_that_holds_something_else_is_named_with_its_line(tmp_path: Path, line: str) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_text('{"prompt": "x", "expect": "y"}\n' + line)
    with pytest.raises(ConfigError, match="line 2 of"):
        read_tasks(path)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_tasks(tmp_path / "none")
