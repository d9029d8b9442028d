"""Which roles of an installation run on a cluster's nodes, and where each of them is placed."""

from __future__ import annotations

import secrets
import shlex
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from openclaw_rl.cluster.client import Cluster
from openclaw_rl.cluster.roles import Group
from openclaw_rl.cluster.settings import RoleSettings
from openclaw_rl.config import Config
from openclaw_rl.core.host import Host
from openclaw_rl.engines.settings import EngineKind
from openclaw_rl.errors import ConfigError
from openclaw_rl.trainers.settings import TrainerSettings

POLICY = "policy"
JUDGE = "judge"
TRAINER = "trainer"


@dataclass(frozen=True, slots=True)
class Places:
    """Where roles run; without a cluster all of them on this machine."""

    cluster: Cluster | None = None
    groups: tuple[Group, ...] = ()

    def hosts(self, role: str) -> list[Host]:
        """A host for each process of a role; none if the role is not placed."""
        if self.cluster is None:
            return []
        return [
            self.cluster.host(role, number)
            for group in self.groups
            if group.role == role
            for number in range(group.count)
        ]

    def trained(self, settings: TrainerSettings) -> TrainerSettings:
        """The trainer's settings, with what starts its ranks on their nodes."""
        group = next((group for group in self.groups if group.role == TRAINER), None)
        if group is None or self.cluster is None:
            return settings
        words = [sys.executable, "-m", "openclaw_rl.cluster.ranks", "--address", self.cluster.address]
        words += ["--ranks", str(group.count), "--gpus-each", str(group.gpus), "--cpus-each", str(group.cpus)]
        return replace(settings, ranks=group.count, launcher=shlex.join([*words, "--group", group.name]))


@asynccontextmanager
async def placed(config: Config, *, has_judge: bool) -> AsyncIterator[Places]:
    """Room on the cluster for what runs there, released at the end.

    Raises ConfigError if the settings name a cluster that is not there, or that is too small.
    """
    if not config.cluster.address:
        yield Places()
        return
    groups = groups_of(config, has_judge=has_judge)
    cluster = await Cluster.join(config.cluster.address, groups, place_s=config.cluster.place_s)
    try:
        yield Places(cluster, groups)
    finally:
        await cluster.aclose()


def groups_of(config: Config, *, has_judge: bool) -> tuple[Group, ...]:
    """The roles that the settings place. Raises ConfigError if a role has GPUs but nothing that could use them."""
    cluster, groups = config.cluster, list[Group]()
    is_served = config.engine.kind is not EngineKind.LOCAL
    if is_served and not config.engine.remote.urls:
        groups.append(_group(POLICY, cluster.policy, config.engine.remote.replicas))
    elif cluster.policy.gpus:
        raise ConfigError(
            f"{cluster.policy.gpus} GPUs of the cluster are for the model, whose servers are not started here",
            fix="set engine.kind to vllm or sglang and leave engine.remote.urls out, or unset ROLLOUT_GPUS",
        )
    if is_served and has_judge:
        groups.append(_group(JUDGE, cluster.judge, 1))
    elif cluster.judge.gpus:
        raise ConfigError(
            f"{cluster.judge.gpus} GPUs of the cluster are for a judge, and none runs there",
            fix="set judge.model to a model of its own and engine.kind to vllm or sglang, or unset PRM_GPUS",
        )
    trainer = config.trainer
    if trainer.kind == "local" and not trainer.launcher and (trainer.ranks > 1 or cluster.trainer.gpus):
        found = _group(TRAINER, cluster.trainer, trainer.ranks)
        if trainer.ranks not in (1, found.count):
            raise ConfigError(
                f"trainer.ranks is {trainer.ranks}, and the trainer's GPUs on the cluster are for {found.count}",
                fix="leave trainer.ranks out: each rank gets cluster.trainer.gpus_each of ACTOR_GPUS",
            )
        groups.append(replace(found, begins_here=True, name=f"openclaw-rl-ranks-{secrets.token_hex(6)}"))
    if not groups:
        raise ConfigError(
            f"nothing is to run on the cluster at {cluster.address}",
            fix="set engine.kind to vllm or sglang, or trainer.ranks to more than 1; else leave --cluster out",
        )
    return tuple(groups)


def _group(role: str, settings: RoleSettings, otherwise: int) -> Group:
    if settings.gpus:
        return Group(role, settings.processes, settings.gpus_each, settings.cpus_each)
    return Group(role, otherwise, cpus=settings.cpus_each)
