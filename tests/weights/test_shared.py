"""Weights in few bits are mapped from one file, by every process that made the same codes."""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from openclaw_rl.weights.lowbits import LowBitsLinear, joined, lower
from openclaw_rl.weights.shared import UNUSED_S, share

CPU = torch.device("cpu")


def _model(weights: str = "4bit", *, seed: int = 0) -> nn.ModuleDict:
    torch.manual_seed(seed)
    sizes = {"q": 64, "k": 32, "v": 32, "rest": 96}
    model = nn.ModuleDict({name: nn.Linear(128, size) for name, size in sizes.items()})
    lower(model, None, weights, dtype=torch.float32, device=CPU)
    return model


def _layers(model: nn.ModuleDict) -> list[LowBitsLinear]:
    return [one for one in model.values() if isinstance(one, LowBitsLinear)]


@pytest.mark.parametrize("weights", ["8bit", "4bit"])
def test_what_is_mapped_is_what_was_there(tmp_path: Path, weights: str) -> None:
    model = _model(weights)
    before = [one.low.plain(torch.float32) for one in _layers(model)]
    file = share(model, tmp_path / "cache")
    assert file is not None and file.stat().st_mode & 0o077 == 0
    for one, want in zip(_layers(model), before, strict=True):
        assert_close(one.low.plain(torch.float32), want, rtol=0, atol=0)
    assert str(file) in Path("/proc/self/maps").read_text()


@pytest.mark.parametrize("weights", ["8bit", "4bit"])
def test_layers_that_lie_side_by_side_are_joined_without_a_copy(tmp_path: Path, weights: str) -> None:
    model = _model(weights)
    apart = [one.low for one in _layers(model)[:3]]
    copied = joined(apart)
    assert copied.codes.data_ptr() != apart[0].codes.data_ptr()
    share(model, tmp_path)
    mapped = [one.low for one in _layers(model)[:3]]
    whole = joined(mapped)
    assert whole.codes.data_ptr() == mapped[0].codes.data_ptr()
    assert_close(whole.plain(torch.float32), copied.plain(torch.float32), rtol=0, atol=0)


def test_the_same_codes_are_one_file_and_others_another(tmp_path: Path) -> None:
    first, again, other = share(_model(), tmp_path), share(_model(), tmp_path), share(_model(seed=1), tmp_path)
    assert first == again != other
    assert len(list(tmp_path.iterdir())) == 2


def test_pages_are_shared_between_processes(tmp_path: Path) -> None:
    script = (
        "import sys, torch; from pathlib import Path; from torch import nn\n"
        "from openclaw_rl.weights.lowbits import lower; from openclaw_rl.weights.shared import share\n"
        "torch.manual_seed(0); model = nn.ModuleDict({'a': nn.Linear(1024, 2048)})\n"
        "lower(model, None, '8bit', dtype=torch.float32, device=torch.device('cpu'))\n"
        f"file = share(model, Path({str(tmp_path)!r}))\n"
        "model['a'].codes.sum(); print(file, flush=True); sys.stdin.readline()\n"
        "print(open('/proc/self/smaps').read(), flush=True)"
    )
    with contextlib.ExitStack() as stack:
        children, names = [], []
        for _ in range(2):
            words = [sys.executable, "-c", script]
            child = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            children.append(stack.enter_context(child))
            assert child.stdout is not None
            names.append(child.stdout.readline().strip())
        lines = children[0].communicate("\n", timeout=60)[0].splitlines()
        children[1].communicate("\n", timeout=60)
    assert names[0] == names[1]
    at = next(index for index, line in enumerate(lines) if line.endswith(names[0]))
    facts = {line.split(":")[0]: int(line.split()[1]) for line in lines[at + 1 : at + 12] if line.endswith("kB")}
    # half of each page counts for either process
    assert facts["Rss"] >= 2048 and facts["Pss"] <= 0.55 * facts["Rss"]


def test_a_damaged_file_is_seen_and_written_again(tmp_path: Path) -> None:
    file = share(_model(), tmp_path)
    assert file is not None
    whole = file.read_bytes()
    file.write_bytes(whole[:100] + bytes([whole[100] ^ 1]) + whole[101:])
    assert share(_model(), tmp_path) == file
    assert file.read_bytes() == whole


def test_where_nothing_can_be_written_weights_stay_private(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("in the way")
    model = _model()
    before = _layers(model)[0].codes.data_ptr()
    with caplog.at_level(logging.WARNING):
        assert share(model, tmp_path / "file" / "cache") is None
    assert "not shared" in caplog.text
    assert _layers(model)[0].codes.data_ptr() == before


def test_files_that_nobody_used_for_long_are_removed(tmp_path: Path) -> None:
    old = share(_model(), tmp_path)
    assert old is not None
    past = time.time() - UNUSED_S - 60
    os.utime(old, (past, past))
    new = share(_model(seed=1), tmp_path)
    assert list(tmp_path.iterdir()) == [new]


def test_a_model_in_all_bits_has_nothing_to_share(tmp_path: Path) -> None:
    assert share(_model("auto"), tmp_path) is None
    assert list(tmp_path.iterdir()) == []
