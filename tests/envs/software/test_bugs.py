"""Bugs found in code, and what a library is made of."""

from __future__ import annotations

import ast
import os
import subprocess
from pathlib import Path

import pytest
from small_library import CODE, lay_library

from openclaw_rl.envs.software.bugs import Bug, BugKind, bugs_in, patch_of
from openclaw_rl.envs.software.injecting import Naming, instruction_of
from openclaw_rl.envs.software.library import take_library
from openclaw_rl.errors import ConfigError, TaskError


@pytest.mark.parametrize(
    ("line", "kind", "after"),
    [
        ("return a < b", BugKind.COMPARE, "return a <= b"),
        ("return a not  in b", BugKind.COMPARE, "return a in b"),
        ("return (a) is (b)", BugKind.COMPARE, "return (a) is not (b)"),
        ("return a - b", BugKind.ARITHMETIC, "return a + b"),
        ("a += b", BugKind.ARITHMETIC, "a -= b"),
        ("return 'é' and b", BugKind.BOOLEAN, "return 'é' or b"),
        ("return a[1]", BugKind.CONSTANT, "return a[2]"),
        ("return f(a, True)", BugKind.CONSTANT, "return f(a, False)"),
        ("return not a", BugKind.NOT, "return a"),
        ("return a", BugKind.RETURN, "return None"),
        ("return (a\n        or b)", BugKind.RETURN, "return None"),
    ],
)
def test_each_kind_of_bug_changes_its_few_characters(line: str, kind: BugKind, after: str) -> None:
    text = f"def f(a, b):\n    {line}\n"
    made = [bug.put_into(text) for bug in bugs_in(text) if bug.kind is kind]
    assert made == [f"def f(a, b):\n    {after}\n"]


def test_what_is_no_functions_own_is_left_alone() -> None:
    text = "X = 1\n\ndef f(a: int = 3) -> 'a < b':\n    '''1 < 2'''\n    b: 1 = f'{a + 1}'\n    return None\n"
    assert bugs_in(text) == []
    assert bugs_in("def f(:\n") == []
    assert bugs_in("def f():\r\n    return 1\r\n") == []


def test_functions_are_named_with_what_they_stand_in() -> None:
    text = "class A:\n    def f(self):\n        def g():\n            return 1\n        return g\n"
    found = {(bug.function, bug.kind) for bug in bugs_in(text)}
    assert found == {("A.f.g", BugKind.CONSTANT), ("A.f.g", BugKind.RETURN), ("A.f", BugKind.RETURN)}


def test_every_bug_is_python_and_its_patch_can_be_put_in_and_taken_back(tmp_path: Path) -> None:
    found = bugs_in(CODE)
    assert len(found) > 10 and len({bug.put_into(CODE) for bug in found}) == len(found)
    for bug in found:
        broken = bug.put_into(CODE)
        ast.parse(broken)
        (tmp_path / "m.py").write_text(CODE)
        for words, after in ((["patch", "-p1"], broken), (["patch", "-p1", "-R"], CODE)):
            patch = patch_of("m.py", CODE, broken).encode()
            subprocess.run([*words, "--quiet"], input=patch, cwd=tmp_path, check=True)
            assert (tmp_path / "m.py").read_text() == after


def test_a_bug_is_put_where_its_bytes_are() -> None:
    assert Bug(BugKind.CONSTANT, "f", 1, 2, 3, "9").put_into("é1é") == "é9é"


def test_a_library_is_taken_from_its_folder_and_its_archive_is_always_the_same(tmp_path: Path) -> None:
    folder = lay_library(tmp_path / "lib")
    (folder / ".git").mkdir()
    (folder / ".git" / "config").write_text("secret")
    first = take_library(str(folder), tmp_path / "one")
    os.utime(folder / "numbers_lib.py", (1, 1))
    second = take_library(str(folder), tmp_path / "two")
    assert first.archive.read_bytes()[4:8] == bytes(4)  # where gzip would note the time
    assert first.archive.read_bytes() == second.archive.read_bytes()
    assert (first.tests, first.code, first.modules()) == ("tests", ".", ["numbers_lib.py"])
    assert not (first.tree / ".git").exists()
    again = take_library(str(first.archive), tmp_path / "three")
    assert again.modules() == ["numbers_lib.py"]


def test_the_folder_with_the_most_tests_is_taken(tmp_path: Path) -> None:
    for name in ("pkg/sub/tests/test_a.py", "pkg/tests/test_b.py", "pkg/tests/test_c.py", "pkg/__init__.py"):
        (tmp_path / "lib" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "lib" / name).write_text("")
    assert take_library(str(tmp_path / "lib"), tmp_path / "out").tests == "pkg/tests"


def test_what_is_no_library_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not a library"):
        take_library(str(tmp_path / "missing.zip"), tmp_path / "a")
    (tmp_path / "empty").mkdir()
    with pytest.raises(TaskError, match="no tests were found in empty"):
        take_library(str(tmp_path / "empty"), tmp_path / "b")
    (tmp_path / "bad.tar.gz").write_bytes(b"no archive")
    with pytest.raises(TaskError, match=r"bad\.tar\.gz cannot be read"):
        take_library(str(tmp_path / "bad.tar.gz"), tmp_path / "c")


def test_an_instruction_says_as_much_as_it_is_to() -> None:
    failed = {f"tests/t.py::test_{n}": f"AssertionError: {n}" for n in range(6)}
    whole = instruction_of("m.py", "f", failed, Naming.FUNCTION)
    assert "broke `f` in `m.py`" in whole and "- test_0: AssertionError: 0" in whole and "- and 2 more" in whole
    assert "`m.py`" in instruction_of("m.py", "f", failed, Naming.FILE)
    assert "m.py" not in instruction_of("m.py", "f", failed, Naming.NOTHING)
