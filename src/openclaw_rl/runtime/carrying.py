"""The parts that keep users' hints in use, and what training asks of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from openclaw_rl.config import Config
from openclaw_rl.core.kept_hint import Carry
from openclaw_rl.core.message import Json, Message, Tool
from openclaw_rl.core.next_state import NextStateSource
from openclaw_rl.core.scope import Owner, own_scope, scope_of
from openclaw_rl.core.turn import Turn
from openclaw_rl.core.version import SHARED, PolicyVersion
from openclaw_rl.engines.local.client import LocalEngine
from openclaw_rl.publish.swap import Served
from openclaw_rl.render.renderer import ChatRenderer
from openclaw_rl.render.user_opening import user_opening
from openclaw_rl.store.db import Store
from openclaw_rl.teach.demonstrate import Demonstrator
from openclaw_rl.teach.elsewhere import Opening, OtherRequests
from openclaw_rl.teach.entry import Entry
from openclaw_rl.teach.in_use import HintsInUse
from openclaw_rl.teach.probes import Prober
from openclaw_rl.teach.redone import Hindsight
from openclaw_rl.teach.stage import CarryStage
from openclaw_rl.trainers.settings import Distill, Teacher

EARLIER = 200  # of a user's turns are looked through for other requests


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


def others_of(carrying: CarryStage) -> OtherRequests:
    """Where a hint is shown on other requests: a user's own are found in the store, others by the model's template."""
    prober, renderer, store = carrying.prober, carrying.renderer, carrying.store
    assert isinstance(renderer, ChatRenderer)

    async def earlier(turn: Turn) -> list[Turn]:
        rows = await store.rows(limit=EARLIER, scope=scope_of(Owner.USER, turn.user))
        return [row.turn for row in rows if row.turn.is_main]

    async def answered(turn: Turn) -> Sequence[Message]:
        row = await store.row(turn.id)
        next_state = None if row is None else row.next_state
        return next_state.messages if next_state is not None and next_state.source is NextStateSource.USER else ()

    def opens(before: Sequence[Message], tools: Sequence[Tool], options: Mapping[str, Json] | None) -> Opening | None:
        found = user_opening(renderer.template, before, tools, options)
        return None if found is None else Opening(found.ids, found.end, renderer.table.text, renderer.encode)

    ends, settings = prober.stop_ids, carrying.settings
    return OtherRequests(prober.engine, prober.current, renderer, ends, settings, earlier, answered, opens)


def join(entry: Entry, carrying: CarryStage, config: Config) -> None:
    """Lets training ask what the weights say without hints, what else a teacher is to heed, and what it then says."""
    method, prober = config.trainer.method, carrying.prober
    is_base_model = method.teacher is Teacher.BASE and method.form is Distill.TAIL and method.weights.distill > 0
    if config.hints.shown_replies and is_base_model:
        entry.guide = Demonstrator(
            prober.engine, prober.current, carrying.renderer, prober.stop_ids, config.hints, others_of(carrying)
        )
        entry.hindsight = Hindsight(prober.engine, carrying.renderer)
    entry.weights_learn = carrying.hints.carry is not Carry.MEMORY
    entry.student = carrying.prober
    entry.known = carrying.hints.beside
    entry.give_up = carrying.give_up
