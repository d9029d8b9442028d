"""The compared methods: ways of learning, each a few settings on the shipped recipe, and memory without learning."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from openclaw_rl.core.message import Json
from openclaw_rl.errors import ConfigError

HEADING = "What this user has wished before:"
MOST_NOTES = 16
MOST_CHARS = 300  # of one
NEVER = 1_000_000  # samples in a batch that is never full: turns are judged and never trained on
_JUDGED_ONLY: dict[str, Json] = {"train.batch_size": NEVER, "train.min_batch": NEVER}
# Rolling back corrections without effect would stop a method that is only slow.
_LET_GO_ON: dict[str, Json] = {"teach.in_vain_turns": 0}
_AS_PUBLISHED: dict[str, Json] = {**_LET_GO_ON, "train.rehearsal_samples": 0}


class Mode(StrEnum):
    """Whether each person has their own model, or all share one."""

    SEPARATE = "separate"
    JOINT = "joint"


class Notes(StrEnum):
    """What the harness itself puts into a user's system prompt."""

    NONE = "none"
    HINTS = "hints"  # the judge's hints
    FOLLOWUPS = "followups"  # the user's messages after replies that missed


@dataclass(slots=True)
class Memory:
    """A memory prompt: notes on a user's wishes, verbatim, before all their requests.

    Oldest first, without duplicates; the oldest are dropped if there are too many.
    """

    notes: list[str] = field(default_factory=list)

    def add(self, text: str) -> None:
        """Keeps a note."""
        note = " ".join(text.split())[:MOST_CHARS]
        if note and _words(note) not in [_words(kept) for kept in self.notes]:
            self.notes = [*self.notes, note][-MOST_NOTES:]

    @property
    def system(self) -> str:
        """The system text; empty without notes."""
        return "\n".join([HEADING, *(f"- {note}" for note in self.notes)]) if self.notes else ""


@dataclass(frozen=True, slots=True)
class EvalMethod:
    """`changes` are dotted settings over the recipe. One that `trains` changes weights; `is_ours` is not a baseline.

    One that `carries` has the server put hints into prompts, so what it serves is measured by main requests, and
    what the weights know by side requests, which never carry a hint.
    """

    name: str
    about: str
    changes: Mapping[str, Json] = field(default_factory=dict)
    notes: Notes = Notes.NONE
    judges: bool = True
    trains: bool = True
    carries: bool = False
    is_ours: bool = False


METHODS: tuple[EvalMethod, ...] = (
    EvalMethod("frozen", "the model as it is", judges=False, trains=False),
    EvalMethod(
        "memory",
        "frozen, the judge's hints kept in the system prompt",
        _JUDGED_ONLY,
        notes=Notes.HINTS,
        trains=False,
    ),
    EvalMethod(
        "memory-followups",
        "frozen, the user's own corrections kept in the system prompt",
        notes=Notes.FOLLOWUPS,
        judges=False,
        trains=False,
    ),
    EvalMethod("binary", "the score alone", {"trainer.method.name": "binary", **_AS_PUBLISHED}),
    EvalMethod("opd", "the hint's effect on the sampled tokens", {"trainer.method.name": "opd", **_AS_PUBLISHED}),
    EvalMethod("combine", "score and hint in one advantage", {"trainer.method.name": "combine", **_AS_PUBLISHED}),
    EvalMethod(
        "hybrid", "the score, and distillation on selected tokens", {"trainer.method.name": "hybrid", **_AS_PUBLISHED}
    ),
    EvalMethod(
        "topk-teacher",
        "distillation on the teacher's own top tokens",
        {
            "trainer.method.name": "topk",
            "trainer.method.distill": "selected",
            "trainer.method.subset": "teacher",
            **_AS_PUBLISHED,
        },
    ),
    EvalMethod(
        "followup-hint", "the recipe, the user's own words as the hint", {"judge.hint_source": "followup", **_LET_GO_ON}
    ),
    EvalMethod("recipe", "the recipe that ships", is_ours=True),
    EvalMethod(
        "bridge", "the recipe, hints served until the weights follow", {"carry": "bridge"}, carries=True, is_ours=True
    ),
)


