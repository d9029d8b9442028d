"""Feedback, sessions, turns, versions and the way back, over HTTP."""

from __future__ import annotations

import aiohttp
import pytest
from serve_doubles import VERSION, Serving, serving

from openclaw_rl.core.hint import Hint
from openclaw_rl.core.message import Role, message
from openclaw_rl.core.next_state import NextState, NextStateSource
from openclaw_rl.core.sample import HintPrompt, Sample, SampledReply
from openclaw_rl.core.verdict import Verdict, VerdictSource
from openclaw_rl.core.version import BASE, PolicyVersion
from openclaw_rl.render.renderer import ChatRenderer
from openclaw_rl.store.db import Store
from openclaw_rl.store.rows import StepRecord, VersionRow, VersionStatus

KEY = {"Authorization": "Bearer secret"}


async def _talk(server: Serving, http: aiohttp.ClientSession, session: str = "s") -> str:
    server.says("hello")
    body = {"messages": [{"role": "user", "content": "hi"}]}
    async with http.post("/v1/chat/completions", json=body, headers={"X-Session-Id": session}) as answer:
        return str((await answer.json())["id"])


async def test_feedback_names_a_response_or_the_newest_turn_of_a_session(
    server: Serving, http: aiohttp.ClientSession
) -> None:
    first = await _talk(server, http)
    await _talk(server, http)
    async with http.post("/v1/feedback", json={"response_id": first, "score": -1, "text": "too long"}) as answer:
        assert answer.status == 200
    async with http.post("/v1/feedback", json={"session_id": "s", "score": 1}) as answer:
        assert answer.status == 200
    turns = [turn.id for turn in server.book.turns]
    assert [(item.turn, item.score, item.text) for item in server.feedback] == [
        (turns[0], -1, "too long"),
        (turns[1], 1, None),
    ]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"score": 1}, 400),
        ({"score": 2, "session_id": "s"}, 400),
        ({"session_id": "s"}, 400),
        ({"score": 1, "session_id": "nobody"}, 404),
        ({"score": 1, "response_id": "chatcmpl-nothing"}, 404),
    ],
)
async def test_feedback_that_names_nothing_is_refused(
    server: Serving, http: aiohttp.ClientSession, body: dict[str, object], status: int
) -> None:
    async with http.post("/v1/feedback", json=body) as answer:
        assert answer.status == status
    assert not server.feedback


async def test_nobody_gives_feedback_on_somebody_elses_turn(renderer: ChatRenderer, store: Store) -> None:
    async with serving(renderer, store, keys={"alice": "secret", "bob": "other"}) as server:
        async with aiohttp.ClientSession(server.url, headers=KEY) as http:
            name = await _talk(server, http)
        async with aiohttp.ClientSession(server.url, headers={"x-api-key": "other"}) as http:
            for body in ({"response_id": name, "score": -1}, {"session_id": "s", "score": -1}):
                async with http.post("/v1/feedback", json=body) as answer:
                    assert answer.status == 404
        assert not server.feedback


async def test_a_session_is_ended_by_path_or_by_header(server: Serving, http: aiohttp.ClientSession) -> None:
    async with http.post("/v1/sessions/abc/done") as answer:
        assert answer.status == 200
    async with http.post("/v1/rl/session_done", headers={"X-Session-Id": "xyz"}) as answer:
        assert answer.status == 200
    async with http.post("/v1/rl/session_done") as answer:
        assert answer.status == 400
    assert [session for session, _ in server.ended] == ["alice:abc", "alice:xyz"]


async def test_turns_are_listed_newest_first_and_paged(server: Serving, http: aiohttp.ClientSession) -> None:
    names = [(await _talk(server, http, f"s{index % 2}")).removeprefix("chatcmpl-") for index in range(5)]
    async with http.get("/v1/rl/turns", params={"limit": "2"}) as answer:
        page = await answer.json()
    assert [row["id"] for row in page["turns"]] == names[:2:-1]
    async with http.get("/v1/rl/turns", params={"limit": "4", "before": page["before"]}) as answer:
        rest = await answer.json()
    assert [row["id"] for row in rest["turns"]] == names[2::-1] and rest["before"] is None
    async with http.get("/v1/rl/turns", params={"session": "s1"}) as answer:
        assert [row["id"] for row in (await answer.json())["turns"]] == [names[3], names[1]]
    async with http.get("/v1/rl/turns", params={"state": "nonsense"}) as answer:
        assert answer.status == 400
    async with http.get("/v1/rl/turns", params={"limit": "0"}) as answer:
        assert answer.status == 400


