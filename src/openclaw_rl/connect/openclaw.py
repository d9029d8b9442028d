"""OpenClaw's configuration with this server as a provider. Only entries named `openclaw-rl` are changed."""

from __future__ import annotations

import copy
import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from openclaw_rl.connect.merge import without_entries
from openclaw_rl.connect.server import ALIAS, Target
from openclaw_rl.core.message import Json
from openclaw_rl.errors import ConfigError

PROVIDER = "openclaw-rl"  # fixed: the plugin's manifest names it too
MODEL = f"{PROVIDER}/{ALIAS}"
MODEL_TIMEOUT_S = 900  # OpenClaw gives public hosts two minutes otherwise; a long prompt on a slow machine takes longer
LEAST_CONTEXT = 16_000  # OpenClaw's own prompt hardly fits in less
FOLDER = Path("extensions") / "openclaw"
CHECK_TIMEOUT_S = 180.0
LONGEST_COMPLAINT = 600  # characters


@dataclass(frozen=True, slots=True)
class OpenClawSetup:
    """What to write: the default model of all agents or only one to choose; with or without the plugin."""

    target: Target
    is_default: bool = False
    thinks: bool = False
    plugin: Path | None = None


@dataclass(frozen=True, slots=True)
class MergedConfig:
    """The new configuration, and notes for the user."""

    config: dict[str, Json]
    notes: tuple[str, ...]


def config_path(environment: Mapping[str, str] | None = None) -> Path:
    """The path of OpenClaw's configuration."""
    words = os.environ if environment is None else environment
    if words.get("OPENCLAW_CONFIG_PATH"):
        return Path(words["OPENCLAW_CONFIG_PATH"]).expanduser()
    if words.get("OPENCLAW_STATE_DIR"):
        return Path(words["OPENCLAW_STATE_DIR"]).expanduser() / "openclaw.json"
    home = words.get("OPENCLAW_HOME") or words.get("HOME")
    return (Path(home).expanduser() if home else Path.home()) / ".openclaw" / "openclaw.json"


def plugin_folder() -> Path:
    """The plugin's folder: in the installed package, else in the checkout."""
    package = Path(__file__).parents[1]
    for folder in (package / FOLDER, package.parents[1] / FOLDER):
        if (folder / "openclaw.plugin.json").is_file():
            return folder
    raise ConfigError(
        "the OpenClaw plugin is not part of this installation", fix="take extensions/openclaw from the source"
    )


def parsed(text: str | None, path: Path) -> dict[str, Json]:
    """The present configuration; empty if there is none.

    Raises ConfigError for JSON5: written again it would lose its comments.
    """
    if text is None or not text.strip():
        return {}
    try:
        held: Json = json.loads(text)
    except ValueError as problem:
        raise ConfigError(
            f"{path} is not plain JSON ({problem}), and rewriting it would lose its comments",
            fix="use --print, and add the entries by hand",
        ) from problem
    if not isinstance(held, dict):
        raise ConfigError(f"{path} holds no JSON object", fix="check the file")
    return held


def merged(before: Mapping[str, Json], wanted: OpenClawSetup, path: Path) -> MergedConfig:
    """The configuration with our entries. All else stays unchanged, even the agents' model unless requested."""
    config = copy.deepcopy(dict(before))
    notes: list[str] = []
    providers = _section(config, path, "models", "providers")
    kept = providers.get(PROVIDER)
    ours = dict(kept) if isinstance(kept, dict) else {}  # a header or timeout that the user added stays
    provider = _provider(wanted)
    provider["models"] = [_model(wanted), *_other_models(ours.get("models"))]
    providers[PROVIDER] = {"timeoutSeconds": MODEL_TIMEOUT_S, **ours, **provider}
    _choose(config, wanted, path, notes)
    if wanted.plugin is not None:
        _plug_in(config, wanted.plugin, path)
    context = wanted.target.context
    if context is not None and context < LEAST_CONTEXT:
        notes.append(f"the model's context is {context} tokens, and OpenClaw's own prompt takes about 12,000 of them")
    return MergedConfig(config, tuple(notes))


