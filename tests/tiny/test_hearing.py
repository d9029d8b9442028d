"""What the bundled judge's classifier is taught, and that its recipe runs, goes on, and is computed without torch."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from random import Random

import numpy as np
import pytest
from typer.testing import CliRunner

from openclaw_rl.judge.encoder import ABOUT, WEIGHTS, Encoder
from openclaw_rl.tiny import hearing_build
from openclaw_rl.tiny.cli import app
from openclaw_rl.tiny.hearing import HEARD, LITERAL, NONE, OTHER, PLACES, heard
from openclaw_rl.tiny.hearing_build import SHORT, Taught
from openclaw_rl.tiny.hearing_net import batch_of
from openclaw_rl.tiny.hearing_words import known
from openclaw_rl.tiny.wordings import WISHES

PROSE = ("Some ordinary prose, line by line, that has nothing to do with anything.\n" * 40,)


def test_every_wish_score_and_place_is_taught() -> None:
    rng = Random(0)
    drawn = [heard(rng, PROSE) for _ in range(4_000)]
    assert set(Counter(item.wish for item in drawn)) == set(HEARD)
    assert set(Counter(item.place for item in drawn)) == set(PLACES)
    assert {item.score for item in drawn} == {-1, 0, 1}
    assert all(item.score == -1 for item in drawn if item.wish != NONE)
    assert {item.reading.kind for item in drawn} == {"user", "tool"}


def test_the_words_of_a_literal_are_marked_where_they_stand() -> None:
    rng, seen = Random(1), 0
    for _ in range(6_000):
        item = heard(rng, PROSE)
        if item.wish not in LITERAL:
            assert item.first == -1
            continue
        seen += 1
        read = item.reading
        marked = read.text[read.places[item.first][0] : read.places[item.last][1]]
        if item.wish != "language":  # which stands there in the speaker's own words
            assert marked == item.literal, (marked, item)
    assert seen > 500


def test_the_same_is_computed_with_torch_and_without(tmp_path: Path) -> None:
    nets = hearing_build.build(tmp_path, lessons=SHORT)
    encoder = Encoder.load(tmp_path)
    rng = Random(2)
    for net in nets:
        whole, scales = hearing_build.rounded(net.pieces.weight.detach())
        net.half().float().pieces.weight.data = whole.float() * scales.float()[:, None]
    for item in (heard(rng, PROSE) for _ in range(40)):
        sound = encoder.hear(item.reading)
        found = [net(batch_of([item.reading], encoder.spelling.rows)) for net in nets]
        for at, heard_ in enumerate((sound.scores, sound.wishes, sound.places)):
            expected = np.mean([one[at][0].softmax(-1).detach().numpy() for one in found], 0)
            assert np.allclose(heard_, expected, atol=1e-4)
        ends = [one[3][0].softmax(0).detach().numpy() for one in found]
        words, more = item.reading.words, sound.last - sound.first
        said = [at for at in range(len(words)) if words[at : at + more + 1] == words[sound.first : sound.last + 1]]
        both = np.mean([one[said, 0].sum() * one[[at + more for at in said], 1].sum() for one in ends])
        assert sound.literal == pytest.approx(both, abs=1e-4)  # said twice, both places count


class _Interrupted(Exception):
    pass


def test_a_build_that_was_stopped_goes_on_as_if_it_had_not_been(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lessons = hearing_build.Lessons(SHORT.form, members=2, steps=60, batch=4, files=4, warmup=2, checkpoint_every=1)

    def stop(taught: Taught, _steps: int) -> None:
        if taught.step == 90:  # within the second member, after its first checkpoint
            raise _Interrupted

    with pytest.raises(_Interrupted):
        hearing_build.build(tmp_path / "stopped", lessons=lessons, report=stop)
    hearing_build.build(tmp_path / "stopped", lessons=lessons)
    hearing_build.build(tmp_path / "whole", lessons=lessons)
    stopped, whole = (json.loads((tmp_path / name / ABOUT).read_text("utf-8")) for name in ("stopped", "whole"))
    assert stopped["made"] == whole["made"]
    assert (tmp_path / "stopped" / WEIGHTS).read_bytes() == (tmp_path / "whole" / WEIGHTS).read_bytes()
    assert sorted(str(path.relative_to(tmp_path / "stopped")) for path in (tmp_path / "stopped").rglob("*.*")) == [
        ABOUT,
        WEIGHTS,
    ]


def test_members_taught_side_by_side_make_the_same_judge(tmp_path: Path) -> None:
    for member in (1, 0):
        hearing_build.build(tmp_path / "apart", lessons=SHORT, only=member)
    assert not (tmp_path / "apart" / WEIGHTS).exists()
    hearing_build.build(tmp_path / "apart", lessons=SHORT)
    hearing_build.build(tmp_path / "whole", lessons=SHORT)
    assert (tmp_path / "apart" / WEIGHTS).read_bytes() == (tmp_path / "whole" / WEIGHTS).read_bytes()


def test_known_words_fill_the_rows() -> None:
    words, groups = known(3_000)
    assert 1 + len(words) + len(groups) == 3_000
    assert {"the", "markdown", "?", "kurz"} <= set(words)
    assert len(set(words)) == len(words)


def test_the_command_makes_a_judge_and_measures_it_on_messages_that_are_not_taught(tmp_path: Path) -> None:
    ran = CliRunner().invoke(app, ["judge", "--folder", str(tmp_path), "--short", "--measure"])
    assert ran.exit_code == 0, ran.output
    assert "examples of messages that are not taught" in ran.output
    about = json.loads((tmp_path / ABOUT).read_text("utf-8"))
    assert [one["name"] for one in about["wishes"]] == [NONE, OTHER, *WISHES]
    assert about["made"]["examples"] == SHORT.members * SHORT.steps * SHORT.batch
    weights = (tmp_path / WEIGHTS).stat().st_mtime_ns
    assert CliRunner().invoke(app, ["judge", "--folder", str(tmp_path), "--short", "--measure"]).exit_code == 0
    assert (tmp_path / WEIGHTS).stat().st_mtime_ns == weights  # a judge that is there is measured as it is
