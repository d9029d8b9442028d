from __future__ import annotations

from pathlib import Path

import pytest
import torch
from trainer_models import Recorder, save_model


@pytest.fixture(scope="session")
def trainer_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return save_model(tmp_path_factory.mktemp("models") / "qwen3")


@pytest.fixture(scope="session")
def recorder(trainer_model: Path) -> Recorder:
    return Recorder(trainer_model)
