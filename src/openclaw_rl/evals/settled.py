"""Whether a server has learned what it can, read from its status."""

from __future__ import annotations

from openclaw_rl.core.message import Json
from openclaw_rl.errors import EngineError


def is_settled(status: dict[str, Json]) -> bool:
    """Whether nothing in a status could still become a version without another turn.

    That is when the server says so, no turn waits for a judge or for admission, the trainer has looked at the newest
    samples and found too few for a step, and no version is at the gate. With `min_batch` equal to `batch_size`
    nothing then depends on the clock.
    """
    if not status.get("learns", True):
        return True
    ledger, train = _part(status, "ledger"), _part(status, "train")
    if not status.get("is_settled") or _int(ledger, "paired") or _int(ledger, "judged"):
        return False
    has_looked = _int(train, "ready") + _int(train, "rehearsals") == _int(ledger, "ready")
    return has_looked and _int(train, "ready") < _int(train, "needed") and not _int(_part(status, "publish"), "at_gate")


def _part(status: dict[str, Json], name: str) -> dict[str, Json]:
    part = status.get(name, {})
    if not isinstance(part, dict):
        raise EngineError(f"the server's status has no table {name!r}")
    return part


def _int(table: dict[str, Json], name: str) -> int:
    value = table.get(name, 0)
    return value if isinstance(value, int) else 0
