"""`openclaw-rl status`: what the running server says of its learning, in a few lines."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from typer.testing import CliRunner

from openclaw_rl.cli import app
from openclaw_rl.home.folder import Address, kept_key, note_address
from openclaw_rl.store.db import Store
from openclaw_rl.store.lock import FolderLock

STATUS = {
    "story": "9 main turns",
    "train": {"doing": "taking a step over 1 sample for shared: update 3 of at most 8, about 20 s to go"},
    "warnings": ["1 sample set aside: raise trainer.timeout_s"],
}


class Answering(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = json.dumps(STATUS if self.path == "/v1/rl/status" else {}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Logs nothing."""


def stored(home: Path) -> None:
    async def make() -> None:
        await (await Store.open(home)).aclose()

    asyncio.run(make())


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Path]:
    stored(tmp_path)
    kept_key(tmp_path)
    lock = FolderLock(tmp_path)
    server = HTTPServer(("127.0.0.1", 0), Answering)
    note_address(tmp_path, Address(f"http://127.0.0.1:{server.server_port}", os.getpid()))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield tmp_path
    server.shutdown()
    thread.join()
    server.server_close()
    lock.free()


def test_the_step_under_way_and_what_to_mend_are_said(served: Path) -> None:
    done = CliRunner().invoke(app, ["status", "--home", str(served)], catch_exceptions=False)
    assert done.output.splitlines() == [STATUS["story"], STATUS["train"]["doing"], f"warning: {STATUS['warnings'][0]}"]
    told = CliRunner().invoke(app, ["status", "--json", "--home", str(served)], catch_exceptions=False)
    assert json.loads(told.output) == STATUS


def test_without_a_server_it_says_so(tmp_path: Path) -> None:
    stored(tmp_path)
    done = CliRunner().invoke(app, ["status", "--home", str(tmp_path)], catch_exceptions=False)
    assert done.exit_code == 0 and "no server runs on" in done.output
