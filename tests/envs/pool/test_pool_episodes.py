"""Environments in a pool: the same calls and results as without one, and whose fault it was where something failed."""

from __future__ import annotations

import asyncio
import time

import pytest
from pool_envs import NO_NUMBER, CountTasks
from pool_servers import KEY, Server

from openclaw_rl.envs.box.sandbox import BoxSpec, KilledBy
from openclaw_rl.envs.pool.boxes import PoolBoxes
from openclaw_rl.envs.pool.client import PoolClient
from openclaw_rl.envs.pool.env import PoolEnv
from openclaw_rl.envs.pool.status import PoolStatus
from openclaw_rl.envs.task import Action, Failure, Info, Observation, Part, PartKind, Score, StepResult, Task
from openclaw_rl.errors import BoxError, ConfigError, PoolError

TASKS = CountTasks().tasks


def act(note: str, tool: str = "act") -> list[Action]:
    return [Action(tool, {"note": note})]


async def status_of(client: PoolClient) -> PoolStatus:
    status = await client.servers[0].status(fresh_s=0.0)
    assert status is not None
    return status


async def test_an_episode_gives_what_the_environment_gives(client: PoolClient) -> None:
    env = PoolEnv(client, "count")
    seen = await env.reset(TASKS["t1"], seed=3)
    assert seen.parts == (Part(PartKind.TEXT, "t1 3"), Part(PartKind.IMAGE, data=b"\x89\0"))
    assert [tool.name for tool in seen.tools] == ["act"]
    result = await env.step([*act("one"), *act("two")])
    info = Info(facts={"deep": [{"seed": 3}]})
    assert result == StepResult(Observation((Part(PartKind.TEXT, "2"),)), reward=0.5, info=info)
    assert await env.evaluate() == Score(2.0, {"total": 2.0})
    assert (await status_of(client)).leases == {"default": 1}
    await env.aclose()
    status = await status_of(client)
    assert (status.leases, status.taken) == ({}, 0)
    assert [worker.held for worker in status.workers] == [0] or (await _soon_empty(client))


async def _soon_empty(client: PoolClient) -> bool:
    for _ in range(100):
        if all(not worker.held for worker in (await status_of(client)).workers):
            return True
        await asyncio.sleep(0.05)
    return False


@pytest.mark.parametrize(
    ("tool", "failure"),
    [("raise", Failure.ENVIRONMENT), ("task", Failure.ENVIRONMENT), ("box", Failure.INFRASTRUCTURE)],
)
async def test_what_an_environment_raises_is_named_and_never_a_score(
    client: PoolClient, tool: str, failure: Failure
) -> None:
    env = PoolEnv(client, "count")
    await env.reset(TASKS["t0"])
    result = await env.step(act("x", tool))
    assert (result.done, result.info.failure) == (True, failure)
    score = await env.evaluate()
    assert (score.reward, score.failure) == (None, failure)
    assert (await env.reset(TASKS["t0"])).info.failure is None  # the next attempt is a fresh one
    await env.aclose()


async def test_a_step_that_hangs_beyond_its_deadline_is_cut_off_and_its_lease_ended(client: PoolClient) -> None:
    env = PoolEnv(client, "count", step_s=0.3)
    await env.reset(TASKS["t0"])
    began = time.monotonic()
    result = await env.step(act("600", "wait"))
    assert time.monotonic() - began < 30
    assert result.info.failure is Failure.INFRASTRUCTURE
    assert "deadline" in result.info.reason
    assert (await env.evaluate()).reward is None
    await env.aclose()
    assert (await status_of(client)).leases == {}


async def test_a_score_that_is_not_a_number_is_the_environments_failure(client: PoolClient) -> None:
    env = PoolEnv(client, "count")
    await env.reset(TASKS["t0"], seed=NO_NUMBER)
    score = await env.evaluate()
    assert (score.reward, score.failure) == (None, Failure.ENVIRONMENT)
    await env.aclose()


async def test_a_fork_goes_its_own_way(client: PoolClient) -> None:
    env = PoolEnv(client, "count")
    await env.reset(TASKS["t0"])
    await env.step(act("both"))
    other = await env.fork()
    await other.step(act("other"))
    assert ((await env.evaluate()).reward, (await other.evaluate()).reward) == (1.0, 2.0)
    await other.aclose()
    await env.aclose()


