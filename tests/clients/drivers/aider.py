"""Aider in a terminal: its default mode, files changed and committed, its history summed up."""

from __future__ import annotations

import time

from talking import LONG, direct, note, play, say, slow, small_room, wait_quiet
from terminal import Terminal

ERRANDS = [
    {
        "kind": "commit",
        "where": "any",
        "has": ["concise, one-line Git commit messages"],
        "reply": "feat: note the fruit",
    },
    {
        "kind": "summary",
        "where": "any",
        "has": ["Briefly* summarize this partial conversation", "*Briefly* summarize"],
        "reply": "I asked about small things and was answered.",
    },
]
CHANGED = "Here it is.\n\nnotes.txt\n```\napples {}\n```\n"


class Talks:
    """Its conversations."""

    def __init__(self, place) -> None:
        self.place, self.program = place, str(place.folder / "venv" / "bin" / "aider")
        self.env = {
            **place.environment,
            "OPENAI_API_BASE": f"{place.base_url}/v1",
            "OPENAI_API_KEY": place.environment["API_KEY"],
            "AIDER_MODEL": "openai/default",
            "AIDER_ANALYTICS": "false",
            "AIDER_CHECK_UPDATE": "false",
            "AIDER_SHOW_RELEASE_NOTES": "false",
            "AIDER_SHOW_MODEL_WARNINGS": "false",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        }

    def begin(self, *more: str) -> Terminal:
        words = ["--no-fancy-input", "--no-pretty", "--yes-always", "--no-suggest-shell-commands", "--map-tokens", "0"]
        run = Terminal([self.program, *words, *more], cwd=self.place.project, env=self.env)
        run.wait_for("> ", timeout_s=90)
        return run

    def ask(self, run: Terminal, text: str, shown: str, *, timeout_s: float = 60.0) -> bool:
        run.type(text)
        good = run.wait_for(shown, timeout_s=timeout_s)
        wait_quiet()
        run.wait_for("never shown", timeout_s=1.5)
        return good

    def end(self, run: Terminal, name: str) -> None:
        (self.place.home.parent / f"client-{name}.log").write_text(run.shown)
        run.close()

    def plain(self) -> None:
        run = self.begin()
        first = self.ask(run, say("ask", "It is **seven**, of course."), "of course.")
        second = self.ask(run, say("correction", "It is seven."), "It is seven.")
        third = self.ask(run, say("more", "Thirteen."), "Thirteen.")
        self.end(run, "plain")
        note("runs", first and second and third, "" if first and second and third else run.shown[-500:])
        note("streams", third, "it streams by itself")

    def edited(self) -> None:
        run = self.begin("notes.txt")
        first = self.ask(run, say("ask", CHANGED.format(3), more=" Put it into notes.txt."), "Commit")
        second = self.ask(run, say("correction", CHANGED.format("three")), "Commit")
        third = self.ask(run, say("more", "No change is needed."), "No change")
        self.end(run, "edited")
        note("edits", first and second and third, [first, second, third])

    def tested(self) -> None:
        run = self.begin("notes.txt", "--auto-test", "--test-cmd", "echo apples are wrong; exit 1")
        first = self.ask(run, say("ask", CHANGED.format(5), "I cannot mend the test."), "cannot mend")
        second = self.ask(run, say("correction", "As you like."), "As you like.")
        self.end(run, "tested")
        note("tests", first and second, [first, second])

    def diffed(self) -> None:
        run = self.begin("notes.txt", "--edit-format", "diff")
        block = "notes.txt\n```\n<<<<<<< SEARCH\n{}\n=======\napples 9\n>>>>>>> REPLACE\n```\n"
        first = self.ask(run, say("ask", block.format("no such line"), block.format("apples 5")), "Commit")
        second = self.ask(run, say("correction", "Nine they are."), "Nine they are.")
        self.end(run, "diffed")
        note("edits", second, [first, second])

    def summed(self) -> None:
        run = self.begin("notes.txt", "--max-chat-history-tokens", "150")
        for at, kind in enumerate(("ask", "correction", "more")):
            self.ask(run, say(kind, "I change the file as you wish. " * 30 + CHANGED.format(20 + at)), "Commit")
        time.sleep(3)
        good = self.ask(run, say("more", "A fourth answer."), "fourth")
        good = good and self.ask(run, say("correction", "A last one."), "last one")
        self.end(run, "summed")
        note("compaction", good, "" if good else run.shown[-400:])

    def overflow(self) -> None:
        run = self.begin()
        self.ask(run, say("ask", "Short."), "Short.")
        small_room(300)
        self.ask(run, say("long", "A summary of it.", more=LONG * 40), "> ", timeout_s=30)
        small_room(0)
        good = self.ask(run, say("correction", "Shorter."), "Shorter.")
        self.end(run, "overflow")
        note("overflow", good, run.shown[-600:])

    def cancelled(self) -> None:
        run = self.begin()
        self.ask(run, say("ask", "First."), "First.")
        with slow():
            run.type(say("tell", "Once upon a time there was a lighthouse by the sea. " * 20))
            run.wait_for("lighthouse", timeout_s=20)
            run.interrupt()
            run.wait_for("> ", timeout_s=10)
            wait_quiet(5)
        good = self.ask(run, say("on", "Hello."), "Hello.")
        self.end(run, "cancelled")
        note("cancelled", good, "" if good else run.shown[-400:])


def drive(place) -> None:
    """All its conversations."""
    direct("errands", errands=ERRANDS)
    talks = Talks(place)
    play(talks.plain, talks.edited, talks.tested, talks.diffed, talks.summed, talks.overflow, talks.cancelled)
