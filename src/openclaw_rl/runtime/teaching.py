"""The parts that teach: the teaching stage for judged turns, and the bridge that keeps users' hints in prompts."""

from __future__ import annotations

from collections.abc import Sequence

from openclaw_rl.config import Config
from openclaw_rl.core.message import Message
from openclaw_rl.core.next_state import NextStateSource
from openclaw_rl.core.protocols import Engine, Judge, TakesBack
from openclaw_rl.core.scope import Owner, own_scope, scope_of
from openclaw_rl.core.turn import Turn
from openclaw_rl.core.version import SHARED, PolicyVersion
from openclaw_rl.core.width import Width
from openclaw_rl.errors import ConfigError
from openclaw_rl.judge.llm import LlmJudge
from openclaw_rl.judge.signals import followup_hint
from openclaw_rl.publish.swap import ServedVersions
from openclaw_rl.render.renderer import ChatRenderer
from openclaw_rl.store.db import Store
from openclaw_rl.teach.bridge import BridgeStage
from openclaw_rl.teach.demonstrate import Demonstrator
from openclaw_rl.teach.elsewhere import OtherReplies
from openclaw_rl.teach.in_use import HintsInUse
from openclaw_rl.teach.made_up import MadeUpRequests, opens_of
from openclaw_rl.teach.misheard import CORRECTED_MOST, MisheardHints
from openclaw_rl.teach.other_requests import OtherRequests
from openclaw_rl.teach.outcomes import OutcomeStage
from openclaw_rl.teach.probes import Prober
from openclaw_rl.teach.redone import Hindsight
from openclaw_rl.teach.replaced import ReplacedHints
from openclaw_rl.teach.rules import LearningRules, Teacher
from openclaw_rl.teach.stage import TeachStage
from openclaw_rl.trainers.settings import TeacherKind

EARLIER = 200  # this many of a user's turns are searched for other requests


def bridge_of(
    config: Config, store: Store, engine: Engine, renderer: ChatRenderer, served: ServedVersions
) -> BridgeStage:
    """The bridge stage, which decides which hints are in prompts."""

    async def current(turn: Turn) -> PolicyVersion:
        scope = own_scope(config.train.scopes, user=turn.user, agent=turn.agent)
        own = None if scope is None else await served.own(scope)
        return own or served.current(SHARED)

    hints = HintsInUse(store, config.carry, config.teach, lambda text: len(renderer.encode(text)))
    prober = Prober(engine, current, renderer.ends(engine.info.eos_ids), config.teach)
    return BridgeStage(store, hints, prober, renderer, config.teach)


def teach_stage_of(
    config: Config,
    bridge: BridgeStage,
    renderer: ChatRenderer,
    rules: LearningRules,
    publishing: TakesBack,
    *,
    width: Width,
) -> TeachStage:
    """The teaching stage; the base model is asked if it is the teacher that the method distils."""
    method, prober = config.trainer.method, bridge.prober
    base = hindsight = misheard = replaced = None
    if config.teach.demonstrations and method.teacher is TeacherKind.BASE and method.moves_to_target:
        others = _other_replies(bridge, renderer, width)
        base = Demonstrator(prober.engine, prober.current, renderer, prober.stop_ids, config.teach, others)
        hindsight = Hindsight(prober.engine, renderer)
        misheard = MisheardHints(bridge.store, prober.engine, renderer, bridge.hints, publishing, followup_hint)
        replaced = ReplacedHints(bridge.store, misheard, bridge.hints)
    teacher = Teacher(prober, base, hindsight, misheard, replaced, bridge.hints)
    return TeachStage(bridge.store, renderer, config.teach, rules, teacher, publishing)


def outcome_stage_of(
    config: Config, store: Store, renderer: ChatRenderer, rules: LearningRules, judge: Judge
) -> OutcomeStage:
    """The stage that makes samples of episodes, by the same rules as for conversations.

    Raises ConfigError if steps are to be judged and the judge is not a language model.
    """
    if config.episodes.judge_steps and not isinstance(judge, LlmJudge):
        raise ConfigError(
            "episodes.judge_steps is true, but the judge is a classifier of what users say",
            fix="set judge.url or judge.model to a language model, or leave episodes.judge_steps out",
        )
    steps = judge if config.episodes.judge_steps and isinstance(judge, LlmJudge) else None
    return OutcomeStage(store, renderer, config.episodes, rules, config.trainer.method.step_coefficient, steps)


def _other_replies(bridge: BridgeStage, renderer: ChatRenderer, width: Width) -> OtherReplies:
    """Replies to other requests: a user's own come from the store, others from the model's template."""
    prober, store = bridge.prober, bridge.store

    async def earlier(turn: Turn) -> list[Turn]:
        rows = await store.rows(limit=EARLIER, scope=scope_of(Owner.USER, turn.user))
        return [row.turn for row in rows if row.turn.is_main]

    async def wished(turn: Turn) -> list[Turn]:
        hints = sorted(await store.hints.of_user(turn.user), key=lambda hint: -hint.changed_s)
        found = [await opening_of(store, hint.turn) for hint in hints if hint.is_wished]
        return [opening for opening in found if opening is not None]

    async def answered(turn: Turn) -> Sequence[Message]:
        row = await store.row(turn.id)
        next_state = None if row is None else row.next_state
        return next_state.messages if next_state is not None and next_state.source is NextStateSource.USER else ()

    ends, settings = prober.stop_ids, bridge.settings
    made_up = MadeUpRequests(prober.engine, ends, opens_of(renderer), width)
    requests = OtherRequests(renderer, settings, earlier, wished, answered, made_up)
    return OtherReplies(prober.engine, renderer, ends, settings, requests, width=width)


async def opening_of(store: Store, name: str | None) -> Turn | None:
    """The turn that opened the conversation of a turn; None if a turn between them is gone, or if there are many."""
    row = None if name is None else await store.row(name)
    for _ in range(CORRECTED_MOST):
        if row is None or row.turn.parent is None:
            break
        row = await store.row(row.turn.parent)
    return None if row is None or row.turn.parent is not None else row.turn
