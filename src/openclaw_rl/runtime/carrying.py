"""The parts that keep users' hints in use, and what training asks of them."""

from __future__ import annotations

from openclaw_rl.carry.demonstrate import Demonstrator
from openclaw_rl.carry.in_use import HintsInUse
from openclaw_rl.carry.probes import Prober
from openclaw_rl.carry.redone import Hindsight
from openclaw_rl.carry.stage import CarryStage
from openclaw_rl.config import Config
from openclaw_rl.core.kept_hint import Carry
from openclaw_rl.core.scope import own_scope
from openclaw_rl.core.turn import Turn
from openclaw_rl.core.version import SHARED, PolicyVersion
from openclaw_rl.engines.local.client import LocalEngine
from openclaw_rl.publish.swap import Served
from openclaw_rl.render.renderer import ChatRenderer
from openclaw_rl.store.db import Store
from openclaw_rl.train.entry import Entry
from openclaw_rl.trainers.settings import Distill, Teacher


def carrying_of(
    config: Config, store: Store, engine: LocalEngine, renderer: ChatRenderer, served: Served
) -> CarryStage:
    """The carrying stage."""

    async def current(turn: Turn) -> PolicyVersion:
        scope = own_scope(config.train.scopes, user=turn.user, agent=turn.agent)
        own = None if scope is None else await served.own(scope)
        return own or served.current(SHARED)

    hints = HintsInUse(store, config.carry, config.hints, lambda text: len(renderer.encode(text)))
    prober = Prober(engine, current, renderer.ends(engine.info.eos_ids), config.hints)
    return CarryStage(store, hints, prober, renderer, config.hints)


def join(entry: Entry, carrying: CarryStage, config: Config) -> None:
    """Lets training ask what the weights say without hints, what else a teacher is to heed, and what it then says."""
    method, prober = config.trainer.method, carrying.prober
    is_base_model = method.teacher is Teacher.BASE and method.form is Distill.TAIL and method.weights.distill > 0
    if config.hints.shown_replies and is_base_model:
        entry.guide = Demonstrator(prober.engine, prober.current, carrying.renderer, prober.stop_ids, config.hints)
        entry.hindsight = Hindsight(prober.engine, carrying.renderer)
    entry.weights_learn = carrying.hints.carry is not Carry.MEMORY
    entry.student = carrying.prober
    entry.known = carrying.hints.beside
    entry.give_up = carrying.give_up
