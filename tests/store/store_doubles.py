"""Turns taken some way through the ledger."""

from __future__ import annotations

from openclaw_rl.core.message import Role, message
from openclaw_rl.core.next_state import NextState, NextStateSource
from openclaw_rl.core.verdict import Verdict, VerdictSource
from openclaw_rl.store.db import Store
from openclaw_rl.testing.turns import a_sample, a_turn


def said(turn: str, words: str = "no, shorter") -> NextState:
    """What a user said after the turn."""
    return NextState(turn, (message(Role.USER, words),), NextStateSource.USER)


async def paired_and_judged(store: Store, *names: str, score: int | None = -1, session: str = "key:s") -> None:
    """Main turns that stand JUDGED."""
    for name in names:
        await store.add_turn(a_turn(name, session=session), chain=name)
        assert await store.pair(said(name))
        assert await store.judge(Verdict(name, score, VerdictSource.VOTES))


async def ready(store: Store, *names: str, session: str = "key:s") -> None:
    """Main turns that stand READY."""
    await paired_and_judged(store, *names, session=session)
    for name in names:
        await store.admit(a_sample(a_turn(name, session=session)))
