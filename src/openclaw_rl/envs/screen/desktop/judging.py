"""The supported part of OSWorld's evaluators: a file's content or a command's output, compared by simple rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from openclaw_rl.core.message import Json
from openclaw_rl.envs.screen.desktop.client import GuestClient
from openclaw_rl.envs.screen.screen import Judgement
from openclaw_rl.envs.tasks.source import UnsupportedTaskError
from openclaw_rl.errors import TaskError

Rules = Mapping[str, Json]


def _texts(rules: Rules, name: str) -> list[str]:
    value = rules.get(name)
    return [str(one) for one in value] if isinstance(value, list) else [] if value is None else [str(value)]


def _exact(found: str, rules: Rules) -> bool:
    return found.strip() == str(rules.get("expected", "")).strip()


def _includes(found: str, rules: Rules) -> bool:
    includes, excludes = _texts(rules, "include"), _texts(rules, "exclude")
    return all(one in found for one in includes) and not any(one in found for one in excludes)


def _in_list(found: str, rules: Rules) -> bool:
    return str(rules.get("expected", "")) in [line.strip() for line in found.splitlines()]


def _among(found: str, rules: Rules) -> bool:
    return found.strip() in [one.strip() for one in _texts(rules, "expected")]


def _contains(found: str, rules: Rules) -> bool:
    return all(one in found for one in _texts(rules, "expected"))


METRICS: Mapping[str, Callable[[str, Rules], bool]] = {
    "exact_match": _exact,
    "literal_match": _exact,
    "compare_text_file": _exact,
    "check_include_exclude": _includes,
    "is_in_list": _in_list,
    "match_in_list": _among,
    "file_contains": _contains,
}
GETTERS = ("vm_file", "vm_command_line", "vm_terminal_output")


@dataclass(frozen=True, slots=True)
class MetricCheck:
    """One thing compared."""

    metric: str
    result: Rules  # where the result comes from
    rules: Rules

    async def holds(self, guest: GuestClient) -> tuple[bool, str]:
        """Whether the result is as expected, and what was found."""
        found = await got(guest, self.result)
        if found is None:
            return False, f"there is no {self.result.get('path')}"
        return METRICS[self.metric](found, self.rules), f"{self.metric}: found {found[:200]!r}"


@dataclass(frozen=True, slots=True)
class Evaluator:
    """The evaluator of a task."""

    comparisons: tuple[MetricCheck, ...]
    is_any: bool

    async def judgement(self, guest: GuestClient) -> Judgement:
        """1 if all checks pass, or one of them if any is enough."""
        found = [await one.holds(guest) for one in self.comparisons]
        holds = [is_right for is_right, _ in found]
        reward = float(any(holds) if self.is_any else all(holds))
        return Judgement(reward, False, sum(holds) / len(holds), "; ".join(said for _, said in found))


def read_evaluator(value: Json) -> Evaluator:
    """The evaluator of a task's file. UnsupportedTaskError names what is not supported."""
    if not isinstance(value, dict):
        raise TaskError("its `evaluator` is not an object")
    metrics = _many(value.get("func"))
    if value.get("postconfig"):
        raise UnsupportedTaskError("its evaluator has a `postconfig`, which would change what is judged")
    results, expected = _many(value.get("result")), _many(value.get("expected"))
    if not metrics or len(metrics) != len(results):
        raise UnsupportedTaskError(f"its evaluator is `{value.get('func')}` of {len(results)} results")
    comparisons = []
    for at, (metric, result) in enumerate(zip(metrics, results, strict=True)):
        if metric not in METRICS:
            raise UnsupportedTaskError(f"its evaluator is `{metric}`, which is not supported here")
        if not isinstance(result, dict) or result.get("type") not in GETTERS:
            kind = result.get("type") if isinstance(result, dict) else result
            raise UnsupportedTaskError(f"its evaluator looks at `{kind}`, which is not supported here")
        rules = expected[at] if at < len(expected) else {}
        if not isinstance(rules, dict) or rules.get("type") != "rule" or not isinstance(rules.get("rules"), dict):
            raise UnsupportedTaskError("what its evaluator expects is not a rule")
        comparisons.append(MetricCheck(str(metric), result, rules["rules"]))  # type: ignore[arg-type]
    return Evaluator(tuple(comparisons), value.get("conj") == "or")


async def got(guest: GuestClient, source: Rules) -> str | None:
    """The result of a getter, as text."""
    if source.get("type") == "vm_file":
        data = await guest.file(str(source.get("path")))
        return None if data is None else data.decode("utf-8", "replace")
    command = source.get("command")
    words = [str(one) for one in command] if isinstance(command, list) else str(command)
    found = await guest.execute(words, shell=bool(source.get("shell")))
    return str(found.get("output", ""))


def _many(value: Json) -> list[Json]:
    return value if isinstance(value, list) else [] if value is None else [value]
