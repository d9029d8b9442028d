"""One TOML file and the environment make one frozen Config, joined from each part's own Settings.

What is given on the command line outranks the environment, which outranks the file, which outranks the defaults.
"""

from __future__ import annotations

import dataclasses
import difflib
import logging
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeVar, get_type_hints

import msgspec

from openclaw_rl.cluster.settings import ClusterSettings
from openclaw_rl.collect.stage import CollectSettings
from openclaw_rl.core.hint import Carry
from openclaw_rl.core.message import Json
from openclaw_rl.core.scope import Scopes
from openclaw_rl.engines.settings import EngineSettings
from openclaw_rl.errors import ConfigError
from openclaw_rl.judge.settings import JudgeSettings
from openclaw_rl.publish.settings import PublishSettings
from openclaw_rl.render.settings import RenderSettings
from openclaw_rl.serve.settings import ServeSettings
from openclaw_rl.store.settings import StoreSettings
from openclaw_rl.teach.settings import EpisodeSettings, TeachSettings
from openclaw_rl.telemetry.settings import LogSettings, MetricsSettings, SinkKind, TracesSettings
from openclaw_rl.train.settings import TrainSettings
from openclaw_rl.trainers.settings import TrainerSettings

log = logging.getLogger(__name__)
BUNDLED = "bundled"
FILE_NAME = "config.toml"
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Config:
    """All settings of one installation; each part is handed its own."""

    home: Path = field(default_factory=lambda: Path.home() / ".openclaw-rl")
    """The folder that holds everything this installation knows. Change it when the installation's folder should be on
    another disk, or when you run several installations."""
    model: str = BUNDLED
    """A model folder, a name on the Hugging Face hub, or `bundled` for the toy model in the package. Change it for
    real use: name your own model."""
    carry: Carry = Carry.WEIGHTS
    """How a user's accepted hints are used: `weights` (only for training, and in the prompt only those that the weights
    could not learn), `memory` (only in the prompt) or `bridge` (in the prompt until the weights follow them). Change it
    when a correction should have an effect from the next request on (memory or bridge), and changing prompts is
    acceptable."""
    engine: EngineSettings = field(default_factory=EngineSettings)
    """How tokens are computed."""
    serve: ServeSettings = field(default_factory=ServeSettings)
    """How clients are answered."""
    render: RenderSettings = field(default_factory=RenderSettings)
    """How answers are read."""
    store: StoreSettings = field(default_factory=StoreSettings)
    """What is kept of conversations, and for how long."""
    collect: CollectSettings = field(default_factory=CollectSettings)
    """How turns become pairs."""
    judge: JudgeSettings = field(default_factory=JudgeSettings)
    """How pairs become verdicts."""
    teach: TeachSettings = field(default_factory=TeachSettings)
    """What a verdict teaches, and which of a user's hints are in prompts."""
    episodes: EpisodeSettings = field(default_factory=EpisodeSettings)
    """How an environment's episodes become samples."""
    train: TrainSettings = field(default_factory=TrainSettings)
    """When a step is taken."""
    trainer: TrainerSettings = field(default_factory=TrainerSettings)
    """How a step is taken."""
    publish: PublishSettings = field(default_factory=PublishSettings)
    """What a version must pass before it is served."""
    cluster: ClusterSettings = field(default_factory=ClusterSettings)
    """Which roles run on other machines."""
    metrics: MetricsSettings = field(default_factory=MetricsSettings)
    """Where numbers go."""
    traces: TracesSettings = field(default_factory=TracesSettings)
    """Where traces go."""
    log: LogSettings = field(default_factory=LogSettings)
    """How the log is written."""

    def __post_init__(self) -> None:
        if self.trainer.weights == "engine":  # one setting for both; what a step was taken with is in its manifest
            weights: Literal["auto", "8bit", "4bit"] = self.engine.weights
            object.__setattr__(self, "trainer", dataclasses.replace(self.trainer, weights=weights))
        if self.trainer.parameters == "full" and self.train.scopes is not Scopes.SHARED:
            raise ValueError(
                f"trainer.parameters is full and train.scopes {self.train.scopes}: the adapters of users and "
                "agents are added to a shared one, so they need trainer.parameters = lora"
            )
        if self.trainer.kind == "external" and self.train.scopes is not Scopes.SHARED:
            raise ValueError(
                f"trainer.kind is external and train.scopes {self.train.scopes}: a trainer elsewhere makes shared "
                "versions alone, so it needs train.scopes = shared"
            )


