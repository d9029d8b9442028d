"""Exercises in software: a small module with one or two wrong lines, and tests that fail. Written as JSON lines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from openclaw_rl.core.message import Json
from openclaw_rl.tiny.agent.exercise import SUBMIT, Exercise, Family, Move, Setting, bash, words

PAIRS = (("a", "b"), ("x", "y"), ("left", "right"), ("first", "second"))
LISTS = ("items", "values", "numbers", "things")
# Correct functions to put next to a wrong one; none contains the text that a repair replaces.
OTHERS = (
    "def greet(name):\n    return 'hello ' + name\n",
    "def is_none(value):\n    return value is None\n",
    "def wrap(text):\n    return '(' + text + ')'\n",
    "def pair(one):\n    return [one, one]\n",
)


@dataclass(frozen=True, slots=True)
class Fault:
    """A function whose only line is wrong: its head, the right line, the wrong ones, and a call with its result."""

    family: str
    head: str
    right: str
    bug: str
    others: tuple[str, ...]  # further wrong lines, other than `bug`
    call: tuple[str, str]  # arguments, and the result that the right line gives
    checks: tuple[str, ...] = ()  # further expressions that must be true

    @property
    def name(self) -> str:
        """The function's name."""
        return self.head.partition("(")[0]

    @property
    def variables(self) -> set[str]:
        """The names of its arguments."""
        return set(self.head.partition("(")[2].rstrip(")").split(", "))

    @property
    def wanted(self) -> str:
        """The call and its right result, as a comparison in Python."""
        arguments, should = self.call
        return f"{self.name}({arguments}) == {should}"

    def text(self, line: str) -> str:
        """The source of the function with this line as its body."""
        return f"def {self.head}:\n    return {line}\n"


FaultMaker = Callable[[Random], Fault]


def _fault(
    rng: Random,
    family: str,
    head: str,
    options: Sequence[str],
    *,
    right: str,
    call: tuple[str, str],
    checks: Sequence[str] = (),
) -> Fault:
    """A fault whose wrong line is a random one of the options other than `right`."""
    bug = rng.choice([option for option in options if option != right])
    others = tuple(option for option in options if option not in (right, bug))
    return Fault(family, head, right, bug, others, call, tuple(checks))


def _exercise(rng: Random, faults: Sequence[Fault]) -> Exercise:
    """The exercise of a module in which these one or two functions are wrong."""
    module = words(rng, 1)[0]
    file = f"{module}.py"
    lines = [fault.bug for fault in faults]
    order = rng.sample(range(len(faults)), len(faults))
    other = [rng.choice(OTHERS)] if len(faults) == 1 else []
    place = rng.randint(0, 1)

    def source(lines: Sequence[str]) -> str:
        parts = [faults[number].text(lines[number]) for number in order]
        return "\n\n".join([*parts[:place], *other, *parts[place:]])

    def moves(fixes: Sequence[str], flag: str = " -i") -> tuple[Move, ...]:
        """Shows the file, makes each repair and submits. Without the flag a repair is only printed, not written."""
        found, now = [bash(f"cat {file}", source(lines))], list(lines)
        for number, (fault, fix) in enumerate(zip(faults, fixes, strict=False)):
            now[number] = fix
            found.append(bash(_sed(flag, fault.bug, fix, file), "" if flag else source(now)))
        return (*found, SUBMIT)

    right, *wrong = map(moves, _fixes(rng, faults))
    attempts = (right, moves([faults[0].right], flag=""), *wrong)
    checks = {f"check_{fault.name}.py": _test(module, fault) for fault in faults}
    commands = [f"python3 {name}" for name in checks]
    material: dict[str, Json] = {
        "family": faults[0].family,
        "instruction": _asked(rng, faults, file),
        "files": {file: source(lines)},
        "gold": {file: source([fault.right for fault in faults])},
        "tests": {**checks},
        "test_cmd": commands[0] if len(commands) == 1 else [*commands],
    }
    return Exercise(Setting.SOFTWARE, faults[0].family, str(material["instruction"]), attempts, material)


def _asked(rng: Random, faults: Sequence[Fault], file: str) -> str:
    names = " and ".join(fault.name for fault in faults)
    shown = ", ".join(f"{fault.name}({fault.call[0]}) should be {fault.call[1]}" for fault in faults)
    wrong = "is wrong" if len(faults) == 1 else "are wrong"
    return rng.choice((f"{names} in {file} {wrong}: {shown}. Mend {'it' if len(faults) == 1 else 'them'}.",
                       f"Mend {names} in {file}. {shown}."))  # fmt: skip


