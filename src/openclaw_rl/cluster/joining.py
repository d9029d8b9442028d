"""The cluster through Ray: joins it, reserves room on its nodes, and runs a process in each place. Needs Ray."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import socket
from collections.abc import Awaitable
from pathlib import Path
from typing import Any, TypeVar

import ray
from ray.exceptions import RayError, RayTaskError
from ray.util.placement_group import PlacementGroup, get_placement_group, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from openclaw_rl.cluster import keeper, node
from openclaw_rl.cluster.calls import Forget, Join, Joined, Place, Placed, Send, StartProcess
from openclaw_rl.cluster.node import PIECE, NodeActor, digest_of
from openclaw_rl.cluster.roles import Group, NodeRoom, check_room
from openclaw_rl.errors import ClusterError, ConfigError

log = logging.getLogger(__name__)
NAMESPACE = "openclaw-rl"
END_S = 20.0
REACH_S = 10.0
POLL_S = 0.2
HERE = "ray.io/node-id"
T = TypeVar("T")


class RayCluster:
    """Groups with their room, and an actor in each requested place."""

    def __init__(self, join: Join) -> None:
        self._groups = {group.role: group for group in join.groups}
        self._room: dict[str, PlacementGroup] = {}
        self._own: set[str] = set()  # roles whose room was reserved here
        self._actors: dict[Place, Any] = {}  # Ray's handles have no type
        self._place_s = join.place_s
        self._sent: dict[tuple[Place, Path], str] = {}  # digests
        self._keeper = Path(inspect.getfile(keeper)).read_text("utf-8")

    @classmethod
    def join(cls, join: Join) -> RayCluster:
        """Joins the cluster. Raises ConfigError if it is not available."""
        ray.cloudpickle.register_pickle_by_value(node)
        try:
            _reach(join.address)
            ray.init(address=join.address, namespace=NAMESPACE, logging_level=logging.ERROR, configure_logging=False)
        except (ConnectionError, RuntimeError, ValueError, TimeoutError, AssertionError, OSError) as problem:
            raise _refusal(join.address, problem) from problem
        return cls(join)

    async def reserve(self, join: Join) -> Joined:
        """Reserves each group's room. Raises ConfigError if the cluster has not enough."""
        nodes = _nodes()
        found = {group.role: _found(group.name) for group in join.groups if group.is_found}
        own = [group for group in join.groups if found.get(group.role) is None]
        check_room(own, nodes)
        for group in own:
            while not group.is_found and _found(group.name):  # noqa: ASYNC110 - of a process that is gone
                await asyncio.sleep(POLL_S)
            found[group.role] = _room(group)
        self._room = {role: room for role, room in found.items() if room is not None}
        self._own = {group.role for group in own}
        for group in join.groups:
            is_there = await asyncio.to_thread(self._room[group.role].wait, join.place_s)
            if not is_there:
                free = ray.available_resources()
                raise ConfigError(
                    f"the {group.role} asks for {group.count} places of {group.bundle}, and others use the cluster: "
                    f"{free.get('GPU', 0):g} GPUs and {free.get('CPU', 0):g} CPUs are free, on all nodes together",
                    fix="wait for the others, ask for less, or add nodes",
                )
        words = tuple(f"{one.name} ({one.gpus:g} GPUs, {one.cpus:g} CPUs)" for one in nodes)
        return Joined(words, str(ray.util.get_node_ip_address()))

    async def place(self, place: Place) -> Placed:
        """A new actor in the place. Raises ClusterError if no node has room for it, or it broke."""
        await self.end(place)
        group = self._groups[place.role]
        where = PlacementGroupSchedulingStrategy(self._room[place.role], place.number)
        made = ray.remote(NodeActor).options(
            num_cpus=group.cpus, num_gpus=group.gpus, max_restarts=0, max_task_retries=0, scheduling_strategy=where
        )
        self._actors[place] = actor = made.remote(self._keeper)
        try:
            async with asyncio.timeout(self._place_s):
                return Placed(*await self._asked(place, actor.place.remote()))
        except TimeoutError:
            await self.end(place)
            raise ClusterError(
                f"no node has had room for process {place.number} of the {place.role} for {self._place_s:g} s",
                fix="add a node, or end what else runs there; it is tried again",
            ) from None

    async def send(self, send: Send) -> Path:
        """The path of the files on the place's node."""
        actor, folder = self._actor(send.place), send.folder
        names = send.names or await asyncio.to_thread(_names, folder)
        digest = await asyncio.to_thread(digest_of, folder, names)
        asked = actor.found.remote(str(folder), names, digest, send.is_kept)
        found = await self._asked(send.place, asked)
        if not found:
            for name in names:
                with (folder / name).open("rb") as stream:
                    while True:
                        piece = await asyncio.to_thread(stream.read, PIECE)
                        await self._asked(send.place, actor.write.remote(digest, name, piece, send.is_kept))
                        if len(piece) < PIECE:
                            break
            found = await self._asked(send.place, actor.finish.remote(str(folder), names, digest, send.is_kept))
            self._sent[(send.place, folder)] = digest
        return Path(found)

    async def forget(self, call: Forget) -> None:
        """Removes files that were sent."""
        digest = self._sent.pop((call.place, call.folder), None)
        if digest is not None:
            await self._asked(call.place, self._actor(call.place).forget.remote(digest))

    async def start(self, start: StartProcess) -> None:
        """Starts a process in its place."""
        await self._asked(start.place, self._actor(start.place).start.remote(start.command, start.environment))

    async def wait(self, place: Place) -> str:
        """How the process ended."""
        found: str = await self._asked(place, self._actor(place).wait.remote())
        return found

    async def end(self, place: Place) -> None:
        """Ends the process, if there is one, and its actor."""
        actor = self._actors.pop(place, None)
        self._sent = {key: digest for key, digest in self._sent.items() if key[0] != place}
        if actor is None:
            return
        with contextlib.suppress(TimeoutError, RayError):
            async with asyncio.timeout(END_S):
                await actor.end.remote()
        ray.kill(actor)

    def leave(self) -> None:
        """Ends all actors, and releases the room."""
        for role in self._own:
            remove_placement_group(self._room[role])
        ray.shutdown()

    def _actor(self, place: Place) -> Any:
        if place not in self._actors:
            raise ClusterError(f"process {place.number} of the {place.role} has no node")
        return self._actors[place]

    async def _asked(self, place: Place, asked: Awaitable[T]) -> T:
        """An actor's answer. Raises ClusterError if it is gone or failed."""
        try:
            return await asked
        except RayTaskError as problem:
            raise ClusterError(str(problem.cause)) from problem
        except RayError as problem:
            raise ClusterError(
                f"the node of process {place.number} of the {place.role} is gone: {str(problem).splitlines()[0]}"
            ) from problem


