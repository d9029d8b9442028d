"""Any judge behind an endpoint is measured by one command: on labelled cases, and on what people say."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from random import Random

from openclaw_rl.core.message import Role, message
from openclaw_rl.core.next_state import NextState, NextStateSource
from openclaw_rl.evals.judging.cases import written_cases
from openclaw_rl.evals.judging.wordings import NOTHING, utterances
from openclaw_rl.evals.scripted_judge import MODEL, OracleJudge, scripted_judge
from openclaw_rl.store.db import Store
from openclaw_rl.store.tables.overrules import Overrule
from openclaw_rl.testing.turns import a_turn
from openclaw_rl.tiny.listening import hint_of


async def _ran(*arguments: str) -> tuple[int, str, str]:
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "openclaw_rl",
        "eval",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, shown = await asyncio.wait_for(child.communicate(), timeout=180)
    assert child.returncode is not None
    return child.returncode, out.decode(), shown.decode()


def _hears(judge: OracleJudge) -> None:
    """From now on the judge knows what every wording means."""
    for said in utterances():
        hint = "" if said.wish == NOTHING else hint_of(said.wish, said.literal, None, Random(0))
        judge.tell(said.case.next_state[0].text, said.case.score, hint)


async def test_a_judge_that_hears_every_wording_is_told_so_in_the_last_line() -> None:
    async with scripted_judge() as judge:
        _hears(judge)
        code, out, shown = await _ran("wordings", "--judge", judge.url, "--quick", "--votes", "2")
    assert code == 0, shown
    found = json.loads(out.splitlines()[-1])
    assert (found["right_hint"], found["wrong_hint"], found["nothing"]) == (1.0, 0.0, 0.0)
    assert found["score_right"] == 1.0
    assert set(found["by_language"]) == {"en", "de", "fr", "es", "it"}
    assert found["conditions"]["judge"] == judge.url
    assert "right hint" in shown and "shouting" in shown


async def test_a_judge_that_makes_words_up_teaches_nothing() -> None:
    async with scripted_judge() as judge:
        for said in utterances():
            judge.tell(said.case.next_state[0].text, -1, 'Begin the reply with "Dear me!".')
        code, out, shown = await _ran("wordings", "--judge", judge.url, "--judge-model", MODEL, "--quick")
    assert code == 0, shown
    found = json.loads(out.splitlines()[-1])
    assert (found["right_hint"], found["wrong_hint"], found["nothing"]) == (0.0, 0.0, 1.0)


async def test_labelled_cases_are_put_to_a_judge_behind_an_endpoint() -> None:
    async with scripted_judge() as judge:
        for case in written_cases():
            judge.tell(case.next_state[0].text, case.score, "")
        code, out, shown = await _ran("judge", "--judge", judge.url, "--quick")
    assert code == 0, shown
    found = json.loads(out.splitlines()[-1])
    assert found["cases"] == 40
    assert found["by_kind"]["sarcasm"]["accuracy"] == 1.0


async def test_a_judge_that_is_not_there_is_reported_in_one_line() -> None:
    code, _, shown = await _ran("wordings", "--judge", "http://127.0.0.1:9/v1", "--quick")
    assert code == 2
    assert "does not say which models it has" in shown and "--judge-model" in shown
    assert "Traceback" not in shown


async def test_without_an_endpoint_the_bundled_models_own_classifier_is_tried() -> None:
    code, out, shown = await _ran("wordings", "--quick")
    assert code == 0, shown
    found = json.loads(out.splitlines()[-1])
    assert found["conditions"]["model"] == "its classifier"
    assert (found["conditions"]["votes"], found["conditions"]["temperature"]) == (1, None)
    assert found["right_hint"] >= 0.5 and found["wrong_hint"] <= 0.05


async def test_a_judge_is_tried_on_what_its_owner_overruled(tmp_path: Path) -> None:
    store = await Store.open(tmp_path)
    for name, said in (("a", "hm"), ("b", "Thanks, that is right."), ("c", "")):
        await store.add_turn(a_turn(name), chain=name)
        if said:
            await store.pair(NextState(name, (message(Role.USER, said),), NextStateSource.USER))
    await store.aclose()
    code, _, shown = await _ran("judge", "--overruled", "--home", str(tmp_path))
    assert code == 2 and "no verdict was overruled" in shown
    store = await Store.open(tmp_path)
    for at, (name, score) in enumerate((("a", -1), ("b", 1), ("c", 1))):
        await store.overrules.add(Overrule(name, float(at), "owner", score, ()))
    await store.aclose()
    code, out, shown = await _ran("judge", "--overruled", "--home", str(tmp_path))
    assert code == 0, shown
    found = json.loads(out.splitlines()[-1])
    assert (found["cases"], found["by_kind"]["overruled"]["said"]["+1"]) == (2, 1)  # the last has no reaction