def entries(wanted: OpenClawSetup) -> dict[str, Json]:
    """Only our entries, for a person to add by hand."""
    shown = merged({}, OpenClawSetup(wanted.target, True, wanted.thinks, wanted.plugin), Path("openclaw.json"))
    return shown.config


def removed(before: Mapping[str, Json]) -> dict[str, Json]:
    """The configuration without our entries, including the plugin's."""
    try:
        plugin = plugin_folder()
    except ConfigError:
        plugin = Path(FOLDER)
    ours = entries(OpenClawSetup(Target("", "", "", None), True, plugin=plugin))
    allowed: dict[str, Json] = {"plugins": {"allow": [PROVIDER]}}
    return without_entries(without_entries(before, ours), allowed)


def complaint(path: Path, *, program: str = "openclaw") -> str | None:
    """The complaints of `openclaw config validate` about the file, "" if none; None if it cannot be run."""
    found = shutil.which(program)
    if found is None:
        return None
    try:
        done = subprocess.run(
            [found, "config", "validate"],
            capture_output=True,
            text=True,
            timeout=CHECK_TIMEOUT_S,
            check=False,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "OPENCLAW_CONFIG_PATH": str(path)},
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    said = (done.stdout + done.stderr).strip()[-LONGEST_COMPLAINT:]
    return "" if done.returncode == 0 else said or f"code {done.returncode}"


def _provider(wanted: OpenClawSetup) -> dict[str, Json]:
    return {"baseUrl": f"{wanted.target.url}/v1", "apiKey": wanted.target.key, "api": "openai-completions"}


def _model(wanted: OpenClawSetup) -> dict[str, Json]:
    free: dict[str, Json] = dict.fromkeys(("input", "output", "cacheRead", "cacheWrite"), 0)
    model: dict[str, Json] = {
        "id": ALIAS,
        "name": f"{wanted.target.model} (learns)",
        "reasoning": wanted.thinks,
        "input": ["text"],
        "cost": free,
        "contextWindow": wanted.target.window,
        "maxTokens": wanted.target.answer,
    }
    if wanted.thinks:
        model["compat"] = {"thinkingFormat": "qwen-chat-template"}  # /think reaches the chat template
    return model


def _other_models(listed: Json) -> list[Json]:
    """The entries that a user added next to ours."""
    held = listed if isinstance(listed, list) else []
    return [each for each in held if not isinstance(each, dict) or each.get("id") != ALIAS]


def _choose(config: dict[str, Json], wanted: OpenClawSetup, path: Path, notes: list[str]) -> None:
    """Sets the agents' model, if none is chosen or it is requested."""
    defaults = _section(config, path, "agents", "defaults")
    chosen = defaults.get("model")
    name = chosen.get("primary") if isinstance(chosen, dict) else chosen
    if name == MODEL:
        return
    if name and not wanted.is_default:
        notes.append(
            f"your agents' model stays {name}; choose ours with `openclaw models set {MODEL}`, "
            "or run this again with --make-default"
        )
        return
    others = chosen if isinstance(chosen, dict) else {}
    defaults["model"] = {**others, "primary": MODEL}
    if name:
        notes.append(f"your agents' model was {name} and is {MODEL} now")


def _plug_in(config: dict[str, Json], folder: Path, path: Path) -> None:
    paths = _section(config, path, "plugins", "load").setdefault("paths", [])
    if isinstance(paths, list) and str(folder) not in paths:
        paths.append(str(folder))
    entry = _section(config, path, "plugins", "entries", PROVIDER)
    entry["enabled"] = True
    _section(config, path, "plugins", "entries", PROVIDER, "hooks")["allowConversationAccess"] = True
    allowed = _section(config, path, "plugins").get("allow")
    if isinstance(allowed, list) and PROVIDER not in allowed:
        allowed.append(PROVIDER)


def _section(config: dict[str, Json], path: Path, *names: str) -> dict[str, Json]:
    """A table within a table, created if it is missing."""
    table = config
    for name in names:
        inner = table.setdefault(name, {})
        if not isinstance(inner, dict):
            raise ConfigError(
                f"{'.'.join(names)} of {path} cannot be extended", fix="use --print, and put it in by hand"
            )
        table = inner
    return table
