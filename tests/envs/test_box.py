"""What every kind of box does, with real processes."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from openclaw_rl.envs.box.sandbox import Boxes, BoxLimits, BoxSpec, KilledBy
from openclaw_rl.errors import BoxError


async def test_a_command_gives_its_status_and_both_streams(boxes: Boxes) -> None:
    box = await boxes.create(BoxSpec())
    done = await box.exec("cat; echo wrong >&2; exit 3", timeout_s=20, stdin=b"told")
    assert (done.exit_status, done.stdout.text, done.stderr.text, done.killed_by) == (3, "told", "wrong\n", None)
    words = await box.exec(["printf", "%s|", "a b", "$HOME"], timeout_s=20)
    assert words.stdout.text == "a b|$HOME|"


async def test_the_environment_is_the_boxs_own_and_nothing_of_this_process(
    boxes: Boxes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_THIS_PROCESS", "hunter2")
    box = await boxes.create(BoxSpec(env={"OWN": "1"}))
    seen = (await box.exec("env", timeout_s=20, env={"MORE": "2"})).stdout.text
    assert "hunter2" not in seen
    assert "OWN=1" in seen
    assert "MORE=2" in seen


async def test_a_command_that_takes_too_long_is_killed_with_what_it_started(boxes: Boxes) -> None:
    box = await boxes.create(BoxSpec())
    done = await box.exec("sleep 600 & setsid sleep 601 & echo begun; sleep 602", timeout_s=0.5)
    assert (done.killed_by, done.stdout.text) == (KilledBy.TIMEOUT, "begun\n")
    assert done.exit_status != 0
    assert (await box.stats()).processes == 0


async def test_the_start_and_the_end_of_a_long_output_are_kept_and_the_rest_is_counted(boxes: Boxes) -> None:
    box = await boxes.create(BoxSpec(limits=BoxLimits(kept_bytes=2000)))
    done = await box.exec("echo first; head -c 100000000 /dev/zero | tr '\\0' x; echo; echo last", timeout_s=60)
    assert done.is_ok
    assert done.stdout.head.startswith(b"first\nx")
    assert done.stdout.tail.endswith(b"x\nlast\n")
    assert done.stdout.total_bytes == 100_000_000 + 12
    assert len(done.stdout.head) + len(done.stdout.tail) == 2000
    assert f"[... {done.stdout.cut_bytes} bytes cut ...]" in done.stdout.text


async def test_a_command_that_never_stops_printing_is_ended(boxes: Boxes) -> None:
    box = await boxes.create(BoxSpec(limits=BoxLimits(kept_bytes=2000, read_bytes=1_000_000)))
    done = await box.exec("yes", timeout_s=60)
    assert done.killed_by is KilledBy.OUTPUT
    assert done.stdout.total_bytes > 1_000_000


async def test_a_process_left_behind_keeps_nobody_waiting(boxes: Boxes) -> None:
    box = await boxes.create(BoxSpec())
    done = await asyncio.wait_for(box.exec("sleep 600 & echo started", timeout_s=300), 60)
    assert done.stdout.text == "started\n"
    assert (await box.stats()).processes == 1


async def test_files_go_in_and_out_and_keep_their_mode(boxes: Boxes, tmp_path: Path) -> None:
    box = await boxes.create(BoxSpec())
    (tmp_path / "in" / "deep").mkdir(parents=True)
    (tmp_path / "in" / "deep" / "run.sh").write_text("#!/bin/sh\necho ran\n")
    (tmp_path / "in" / "deep" / "run.sh").chmod(0o755)
    await box.upload(tmp_path / "in", "files")
    await box.write("files/data", bytes(range(256)))
    assert (await box.exec("files/deep/run.sh && ln -s /etc/passwd files/link", timeout_s=20)).stdout.text == "ran\n"
    assert await box.read("files/data") == bytes(range(256))
    await box.download("files", tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").rglob("*")) == ["data", "deep", "run.sh"]
    with pytest.raises(FileNotFoundError):
        await box.read("nothing")
    with pytest.raises(BoxError, match="more than 10 bytes"):
        await box.read("files/data", most_bytes=10)


async def test_a_fork_goes_its_own_way_and_a_reset_goes_back(boxes: Boxes) -> None:
    box = await boxes.create(BoxSpec())
    await box.write("kept", b"first")
    await box.write("removed", b"")
    await box.exec("rm removed", timeout_s=20)
    fork = await box.fork()
    await fork.write("kept", b"second")
    again = await fork.fork()
    assert await box.read("kept") == b"first"
    assert await again.read("kept") == b"second"
    assert (await again.exec("ls", timeout_s=20)).stdout.text == "kept\n"
    await fork.reset()
    assert await fork.read("kept") == b"first"
    await box.reset()
    assert (await box.exec("ls", timeout_s=20)).stdout.text == ""
    await fork.aclose()  # what it stands on is still needed by its own fork
    assert await again.read("kept") == b"second"


async def test_many_boxes_start_from_one_snapshot(boxes: Boxes) -> None:
    box = await boxes.create(BoxSpec())
    await box.write("prepared", b"yes")
    snapshot = await box.snapshot()
    await box.aclose()
    others = [await boxes.create(BoxSpec(), at=snapshot) for _ in range(3)]
    assert [await other.read("prepared") for other in others] == [b"yes"] * 3
    for other in others:
        await other.aclose()
    await boxes.drop(snapshot)


async def test_what_is_not_there_is_the_commands_failure_and_a_closed_box_says_so(boxes: Boxes) -> None:
    box = await boxes.create(BoxSpec())
    assert (await box.exec(["/no/such/program"], timeout_s=20)).exit_status in (126, 127)
    assert (await box.exec("true", timeout_s=20, cwd="/no/such/folder")).exit_status != 0
    await box.aclose()
    await box.aclose()
    with pytest.raises(BoxError, match="closed"):
        await box.exec("true", timeout_s=20)


async def test_a_command_no_kernel_takes_is_refused_with_what_to_do(boxes: Boxes) -> None:
    box = await boxes.create(BoxSpec())
    with pytest.raises(BoxError, match="Write a long script to a file"):
        await box.exec("x" * 200_000, timeout_s=20)
    with pytest.raises(BoxError, match="zero byte"):
        await box.exec("a\0b", timeout_s=20)


async def test_a_shell_keeps_its_folder_variables_and_functions(boxes: Boxes) -> None:
    box = await boxes.create(BoxSpec())
    shell = await box.open_shell()
    first = await shell.run('mkdir -p deep && cd deep; export NAME=ann; greet() { echo "hello $NAME"; }', timeout_s=20)
    second = await shell.run("greet; echo wrong >&2; pwd; false", timeout_s=20)
    assert (first.id, second.id) == (1, 2)
    assert first.exit_status == 0
    assert second.exit_status == 1
    assert second.output.text.startswith("hello ann\nwrong\n")
    assert second.output.text.strip().endswith("/deep")
    assert second.cwd.endswith("/deep")
    await shell.aclose()


async def test_a_shell_outlives_a_command_that_took_too_long_and_what_ran_before(boxes: Boxes) -> None:
    box = await boxes.create(BoxSpec())
    shell = await box.open_shell()
    await shell.run("NAME=ann; sleep 600 & echo", timeout_s=20)
    late = await shell.run("sleep 601", timeout_s=0.5)
    assert (late.killed_by, late.is_shell_lost) == (KilledBy.TIMEOUT, False)
    after = await shell.run("echo $NAME; jobs -r", timeout_s=20)
    assert after.output.text.startswith("ann\n")
    assert "sleep 600" in after.output.text
    await shell.aclose()


async def test_a_shell_that_is_lost_is_started_again_where_it_was(boxes: Boxes) -> None:
    box = await boxes.create(BoxSpec())
    shell = await box.open_shell()
    await shell.run("mkdir deep; cd deep", timeout_s=20)
    left = await shell.run("exit 7", timeout_s=20)
    assert (left.exit_status, left.is_shell_lost, left.killed_by) == (7, True, None)
    busy = await shell.run("pwd; while :; do :; done", timeout_s=0.5)
    assert (busy.killed_by, busy.is_shell_lost) == (KilledBy.TIMEOUT, True)
    assert busy.output.text.strip().endswith("/deep")
    assert (await shell.run("basename $PWD", timeout_s=20)).output.text == "deep\n"
    await shell.aclose()


async def test_a_shell_reads_commands_of_any_shape(boxes: Boxes) -> None:
    box = await boxes.create(BoxSpec())
    shell = await box.open_shell()
    here = await shell.run("cat <<'E'\nit's \"here\" $PWD\nE", timeout_s=20)
    assert here.output.text == 'it\'s "here" $PWD\n'
    broken = await shell.run("if then '", timeout_s=20)
    assert broken.exit_status != 0
    assert (await shell.run('read line; echo "got:$line"', timeout_s=20)).output.text == "got:\n"
    assert (await shell.run("echo still here", timeout_s=20)).output.text == "still here\n"
    await shell.aclose()


async def test_cancelling_ends_the_command(boxes: Boxes) -> None:
    box = await boxes.create(BoxSpec())
    running = asyncio.create_task(box.exec("touch begun; sleep 600", timeout_s=300))
    seen = await box.exec("until [ -e begun ]; do sleep 0.05; done", timeout_s=60)
    assert seen.is_ok
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (await box.stats()).processes == 0


async def test_nothing_that_a_box_did_leaves_a_file_descriptor_open(boxes: Boxes) -> None:
    async def episode() -> None:
        box = await boxes.create(BoxSpec())
        await box.exec("echo out; exit 3", timeout_s=20)
        await box.exec(["/no/such/program"], timeout_s=20)
        await box.exec("sleep 60", timeout_s=0.2)
        shell = await box.open_shell()
        await shell.run("cd /tmp", timeout_s=20)
        fork = await box.fork()
        await fork.exec("true", timeout_s=20)
        await shell.aclose()
        await fork.aclose()
        await box.aclose()

    await episode()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        await episode()
    assert len(os.listdir("/proc/self/fd")) == before
