"""What each client is told, as its own reader understands it; what stands in its file beside ours stays."""

from __future__ import annotations

import json
import shlex
import tomllib
from pathlib import Path

import pytest
import yaml

from openclaw_rl.connect.clients import ClientRecipe, clients
from openclaw_rl.connect.merge import END, with_block, with_entries, without_block, without_entries
from openclaw_rl.connect.openclaw import OpenClawSetup, merged, removed
from openclaw_rl.connect.server import Target
from openclaw_rl.errors import ConfigError

TARGET = Target("http://127.0.0.1:30000", 'a"key\\', "some-model", 40960)
NAMED = {client.name: client for client in clients()}
ISSUED = ["claude-code", "codex", "opencode", "aider", "open-webui", "librechat", "continue", "cline", "mini-swe-agent"]


def _exports(client: ClientRecipe, target: Target = TARGET) -> dict[str, str]:
    """The variables as a shell sets them."""
    words = [shlex.split(line) for line in client.printed(target).splitlines()]
    return dict(line[1].split("=", 1) for line in words if line[0] == "export")


def _block(name: str, before: str = "") -> object:
    client = NAMED[name]
    return yaml.safe_load(with_block(before, client.lines(TARGET), client.anchor, client.head))


@pytest.mark.parametrize("name", ISSUED)
def test_every_agent_says_which_release_was_read_and_what_context_it_needs(name: str) -> None:
    client = NAMED[name]
    assert client.release and client.least_context >= 8000
    assert client.shortage(client.least_context) == "" == client.shortage(None)
    short = client.shortage(client.least_context - 1)
    assert str(client.least_context) in short and client.needs in short


@pytest.mark.parametrize("client", clients(), ids=lambda client: client.name)
def test_every_client_is_told_address_and_key(client: ClientRecipe) -> None:
    plain = Target("http://h:1", "the-key", "m", 4096)
    forms = (
        client.printed(plain),
        client.lines(plain),
        client.whole(plain),
        client.json and str(client.entries(plain)),
    )
    told = "".join(form for form in (*forms, client.advice(plain)) if form)
    assert "http://h:1" in told and "the-key" in told and "$" not in told.replace("$schema", "")


def test_claude_code_is_told_the_real_window_in_a_shell_and_in_its_settings() -> None:
    client = NAMED["claude-code"]
    told = _exports(client)
    assert told["ANTHROPIC_BASE_URL"] == TARGET.url and told["ANTHROPIC_AUTH_TOKEN"] == TARGET.key
    assert (told["CLAUDE_CODE_MAX_CONTEXT_TOKENS"], told["CLAUDE_CODE_MAX_OUTPUT_TOKENS"]) == ("40960", "8192")
    assert client.entries(TARGET)["env"] == {name: value for name, value in told.items()}
    assert not told["ANTHROPIC_MODEL"].startswith("claude-")  # for such names it would believe its own table
    assert client.path() is None


def test_codex_reads_its_profile() -> None:
    told = tomllib.loads(NAMED["codex"].whole(TARGET))
    provider = told["model_providers"][told["model_provider"]]
    assert provider["base_url"] == f"{TARGET.url}/v1" and provider["wire_api"] == "responses"
    assert (told["model_context_window"], told["model_auto_compact_token_limit"]) == (40960, 40960 - 8192)
    assert NAMED["codex"].path({"CODEX_HOME": "/c"}) == Path("/c/openclaw-rl.config.toml")


def test_opencode_has_a_provider_whose_answer_leaves_room_for_a_prompt() -> None:
    told = NAMED["opencode"].entries(TARGET)
    provider = told["provider"]["openclaw-rl"]  # type: ignore[index,call-overload]
    assert provider["options"]["baseURL"] == f"{TARGET.url}/v1" and provider["options"]["apiKey"] == TARGET.key
    assert provider["models"]["default"]["limit"] == {"context": 40960, "output": 8192}
    path = NAMED["opencode"].path
    assert path({"HOME": "/h"}) == Path("/h/.config/opencode/opencode.json")
    assert path({"HOME": "/h", "XDG_CONFIG_HOME": "/x"}) == Path("/x/opencode/opencode.json")


def test_aider_knows_the_model_s_lengths_by_the_name_it_is_told() -> None:
    (name, lengths), *others = NAMED["aider"].entries(TARGET).items()
    assert _exports(NAMED["aider"])["AIDER_MODEL"] == name and not others
    assert isinstance(lengths, dict) and lengths["max_input_tokens"] == 40960 - 8192


def test_continue_gets_a_model_beside_those_that_are_there() -> None:
    assert [each["name"] for each in _block("continue")["models"]] == ["OpenClaw-RL"]  # type: ignore[index]
    before = (
        "name: mine\nversion: 0.0.1\n# my models\nmodels:\n  # the first\n  - name: other\n    provider: x\nrules: []\n"
    )
    told = _block("continue", before)
    assert isinstance(told, dict) and told["name"] == "mine" and told["rules"] == []
    ours, other = told["models"]
    assert other == {"name": "other", "provider": "x"}
    assert ours["apiKey"] == TARGET.key and ours["defaultCompletionOptions"] == {
        "contextLength": 40960,
        "maxTokens": 8192,
    }


