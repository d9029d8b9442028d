"""Continue's command line, headless: `cn -p`, gone on with `--resume`."""

from __future__ import annotations

from drivers.notes import HeadlessTalks, answered, logged
from talking import LONG, call, calls, direct, note, play, say

ERRANDS = [
    {"kind": "compaction", "where": "newest", "has": ["Please provide a concise summary of our conversation so far"]},
    {"kind": "title", "where": "newest", "has": ["please reply with a title for the chat"]},
]
CONFIG = """name: openclaw-rl
version: 1.0.0
schema: v1
models:
  - name: default
    provider: openai
    model: default
    apiBase: {url}/v1
    apiKey: {key}
    roles: [chat, edit, apply]
    capabilities: [tool_use, image_input]
    defaultCompletionOptions:
      contextLength: {context}
      maxTokens: 2000
"""


class Continue:
    """One installation of it."""

    def __init__(self, place) -> None:
        self.place = place
        self.program = str(place.folder / "node_modules" / ".bin" / "cn")
        self.variables = {"CONTINUE_TELEMETRY_ENABLED": "0"}
        self.configure()

    def configure(self, context: int = 1_000_000) -> None:
        """Writes its configuration."""
        key = self.place.environment["API_KEY"]
        text = CONFIG.format(url=self.place.base_url, key=key, context=context)
        (self.place.home / "config.yaml").write_text(text, "utf-8")

    def command(self, text: str, session: str | None = None) -> list[str]:
        """One headless turn."""
        config = str(self.place.home / "config.yaml")
        return [self.program, "-p", "--auto", "--config", config, *(["--resume"] if session else []), text]

    def ask(self, text: str, session: str | None = None, *, timeout_s: float = 180.0) -> tuple[str, str]:
        """What it said at last; it goes on with the last session, whatever its name."""
        done = self.place.run(self.command(text, session), timeout_s=timeout_s, **self.variables)
        logged(self.place, text, done)
        return done.stdout.strip(), "the last"


class Talks(HeadlessTalks):
    """Its conversations."""

    reader = "Read"
    overflow_s = 180.0

    def tools(self) -> None:
        first, name = self.agent.ask(say("ask", call("Read", filepath=str(self.notes)), "Apples three, pears four."))
        failing = call("Bash", command="ls /nowhere/at/all; exit 3")
        second, _ = self.agent.ask(say("more", failing, "There is none."), name)
        both = calls(("Bash", {"command": "echo one"}), ("Read", {"filepath": "/nowhere.txt"}))
        third, _ = self.agent.ask(say("more", both, "One; the other failed."), name)
        fourth, _ = self.agent.ask(say("correction", "Apples: 3, pears: 4."), name)
        due = ["Apples three, pears four.", "There is none.", "One; the other failed.", "Apples: 3, pears: 4."]
        answered("tools", [first, second, third, fourth], due)

    def compacted(self) -> None:
        _, name = self.agent.ask(say("ask", "A first answer."))
        self.agent.ask(say("correction", "A better answer."), name)
        self.agent.configure(context=20_000)
        filled, _ = self.agent.ask(say("long", "An answer before it.", more=LONG * 900), name)
        after, _ = self.agent.ask(say("more", "An answer after it."), name)
        self.agent.configure()
        last, _ = self.agent.ask(say("correction", "A last one."), name)
        note("compaction", last == "A last one.", [filled, after, last])


def drive(place) -> None:
    """All its conversations."""
    direct("errands", errands=ERRANDS)
    talks = Talks(Continue(place))
    play(talks.plain, talks.tools, talks.malformed, talks.compacted, talks.overflow, talks.cancelled)
