"""A client that keeps its history, talking to the collector and the store without a model."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from pathlib import Path

from openclaw_rl.collect.clients.rules import ClientRules
from openclaw_rl.collect.stage import Collect, CollectSettings
from openclaw_rl.core.completion import Finish
from openclaw_rl.core.ledger import DropReason, State
from openclaw_rl.core.message import Json, Message, Role, Tool, message
from openclaw_rl.core.turn import Placement, Turn
from openclaw_rl.store.db import Store
from openclaw_rl.testing.clock import Clock
from openclaw_rl.testing.turns import a_turn, an_arrival

NUMBERS = itertools.count()  # over a restart too
USER, ASSISTANT, TOOL, SYSTEM = Role.USER, Role.ASSISTANT, Role.TOOL, Role.SYSTEM


def user(text: str) -> Message:
    """What a user says."""
    return message(USER, text)


def reply(text: str) -> Message:
    """What the model says."""
    return message(ASSISTANT, text)


class Served:
    """A store and its collector, and how a server would use them."""

    def __init__(self, store: Store, settings: CollectSettings, clients: Sequence[ClientRules] | None) -> None:
        self.store = store
        self.clock = Clock()
        self.collect = Collect(store, settings, self._now_s, clients=clients)

    def _now_s(self) -> float:
        return self.clock()  # which a test may change for another

    async def ask(
        self,
        messages: Sequence[Message] | str,
        answer: Message | str = "4",
        *,
        key: str = "key",
        headers: Mapping[str, str] | None = None,
        facts: Mapping[str, Json] | None = None,
        tools: Sequence[Tool] = (),
        finish: Finish = Finish.STOP,
    ) -> tuple[Turn, Placement]:
        """One request from its coming in to its turn's being in the store."""
        arrival = an_arrival(messages, key_name=key, headers=headers, facts=facts, at_s=self.clock())
        arrival = replace(arrival, tools=tuple(tools))
        placement = await self.collect.place(arrival)
        await placement.admit()
        turn = a_turn(
            f"turn-{next(NUMBERS)}",
            arrival.messages,
            answer,
            session=placement.session,
            user=placement.user,
            kind=placement.kind,
            finish=finish,
            at_s=arrival.at_s,
            tools=arrival.tools,
            parent=None if placement.parent is None else placement.parent.id,
        )
        turn = replace(turn, messages=arrival.messages, why=placement.why, agent=placement.agent, step=placement.step)
        await self.collect.commit(turn)
        return turn, placement

    async def state(self, turn: Turn) -> State | None:
        """Where the turn stands."""
        row = await self.store.row(turn.id)
        assert row is not None
        return row.state

    async def reason(self, turn: Turn) -> DropReason | None:
        """Why it was dropped."""
        row = await self.store.row(turn.id)
        assert row is not None
        return row.reason

    async def next_state(self, turn: Turn) -> tuple[Message, ...] | None:
        """What followed it."""
        row = await self.store.row(turn.id)
        assert row is not None
        return None if row.next_state is None else row.next_state.messages


@asynccontextmanager
async def serving(
    home: Path, settings: CollectSettings | None = None, clients: Sequence[ClientRules] | None = None
) -> AsyncIterator[Served]:
    """A collector on the store in `home`."""
    async with aclosing(await Store.open(home)) as store:
        yield Served(store, settings or CollectSettings(), clients)