# Names that users of earlier systems know, and the setting each one fills.
ENVIRONMENT: dict[str, str] = {
    "OPENCLAW_RL_HOME": "home",
    "HF_CKPT": "model",
    "HOST": "serve.host",
    "PORT": "serve.port",
    "SGLANG_API_KEY": "serve.api_key",
    "SERVED_MODEL_NAME": "serve.model_name",
    "PRM_M": "judge.votes",
    "PRM_MODEL_PATH": "judge.model",
    "JUDGE_API_KEY": "judge.api_key",
    "OPENCLAW_COMBINE_W_RL": "trainer.method.w_rl",
    "OPENCLAW_COMBINE_W_OPD": "trainer.method.w_opd",
    "NUM_GPUS": "cluster.gpus",
    "ACTOR_GPUS": "cluster.trainer.gpus",
    "ROLLOUT_GPUS": "cluster.policy.gpus",
    "PRM_GPUS": "cluster.judge.gpus",
    "WANDB_PROJECT": "metrics.project",
    "WANDB_KEY": "metrics.wandb_key",
}
# Names of earlier systems that mean nothing here, and why.
UNUSED: dict[str, str] = {
    "SAVE_CKPT": "every version is kept in the home folder, under versions/; OPENCLAW_RL_HOME names that folder",
    "OPENCLAW_RECORD_FILE": "every turn is in the store; `openclaw-rl export` writes the records",
    "PRM_TEACHER_GPUS": "the teacher is computed by the trainer's processes: add its GPUs to ACTOR_GPUS",
}
# Settings that had another name, and the one each has now: files and command lines that use the old one go on working.
RENAMED: dict[str, str] = {
    **{
        f"train.{name}": f"teach.{name}"
        for name in ("baseline", "baseline_decay", "in_vain_turns", "same_words_a_day", "user_samples_a_day")
    },
    **{
        f"hints.{name}": f"teach.{name}"
        for name in (
            "most", "most_bridged", "max_tokens", "rehearse", "own_replies", "probes", "replies", "probe_tokens",
            "retire_gap",
        )
    },
    **{
        f"{part}.{old}": f"teach.{new}"
        for part in ("hints", "teach")
        for old, new in (
            ("shown_replies", "demonstrations"), ("shown_variants", "demonstration_variants"),
            ("elsewhere", "other_requests"),
        )
    },
    "train.riders": "train.rehearsal_samples",
    "train.rides_again": "train.rehearse_again",
}  # fmt: skip
# Those that mean nothing without a cluster, and what does then.
WITH_CLUSTER: dict[str, str] = {
    "NUM_GPUS": "engine, trainer and judge take one device each: engine.device, trainer.device, judge.device",
    "ACTOR_GPUS": "the trainer takes trainer.device, and trainer.ranks GPUs if that is more than one",
    "ROLLOUT_GPUS": "the engine takes one device, engine.device",
    "PRM_GPUS": "a judge model takes one device, judge.device",
}
SECRETS = frozenset({"serve.api_key", "judge.api_key", "engine.remote.api_key", "metrics.wandb_key"})
USE_WANDB = "USE_WANDB"  # in the environment: adds this sink


def unused_names(environment: Mapping[str, str] | None = None, *, has_cluster: bool = False) -> list[str]:
    """A line for each name in the environment that users of earlier systems know and that changes nothing here."""
    words = os.environ if environment is None else environment
    without = {name: f"without --cluster, {why}" for name, why in WITH_CLUSTER.items() if not has_cluster}
    return [f"{name} is not used here: {why}" for name, why in (UNUSED | without).items() if words.get(name)]


