"""OpenCode, headless: `opencode run`, gone on with `--session`."""

from __future__ import annotations

import json

from drivers.notes import HeadlessTalks, answered, logged
from talking import LONG, call, calls, direct, note, play, say

SUMMARY = "## Goal\nSmall things.\n## Accomplished\nThey were answered."
ERRANDS = [
    {"kind": "title", "where": "any", "has": ["You are a title generator"], "reply": "Small things"},
    {
        "kind": "compaction",
        "where": "any",
        "has": [
            "You are a context summarization agent",
            "Provide a detailed prompt for continuing our conversation",
            "You are a helpful AI assistant tasked with summarizing conversations",
            "Create a new anchored summary",
        ],
        "reply": SUMMARY,
    },
    {"kind": "subagent", "where": "headers", "has": ["x-parent-session-id"], "reply": "The helper found two."},
]


class OpenCode:
    """One installation of it."""

    def __init__(self, place) -> None:
        self.place = place
        self.program = str(place.folder / "node_modules" / ".bin" / "opencode")
        self.variables = {
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
            "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
            "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
            "XDG_CONFIG_HOME": str(place.home / ".config"),
            "XDG_DATA_HOME": str(place.home / ".local" / "share"),
            "XDG_STATE_HOME": str(place.home / ".local" / "state"),
            "XDG_CACHE_HOME": str(place.home / ".cache"),
        }
        self.configure()

    def configure(self, context: int = 1_000_000) -> None:
        """Writes its configuration."""
        folder = self.place.home / ".config" / "opencode"
        folder.mkdir(parents=True, exist_ok=True)
        model = {
            "name": "OpenClaw-RL",
            "limit": {"context": context, "output": 2000},
            "tool_call": True,
            "attachment": True,
        }
        model["modalities"] = {"input": ["text", "image"], "output": ["text"]}
        options = {"baseURL": f"{self.place.base_url}/v1", "apiKey": self.place.environment["API_KEY"]}
        provider = {
            "npm": "@ai-sdk/openai-compatible",
            "name": "OpenClaw-RL",
            "options": options,
            "models": {"default": model},
        }
        config = {
            "$schema": "https://opencode.ai/config.json",
            "provider": {"openclaw-rl": provider},
            "model": "openclaw-rl/default",
            "small_model": "openclaw-rl/default",
            "autoupdate": False,
            "share": "disabled",
            "permission": "allow",
        }
        (folder / "opencode.json").write_text(json.dumps(config, indent=1))

    def command(self, text: str, session: str | None = None) -> list[str]:
        """One headless turn."""
        return [self.program, "run", "--format", "json", *(["--session", session] if session else []), text]

    def ask(self, text: str, session: str | None = None, *, timeout_s: float = 60.0) -> tuple[str, str]:
        """What it said at last, and the session."""
        done = self.place.run(self.command(text, session), timeout_s=timeout_s, **self.variables)
        logged(self.place, text, done)
        said, name = "", session or ""
        for line in done.stdout.splitlines():
            if not line.startswith("{"):
                continue
            event = json.loads(line)
            name = event.get("sessionID") or name
            part = event.get("part") or {}
            if event.get("type") == "text":
                said = part.get("text") or said
        return said.strip(), name


class Talks(HeadlessTalks):
    """Its conversations."""

    overflow_s = 60.0

    def tools(self) -> None:
        first, name = self.agent.ask(say("ask", call("read", filePath=str(self.notes)), "Apples three, pears four."))
        failing = call("bash", command="ls /nowhere/at/all; exit 3", description="List it")
        second, _ = self.agent.ask(say("more", failing, "There is none."), name)
        both = calls(
            ("bash", {"command": "echo one", "description": "Say one"}), ("read", {"filePath": "/nowhere.txt"})
        )
        third, _ = self.agent.ask(say("more", both, "One; the other failed."), name)
        fourth, _ = self.agent.ask(say("correction", "Apples: 3, pears: 4."), name)
        due = ["Apples three, pears four.", "There is none.", "One; the other failed.", "Apples: 3, pears: 4."]
        answered("tools", [first, second, third, fourth], due)

    def subagent(self) -> None:
        helper = call(
            "task", description="Look for files", prompt="Look for text files, helper.", subagent_type="general"
        )
        first, name = self.agent.ask(say("ask", helper, "My helper found two."))
        second, _ = self.agent.ask(say("correction", "Two files."), name)
        note("subagent", (first, second) == ("My helper found two.", "Two files."), [first, second])

    def image(self) -> None:
        first, name = self.agent.ask(
            say("look", call("read", filePath=str(self.agent.place.project / "red.png")), "A red one.")
        )
        second, _ = self.agent.ask(say("correction", "Red."), name)
        note("image", second == "Red.", [first, second])

    def compacted(self) -> None:
        _, name = self.agent.ask(say("ask", "A first answer."))
        self.agent.ask(say("correction", "A better answer."), name)
        self.agent.configure(context=direct("state")["prompt_tokens"] + 2600)
        filled, _ = self.agent.ask(say("long", "An answer before it.", more=LONG * 60), name)
        after, _ = self.agent.ask(say("more", "An answer after it."), name)
        self.agent.configure()
        last, _ = self.agent.ask(say("correction", "A last one."), name)
        note("compaction", last == "A last one.", [filled, after, last])


def drive(place) -> None:
    """All its conversations."""
    direct("errands", errands=ERRANDS)
    talks = Talks(OpenCode(place))
    play(
        talks.plain,
        talks.tools,
        talks.malformed,
        talks.subagent,
        talks.image,
        talks.compacted,
        talks.overflow,
        talks.cancelled,
    )
