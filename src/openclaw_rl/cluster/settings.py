"""Which roles run on the nodes of a Ray cluster, and what each takes there."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from openclaw_rl.errors import ConfigError


@dataclass(frozen=True, slots=True)
class RoleSettings:
    """What the processes of one role take."""

    # Nobody outside can judge these: they are shown on request.
    ADVANCED: ClassVar[frozenset[str]] = frozenset({"cpus_each", "gpus_each"})

    gpus: int = 0
    """GPUs of all its processes together; 0: they take none. Change it when the cluster has GPUs."""
    gpus_each: int = 1
    """GPUs of each process, where the role takes any. Change it when a model does not fit into one GPU; the engine's
    own options must name as many (for vLLM `--tensor-parallel-size`)."""
    cpus_each: float = 1.0
    """CPUs of each process. Change it when the engine runs on CPUs, or when the nodes' CPUs are few."""

    def __post_init__(self) -> None:
        if self.gpus < 0 or self.gpus_each < 1:
            raise ConfigError(
                f"cluster: gpus is {self.gpus} and gpus_each {self.gpus_each}",
                fix="gpus is 0 or more, and gpus_each at least 1",
            )
        if self.gpus % self.gpus_each:
            raise ConfigError(
                f"cluster: {self.gpus} GPUs cannot be divided among processes that take {self.gpus_each} each",
                fix=f"make gpus a multiple of {self.gpus_each}",
            )
        if self.cpus_each <= 0:
            raise ConfigError(f"cluster: cpus_each is {self.cpus_each:g}", fix="it is above 0")

    @property
    def processes(self) -> int:
        """How many processes its GPUs are for; 0 if they are counted otherwise."""
        return self.gpus // self.gpus_each


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """A Ray cluster on whose nodes roles run, and what each role takes. Gateway and store stay on this machine."""

    # Nobody outside can judge these: they are shown on request.
    ADVANCED: ClassVar[frozenset[str]] = frozenset({"place_s"})

    address: str = ""
    """Where the cluster is: `auto` for the one that this machine has joined, or its head's address, such as
    `10.0.0.5:6379`. If empty, everything runs on this machine. Change it when one machine is not enough."""
    gpus: int = 0
    """The most GPUs that all roles may take together; 0: as many as there are. Change it when the cluster has other
    users."""
    policy: RoleSettings = field(default_factory=RoleSettings)
    """The servers of the model. Their GPUs say how many there are; without GPUs `engine.remote.replicas` does."""
    judge: RoleSettings = field(default_factory=RoleSettings)
    """The servers of the judge, where `judge.model` names a model of its own. Without GPUs there is one server."""
    trainer: RoleSettings = field(default_factory=RoleSettings)
    """The trainer's ranks. Their GPUs say how many ranks there are; without GPUs `trainer.ranks` does."""
    place_s: float = 60.0
    """How long a process may wait for a node with room for it, in seconds, before that is reported and tried again."""

    def __post_init__(self) -> None:
        if self.address.startswith("ray://"):
            raise ConfigError(
                f"cluster.address is {self.address}: a Ray client cannot place roles",
                fix="run this program on a machine of the cluster, and give the head's address, such as 10.0.0.5:6379",
            )
        if self.place_s <= 0:
            raise ConfigError(f"cluster.place_s is {self.place_s:g}", fix="it is above 0")
        asked = self.policy.gpus + self.judge.gpus + self.trainer.gpus
        if self.address and self.gpus and asked > self.gpus:
            raise ConfigError(
                f"the roles ask for {asked} GPUs ({self.policy.gpus} policy, {self.judge.gpus} judge, "
                f"{self.trainer.gpus} trainer), and cluster.gpus is {self.gpus}",
                fix="let ROLLOUT_GPUS, PRM_GPUS and ACTOR_GPUS together be at most NUM_GPUS",
            )
