"""The documents: links lead somewhere, targets and commands exist, and quoted messages are those of the code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer import Context
from typer.core import TyperGroup
from typer.main import get_group

from openclaw_rl.cli import app
from openclaw_rl.core.ledger import DropReason

ROOT = Path(__file__).parent.parent
VARIES = "…"
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "extensions").rglob("*.md")])
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_TARGET = re.compile(r"^\s*(?:[A-Z]+=\S+ )*make ([a-z][a-z-]*)", re.MULTILINE)
_COMMAND = re.compile(r"openclaw-rl((?: [a-z][a-z-]*)+)")
_MESSAGE = re.compile(r"^- `([^`]+)`:", re.MULTILINE)
_TEST = re.compile(r"`(?:tests/)?([a-z_/]+\.py)::(test_[a-z0-9_]+)`")
_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _code(text: str) -> list[str]:
    """What stands in backticks, which may go over a line's end, in a fenced block or in an indented line."""
    prose = _FENCE.sub("", text)
    quoted = [" ".join(code.split()) for code in re.findall(r"`([^`]+)`", prose)]
    return [*quoted, *_FENCE.findall(text), *re.findall(r"^    .+$", prose, re.MULTILINE)]


def _anchors(page: Path) -> set[str]:
    """The names that headings of a page have, as Markdown hosts make them."""
    text = _FENCE.sub("", page.read_text("utf-8"))
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_every_relative_link_leads_to_a_file_and_to_a_heading_of_it(page: Path) -> None:
    for link in _LINK.findall(_FENCE.sub("", page.read_text("utf-8"))):
        if re.match(r"[a-z]+:", link):
            continue
        file, _, heading = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        assert target.exists(), f"{link} leads nowhere"
        if heading:
            assert heading in _anchors(target), f"{link}: {_name(target)} has no such heading"


def test_the_index_lists_every_page() -> None:
    index = ROOT / "docs" / "README.md"
    linked = {(index.parent / link).resolve() for link in _LINK.findall(index.read_text("utf-8"))}
    pages = {page for page in (ROOT / "docs").rglob("*.md") if "decisions" not in page.parts}
    assert pages - linked - {index} == set()


def test_decisions_are_numbered_without_gaps_and_none_twice() -> None:
    names = sorted(path.name for path in (ROOT / "docs" / "decisions").glob("0*.md"))
    assert [int(name[:4]) for name in names] == list(range(1, len(names) + 1))


@pytest.mark.parametrize("picture", sorted((ROOT / "docs").glob("*.svg")), ids=_name)
def test_a_picture_is_whole_described_and_readable_on_dark_ground(picture: Path) -> None:
    root = ElementTree.parse(picture).getroot()
    names = {child.tag.rpartition("}")[2] for child in root}
    assert {"title", "desc", "style"} <= names
    assert "prefers-color-scheme: dark" in picture.read_text("utf-8")


@cache
def _targets() -> frozenset[str]:
    text = (ROOT / "Makefile").read_text("utf-8")
    return frozenset(re.findall(r"^([a-z][a-z-]*):", text, re.MULTILINE))


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_every_make_target_that_a_page_names_is_in_the_makefile(page: Path) -> None:
    named = {target for code in _code(page.read_text("utf-8")) for target in _TARGET.findall(code)}
    assert named - _targets() == set()


def _is_command(words: list[str]) -> bool:
    """Whether the words begin with a command of the program; what follows a whole command are its arguments."""
    command: object = get_group(app)
    for word in words:
        if not isinstance(command, TyperGroup):
            return True
        command = command.get_command(Context(command), word)
        if command is None:
            return False
    return True


def test_what_is_no_command_is_seen() -> None:
    assert _is_command(["hints", "list"]) and _is_command(["turns", "id"])
    assert not _is_command(["hint", "list"]) and not _is_command(["hints", "lst"])


def _commands(text: str) -> Iterator[list[str]]:
    """Commands that stand in code, as lists of words."""
    for code in _code(text):
        for words in _COMMAND.findall(code):
            yield words.split()


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_every_command_that_a_page_names_exists(page: Path) -> None:
    for words in _commands(page.read_text("utf-8")):
        assert _is_command(words), f"there is no command openclaw-rl {' '.join(words)}"


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_every_test_that_a_page_names_exists(page: Path) -> None:
    named = set(_TEST.findall(page.read_text("utf-8")))
    missing = [f"{file}::{name}" for file, name in named if name not in _tests_in(ROOT / "tests" / file)]
    assert missing == []


def test_the_clients_page_names_tests_for_each_failure_of_real_clients() -> None:
    held = (ROOT / "docs" / "clients.md").read_text("utf-8").partition("which tests hold it")[2]
    rows = [line for line in held.split("\n") if line.startswith("| ") and not line.startswith("| what")]
    assert len(rows) == 19 and all(_TEST.search(row) for row in rows)
    assert _tests_in(ROOT / "tests" / "nowhere.py") == frozenset()


@cache
def _tests_in(path: Path) -> frozenset[str]:
    """The names of a file's tests."""
    tree = ast.parse(path.read_text("utf-8") if path.is_file() else "")
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


@cache
def _said() -> tuple[str, ...]:
    """Every text in the sources, with the mark for what varies in place of what is filled in."""
    found: list[str] = []
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = (str(part.value) if isinstance(part, ast.Constant) else VARIES for part in node.values)
                found.append("".join(parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(re.sub(r"%[sdg]", VARIES, node.value))
    return tuple(found)


def _messages() -> list[str]:
    return _MESSAGE.findall((ROOT / "docs" / "troubleshooting.md").read_text("utf-8"))


def test_every_message_of_the_page_on_troubleshooting_is_one_of_the_codes() -> None:
    assert len(_messages()) > 80
    missing = [message for message in _messages() if not any(message in text for text in _said())]
    assert missing == []


def test_its_first_group_explains_every_reason_for_a_drop() -> None:
    page = (ROOT / "docs" / "troubleshooting.md").read_text("utf-8")
    first = page.split("\n## ")[1]
    assert set(_MESSAGE.findall(first)) == set(DropReason)


def test_its_groups_and_messages_stand_in_alphabetical_order() -> None:
    page = (ROOT / "docs" / "troubleshooting.md").read_text("utf-8")
    groups = re.findall(r"^## (.+)$", page, re.MULTILINE)
    assert groups == sorted(groups, key=str.lower)
    for group in page.split("\n## ")[1:]:
        named = _MESSAGE.findall(group)
        assert named == sorted(named, key=lambda message: re.sub(r"[^a-z_ ]", "", message.lower())), group[:30]
