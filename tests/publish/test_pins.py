"""A pinned version is served whatever is trained; training goes on behind it."""

from __future__ import annotations

from pathlib import Path

import pytest
from publish_doubles import Flow, cut_weights, flowing, letters, turn, version

from openclaw_rl.core.message import Role, message
from openclaw_rl.core.version import SHARED
from openclaw_rl.errors import AdapterError, ConfigError
from openclaw_rl.publish.compare import Comparison
from openclaw_rl.publish.swap import pin, rollback, unpin
from openclaw_rl.store.rows import VersionStatus


async def test_what_is_trained_behind_a_pin_passes_the_gate_is_not_served_and_is_gone_on_from(flow: Flow) -> None:
    await flow.publish(1, 2)
    await pin(flow.store, version(1), served=flow.served, at_s=1.0)
    assert flow.served.current() == version(1)
    for number in (3, 4):
        await flow.candidate(number)
        assert await flow.stage.once()
        row = await flow.row(number)
        assert row.status is VersionStatus.LIVE
        assert row.why == "passed the gate: no prompts to try it on yet; not served, since shared.1 is pinned"
        assert flow.served.current() == await flow.store.current(SHARED) == version(1)
    assert (flow.stage.status.pinned, flow.stage.status.published) == ("shared.1", 2)
    with pytest.raises(ConfigError, match=r"shared\.1 is pinned"):
        await rollback(flow.store, version(2), served=flow.served)
    assert await unpin(flow.store, SHARED, served=flow.served) == version(4)
    assert flow.served.current() == await flow.store.current(SHARED) == version(4)
    with pytest.raises(ConfigError, match="no version of shared is pinned"):
        await unpin(flow.store, SHARED, served=flow.served)


async def test_a_pin_holds_after_a_restart(tmp_path: Path) -> None:
    async with flowing(tmp_path) as flow:
        await flow.publish(1, 2)
        await pin(flow.store, version(0), served=flow.served, at_s=1.0)
    async with flowing(tmp_path) as again:
        await again.stage.start()
        assert again.served.current() == version(0)
        await again.candidate(3)
        assert await again.stage.once()
        assert again.served.current() == version(0)
        assert await unpin(again.store, SHARED, served=again.served) == version(3)


async def test_what_cannot_be_served_cannot_be_pinned(flow: Flow, tmp_path: Path) -> None:
    await flow.publish(1, 2, 3)
    cut_weights(tmp_path, version(1))
    with pytest.raises(AdapterError, match="truncated"):
        await pin(flow.store, version(1), served=flow.served, at_s=1.0)
    with pytest.raises(ConfigError, match=r"there is no version shared\.9"):
        await pin(flow.store, version(9), served=flow.served, at_s=1.0)
    assert (await flow.store.orders.pins(), flow.served.current()) == ({}, version(3))


async def test_two_versions_answer_the_same_prompts_and_what_was_loaded_for_it_is_let_go(flow: Flow) -> None:
    flow.minds.says = {version(1): "One.$", version(3): "Three.$"}
    await flow.publish(1, 2, 3)
    assert version(1) not in flow.engine.loaded
    await flow.talk(turn("a", "Who?"), turn("b", "Who?"), turn("c", "What?"))
    comparison = Comparison(flow.store, flow.engine, letters(), flow.served, (ord("$"),))
    found = await comparison.of([version(1), version(3)], [], max_tokens=20)
    assert [(one.asked[-1].text, one.answers) for one in found] == [
        ("What?", ("One.", "Three.")),
        ("Who?", ("One.", "Three.")),
    ]
    given = await comparison.of([version(0), version(2)], [(message(Role.USER, "How?"),)], max_tokens=20)
    assert given[0].is_same
    assert flow.engine.loaded == [version(2), version(3)]
    with pytest.raises(ConfigError, match=r"there is no version shared\.9"):
        await comparison.of([version(9)], [], max_tokens=20)
