"""What an agent sees and does on a screen: the interface that browser pages and desktops implement."""

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
    """A browser or a desktop failed or is not available; never the fault of the task or the agent."""


class ActionError(Exception):
    """An action that cannot be done as requested; the agent sees the reason."""


@dataclass(frozen=True, slots=True)
class ScreenNode:
    """One visible element. `ref` is its number for actions, 0 if no action applies to it."""

    role: str
    name: str = ""
    ref: int = 0
    value: str = ""
    facts: tuple[str, ...] = ()  # on, off, selected, open, closed, disabled, invalid
    options: tuple[str, ...] = ()  # the options of a select
    row: int = 0  # elements of one row share a number; 0 for none


@dataclass(frozen=True, slots=True)
class View:
    """What a screen shows. `notes` are events since the last view: dialogs, windows, downloads, refused requests."""

    nodes: tuple[ScreenNode, ...]
    title: str = ""
    notes: tuple[str, ...] = ()
    is_cut: bool = False  # there were more elements than are read
    has_above: bool = False
    has_below: bool = False


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict on the task's state. `right` is the share of it that is right, None if it cannot be determined.

    `near`, in [0, 1], says how near the page is to the wanted state, with what is entered and not saved yet; None for a
    page that does not show this.
    """

    reward: float
    is_over: bool = False  # nothing can change the verdict any more
    right: float | None = None
    details: str = ""
    near: float | None = None

    @property
    def progress(self) -> float | None:
        """What a step's reward is the change of."""
        return self.right if self.near is None else self.near


class Screen(Protocol):
    """One episode's screen. PageError and BrowserError end it, ActionError does not."""

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The available tools."""

    @property
    def instruction(self) -> str:
        """The page's own instruction; empty if the task has it."""

    async def look(self) -> View:
        """The present view."""

    async def picture(self) -> bytes:
        """The screen as a PNG."""

    async def act(self, action: Action) -> None:
        """Does the action, and waits until the screen has responded."""

    async def judge(self) -> Judgement:
        """The verdict on the present state; reading it changes nothing."""

    @property
    def counts(self) -> Mapping[str, Json]:
        """Counts of events: dialogs, windows, downloads, refused requests."""

    async def aclose(self) -> None:
        """Ends the episode. May be called twice."""


@dataclass(slots=True)
class Events:
    """Events on a screen; `take_notes` gives the new ones, in at most `most` lines."""

    counted: dict[str, int] = field(default_factory=dict)
    _notes: list[str] = field(default_factory=list)

    def add(self, kind: str, note: str) -> None:
        """Counts an event and keeps a line about it, unless there are too many."""
        self.counted[kind] = self.counted.get(kind, 0) + 1
        if len(self._notes) < 100:
            self._notes.append(" ".join(note.split())[:200])

    def take_notes(self, *, most: int = 5) -> tuple[str, ...]:
        """The lines since the last call."""
        notes, self._notes = self._notes, []
        rest = len(notes) - most
        return (*notes[:most], f"and {rest} more") if rest > 0 else tuple(notes)
