"""Tools that may be called, and the shape of a family's calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from openclaw_rl.core.message import Json
from openclaw_rl.errors import RequestError


@dataclass(frozen=True, slots=True)
class CallableTool:
    """One tool that may be called. `schema` None leaves its arguments open."""

    name: str
    schema: Mapping[str, Json] | None


@dataclass(frozen=True, slots=True)
class CallForm:
    """A family's shape: `opens` and `closes` surround all calls, `between` separates them; `one` is a call's rule.

    `trigger` is the mark that distinguishes a call from text; empty if a call begins without one.
    """

    one: str
    trigger: str
    opens: str = ""
    between: str = ""
    closes: str = ""

    def calls(self, *, is_single: bool) -> str:
        """The expression for exactly one call, or for one or more."""
        more = "" if is_single else f"({self.between} {self.one})*"
        return f"{self.opens} {self.one} {more} {self.closes}"


def unforced(what: str) -> RequestError:
    """The refusal of a schema that calls cannot be constrained to."""
    return RequestError(
        f"tool calls cannot be constrained to this schema in the model's own format: {what}",
        fix="simplify the tool's schema, or leave the choice of tools to the model",
        code="unsupported_format",
        param="tools",
    )
