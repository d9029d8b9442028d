"""What connect writes into a client's configuration, and what it leaves alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from openclaw_rl.connect.files import old_text, put
from openclaw_rl.connect.openclaw import MODEL, OpenClawSetup, complaint, config_path, merged, parsed, plugin_folder
from openclaw_rl.connect.server import Target
from openclaw_rl.errors import ConfigError

TARGET = Target("http://127.0.0.1:30000", "the-key", "some-model", 40960)
PATH = Path("openclaw.json")


def test_an_empty_configuration_gets_the_provider_and_its_model() -> None:
    config = merged({}, OpenClawSetup(TARGET), PATH).config
    provider = config["models"]["providers"]["openclaw-rl"]  # type: ignore[index,call-overload]
    assert provider["baseUrl"] == "http://127.0.0.1:30000/v1"
    assert provider["apiKey"] == "the-key"
    assert provider["models"][0]["contextWindow"] == 40960
    assert provider["models"][0]["maxTokens"] == 8192  # a quarter would be 10240
    assert config["agents"] == {"defaults": {"model": {"primary": MODEL}}}
    assert "plugins" not in config


def test_what_is_not_ours_stays_as_it_was() -> None:
    before = {
        "gateway": {"port": 1},
        "models": {"mode": "merge", "providers": {"other": {"baseUrl": "x"}, "openclaw-rl": {"headers": {"X": "y"}}}},
        "agents": {"defaults": {"workspace": "w", "model": {"primary": "other/m", "fallbacks": ["other/n"]}}},
    }
    copy = json.loads(json.dumps(before))
    made = merged(before, OpenClawSetup(TARGET), PATH)
    assert before == copy
    assert made.config["gateway"] == before["gateway"]
    assert made.config["agents"] == before["agents"]
    models = made.config["models"]
    assert isinstance(models, dict) and models["mode"] == "merge"
    providers = models["providers"]
    assert isinstance(providers, dict) and providers["other"] == {"baseUrl": "x"}
    ours = providers["openclaw-rl"]
    assert isinstance(ours, dict) and ours["headers"] == {"X": "y"} and ours["apiKey"] == "the-key"
    assert any("stays other/m" in note for note in made.notes)


def test_another_model_is_replaced_only_when_asked_and_said_so() -> None:
    before = {"agents": {"defaults": {"model": {"primary": "other/m", "fallbacks": ["other/n"]}}}}
    made = merged(before, OpenClawSetup(TARGET, is_default=True), PATH)
    assert made.config["agents"] == {"defaults": {"model": {"primary": MODEL, "fallbacks": ["other/n"]}}}
    assert any("was other/m" in note for note in made.notes)


def test_connecting_twice_changes_nothing(tmp_path: Path) -> None:
    wanted = OpenClawSetup(TARGET, plugin=tmp_path)
    once = merged({}, wanted, PATH).config
    assert merged(once, wanted, PATH).config == once


def test_models_that_a_user_put_beside_ours_stay() -> None:
    mine = {"id": "mine", "maxTokens": 1}
    before = {"models": {"providers": {"openclaw-rl": {"models": [mine, {"id": "default", "maxTokens": 2}]}}}}
    made = merged(before, OpenClawSetup(TARGET), PATH).config["models"]["providers"]["openclaw-rl"]  # type: ignore[index,call-overload]
    assert [each["id"] for each in made["models"]] == ["default", "mine"]
    assert made["models"][0]["maxTokens"] == 8192 and made["models"][1] == mine


def test_the_plugin_is_loaded_and_may_see_what_set_a_run_off(tmp_path: Path) -> None:
    before = {"plugins": {"allow": ["memory-core"], "entries": {"openclaw-rl": {"config": {"user": "mia"}}}}}
    made = merged(before, OpenClawSetup(TARGET, plugin=tmp_path), PATH).config
    assert made["plugins"] == {
        "allow": ["memory-core", "openclaw-rl"],
        "load": {"paths": [str(tmp_path)]},
        "entries": {
            "openclaw-rl": {"enabled": True, "hooks": {"allowConversationAccess": True}, "config": {"user": "mia"}}
        },
    }


def test_a_configuration_with_comments_is_not_written_over() -> None:
    with pytest.raises(ConfigError, match="comments"):
        parsed("{ // mine\n}", PATH)


def test_a_section_of_another_shape_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"models\.providers"):
        merged({"models": {"providers": []}}, OpenClawSetup(TARGET), PATH)


def test_a_model_too_short_for_openclaw_is_said() -> None:
    short = Target("http://h", "k", "m", 8192)
    made = merged({}, OpenClawSetup(short), PATH)
    assert any("8192" in note for note in made.notes)


def test_openclaw_s_own_variables_say_where_its_configuration_is() -> None:
    assert config_path({"HOME": "/h"}) == Path("/h/.openclaw/openclaw.json")
    assert config_path({"HOME": "/h", "OPENCLAW_HOME": "/o"}) == Path("/o/.openclaw/openclaw.json")
    assert config_path({"HOME": "/h", "OPENCLAW_STATE_DIR": "/s"}) == Path("/s/openclaw.json")
    assert config_path({"OPENCLAW_STATE_DIR": "/s", "OPENCLAW_CONFIG_PATH": "/c.json"}) == Path("/c.json")


def test_the_plugin_s_folder_holds_a_manifest_with_our_provider() -> None:
    manifest = json.loads((plugin_folder() / "openclaw.plugin.json").read_text("utf-8"))
    assert manifest["id"] == "openclaw-rl" and manifest["providers"] == ["openclaw-rl"]


def test_a_changed_file_leaves_its_old_text_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "sub" / "a.json"
    assert put(path, "one", now_s=0.0).backup is None
    assert path.stat().st_mode & 0o777 == 0o600  # it holds a key
    first, second = put(path, "two", now_s=0.0), put(path, "three", now_s=0.0)
    assert first.backup is not None and first.backup.read_text("utf-8") == "one"
    assert second.backup is not None and second.backup.read_text("utf-8") == "two"
    assert path.read_text("utf-8") == "three"


def test_a_file_that_is_right_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    put(path, "one", now_s=0.0)
    again = put(path, "one", now_s=0.0)
    assert not again.has_changed and again.backup is None
    assert [each.name for each in tmp_path.iterdir()] == ["a.json"]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    real, link = tmp_path / "real.json", tmp_path / "link.json"
    real.write_text("one", "utf-8")
    link.symlink_to(real)
    put(link, "two", now_s=0.0)
    assert link.is_symlink() and real.read_text("utf-8") == "two"


def test_a_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="cannot be read"):
        old_text(path)


def test_openclaw_s_own_check_is_asked_where_it_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert complaint(PATH) is None
    program = tmp_path / "openclaw"
    program.write_text('#!/bin/sh\necho "$* $OPENCLAW_CONFIG_PATH"\n', "utf-8")
    program.chmod(0o700)
    assert complaint(PATH) == ""
    program.write_text('#!/bin/sh\necho "$* $OPENCLAW_CONFIG_PATH"\nexit 1\n', "utf-8")
    assert complaint(PATH) == "config validate openclaw.json"
