"""Judged turns as other trainers read them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from store_doubles import said

from openclaw_rl.core.ledger import DropReason
from openclaw_rl.core.message import Json, Role, message
from openclaw_rl.core.turn import Turn
from openclaw_rl.core.verdict import Verdict, VerdictSource
from openclaw_rl.remake.forget_finish import _clean_records
from openclaw_rl.store.db import Store
from openclaw_rl.store.export import ExportFilter, export
from openclaw_rl.store.forms import ExportForm
from openclaw_rl.testing.turns import a_turn

ASKED = [{"role": "user", "content": "What is 2 + 2?"}]


async def filled(home: Path) -> Store:
    """A corrected turn, the accepted answer to it, a good sibling and a bad one, and turns that teach nothing."""
    store = await Store.open(home)
    bad = a_turn("bad", "What is 2 + 2?", message(Role.ASSISTANT, "It is **4**."))
    asked = (*bad.messages, bad.reply, message(Role.USER, "Without stars."))
    good = replace(a_turn("good", asked, message(Role.ASSISTANT, "It is 4.")), parent="bad")
    turns: Sequence[tuple[Turn, int | None, str]] = (
        (bad, -1, ""),
        (good, 1, ""),
        (a_turn("first", "Hi", message(Role.ASSISTANT, "Hello.")), 1, "hi"),
        (a_turn("second", "Hi", message(Role.ASSISTANT, "Go away.")), -1, "hi"),
        (a_turn("neither", "And?", message(Role.ASSISTANT, "So.")), 0, ""),
        (a_turn("unjudged", "Yes?", message(Role.ASSISTANT, "No.")), None, ""),
        (a_turn("excluded", "Oh", message(Role.ASSISTANT, "Ah.")), 1, ""),
    )
    for turn, score, prefix in turns:
        await store.add_turn(turn, chain=turn.id, prefix=prefix)
        if score is not None:
            await store.pair(said(turn.id, "well"))
            await store.judge(Verdict(turn.id, score, VerdictSource.VOTES))
    await store.drop("excluded", DropReason.EXCLUDED)
    return store


def lines_of(path: Path) -> list[dict[str, Json]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


async def written(store: Store, form: ExportForm, path: Path) -> dict[str, dict[str, Json]]:
    count, sides = await export(store, path, ExportFilter(form=form))
    rows = lines_of(path)
    assert (count, sides) == (len(rows), 0)
    return {str(row["turn_id"]): row for row in rows}


async def test_trls_forms_hold_what_was_liked_what_was_not_and_pairs_of_both(tmp_path: Path) -> None:
    store = await filled(tmp_path / "home")
    liked = await written(store, ExportForm.TRL_SFT, tmp_path / "sft.jsonl")
    assert set(liked) == {"good", "first"}
    assert set(liked["first"]) == {"prompt", "completion", "turn_id", "turn_ids"}
    labelled = await written(store, ExportForm.TRL_KTO, tmp_path / "kto.jsonl")
    assert {name: row["label"] for name, row in labelled.items()} == {
        "bad": False,
        "good": True,
        "first": True,
        "second": False,
    }
    assert labelled["bad"]["prompt"] == ASKED
    assert labelled["bad"]["completion"] == [{"role": "assistant", "content": "It is **4**."}]
    pairs = await written(store, ExportForm.TRL_DPO, tmp_path / "dpo.jsonl")
    assert {name: row["turn_ids"] for name, row in pairs.items()} == {
        "good": ["good", "bad"],
        "first": ["first", "second"],
    }
    assert (pairs["good"]["prompt"], pairs["good"]["chosen"]) == (ASKED, [{"role": "assistant", "content": "It is 4."}])
    await store.aclose()


async def test_ids_are_those_that_were_sampled(tmp_path: Path) -> None:
    store = await filled(tmp_path / "home")
    turn = await store.turn("bad")
    assert turn is not None
    prompt, response, logp = list(turn.prompt.tokens), list(turn.completion.tokens), list(turn.completion.logp)
    ids = (await written(store, ExportForm.TRL_IDS, tmp_path / "ids.jsonl"))["bad"]
    assert ids["input_ids"] == prompt + response and ids["logprobs"] == logp
    assert ids["completion_mask"] == [0] * len(prompt) + [1] * len(response) and ids["reward"] == -1.0
    verl = (await written(store, ExportForm.VERL, tmp_path / "verl.jsonl"))["bad"]
    assert verl["prompt"] == ASKED and verl["responses"] == ["It is **4**."]
    assert isinstance(verl["extra_info"], dict) and verl["extra_info"]["response_ids"] == response
    slime = (await written(store, ExportForm.SLIME, tmp_path / "slime.jsonl"))["bad"]
    assert slime["tokens"] == prompt + response and slime["response_length"] == len(response)
    assert (slime["loss_mask"], slime["status"]) == ([1] * len(response), "completed")
    await store.aclose()


async def test_forgetting_takes_out_every_row_that_a_turn_is_part_of(tmp_path: Path) -> None:
    store = await filled(tmp_path / "home")
    pairs, liked = tmp_path / "dpo.jsonl", tmp_path / "sft.jsonl"
    await written(store, ExportForm.TRL_DPO, pairs)
    await written(store, ExportForm.TRL_SFT, liked)
    await store.aclose()
    assert _clean_records(pairs, {"bad"}, set()) and _clean_records(liked, {"bad"}, {"first"})
    assert [row["turn_id"] for row in lines_of(pairs)] == ["first"]
    assert [row["turn_id"] for row in lines_of(liked)] == ["good"]


@pytest.mark.parametrize("reason", [DropReason.CANCELLED, DropReason.REDACTED])
async def test_what_must_not_be_learned_from_is_in_no_form(store: Store, tmp_path: Path, reason: DropReason) -> None:
    await store.add_turn(a_turn("t", "Hi"), chain="c")
    await store.pair(said("t", "no"))
    await store.judge(Verdict("t", -1, VerdictSource.VOTES))
    await store.drop("t", reason)
    for form in set(ExportForm) - {ExportForm.RECORDS}:
        assert await written(store, form, tmp_path / "out.jsonl") == {}
    assert list(await written(store, ExportForm.RECORDS, tmp_path / "out.jsonl")) == ["t"]
