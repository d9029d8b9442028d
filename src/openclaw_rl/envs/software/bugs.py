"""Bugs that can be put into Python code: small changes to a function, found in its syntax tree."""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

CONTEXT_LINES = 2


class BugKind(StrEnum):
    """What a bug changes."""

    COMPARE = "compare"
    ARITHMETIC = "arithmetic"
    BOOLEAN = "boolean"
    CONSTANT = "constant"
    NOT = "not"  # the `not` is dropped
    RETURN = "return"  # None in place of a value


@dataclass(frozen=True, slots=True)
class Bug:
    """A change of the bytes from `start` to `end` of a file in UTF-8."""

    kind: BugKind
    function: str  # qualified with the classes and functions around it
    line: int
    start: int
    end: int
    new: str

    def put_into(self, text: str) -> str:
        """The text with the bug in it."""
        data = text.encode()
        return (data[: self.start] + self.new.encode() + data[self.end :]).decode()


COMPARISONS: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.In: ("in", "not in"),
    ast.NotIn: (r"not\s+in", "in"),
    ast.Is: ("is", "is not"),
    ast.IsNot: (r"is\s+not", "is"),
}
OPERATORS: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "+"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "//"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"),
}


def bugs_in(text: str) -> list[Bug]:
    """Every bug that can be put into a file's functions, in the order of the text. Empty if it cannot be parsed."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return []
    if "\r" in text or not text.endswith("\n"):
        return []  # not every tool reads a patch of such a file
    found = [bug for name, function in _functions(tree, "") for bug in _Finder(text, name).bugs(function)]
    return sorted((bug for bug in found if _is_python(bug.put_into(text))), key=lambda bug: (bug.start, bug.new))


def patch_of(path: str, before: str, after: str) -> str:
    """The change as a patch for `patch -p1`."""
    old, new = (text.splitlines(keepends=True) for text in (before, after))
    return "".join(difflib.unified_diff(old, new, f"a/{path}", f"b/{path}", n=CONTEXT_LINES))


def _functions(node: ast.AST, above: str) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for inner in ast.iter_child_nodes(node):
        if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{above}{inner.name}", inner
        if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from _functions(inner, f"{above}{inner.name}.")
        else:
            yield from _functions(inner, above)


def _own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """A function's nodes, except nested functions and classes, f-strings and annotations."""
    left_out = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda, ast.JoinedStr)
    for name, value in ast.iter_fields(node):
        for inner in value if isinstance(value, list) else [value]:
            if isinstance(inner, ast.AST) and not isinstance(inner, left_out) and name != "annotation":
                yield inner
                yield from _own_nodes(inner)


class _Finder:
    """Finds the bugs of one function."""

    def __init__(self, text: str, function: str) -> None:
        self._data = text.encode()
        self._function = function
        starts = [0]
        for line in self._data.split(b"\n"):
            starts.append(starts[-1] + len(line) + 1)
        self._starts = starts

    def bugs(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[Bug]:
        for statement in function.body:
            if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                continue
            for node in (statement, *_own_nodes(statement)):
                yield from self._of(node)

    def _of(self, node: ast.AST) -> Iterator[Bug]:
        if isinstance(node, ast.Compare):
            for left, op, right in zip([node.left, *node.comparators], node.ops, node.comparators, strict=False):
                yield from self._between(BugKind.COMPARE, left, right, COMPARISONS[type(op)], is_pattern=True)
        elif isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) in OPERATORS:
            left, right = (node.left, node.right) if isinstance(node, ast.BinOp) else (node.target, node.value)
            old, new = OPERATORS[type(node.op)]
            change = (old, new) if isinstance(node, ast.BinOp) else (f"{old}=", f"{new}=")
            yield from self._between(BugKind.ARITHMETIC, left, right, change)
        elif isinstance(node, ast.BoolOp):
            change = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
            for left, right in zip(node.values, node.values[1:], strict=False):
                yield from self._between(BugKind.BOOLEAN, left, right, change)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            start, end = self._start(node), self._start(node.operand)
            if re.fullmatch(rb"not\s+\(*", self._data[start:end]):
                brackets = self._data[start:end].count(b"(")
                yield self._bug(BugKind.NOT, node.lineno, start, end, "(" * brackets)
        elif isinstance(node, ast.Constant):
            yield from self._constant(node)
        elif isinstance(node, ast.Return) and node.value is not None and not _is_none(node.value):
            start = self._start(node) + len("return")
            yield self._bug(BugKind.RETURN, node.lineno, start, self._end(node), " None")

    def _constant(self, node: ast.Constant) -> Iterator[Bug]:
        if isinstance(node.value, bool):
            yield self._bug(BugKind.CONSTANT, node.lineno, self._start(node), self._end(node), str(not node.value))
        elif isinstance(node.value, int):
            yield self._bug(BugKind.CONSTANT, node.lineno, self._start(node), self._end(node), str(node.value + 1))

    def _between(
        self, kind: BugKind, left: ast.expr, right: ast.expr, change: tuple[str, str], *, is_pattern: bool = False
    ) -> Iterator[Bug]:
        """The operator between two operands, if only brackets and space surround it."""
        start, end = self._end(left), self._start(right)
        old, new = change
        pattern = old if is_pattern else re.escape(old)
        found = re.fullmatch(rf"[\s)\\]*({pattern})[\s(\\]*".encode(), self._data[start:end])
        if found is not None:
            yield self._bug(kind, right.lineno, start + found.start(1), start + found.end(1), new)

    def _bug(self, kind: BugKind, line: int, start: int, end: int, new: str) -> Bug:
        return Bug(kind, self._function, line, start, end, new)

    def _start(self, node: ast.expr | ast.stmt) -> int:
        return self._starts[node.lineno - 1] + node.col_offset

    def _end(self, node: ast.expr | ast.stmt) -> int:
        assert node.end_lineno is not None and node.end_col_offset is not None  # a parsed tree has them
        return self._starts[node.end_lineno - 1] + node.end_col_offset


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _is_python(text: str) -> bool:
    try:
        compile(text, "<bug>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    return True
