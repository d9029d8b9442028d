"""What the bundled judge's classifier is taught beside the grammar holds no sentence that it is measured with."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import pytest

from openclaw_rl.evals.judging.cases import written_cases
from openclaw_rl.evals.judging.wordings import templates, utterances
from openclaw_rl.tiny.lexicon import SLOTS, words
from openclaw_rl.tiny.wordings import FILES, parts, table

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
TRANSFER = tuple(BENCHMARKS / f"transfer_words{name}.toml" for name in ("", "_late"))
FURTHER = tuple(BENCHMARKS / f"wordings_{name}.toml" for name in ("first", "second", "third", "fourth", "fifth"))


def _normal(text: str) -> str:
    return " ".join(re.findall(r"\w+", re.sub(r"\{[xnl]\}", " qqq ", text).casefold()))


def _texts(held: object) -> Iterator[str]:
    if isinstance(held, str):
        yield held
    elif isinstance(held, dict | list):
        for each in held.values() if isinstance(held, dict) else held:
            yield from _texts(each)


@lru_cache
def _kept() -> frozenset[str]:
    """All that is measured with; single words of the transfer's users are names of things."""
    users = [tomllib.loads(path.read_text("utf-8")) for path in TRANSFER]
    transfer = [text for text in _texts(users) if len(text.split()) > 1]
    cases = [item.text for case in written_cases() for item in case.next_state]
    said = [text for path in (None, *FURTHER) for *_, text in templates(path)]
    return frozenset(_normal(text) for text in [*said, *cases, *transfer])


def test_no_other_wish_request_or_foreign_remark_is_one_that_is_kept() -> None:
    assert not {_normal(text) for text in _texts(table("others"))} & _kept()


@pytest.mark.parametrize("code", FILES)
def test_no_whole_message_that_is_taught_is_one_that_is_kept(code: str) -> None:
    taught = {_normal(text) for text in _texts(table(f"said_{code}"))}
    said = {_normal(item.case.next_state[0].text) for item in utterances()}
    assert len(taught) > 900
    assert not taught & (_kept() | said)


@pytest.mark.parametrize("code", FILES)
def test_no_message_that_the_required_certainty_is_measured_on_is_one_that_is_taught_or_kept(code: str) -> None:
    found = {_normal(text) for text in _texts(table("certainty")[code])}
    taught = {_normal(text) for text in _texts(table(f"said_{code}"))}
    said = {_normal(item.case.next_state[0].text) for item in utterances()}
    assert len(found) > 190
    assert not found & (_kept() | said | taught)


def test_no_literal_that_is_kept_is_among_those_of_the_messages() -> None:
    kept = {said.literal.casefold() for said in utterances() if said.wish in ("first", "last", "name")}
    assert not kept & {text.casefold() for text in _texts(table("literals"))}


@pytest.mark.parametrize("code", FILES)
def test_no_word_in_a_pattern_alone_or_in_a_frame_is_a_sentence_that_is_kept(code: str) -> None:
    held = words(code)
    made = {
        _normal(pattern.replace("{w}", word))
        for wish, slots in held.items()
        if wish != "patterns"
        for slot in SLOTS
        for word in slots.get(slot, [])
        for pattern in held["patterns"][slot]
    }
    assert len(made) > 4_000
    frames = [frame for tone in parts(code).frames.values() for frame in tone if frame.count("{") == 1]
    around = [_normal(frame.replace("{short}", " qqqqq ")).split("qqqqq") for frame in frames if "{short}" in frame]
    assert not [
        text
        for text in _kept()
        for before, after in [("", ""), *((found[0].strip(), found[1].strip()) for found in around)]
        if text.startswith(before)
        and text.endswith(after)
        and text[len(before) : len(text) - len(after)].strip() in made
    ]
