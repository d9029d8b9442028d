"""Codex, headless: `codex exec`, gone on with `codex exec resume`."""

from __future__ import annotations

import json

from drivers.notes import HeadlessTalks, answered, logged
from talking import call, calls, direct, note, play, say

SUMMARY = "The owner asked small things and was answered; nothing is left to do."
ERRANDS = [
    {
        "kind": "compaction",
        "where": "any",
        "has": ["You are performing a CONTEXT CHECKPOINT COMPACTION"],
        "reply": SUMMARY,
    },
    {
        "kind": "compaction",
        "where": "headers",
        "has": ['\\"request_kind\\":\\"compaction\\"', 'request_kind\\\\\\":\\\\\\"compaction'],
        "reply": SUMMARY,
    },
    {"kind": "title", "where": "any", "has": ["title for this conversation"], "reply": "Small things"},
]
CONFIG = """\
model = "default"
model_provider = "openclaw-rl"
model_context_window = {window}
{more}
check_for_update_on_startup = false

[model_providers.openclaw-rl]
name = "OpenClaw-RL"
base_url = "{url}/v1"
env_key = "OPENCLAW_RL_API_KEY"
wire_api = "responses"
request_max_retries = 1
stream_max_retries = 1

[analytics]
enabled = false

[projects."{project}"]
trust_level = "trusted"
"""


class Codex:
    """One installation of it."""

    def __init__(self, place) -> None:
        self.place = place
        self.program = str(place.folder / "node_modules" / ".bin" / "codex")
        self.variables = {"OPENCLAW_RL_API_KEY": place.environment["API_KEY"], "CODEX_HOME": str(place.home / ".codex")}
        (place.home / ".codex").mkdir(exist_ok=True)
        self.configure()

    def configure(self, window: int = 1_000_000, more: str = "") -> None:
        """Writes its configuration."""
        place = self.place
        text = CONFIG.format(window=window, more=more, url=place.base_url, project=place.project)
        (place.home / ".codex" / "config.toml").write_text(text)

    def command(self, text: str, session: str | None = None, *more: str) -> list[str]:
        """One headless turn."""
        options = ["--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", *more]
        return [self.program, "exec", *options, *(["resume", session] if session else []), text]

    def ask(self, text: str, session: str | None = None, *more: str, timeout_s: float = 150.0) -> tuple[str, str]:
        """What it said at last, and the session."""
        done = self.place.run(self.command(text, session, *more), timeout_s=timeout_s, **self.variables)
        logged(self.place, text, done)
        said, name = "", session or ""
        for line in done.stdout.splitlines():
            if not line.startswith("{"):
                continue
            event = json.loads(line)
            name = event.get("thread_id") or name
            item = event.get("item") or {}
            if item.get("type") == "agent_message" and event["type"] == "item.completed":
                said = item["text"]
        return said, name


def shell(text: str) -> tuple[str, dict]:
    """A call of its shell."""
    return ("exec_command", {"cmd": text})


class Talks(HeadlessTalks):
    """Its conversations."""

    overflow_s = 240.0

    def tools(self) -> None:
        first, name = self.agent.ask(say("ask", calls(shell("cat notes.txt")), "Apples three, pears four."))
        second, _ = self.agent.ask(say("more", calls(shell("ls /nowhere/at/all; exit 3")), "There is none."), name)
        both = calls(shell("echo one"), shell("cat /nowhere"))
        third, _ = self.agent.ask(say("more", both, "One; the other failed."), name)
        plan = call("update_plan", plan=[{"step": "look", "status": "completed"}])
        fourth, _ = self.agent.ask(say("correction", plan, "Apples: 3, pears: 4."), name)
        due = ["Apples three, pears four.", "There is none.", "One; the other failed.", "Apples: 3, pears: 4."]
        answered("tools", [first, second, third, fourth], due)

    def malformed(self) -> None:
        first, name = self.agent.ask(say("ask", call("no_such_tool", a=1), "I used the wrong tool."))
        second, _ = self.agent.ask(say("correction", "Never mind the tool."), name)
        note("malformed", second == "Never mind the tool.", [first, second])

    def image(self) -> None:
        see = call("view_image", path=str(self.agent.place.project / "red.png"))
        first, name = self.agent.ask(say("look", see, "A red one."))
        second, _ = self.agent.ask(say("correction", "Red."), name)
        note("image", second == "Red.", [first, second])

    def image_given(self) -> None:
        text = say("look", "A red one, yes.")
        done = self.agent.place.run(
            self.agent.command(text, None, "-i", str(self.agent.place.project / "red.png"), "--"),
            **self.agent.variables,
        )
        note("image_given", "A red one, yes." in done.stdout, done.stdout[-400:] + done.stderr[-300:])

    def compacted(self) -> None:
        _, name = self.agent.ask(say("ask", "A first answer."))
        self.agent.ask(say("correction", "A better answer."), name)
        used = direct("state")["prompt_tokens"]
        self.agent.configure(more=f"model_auto_compact_token_limit = {max(used - 100, 100)}")
        after, _ = self.agent.ask(say("more", "An answer after it."), name)
        self.agent.configure()
        last, _ = self.agent.ask(say("correction", "A last one."), name)
        note("compaction", (after, last) == ("An answer after it.", "A last one."), [after, last])


def drive(place) -> None:
    """All its conversations."""
    direct("errands", errands=ERRANDS)
    talks = Talks(Codex(place))
    play(
        talks.plain,
        talks.tools,
        talks.malformed,
        talks.image,
        talks.image_given,
        talks.compacted,
        talks.overflow,
        talks.cancelled,
    )
