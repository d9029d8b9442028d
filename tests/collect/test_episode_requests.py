"""A chat request says which step of which episode it is, and what it shows follows the step before."""

from __future__ import annotations

import pytest
from conversation import Served, reply, user

from openclaw_rl.core.episode import EpisodeEnd, EpisodeStep
from openclaw_rl.core.message import Json
from openclaw_rl.core.next_state import NextStateSource
from openclaw_rl.core.turn import TurnKind
from openclaw_rl.errors import RequestError

EPISODE = {"X-Episode-Id": "e1", "X-Episode-Task": "pens", "X-Episode-Group": "g", "X-Episode-Group-Size": "4"}


async def test_headers_begin_an_episode_and_count_its_steps(served: Served) -> None:
    first, placed = await served.ask("find the pens", "ls", headers=EPISODE | {"X-Episode-Seed": "7"})
    assert placed.step == EpisodeStep("key:e1", 0) and placed.session == "key:e1"
    assert placed.kind is TurnKind.MAIN and placed.why.startswith("main: it is a step of an episode; ")
    talk = [user("find the pens"), reply("ls"), user("no such file")]
    second, after = await served.ask(talk, "cd", headers={"X-Episode-Id": "e1", "X-Episode-Observation": "terminal"})
    assert after.step == EpisodeStep("key:e1", 1, "terminal")
    row = await served.store.row(first.id)
    assert row is not None and row.next_state is not None
    assert (row.next_state.text, row.next_state.source) == ("no such file", NextStateSource.ENVIRONMENT)
    held = await served.store.episodes.get("key:e1")
    assert held is not None and (held.episode.group_size, held.episode.seed) == (4, 7)
    assert [step.turn for step in held.steps] == [first.id, second.id]


async def test_the_body_says_the_same_and_a_full_name_stays_as_it_is(served: Served) -> None:
    facts: dict[str, Json] = {"episode": {"id": "key:e2", "task": "nuts", "step": 3, "observation": "tool"}}
    _, placed = await served.ask("go", facts=facts)
    assert placed.step == EpisodeStep("key:e2", 3, "tool") and placed.session == "key:e2"
    _, named = await served.ask("go", facts=facts, headers={"X-Session-Id": "mine"})
    assert named.session == "key:mine" and named.step == EpisodeStep("key:e2", 3, "tool")


async def test_where_every_step_has_a_prompt_of_its_own_what_it_shows_still_follows_the_step_before(
    served: Served,
) -> None:
    first, _ = await served.ask("state one", "left", headers=EPISODE)
    again, placed = await served.ask("state one", "right", headers=EPISODE)  # asked again: the same step
    assert placed.step == EpisodeStep("key:e1", 0)
    _, after = await served.ask("state two", "up", headers=EPISODE)
    assert after.step == EpisodeStep("key:e1", 1)
    rows = [await served.store.row(turn.id) for turn in (first, again)]
    shown = [row.next_state.text if row is not None and row.next_state is not None else None for row in rows]
    assert shown == [None, "state two"]  # the newest of two answers is the one that was acted on


async def test_a_side_request_of_an_episode_is_no_step(served: Served) -> None:
    _, placed = await served.ask("name this", headers=EPISODE | {"X-Turn-Type": "side"})
    assert placed.kind is TurnKind.SIDE and placed.step is None
    assert await served.store.episodes.page(limit=9) == []


@pytest.mark.parametrize(
    ("headers", "facts", "status", "said"),
    [
        ({"X-Episode-Id": "unknown"}, {}, 404, "there is no episode key:unknown"),
        (EPISODE | {"X-Episode-Step": "two"}, {}, 400, "episode.step is 'two'"),
        (EPISODE | {"X-Episode-Group-Size": "0"}, {}, 400, "episode.group_size is 0"),
        ({}, {"episode": "e1"}, 400, "episode is not an object"),
        ({}, {"episode": {"id": "e1", "task": ["a"]}}, 400, "episode.task is"),
        ({"X-Episode-Id": "over", "X-Episode-Task": "pens"}, {}, 409, "episode key:over has ended"),
        ({"X-Episode-Id": "over", "X-Episode-Task": "nuts"}, {}, 409, "exists already"),
        ({"X-Episode-Id": "theirs", "X-User-Id": "bob"}, {}, 409, "belongs to user key"),
    ],
)
async def test_what_is_no_step_is_refused_in_words(
    served: Served, headers: dict[str, str], facts: dict[str, Json], status: int, said: str
) -> None:
    await served.ask("go", headers={"X-Episode-Id": "over", "X-Episode-Task": "pens"})
    await served.ask("go", headers={"X-Episode-Id": "theirs", "X-Episode-Task": "pens"})
    await served.store.episodes.end("key:over", EpisodeEnd(1.0), at_s=1.0)
    with pytest.raises(RequestError, match=said) as problem:
        await served.ask("go", headers=headers, facts=facts)
    assert problem.value.status == status and problem.value.fix
