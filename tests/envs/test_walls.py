"""What a walled box holds back; the whole list of attempts is `make bench-box`."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

import pytest

from openclaw_rl.envs.box.isolated import IsolatedBoxes
from openclaw_rl.envs.box.sandbox import Boxes, BoxLimits, BoxSpec, KilledBy
from openclaw_rl.errors import BoxError

OPEN = """
import os
found = []
for n in range(4096):
    try:
        os.fstat(n)
    except OSError:
        continue
    found.append(n)
print(found)
"""


async def test_nothing_of_this_machine_but_its_programs_is_in_a_box(walled: Boxes, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("hunter2")
    box = await walled.create(BoxSpec())
    assert (await box.exec(f"cat {tmp_path}/secret", timeout_s=20)).exit_status == 1
    assert (await box.exec("echo > /usr/bin/env", timeout_s=20)).exit_status == 1
    assert (await box.exec("cat /etc/shadow", timeout_s=20)).exit_status == 1
    accounts = (await box.exec("cut -d: -f1 /etc/passwd", timeout_s=20)).stdout.text
    assert accounts.split() == ["root", "nobody"]


async def test_a_command_has_its_three_streams_and_no_other_file_open(walled: Boxes) -> None:
    box = await walled.create(BoxSpec())
    assert (await box.exec(["python3", "-c", OPEN], timeout_s=20)).stdout.text == "[0, 1, 2]\n"


async def test_a_box_has_no_privileges_and_no_network(walled: Boxes) -> None:
    box = await walled.create(BoxSpec())
    held = (await box.exec("grep -E '^(Cap(Prm|Eff|Bnd)|NoNewPrivs)' /proc/self/status", timeout_s=20)).stdout.text
    assert held.split()[1::2] == ["0000000000000000"] * 3 + ["1"]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        connect = f"exec 9<>/dev/tcp/127.0.0.1/{listener.getsockname()[1]}"
        assert (await box.exec(connect, timeout_s=20)).exit_status == 1
        assert (await box.exec("unshare -U true", timeout_s=20)).exit_status != 0


async def test_processes_of_one_box_are_seen_in_no_other(walled: Boxes) -> None:
    one, other = await walled.create(BoxSpec()), await walled.create(BoxSpec())
    await one.exec("sleep 600 &", timeout_s=20)
    assert "sleep" in (await one.exec("cat /proc/*/cmdline | tr '\\0' ' '", timeout_s=20)).stdout.text
    assert "sleep" not in (await other.exec("cat /proc/*/cmdline | tr '\\0' ' '", timeout_s=20)).stdout.text
    assert (await other.exec("kill -9 -1; kill -9 1; echo alive", timeout_s=20)).exit_status in (0, 137)
    assert (await other.exec("echo alive", timeout_s=20)).stdout.text == "alive\n"


async def test_a_box_holds_no_more_processes_than_it_may(walled: Boxes) -> None:
    box = await walled.create(BoxSpec(limits=BoxLimits(processes=20)))
    await box.exec("for n in $(seq 60); do sleep 600 & done; true", timeout_s=60)
    count = (await box.stats()).processes
    assert count is not None
    assert 10 < count <= 20
    await box.reset()
    assert (await box.stats()).processes == 0


async def test_a_box_whose_disk_is_full_says_so_and_goes_on(walled: Boxes) -> None:
    box = await walled.create(BoxSpec(limits=BoxLimits(disk_mb=8)))
    full = await box.exec("head -c 5M /dev/zero > /tmp/one; head -c 5M /dev/zero > two", timeout_s=60)
    assert "No space left" in full.stderr.text or full.killed_by is KilledBy.FILE_SIZE
    with pytest.raises(BoxError, match="no space is left"):
        await box.write("three", bytes(6 << 20))
    assert (
        await box.exec("rm -f two /tmp/one three; echo again > four; cat four", timeout_s=20)
    ).stdout.text == "again\n"


async def test_memory_beyond_what_a_box_may_have_ends_the_command(walled: Boxes) -> None:
    box = await walled.create(BoxSpec(limits=BoxLimits(memory_mb=64, disk_mb=8)))
    done = await box.exec(["python3", "-c", "held = b'x' * (512 << 20); print(len(held))"], timeout_s=60)
    assert not done.is_ok
    assert done.stdout.text == ""
    if "control group" in walled.limits_in_force["memory"]:
        assert done.killed_by is KilledBy.MEMORY
    else:
        assert "MemoryError" in done.stderr.text
    assert (await box.exec("true", timeout_s=20)).is_ok


async def test_links_of_a_box_lead_nowhere_outside(walled: Boxes, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("hunter2")
    box = await walled.create(BoxSpec())
    await box.exec(f"ln -s {tmp_path}/secret file; ln -s {tmp_path} folder; mkfifo pipe", timeout_s=20)
    for path in ("file", "folder/secret"):
        with pytest.raises(FileNotFoundError):
            await box.read(path)
    with pytest.raises(BoxError, match="no regular file"):
        await box.read("pipe")
    with pytest.raises(BoxError, match="File exists"):  # in the box the link leads nowhere
        await box.write("folder/secret", b"changed")
    await box.exec(f"mkdir -p {tmp_path}", timeout_s=20)
    await box.write("folder/secret", b"changed")
    assert await box.read(f"{tmp_path}/secret") == b"changed"
    assert (tmp_path / "secret").read_text() == "hunter2"


async def test_boxes_end_with_the_process_that_keeps_them(walled: Boxes) -> None:
    assert isinstance(walled, IsolatedBoxes)
    box = await walled.create(BoxSpec())
    await box.exec("sleep 600 &", timeout_s=20)
    os.kill(walled.keeper_pid, signal.SIGKILL)
    with pytest.raises(BoxError, match="gone"):
        while True:
            await box.exec("true", timeout_s=20)


async def test_a_base_that_is_not_a_root_folder_is_refused_with_what_is_missing(walled: Boxes, tmp_path: Path) -> None:
    with pytest.raises(BoxError, match="is not a root folder: it has no bin/bash"):
        await walled.create(BoxSpec(base=str(tmp_path)))
