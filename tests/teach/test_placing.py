"""A hint stands behind the words it came in with while the conversation lasts; only one that leaves changes it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest_asyncio

from openclaw_rl.core.hint import Carry, Hint, HintSource, HintState, KeptHint, PlacedHint
from openclaw_rl.core.message import Message, Role, message
from openclaw_rl.core.turn import Placement, Turn, TurnKind
from openclaw_rl.store.db import Store
from openclaw_rl.teach.in_use import HintsInUse
from openclaw_rl.teach.placing import placed
from openclaw_rl.teach.settings import TeachSettings
from openclaw_rl.testing.turns import a_turn

FIRST, THEN = message(Role.USER, "What is 2 + 2?"), message(Role.USER, "And 3 + 3?")
FOUR, SIX = message(Role.ASSISTANT, "4"), message(Role.ASSISTANT, "6")
RESULT = message(Role.TOOL, "done")


def kept(name: str, text: str = "Be brief.") -> KeptHint:
    return KeptHint(name, "alice", text, HintSource.JUDGE, HintState.IN_USE, "asked for", 1.0, 1.0)


def turn(messages: tuple[Message, ...], carried: tuple[PlacedHint, ...] = ()) -> Turn:
    return replace(a_turn("t1", messages), carried=carried)


def test_a_first_request_has_them_behind_its_last_user_message() -> None:
    found = placed((message(Role.SYSTEM, "s"), FIRST), (kept("a"), kept("b", "In French.")), None)
    assert found == (PlacedHint(1, "a", "Be brief."), PlacedHint(1, "b", "In French."))


def test_a_hint_stays_behind_its_message_and_a_new_one_comes_behind_the_next_words() -> None:
    parent = turn((FIRST,), (PlacedHint(0, "a", "Be brief."),))
    found = placed((FIRST, FOUR, THEN), (kept("a"), kept("b", "In French.")), parent)
    assert found == (PlacedHint(0, "a", "Be brief."), PlacedHint(2, "b", "In French."))


def test_in_a_tool_loop_a_new_hint_waits_for_the_users_next_words() -> None:
    parent = turn((FIRST,))
    assert placed((FIRST, FOUR, RESULT), (kept("a"),), parent) == ()
    assert placed((FIRST, FOUR, RESULT, SIX, THEN), (kept("a"),), parent) == (PlacedHint(4, "a", "Be brief."),)


def test_a_hint_that_left_or_was_reworded_is_gone_from_where_it_stood() -> None:
    parent = turn((FIRST,), (PlacedHint(0, "a", "Be brief."), PlacedHint(0, "b", "In French.")))
    assert placed((FIRST, FOUR, THEN), (kept("b", "In French."),), parent) == (PlacedHint(0, "b", "In French."),)
    assert placed((FIRST, FOUR, THEN), (kept("a", "Be very brief."),), parent) == (
        PlacedHint(2, "a", "Be very brief."),
    )
    assert placed((FIRST, FOUR, THEN), (), parent) == ()


def test_a_message_the_client_moved_is_found_and_one_it_changed_gives_its_hint_to_the_last() -> None:
    parent = turn((FIRST,), (PlacedHint(0, "a", "Be brief."),))
    inserted = message(Role.SYSTEM, "new")
    assert placed((inserted, FIRST, FOUR, THEN), (kept("a"),), parent) == (PlacedHint(1, "a", "Be brief."),)
    edited = message(Role.USER, "What is 2 + 3?")
    assert placed((edited, FOUR, THEN), (kept("a"),), parent) == (PlacedHint(2, "a", "Be brief."),)


def test_where_nobody_asked_anything_no_hint_stands() -> None:
    assert placed((message(Role.SYSTEM, "s"),), (kept("a"),), None) == ()


@pytest_asyncio.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    opened = await Store.open(tmp_path)
    yield opened
    await opened.aclose()


def in_use(store: Store, carry: Carry = Carry.BRIDGE, **bounds: int) -> HintsInUse:
    return HintsInUse(store, carry, TeachSettings(**bounds), lambda text: len(text.split()))  # type: ignore[arg-type]


def asked(kind: TurnKind = TurnKind.MAIN, user: str = "alice") -> Placement:
    return Placement("s", user, "default", kind, "test")


async def test_a_side_request_never_has_one(store: Store) -> None:
    await store.hints.adopt("alice", Hint("Be brief."), at_s=1.0)
    held = in_use(store)
    assert len(await held.placed(asked(), (FIRST,))) == 1
    assert await held.placed(asked(TurnKind.SIDE), (FIRST,)) == ()
    assert await held.placed(asked(user="bob"), (FIRST,)) == ()
    assert await in_use(store, Carry.WEIGHTS).placed(asked(), (FIRST,)) == ()


async def test_what_changes_in_the_store_is_seen_by_the_next_request(store: Store) -> None:
    held = in_use(store)
    assert await held.of_user("alice") == ()
    hint = await store.hints.adopt("alice", Hint("Be brief."), at_s=1.0)
    assert [item.text for item in await held.of_user("alice")] == ["Be brief."]
    await store.hints.edit(hint.id, "Be very brief.", at_s=2.0)
    assert [item.text for item in await held.of_user("alice")] == ["Be very brief."]
    await store.hints.retire(hint.id, why="learned", at_s=3.0)
    assert await held.of_user("alice") == ()


async def test_the_newest_are_used_within_number_and_tokens(store: Store) -> None:
    for at, text in enumerate(("alpha one", "beta two", "gamma three")):
        await store.hints.adopt("alice", Hint(text), at_s=float(at))
    memory = in_use(store, Carry.MEMORY, most=2)
    assert [item.text for item in await memory.of_user("alice")] == ["beta two", "gamma three"]
    # "[user's hint] alpha one" is 4 words; 9 words hold two of them
    assert [item.text for item in await in_use(store, max_tokens=9).of_user("alice")] == ["beta two", "gamma three"]
    assert await in_use(store, max_tokens=3).of_user("alice") == ()


async def test_a_bridge_says_fewer_at_once_than_a_teacher_heeds(store: Store) -> None:
    for at, text in enumerate(("alpha one", "beta two", "gamma three")):
        await store.hints.adopt("alice", Hint(text), at_s=float(at))
    bridge = in_use(store, most=3, most_bridged=1)
    assert [item.text for item in await bridge.of_user("alice")] == ["gamma three"]
    newest = (await bridge.of_user("alice"))[0]
    asked_behind = turn((FIRST,), (PlacedHint(0, newest.id, newest.text),))
    assert [item.text for item in await bridge.beside(asked_behind)] == ["alpha one", "beta two"]
    assert await store.hints.retire(newest.id, why="learned", at_s=4.0)
    assert [item.text for item in await bridge.of_user("alice")] == ["beta two"]  # the next one has its place


async def _left(store: Store, *texts: str) -> None:
    """Hints of alice that the weights could not learn."""
    for at, text in enumerate(texts):
        name = f"t{at}"
        await store.add_turn(replace(a_turn(name, f"question {name}", user="alice")), chain=name)
        await store.hints.adopt("alice", Hint(text), at_s=float(at), turn=name)
        await store.hints.leave_to_prompts([name])


async def test_with_weights_only_what_they_could_not_learn_is_in_a_prompt(store: Store) -> None:
    await _left(store, "Be brief.")
    await store.hints.adopt("alice", Hint("Use tables."), at_s=9.0)
    held = in_use(store, Carry.WEIGHTS)
    (item,) = await held.placed(asked(), (FIRST,))
    assert (item.text, await held.placed(asked(TurnKind.SIDE), (FIRST,))) == ("Be brief.", ())
    assert await held.placed(asked(user="bob"), (FIRST,)) == ()
    settings = TeachSettings(most_bridged=0)
    assert await HintsInUse(store, Carry.WEIGHTS, settings, len).placed(asked(), (FIRST,)) == ()


async def test_of_several_the_newest_that_fit_are(store: Store) -> None:
    await _left(store, "alpha one", "beta two", "gamma three")
    held = in_use(store, Carry.WEIGHTS, most_bridged=2)
    assert [item.text for item in await held.of_user("alice")] == ["beta two", "gamma three"]


async def test_it_leaves_the_prompt_when_it_is_asked_for_again_and_the_weights_are_to_learn_it(store: Store) -> None:
    await _left(store, "Be brief.")
    held = in_use(store, Carry.WEIGHTS)
    assert len(await held.of_user("alice")) == 1
    await store.hints.adopt("alice", Hint("Be brief."), at_s=5.0)
    assert await held.of_user("alice") == ()


async def test_no_teacher_reads_it_so_that_the_weights_do_not_learn_it_after_all(store: Store) -> None:
    await _left(store, "Be brief.")
    kept = await store.hints.adopt("alice", Hint("Use tables."), at_s=9.0)
    held = in_use(store, Carry.WEIGHTS)
    (left,) = await held.of_user("alice")
    assert [item.text for item in await held.beside(turn((FIRST,)))] == ["Use tables."]
    both = turn((FIRST,), (PlacedHint(0, left.id, left.text), PlacedHint(0, kept.id, kept.text)))
    assert [item.text for item in await held.learnable(both)] == ["Use tables."]
    assert await held.learnable(turn((FIRST,))) == ()
