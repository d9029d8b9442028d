"""One Ray cluster for all tests of this folder that need one."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import pytest

from openclaw_rl.testing.ray_nodes import RayNodes, ray_nodes


@pytest.fixture(scope="session")
def cluster() -> Iterator[RayNodes]:
    """A head with one CPU and two nodes with two each; a test that kills a node adds another."""
    if importlib.util.find_spec("ray") is None:
        pytest.skip("Ray is not installed: make test-cluster")
    with ray_nodes(1, 2, 2) as nodes:
        yield nodes
