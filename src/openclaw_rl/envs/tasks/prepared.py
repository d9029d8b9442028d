"""States that are made once and start many boxes: the environment of a task, or an unpacked library."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass

from openclaw_rl.envs.box.sandbox import Boxes, BoxSpec, Sandbox, Snapshot
from openclaw_rl.errors import BoxError

MOST_KEPT = 64


@dataclass(frozen=True, slots=True)
class PreparedState:
    """A prepared state: its snapshot (None: the spec is enough), and the spec of its boxes."""

    spec: BoxSpec
    at: Snapshot | None


Make = Callable[[], Coroutine[None, None, PreparedState]]


@dataclass(slots=True)
class _Kept:
    boxes: Boxes
    making: asyncio.Task[PreparedState]
    starting: int = 0  # boxes that are being made from it


class PreparedStates:
    """The states of a source by name. If there are more than `most`, the least recently used is dropped.

    Drops no state that a box is based on. It does not know that a state is based on another: keep states that others
    are made from in a separate object whose `most` is never reached.
    """

    def __init__(self, *, most: int = MOST_KEPT) -> None:
        self._most = most
        self._kept: dict[tuple[str, int], _Kept] = {}

    async def box(self, name: str, boxes: Boxes, make: Make) -> Sandbox:
        """A new box in the state of this name, which `make` makes if it is missing. Errors of `make` are raised."""
        kept = await self._of(name, boxes, make)
        kept.starting += 1
        try:
            state = await asyncio.shield(kept.making)
            return await boxes.create(state.spec, at=state.at)
        finally:
            kept.starting -= 1

    async def _of(self, name: str, boxes: Boxes, make: Make) -> _Kept:
        key = (name, id(boxes))  # `boxes` is referenced below, so that its id stays unique
        kept = self._kept.pop(key, None)
        if kept is None or (kept.making.done() and (kept.making.cancelled() or kept.making.exception() is not None)):
            kept = _Kept(boxes, asyncio.get_running_loop().create_task(make()))
        self._kept[key] = kept  # as the most recently used
        if len(self._kept) > self._most:
            await self._drop_oldest(key)
        return kept

    async def _drop_oldest(self, but: tuple[str, int]) -> None:
        """Drops the least recently used states that are not in use, until there are few enough."""
        for key, kept in [*self._kept.items()]:
            if len(self._kept) <= self._most:
                return
            if key == but or kept.starting or not kept.making.done():
                continue
            failed = kept.making.cancelled() or kept.making.exception() is not None
            snapshot = None if failed else kept.making.result().at
            del self._kept[key]  # first, so that no box begins on a state that is being dropped
            try:
                if snapshot is not None:
                    await kept.boxes.drop(snapshot)
            except BoxError:  # a box is based on it: the next one is tried
                self._kept.setdefault(key, kept)
