"""Episodes over HTTP: begun, reported, ended, listed; and what is refused, with what to do instead."""

from __future__ import annotations

from dataclasses import replace

import aiohttp
import pytest
from serve_doubles import Serving

from openclaw_rl.core.episode import EpisodeStep
from openclaw_rl.core.message import Json
from openclaw_rl.core.version import BASE
from openclaw_rl.store.db import Store
from openclaw_rl.testing.turns import a_turn

KEY = {"Authorization": "Bearer secret"}
PATH = "/v1/rl/episodes"


async def ask(http: aiohttp.ClientSession, method: str, path: str, body: Json = None) -> tuple[int, dict[str, Json]]:
    async with http.request(method, path, json=body) as answer:
        found: dict[str, Json] = await answer.json()
        return answer.status, found


async def test_an_episode_is_begun_reported_ended_and_shown(
    server: Serving, http: aiohttp.ClientSession, store: Store
) -> None:
    begun: Json = {"task": "pens", "group": "g", "group_size": 4, "seed": 3, "environment": "terminal"}
    status, made = await ask(http, "POST", PATH, begun)
    assert status == 200 and made["state"] == "open" and made["seed"] == 3
    name = str(made["id"])
    step = EpisodeStep(name, 0, "terminal")
    await store.add_turn(replace(a_turn("t", session=name, version=BASE), step=step), chain="t")
    reported: Json = {"step": 0, "score": -0.5, "observation": "exit status 2"}
    assert await ask(http, "POST", f"{PATH}/{name}/steps", reported) == (200, {"id": name, "step": 0, "turns": ["t"]})
    status, ended = await ask(http, "POST", f"{PATH}/{name}/end", {"outcome": 1.0, "why": "4 tests passed"})
    assert (status, ended["outcome"], ended["failure"], ended["steps"]) == (200, 1.0, "none", 1)
    _, listed = await ask(http, "GET", f"{PATH}?state=ended&task=pens&limit=1")
    assert listed == {"episodes": [ended], "before": name}
    assert (await ask(http, "GET", f"{PATH}?before={name}"))[1]["episodes"] == []
    _, shown = await ask(http, "GET", f"{PATH}/{name}")
    assert isinstance(shown["turns"], list) and isinstance(shown["turns"][0], dict)
    turn = shown["turns"][0]
    assert (turn["turn"], turn["score"], turn["shown"], turn["state"]) == ("t", -0.5, "exit status 2", "judged")
    _, told = await ask(http, "GET", "/v1/rl/turns/t")
    assert told["episode"] == {"id": name, "step": 0, "observation": "terminal", "score": -0.5}
    assert isinstance(told["explained"], list)
    assert told["explained"][-2:] == ["judged by its episode's outcome", "it waits for the other episodes of its group"]


@pytest.mark.parametrize(
    ("path", "body", "status", "said"),
    [
        ("", {}, 400, "task"),
        ("", {"task": ""}, 400, "an episode has an id and a task"),
        ("", {"task": "pens", "group_size": 0}, 400, "group_size is 0"),
        ("", {"task": "p" * 201}, 400, "task has 201 characters"),
        ("/nobody/end", {"outcome": 1}, 404, "there is no episode"),
        ("/open/end", {}, 400, "an episode without a failure has an outcome"),
        ("/open/end", {"outcome": 1, "failure": "luck"}, 400, "failure is 'luck'"),
        ("/open/steps", {"step": 0, "score": 1}, 404, "has taken no step 0"),
        ("/open/steps", {"step": -1}, 400, "step is -1"),
        ("/over/end", {"outcome": 0}, 409, "has ended already"),
        ("/over/steps", {"step": 0, "score": 1}, 409, "has ended"),
    ],
)
async def test_what_cannot_be_is_refused_in_words(
    http: aiohttp.ClientSession, path: str, body: Json, status: int, said: str
) -> None:
    for name in ("open", "over"):
        assert (await ask(http, "POST", PATH, {"id": name, "task": "pens"}))[0] == 200
    assert (await ask(http, "POST", f"{PATH}/over/end", {"outcome": 1}))[0] == 200
    got, answer = await ask(http, "POST", f"{PATH}{path}", body)
    assert got == status and isinstance(answer["error"], dict) and said in str(answer["error"]["message"])


async def test_an_unknown_state_or_episode_is_refused(http: aiohttp.ClientSession) -> None:
    assert (await ask(http, "GET", f"{PATH}?state=lost"))[0] == 400
    assert (await ask(http, "GET", f"{PATH}/nobody"))[0] == 404