async def test_a_turn_shows_all_that_is_known_of_it(server: Serving, http: aiohttp.ClientSession) -> None:
    name = await _talk(server, http)
    async with http.get(f"/v1/rl/turns/{name}") as answer:
        body = await answer.json()
    assert body["id"] == name.removeprefix("chatcmpl-")
    assert body["messages"] == [{"role": "user", "content": "hi"}]
    assert body["reply"]["content"] == "hello"
    assert (body["kind"], body["why"], body["state"], body["reason"]) == ("main", "test", "served", None)
    assert body["version"] == str(VERSION) and body["session"] == "alice:s" and body["user"] == "alice"
    assert body["next_state"] is None and body["verdict"] is None and body["step"] is None and body["lesson"] is None
    async with http.get("/v1/rl/turns/nothing") as answer:
        assert answer.status == 404


async def test_a_turn_shows_what_it_was_made_into(
    server: Serving, http: aiohttp.ClientSession, renderer: ChatRenderer, store: Store
) -> None:
    name = (await _talk(server, http)).removeprefix("chatcmpl-")
    turn = await store.turn(name)
    assert turn is not None
    said = renderer.encode("Hello friend!")
    await store.pair(NextState(name, (message(Role.USER, "Greet me."),), NextStateSource.USER))
    await store.judge(Verdict(name, -1, VerdictSource.VOTES, hints=(Hint("Greet the user."),)))
    hints = (HintPrompt("Greet the user.", turn.prompt.tokens),)
    completion = turn.completion
    sample = Sample(
        name, turn.session, turn.user, turn.prompt.tokens, completion.tokens, completion.logp,
        (True,) * len(completion.tokens), completion.version, score=-1.0, hints=hints,
        shown=(SampledReply(said, (-0.5,) * len(said), BASE),),
    )  # fmt: skip
    await store.admit(sample)
    async with http.get(f"/v1/rl/turns/{name}") as answer:
        lesson = (await answer.json())["lesson"]
    assert lesson["explained"] == "the teacher reads the hint after the request, and shows 1 reply of its own"
    assert lesson["hints"] == ["Greet the user."] and lesson["score"] == -1.0 and lesson["own"] is None
    assert lesson["shown"] == [{"reply": {"role": "assistant", "content": "Hello friend!"}, "version": "shared.0"}]


async def test_versions_are_listed_and_one_can_be_served_again(server: Serving, http: aiohttp.ClientSession) -> None:
    async with http.get("/v1/rl/versions") as answer:
        body = await answer.json()
    assert body["versions"][0]["version"] == "shared.0" and body["versions"][0]["is_current"]
    async with http.post("/v1/rl/rollback", json={"version": 0}) as answer:
        assert answer.status == 200
    assert [str(version) for version in server.rolled] == ["shared.0"]
    for version, status in ((7, 404), ("nonsense", 400), (None, 400)):
        async with http.post("/v1/rl/rollback", json={"version": version}) as answer:
            assert answer.status == status


async def test_versions_are_read_page_by_page(http: aiohttp.ClientSession, store: Store) -> None:
    for number in range(1, 6):
        made, parent = PolicyVersion("shared", number), PolicyVersion("shared", number - 1)
        row = VersionRow(made, parent, None, "d", VersionStatus.CANDIDATE, "", 1.0)
        await store.commit_step(StepRecord(f"step {number}", 1.0, 2.0, (), (), {}, row))
        await store.settle(made, VersionStatus.LIVE, "passed", {})
    await store.set_current(PolicyVersion("shared", 1), why="rolled back")
    pages, query = [], "limit=2"
    while query:
        async with http.get(f"/v1/rl/versions?{query}") as answer:
            body = await answer.json()
        assert body["current"] == {"shared": "shared.1"}
        pages.append([row["number"] for row in body["versions"]])
        query = f"limit=2&before={body['before']}" if body["before"] else ""
    assert pages == [[4, 5], [2, 3], [0, 1]]
    async with http.get("/v1/rl/versions") as answer:
        body = await answer.json()
    assert ([row["number"] for row in body["versions"]], body["before"]) == ([0, 1, 2, 3, 4, 5], None)
    async with http.get("/v1/rl/versions?before=shared.99") as answer:
        assert (await answer.json())["versions"] == []
    for wrong in ("limit=0", "limit=501", "limit=x", "before=x"):
        async with http.get(f"/v1/rl/versions?{wrong}") as answer:
            assert answer.status == 400, wrong


async def test_models_health_and_status_answer(server: Serving, http: aiohttp.ClientSession) -> None:
    async with http.get("/v1/models") as answer:
        assert [item["id"] for item in (await answer.json())["data"]] == ["tiny", "default"]
    async with http.get("/v1/models/tiny") as answer:
        assert (await answer.json())["id"] == "tiny"
    async with http.get("/v1/models/other") as answer:
        assert answer.status == 404
    async with http.get("/healthz") as answer:
        assert (await answer.json())["status"] == "ok"
    async with http.get("/v1/rl/status") as answer:
        assert await answer.json() == {"turns": 0}
