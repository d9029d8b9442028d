"""Samples come back from the store as they were admitted, also from a store that kept one shown reply at most."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
from store_doubles import paired_and_judged

from openclaw_rl.core.sample import HintPrompt, OtherRequestReply, SampledReply
from openclaw_rl.core.version import BASE
from openclaw_rl.store import codec, connection
from openclaw_rl.store.codec import mapped
from openclaw_rl.store.db import Store
from openclaw_rl.testing.turns import a_sample, a_turn

SHOWN = (SampledReply((8, 9), (-0.1, -0.2), BASE), SampledReply((6,), (-0.3,), BASE))
OWN = SampledReply((4, 5, 6), (-0.1, -0.1, -0.1), BASE)
ELSEWHERE = (
    OtherRequestReply(
        (5, 6), HintPrompt("Be kind. Be brief.", (5, 6, 1)), SampledReply((9,), (-0.5,), BASE), turn="other"
    ),
    OtherRequestReply((7,), HintPrompt("Be brief.", (7, 1)), SampledReply((9, 8), (-0.5, -0.1), BASE)),
)
HINTS = (HintPrompt("Be brief.", (1, 2)), HintPrompt("Be kind.", (3,)))


@pytest.mark.parametrize("shown", [(), SHOWN[:1], SHOWN])
@pytest.mark.parametrize("own", [None, OWN])
@pytest.mark.parametrize("elsewhere", [(), ELSEWHERE])
async def test_a_sample_comes_back_with_all_its_replies(
    store: Store, shown: tuple[SampledReply, ...], own: SampledReply | None, elsewhere: tuple[OtherRequestReply, ...]
) -> None:
    await paired_and_judged(store, "a")
    made = replace(a_sample(a_turn("a")), hints=HINTS, shown=shown, own=own, is_taught=True, elsewhere=elsewhere)
    made = replace(made, is_literal=bool(elsewhere))
    await store.admit(made)
    assert await store.ready(limit=9) == [made]


async def test_a_sample_that_a_grammar_held_comes_back_with_what_it_left(store: Store) -> None:
    await paired_and_judged(store, "a")
    plain = a_sample(a_turn("a"))
    made = replace(plain, kept=tuple(-0.1 * at for at in range(len(plain.response))))
    await store.admit(made)
    assert await store.ready(limit=9) == [made]


@pytest.mark.parametrize("shown", [(), SHOWN[:1]])
async def test_the_form_of_before_is_read(tmp_path: Path, shown: tuple[SampledReply, ...]) -> None:
    store = await Store.open(tmp_path)
    await paired_and_judged(store, "a")
    made = replace(a_sample(a_turn("a")), hints=HINTS, shown=shown, own=OWN, is_taught=True)
    await store.admit(made)
    await store.aclose()
    older = sqlite3.connect(tmp_path / connection.NAME)
    (body,) = older.execute("SELECT body FROM samples").fetchone()
    held = mapped(codec.unpack_json(body))
    kept = held["shown"]
    assert isinstance(kept, list)
    held["shown"] = kept[0] if kept else None
    older.execute("UPDATE samples SET body = ?", (codec.pack_json(held),))
    older.commit()
    older.close()
    again = await Store.open(tmp_path)
    assert await again.ready(limit=9) == [made]
    await again.aclose()
