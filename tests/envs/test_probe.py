"""Where bubblewrap may do nothing, no box is made, the reason is given, and nobody gets a box without walls instead."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from openclaw_rl.envs.box.probe import BoxKind, open_boxes, probe
from openclaw_rl.errors import BoxError

REFUSES = """#!/bin/sh
echo "bwrap: setting up uid map: Permission denied"
exit 1
"""


@pytest.fixture
def refusing() -> Iterator[str]:
    """A folder with a bubblewrap that is not allowed to make user namespaces. Boxes are made by another user."""
    if not sys.platform.startswith("linux"):
        pytest.skip("bubblewrap is a program of Linux")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        program = Path(folder) / "bwrap"
        program.write_text(REFUSES, "utf-8")
        program.chmod(0o755)
        yield folder


async def test_a_machine_that_can_wall_nothing_in_gives_the_reason_and_no_box(refusing: str) -> None:
    found = await probe(bwrap_at=refusing)
    assert found.kind is None and [*found.refused] == [BoxKind.OVERLAY, BoxKind.COPY]
    assert found.text.startswith("no boxes can be made here: overlay:")
    with pytest.raises(BoxError, match="no boxes can be made here") as raised:
        await open_boxes(bwrap_at=refusing)
    assert "choose `plain`, which does not isolate anything" in raised.value.fix


async def test_what_bubblewrap_says_is_in_the_reason(refusing: str) -> None:
    found = await probe(bwrap_at=refusing)
    assert all("Permission denied" in why for why in found.refused.values()), found.refused


async def test_a_machine_without_bubblewrap_says_so() -> None:
    found = await probe(bwrap_at="/nonexistent")
    assert {*found.refused.values()} == {"bubblewrap (bwrap) is not installed"}
