"""Stop texts across token boundaries: nothing that may be the start of one is given out."""

from __future__ import annotations

from collections.abc import Sequence


class StopFilter:
    """Passes text on until a stop text appears, and holds back what might become one."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""
        self.met: str | None = None

    @property
    def is_met(self) -> bool:
        """Whether a stop text has appeared; `met` is which."""
        return self.met is not None

    def feed(self, text: str) -> str:
        """The text that may be given out now."""
        if not self._stops:
            return text
        if self.is_met:
            return ""
        self._held += text
        found = [(at, stop) for stop in self._stops if (at := self._held.find(stop)) >= 0]
        if found:
            at, self.met = min(found)
            ready, self._held = self._held[:at], ""
            return ready
        keep = max(_overlap(self._held, stop) for stop in self._stops)
        cut = len(self._held) - keep
        ready, self._held = self._held[:cut], self._held[cut:]
        return ready

    def finish(self) -> str:
        """What was held back and became no stop text."""
        rest, self._held = self._held, ""
        return rest


def _overlap(text: str, stop: str) -> int:
    """How many characters at the end of the text begin the stop text."""
    for size in range(min(len(text), len(stop) - 1), 0, -1):
        if text.endswith(stop[:size]):
            return size
    return 0
