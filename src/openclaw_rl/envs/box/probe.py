"""Which boxes this machine can make, found by making one; opens the best kind."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from openclaw_rl.envs.box.docker import DockerBoxes
from openclaw_rl.envs.box.isolated import IsolatedBoxes, Means
from openclaw_rl.envs.box.plain import PlainBoxes
from openclaw_rl.envs.box.sandbox import Boxes, BoxSpec
from openclaw_rl.errors import BoxError

PROBE_S = 30.0
BWRAP_AT = "/usr/bin:/bin:/usr/local/bin"


class BoxKind(StrEnum):
    """Ways to make boxes. `auto` takes the first of the first two that works, and never `plain`."""

    AUTO = "auto"
    OVERLAY = "overlay"  # bubblewrap over an overlay
    COPY = "copy"  # bubblewrap over a copied folder
    DOCKER = "docker"
    PODMAN = "podman"
    PLAIN = "plain"  # no isolation


@dataclass(frozen=True, slots=True)
class BoxProbe:
    """What was found: the best kind, the limits it enforces, and why better kinds are not available."""

    kind: BoxKind | None
    limits: Mapping[str, str] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    engines: tuple[str, ...] = ()  # docker and podman, if their programs are installed

    @property
    def text(self) -> str:
        """All of it in one line."""
        if self.kind is None:
            return f"no boxes can be made here: {'; '.join(f'{kind}: {why}' for kind, why in self.refused.items())}"
        held = ", ".join(
            f"{limit} by {by}" if by != "not held" else f"{limit} not held" for limit, by in self.limits.items()
        )
        return f"boxes are made by {self.kind} ({held})"


MEANS: Mapping[BoxKind, tuple[tuple[bool, bool], ...]] = {
    BoxKind.OVERLAY: ((True, True), (True, False)),  # has_overlay, is_in_memory
    BoxKind.COPY: ((False, True), (False, False)),
}


async def open_boxes(kind: BoxKind = BoxKind.AUTO, *, bwrap_at: str = BWRAP_AT) -> Boxes:
    """A maker of boxes of this kind, tested; BoxError with the reasons if none works.

    `bwrap_at`: the folders in which bubblewrap's program is looked for.
    """
    if kind is BoxKind.PLAIN:
        return PlainBoxes.open()
    if kind in (BoxKind.DOCKER, BoxKind.PODMAN):
        return await DockerBoxes.open(kind.value)
    boxes, refused = await _best(list(MEANS) if kind is BoxKind.AUTO else [kind], bwrap_at)
    if boxes is None:
        raise BoxError(
            f"no boxes can be made here: {'; '.join(f'{name}: {why}' for name, why in refused.items())}",
            fix=(
                "install bubblewrap and allow user namespaces, use docker or podman, or choose "
                "`plain`, which does not isolate anything"
            ),
        )
    return boxes[1]


async def probe(*, bwrap_at: str = BWRAP_AT) -> BoxProbe:
    """Which kinds of boxes this machine can make."""
    boxes, refused = await _best(list(MEANS), bwrap_at)
    engines = tuple(name for name in ("docker", "podman") if shutil.which(name))
    if boxes is None:
        return BoxProbe(None, refused=refused, engines=engines)
    kind, maker = boxes
    try:
        return BoxProbe(kind, maker.limits_in_force, refused, engines)
    finally:
        await maker.aclose()


async def _best(kinds: list[BoxKind], bwrap_at: str) -> tuple[tuple[BoxKind, IsolatedBoxes] | None, dict[str, str]]:
    """The best maker, open, and why each better kind was refused."""
    refused: dict[str, str] = {}
    bwrap = shutil.which("bwrap", path=bwrap_at)
    if not sys.platform.startswith("linux") or bwrap is None:
        return None, {kind: "bubblewrap (bwrap) is not installed" for kind in kinds}
    for kind in kinds:
        for has_overlay, is_in_memory in MEANS[kind]:
            try:
                maker = IsolatedBoxes.open(Means(bwrap, has_overlay, is_in_memory))
            except BoxError as problem:
                refused[kind] = problem.problem
                continue
            try:
                await _try_out(maker)
            except BoxError as problem:
                refused[kind] = problem.problem
                await maker.aclose()
                continue
            refused.pop(kind, None)
            return (kind, maker), refused
    return None, refused


async def _try_out(maker: IsolatedBoxes) -> None:
    """Makes a box and checks that it runs commands, keeps files, and is isolated from this machine."""
    box = await maker.create(BoxSpec())
    done = await box.exec("echo kept > file && cat file && readlink /proc/self/ns/net", timeout_s=PROBE_S)
    apart = os.readlink("/proc/self/ns/net")
    words = done.stdout.text.split()
    if not done.is_ok or words[:1] != ["kept"] or apart in words:
        raise BoxError(f"a box was made, but a command in it gave {done.exit_status}: {done.stderr.text.strip()}")
    await box.aclose()
