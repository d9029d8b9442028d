"""A library's suite run in boxes: unchanged, and with a bug in it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from openclaw_rl.envs.box.sandbox import Boxes, ExecResult, KilledBy, Snapshot
from openclaw_rl.envs.software.bugs import Bug
from openclaw_rl.envs.software.library import Library
from openclaw_rl.envs.tasks.repos import RESOURCES, see_pytest
from openclaw_rl.envs.tasks.source import in_a_box, spec_of
from openclaw_rl.envs.tasks.suites import MOST_BYTES, NOTHING, REPORT, WRITES_REPORT, SuiteReport, read_report
from openclaw_rl.errors import BoxError, TaskError

MOST_FAILED = 12
MOST_LEFT_OUT = 40  # tests, and at most half of all: a suite that needs more cannot be trusted
LEAST_S = 30.0  # the machine may be busy
TIMES = 10.0  # a run with a bug may take this many times as long as the whole suite
ENV = {"PYTHONNOUSERSITE": "1"}


class BugOutcome(StrEnum):
    """The outcome of a bug."""

    KEPT = "kept"
    UNNOTICED = "no test fails"
    TOO_MANY = f"more than {MOST_FAILED} tests fail"
    NOT_RUN = "the suite does not run"
    TOO_LONG = "the suite takes too long"
    UNSTEADY = "other tests fail the second time"


@dataclass(frozen=True, slots=True)
class SuiteBaseline:
    """A library whose suite passes: its files as a snapshot, and how long it takes."""

    at: Snapshot
    test_cmd: str
    passed: int
    left_out: tuple[str, ...]  # tests that fail here without a bug
    seconds: float


async def baseline_of(library: Library, boxes: Boxes, *, most_s: float) -> SuiteBaseline:
    """The unchanged suite, run twice; failing tests are left out. TaskError if too little passes or it is slow."""
    spec = spec_of(RESOURCES)
    box = await boxes.create(spec)
    try:
        await see_pytest(box)
        await box.upload(library.tree, ".")
        at = await box.snapshot()
    finally:
        await box.aclose()
    base = SuiteBaseline(at, library.test_cmd, 0, (), most_s)
    for _ in range(3):
        done, report = await _run(base, boxes, {}, timeout_s=most_s, options="--continue-on-collection-errors")
        _see_enough(library, done, report, base, most_s=most_s)
        if not report.failed and done.is_ok:
            if len(report.passed) == base.passed:
                return replace(base, seconds=done.duration_s)
            base = replace(base, passed=len(report.passed))
            continue
        left_out = (*base.left_out, *sorted(report.failed))
        base = replace(base, left_out=left_out, test_cmd=_without(library.test_cmd, left_out), passed=0)
        done, report = await _run(base, boxes, {}, timeout_s=most_s)
        base = replace(base, passed=len(report.passed))
    raise TaskError(
        f"two runs of the suite of {library.name} give different results", fix="name a part of it with --tests"
    )


def _see_enough(library: Library, done: ExecResult, report: SuiteReport, base: SuiteBaseline, *, most_s: float) -> None:
    if done.killed_by is KilledBy.TIMEOUT:
        raise TaskError(
            f"the suite of {library.name} takes more than {most_s:g} s", fix="name a quick part of it with --tests"
        )
    bad = len(report.failed) + len(base.left_out)
    if not report.passed or bad > min(MOST_LEFT_OUT, len(report.passed)):
        said = "; ".join(dict.fromkeys(report.failed.values())) or (done.stdout.text + done.stderr.text).strip()[-300:]
        raise TaskError(
            f"the suite of {library.name} does not pass as it is: {len(report.passed)} pass, {bad} fail: {said[:400]}",
            fix="what it imports must be on this machine for the system's Python, or name a part with --tests",
        )


def _without(command: str, left_out: tuple[str, ...]) -> str:
    words = [f"--deselect={name}" if "::" in name else f"--ignore={name}" for name in left_out]
    return " ".join([command, *map(shlex.quote, words)])


async def try_bug(base: SuiteBaseline, boxes: Boxes, path: str, text: str, bug: Bug) -> tuple[BugOutcome, SuiteReport]:
    """The suite's result for a bug; it runs twice if the bug seems usable."""
    files = {path: bug.put_into(text)}
    outcome, report = await _once(base, boxes, files)
    if outcome is not BugOutcome.KEPT:
        return outcome, report
    again, second = await _once(base, boxes, files)
    same = again is BugOutcome.KEPT and set(second.failed) == set(report.failed)
    return (BugOutcome.KEPT if same else BugOutcome.UNSTEADY), report


async def _once(base: SuiteBaseline, boxes: Boxes, files: Mapping[str, str]) -> tuple[BugOutcome, SuiteReport]:
    timeout_s = max(LEAST_S, TIMES * base.seconds)
    done, report = await _run(base, boxes, files, timeout_s=timeout_s, options=f"--maxfail={MOST_FAILED + 1}")
    if done.killed_by is not None:
        return BugOutcome.TOO_LONG if done.killed_by is KilledBy.TIMEOUT else BugOutcome.NOT_RUN, report
    if len(report.failed) > MOST_FAILED:
        return BugOutcome.TOO_MANY, report
    if any("::" not in name for name in report.failed) or not report.ran or (not report.failed and not done.is_ok):
        return BugOutcome.NOT_RUN, report
    return (BugOutcome.KEPT if report.failed else BugOutcome.UNNOTICED), report


async def _run(
    base: SuiteBaseline, boxes: Boxes, files: Mapping[str, str], *, timeout_s: float, options: str = ""
) -> tuple[ExecResult, SuiteReport]:
    box = await boxes.create(spec_of(RESOURCES), at=base.at)
    try:
        for path, text in files.items():
            await box.write(path, text.encode())
        command = f"{base.test_cmd} {WRITES_REPORT} {options}"
        done = in_a_box(await box.exec(command, timeout_s=timeout_s, env=ENV))
        try:
            return done, read_report(await box.read(REPORT, most_bytes=MOST_BYTES))
        except (FileNotFoundError, BoxError):
            return done, NOTHING
    finally:
        await box.aclose()