def _fixes(rng: Random, faults: Sequence[Fault]) -> list[tuple[str, ...]]:
    """The lines that each attempt puts in: first all right ones; then with one wrong line, or with too few lines."""
    right = tuple(fault.right for fault in faults)
    found = [right]
    for number, fault in enumerate(faults):
        others = fault.others if len(faults) == 1 else [rng.choice(fault.others)]
        found += [(*right[:number], other, *right[number + 1 :]) for other in others]
    return [*found, *(right[:number] for number in range(len(faults)))]


def _test(module: str, fault: Fault) -> str:
    lines = "".join(f"assert {check}\n" for check in (fault.wanted, *fault.checks))
    return f"from {module} import {fault.name}\n\n{lines}"


def lesson(rng: Random) -> str:
    """Five correct functions, from which the model learns what the names mean."""
    faults = [rng.choice(_ALL)(rng) for _ in range(5)]
    return "\n\n".join(fault.text(fault.right) for fault in faults)


def looked_up(rng: Random) -> tuple[str, list[tuple[str, list[str]]]]:
    """A module of wrong functions, and requests to mend one or two of them, each with the lines to replace.

    The lines are as in a repair's command. It is only to be found which line belongs to which function; each is asked
    for once, or it could be copied from the answer before.
    """
    faults: dict[str, Fault] = {}
    count = rng.randint(2, 6)
    while len(faults) < count:
        fault = rng.choice(_ALL)(rng)
        faults.setdefault(fault.name, fault)
    order, file = [*faults.values()], f"{words(rng, 1)[0]}.py"
    source = "\n\n".join(fault.text(fault.bug) for fault in order)
    rng.shuffle(order)
    requests = []
    while order:
        count = rng.randint(1, 2)
        some, order = order[:count], order[count:]
        names = " and ".join(fault.name for fault in some)
        asked = _asked(rng, some, file) if rng.random() < 0.5 else f"Mend {names}."
        requests.append((asked, [_pattern(fault.bug) for fault in some]))
    return source, requests


def _pattern(old: str) -> str:
    """A text as a pattern for sed: characters that are special there become dots."""
    return "".join("." if letter in "*[]." else letter for letter in old)


def _sed(flag: str, old: str, new: str, file: str) -> str:
    """The command that replaces a text which occurs once."""
    return f"sed{flag} 's|{_pattern(old)}|{new}|' {file}"


def _operator(rng: Random) -> Fault:
    """A function with the wrong arithmetic operator."""
    one, two = rng.choice(PAIRS)
    signs = {"add": "+", "minus": "-", "times": "*", "rest": "%"}
    name = rng.choice(tuple(signs))
    options = [f"{one} {sign} {two}" for sign in "+-*%"]
    right = f"{one} {signs[name]} {two}"
    results: dict[str, int] = {}
    while len(set(results.values())) < 4:  # until each operator gives another result
        big, small = rng.randint(10, 30), rng.randint(3, 9)
        results = {"+": big + small, "-": big - small, "*": big * small, "%": big % small}
    call = (f"{big}, {small}", str(results[signs[name]]))
    return _fault(rng, "operator", f"{name}({one}, {two})", options, right=right, call=call)


def _builtin(rng: Random) -> Fault:
    """A function with the wrong built-in function of a list."""
    names = {"largest": "max", "smallest": "min", "total": "sum"}
    held, name = rng.choice(LISTS), rng.choice(tuple(names))
    numbers = rng.sample(range(4, 30), 3)
    results = {"max": max(numbers), "min": min(numbers), "sum": sum(numbers)}
    options = [f"{function}({held})" for function in results]
    right = f"{names[name]}({held})"
    call = (str(numbers), str(results[names[name]]))
    return _fault(rng, "builtin", f"{name}({held})", options, right=right, call=call)


def _index(rng: Random) -> Fault:
    """A function with the wrong index of a list."""
    names = {"first": "0", "second": "1", "last": "-1"}
    held, name = rng.choice(LISTS), rng.choice(tuple(names))
    numbers = rng.sample(range(2, 30), 4)
    options = [f"{held}[{place}]" for place in names.values()]
    call = (str(numbers), str(numbers[int(names[name])]))
    return _fault(rng, "index", f"{name}({held})", options, right=f"{held}[{names[name]}]", call=call)


