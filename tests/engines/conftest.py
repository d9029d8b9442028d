"""Tiny random models of several families, made once for all tests of the engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from engine_models import StepClock, make_model, write_adapter

from openclaw_rl.core.adapter import Adapter
from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.engines.local.build import open_core
from openclaw_rl.engines.local.core import Core
from openclaw_rl.engines.settings import EngineSettings


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> Iterator[None]:
    torch.set_num_threads(1)
    yield


@pytest.fixture(scope="session")
def model_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A folder with a tiny random model of a family, the same one each time."""
    folder = tmp_path_factory.mktemp("models")

    def make(family: str) -> Path:
        if not (folder / family).exists():
            make_model(family, folder / family)
        return folder / family

    return make


@pytest.fixture
def open_tiny(model_of: Callable[[str], Path]) -> Callable[..., Core]:
    """A core on a tiny model, whose steps take what `clock` says; other keywords are settings."""

    def make(family: str = "qwen3", *, clock: StepClock | None = None, **settings: int | float | str) -> Core:
        values: dict[str, object] = {"cache_tokens": 16384, "device": "cpu", **settings}
        of = EngineSettings(model=str(model_of(family)), **values)  # type: ignore[arg-type]
        if clock is None:
            return open_core(of)
        clock.core = open_core(of, clock=clock)
        return clock.core

    return make


@pytest.fixture(scope="session")
def adapter_of(model_of: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Adapter]:
    """A random adapter for a family, as the version of its number, large enough to change what is sampled."""
    folder = tmp_path_factory.mktemp("adapters")

    def make(number: int, family: str = "qwen3", *, rank: int = 4, scope: str = "shared") -> Adapter:
        version = PolicyVersion(scope, number)
        return write_adapter(model_of(family), folder / f"{family}-{rank}-{version}", version, rank=rank)

    return make
