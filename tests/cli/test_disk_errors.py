"""What the entry point makes of an OSError: one of the disk is explained in two lines, any other is a fault of ours."""

from __future__ import annotations

import errno
import os

import pytest

from openclaw_rl import cli

OF_THE_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO)
OF_OURS = (errno.EBADF, errno.EINVAL, errno.ECONNRESET, errno.EMFILE)


def failing(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> None:
        raise OSError(number, os.strerror(number), "notes.json")

    monkeypatch.setattr(cli, "app", fails)


@pytest.mark.parametrize("number", OF_THE_DISK, ids=errno.errorcode.get)
def test_what_the_disk_refuses_is_explained(
    number: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failing(number, monkeypatch)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    said = capsys.readouterr().err
    assert ended.value.code == 2
    assert "notes.json cannot be written" in said
    assert "Traceback" not in said


@pytest.mark.parametrize("number", OF_OURS, ids=errno.errorcode.get)
def test_any_other_is_not_blamed_on_the_disk(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    failing(number, monkeypatch)
    with pytest.raises(OSError, match=r"notes\.json"):
        cli.main()
