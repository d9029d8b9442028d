"""OSWorld's files and trees: what is read of them, and what is refused with a reason."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from openclaw_rl.core.message import Json
from openclaw_rl.envs.screen.desktop.guest_screen import MOST_NODES, nodes_of
from openclaw_rl.envs.screen.desktop.judging import METRICS, read_evaluator
from openclaw_rl.envs.screen.desktop.osworld import OSWorldTasks
from openclaw_rl.envs.screen.screen import BrowserError
from openclaw_rl.envs.screen.tree import node_text
from openclaw_rl.envs.tasks.source import UnsupportedTaskError
from openclaw_rl.envs.tasks.sources import find_sources

SPACES = 'xmlns:st="https://accessibility.ubuntu.example.org/ns/state" xmlns:cp="https://accessibility.ubuntu.example.org/ns/component"'
SHOWN = 'st:showing="true" st:visible="true" st:enabled="true"'


def _tree(inner: str) -> str:
    return f'<desktop-frame {SPACES} name="main"><application name="app">{inner}</application></desktop-frame>'


def test_a_guests_tree_gives_what_can_be_acted_on_with_its_middle() -> None:
    nodes, spots = nodes_of(
        _tree(
            f"""<frame name="Notes" {SHOWN} cp:screencoord="(0, 0)" cp:size="(300, 200)">
            <push-button name="Save" {SHOWN} cp:screencoord="(10, 20)" cp:size="(40, 10)"/>
            <check-box name="Bold" {SHOWN} st:checked="true" cp:screencoord="(10, 40)" cp:size="(20, 10)"/>
            <push-button name="Hidden" cp:screencoord="(10, 60)" cp:size="(40, 10)"/>
            <push-button name="Outside" {SHOWN} cp:screencoord="(-2147483648, -2147483648)" cp:size="(1, 1)"/>
            <label name="Ready" {SHOWN} cp:screencoord="(5, 90)" cp:size="(20, 10)"/>
            <text name="" {SHOWN} cp:screencoord="(0, 100)" cp:size="(100, 50)">hello</text></frame>"""
        )
    )
    assert [node_text(node) for node in nodes] == [
        "# Notes",
        '[1] button "Save"',
        '[2] checkbox "Bold" on',
        "Ready",
        '[3] textbox = "hello"',
    ]
    assert [(spot.x, spot.y) for spot in spots] == [(30, 25), (20, 45), (50, 125)]


def test_a_guests_tree_is_bounded_and_a_broken_one_is_the_guests_fault() -> None:
    many = f'<push-button name="b" {SHOWN} cp:screencoord="(1, 1)" cp:size="(4, 4)"/>' * (MOST_NODES + 50)
    assert len(nodes_of(_tree(many))[0]) == MOST_NODES
    for xml in ("<a", "", '<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>'):
        with pytest.raises(BrowserError, match="tree"):
            nodes_of(xml)


def _evaluator(**changed: Json) -> Json:
    made: dict[str, Json] = {
        "func": "exact_match",
        "result": {"type": "vm_command_line", "command": "cat x"},
        "expected": {"type": "rule", "rules": {"expected": "y"}},
    }
    return {**made, **changed}


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"func": "compare_table"}, "`compare_table`, which is not supported here"),
        ({"func": "infeasible", "result": None}, "`infeasible`"),
        ({"result": {"type": "accessibility_tree"}}, "`accessibility_tree`, which is not supported here"),
        ({"expected": {"type": "cloud_file", "path": "https://x"}}, "not a rule"),
        ({"postconfig": [{"type": "sleep"}]}, "postconfig"),
    ],
)
def test_evaluators_that_are_not_done_here_are_named(changed: dict[str, Json], reason: str) -> None:
    with pytest.raises(UnsupportedTaskError, match=reason):
        read_evaluator(_evaluator(**changed))


@pytest.mark.parametrize(
    ("metric", "found", "rules", "holds"),
    [
        ("exact_match", " a\n", {"expected": "a"}, True),
        ("exact_match", "ab", {"expected": "a"}, False),
        ("check_include_exclude", "a b", {"include": ["a", "b"], "exclude": ["c"]}, True),
        ("check_include_exclude", "a b c", {"include": ["a"], "exclude": ["c"]}, False),
        ("is_in_list", "x\n y \nz", {"expected": "y"}, True),
        ("is_in_list", "xy", {"expected": "y"}, False),
        ("match_in_list", "b", {"expected": ["a", "b"]}, True),
        ("file_contains", "abc", {"expected": ["a", "d"]}, False),
    ],
)
def test_each_comparison_holds_only_for_what_it_says(
    metric: str, found: str, rules: dict[str, Json], holds: bool
) -> None:
    assert METRICS[metric](found, rules) is holds


def test_files_of_osworld_are_found_and_bad_ones_named(tmp_path: Path) -> None:
    good = {"id": "a", "instruction": "Write.", "config": [], "evaluator": _evaluator()}
    (tmp_path / "a.json").write_text(json.dumps(good))
    (tmp_path / "b.json").write_text(json.dumps({**good, "id": 7}))
    (tmp_path / "c.json").write_text('{"other": 1}')
    (source,) = find_sources(tmp_path)
    assert isinstance(source, OSWorldTasks)
    assert list(source.tasks) == ["a"]
    assert source.broken == {"b.json": "it has no `id` or no `instruction`"}
