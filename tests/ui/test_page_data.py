"""What the page asks for, over HTTP: learning at a glance, conversations, the owner's word, settings, keys, events."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import aiohttp
import pytest
from serve_doubles import Serving

from openclaw_rl.core.hint import Hint
from openclaw_rl.core.ledger import DropReason
from openclaw_rl.core.message import Json, Role, message
from openclaw_rl.core.next_state import NextState, NextStateSource
from openclaw_rl.core.verdict import Verdict, VerdictSource, Vote
from openclaw_rl.core.version import SHARED, PolicyVersion
from openclaw_rl.errors import DiskError
from openclaw_rl.serve.control.learning import headline
from openclaw_rl.serve.parts import Remembered
from openclaw_rl.store.db import Store
from openclaw_rl.store.tables.effects import TaughtWish
from openclaw_rl.testing.folders import a_small_adapter, add_version
from openclaw_rl.testing.turns import a_sample, a_turn


async def ask(http: aiohttp.ClientSession, method: str, path: str, body: Json = None) -> tuple[int, dict[str, Json]]:
    async with http.request(method, path, json=body) as answer:
        found: dict[str, Json] = await answer.json()
        return answer.status, found


async def judged(store: Store, name: str, score: int, session: str = "owner:s") -> None:
    await store.add_turn(a_turn(name, session=session, user="owner"), chain=name, prefix=name)
    await store.pair(NextState(name, (message(Role.USER, "No, shorter."),), NextStateSource.USER))
    votes = (Vote("score", "boxed", score),)
    await store.judge(Verdict(name, score, VerdictSource.VOTES, votes=votes))


async def test_learning_at_a_glance_is_one_answer(http: aiohttp.ClientSession, store: Store) -> None:
    await judged(store, "a", -1)
    status, found = await ask(http, "GET", "/v1/rl/learning")
    assert status == 200 and found["learned"] == [] and found["model"] == "tiny" and found["carry"] == "weights"
    assert isinstance(found["weeks"], list) and len(found["weeks"]) == 8
    assert found["asked_twice"] == {"again": 0, "of": 0}
    assert found["spent"] == {"steps": 0, "seconds": 0.0, "tokens": 0.0}
    assert isinstance(found["versions"], list) and found["frozen_since"] is None


def _wish(again: int = 0, *, words: str = "Shorter!", since: int = 9) -> TaughtWish:
    return TaughtWish("ann", "Be brief.", words, 1.0, PolicyVersion(SHARED, 1), ("a",), since=since, again=again)


def _row(number: int, *, is_current: bool = False) -> dict[str, Json]:
    return {"scope": SHARED, "number": number, "status": "live", "is_current": is_current}


TALKED: dict[str, Json] = {"ledger": {"main": 3}, "learns": True, "versions": []}


@pytest.mark.parametrize(
    ("found", "taught", "corrected", "said"),
    [
        ({}, [_wish()], 1, "Yes. It has learned “Shorter!”, and nobody had to ask for it again."),
        ({}, [_wish(words="No lists.")], 1, "Yes. It has learned “No lists”, and nobody had to ask for it again."),
        ({}, [_wish(2)], 1, "Yes. It has learned “Shorter!”, and it was asked for again since."),
        ({}, [_wish(since=0)], 1, "Yes. It has learned “Shorter!”, and nobody has reacted to a reply since."),
        ({}, [_wish(), _wish(2)], 1, "Yes. It has learned 2 wishes, the latest “Shorter!”. 1 of them was asked"),
        ({}, [_wish(), _wish()], 1, "Yes. It has learned 2 wishes, the latest “Shorter!”. None of them had"),
        ({}, [_wish(words="so long " * 30)], 1, f"Yes. It has learned “{'so long ' * 11}s…”, and nobody"),
        ({"frozen_since": 1.0}, [_wish()], 1, "Learning is paused by your order."),
        ({"learns": False}, [], 1, "No: the server was started without learning. What is said is stored only."),
        ({"ledger": {"main": 0}}, [], 0, "Not yet: nobody has talked to it."),
        ({}, [], 0, "Nothing to learn yet: no reply was corrected in the last weeks."),
        ({}, [], 2, "Not yet: nothing is learned so far from 2 corrections in the last weeks."),
        ({"versions": [_row(0, is_current=True), _row(1)]}, [], 2, "You went back to the base model: what later"),
        ({"versions": [_row(0), _row(1, is_current=True), _row(2)]}, [], 2, "You went back to version 1: what later"),
        ({"versions": [_row(0), _row(1, is_current=True)]}, [], 0, "Nothing to learn yet"),
        ({"not_stored": "the disk is full"}, [_wish()], 1, "No: what was said last could not be stored. The disk is"),
    ],
)
def test_the_first_sentence_says_whether_it_is_learning(
    found: dict[str, Json], taught: list[TaughtWish], corrected: int, said: str
) -> None:
    assert headline(TALKED | found, taught, corrected).startswith(said)


async def test_many_watchers_are_answered_by_one_look() -> None:
    now_s, made = [0.0], list[int]()
    remembered = Remembered(2.0, clock=lambda: now_s[0])

    async def make() -> bytes:
        made.append(len(made))
        now_s[0] += 0.5  # which is what it takes
        return str(len(made)).encode()

    assert await asyncio.gather(*(remembered.of(key, make) for key in "aaab")) == [b"1"] * 4
    now_s[0] += 4.9  # ten times what it took is 5 s
    assert await remembered.of("b", make) == b"1"
    now_s[0] += 0.2
    assert await remembered.of("b", make) == b"2" and await remembered.of("b", make) == b"2"
    now_s[0] += 200.0
    assert await remembered.of("b", make) == b"3"  # what is not in the store changes too


async def test_what_watchers_were_shown_is_dropped_when_something_is_forgotten(
    paged: Serving, http: aiohttp.ClientSession
) -> None:
    await ask(http, "GET", "/v1/rl/learning")
    assert "learning" in paged.parts.memory
    status, found = await ask(http, "POST", "/v1/rl/forget", {"turn": "a"})
    assert (status, found["id"]) == (200, "forgotten-1")
    assert paged.parts.memory == {}


async def test_conversations_are_listed_searched_and_read_turn_by_turn(
    http: aiohttp.ClientSession, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("openclaw_rl.serve.control.conversations.LOOK_S", 60.0)  # on a busy machine a page ends early
    for at in range(3):
        await judged(store, f"t{at}", -1 if at else 1, session=f"owner:{at}")
        await store.add_turn(a_turn(f"u{at}", session=f"owner:{at}", user="owner"), chain=f"u{at}")
    _, found = await ask(http, "GET", "/v1/rl/conversations?limit=2")
    rows = found["conversations"]
    assert isinstance(rows, list) and len(rows) == 2 and isinstance(rows[0], dict) and rows[0]["turns"] == 2
    _, rest = await ask(http, "GET", f"/v1/rl/conversations?limit=2&before={found['before']}")
    assert isinstance(rest["conversations"], list) and len(rest["conversations"]) == 1 and rest["before"] is None
    _, good = await ask(http, "GET", "/v1/rl/conversations?score=1")
    assert isinstance(good["conversations"], list)
    assert [row["id"] for row in good["conversations"] if isinstance(row, dict)] == ["owner:0"]
    for kind, many in (("talk", 3), ("attempt", 0)):
        _, of_kind = await ask(http, "GET", f"/v1/rl/conversations?kind={kind}")
        assert isinstance(of_kind["conversations"], list) and len(of_kind["conversations"]) == many
    status, one = await ask(http, "GET", "/v1/rl/conversations/owner%3A1?limit=1")
    assert isinstance(one["turns"], list) and isinstance(one["turns"][0], dict)
    assert (status, one["turns"][0]["id"], one["before"]) == (200, "u1", "u1")
    _, older = await ask(http, "GET", "/v1/rl/conversations/owner%3A1?limit=5&before=u1")
    assert isinstance(older["turns"], list) and isinstance(older["turns"][0], dict)
    turn = older["turns"][0]
    assert (turn["id"], turn["asked"], turn["score"], older["before"]) == ("t1", "What is 2 + 2?", -1, None)
    assert "messages" not in turn  # the whole request stands in every turn again


@pytest.mark.parametrize(
    ("path", "param"),
    [
        ("conversations?limit=0", "limit"),
        ("conversations?limit=201", "limit"),
        ("conversations?score=2", "score"),
        ("conversations?state=lost", "state"),
        ("conversations?kind=dream", "kind"),
        ("conversations?before=yesterday", "before"),
        (f"conversations?q={'q' * 201}", "q"),
        ("overruled?before=x", "before"),
        ("overruled?limit=x", "limit"),
    ],
)
async def test_bad_questions_are_answered_with_what_to_send(http: aiohttp.ClientSession, path: str, param: str) -> None:
    status, found = await ask(http, "GET", f"/v1/rl/{path}")
    assert isinstance(found["error"], dict)
    assert (status, found["error"]["param"]) == (400, param) and found["error"]["fix"]


async def test_a_conversation_and_a_turn_that_are_not_there_are_404(http: aiohttp.ClientSession) -> None:
    assert (await ask(http, "GET", "/v1/rl/conversations/nobody"))[0] == 404
    assert (await ask(http, "PUT", "/v1/rl/turns/nobody/verdict", {"score": 1}))[0] == 404
    assert (await ask(http, "POST", "/v1/rl/turns/nobody/exclude"))[0] == 404


async def test_the_owners_word_takes_the_judges_place_and_both_are_given_as_training_data(
    http: aiohttp.ClientSession, store: Store
) -> None:
    await judged(store, "a", 1)
    status, told = await ask(http, "PUT", "/v1/rl/turns/a/verdict", {"score": -1, "hints": [" Be brief. "]})
    assert (status, told["is_learned_from"], told["hints"]) == (200, True, ["Be brief."])
    _, turn = await ask(http, "GET", "/v1/rl/turns/a")
    assert isinstance(turn["verdict"], dict) and isinstance(turn["explained"], list)
    assert (turn["state"], turn["score"], turn["verdict"]["source"]) == ("judged", -1, "owner")
    assert "judged -1 by its owner, in the judge's place, with 1 accepted hints" in turn["explained"]
    assert isinstance(turn["overruled"], list) and len(turn["overruled"]) == 1
    _, kept = await ask(http, "GET", "/v1/rl/overruled?limit=5")
    assert isinstance(kept["overruled"], list) and isinstance(kept["overruled"][0], dict)
    said = kept["overruled"][0]
    assert (said["asked"], said["reply"], said["next_state"]) == ("What is 2 + 2?", "4", "No, shorter.")
    assert (said["score"], said["judged"], said["by"]) == (-1, {"score": 1, "hints": []}, "owner")


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"score": 2},
        {"score": "good"},
        {"score": 1, "hints": [" "]},
        {"score": 1, "hints": ["a"] * 9},
        {"score": 1, "hints": ["h" * 4097]},
        {"score": 1, "hints": "text"},
    ],
)
async def test_a_verdict_that_is_none_is_refused(http: aiohttp.ClientSession, store: Store, body: Json) -> None:
    await judged(store, "a", 1)
    assert (await ask(http, "PUT", "/v1/rl/turns/a/verdict", body))[0] == 400
    assert await store.overrules.newest(limit=5) == []


async def test_a_turn_is_left_out_and_taken_back_by_a_verdict(http: aiohttp.ClientSession, store: Store) -> None:
    await judged(store, "a", -1)
    assert await ask(http, "POST", "/v1/rl/turns/a/exclude") == (200, {"turn": "a", "excluded": True})
    assert await ask(http, "POST", "/v1/rl/turns/a/exclude") == (200, {"turn": "a", "excluded": False})
    _, turn = await ask(http, "GET", "/v1/rl/turns/a")
    assert (turn["state"], turn["reason"]) == ("dropped", "excluded")
    await ask(http, "PUT", "/v1/rl/turns/a/verdict", {"score": 1})
    assert (await ask(http, "GET", "/v1/rl/turns/a"))[1]["state"] == "judged"


@pytest.mark.parametrize(
    ("reason", "state", "said"),
    [
        (DropReason.UNHEEDED, "judged", "the turn is judged as you say, and learned from as that"),
        (DropReason.EMPTY, "dropped", "the turn teaches nothing all the same: the answer was empty"),
    ],
)
async def test_a_dropped_turn_is_judged_anew_or_says_why_not(
    http: aiohttp.ClientSession, store: Store, reason: DropReason, state: str, said: str
) -> None:
    await judged(store, "a", -1)
    await store.drop("a", reason)
    _, told = await ask(http, "PUT", "/v1/rl/turns/a/verdict", {"score": -1, "hints": ["Be brief."]})
    assert str(told["said"]).endswith(said)
    assert (await ask(http, "GET", "/v1/rl/turns/a"))[1]["state"] == state


async def test_keys_are_the_owners_own_to_make(paged: Serving, http: aiohttp.ClientSession) -> None:
    assert await ask(http, "POST", "/v1/rl/keys", {"name": "ann", "rights": ["chat"]}) == (
        200,
        {"name": "ann", "key": "sk-ann"},
    )
    assert await ask(http, "GET", "/v1/rl/keys") == (200, {"keys": [{"name": "ann"}], "may_change": True})
    assert (await ask(http, "POST", "/v1/rl/keys", {"name": "ann", "rights": ["everything"]}))[0] == 400
    async with aiohttp.ClientSession(paged.url, headers={"Authorization": "Bearer clerks"}) as clerk:
        assert (await ask(clerk, "GET", "/v1/rl/keys"))[1]["may_change"] is False
        assert (await ask(clerk, "POST", "/v1/rl/keys", {"name": "eve", "rights": ["admin"]}))[0] == 403
        assert (await ask(clerk, "DELETE", "/v1/rl/keys/ann"))[0] == 403
    assert (await ask(http, "DELETE", "/v1/rl/keys/ann"))[0] == 200
    assert (await ask(http, "GET", "/v1/rl/keys"))[1]["keys"] == []


async def test_events_come_when_something_changed(http: aiohttp.ClientSession, store: Store) -> None:
    async with asyncio.timeout(20), http.get("/v1/rl/events") as stream:
        assert stream.content_type == "text/event-stream"
        first = await _event(stream)
        await store.add_turn(a_turn("t"), chain="t")
        then = await _event(stream)
        assert then["turns"] == 1 and then != first


async def test_an_event_says_that_nothing_can_be_stored_and_another_that_it_can_again(
    http: aiohttp.ClientSession, store: Store
) -> None:
    async def pages(number: str) -> None:
        await store._writer.alone(lambda sql: sql.execute(f"PRAGMA max_page_count={number}"))

    async with asyncio.timeout(20), http.get("/v1/rl/events") as stream:
        assert (await _event(stream))["not_stored"] == ""
        await pages("1")  # no more than there are
        with pytest.raises(DiskError):
            await store.add_turn(a_turn("t", reply="long " * 30_000), chain="t")
        assert "the disk is full" in str((await _event(stream))["not_stored"])
        _, found = await ask(http, "GET", "/v1/rl/learning")
        assert str(found["headline"]).startswith("No: what was said last could not be stored.")
        await pages("1000000")
        await store.add_turn(a_turn("t"), chain="t")
        assert (await _event(stream))["not_stored"] == ""


async def _event(stream: aiohttp.ClientResponse) -> dict[str, Json]:
    assert (await stream.content.readline()) == b"event: changed\n"
    line = await stream.content.readline()
    assert (await stream.content.readline()) == b"\n"
    found: dict[str, Json] = json.loads(line.removeprefix(b"data: "))
    return found


async def test_hints_say_what_they_cost_and_which_may_contradict_each_other(http: aiohttp.ClientSession) -> None:
    texts = ("End each answer with a short question.", "Do not ask a question back unless something is unclear to you.")
    names = [str((await ask(http, "PUT", "/v1/rl/hints", {"text": text}))[1]["id"]) for text in (*texts, "Be kind.")]
    _, found = await ask(http, "GET", "/v1/rl/hints")
    rows = {str(row["id"]): row for row in found["hints"] if isinstance(row, dict)}  # type: ignore[union-attr]
    assert (rows[names[0]]["opposes"], rows[names[1]]["opposes"]) == ([names[1]], [names[0]])
    assert rows[names[2]]["opposes"] == [] and found["carry"] == "weights"
    cost, least = rows[names[2]]["tokens"], rows[names[0]]["tokens"]
    assert isinstance(cost, int) and isinstance(least, int) and 0 < cost < least
    await ask(http, "PUT", f"/v1/rl/hints/{names[1]}", {"state": "retired"})
    _, found = await ask(http, "GET", "/v1/rl/hints")
    assert all(row["opposes"] == [] for row in found["hints"] if isinstance(row, dict))  # type: ignore[union-attr]


async def test_runs_are_shared_out_over_time_and_broken_ones_have_no_outcome(http: aiohttp.ClientSession) -> None:
    assert await ask(http, "GET", "/v1/rl/runs") == (200, {"runs": []})
    for at in range(30):
        _, made = await ask(http, "POST", "/v1/rl/episodes", {"task": f"t{at % 2}", "environment": "tools"})
        ended: Json = {"failure": "infrastructure"} if at == 29 else {"outcome": float(at >= 15)}
        await ask(http, "POST", f"/v1/rl/episodes/{made['id']}/end", ended)
    _, found = await ask(http, "GET", "/v1/rl/runs")
    runs = {str(run["task"]): run["shares"] for run in found["runs"] if isinstance(run, dict)}  # type: ignore[union-attr]
    assert runs.keys() == {"", "t0", "t1"}
    whole = [share for share in runs[""] if isinstance(share, dict)]  # type: ignore[union-attr]
    assert [share["attempts"] for share in whole] == [2] * 15
    assert [share["mean"] for share in whole] == [0.0] * 7 + [0.5] + [1.0] * 7
    assert [share["failed"] for share in whole] == [0] * 14 + [1]


async def test_a_version_says_from_which_turns_it_learned_and_a_hint_which_version_learned_it(
    tmp_path: Path, http: aiohttp.ClientSession, store: Store
) -> None:
    await store.add_turn(turn := a_turn("a", user="owner"), chain="a")
    await store.pair(NextState("a", (message(Role.USER, "No, shorter."),), NextStateSource.USER))
    await store.judge(Verdict("a", -1, VerdictSource.VOTES, hints=(Hint("Be brief."),)))
    await store.admit(a_sample(turn))
    for wish in ("Be brief.", "Be kind."):
        await ask(http, "PUT", "/v1/rl/hints", {"text": wish})
    await add_version(store, tmp_path, 1, a_small_adapter, ("a",))
    await store.set_current(PolicyVersion(SHARED, 1), why="")
    _, found = await ask(http, "GET", "/v1/rl/versions/shared.1")
    assert isinstance(found["turns"], list) and isinstance(found["turns"][0], dict)
    line = found["turns"][0]
    assert (line["asked"], line["next_state"], line["score"]) == ("What is 2 + 2?", "No, shorter.", -1)
    assert (found["more"], line["is_step"]) == (0, False)
    assert (await ask(http, "GET", "/v1/rl/versions/shared.9"))[0] == 404
    _, listed = await ask(http, "GET", "/v1/rl/versions?learned=true")
    assert isinstance(listed["versions"], list) and isinstance(listed["versions"][-1], dict)
    assert (listed["versions"][-1]["from"], listed["versions"][-1]["learned"]) == ({"corrected": 1}, ["Be brief."])
    _, kept = await ask(http, "GET", "/v1/rl/hints")
    assert isinstance(kept["hints"], list)
    learners = {hint["text"]: hint["learned_by"] for hint in kept["hints"] if isinstance(hint, dict)}
    assert learners == {"Be brief.": "shared.1", "Be kind.": None}
