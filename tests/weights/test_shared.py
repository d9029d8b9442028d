"""A model's weights are mapped from one file, by every process that has the same ones."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from openclaw_rl.weights.forms import LowBitsLinear, PackedLinear, can_pack, joined, lower, packed_as_one
from openclaw_rl.weights.mapped_files import make, mapped, remove_unused
from openclaw_rl.weights.shared import LEAST, count_of, hold_once

CPU = torch.device("cpu")
MODEL = """
import sys, torch
from pathlib import Path
from torch import nn
from openclaw_rl.weights.shared import hold_once
def model(seed=0):
    torch.manual_seed(seed)
    made = nn.ModuleDict({"embed": nn.Embedding(512, 1024), "a": nn.Linear(1024, 2048)})
    return made.bfloat16().requires_grad_(False)
"""


def _model(
    weights: str = "auto", *, seed: int = 0, dtype: torch.dtype = torch.float32, odd: bool = False
) -> nn.ModuleDict:
    """q, k and v side by side, a chooser of experts, and a head that is tied to the embedding."""
    torch.manual_seed(seed)
    sizes = {"q": 64, "k": 60 if odd else 128, "v": 64, "gate": 6}
    model = nn.ModuleDict({name: nn.Linear(128, size, bias=name == "k") for name, size in sizes.items()})
    model["embed"], model["head"] = nn.Embedding(200, 128), nn.Linear(128, 200, bias=False)
    model["head"].weight = model["embed"].weight
    model = model.to(dtype).requires_grad_(False)
    lower(model, model["head"], weights, dtype=dtype, device=CPU)
    return model


def _outputs(model: nn.ModuleDict, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    rows = torch.linspace(-1, 1, 5 * 128).view(5, 128).to(dtype)
    embedded = model["embed"](torch.tensor([0, 7, 199]))
    return [embedded, *(model[name](rows) for name in ("q", "k", "v", "gate", "head"))]


@pytest.mark.parametrize("weights", ["auto", "8bit", "4bit"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_shared_or_not_the_same_is_computed_to_the_bit(tmp_path: Path, weights: str, dtype: torch.dtype) -> None:
    plain, own, first, second = (_model(weights, dtype=dtype) for _ in range(4))
    assert hold_once(own, None) is None
    file = hold_once(first, tmp_path / "cache", least=0)
    assert file is not None and file.stat().st_mode & 0o077 == 0
    assert hold_once(second, tmp_path / "cache", least=0) == file
    assert str(file) in Path("/proc/self/maps").read_text()
    for ours, theirs, wanted in zip(_outputs(first, dtype), _outputs(own, dtype), _outputs(plain, dtype), strict=True):
        assert_close(ours, theirs, rtol=0, atol=0)
        assert_close(ours, wanted, rtol=1e-5 if dtype is torch.float32 else 2e-2, atol=1e-5)
    for ours, theirs in zip(_outputs(first, dtype), _outputs(second, dtype), strict=True):
        assert_close(ours, theirs, rtol=0, atol=0)
    assert count_of(first) == count_of(own) == count_of(plain)


def test_choosers_of_experts_are_left_as_they_are(tmp_path: Path) -> None:
    model = _model()
    hold_once(model, tmp_path, least=0)
    assert type(model["gate"]) is nn.Linear
    assert isinstance(model["head"], PackedLinear) == can_pack(CPU, torch.float32)


@pytest.mark.parametrize("odd", [False, True])
def test_packed_layers_side_by_side_are_one_without_a_copy_where_the_layout_allows(tmp_path: Path, odd: bool) -> None:
    model = _model(odd=odd)
    before = torch.cat([model[name].weight for name in ("q", "k", "v")])
    hold_once(model, tmp_path, least=0)
    parts = [one.packed for one in model.values() if isinstance(one, PackedLinear)][:3]
    whole = packed_as_one(parts)
    assert_close(whole.plain(), before, rtol=0, atol=0)
    # oneDNN lays out 64 outputs at a time here: with 60 of k, those of v would come to lie between them
    assert (whole.held.data_ptr() == parts[0].held.data_ptr()) == (not odd)
    assert_close(whole.part(0, parts[0]).plain(), parts[0].plain(), rtol=0, atol=0)


@pytest.mark.parametrize("weights", ["8bit", "4bit"])
def test_layers_in_few_bits_that_lie_side_by_side_are_joined_without_a_copy(tmp_path: Path, weights: str) -> None:
    model = _model(weights)
    layers = [one for one in model.values() if isinstance(one, LowBitsLinear)]
    apart = [one.low for one in layers]
    copied = joined(apart)
    assert copied.codes.data_ptr() != apart[0].codes.data_ptr()
    hold_once(model, tmp_path, least=0)
    mapped_ones = [one.low for one in layers]
    whole = joined(mapped_ones)
    assert whole.codes.data_ptr() == mapped_ones[0].codes.data_ptr()
    assert_close(whole.plain(torch.float32), copied.plain(torch.float32), rtol=0, atol=0)


def test_the_same_weights_are_one_file_and_others_another(tmp_path: Path) -> None:
    models = [_model(), _model(), _model(seed=1)]
    first, again, other = (hold_once(one, tmp_path, least=0) for one in models)
    assert first == again != other
    assert len(list(tmp_path.iterdir())) == 2


def test_weights_that_differ_where_the_name_does_not_look_are_not_mixed_up(tmp_path: Path) -> None:
    first, other = _model(), _model()
    other["q"].weight.data[-1, -1] += 1.0
    wanted = _outputs(other)
    file = hold_once(first, tmp_path, least=0)
    assert hold_once(other, tmp_path, least=0) == file  # the name is taken over; who mapped the old file keeps it
    assert_close(_outputs(other)[1], wanted[1], rtol=1e-5, atol=1e-5)
    assert_close(_outputs(first)[1], _outputs(_model())[1], rtol=1e-5, atol=1e-5)


def test_what_a_process_writes_by_mistake_reaches_no_other(tmp_path: Path) -> None:
    first, second = _model(), _model()
    hold_once(first, tmp_path, least=0)
    hold_once(second, tmp_path, least=0)
    before = _outputs(second)[0]
    first["embed"].weight.data.zero_()
    assert_close(_outputs(second)[0], before, rtol=0, atol=0)


def test_a_damaged_file_is_seen_and_made_again(tmp_path: Path) -> None:
    model, again = _model(), _model()
    file = hold_once(model, tmp_path, least=0)
    assert file is not None
    whole = file.read_bytes()
    file.chmod(0o600)
    file.write_bytes(whole[:100] + bytes([whole[100] ^ 1]) + whole[101:])
    assert hold_once(again, tmp_path, least=0) == file
    assert file.read_bytes() == whole


def test_where_nothing_can_be_written_each_process_keeps_its_own(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("in the way")
    model = _model()
    wanted = _outputs(model)
    with caplog.at_level(logging.WARNING):
        assert hold_once(model, tmp_path / "file" / "cache", least=0) is None
    assert "not shared" in caplog.text
    assert_close(_outputs(model), wanted, rtol=1e-5, atol=1e-5)


def test_a_small_model_is_not_worth_a_file(tmp_path: Path) -> None:
    model = _model()
    assert sum(one.nbytes for one in model.parameters()) < LEAST
    assert hold_once(model, tmp_path) is None
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_leaves_nothing_behind_and_the_weights_private(tmp_path: Path) -> None:
    script = MODEL + (
        "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))\n"  # as a full disk would
        "import logging; logging.basicConfig()\n"
        f"made = model(); print(hold_once(made, Path({str(tmp_path)!r}), least=0), float(made['embed'].weight[3, 4]))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.split()[0] == "None" and float(done.stdout.split()[1]) != 0.0
    assert "not shared between processes" in done.stderr
    assert list(tmp_path.iterdir()) == []


# -- two processes


@contextlib.contextmanager
def _children(folder: Path, count: int) -> Iterator[list[subprocess.Popen[str]]]:
    """Processes that hold the same weights until they read a line; then they say what they map."""
    script = MODEL + (
        f"made = model(); file = hold_once(made, Path({str(folder)!r}), least=0)\n"
        "total = float(made['a'](torch.ones(1, 1024).bfloat16()).sum())\n"
        "made['embed'](torch.arange(512)).sum(); print(file, flush=True); sys.stdin.readline()\n"
        "again = float(made['a'](torch.ones(1, 1024).bfloat16()).sum()); print(again == total)\n"
        "print(open('/proc/self/smaps').read(), flush=True)"
    )
    with contextlib.ExitStack() as stack:
        words = [sys.executable, "-c", script]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        yield [stack.enter_context(subprocess.Popen(words, **pipes)) for _ in range(count)]  # type: ignore[call-overload]


def _file_of(child: subprocess.Popen[str]) -> Path:
    assert child.stdout is not None
    return Path(child.stdout.readline().strip())


def test_two_processes_that_start_at_once_share_the_pages_of_one_file(tmp_path: Path) -> None:
    with _children(tmp_path, 2) as children:
        files = [_file_of(child) for child in children]
        assert files[0] == files[1] and list(tmp_path.iterdir()) == [files[0]]
        lines = children[0].communicate("\n", timeout=60)[0].splitlines()
        children[1].communicate("\n", timeout=60)
    at = [index for index, line in enumerate(lines) if line.endswith(str(files[0]))]
    facts = [line.split() for index in at for line in lines[index + 1 : index + 12]]
    found = {name: sum(int(one[1]) for one in facts if one[0] == f"{name}:") for name in ("Rss", "Pss")}
    # half of each page counts for either process
    assert found["Rss"] >= 5000 and found["Pss"] <= 0.55 * found["Rss"]


def test_a_killed_process_takes_nothing_from_the_other_and_leaves_nothing_in_the_end(tmp_path: Path) -> None:
    with _children(tmp_path, 2) as children:
        file = _file_of(children[0])
        _file_of(children[1])
        os.kill(children[0].pid, signal.SIGKILL)
        children[0].wait()
        remove_unused(tmp_path)
        assert file.exists()  # the other one maps it, and whoever starts again finds it
        assert children[1].communicate("\n", timeout=60)[0].splitlines()[0] == "True"
    assert file.exists()  # nobody was there to remove it
    remove_unused(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_one_killed_while_it_writes_leaves_what_the_next_start_removes(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys; from pathlib import Path; from openclaw_rl.weights.mapped_files import make\n"
        "def write(target): target.write(b'half'); target.flush(); os.kill(os.getpid(), signal.SIGKILL)\n"
        f"make(Path({str(tmp_path)!r}) / 'whole.bin', write)"
    )
    done = subprocess.run([sys.executable, "-c", script], check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL
    assert [path.suffix for path in tmp_path.iterdir()] == [".new"]
    assert mapped(tmp_path / "whole.bin") is None
    file = hold_once(model := _model(), tmp_path, least=0)
    assert list(tmp_path.iterdir()) == [file] and model is not None


def test_a_file_is_locked_as_long_as_it_is_mapped(tmp_path: Path) -> None:
    held = make(tmp_path / "one.bin", lambda target: target.write(b"weights") and None)
    assert held is not None and held[:] == b"weights"
    assert make(tmp_path / "one.bin", lambda target: target.write(b"others") and None) is None
    again = mapped(tmp_path / "one.bin")
    held.close()
    remove_unused(tmp_path)
    assert again is not None and again[:] == b"weights" and (tmp_path / "one.bin").exists()
    again.close()
    remove_unused(tmp_path)
    assert list(tmp_path.iterdir()) == []
