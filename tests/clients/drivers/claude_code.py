"""Claude Code, headless: `claude -p`, gone on with `--resume`."""

from __future__ import annotations

import json

from drivers.notes import answered, is_answering, logged, make_files
from talking import LONG, call, calls, direct, note, play, say, slow, small_room, wait_quiet

SUMMARY = "<analysis>The talk so far.</analysis>\n<summary>The owner asked small things and was answered.</summary>"
ERRANDS = [
    {
        "kind": "compaction",
        "where": "newest",
        "has": ["Respond with TEXT ONLY", "create a detailed summary of"],
        "reply": SUMMARY,
    },
    {
        "kind": "title",
        "where": "any",
        "has": ["Generate a concise, sentence-case title", "sentence-case title"],
        "reply": '{"title": "Small things"}',
    },
    {"kind": "topic", "where": "any", "has": ["isNewTopic"], "reply": '{"isNewTopic": false, "title": null}'},
    {"kind": "quota", "where": "newest", "has": ['"quota"'], "no_tools": True, "reply": "ok"},
    {"kind": "suggestion", "where": "newest", "has": ["SUGGESTION MODE"], "reply": "go on"},
    {"kind": "prefix", "where": "newest", "has": ["policy_spec", "command prefix"], "reply": "none"},
    {
        "kind": "subagent",
        "where": "headers",
        "has": ["x-claude-code-agent-id"],
        "replies": [],
        "reply": "The helper found two files.",
    },
]


class Claude:
    """One installation of it."""

    def __init__(self, place) -> None:
        self.place = place
        self.program = str(place.folder / "node_modules" / ".bin" / "claude")
        self.variables = {
            "ANTHROPIC_BASE_URL": place.base_url,
            "ANTHROPIC_AUTH_TOKEN": place.environment["API_KEY"],
            "ANTHROPIC_MODEL": "default",
            "ANTHROPIC_DEFAULT_OPUS_MODEL": "default",
            "ANTHROPIC_DEFAULT_SONNET_MODEL": "default",
            "ANTHROPIC_DEFAULT_HAIKU_MODEL": "default",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "IS_SANDBOX": "1",
            "API_TIMEOUT_MS": "60000",
            "CLAUDE_CODE_MAX_RETRIES": "1",
        }

    def ask(self, text: str, *more: str, timeout_s: float = 150.0, **variables: str) -> dict:
        """One headless turn; gives the printed result."""
        done = self.place.run(
            [self.program, "-p", text, "--output-format", "json", "--dangerously-skip-permissions", *more],
            timeout_s=timeout_s,
            **self.variables,
            **variables,
        )
        logged(self.place, text, done)
        try:
            held = json.loads(done.stdout)
        except ValueError:
            return {"result": done.stdout + done.stderr, "is_error": True, "session_id": ""}
        return held[-1] if isinstance(held, list) else held


class Talks:
    """Its conversations."""

    def __init__(self, place) -> None:
        self.claude, project = Claude(place), place.project
        (project / "more.txt").write_text("plums 5\n")
        self.notes, self.more = str(make_files(place)), str(project / "more.txt")

    def plain(self) -> None:
        first = self.claude.ask(say("ask", "It is **seven**, of course."))
        name = first["session_id"]
        second = self.claude.ask(say("correction", "It is seven."), "--resume", name)
        third = self.claude.ask(say("more", "Thirteen."), "--resume", name)
        texts = [each.get("result") for each in (first, second, third)]
        answered("runs", texts, ["It is **seven**, of course.", "It is seven.", "Thirteen."])

    def streamed(self) -> None:
        text = say("ask", "Seven is the number you want here.")
        done = self.claude.place.run(
            [
                self.claude.program,
                "-p",
                text,
                "--output-format",
                "stream-json",
                "--verbose",
                "--include-partial-messages",
            ],
            **self.claude.variables,
        )
        pieces = done.stdout.count('"text_delta"')
        note("streams", pieces > 2 and "Seven is the number" in done.stdout, f"{pieces} pieces {done.stderr[-200:]}")

    def tools(self) -> None:
        first = self.claude.ask(say("ask", call("Read", file_path=self.notes), "Apples three, pears four."))
        name = first["session_id"]
        second = self.claude.ask(
            say("more", call("Bash", command="ls /nowhere/at/all", description="List it"), "There is none."),
            "--resume",
            name,
        )
        both = calls(
            ("Read", {"file_path": self.more}), ("Bash", {"command": "echo one; exit 3", "description": "Say one"})
        )
        third = self.claude.ask(say("more", both, "Five plums; the other one failed."), "--resume", name)
        fourth = self.claude.ask(say("correction", "Plums: 5."), "--resume", name)
        texts = [each.get("result") for each in (first, second, third, fourth)]
        answered(
            "tools",
            texts,
            ["Apples three, pears four.", "There is none.", "Five plums; the other one failed.", "Plums: 5."],
        )

    def subagent(self) -> None:
        helper = call(
            "Agent", description="Look for files", prompt="Find all text files here.", subagent_type="general-purpose"
        )
        first = self.claude.ask(say("ask", helper, "My helper found two."))
        second = self.claude.ask(say("correction", "Two files."), "--resume", first["session_id"])
        note("subagent", second.get("result") == "Two files.", first.get("result"))

    def image(self) -> None:
        first = self.claude.ask(
            say("look", call("Read", file_path=str(self.claude.place.project / "red.png")), "A red one.")
        )
        second = self.claude.ask(say("correction", "Red."), "--resume", first["session_id"])
        note("image", second.get("result") == "Red.", [first.get("result"), second.get("result")])

    def compacted(self) -> None:
        first = self.claude.ask(say("ask", "A first answer."))
        name = first["session_id"]
        self.claude.ask(say("correction", "A better answer."), "--resume", name)
        direct("event", goes_on_from="compacted")
        shrunk = self.claude.ask("/compact", "--resume", name)
        after = self.claude.ask(say("more", "An answer after it."), "--resume", shrunk.get("session_id") or name)
        last = self.claude.ask(say("correction", "A last one."), "--resume", after["session_id"])
        note("compaction", last.get("result") == "A last one.", [shrunk.get("result"), after.get("result")])

    def overflow(self) -> None:
        first = self.claude.ask(say("ask", "Short."))
        name = first["session_id"]
        self.claude.ask(say("more", "Short again."), "--resume", name)
        small_room(400)
        text = say("long", "A summary of it.", more=LONG * 40)
        second = self.claude.ask(text, "--resume", name, timeout_s=240)
        small_room(0)
        third = self.claude.ask(say("correction", "Shorter."), "--resume", second.get("session_id") or name)
        note("overflow", third.get("result") == "Shorter.", [str(second.get("result"))[:300], third.get("result")])

    def cancelled(self) -> None:
        first = self.claude.ask(say("ask", "First."))
        name = first["session_id"]
        text = say("tell", "Once upon a time there was a lighthouse by the sea. " * 8)
        with slow():
            command = [self.claude.program, "-p", text, "--resume", name, "--output-format", "stream-json", "--verbose"]
            with self.claude.place.interrupted(command, 4.0, is_answering, **self.claude.variables):
                wait_quiet()
        last = self.claude.ask(say("on", "Hello."), "--resume", name)
        note("cancelled", last.get("result") == "Hello.", last.get("result"))


def drive(place) -> None:
    """All its conversations."""
    direct("errands", errands=ERRANDS)
    talks = Talks(place)
    play(
        talks.plain,
        talks.streamed,
        talks.tools,
        talks.subagent,
        talks.image,
        talks.compacted,
        talks.overflow,
        talks.cancelled,
    )