def _compare(rng: Random) -> Fault:
    """A function with the wrong comparison."""
    one, two = rng.choice(PAIRS)
    names = {"is_more": ">", "is_less": "<", "is_same": "=="}
    name, (low, high) = rng.choice(tuple(names)), sorted(rng.sample(range(2, 30), 2))
    options = [f"{one} {sign} {two}" for sign in (">", "<", "==")]
    should, numbers = "True", (high, low)
    if names[name] == "<":
        numbers = (low, high)
    elif names[name] == "==":
        numbers = (high, high)
    # The checks together distinguish the right comparison from each of the others.
    more = {">": ((low, high), (low, low)), "<": ((high, low), (low, low)), "==": ((low, high), (high, low))}
    return _fault(
        rng,
        "compare",
        f"{name}({one}, {two})",
        options,
        right=f"{one} {names[name]} {two}",
        call=(_commas(numbers), should),
        checks=[f"{name}({_commas(each)}) == False" for each in more[names[name]]],
    )


def _commas(numbers: tuple[int, int]) -> str:
    return f"{numbers[0]}, {numbers[1]}"


def _method(rng: Random) -> Fault:
    """A function with the wrong method of a string."""
    names = {"shout": "upper", "whisper": "lower", "tidy": "strip"}
    name, held = rng.choice(tuple(names)), rng.choice(("text", "word", "line"))
    (one,) = words(rng, 1)
    said = {"upper": one, "lower": one.upper(), "strip": f" {one} "}[names[name]]
    should = {"upper": said.upper(), "lower": said.lower(), "strip": said.strip()}
    options = [f"{held}.{each}()" for each in names.values()]
    call = (f"'{said}'", f"'{should[names[name]]}'")
    return _fault(rng, "method", f"{name}({held})", options, right=f"{held}.{names[name]}()", call=call)


def _factor(rng: Random) -> Fault:
    """A function with the wrong factor."""
    names = {"double": 2, "triple": 3, "days": 7, "hours": 24}
    name, held, number = rng.choice(tuple(names)), rng.choice(("n", "count", "amount")), rng.randint(2, 9)
    options = [f"{held} * {each}" for each in names.values()]
    call = (str(number), str(number * names[name]))
    return _fault(rng, "factor", f"{name}({held})", options, right=f"{held} * {names[name]}", call=call)


def _order(rng: Random) -> Fault:
    """A function that returns a list in the wrong order."""
    names = {"rising": "sorted({})", "falling": "sorted({}, reverse=True)", "backwards": "list(reversed({}))"}
    held, name = rng.choice(LISTS), rng.choice(tuple(names))
    numbers = rng.sample(range(2, 30), 3)
    while numbers[::-1] in (sorted(numbers), sorted(numbers, reverse=True)):
        rng.shuffle(numbers)
    results = {
        "rising": sorted(numbers),
        "falling": sorted(numbers, reverse=True),
        "backwards": numbers[::-1],
    }
    options = [each.format(held) for each in names.values()]
    call = (str(numbers), str(results[name]))
    return _fault(rng, "order", f"{name}({held})", options, right=names[name].format(held), call=call)


_MADE: dict[str, FaultMaker] = {
    "operator": _operator,
    "builtin": _builtin,
    "index": _index,
    "compare": _compare,
    "method": _method,
    "factor": _factor,
}
_ALL = (*_MADE.values(), _order)


def _family(first: FaultMaker, others: Sequence[FaultMaker]) -> Family:
    """Modules with a fault of the first kind; half of them also have one of another kind."""

    def made(rng: Random) -> Exercise:
        fault = first(rng)
        if rng.random() < 0.5:
            return _exercise(rng, [fault])
        second = rng.choice(others)(rng)
        while second.name == fault.name or second.variables & fault.variables:  # each bug occurs in one line
            second = rng.choice(others)(rng)
        return _exercise(rng, [fault, second])

    return made


FAMILIES: dict[str, Family] = {
    name: _family(maker, [other for other in _MADE.values() if other is not maker]) for name, maker in _MADE.items()
}
HELD_BACK: dict[str, Family] = {"order": _family(_order, [_order])}
