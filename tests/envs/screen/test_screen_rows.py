"""Rows that name a page: read, or named as broken; and the arguments that actions take."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from openclaw_rl.envs.open import open_env
from openclaw_rl.envs.screen.env import ScreenEnv
from openclaw_rl.envs.screen.screen import ActionError, Events, ScreenNode, View
from openclaw_rl.envs.screen.site import Site
from openclaw_rl.envs.screen.solving import find
from openclaw_rl.envs.screen.tasks import ScreenTasks
from openclaw_rl.envs.screen.tools import MOST_TEXT, key_of, whole, words
from openclaw_rl.envs.task import Action, Failure, Split
from openclaw_rl.envs.tasks.sources import find_sources
from openclaw_rl.envs.tasks.words import WordTasks
from openclaw_rl.errors import ConfigError


def _source(folder: Path, *rows: object) -> ScreenTasks:
    (folder / "screens.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (source,) = find_sources(folder)
    assert isinstance(source, ScreenTasks)
    return source


def test_rows_are_told_by_their_page(tmp_path: Path) -> None:
    (tmp_path / "shop.html").write_text("<p>")
    own = {"id": "a", "instruction": "Buy.", "page": "shop.html", "wanted": {"bought": 1}, "split": "test"}
    source = _source(tmp_path, {"page": "buttons", "seed": 4}, own)
    assert list(source.tasks) == ["buttons-train-4", "a"]
    assert source.tasks["a"].split is Split.TEST
    assert source.tasks["buttons-train-4"].metadata["family"] == "buttons"
    assert source.broken == {}


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"page": "nosuch"}, "neither a family"),
        ({"page": "buttons", "seed": "x"}, "not a whole number"),
        ({"page": "buttons", "split": "dev"}, "neither train nor test"),
        ({"page": "../secret.html", "id": "a", "instruction": "b", "wanted": {"c": 1}}, "not a file below"),
        ({"page": "page.html", "id": "a", "instruction": "b"}, "`wanted` contains no state"),
        ({"page": "page.html", "id": "a", "instruction": "b", "wanted": {"c": 1}, "moves": [{"step": "x"}]}, "`moves`"),
        ({"page": 7}, "not text"),
    ],
)
def test_a_broken_row_is_named_and_the_others_are_used(tmp_path: Path, row: object, reason: str) -> None:
    (tmp_path / "page.html").write_text("<p>")
    source = _source(tmp_path, {"page": "buttons", "seed": 1}, row)
    assert len(source.tasks) == 1
    assert reason in source.broken["screens.jsonl:2"]


def test_only_tasks_of_screens_open_as_screens(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text('{"id": "a", "question": "1+1?", "answer": "2"}\n')
    assert isinstance(open_env("screen", ScreenTasks("x", []), None), ScreenEnv)
    with pytest.raises(ConfigError, match="not done on a screen"):
        open_env("screen", WordTasks(tmp_path / "train.jsonl"), None)


async def test_without_an_episode_nothing_is_scored() -> None:
    env = open_env("screen", ScreenTasks("x", []), None)
    assert (await env.evaluate()).failure is Failure.INFRASTRUCTURE
    assert (await env.step([])).info.failure is Failure.INFRASTRUCTURE


def test_a_site_gives_its_own_files_only(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.html").write_text("a")
    (tmp_path / "secret.html").write_text("s")
    (tmp_path / "in" / "link.html").symlink_to(tmp_path / "secret.html")
    site = Site("a.html", {"b.js": "b"}, folder=tmp_path / "in")
    assert site.read(site.url) == ("text/html", b"a")
    assert site.read("http://task.test/b.js?x=1") == ("text/javascript", b"b")
    for other in ("../secret.html", "%2e%2e/secret.html", "link.html", "", "none.html", "a\0.html"):
        assert site.read(f"http://task.test/{other}") is None, other
    for other in (
        "https://task.test/a.html",
        "http://task.test:81/a.html",
        "http://task.test@x/a.html",
        "file:///a.html",
    ):
        assert site.read(other) is None, other


def test_keys_are_those_of_a_page_and_not_of_the_browser() -> None:
    def key(text: str) -> str:
        return key_of(Action("press", {"key": text}))

    assert [key(text) for text in ("enter", "ctrl+a", "Shift+Tab", "x", "+")] == [
        "Enter",
        "Control+a",
        "Shift+Tab",
        "x",
        "+",
    ]
    for text in ("F12", "Meta+q", "", "Control+Launch", "BrowserHome"):
        with pytest.raises(ActionError, match="no key"):
            key(text)


def test_arguments_are_taken_as_models_write_them_and_refused_with_a_reason() -> None:
    assert [whole(Action("click", {"ref": ref}), "ref") for ref in (3, "3", "[3]", 3.0)] == [3, 3, 3, 3]
    for ref in (None, True, "x", 3.5, [3]):
        with pytest.raises(ActionError, match="click needs `ref`, a number"):
            whole(Action("click", {"ref": ref}), "ref")
    assert words(Action("type", {"text": 5}), "text") == "5"
    with pytest.raises(ActionError, match="at most 2000"):
        words(Action("type", {"text": "x" * (MOST_TEXT + 1)}), "text")


def test_notes_are_few_and_all_are_counted() -> None:
    events = Events()
    for number in range(9):
        events.add("dialogs", f"dialog\n{number}")
    assert events.take_notes() == ("dialog 0", "dialog 1", "dialog 2", "dialog 3", "dialog 4", "and 4 more")
    assert events.take_notes() == ()
    assert events.counted == {"dialogs": 9}


def test_a_move_finds_what_it_needs_in_its_row() -> None:
    nodes = (
        ScreenNode("text", "Ann", row=1),
        ScreenNode("button", "Ship", 1, row=1),
        ScreenNode("text", "Ben", row=2),
        ScreenNode("button", "Ship", 2, row=2),
    )
    found = find(View(nodes), "Ship", role="button", row="Ben")
    assert found is not None and found.ref == 2
    assert find(View(nodes), "Ship", row="Cara") is None
    assert find(View(nodes), "Ship", role="link") is None
