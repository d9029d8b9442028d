"""What the drivers of agents have in common: files in the project, what they said at last, and their log."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from talking import LONG, call, direct, note, red_square, say, slow, small_room, wait_quiet


def make_files(place) -> Path:
    """A file of notes and a picture in the project; gives the notes."""
    (place.project / "red.png").write_bytes(red_square())
    path = place.project / "notes.txt"
    path.write_text("apples 3\npears 4\n", "utf-8")
    return path


def answered(what: str, said: Sequence[str], due: Sequence[str]) -> None:
    """Notes whether the client said what it was to say."""
    note(what, list(said) == list(due), list(said))


def logged(place, text: str, done: subprocess.CompletedProcess[str]) -> None:
    """Keeps the end of what a command of the client printed."""
    with (place.home.parent / "client.log").open("a") as log:
        log.write(f"--- {text[:80]}\n{done.stdout[-2500:]}{done.stderr[-1500:]}\n")


class HeadlessTalks:
    """The conversations with an agent that takes one request as one command.

    `agent.ask(text, session)` gives what it said at last and the session to go on with, `agent.command(text, session)`
    is that command, and `agent.variables` are for its environment.
    """

    reader = "read"  # the agent's tool that reads a file
    overflow_s = 150.0  # within which it has dealt with a request that does not fit

    def __init__(self, agent) -> None:
        self.agent, self.notes = agent, make_files(agent.place)

    def plain(self) -> None:
        first, name = self.agent.ask(say("ask", "It is **seven**, of course."))
        second, _ = self.agent.ask(say("correction", "It is seven."), name)
        third, _ = self.agent.ask(say("more", "Thirteen."), name)
        answered("runs", [first, second, third], ["It is **seven**, of course.", "It is seven.", "Thirteen."])
        note("streams", third == "Thirteen.", "all its requests stream")

    def malformed(self) -> None:
        first, name = self.agent.ask(say("ask", call("no_such_tool", a=1), "I used the wrong tool."))
        again, _ = self.agent.ask(say("more", call(self.reader, path=7), "And wrong arguments."), name)
        second, _ = self.agent.ask(say("correction", "Never mind the tool."), name)
        note("malformed", second == "Never mind the tool.", [first, again, second])

    def overflow(self) -> None:
        _, name = self.agent.ask(say("ask", "Short."))
        self.agent.ask(say("more", "Short again."), name)
        small_room(400)
        text = say("long", "A summary of it.", more=LONG * 40)
        second, _ = self.agent.ask(text, name, timeout_s=self.overflow_s)
        small_room(0)
        third, _ = self.agent.ask(say("correction", "Shorter."), name)
        note("overflow", third == "Shorter.", [second, third])

    def cancelled(self) -> None:
        _, name = self.agent.ask(say("ask", "First."))
        command = self.agent.command(say("tell", "Once upon a time there was a lighthouse by the sea. " * 8), name)
        with slow(), self.agent.place.interrupted(command, 4.0, is_answering, **self.agent.variables):
            wait_quiet()
        last, _ = self.agent.ask(say("on", "Hello."), name)
        note("cancelled", last == "Hello.", last)


def is_answering() -> bool:
    """Whether the server answers a request just now."""
    return bool(direct("state")["running"])
