"""What the settings place on a cluster, and whether its nodes have room for it: no Ray needed."""

from __future__ import annotations

from pathlib import Path

import pytest

from openclaw_rl.cluster.roles import Group, NodeRoom, check_room
from openclaw_rl.config import Config, read_config, unused_names
from openclaw_rl.errors import ConfigError
from openclaw_rl.runtime.placing import groups_of

WORDS = {"NUM_GPUS": "8", "ACTOR_GPUS": "4", "ROLLOUT_GPUS": "2", "PRM_GPUS": "2", "PRM_TEACHER_GPUS": "1"}
SERVED = {"cluster.address": "auto", "engine.kind": "vllm"}


def config(tmp_path: Path, words: dict[str, str], **settings: object) -> Config:
    named = {name.replace("__", "."): value for name, value in settings.items()}
    return read_config(environment=words, overrides={"home": str(tmp_path), **SERVED, **named})  # type: ignore[arg-type]


def test_the_names_that_users_know_are_the_sizes_of_roles(tmp_path: Path) -> None:
    policy, judge, trainer = groups_of(config(tmp_path, WORDS), has_judge=True)
    assert policy == Group("policy", 2, gpus=1) and judge == Group("judge", 2, gpus=1)
    assert (trainer.count, trainer.gpus, trainer.begins_here) == (4, 1, True) and trainer.name
    assert [line.split()[0] for line in unused_names(WORDS, has_cluster=True)] == ["PRM_TEACHER_GPUS"]
    assert len(unused_names(WORDS)) == 5  # without a cluster each is answered with what sets its device


def test_a_role_may_take_several_gpus_for_each_process(tmp_path: Path) -> None:
    found = groups_of(config(tmp_path, {"ROLLOUT_GPUS": "4"}, cluster__policy__gpus_each=2), has_judge=False)
    assert found == (Group("policy", 2, gpus=2),)
    with pytest.raises(ConfigError, match="3 GPUs cannot be divided among processes that take 2 each"):
        config(tmp_path, {"ROLLOUT_GPUS": "3"}, cluster__policy__gpus_each=2)


def test_without_gpus_the_settings_of_each_part_say_how_many(tmp_path: Path) -> None:
    settings = {"engine__remote__replicas": 3, "trainer__ranks": 2, "cluster__policy__cpus_each": 4.0}
    policy, trainer = groups_of(config(tmp_path, {}, **settings), has_judge=False)
    assert policy == Group("policy", 3, cpus=4.0) and (trainer.count, trainer.gpus) == (2, 0)


def test_roles_that_ask_for_more_than_num_gpus(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"the roles ask for 8 GPUs \(2 policy, 2 judge, 4 trainer\)"):
        config(tmp_path, WORDS | {"NUM_GPUS": "7"})


@pytest.mark.parametrize(
    ("words", "settings", "problem"),
    [
        ({"ROLLOUT_GPUS": "2"}, {"engine__kind": "local"}, "whose servers are not started here"),
        ({"PRM_GPUS": "1"}, {}, "are for a judge, and none runs there"),
        ({"ACTOR_GPUS": "4"}, {"trainer__ranks": 2}, "the trainer's GPUs on the cluster are for 4"),
        ({}, {"engine__kind": "local"}, "nothing is to run on the cluster at auto"),
    ],
)
def test_gpus_that_nothing_could_use(
    tmp_path: Path, words: dict[str, str], settings: dict[str, object], problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem):
        groups_of(config(tmp_path, words, **settings), has_judge=False)


def test_a_ray_client_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="a Ray client cannot place roles"):
        config(tmp_path, {}, cluster__address="ray://10.0.0.5:10001")


NODES = [NodeRoom("a", 2, 8, is_here=True), NodeRoom("b", 4, 16)]


@pytest.mark.parametrize(
    ("groups", "problem"),
    [
        ([Group("policy", 4, gpus=1), Group("trainer", 3, gpus=1)], r"7 GPUs are asked for \(4 for the policy, 3 for"),
        # 6 GPUs in all, but 2 of them are on another node than the 4
        ([Group("policy", 1, gpus=4), Group("judge", 1, gpus=3)], r"7 GPUs are asked for"),
        ([Group("policy", 2, gpus=3)], r"no node has room for all 2 processes of the policy, which take 3 GPUs and 1"),
        ([Group("policy", 5, cpus=5.0)], r"no node has room for all 5 processes of the policy, which take 5 CPUs each"),
        ([Group("trainer", 2, gpus=3, begins_here=True)], r"this machine has no room .* \(a: 2 GPUs, 8 CPUs, b: 4"),
    ],
)
def test_what_does_not_fit_is_named_with_what_there_is(groups: list[Group], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        check_room(groups, NODES)


def test_what_fits_in_some_order_fits() -> None:
    # the one that must be here first, then the largest: else the two small ones would take this machine's GPUs
    check_room(
        [Group("judge", 2, gpus=1), Group("policy", 1, gpus=2), Group("trainer", 2, gpus=1, begins_here=True)], NODES
    )
    check_room([Group("policy", 3, gpus=2)], NODES)
    assert [node.gpus for node in NODES] == [2, 4]  # nothing was taken
