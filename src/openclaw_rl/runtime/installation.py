"""The parts of one installation, built and joined. Wiring only: no rule lives here."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import msgspec

from openclaw_rl.collect.clients.rules import known_clients, readable
from openclaw_rl.collect.stage import Collect
from openclaw_rl.config import Config
from openclaw_rl.core.facts import StoreFacts
from openclaw_rl.core.hint import Carry
from openclaw_rl.core.host import Host
from openclaw_rl.core.message import Json
from openclaw_rl.core.protocols import Chat, Engine, Judge, Trainer
from openclaw_rl.core.sample import Wants
from openclaw_rl.core.width import IDLE, Width
from openclaw_rl.doctor.install import home_findings
from openclaw_rl.doctor.learning import Loop, status_of
from openclaw_rl.engines.open import open_engine
from openclaw_rl.home.exposure import check_exposure, close_folder, key_of
from openclaw_rl.home.folder import has_key, kept_key
from openclaw_rl.home.keys import KeyBook
from openclaw_rl.home.models import local_folder, model_folder, named_ends
from openclaw_rl.judge.classifier import MOST_EARLIER, ClassifierJudge
from openclaw_rl.judge.encoder import Encoder, has_classifier
from openclaw_rl.judge.llm import LlmJudge
from openclaw_rl.judge.partners import EndpointChat, EngineChat
from openclaw_rl.judge.stage import JudgeStage
from openclaw_rl.publish.gate import Gate
from openclaw_rl.publish.pruning import Pruning
from openclaw_rl.publish.stage import PublishStage
from openclaw_rl.publish.swap import ServedVersions
from openclaw_rl.publish.tasks import TaskProbe, read_tasks
from openclaw_rl.publish.trial_in_use import TrialInUse
from openclaw_rl.publish.watch import Watch
from openclaw_rl.remake.forget_finish import RebuildBlockers, finish_erasing, rebuild_in_time
from openclaw_rl.render.renderer import ChatRenderer
from openclaw_rl.render.template import read_template
from openclaw_rl.runtime.activity import Activity
from openclaw_rl.runtime.costing import costs_of
from openclaw_rl.runtime.judge_model import JudgeModel
from openclaw_rl.runtime.learning import Learning, StageSupervisor
from openclaw_rl.runtime.loop_watch import Delays
from openclaw_rl.runtime.placing import JUDGE, POLICY, placed
from openclaw_rl.runtime.teaching import bridge_of, outcome_stage_of, teach_stage_of
from openclaw_rl.serve.door.auth import OWNER, Keys
from openclaw_rl.store.db import Store
from openclaw_rl.store.redact.masker import Masker
from openclaw_rl.teach.bridge import BridgeStage
from openclaw_rl.teach.rules import LearningRules
from openclaw_rl.teach.stage import TeachStage
from openclaw_rl.telemetry.hub import Telemetry, check_installed, opened_telemetry
from openclaw_rl.train.stage import TrainStage
from openclaw_rl.trainers.open import open_trainer
from openclaw_rl.trainers.settings import TrainerSettings
from openclaw_rl.trainers.vocabulary import check_same_vocabulary

log = logging.getLogger(__name__)
BASE_JUDGE = "base"
DAY_S = 86400


@dataclass(frozen=True, slots=True)
class Installation:
    """The running parts of one home folder."""

    config: Config
    folder: Path
    key: str
    keys: Keys
    store: Store
    engine: Engine
    renderer: ChatRenderer
    collect: Collect
    served: ServedVersions
    judging: JudgeStage
    teaching: TeachStage
    training: TrainStage
    publishing: PublishStage
    pruning: Pruning
    bridge: BridgeStage
    activity: Activity
    learning: Learning
    trainer: Trainer
    judge_model: JudgeModel | None = None
    remaking: RebuildBlockers = field(default_factory=RebuildBlockers)
    telemetry: Telemetry = field(default_factory=Telemetry)

    @property
    def upkeep(self) -> StageSupervisor:
        """Restarts stages that break."""
        return self.learning.upkeep

    async def status(
        self, *, learns: bool, reused: float | None = None, delays: Delays | None = None
    ) -> dict[str, Json]:
        """The whole of `/v1/rl/status`.

        `reused` is the share of prompt tokens that needed no reading, `delays` comes from the watch on the loop.
        """
        facts = StoreFacts(await self.store.counts(), await self.store.overview())
        reports = [await stage.report(facts) for stage in self.learning.stages]
        loop = Loop(
            self.judging.status,
            self.teaching.status,
            self.training.status,
            self.publishing.status,
            is_live=True,
            learns=learns,
            broken=self.upkeep.broken,
            last_failure=self.activity.last_problem,
            reused=reused,
        )
        about: dict[str, object] = {
            "prompt_tokens_reused": reused,
            "delays": delays,
            "prompts": dict(self.renderer.stats),
            "model": self.engine.info,
            "engine": await self.engine.stats(),
        }
        home = (*await asyncio.to_thread(home_findings, self.config.home), *self.telemetry.findings())
        collecting = self.collect.tally.complaint() or ""
        return status_of(facts, loop, reports, about=about, home=home, collecting=collecting)


@dataclass(frozen=True, slots=True)
class OpenedHome:
    """An opened and locked home folder, with everything that can be checked before a model is loaded."""

    config: Config
    store: Store
    key: str
    keys: Keys
    is_key_new: bool = False
    telemetry: Telemetry = field(default_factory=Telemetry)


@asynccontextmanager
async def installed(config: Config) -> AsyncIterator[Installation]:
    """The parts, started; closed in reverse order at the end. Raises OpenClawRLError if one cannot start."""
    async with grounded(config) as ground, loaded(ground) as parts:
        yield parts


@asynccontextmanager
async def grounded(config: Config) -> AsyncIterator[OpenedHome]:
    """The folder, locked for this process until the end, and its keys. Raises OpenClawRLError if it is not available.

    What the settings name is checked too, if that takes no time.
    """
    check_exposure(config.serve)
    await asyncio.to_thread(_check_named, config)
    check_installed(config.metrics, config.traces)
    masker = await asyncio.to_thread(Masker.of, config.store.redact)
    await asyncio.to_thread(finish_erasing, config.home)
    async with AsyncExitStack() as stack:
        begin = time.monotonic()
        telemetry = await asyncio.to_thread(opened_telemetry, config.home, config.metrics, config.traces)
        stack.push_async_callback(asyncio.to_thread, telemetry.close)
        store = await Store.open(
            config.home,
            masker=masker,
            picture_bytes=config.store.pictures_mb << 20,
            listener=telemetry.heard,
        )
        log.info("opened store seconds=%.3f", time.monotonic() - begin)
        stack.push_async_callback(store.aclose)
        await asyncio.to_thread(close_folder, config.home)
        has_own = bool(config.serve.api_key) or await asyncio.to_thread(has_key, config.home)
        key = config.serve.api_key or await asyncio.to_thread(kept_key, config.home)
        book = await asyncio.to_thread(KeyBook, config.home)
        stack.callback(book.note)
        yield OpenedHome(config, store, key, Keys({OWNER: key}, book.keys, book.used), not has_own, telemetry)


@asynccontextmanager
async def loaded(ground: OpenedHome) -> AsyncIterator[Installation]:
    """The parts on this folder, including the models; closed in reverse order. Raises OpenClawRLError."""
    config, store = ground.config, ground.store
    folder = await asyncio.to_thread(model_folder, config.model)
    judge_folder = await asyncio.to_thread(model_folder, _own_judge(config)) if _own_judge(config) else folder
    trainer_settings = await asyncio.to_thread(_with_teacher, config.trainer, folder)
    renderer = ChatRenderer(await asyncio.to_thread(read_template, folder), config.render)
    renderer.ends(await asyncio.to_thread(named_ends, folder))  # a model that never ends is reported before it loads
    async with AsyncExitStack() as stack:
        begin = time.monotonic()
        has_judge = judge_folder != folder and not has_classifier(judge_folder)
        places = await stack.enter_async_context(placed(config, has_judge=has_judge))
        trainer_settings = places.trained(trainer_settings)
        engine = await open_engine(config.engine, folder, rank=config.trainer.rank, hosts=places.hosts(POLICY))
        log.info("opened engine seconds=%.3f", time.monotonic() - begin)
        stack.push_async_callback(engine.aclose)
        trainer = open_trainer(folder, trainer_settings, config.home)
        stack.push_async_callback(trainer.aclose)
        base = EngineChat(engine, renderer, renderer.ends(engine.info.eos_ids))
        judge, own = await _judge(
            stack, config, store, judge_folder, base if judge_folder == folder else None, hosts=places.hosts(JUDGE)
        )
        built = SharedParts(store, renderer, engine, trainer, judge, ground.keys, own, ground.telemetry)
        parts = assembled(config, folder, ground.key, built)
        await parts.publishing.start()
        yield parts


async def _judge(
    stack: AsyncExitStack, config: Config, store: Store, folder: Path, served: EngineChat | None, *, hosts: list[Host]
) -> tuple[Judge, JudgeModel | None]:
    """An endpoint, the classifier that the judge's folder brings, or its model: `served`, or in a separate process.

    That process too, if there is one.
    """
    name = config.judge.model or BASE_JUDGE
    read = partial(readable, clients=known_clients(config.collect.client_rules))
    own: JudgeModel | None = None
    if config.judge.url:
        chat: Chat = await stack.enter_async_context(_endpoint(config))
    elif has_classifier(folder):
        encoder = await asyncio.to_thread(Encoder.load, folder)

        unheard = partial(store.hints.unheard, limit=MOST_EARLIER)
        return ClassifierJudge(encoder, config.judge, name=name, readable=read, unheard=unheard), None
    elif served is not None:
        chat = served
    else:
        chat = own = await JudgeModel.start(folder, config.judge, config.engine, hosts)
        stack.push_async_callback(own.aclose)
    return LlmJudge(chat, config.judge, name=name, budget=store, readable=read), own


def _check_named(config: Config) -> None:
    """Raises ModelError or ConfigError if the models or files of this machine that the settings name are not usable."""
    teacher = config.trainer.method.teacher_model
    names = [name for name in (config.model, _own_judge(config), teacher) if name]
    folders = {name: local_folder(name) for name in names}
    if teacher and (own := folders[config.model]) and (its := folders[teacher]):
        check_same_vocabulary(own, its)
    if config.publish.tasks:
        read_tasks(Path(config.publish.tasks).expanduser())


def _own_judge(config: Config) -> str:
    """The separate model that judges; empty if there is none."""
    return config.judge.model if not config.judge.url else ""


@dataclass(frozen=True, slots=True)
class SharedParts:
    """The parts shared by stages."""

    store: Store
    renderer: ChatRenderer
    engine: Engine
    trainer: Trainer
    judge: Judge
    keys: Keys | None = None  # for the owner only
    judge_model: JudgeModel | None = None  # if the judge has a separate model here
    telemetry: Telemetry = field(default_factory=Telemetry)


def assembled(config: Config, folder: Path, key: str, built: SharedParts) -> Installation:
    """The installation made of these; nothing is running yet."""
    activity = Activity()
    store, engine, renderer = built.store, built.engine, built.renderer
    keys = built.keys or Keys({OWNER: key})
    served = ServedVersions(store, engine, keep_loaded=config.publish.keep_loaded, room=_room(config))
    # Half of the engine's places stay free for users, who may come at any moment.
    width = Width(lambda: activity.is_idle, min(IDLE, config.engine.max_rows // 2))
    publishing = _publishing(config, built, served, width)
    bridge = bridge_of(config, store, engine, renderer, served)
    rules, remaking = _rules(config, keys), RebuildBlockers()
    teaching = teach_stage_of(config, bridge, renderer, rules, publishing, width=width)
    outcomes = outcome_stage_of(config, store, renderer, rules, built.judge)
    training = TrainStage(
        store,
        teaching,
        built.trainer,
        config.train,
        rules.wants,
        config.home,
        recipe=recipe_of(config),
        idle_s=activity.idle_s,
        active=lambda: served.active,
        costs=costs_of(config),
        before_steps=partial(rebuild_in_time, store, config, folder, remaking, served=served),
        candidate_made=publishing.candidate_made,
        version_settled=publishing.version_settled,
    )
    teaching.leave_steps_alone(lambda: training.turns_in_step)
    teaching.before_samples = training.expect_step
    publishing.is_idle = lambda: activity.is_idle and teaching.is_resting and not training.turns_in_step
    judging = JudgeStage(store, built.judge, config.judge, is_idle=lambda: activity.is_idle)
    return Installation(
        config=config,
        folder=folder,
        key=key,
        keys=keys,
        store=store,
        engine=engine,
        renderer=renderer,
        collect=Collect(store, config.collect, time.time, may_teach=keys.may_teach, may_name=keys.may_name),
        served=served,
        judging=judging,
        teaching=teaching,
        training=training,
        publishing=publishing,
        pruning=Pruning(store, served, config.publish, config.home, publishing.prune_due),
        bridge=bridge,
        activity=activity,
        learning=Learning((judging, outcomes, teaching, training, publishing, bridge)),
        trainer=built.trainer,
        judge_model=built.judge_model,
        remaking=remaking,
        telemetry=built.telemetry,
    )


def recipe_of(config: Config) -> dict[str, Json]:
    """The settings that decide what a version learns, for its manifest."""
    told: dict[str, Json] = msgspec.to_builtins(
        {"teach": config.teach, "episodes": config.episodes, "train": config.train, "trainer": config.trainer}
    )
    return told


def _rules(config: Config, keys: Keys) -> LearningRules:
    return LearningRules(
        _wants(config),
        config.train.scopes,
        config.train.max_sample_tokens,
        weights_learn=config.carry is not Carry.MEMORY,
        may_teach=lambda turn: keys.may_teach(key_of(turn.session)),
    )


def _wants(config: Config) -> Wants:
    weights = config.trainer.method.weights
    return Wants.of(rl=weights.rl, hints=weights.opd + weights.distill)


def _room(config: Config) -> int:
    """How many versions the engine may keep loaded."""
    is_full = config.trainer.parameters == "full"
    return config.engine.max_full_versions if is_full else config.engine.max_versions


def _publishing(config: Config, built: SharedParts, served: ServedVersions, width: Width) -> PublishStage:
    store, engine, renderer, settings = built.store, built.engine, built.renderer, config.publish
    ends = renderer.ends(engine.info.eos_ids)
    gate = Gate(store, engine, renderer, ends, settings, _tasks(config, engine, renderer), width)
    watch, trial = Watch(store, engine, served, settings), TrialInUse(store, served, gate, settings)
    return PublishStage(store, served, gate, settings, watch, trial)


def _tasks(config: Config, engine: Engine, renderer: ChatRenderer) -> TaskProbe | None:
    """The owner's probe tasks; None if there are none. Raises ConfigError for a file that holds something else."""
    named = config.publish.tasks
    if not named:
        return None
    tasks = read_tasks(Path(named).expanduser())
    return TaskProbe(engine, renderer, renderer.ends(engine.info.eos_ids), tasks, config.publish.task_tokens)


def _with_teacher(settings: TrainerSettings, folder: Path) -> TrainerSettings:
    """The settings with the teacher's folder, if the teacher is a model. Raises ModelError, ConfigError."""
    if not settings.method.teacher_model:
        return settings
    teacher = model_folder(settings.method.teacher_model)
    check_same_vocabulary(folder, teacher)
    return replace(settings, method=replace(settings.method, teacher_model=str(teacher)))


def _endpoint(config: Config) -> EndpointChat:
    judge = config.judge
    return EndpointChat(judge.url, judge.model, api_key=judge.api_key, timeout_s=judge.timeout_s, retries=0)
