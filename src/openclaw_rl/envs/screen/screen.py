"""What an agent sees of a screen and does to it: the one interface that browser pages and desktops meet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from openclaw_rl.core.message import Json, Tool
from openclaw_rl.envs.task import Action
from openclaw_rl.errors import BoxError, TaskError


class PageError(TaskError):
    """The page of a task is broken: it does not load, does not answer, or opens dialogs without end."""


class BrowserError(BoxError):
    """A browser or a desktop failed, or cannot be had; never the fault of the task or of the agent."""


class ActionError(Exception):
    """An action that cannot be done as it was asked for; the agent is told why."""


@dataclass(frozen=True, slots=True)
class ScreenNode:
    """One thing that is seen. `ref` is what actions call it, 0 where nothing can be done with it."""

    role: str
    name: str = ""
    ref: int = 0
    value: str = ""
    facts: tuple[str, ...] = ()  # on, off, selected, open, closed, disabled, invalid
    options: tuple[str, ...] = ()  # what a select offers
    row: int = 0  # things of one row share a number; 0 for none


@dataclass(frozen=True, slots=True)
class View:
    """What a screen shows. `notes` are events since the last view: dialogs, windows, downloads, refused requests."""

    nodes: tuple[ScreenNode, ...]
    title: str = ""
    notes: tuple[str, ...] = ()
    is_cut: bool = False  # there was more than is looked at
    has_above: bool = False
    has_below: bool = False


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the task's own state says. `right` is the share of it that is as wanted, None where none can be told."""

    reward: float
    is_over: bool = False  # nothing can change the verdict any more
    right: float | None = None
    details: str = ""


class Screen(Protocol):
    """One episode's screen. PageError and BrowserError end it, ActionError does not."""

    @property
    def tools(self) -> tuple[Tool, ...]:
        """What can be done."""
        ...

    @property
    def instruction(self) -> str:
        """What the page itself asks for; empty where the task says it."""
        ...

    async def look(self) -> View:
        """What is seen now."""
        ...

    async def picture(self) -> bytes:
        """The screen as a PNG."""
        ...

    async def act(self, action: Action) -> None:
        """Does it, and waits until the screen has answered."""
        ...

    async def judge(self) -> Judgement:
        """The verdict on the state as it is; nothing changes by asking."""
        ...

    @property
    def counts(self) -> Mapping[str, Json]:
        """What was counted: dialogs, windows, downloads, refused requests."""
        ...

    async def aclose(self) -> None:
        """Ends the episode. May be called twice."""
        ...


@dataclass(slots=True)
class Events:
    """What happened on a screen; `take_notes` gives what is new, in at most `most` lines."""

    counted: dict[str, int] = field(default_factory=dict)
    _notes: list[str] = field(default_factory=list)

    def add(self, kind: str, note: str) -> None:
        """Counts an event and keeps a line about it, as long as there are not too many."""
        self.counted[kind] = self.counted.get(kind, 0) + 1
        if len(self._notes) < 100:
            self._notes.append(" ".join(note.split())[:200])

    def take_notes(self, *, most: int = 5) -> tuple[str, ...]:
        """The lines since the last call."""
        notes, self._notes = self._notes, []
        rest = len(notes) - most
        return (*notes[:most], f"and {rest} more") if rest > 0 else tuple(notes)
