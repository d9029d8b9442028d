"""A trainer reads the base weights in the engine's memory, where they are its own byte for byte, while it lives."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
import torch
from file_ipc import FileIpc, RefusedIpc
from torch import Tensor, nn
from torch.testing import assert_close

from openclaw_rl.engines.local.adapters import AdapterPass
from openclaw_rl.engines.local.layers import Linears
from openclaw_rl.errors import TrainerError
from openclaw_rl.weights.forms import lower
from openclaw_rl.weights.lending import LentTensor, Loans, LoanTerms, StorageHandle, forget_counts, lent, loan_folder
from openclaw_rl.weights.parts import is_equal, label, parts_of

CPU = torch.device("cpu")
QKV = ("q", "k", "v")


def _model(weights: str = "auto", *, seed: int = 0, dtype: torch.dtype = torch.float32) -> nn.ModuleDict:
    """q, k and v, a norm, and a head that is tied to the embedding."""
    torch.manual_seed(seed)
    model = nn.ModuleDict({name: nn.Linear(128, size) for name, size in zip(QKV, (64, 192, 64), strict=True)})
    model["norm"] = nn.LayerNorm(128, bias=False)
    model["embed"], model["head"] = nn.Embedding(200, 128), nn.Linear(128, 200, bias=False)
    model["head"].weight = model["embed"].weight
    model = model.to(dtype).requires_grad_(False)
    lower(model, model["head"], weights, dtype=dtype, device=CPU)
    return model


def _as_in_the_engine(weights: str = "auto", *, seed: int = 0) -> nn.ModuleDict:
    """The same model, with q, k and v joined to one weight, of which theirs are views."""
    model = _model(weights, seed=seed)
    linears = Linears(AdapterPass(), may_copy=False)
    linears.make("qkv", {name: model[name] for name in QKV})
    linears.make("head", {"head": model["head"]})
    return model


def _outputs(model: nn.ModuleDict) -> list[Tensor]:
    rows = torch.linspace(-1, 1, 5 * 128).view(5, 128)
    return [model["embed"](torch.tensor([0, 7, 199])), *(model[name](rows) for name in (*QKV, "norm", "head"))]


def _bytes_of(model: nn.Module) -> int:
    return sum(part.tensor().nbytes for part in parts_of(model).values())


@pytest.mark.parametrize("weights", ["auto", "8bit", "4bit"])
def test_all_of_a_model_is_read_in_the_memory_of_the_lender(tmp_path: Path, weights: str) -> None:
    lender, own = _as_in_the_engine(weights), _model(weights)
    wanted = _outputs(_model(weights))
    loans = Loans(tmp_path, ipc=FileIpc())
    with lent(parts_of(lender), tmp_path, ipc=FileIpc(), least=0) as file:
        assert file is not None and file.stat().st_mode & 0o777 == 0o600
        assert loans.borrow(own, CPU) == _bytes_of(own) == _bytes_of(_model(weights))
        loans.check()
        for ours, theirs in zip(_outputs(own), wanted, strict=True):
            assert_close(ours, theirs, rtol=0, atol=0)
        for name, part in parts_of(lender).items():
            part.tensor().view(torch.uint8).fill_(3)
            assert bool((parts_of(own)[name].tensor().view(torch.uint8) == 3).all()), name
        assert own["head"].weight is own["embed"].weight
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(TrainerError, match="has ended"):
        loans.check()
    loans.close()


def test_layers_that_the_engine_joined_are_views_of_one_storage(tmp_path: Path) -> None:
    lender = _as_in_the_engine()
    with lent(parts_of(lender), tmp_path, ipc=FileIpc(), least=0) as file:
        assert file is not None
        terms = msgspec.json.decode(file.read_bytes(), type=LoanTerms)
    q, k, v = (terms.tensors[f"{name}.weight"] for name in QKV)
    assert q.storage == k.storage == v.storage
    assert [one.offset for one in (q, k, v)] == [0, 64 * 128, (64 + 192) * 128]
    assert terms.storages[q.storage].size_bytes == (64 + 192 + 64) * 128 * 4
    assert "head.weight" not in terms.tensors  # tied: it is the embedding


def test_what_differs_stays_the_borrowers_own(tmp_path: Path) -> None:
    lender, own = _as_in_the_engine(), _model()
    lender["k"].weight.data[-1, -1] += 1.0  # where the file's name does not look
    wanted = _outputs(_model())
    loans = Loans(tmp_path, ipc=FileIpc())
    with lent(parts_of(lender), tmp_path, ipc=FileIpc(), least=0):
        assert loans.borrow(own, CPU) == _bytes_of(own) - own["k"].weight.nbytes
        for ours, theirs in zip(_outputs(own), wanted, strict=True):
            assert_close(ours, theirs, rtol=0, atol=0)
        lender["k"].weight.data.zero_()
        assert_close(_outputs(own)[2], wanted[2], rtol=0, atol=0)
    loans.close()


@pytest.mark.parametrize("other", [_model(seed=1), _model(dtype=torch.bfloat16), _model("8bit")])
def test_another_model_and_another_number_format_are_not_borrowed(tmp_path: Path, other: nn.ModuleDict) -> None:
    loans = Loans(tmp_path, ipc=FileIpc())
    with lent(parts_of(_as_in_the_engine()), tmp_path, ipc=FileIpc(), least=0):
        assert loans.borrow(other, CPU) == 0
    loans.check()  # nobody is watched for nothing


def _rewritten(file: Path, **tensors: LentTensor | None) -> None:
    """Changes what a lender says of some tensors; None removes one."""
    terms = msgspec.json.decode(file.read_bytes(), type=LoanTerms)
    changed = {name.replace("_", "."): one for name, one in tensors.items()}
    kept = {name: one for name, one in {**terms.tensors, **changed}.items() if one is not None}
    file.write_bytes(msgspec.json.encode(replace(terms, tensors=kept)))


def test_what_the_lender_lacks_or_says_wrongly_is_the_borrowers_own(tmp_path: Path) -> None:
    lender, own = _as_in_the_engine(), _model()
    wanted = _outputs(_model())
    loans = Loans(tmp_path, ipc=FileIpc())
    with lent(parts_of(lender), tmp_path, ipc=FileIpc(), least=0) as file:
        assert file is not None
        k = msgspec.json.decode(file.read_bytes(), type=LoanTerms).tensors["k.weight"]
        _rewritten(file, q_weight=None, k_weight=replace(k, offset=1), v_weight=replace(k, dtype="torch.int32"))
        assert loans.borrow(own, CPU) == _bytes_of(own) - sum(own[name].weight.nbytes for name in QKV)
    for ours, theirs in zip(_outputs(own), wanted, strict=True):
        assert_close(ours, theirs, rtol=0, atol=0)
    loans.close()


@pytest.mark.parametrize("fault", [{"storage": 99}, {"offset": 1 << 40}, {"offset": -5}])
def test_a_description_that_cannot_be_right_is_said_and_not_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, fault: dict[str, int]
) -> None:
    own = _model()
    loans = Loans(tmp_path, ipc=FileIpc())
    with lent(parts_of(_as_in_the_engine()), tmp_path, ipc=FileIpc(), least=0) as file:
        assert file is not None
        q = msgspec.json.decode(file.read_bytes(), type=LoanTerms).tensors["q.weight"]
        _rewritten(file, q_weight=replace(q, **fault))  # type: ignore[arg-type]
        assert loans.borrow(own, CPU) == 0
        file.write_bytes(b'{"storages": [')
        assert loans.borrow(own, CPU) == 0
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    assert_close(_outputs(own), _outputs(_model()), rtol=0, atol=0)
    loans.check()


def test_a_tensor_that_is_laid_out_otherwise_is_read_as_it_is(tmp_path: Path) -> None:
    lender, own = (nn.ModuleDict({"a": nn.Linear(64, 32, bias=False)}).requires_grad_(False) for _ in range(2))
    values = own["a"].weight.data.clone()
    wide = torch.zeros(70, 40)
    wide[3:67, 5:37] = values.t()
    lender["a"].weight.data = wide[3:67, 5:37].t()
    loans = Loans(tmp_path, ipc=FileIpc())
    with lent(parts_of(lender), tmp_path, ipc=FileIpc(), least=0):
        assert loans.borrow(own, CPU) == values.nbytes
        assert own["a"].weight.stride() == (1, 40) and own["a"].weight.storage_offset() == 3 * 40 + 5
        assert_close(own["a"].weight.data, values, rtol=0, atol=0)
    loans.close()


def test_bytes_are_compared_and_not_numbers_a_piece_at_a_time() -> None:
    ours = torch.tensor([[0.0, 1.0], [float("nan"), 2.0], [3.0, 4.0]])
    assert is_equal(ours, ours.clone(), piece=8)
    assert is_equal(ours, ours.t().contiguous().t(), piece=8)
    for row, column, value in ((0, 0, -0.0), (2, 1, 5.0)):
        theirs = ours.clone()
        theirs[row, column] = value
        assert not is_equal(ours, theirs, piece=8) and not is_equal(ours, theirs)
    assert not is_equal(ours, ours.double()) and not is_equal(ours, ours[:2])
    assert is_equal(torch.tensor(2.0), torch.tensor(2.0)) and not is_equal(torch.tensor(2.0), torch.tensor(1.0))


def test_a_small_model_and_a_model_on_a_device_without_ipc_are_not_lent(tmp_path: Path) -> None:
    with lent(parts_of(_model()), tmp_path, ipc=FileIpc()) as file:
        assert file is None
    with lent(parts_of(_model()), tmp_path, least=0) as file:  # CUDA's own: not on a CPU
        assert file is None
    with lent({}, tmp_path, least=0) as file:
        assert file is None
    assert not Loans(tmp_path).reach(CPU) and Loans(tmp_path).borrow(_model(), CPU) == 0
    assert list(tmp_path.iterdir()) == []


def test_where_the_system_refuses_everybody_has_their_own_and_one_line_says_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    own = _model()
    with lent(parts_of(_as_in_the_engine()), tmp_path, ipc=RefusedIpc(may_give=False), least=0) as file:
        assert file is None
    refused = Loans(tmp_path, ipc=RefusedIpc(may_give=True))
    with lent(parts_of(_as_in_the_engine()), tmp_path, ipc=FileIpc(), least=0):
        assert refused.borrow(own, CPU) == 0
    refused.check()
    (tmp_path / "file").write_text("in the way")
    with lent(parts_of(_as_in_the_engine()), tmp_path / "file", ipc=FileIpc(), least=0) as file:
        assert file is None
    first, second, _ = (record.getMessage() for record in caplog.records)
    assert "not shared with the trainer: CUDA error: operation not supported" in first and "\n" not in first
    assert "the trainer has its own: CUDA error: invalid argument" in second
    assert_close(_outputs(own), _outputs(_model()), rtol=0, atol=0)


def test_only_torchs_own_files_of_counts_are_removed(tmp_path: Path) -> None:
    handle = StorageHandle(b"memory", 1, 0, f"/torch_{os.getpid()}_{os.getpid()}_0".encode(), 0)
    counts = Path("/dev/shm") / handle.counter.decode()[1:]
    counts.write_bytes(b"counts")
    (tmp_path / "other").write_text("other")
    for name in (f"/../..{tmp_path}/other", str(tmp_path / "other"), "/torch_1_2/../x", "\udc80"):
        forget_counts(replace(handle, counter=name.encode(errors="surrogateescape")))
    assert (tmp_path / "other").exists()
    forget_counts(handle)
    forget_counts(handle)
    assert not counts.exists()


def test_the_name_depends_on_the_place_and_on_what_is_there() -> None:
    names = {label(parts_of(_model(seed=seed)), place) for seed in (0, 1) for place in ("a", "b")}
    assert len(names) == 4
    assert label(parts_of(_model()), "a") == label(parts_of(_as_in_the_engine()), "a")


# -- two processes

LENDER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from file_ipc import FileIpc
from test_lending import _as_in_the_engine
from openclaw_rl.weights.lending import lent
from openclaw_rl.weights.parts import parts_of
with lent(parts_of(_as_in_the_engine()), Path(sys.argv[1]), ipc=FileIpc(), least=0) as file:
    print(file, flush=True)
    sys.stdin.read()
"""


def test_a_lender_that_is_killed_is_noticed_and_what_it_left_is_removed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder, own, later = loan_folder(tmp_path), _model(), _model()
    here = str(Path(__file__).parent)
    words = [sys.executable, "-c", LENDER, str(folder), here]
    loans = Loans(folder, ipc=FileIpc())
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        file = Path(child.stdout.readline().strip())
        assert file.parent == folder
        assert loans.borrow(own, CPU) == _bytes_of(own)
        assert_close(_outputs(own), _outputs(_model()), rtol=0, atol=0)
        loans.check()
        child.kill()
    with pytest.raises(TrainerError, match="has ended") as told:
        loans.check()
    assert "next step" in told.value.fix
    assert file.exists()
    again = Loans(folder, ipc=FileIpc())
    with caplog.at_level(logging.WARNING):
        assert again.borrow(later, CPU) == 0
    assert not file.exists() and caplog.records == []
    again.check()
    loans.close()
