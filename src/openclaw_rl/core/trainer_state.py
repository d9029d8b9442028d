"""The trainer's state next to a version's weights: its two files, the seal over them, and their check.

It is optional: without it, training continues from the weights with new moments of the optimiser.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from openclaw_rl.core.adapter import CONFIG, WEIGHTS
from openclaw_rl.core.message import Json

STATE = "trainer_state.safetensors"
FACTS = "trainer_state.json"


def seal(folder: Path, facts: Mapping[str, Json]) -> str:
    """SHA-256 over the facts and the files next to them; weights of a whole model have the version's own digest."""
    total = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    for name in (STATE, WEIGHTS, CONFIG):
        if (folder / name).is_file():
            with (folder / name).open("rb") as stream:
                total.update(hashlib.file_digest(stream, "sha256").digest())
    return total.hexdigest()


def read_facts(folder: Path) -> dict[str, Json]:
    """The facts in a version's folder; empty if it contains no state. Raises OSError, or ValueError for a bad seal."""
    if not (folder / FACTS).exists():
        if (folder / STATE).exists():
            raise ValueError(f"{FACTS} is missing next to {STATE}")
        return {}
    facts = json.loads((folder / FACTS).read_text("utf-8"))
    if not isinstance(facts, dict):
        raise ValueError(f"{FACTS} is not a table")
    if "seal" in facts and facts.pop("seal") != seal(folder, facts):
        raise ValueError("its files are not what was written")
    return facts


def problem_with(folder: Path) -> str | None:
    """What is wrong with the state next to sound weights; None if it is as written, or absent."""
    try:
        read_facts(folder)
    except (OSError, ValueError) as problem:
        missing = [name for name in (STATE, FACTS) if not (folder / name).exists()]
        return f"{missing[0]} is missing" if missing else str(problem)
    return None
