"""`openclaw-rl init`: settings from flags or from answers, that the server then reads."""

from __future__ import annotations

import os
import pty
import select
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from cli_parts import said

from openclaw_rl.config import Config, read_config
from openclaw_rl.core.hint import Carry
from openclaw_rl.errors import ConfigError, DiskError, ModelError


def written(home: Path) -> Config:
    return read_config(home / "config.toml", environment={})


def test_flags_are_enough_without_a_terminal_and_the_next_command_is_named(tmp_path: Path) -> None:
    home = tmp_path / "a home"
    told = said("init", "--model", "bundled", "--carry", "bridge", "--home", str(home))
    config = written(home)
    assert (config.model, config.carry, config.serve.host, config.engine.device) == (
        "bundled",
        Carry.BRIDGE,
        "127.0.0.1",
        "cpu",
    )
    assert f"openclaw-rl serve --home '{home}'" in told
    assert stat.S_IMODE((home / "config.toml").stat().st_mode) == 0o600
    assert sorted(path.name for path in home.iterdir()) == ["config.toml"]


def test_what_no_flag_says_is_the_default_but_for_the_model(tmp_path: Path) -> None:
    said("init", "--model", "bundled", "--home", str(tmp_path))
    assert written(tmp_path).carry is Carry.WEIGHTS
    with pytest.raises(ConfigError, match="no --model"):
        said("init", "--home", str(tmp_path / "other"))
    assert not (tmp_path / "other").exists()


def test_settings_that_are_there_are_written_over_only_with_force(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text("this is = not TOML =")
    with pytest.raises(ConfigError, match="is there already"):
        said("init", "--model", "bundled", "--home", str(tmp_path))
    assert file.read_text() == "this is = not TOML ="
    said("init", "--model", "bundled", "--force", "--home", str(tmp_path))
    assert written(tmp_path).model == "bundled"


def test_a_folder_is_checked_and_kept_by_its_whole_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (folder := tmp_path / 'my "own" model').mkdir()
    home = ("--home", str(tmp_path / "home"))
    with pytest.raises(ModelError, match=r"holds no config\.json"):
        said("init", "--model", f"./{folder.name}", *home)
    with pytest.raises(ModelError, match="there is no model folder"):
        said("init", "--model", "./nowhere", *home)
    assert not (tmp_path / "home").exists()
    (folder / "config.json").write_text("{}")
    said("init", "--model", f"./{folder.name}", *home)
    assert written(tmp_path / "home").model == str(folder)


def test_a_name_on_the_hub_is_not_asked_for_yet(tmp_path: Path) -> None:
    assert "is downloaded at the first start" in said("init", "--model", "some/model", "--home", str(tmp_path))
    assert written(tmp_path).model == "some/model"


def test_others_reach_it_over_tls_or_where_the_network_is_trusted(tmp_path: Path) -> None:
    words = ("--model", "bundled", "--who", "others", "--force", "--home", str(tmp_path))
    with pytest.raises(ConfigError, match="can be reached from other machines"):
        said("init", *words)
    assert list(tmp_path.iterdir()) == []
    said("init", *words, "--plain-public")
    assert (written(tmp_path).serve.host, written(tmp_path).serve.plain_public) == ("0.0.0.0", True)
    said("init", *words, "--tls-cert", "/c.pem", "--tls-key", "/k.pem")
    serve = written(tmp_path).serve
    assert (serve.tls_cert, serve.tls_key, serve.plain_public) == ("/c.pem", "/k.pem", False)


def test_a_home_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DiskError):
        said("init", "--model", "bundled", "--home", str(tmp_path / "file" / "home"))


def test_three_questions_are_asked_at_a_terminal_and_wrong_answers_again(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    start = [sys.executable, "-c", "from openclaw_rl.cli import main; main()", "init", "--home", str(tmp_path / "h")]
    with subprocess.Popen(start, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        os.write(ours, b"./nowhere\nbundled\nnobody\nme\nmemory\n")
        shown = b""
        while select.select([ours], [], [], 60)[0]:
            try:
                shown += os.read(ours, 4096)
            except OSError:  # the other end is closed
                break
        assert process.wait(60) == 0, shown.decode()
    os.close(ours)
    assert b"there is no model folder ./nowhere" in shown
    assert shown.count(b"me or others") == 2
    assert written(tmp_path / "h").carry is Carry.MEMORY
