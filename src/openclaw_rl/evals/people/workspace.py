"""A separate folder for each session, and the small agent's three tools in it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from openclaw_rl.core.message import Json, ToolCall
from openclaw_rl.evals.people import rules

MOST_CHARS = 20_000  # of one file
MOST_ADDED_CHARS = 400  # an answer, not an essay


@dataclass(slots=True)
class Workspace:
    """Runs tool calls in a real folder. Nothing outside it can be read or written."""

    folder: Path
    failed: int = 0
    _before: dict[str, str] = field(default_factory=dict)

    def run(self, call: ToolCall) -> str:
        """The result of the tool."""
        given = call.parsed()
        if not isinstance(given, dict) or not isinstance(given.get("path"), str):
            return self._failure(f"{call.name} needs a path")
        name = str(given["path"])
        try:
            path = (self.folder / name).resolve()
            if not path.is_relative_to(self.folder.resolve()) or path.is_dir():
                return self._failure(f"{name} may not be opened")
            if call.name == "read":
                return path.read_text("utf-8")
            return self._written(path, name, call.name, given.get("content"))
        except FileNotFoundError:
            return self._failure(f"{name} does not exist")
        except (OSError, ValueError):
            return self._failure(f"{name} cannot be opened")

    def files(self) -> dict[str, str]:
        """Every file with its text."""
        found = sorted(path for path in self.folder.rglob("*") if path.is_file())
        return {str(path.relative_to(self.folder)): path.read_text("utf-8", "replace") for path in found}

    def mark(self) -> None:
        """Sets the mark from which changes count."""
        self._before = self.files()

    @property
    def has_changed(self) -> bool:
        """Whether any file has changed since the mark."""
        return self.files() != self._before

    def holds(self, path: str, answer: str) -> bool:
        """Whether, since the mark, the answer was added to the end of the file and nothing else was touched or lost."""
        now, before = self.files(), self._before
        old, new = before.get(path, ""), now.get(path, "")
        others_stand = {name: text for name, text in now.items() if name != path} == {
            name: text for name, text in before.items() if name != path
        }
        added = new[len(old) :]
        return (
            others_stand
            and new.startswith(old)
            and len(added) <= MOST_ADDED_CHARS
            and not rules.leaks(added)
            and not rules.repeats(added)
            and rules.is_number(added, answer)
        )

    def _written(self, path: Path, name: str, tool: str, content: Json) -> str:
        if tool not in ("write", "append"):
            return self._failure(f"there is no tool {tool}")
        if not isinstance(content, str):
            return self._failure("the content is missing")
        old = path.read_text("utf-8") if tool == "append" and path.exists() else ""
        joint = "\n" if old and not old.endswith("\n") else ""
        if len(old) + len(content) > MOST_CHARS:
            return self._failure(f"{name} would be too long")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{old}{joint}{content}\n", "utf-8")
        return f"Successfully wrote {name}"

    def _failure(self, why: str) -> str:
        self.failed += 1
        return f"Error: {why}"


@contextmanager
def workspace(files: Mapping[str, str]) -> Iterator[Workspace]:
    """A workspace with these files, removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="openclaw-rl-workspace-") as folder:
        made = Workspace(Path(folder))
        for name, text in files.items():
            path = made.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
        made.mark()
        yield made
