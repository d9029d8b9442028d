"""Pytest's report of a suite: which tests passed, which failed and how, which were skipped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from xml.etree import ElementTree

REPORT = ".tests-report.xml"
WRITES_REPORT = f"--junitxml={REPORT} -o junit_family=xunit1"  # xunit1 names the file of each test
MOST_BYTES = 64_000_000


@dataclass(frozen=True, slots=True)
class SuiteReport:
    """Tests by pytest's names. A test that passed and then failed to clean up has failed."""

    passed: frozenset[str]
    failed: Mapping[str, str]  # with the first line of the failure
    skipped: frozenset[str]

    @property
    def ran(self) -> int:
        """The number of tests that were not skipped."""
        return len(self.passed) + len(self.failed)


NOTHING = SuiteReport(frozenset(), {}, frozenset())


def read_report(report: bytes) -> SuiteReport:
    """The report from pytest's file; an unreadable file gives an empty one."""
    try:
        cases = [*ElementTree.fromstring(report).iter("testcase")]
    except ElementTree.ParseError:
        return NOTHING
    passed: set[str] = set()
    skipped: set[str] = set()
    failed: dict[str, str] = {}
    for case in cases:
        name = _name(case)
        bad = next((found for kind in ("failure", "error") if (found := case.find(kind)) is not None), None)
        if bad is not None:
            failed.setdefault(name, _how(bad))
        elif case.find("skipped") is not None:
            skipped.add(name)
        else:
            passed.add(name)
    return SuiteReport(frozenset(passed - set(failed)), failed, frozenset(skipped - passed - set(failed)))


def _name(case: ElementTree.Element) -> str:
    """A test's name as pytest accepts it: file, classes and function."""
    file, classname, name = (case.get(key) or "" for key in ("file", "classname", "name"))
    if not file or not classname:  # a module that could not be imported has no tests
        return file or "::".join(part for part in (classname, name) if part)
    module = file.removesuffix(".py").replace("/", ".")
    inner = classname.removeprefix(module).strip(".")
    return "::".join([file, *(inner.split(".") if inner else []), name])


def _how(bad: ElementTree.Element) -> str:
    """The first line of a failure; if pytest only reports that a module could not be read, the reason."""
    said = (bad.get("message") or "").strip()
    if said == "collection failure":
        said = ([line[2:] for line in (bad.text or "").splitlines() if line.startswith("E ")] or [said])[-1]
    return " ".join(said.split("\n", 1)[0].split())
