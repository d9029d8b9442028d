"""Keys in the home folder: made once, kept as hashes, seen by a running server."""

from __future__ import annotations

import json
import re
import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner

from openclaw_rl.cli import app
from openclaw_rl.core.rights import Limits, Right
from openclaw_rl.errors import ConfigError, RequestError, StoreError
from openclaw_rl.home.keys import FILE, KeyBook, add_key, kept_keys, last_used, revoke_key
from openclaw_rl.serve.door.auth import Keys


def test_only_the_hash_of_a_key_is_kept_and_nobody_else_reads_it(tmp_path: Path) -> None:
    key = add_key(tmp_path, "bob", frozenset({Right.CHAT}), Limits(requests_a_minute=5))
    held = (tmp_path / FILE).read_text("utf-8")
    assert key not in held and key.removeprefix("sk-openclaw-") not in held
    [known] = kept_keys(tmp_path)
    assert (known.name, known.rights, known.limits.requests_a_minute) == ("bob", {Right.CHAT}, 5)
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600


def test_a_running_server_takes_a_new_key_and_refuses_a_revoked_one(tmp_path: Path) -> None:
    book = KeyBook(tmp_path)
    keys = Keys({"owner": "o"}, book.keys, book.used)
    key = add_key(tmp_path, "bob", frozenset({Right.CHAT}))
    headers = {"Authorization": f"Bearer {key}"}
    assert keys.caller(headers).name == "bob"
    revoke_key(tmp_path, "bob")
    with pytest.raises(RequestError, match="revoked"):
        keys.caller(headers)
    assert keys.caller({"x-api-key": "o"}).name == "owner"
    book.note()
    assert set(last_used(tmp_path)) == {"bob", "owner"}


@pytest.mark.parametrize("name", ["bob", "owner", "local", "", "a:b", "../x", "a b"])
def test_a_name_is_one_users_for_ever_and_can_stand_in_a_sessions_name(tmp_path: Path, name: str) -> None:
    add_key(tmp_path, "bob", frozenset({Right.CHAT}))
    revoke_key(tmp_path, "bob")
    with pytest.raises(ConfigError):
        add_key(tmp_path, name, frozenset({Right.CHAT}))


def test_a_broken_file_lets_nobody_in_while_serving_and_stops_a_start(tmp_path: Path) -> None:
    book = KeyBook(tmp_path)
    key = add_key(tmp_path, "bob", frozenset({Right.CHAT}))
    (tmp_path / FILE).write_text("{", "utf-8")
    with pytest.raises(RequestError):
        Keys({"owner": "o"}, book.keys).caller({"x-api-key": key})
    with pytest.raises(StoreError, match=re.escape(FILE)):
        kept_keys(tmp_path)


def test_the_commands_make_show_and_revoke_a_key(tmp_path: Path) -> None:
    run, home = CliRunner(), ["--home", str(tmp_path)]
    made = run.invoke(app, ["keys", "add", "bob", "--scopes", "chat,teach", *home])
    key = next(line for line in made.output.splitlines() if line.startswith("sk-openclaw-"))
    shown = run.invoke(app, ["keys", "list", *home], env={"COLUMNS": "200"}).output
    assert "bob" in shown and "chat, teach" in shown and key not in shown
    assert run.invoke(app, ["keys", "revoke", "bob", *home]).exit_code == 0
    assert "revoked" in run.invoke(app, ["keys", "list", *home], env={"COLUMNS": "200"}).output
    assert isinstance(run.invoke(app, ["keys", "add", "ann", "--scopes", "root", *home]).exception, ConfigError)
    assert json.loads((tmp_path / FILE).read_text("utf-8"))[0]["revoked_s"] is not None


def test_names_and_scopes_are_listed_whole_in_a_pipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add_key(tmp_path, "b" * 64, frozenset(Right), Limits(requests_a_minute=5))
    monkeypatch.setenv("COLUMNS", "80")
    done = CliRunner().invoke(app, ["keys", "list", "--home", str(tmp_path)], catch_exceptions=False)
    (line,) = [line for line in done.output.splitlines() if "b" * 64 in line]
    assert "chat, feedback, teach, admin" in line and "5 requests/min" in line