async def test_a_task_that_is_broken_or_unknown_is_the_environments_failure(client: PoolClient) -> None:
    env = PoolEnv(client, "count")
    for name, said in (("torn", "instruction is missing"), ("none", "no pool has task")):
        seen = await env.reset(Task(name, "Count."))
        assert seen.info.failure is Failure.ENVIRONMENT
        assert said in seen.info.reason
        assert (await env.evaluate()).reward is None


async def test_a_wrong_key_is_said_and_not_waited_for(shared: Server) -> None:
    async with PoolClient([shared.url], key="wrong") as client:
        with pytest.raises(ConfigError, match="refuses the key"):
            await PoolEnv(client, "count").reset(TASKS["t0"])


async def test_no_pool_at_all_is_the_infrastructures_failure(unused_tcp_port: int) -> None:
    async with PoolClient([f"http://127.0.0.1:{unused_tcp_port}"], key=KEY, patience_s=0.2, lease_s=0.2) as client:
        env = PoolEnv(client, "count")
        assert (await env.reset(TASKS["t0"])).info.failure is Failure.INFRASTRUCTURE
        assert (await env.step(act("x"))).info.failure is Failure.INFRASTRUCTURE
        assert (await env.evaluate()).failure is Failure.INFRASTRUCTURE


async def test_a_box_in_the_pool_does_what_a_box_does(client: PoolClient, tmp_path: object) -> None:
    boxes = await PoolBoxes.open(client)
    assert not boxes.has_root  # the shared server's boxes have no walls
    box = await boxes.create(BoxSpec(workdir="/app"))
    done = await box.exec("cat; echo wrong >&2; exit 3", timeout_s=20, stdin=b"in\xff")
    assert (done.exit_status, done.stdout.head, done.stderr.text) == (3, b"in\xff", "wrong\n")
    assert (await box.exec("sleep 60", timeout_s=0.2)).killed_by is KilledBy.TIMEOUT
    await box.write("f", b"\0one")
    assert await box.read("f") == b"\0one"
    with pytest.raises(FileNotFoundError):
        await box.read("nothing")
    shell = await box.open_shell()
    await shell.run("x=5", timeout_s=20)
    assert (await shell.run("echo $x", timeout_s=20)).output.text == "5\n"
    await shell.aclose()
    kept = await box.snapshot()
    await box.write("f", b"two")
    fork = await box.fork()
    again = await boxes.create(box.spec, at=kept)
    assert [await one.read("f") for one in (box, fork, again)] == [b"two", b"two", b"\0one"]
    await boxes.aclose()
    await fork.aclose()
    await boxes.drop(kept)
    with pytest.raises(BoxError):
        await box.exec("true", timeout_s=5)
    assert (await status_of(client)).snapshots == 0


async def test_what_a_command_prints_is_seen_while_it_runs(client: PoolClient) -> None:
    box = await (await PoolBoxes.open(client)).create(BoxSpec())
    pieces: list[bytes] = []
    seen = asyncio.Event()

    def watch(piece: bytes) -> None:
        pieces.append(piece)
        seen.set()

    command = "echo first; while [ ! -e go ]; do sleep 0.05; done; echo last >&2"
    running = asyncio.create_task(box.exec(command, timeout_s=60, watch=watch))
    await seen.wait()
    assert (b"".join(pieces), running.done()) == (b"first\n", False)
    await box.write("go", b"")
    done = await running
    assert (done.stdout.text, done.stderr.text) == ("first\n", "last\n")
    assert b"".join(pieces) == b"first\nlast\n"
    await box.aclose()


async def test_folders_go_into_a_box_and_come_out_again(
    client: PoolClient, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("files")
    (folder / "in" / "deep").mkdir(parents=True)
    (folder / "in" / "deep" / "file").write_bytes(b"\1")
    box = await (await PoolBoxes.open(client)).create(BoxSpec())
    await box.upload(folder / "in", "there")
    await box.download("there", folder / "out")
    await box.aclose()
    assert (folder / "out" / "deep" / "file").read_bytes() == b"\1"


async def test_the_kind_box_is_judged_by_what_was_left_and_said(client: PoolClient) -> None:
    env = PoolEnv(client, "box")
    assert (await env.reset(TASKS["t2"])).text == "Count."
    assert (await env.step(act("x"))).info.failure is Failure.AGENT
    env.answer = "7"
    assert (await env.evaluate()).reward == 1.0
    with pytest.raises(PoolError, match="no box"):
        await env.box.exec("true", timeout_s=5)
    await env.aclose()
