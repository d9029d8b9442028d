"""What a person is shown of an error that the running server answers with."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from openclaw_rl.core.disk import FREE_SPACE, unwritable
from openclaw_rl.errors import ConfigError, OpenClawRLError
from openclaw_rl.home.folder import Address, note_address
from openclaw_rl.home.reach import asked
from openclaw_rl.serve.failures import error_response
from openclaw_rl.store.lock import FolderLock

FULL = unwritable(Path("store.db"), OSError(errno.ENOSPC, "No space left on device"))


@pytest.mark.parametrize(
    ("problem", "said", "fix"),
    [
        (FULL, "store.db cannot be written: the disk is full (No space left on device)", FREE_SPACE),
        (ConfigError("version 3 is pinned", fix="Unpin it. Then ask"), "version 3 is pinned", "Unpin it. Then ask"),
        (ConfigError("it ended. Nobody knows why"), "it ended. Nobody knows why", ""),
    ],
)
async def test_what_is_wrong_and_what_to_do_come_apart_again(
    tmp_path: Path, problem: OpenClawRLError, said: str, fix: str
) -> None:
    async def refuse(request: web.Request) -> web.Response:
        return error_response(problem, request.path)

    app = web.Application()
    app.router.add_post("/v1/rl/freeze", refuse)
    lock = FolderLock(tmp_path)  # as the server does whose address it is
    async with TestServer(app) as server:
        note_address(tmp_path, Address(str(server.make_url("")).rstrip("/"), os.getpid()))
        with pytest.raises(ConfigError) as shown:
            await asked(tmp_path, "POST", "/v1/rl/freeze")
    lock.free()
    assert (shown.value.problem, shown.value.fix) == (f"the server says: {said}", fix)