def test_librechat_gets_an_endpoint_however_its_file_looks() -> None:
    files = [
        "",
        "version: 1.2.1\n",
        "version: 1.2.1\nendpoints:\n  agents:\n    disableBuilder: false\n",
        "endpoints:\n  custom:\n  - name: other\n    apiKey: x\n  agents: {}\ncache: true\n",
        "endpoints:\n    custom:\n        - name: other\n          apiKey: x\n",
    ]
    for before in files:
        told = _block("librechat", before)
        assert isinstance(told, dict)
        ours, *others = told["endpoints"]["custom"]
        assert ours["headers"]["X-Session-Id"] == "{{LIBRECHAT_BODY_CONVERSATIONID}}"
        assert ours["tokenConfig"] == {"default": {"prompt": 0, "completion": 0, "context": 40960}}
        assert others == ([{"name": "other", "apiKey": "x"}] if "other" in before else [])
        was = yaml.safe_load(before) or {"version": "1.3.17"}
        del told["endpoints"]["custom"]
        was.get("endpoints", {}).pop("custom", None)
        assert {name: value for name, value in told.items() if value} == {
            name: value for name, value in was.items() if value
        }


@pytest.mark.parametrize("before", ["models: []\n", "models: [{name: x}]\n", "models: &a\n  - name: x\n"])
def test_a_list_that_stands_in_one_line_is_not_written_into(before: str) -> None:
    with pytest.raises(ConfigError, match="--print"):
        _block("continue", before)


@pytest.mark.parametrize("name", ["continue", "librechat", "mini-swe-agent"])
@pytest.mark.parametrize("before", ["", "a: 1\n", "# mine\na: 1\nmodels:\n  - name: other\nb: 2\n"])
def test_lines_are_put_in_once_and_taken_out_without_a_trace(name: str, before: str) -> None:
    client = NAMED[name]
    once = with_block(before, client.lines(TARGET), client.anchor, client.head)
    other = Target("http://elsewhere", "k", "m", 9000)
    twice = with_block(once, client.lines(other), client.anchor, client.head)
    assert twice.count(END) == 1 and "elsewhere" in twice and TARGET.url not in twice
    assert with_block(twice, client.lines(TARGET), client.anchor, client.head) == once
    assert without_block(twice) == (before or client.head.lstrip("\n"))


def test_a_mark_that_was_lost_is_not_guessed() -> None:
    held = with_block("", "x: 1", (), "").replace(END, "")
    with pytest.raises(ConfigError, match="missing"):
        without_block(held + "mine: 2\n")


def test_mini_swe_agent_s_settings_are_read_last() -> None:
    client = NAMED["mini-swe-agent"]
    lines = with_block("MSWEA_MODEL_NAME='mine'\n", client.lines(Target("http://h", "k", "m", 9)), ()).splitlines()
    told = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    assert told["MSWEA_MODEL_NAME"] == "'openai/default'" and told["OPENAI_API_BASE"] == "'http://h/v1'"
    assert lines[0] == "MSWEA_MODEL_NAME='mine'"


def test_entries_go_in_beside_others_and_out_again() -> None:
    entries = NAMED["opencode"].entries(TARGET)
    mine = {"theme": "x", "provider": {"other": {"a": 1}, "openclaw-rl": {"options": {"headers": {"X": "y"}}}}}
    copy = json.loads(json.dumps(mine))
    made = with_entries(mine, entries)
    assert mine == copy and made["theme"] == "x"
    ours = made["provider"]["openclaw-rl"]  # type: ignore[index,call-overload]
    assert ours["options"]["headers"] == {"X": "y"} and ours["options"]["apiKey"] == TARGET.key
    assert without_entries(made, entries) == {
        "$schema": entries["$schema"],
        "theme": "x",
        "provider": {"other": {"a": 1}},
    }
    assert without_entries(with_entries({}, NAMED["aider"].entries(TARGET)), NAMED["aider"].entries(TARGET)) == {}
    with pytest.raises(ConfigError, match="provider in the configuration is not an object"):
        with_entries({"provider": []}, entries)


def test_openclaw_s_entries_go_out_again_and_another_model_stays(tmp_path: Path) -> None:
    before = {"gateway": {"port": 1}, "plugins": {"allow": ["memory-core"]}}
    made = merged(before, OpenClawSetup(TARGET), Path("openclaw.json")).config
    assert made != before and removed(made) == before
    chosen = {"agents": {"defaults": {"model": {"primary": "other/m"}}}}
    assert removed(merged(chosen, OpenClawSetup(TARGET), Path("openclaw.json")).config) == chosen
