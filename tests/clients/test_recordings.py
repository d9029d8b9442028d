"""The recordings are whole and neutral, and what is compared with them is compared rightly."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from benchmarks.client_captures import read, replayed
from benchmarks.client_truth import Label, Made, found
from benchmarks.http import bundled_model

FOLDER = Path(__file__).parent / "fixtures"
PAGE = Path(__file__).parents[2] / "docs" / "clients.md"


def test_there_are_enough_recordings_of_enough_clients_and_each_can_be_read() -> None:
    recordings = [read(path) for path in sorted(FOLDER.glob("*.jsonl.gz"))]
    assert len(recordings) >= 10
    assert sum(len(each.exchanges) for each in recordings) >= 300
    for recording in recordings:
        places = [each.label.at for each in recording.exchanges]
        assert places == sorted(set(places))
        for each in recording.exchanges:
            assert each.label.kind in ("main", "side")
            assert each.label.answers is None or each.label.answers in places[: places.index(each.label.at)]
            assert each.replies or each.label.is_refused


def test_no_recording_names_a_key_or_the_machine_it_was_made_on() -> None:
    for path in FOLDER.glob("*.jsonl.gz"):
        text = gzip.decompress(path.read_bytes()).decode()
        for word in ("Bearer ", '"authorization"', '"x-api-key"', "/wo" + "rk/", "build/clients", "/root/"):
            assert word not in text, f"{path.name} holds {word}"


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.jsonl.gz")), ids=lambda path: path.name.split(".")[0])
async def test_a_replay_finds_what_the_clients_page_says(path: Path) -> None:
    model = bundled_model()
    assert model is not None
    figures = (await replayed([path], model))["by_client"]
    assert isinstance(figures, dict)
    ((name, counts),) = figures.items()
    wrong = (
        counts["links_wrong"] + counts["links_missed"],
        counts["kinds"] - counts["kinds_right"],
        counts["next_states_wrong"] + counts["program_words_taken"],
        counts["refused"],
    )
    cells = [str(counts["exchanges"]), *(f"no ({number})" if number else "yes" for number in wrong)]
    (row,) = [line for line in PAGE.read_text("utf-8").split("\n") if line.startswith(f"| {name} |")]
    said = [cell.strip() for cell in row.strip("|").split("|")]
    assert [said[1], *said[6:]] == cells
    assert counts["kinds"] > 10 and counts["links"] > 2


def _made(turn: str, *, parent: str | None = None, heard: str | None = None, kind: str = "main") -> Made:
    return Made(turn, "key:s", kind, "made for a test", parent, None if heard is None else (("user", heard),))


def _labels(**last: object) -> list[Label]:
    second = {"words": ["Shorter, please."], "answers": 0, **last}
    return [Label(0, "talk", "main", None, ["What is it?"]), Label(1, "talk", "main", None, **second)]


def test_what_is_right_is_found_right() -> None:
    findings = found(_labels(), {0: _made("a", heard="Shorter, please."), 1: _made("b", parent="a")})
    assert (findings.kinds, findings.links, findings.next_states) == (2, 1, 1)
    wrong = (
        findings.kinds_wrong,
        findings.links_wrong,
        findings.links_missed,
        findings.next_states_wrong,
        findings.words,
    )
    assert not any(wrong)


def test_a_programs_words_beside_the_owners_are_found() -> None:
    heard = "Shorter, please.\nReminder: answer in files."
    findings = found(_labels(), {0: _made("a", heard=heard), 1: _made("b", parent="a")})
    assert len(findings.words) == len(findings.next_states_wrong) == 1
    assert "Reminder" in findings.words[0] and "Shorter" not in findings.words[0]


def test_words_that_nobody_typed_are_a_programs() -> None:
    findings = found(_labels(words=[]), {0: _made("a", heard="You are to sum up."), 1: _made("b", parent="a")})
    assert len(findings.words) == 1


def test_a_link_that_is_not_there_is_missed_and_another_one_is_wrong() -> None:
    alone = found(_labels(), {0: _made("a", heard="Shorter, please."), 1: _made("b")})
    assert len(alone.links_missed) == 1 and not alone.links_wrong
    other = found(_labels(answers=None), {0: _made("a"), 1: _made("b", parent="a")})
    assert len(other.links_wrong) == 1 and not other.links_missed


def test_after_a_summary_the_session_is_enough() -> None:
    kept = found(_labels(after_summary=True), {0: _made("a"), 1: _made("b")})
    assert not kept.links_missed and not kept.next_states_wrong
    left = found(_labels(after_summary=True), {0: _made("a"), 1: Made("b", "key:t", "main", "", None, None)})
    assert len(left.links_missed) == 1


def test_a_reply_that_was_cancelled_needs_no_next_state() -> None:
    labels = _labels()
    labels[0].was_cut = True
    assert not found(labels, {0: _made("a"), 1: _made("b", parent="a")}).next_states_wrong
    labels[0].was_cut = False
    assert len(found(labels, {0: _made("a"), 1: _made("b", parent="a")}).next_states_wrong) == 1


def test_the_words_of_a_refused_request_are_due_with_those_of_the_one_that_was_answered() -> None:
    refused = Label(1, "talk", "main", None, ["Sum it up."], answers=0, is_refused=True)
    again = Label(2, "talk", "main", None, ["Shorter."], answers=0)
    labels = [Label(0, "talk", "main", None, ["What is it?"]), refused, again]
    made = {0: _made("a", heard="Shorter."), 2: _made("c", parent="a")}
    assert not found(labels, made).next_states_wrong
    made[0] = _made("a", heard="Sum it up.")
    assert len(found(labels, made).next_states_wrong) == len(found(labels, made).words) == 1
