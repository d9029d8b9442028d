"""Clients whose configuration is a base URL and a key: what to set in each, in the client's own words."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from openclaw_rl.runtime.connect_server import ALIAS, Api, Target

CONTEXT = 32768  # where the server does not say
KEY_VARIABLE = "OPENCLAW_RL_API_KEY"
OURS = "# Written by `openclaw-rl connect"  # how a file of ours begins; no other is written over


@dataclass(frozen=True, slots=True)
class Client:
    """One client. `text` is what to set; `file` is written with it where it is a file of our own."""

    name: str
    about: str
    api: Api
    text: Callable[[Target], str]
    then: Callable[[Target], str]
    file: Path | None = None


def _claude_code(target: Target) -> str:
    models = "\n".join(
        f"export {name}={ALIAS}"
        for name in (
            "ANTHROPIC_MODEL",
            "ANTHROPIC_DEFAULT_OPUS_MODEL",
            "ANTHROPIC_DEFAULT_SONNET_MODEL",
            "ANTHROPIC_DEFAULT_HAIKU_MODEL",
        )
    )
    return f"""\
export ANTHROPIC_BASE_URL={target.url}
export ANTHROPIC_AUTH_TOKEN={target.key}
unset ANTHROPIC_API_KEY
{models}
export CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1
"""


def _codex(target: Target) -> str:
    return f"""\
{OURS} codex`; used by `codex --profile openclaw-rl` alone.
model = "{ALIAS}"
model_provider = "openclaw-rl"
model_context_window = {target.context or CONTEXT}

[model_providers.openclaw-rl]
name = "OpenClaw-RL"
base_url = "{target.url}/v1"
env_key = "{KEY_VARIABLE}"
wire_api = "responses"
"""


def _aider(target: Target) -> str:
    return f"""\
export OPENAI_API_BASE={target.url}/v1
export OPENAI_API_KEY={target.key}
export AIDER_MODEL=openai/{ALIAS}
"""


def _continue(target: Target) -> str:
    return f"""\
models:
  - name: OpenClaw-RL
    provider: openai
    model: {ALIAS}
    apiBase: {target.url}/v1
    apiKey: {target.key}
    roles: [chat, edit, apply]
    defaultCompletionOptions:
      contextLength: {target.context or CONTEXT}
"""


def _open_webui(target: Target) -> str:
    return f"""\
export OPENAI_API_BASE_URL={target.url}/v1
export OPENAI_API_KEY={target.key}
"""


def _librechat(target: Target) -> str:
    return f"""\
endpoints:
  custom:
    - name: OpenClaw-RL
      apiKey: {target.key}
      baseURL: {target.url}/v1
      models:
        default: [{ALIAS}]
        fetch: false
      titleConvo: false
      headers:
        X-Session-Id: "{{{{LIBRECHAT_BODY_CONVERSATIONID}}}}"
        X-User-Id: "{{{{LIBRECHAT_USER_ID}}}}"
"""


def _cline(target: Target) -> str:
    return f"""\
API Provider    OpenAI Compatible
Base URL        {target.url}/v1
API Key         {target.key}
Model ID        {ALIAS}
Context Window  {target.context or CONTEXT}
"""


def _openai(target: Target) -> str:
    return f"export OPENAI_BASE_URL={target.url}/v1\nexport OPENAI_API_KEY={target.key}\n"


def _anthropic(target: Target) -> str:
    return f"export ANTHROPIC_BASE_URL={target.url}\nexport ANTHROPIC_API_KEY={target.key}\n"


def _says(words: str) -> Callable[[Target], str]:
    return lambda target: words


CLIENTS: tuple[Client, ...] = (
    Client(
        "claude-code",
        "Claude Code, by environment variables",
        Api.MESSAGES,
        _claude_code,
        _says("Set these in the shell, then start `claude`; /status shows the address."),
    ),
    Client(
        "codex",
        "Codex CLI, as a profile of its own",
        Api.RESPONSES,
        _codex,
        lambda target: f"Start it with:  {KEY_VARIABLE}={target.key} codex --profile openclaw-rl",
        file=Path(".codex") / "openclaw-rl.config.toml",
    ),
    Client(
        "aider",
        "Aider, by environment variables",
        Api.CHAT,
        _aider,
        _says("Set these in the shell, then start `aider`."),
    ),
    Client(
        "continue",
        "Continue (VS Code, JetBrains), as an entry of ~/.continue/config.yaml",
        Api.CHAT,
        _continue,
        _says("Add this to the list `models` of ~/.continue/config.yaml, and choose it in the chat."),
    ),
    Client(
        "open-webui",
        "Open WebUI, by environment variables",
        Api.CHAT,
        _open_webui,
        _says(
            "Set these before Open WebUI first starts; later: Admin Settings > Connections. Choose another model for "
            "titles and tags under Admin Settings > Interface > Task Model, or switch them off: they look like turns."
        ),
    ),
    Client(
        "librechat",
        "LibreChat, as a custom endpoint with session and user in headers",
        Api.CHAT,
        _librechat,
        _says("Add this to librechat.yaml and restart. Titles are off because they would look like turns."),
    ),
    Client("cline", "Cline (VS Code), in its settings", Api.CHAT, _cline, _says("Put these into Cline's settings.")),
    Client(
        "openai",
        "Any program made with an official openai library",
        Api.CHAT,
        _openai,
        _says("The libraries read these."),
    ),
    Client(
        "anthropic",
        "Any program made with an official anthropic library",
        Api.MESSAGES,
        _anthropic,
        _says("The libraries read these."),
    ),
)


def as_json(value: object) -> str:
    """JSON as people write it."""
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"
