"""Boxes of each kind this machine can make; where it cannot make one, its tests are skipped with the reason.

A box without walls is enough where nothing gets out anyway.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from openclaw_rl.envs.box.plain import PlainBoxes
from openclaw_rl.envs.box.probe import BoxKind, open_boxes
from openclaw_rl.envs.box.sandbox import Boxes
from openclaw_rl.errors import BoxError

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What needs bubblewrap, and what depends on how busy the machine is, is run by `make test-boxes`."""
    for item in items:
        needs_walls = item.path.is_relative_to(HERE) and "isolated" in getattr(item, "fixturenames", ())
        if needs_walls or item.path.parent == HERE:
            item.add_marker(pytest.mark.slow)


async def opened(kind: BoxKind = BoxKind.AUTO) -> Boxes:
    try:
        return await open_boxes(kind)
    except BoxError as problem:
        pytest.skip(problem.problem)


@pytest.fixture(params=[BoxKind.OVERLAY, BoxKind.COPY, BoxKind.PLAIN])
async def boxes(request: pytest.FixtureRequest) -> AsyncIterator[Boxes]:
    """Every kind."""
    maker = await opened(request.param)
    yield maker
    await maker.aclose()


@pytest.fixture(params=[BoxKind.OVERLAY, BoxKind.COPY])
async def walled(request: pytest.FixtureRequest) -> AsyncIterator[Boxes]:
    """The kinds that keep what runs in them apart."""
    maker = await opened(request.param)
    yield maker
    await maker.aclose()


@pytest.fixture
async def plain() -> AsyncIterator[Boxes]:
    """Boxes without walls: they can be made everywhere, at once."""
    maker = PlainBoxes.open()
    yield maker
    await maker.aclose()


@pytest.fixture
async def isolated() -> AsyncIterator[Boxes]:
    """The best boxes with walls that this machine can make."""
    maker = await opened()
    yield maker
    await maker.aclose()