def read_config(
    file: Path | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    overrides: Mapping[str, Json] | None = None,
) -> Config:
    """The settings in force. `overrides` maps dotted names to values, as the command line gives them.

    Without `file`, `config.toml` in the home folder is read where it is there. Raises ConfigError for an unknown key
    (offering the nearest known one), a wrong type, or a value that a part refuses.
    """
    words = os.environ if environment is None else environment
    named: dict[str, Json] = {
        ENVIRONMENT[name]: value for name, value in words.items() if name in ENVIRONMENT and value
    }
    named.update({name: value for name, value in (overrides or {}).items() if value is not None})
    if file is None:
        home = Path(str(named.get("home", Path.home() / ".openclaw-rl"))).expanduser()
        file = home / FILE_NAME if (home / FILE_NAME).is_file() else None
    table = {} if file is None else _table(file)
    for name, value in named.items():
        _put(table, name, value)
    _rename(table)
    if words.get(USE_WANDB, "").strip().lower() in ("1", "true", "yes", "on"):
        _add_sink(table, SinkKind.WANDB)
    return _build(Config, table, "")


def _add_sink(table: dict[str, Json], sink: SinkKind) -> None:
    section = table.setdefault("metrics", {})
    if isinstance(section, dict) and isinstance(sinks := section.get("sinks", []), list) and sink not in sinks:
        section["sinks"] = [*sinks, sink.value]


def _rename(table: dict[str, Json]) -> None:
    """Old names as the new ones, with a line in the log. Raises ConfigError where both are given."""
    for old, new in RENAMED.items():
        part, _, key = old.partition(".")
        section = table.get(part)
        if not isinstance(section, dict) or key not in section:
            continue
        above, _, last = new.partition(".")
        target = table.setdefault(above, {})
        if isinstance(target, dict) and last in target:
            raise ConfigError(f"{old} and {new} are both given", fix=f"{old} is now called {new}: take the old one out")
        log.warning("the setting %s is now called %s", old, new)
        _put(table, new, section.pop(key))
        if not section:
            del table[part]


def _table(file: Path) -> dict[str, Json]:
    try:
        table: dict[str, Json] = tomllib.loads(file.read_text("utf-8"))
    except OSError as problem:
        raise ConfigError(
            f"{file} cannot be read: {problem.strerror}", fix="give the path of an existing TOML file"
        ) from problem
    except ValueError as problem:
        raise ConfigError(f"{file} is not valid TOML: {problem}", fix="correct that line") from problem
    for secret in SECRETS:
        part, _, key = secret.partition(".")
        section = table.get(part)
        if isinstance(section, dict) and section.get(key):
            raise ConfigError(
                f"{file} holds the secret {secret}",
                fix="remove it; secrets are read from the environment or the command line only",
            )
    return table


def _put(table: dict[str, Json], name: str, value: Json) -> None:
    *parents, last = name.split(".")
    for parent in parents:
        below = table.setdefault(parent, {})
        if not isinstance(below, dict):
            raise ConfigError(f"{parent} is {below!r}", fix=f"make it a table with {last} in it")
        table = below
    table[last] = value


def _build(kind: type[T], table: Mapping[str, Json], where: str) -> T:
    """An instance of the settings class from the table; nested settings classes are nested tables."""
    hints = get_type_hints(kind)
    names = [item.name for item in dataclasses.fields(kind)]  # type: ignore[arg-type]
    values: dict[str, object] = {}
    for key, value in table.items():
        if key not in names:
            near = difflib.get_close_matches(key, names, n=1)
            fix = f"did you mean {where}{near[0]}?" if near else f"known here: {', '.join(names)}"
            raise ConfigError(f"{where}{key} is not a setting", fix=fix)
        values[key] = _value(hints[key], value, f"{where}{key}")
    try:
        return kind(**values)
    except ValueError as problem:
        raise ConfigError(f"{where.rstrip('.') or 'the configuration'}: {problem}") from problem


def _value(kind: object, value: Json, name: str) -> object:
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        if not isinstance(value, dict):
            raise ConfigError(f"{name} is {value!r}", fix=f"write a table: [{name}]")
        built: object = _build(kind, value, f"{name}.")
        return built
    if kind is Path:
        return Path(str(value)).expanduser()
    try:
        # Words from the environment are strings: "3" is taken for a number where one is wanted.
        converted: object = msgspec.convert(value, kind, strict=not isinstance(value, str))
    except msgspec.ValidationError as problem:
        raise ConfigError(f"{name} is {value!r}: {problem}", fix="give a value of the type that is named") from problem
    return converted