def _reach(address: str) -> None:
    """Raises OSError or ValueError if nobody listens: Ray would try for minutes."""
    if address != "auto":
        host, _, port = address.rpartition(":")
        socket.create_connection((host.strip("[]"), int(port)), REACH_S).close()


def _nodes() -> list[NodeRoom]:
    own = ray.get_runtime_context().get_node_id()
    return [
        NodeRoom(
            one["NodeManagerAddress"],
            one["Resources"].get("GPU", 0.0),
            one["Resources"].get("CPU", 0.0),
            one["NodeID"] == own,
        )
        for one in ray.nodes()
        if one["Alive"]
    ]


def _found(name: str) -> PlacementGroup | None:
    """Room that another program in this namespace reserved under a name."""
    if name:
        with contextlib.suppress(ValueError):
            return get_placement_group(name)
    return None


def _room(group: Group) -> PlacementGroup:
    own = {HERE: ray.get_runtime_context().get_node_id()}
    return placement_group(
        [group.bundle] * group.count,
        strategy="PACK" if group.begins_here else "SPREAD",
        name=group.name,
        bundle_label_selector=[own if group.begins_here and not at else {} for at in range(group.count)],
    )


def _names(folder: Path) -> tuple[str, ...]:
    return tuple(sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()))


def _refusal(address: str, problem: Exception) -> ConfigError:
    said = str(problem)
    if "ersion mismatch" in said:
        return ConfigError(
            f"the cluster at {address} runs another Ray or Python: {_line(said)}",
            fix="install the cluster's releases of both here",
        )
    if "raylet" in said or "node_ip_address" in said:
        return ConfigError(
            f"this machine is not a node of the cluster at {address}: {_line(said)}",
            fix=f"run `ray start --address={address}` on it first",
        )
    return ConfigError(
        f"there is no Ray cluster at {address}: {_line(said)}",
        fix="start one with `ray start --head`, or correct the address (cluster.address, --cluster)",
    )


def _line(said: str) -> str:
    return " ".join(said.split())[:300]
