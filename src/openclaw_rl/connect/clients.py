"""Clients whose configuration is a base URL and a key: what to set in each, from `clients.toml`."""

from __future__ import annotations

import json
import os
import shlex
import sys
import tomllib
from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from string import Template

import msgspec

from openclaw_rl.connect.server import ALIAS, Api, Target
from openclaw_rl.core.message import Json

OURS = "# Written by `openclaw-rl connect"  # how our files begin; no other file is overwritten
_APIS = {"chat": Api.CHAT, "responses": Api.RESPONSES, "messages": Api.MESSAGES}


class ClientRecipe(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One client, from `clients.toml`."""

    name: str
    about: str
    api: str
    release: str
    then: str
    text: str = ""
    json: str = ""
    block: str = ""
    own: str = ""
    anchor: tuple[str, ...] = ()
    head: str = ""
    folder: str = ""
    folder_macos: str = ""
    variable: str = ""
    file: str = ""
    least_context: int = 0
    needs: str = ""

    @property
    def path_api(self) -> Api:
        """The API it uses."""
        return _APIS[self.api]

    @property
    def is_written(self) -> bool:
        """Whether there is something to write into the client's file."""
        return bool(self.json or self.block or self.own)

    def path(self, environment: Mapping[str, str] | None = None) -> Path | None:
        """The path of its file; None if it cannot be determined."""
        words = os.environ if environment is None else environment
        if not self.file:
            return None
        if self.variable and words.get(self.variable):
            return Path(words[self.variable]).expanduser() / self.file
        home = Path(words["HOME"]) if words.get("HOME") else Path.home()
        folder = self.folder_macos if self.folder_macos and sys.platform == "darwin" else self.folder
        if folder.startswith(".config/") and words.get("XDG_CONFIG_HOME"):
            return Path(words["XDG_CONFIG_HOME"]) / folder.removeprefix(".config/") / self.file
        return home / folder / self.file

    def printed(self, target: Target) -> str:
        """The settings for a person, in shell syntax."""
        return _filled(self.text, target, shlex.quote)

    def entries(self, target: Target) -> dict[str, Json]:
        """The entries to merge into its JSON."""
        held: Json = json.loads(_filled(self.json, target, _escaped))
        assert isinstance(held, dict)
        return held

    def lines(self, target: Target) -> str:
        """The text to put between two marks."""
        return _filled(self.block, target, _escaped)

    def whole(self, target: Target) -> str:
        """Our own file."""
        return _filled(self.own, target, _escaped)

    def advice(self, target: Target) -> str:
        """The next step for the user."""
        return _filled(self.then, target, shlex.quote).strip()

    def shortage(self, context: int | None) -> str:
        """The warning about a model whose context is too short for it; empty if it is long enough or unknown."""
        if context is None or context >= self.least_context:
            return ""
        what = f"the served model's context is {context} tokens, and {self.name} needs {self.least_context} at least"
        return f"{what}: {self.needs}"


@cache
def clients() -> tuple[ClientRecipe, ...]:
    """All known clients except OpenClaw."""
    held = tomllib.loads(files("openclaw_rl.connect").joinpath("clients.toml").read_text("utf-8"))
    return msgspec.convert(held["client"], tuple[ClientRecipe, ...])


def as_json(value: object) -> str:
    """JSON as people write it."""
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def _filled(text: str, target: Target, escape: Callable[[str], str]) -> str:
    facts = {"url": target.url, "key": target.key, "model": ALIAS, "name": target.model}
    counts = {"context": target.window, "output": target.answer, "input": target.window - target.answer}
    held = {name: escape(value) for name, value in facts.items()} | {name: str(value) for name, value in counts.items()}
    return Template(text).substitute(held).lstrip("\n")


def _escaped(value: str) -> str:
    """Escaped for quotes in JSON, TOML and YAML."""
    return json.dumps(value, ensure_ascii=False)[1:-1]
