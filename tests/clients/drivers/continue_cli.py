"""Continue's command line, headless: `cn -p`, gone on with `--resume`."""

from __future__ import annotations

from drivers.notes import answered, logged, make_files
from talking import LONG, call, calls, direct, note, play, say, slow, small_room, wait_quiet

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
        self.configure()

    def configure(self, context: int = 1_000_000) -> None:
        """Writes its configuration."""
        key = self.place.environment["API_KEY"]
        text = CONFIG.format(url=self.place.base_url, key=key, context=context)
        (self.place.home / "config.yaml").write_text(text, "utf-8")

    def command(self, text: str, *more: str) -> list[str]:
        """One headless turn."""
        config = str(self.place.home / "config.yaml")
        return [self.program, "-p", "--auto", "--config", config, *more, text]

    def ask(self, text: str, *, goes_on: bool = False) -> str:
        """What it said at last."""
        more = ("--resume",) if goes_on else ()
        done = self.place.run(self.command(text, *more), CONTINUE_TELEMETRY_ENABLED="0")
        logged(self.place, text, done)
        return done.stdout.strip()


class Talks:
    """Its conversations."""

    def __init__(self, place) -> None:
        self.code = Continue(place)
        self.notes = make_files(place)

    def plain(self) -> None:
        first = self.code.ask(say("ask", "It is **seven**, of course."))
        second = self.code.ask(say("correction", "It is seven."), goes_on=True)
        third = self.code.ask(say("more", "Thirteen."), goes_on=True)
        answered("runs", [first, second, third], ["It is **seven**, of course.", "It is seven.", "Thirteen."])
        note("streams", third == "Thirteen.", "all its requests stream")

    def tools(self) -> None:
        first = self.code.ask(say("ask", call("Read", filepath=str(self.notes)), "Apples three, pears four."))
        failing = call("Bash", command="ls /nowhere/at/all; exit 3")
        second = self.code.ask(say("more", failing, "There is none."), goes_on=True)
        both = calls(("Bash", {"command": "echo one"}), ("Read", {"filepath": "/nowhere.txt"}))
        third = self.code.ask(say("more", both, "One; the other failed."), goes_on=True)
        fourth = self.code.ask(say("correction", "Apples: 3, pears: 4."), goes_on=True)
        due = ["Apples three, pears four.", "There is none.", "One; the other failed.", "Apples: 3, pears: 4."]
        answered("tools", [first, second, third, fourth], due)

    def malformed(self) -> None:
        first = self.code.ask(say("ask", call("no_such_tool", a=1), "I used the wrong tool."))
        again = self.code.ask(say("more", call("Read", path=7), "And wrong arguments."), goes_on=True)
        second = self.code.ask(say("correction", "Never mind the tool."), goes_on=True)
        note("malformed", second == "Never mind the tool.", [first, again, second])

    def compacted(self) -> None:
        self.code.ask(say("ask", "A first answer."))
        self.code.ask(say("correction", "A better answer."), goes_on=True)
        self.code.configure(context=20_000)
        filled = self.code.ask(say("long", "An answer before it.", more=LONG * 900), goes_on=True)
        after = self.code.ask(say("more", "An answer after it."), goes_on=True)
        self.code.configure()
        last = self.code.ask(say("correction", "A last one."), goes_on=True)
        note("compaction", last == "A last one.", [filled, after, last])

    def overflow(self) -> None:
        self.code.ask(say("ask", "Short."))
        self.code.ask(say("more", "Short again."), goes_on=True)
        small_room(400)
        second = self.code.ask(say("long", "A summary of it.", more=LONG * 40), goes_on=True)
        small_room(0)
        third = self.code.ask(say("correction", "Shorter."), goes_on=True)
        note("overflow", third == "Shorter.", [second, third])

    def cancelled(self) -> None:
        self.code.ask(say("ask", "First."))
        text = say("tell", "Once upon a time there was a lighthouse by the sea. " * 8)
        command = self.code.command(text, "--resume")
        with slow(), self.code.place.interrupted(command, 4.0, lambda: bool(direct("state")["running"])):
            wait_quiet()
        last = self.code.ask(say("on", "Hello."), goes_on=True)
        note("cancelled", last == "Hello.", last)


def drive(place) -> None:
    """All its conversations."""
    direct("errands", errands=ERRANDS)
    talks = Talks(place)
    play(talks.plain, talks.tools, talks.malformed, talks.compacted, talks.overflow, talks.cancelled)
