"""Who shares a model with whom."""

from __future__ import annotations

from enum import StrEnum


class Mode(StrEnum):
    """Whether each person has a model of their own, or all share one."""

    SEPARATE = "separate"
    JOINT = "joint"
