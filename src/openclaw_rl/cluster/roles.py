"""The groups to place on a cluster, and the check that its nodes have room."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from openclaw_rl.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Group:
    """Identical processes of one role; `begins_here`: the first of them runs on this machine.

    Another program of this user finds a group by its name if that program sets `is_found`; if it does not exist,
    that program reserves its own room.
    """

    role: str
    count: int
    gpus: int = 0  # of each process
    cpus: float = 1.0
    begins_here: bool = False
    name: str = ""
    is_found: bool = False

    @property
    def bundle(self) -> dict[str, float]:
        """The resources of one process, by Ray's names."""
        return {"CPU": self.cpus} | ({"GPU": float(self.gpus)} if self.gpus else {})


@dataclass(slots=True)
class NodeRoom:
    """The resources of a node."""

    name: str
    gpus: float
    cpus: float
    is_here: bool = False


def check_room(groups: Sequence[Group], nodes: Sequence[NodeRoom]) -> None:
    """Raises ConfigError if even empty nodes could not run the groups; the largest are placed first."""
    wanted = sum(group.gpus * group.count for group in groups)
    there = sum(node.gpus for node in nodes)
    if wanted > there:
        parts = ", ".join(f"{group.gpus * group.count} for the {group.role}" for group in groups if group.gpus)
        raise ConfigError(
            f"{wanted} GPUs are asked for ({parts}), and the cluster has {there:g}",
            fix="lower ROLLOUT_GPUS, PRM_GPUS or ACTOR_GPUS (cluster.policy.gpus and so on), or add nodes",
        )
    left = [NodeRoom(node.name, node.gpus, node.cpus, node.is_here) for node in nodes]
    pieces = [(group, group.begins_here and not at) for group in groups for at in range(group.count)]
    for group, must_be_here in sorted(pieces, key=lambda one: (not one[1], -one[0].gpus, -one[0].cpus)):
        fitting = (
            node
            for node in left
            if node.gpus >= group.gpus and node.cpus >= group.cpus and (node.is_here or not must_be_here)
        )
        node = next(fitting, None)
        if node is None:
            raise ConfigError(_no_room(group, nodes, must_be_here=must_be_here), fix=_more_room(group))
        node.gpus -= group.gpus
        node.cpus -= group.cpus


def _no_room(group: Group, nodes: Sequence[NodeRoom], *, must_be_here: bool) -> str:
    where = "this machine has no room" if must_be_here else "no node has room"
    rooms = ", ".join(f"{node.name}: {node.gpus:g} GPUs, {node.cpus:g} CPUs" for node in nodes) or "no nodes"
    each = f"{group.gpus} GPUs and {group.cpus:g} CPUs" if group.gpus else f"{group.cpus:g} CPUs"
    return f"{where} for all {group.count} processes of the {group.role}, which take {each} each ({rooms})"


def _more_room(group: Group) -> str:
    return f"add nodes, or lower what the {group.role} takes (cluster.{group.role}.cpus_each, gpus_each, or how many)"
