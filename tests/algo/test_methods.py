from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import torch
from torch import tensor
from torch.testing import assert_close

from openclaw_rl import algo
from openclaw_rl.algo.methods.binary import baseline_advantage
from openclaw_rl.algo.methods.combine import combined_advantage
from openclaw_rl.algo.methods.opd import hindsight_advantage
from openclaw_rl.trainers.settings import METHODS, Method


def test_every_method_has_a_file_of_its_name_and_is_listed() -> None:
    assert algo.__file__ is not None
    files = {path.stem for path in (Path(algo.__file__).parent / "methods").glob("*.py")} - {"__init__"}
    assert files == {method.value for method in METHODS} == set(Method)


def test_a_methods_weights_are_known_without_torch() -> None:
    code = (
        "import sys; from openclaw_rl.trainers.settings import METHODS; assert METHODS and 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_single_reply_is_measured_against_what_rewards_have_been() -> None:
    assert baseline_advantage(1.0, None) == 1.0
    assert baseline_advantage(1.0, 0.25) == 0.75
    assert baseline_advantage(0.0, 0.25) == -0.25


def test_a_hint_that_makes_a_token_likelier_praises_it() -> None:
    teacher, student = tensor([-0.5, -1.2]), tensor([-2.3, -1.0])
    assert_close(hindsight_advantage(teacher, student), tensor([1.8, -0.2]), rtol=0, atol=1e-6)
    assert_close(hindsight_advantage(teacher, student, clip=1.0), tensor([1.0, -0.2]), rtol=0, atol=1e-6)
    assert_close(hindsight_advantage(student, teacher, clip=1.0), tensor([-1.0, 0.2]), rtol=0, atol=1e-6)


def test_a_teacher_who_agrees_says_nothing() -> None:
    assert torch.equal(hindsight_advantage(tensor([-0.7]), tensor([-0.7]), clip=1.0), torch.zeros(1))


def test_signals_are_weighed_where_they_exist() -> None:
    rl, opd = tensor([1.0, 1.0]), tensor([0.5, -0.25])
    both = combined_advantage(rl, opd, w_rl=2.0, w_opd=4.0)
    assert both is not None
    assert_close(both, tensor([4.0, 1.0]), rtol=0, atol=0)
    alone = combined_advantage(None, opd, w_rl=2.0, w_opd=4.0)
    assert alone is not None
    assert_close(alone, tensor([2.0, -1.0]), rtol=0, atol=0)
    assert combined_advantage(rl, None, w_rl=0.0, w_opd=1.0) is None
    assert combined_advantage(None, None, w_rl=1.0, w_opd=1.0) is None


def test_a_weight_of_nothing_does_not_let_a_nan_through() -> None:
    kept = combined_advantage(tensor([1.0]), tensor([math.nan]), w_rl=1.0, w_opd=0.0)
    assert kept is not None
    assert kept.item() == 1.0
