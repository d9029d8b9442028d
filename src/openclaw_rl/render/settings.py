"""Settings of rendering."""

from __future__ import annotations

from dataclasses import dataclass

from openclaw_rl.render.parsers.family import Family

AUTO = "auto"


@dataclass(frozen=True, slots=True)
class RenderSettings:
    """How answers are read."""

    format: str = AUTO
    """The format of thinking and tool calls; `auto` finds it from the model's template, `plain` looks for neither.
    Change it when the log says that the format was not recognised, or it was recognised wrongly."""

    def __post_init__(self) -> None:
        known = [AUTO, *(family.value for family in Family)]
        if self.format not in known:
            raise ValueError(f"format is {self.format!r}: choose one of {', '.join(known)}")
