"""The sizes STYLE.md allows, and nothing in the project that belongs to one machine."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.house import names_twice

ROOT = Path(__file__).parent.parent
MOST_LINES_OF_A_FILE = 400
MOST_LINES_OF_A_FUNCTION = 60
MOST_POSITIONAL = 5
FOLDERS = ("src", "benchmarks", "examples", "tests")
# Folders of tests that are not a room: whole loops, what all kinds of a part must do, the examples, other programs,
# and the package as it is installed.
NOT_ROOMS = {"flow", "contracts", "examples", "node", "openclaw", "clients", "package"}


def _sources() -> list[Path]:
    return sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))


def _functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def _faults(path: Path) -> Iterator[str]:
    """What of a file is larger than allowed."""
    text = path.read_text("utf-8")
    if len(text.splitlines()) > MOST_LINES_OF_A_FILE:
        yield f"{path}: {len(text.splitlines())} lines"
    for function in _functions(ast.parse(text)):
        assert function.end_lineno is not None
        length = function.end_lineno - function.lineno + 1
        if length > MOST_LINES_OF_A_FUNCTION:
            yield f"{path}: {function.name} has {length} lines"
        positional = [argument.arg for argument in function.args.args if argument.arg not in ("self", "cls")]
        is_kernel = any("triton.jit" in ast.unparse(one) for one in function.decorator_list)  # has no keywords
        if "tests" not in path.parts and not is_kernel and len(positional) > MOST_POSITIONAL:
            yield f"{path}: {function.name} takes {positional}"


@pytest.mark.parametrize("folder", FOLDERS)
def test_files_and_functions_are_of_a_size_a_reader_can_hold(folder: str) -> None:
    assert [fault for path in sorted((ROOT / folder).rglob("*.py")) for fault in _faults(path)] == []


def test_a_class_name_is_defined_in_one_module() -> None:
    assert names_twice() == {}


def test_nothing_names_a_package_registry_or_a_place_on_the_machine_it_was_written_on() -> None:
    forbidden = ["/wo" + "rk/", "pypi" + ".org", "npm" + "js", "files.python" + "hosted", "huggingface" + ".co/"]
    for path in [*_sources(), *ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "Makefile", ROOT / ".ci/run"]:
        text = path.read_text("utf-8")
        for word in forbidden:
            assert word not in text, f"{path} names {word}"


def test_tests_stand_in_the_folder_of_the_room_they_test() -> None:
    """Under a name that says which behaviour; a room's modules may come and go without them."""
    package = ROOT / "src" / "openclaw_rl"
    rooms = {path.parent.name for path in package.glob("*/__init__.py")}
    folders = {path.relative_to(ROOT / "tests").parts[0] for path in (ROOT / "tests").rglob("*.py")}
    about_the_whole = {"test_house.py", "test_layout.py", "test_documents.py"}
    assert folders - about_the_whole <= rooms | NOT_ROOMS
    assert about_the_whole <= folders


def test_no_two_files_of_tests_have_one_name() -> None:
    """Without packages, pytest knows a module by its name alone."""
    names = Counter(path.name for path in (ROOT / "tests").rglob("*.py") if path.name != "conftest.py")
    assert [name for name, count in names.items() if count > 1] == []