# The effect of each part: the recipe with one change.
ABLATIONS: tuple[EvalMethod, ...] = (
    EvalMethod("one-update", "one update of the optimiser a step", {"trainer.updates": 1}),
    EvalMethod("full-rate", "small gradients move the weights at the full rate, too", {"trainer.still_norm": 0.0}),
    EvalMethod(
        "earlier-recipe",
        "one update of plain AdamW, a teacher that reads one hint",
        {
            "trainer.updates": 1,
            "trainer.still_norm": 0.0,
            "trainer.beta1": 0.9,
            "trainer.lr": 5e-3,
            "teach.rehearse": False,
        },
    ),
    EvalMethod("this-hint-alone", "the teacher reads no other hints of the user's", {"teach.rehearse": False}),
    EvalMethod("no-anchor", "no k3 term to the base", {"trainer.method.kl_beta": 0.0}),
    EvalMethod("ema-teacher", "a moving average of the policy reads the hint", {"trainer.method.teacher": "ema"}),
    EvalMethod("reverse", "reverse divergence to the teacher", {"trainer.method.divergence": "reverse"}),
    EvalMethod("jsd", "Jensen-Shannon divergence to the teacher", {"trainer.method.divergence": "jsd"}),
    EvalMethod(
        "agreed-hint", "of several hints the one of most agreement", {"trainer.method.hint_selection": "sequence"}
    ),
    EvalMethod("corrected-alone", "no demonstrations", {"teach.demonstrations": False}),
    EvalMethod("no-rehearsal", "steps over corrections alone", {"train.rehearsal_samples": 0}),
    EvalMethod("top-4", "4 tokens and a tail compared, not 50", {"trainer.method.top_k": 4}),
    EvalMethod("scored", "a score on every judged reply beside it", {"trainer.method.w_rl": 1.0}),
    EvalMethod("four-a-step", "a step takes four samples", {"train.batch_size": 4, "train.min_batch": 4}),
    EvalMethod("rank-32", "rank 32 instead of 8", {"trainer.rank": 32, "trainer.alpha": 64.0}),
    EvalMethod("attention-only", "LoRA in the attention alone", {"trainer.targets": "q_proj,k_proj,v_proj,o_proj"}),
)


# A wish's cost and how long it lasts, for each way to carry it.
CARRIES: tuple[EvalMethod, ...] = (
    EvalMethod("weights", "nothing is added to any prompt", is_ours=True),
    EvalMethod("memory", "the server keeps hints in the prompt", {"carry": "memory"}, trains=False, carries=True),
    EvalMethod(
        "bridge", "hints in the prompt until the weights follow", {"carry": "bridge"}, carries=True, is_ours=True
    ),
)


GROUPS: Mapping[str, tuple[EvalMethod, ...]] = {"all": METHODS, "ablations": ABLATIONS}


def chosen(names: Sequence[str], groups: Mapping[str, tuple[EvalMethod, ...]] = GROUPS) -> tuple[EvalMethod, ...]:
    """The methods of these names: of one, of a whole group, or a TOML file of settings of your own.

    Raises ConfigError for an unknown name.
    """
    known = {method.name: (method,) for group in groups.values() for method in group} | dict(groups)
    found: dict[str, EvalMethod] = {}
    for name in names:
        if name in known:
            found |= {method.name: method for method in known[name]}
        elif name.endswith(".toml"):
            file = Path(name)
            found[file.stem] = EvalMethod(file.stem, f"settings of {file.name}", _flat(read_recipe(file)), is_ours=True)
        else:
            raise ConfigError(f"there is no method {name!r}", fix=f"use a TOML file, or some of {', '.join(known)}")
    return tuple(found.values())


def read_recipe(file: Path) -> dict[str, Json]:
    """The tables of a TOML file. Raises ConfigError if it is none."""
    try:
        table: dict[str, Json] = tomllib.loads(file.read_text("utf-8"))
    except OSError as problem:
        raise ConfigError(f"{file} cannot be read: {problem.strerror}", fix="name a TOML file") from problem
    except ValueError as problem:
        raise ConfigError(f"{file} is not valid TOML: {problem}", fix="correct that line") from problem
    return table


def config_text(recipe: Mapping[str, Json], changes: Mapping[str, Json]) -> str:
    """The recipe with the changes as one TOML text."""
    settings = _flat(recipe) | dict(changes)
    tables: dict[str, list[str]] = {"": []}
    for name, value in settings.items():
        table, _, key = name.rpartition(".")
        tables.setdefault(table, []).append(f"{key} = {_value(value)}")
    return (
        "\n".join(line for table, lines in tables.items() for line in ([f"[{table}]"] if table else []) + lines) + "\n"
    )


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.casefold())


def _flat(table: Mapping[str, Json], where: str = "") -> dict[str, Json]:
    flat: dict[str, Json] = {}
    for key, value in table.items():
        flat |= _flat(value, f"{where}{key}.") if isinstance(value, dict) else {f"{where}{key}": value}
    return flat


def _value(value: Json) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    if isinstance(value, list):
        return f"[{', '.join(_value(item) for item in value)}]"
    return repr(value)
