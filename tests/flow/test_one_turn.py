"""docs/one-turn.md names the files of a turn's way in the order in which they are entered."""

from __future__ import annotations

import pytest

from benchmarks.house import Entered, entered, named, out_of_order

MOST_FILES = 25


def test_the_page_names_few_files_each_once() -> None:
    files = [file for file, _ in named()]
    assert 20 <= len(files) <= MOST_FILES and len(set(files)) == len(files)


def test_what_is_missing_or_out_of_order_is_named() -> None:
    found: Entered = {("a.py", "one"): 1, ("b.py", "two"): 2}
    assert out_of_order(found, [("a.py", "one"), ("b.py", "two")]) == []
    assert out_of_order(found, [("b.py", "two"), ("a.py", "one")]) == [
        "a.py one was entered before what stands in front of it"
    ]
    assert out_of_order(found, [("c.py", "three")]) == ["c.py three was not entered"]


@pytest.mark.timeout(600)
async def test_a_real_turn_enters_them_in_the_pages_order() -> None:
    assert out_of_order(await entered(), named()) == []
