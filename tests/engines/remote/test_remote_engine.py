"""Servers of vLLM and SGLang as one engine: what is asked of them, and what happens when one dies, lacks or lies."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path

import pytest
from remote_servers import KINDS, MODEL, PROMPT, a_server, engine_on, said

from openclaw_rl.core.adapter import WEIGHTS, Adapter, digest_of_folder
from openclaw_rl.core.prompt import Prompt, Segment
from openclaw_rl.core.sampling import Grammar, LogitAdjustment, Sampling
from openclaw_rl.core.version import BASE, SHARED, PolicyVersion
from openclaw_rl.engines.remote.client import patience_s, placed
from openclaw_rl.engines.remote.dialect import Dialect
from openclaw_rl.engines.remote.http import ServerHttp
from openclaw_rl.engines.remote.model import described
from openclaw_rl.engines.remote.replica import Replica
from openclaw_rl.engines.remote.vllm import MOST_TOGETHER, TOKENS, TokenRate, Vllm
from openclaw_rl.engines.settings import EngineKind, RemoteSettings
from openclaw_rl.errors import AdapterError, EngineError, RequestError
from openclaw_rl.testing.folders import an_adapter
from openclaw_rl.testing.model_servers import ModelServer


@pytest.mark.parametrize("kind", KINDS)
async def test_an_answer_whose_server_dies_goes_on_elsewhere_with_no_token_lost_or_said_twice(
    kind: EngineKind, tmp_path: Path
) -> None:
    servers = a_server(), a_server()
    async with engine_on(*servers, kind=kind) as engine:
        await engine.load(an_adapter(tmp_path, 1))
        for one in servers:
            one.breaks_after = 7  # whichever is asked first breaks off, and so does the next
        tokens = await said(engine, Sampling(30, seed=1), PolicyVersion(SHARED, 1))
        assert [token.token for token in tokens] == list(range(42, 72))
        assert {token.version.number for token in tokens} == {1}
        assert [token.finish is not None for token in tokens] == [False] * 29 + [True]
        assert sum(bool(one.asked) for one in servers) == 2


async def test_an_answer_that_a_format_holds_is_not_gone_on_with() -> None:
    server = a_server()
    async with engine_on(server) as engine:
        server.breaks_after = 3
        with pytest.raises(EngineError, match="a fixed format"):
            await said(engine, Sampling(9, grammar=Grammar("start: /x+/")))
        tokens = await said(engine, Sampling(4, grammar=Grammar("start: /x+/")))
        assert server.asked[-1]["structured_outputs"] == {"grammar": "start: /x+/"}
        assert all(token.is_forced and token.logp_masked == token.logp for token in tokens)  # they teach nothing
        with pytest.raises(RequestError, match="several parts"):
            await engine.check_grammar(Grammar('{"grammars": []}'))


async def test_a_server_that_comes_back_has_every_version_before_it_is_asked(tmp_path: Path) -> None:
    server = a_server()
    async with engine_on(server) as engine:
        await engine.load(an_adapter(tmp_path, 1))
        await engine.load(an_adapter(tmp_path, 2))
        before = set(server.adapters)
        server.adapters.clear()  # as one that was started again
        server.breaks_after = 2
        tokens = await said(engine, Sampling(5), PolicyVersion(SHARED, 2))
        assert [token.token for token in tokens] == list(range(42, 47))
        assert set(server.adapters) == before


async def test_an_answer_outlives_a_server_whose_engine_died_before_it() -> None:
    servers = a_server(), a_server()
    async with engine_on(*servers) as engine:
        for said_before in (3, 0):  # in the middle of an answer, and in place of one
            for one in servers:
                one.dies_after, one.is_dead = said_before, False
            first, _ = await asyncio.gather(said(engine, Sampling(10)), revived(*servers))
            assert [token.token for token in first] == list(range(42, 52))


async def revived(*servers: ModelServer) -> None:
    """Once all are dead, one is started again."""
    while not all(one.is_dead for one in servers):  # noqa: ASYNC110  it is the servers that change
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.2)
    servers[0].is_dead = False


async def test_a_version_is_served_once_every_server_has_it_and_where_one_refuses_none_has(tmp_path: Path) -> None:
    small, large = a_server(), a_server()
    async with engine_on(small, large) as engine:
        small.most_rank = 2
        with pytest.raises(AdapterError, match="max_lora_rank 2") as refused:
            await engine.load(an_adapter(tmp_path, 1))
        assert "--max-lora-rank" in refused.value.fix
        assert not small.adapters and not large.adapters
        with pytest.raises(EngineError, match="not loaded"):
            await said(engine, Sampling(1), PolicyVersion(SHARED, 1))
        small.most_rank = 64
        await engine.load(an_adapter(tmp_path, 1))
        assert len(small.adapters) == len(large.adapters) == 1
        await engine.unload(PolicyVersion(SHARED, 1))
        await asyncio.sleep(0.1)
        assert not small.adapters and not large.adapters


async def test_other_weights_under_the_same_number_are_another_adapter(tmp_path: Path) -> None:
    server = a_server()
    async with engine_on(server) as engine:
        await engine.load(an_adapter(tmp_path, 1))
        (tmp_path / "1" / WEIGHTS).write_bytes(b"others")
        await engine.load(Adapter(tmp_path / "1", digest_of_folder(tmp_path / "1"), PolicyVersion(SHARED, 1)))
        await said(engine, Sampling(1), PolicyVersion(SHARED, 1))
        assert len({*server.adapters}) == 2  # and so no cached prompt of the one is read for the other
        assert server.asked[-1]["model"] == list(server.adapters)[-1]


async def test_what_was_read_is_found_by_no_later_prompt_after_a_flush() -> None:
    server = a_server()
    async with engine_on(server) as engine:
        await said(engine, Sampling(1))
        await engine.flush()
        await said(engine, Sampling(1))
        assert server.flushed == 1
        assert server.asked[-1]["cache_salt"] != server.asked[-2]["cache_salt"]


async def test_biases_and_cuts_are_sent_as_they_are() -> None:
    server = a_server()
    async with engine_on(server) as engine:
        leaning = LogitAdjustment(((7, -2.0),), 0.5, 0.25, 1.1)
        await said(engine, Sampling(2, 0.7, 0.9, 5, 0.1, 11, 2, (99,), leaning=leaning))
        sent = server.asked[-1]
    wanted = {
        "temperature": 0.7, "top_p": 0.9, "top_k": 5, "min_p": 0.1, "seed": 11, "logprobs": 2, "stop_token_ids": [99],
        "logit_bias": {"7": -2.0}, "presence_penalty": 0.5, "frequency_penalty": 0.25, "repetition_penalty": 1.1,
        "ignore_eos": True, "prompt": list(PROMPT.tokens),
    }  # fmt: skip
    assert {name: sent[name] for name in wanted} == wanted


async def test_a_seed_is_sent_only_where_one_is_wanted() -> None:
    """vLLM keeps a generator for each request with a seed, and on a CPU ends if it reads its prompt in pieces."""
    server = a_server()
    async with engine_on(server) as engine:
        await said(engine, Sampling(2))
        assert "seed" not in server.asked[-1]
        await said(engine, Sampling(2, seed=11))
        assert server.asked[-1]["seed"] == 11


def test_a_server_may_hold_back_what_it_samples_in_the_time_allowed() -> None:
    rate = TokenRate(0.05)
    assert rate.together(1) == 1  # nothing is known
    rate.note(3, 0.003, 1)  # too few to tell
    assert rate.together(1) == 1
    rate.note(100, 1.0, 1)
    assert rate.together(1) == 5
    rate.note(100, 3.0, 1)  # two requests, 20 ms a token in the mean
    assert rate.together(1) == 2
    for tokens, seconds, together in ((9, 9.0, 1), (10_000, 0.1, MOST_TOGETHER)):
        for _ in range(20):
            rate.note(tokens, seconds, 1)
        assert rate.together(1) == together
    never = TokenRate(0.0)
    never.note(100, 0.01, 1)
    assert never.together(1) == 1


def test_a_server_with_many_answers_holds_back_longer_in_proportion() -> None:
    rate = TokenRate(0.05)
    assert rate.together(100) == 1  # nothing is known
    rate.note(100, 1.0, 8)
    assert [rate.together(answers) for answers in (1, 8, 16, 24, 32, 100)] == [5, 5, 10, 15, 16, 16]
    rate.note(100, 3.0, 40)  # 20 ms a token and 24 answers in the mean: three times as long, however few there are now
    assert [rate.together(answers) for answers in (1, 24, 32, 100)] == [7, 7, 10, 10]
    for _ in range(20):
        rate.note(100, 0.9, 1)  # one answer at a time again
    assert rate.together(1) == 5


async def test_requests_that_are_asked_together_get_larger_groups() -> None:
    server = a_server()
    dialect = Vllm(0.05)
    async with engine_on(server) as engine:
        engine._replicas[0].dialect = dialect
        dialect._gathers, dialect._route, dialect._base = True, TOKENS, "base"
        dialect._rate.note(100, 1.0, 1)
        server.engine._gap_s = 0.01
        server.asked.clear()
        await asyncio.gather(*(said(engine, Sampling(4)) for _ in range(24)))
        intervals = [body["stream_interval"] for body in server.asked]
        assert sorted(intervals) == [5] * 9 + [int(0.05 / 8 * answers / 0.01) for answers in range(10, 25)]
        await said(engine, Sampling(4))
        assert server.asked[-1]["stream_interval"] == 5  # four tokens say nothing of the server


@pytest.mark.parametrize(
    ("gather_ms", "can", "asked"), [(1000.0, True, [1, 16]), (0.0, True, [1, 1]), (1000.0, False, [None, None])]
)
async def test_tokens_are_gathered_where_the_server_can_and_are_the_same(
    gather_ms: float, can: bool, asked: list[int | None]
) -> None:
    server = a_server(gathers=can)
    async with engine_on(server, gather_ms=gather_ms) as engine:
        answers = [await said(engine, Sampling(30, top_logprobs=2)) for _ in range(2)]
    assert [body.get("stream_interval") for body in server.asked[-2:]] == asked
    assert [token.token for token in answers[0]] == list(range(42, 72))
    for one, other in zip(*answers, strict=True):
        assert (one.token, one.logp, one.top, one.finish) == (other.token, other.logp, other.top, other.finish)


async def test_answers_one_after_another_share_a_connection_and_what_the_server_had_read_is_counted() -> None:
    server = a_server(cached=3)
    async with engine_on(server) as engine:
        server.connections.clear()
        for _ in range(5):
            async with aclosing(engine.generate(PROMPT, Sampling(4), BASE)) as answer:  # type: ignore[type-var]
                async for token in answer:
                    if token.finish is not None:
                        break  # as the server does, which reads no further
        stats = await engine.stats()
        assert len(server.connections) == 1
        assert (stats.prompt_tokens_read, stats.prompt_tokens_reused) == (25, 15)


async def test_an_answer_that_nobody_reads_is_ended_on_the_server() -> None:
    server = a_server()
    server.engine._gap_s = 0.01
    async with engine_on(server) as engine:
        async with aclosing(engine.generate(PROMPT, Sampling(400), BASE)) as stream:  # type: ignore[type-var]
            await anext(stream)
        for _ in range(100):
            if server.engine.closed:
                break
            await asyncio.sleep(0.05)
        assert server.engine.closed


def _replica(number: int, dialect: Callable[[], Dialect] = Vllm) -> Replica:
    return Replica(dialect(), ServerHttp(f"http://10.0.0.{number}:8000"), RemoteSettings(), {}, is_up=True)


def test_a_session_keeps_its_server_and_a_lost_one_moves_only_its_own() -> None:
    servers = [_replica(number) for number in range(5)]

    def prompt(session: int, turns: int) -> Prompt:
        tokens = tuple(range(3 + turns))
        segments = (Segment(0, 1, "system"), Segment(1, 2, f"user {session}"), Segment(2, 3 + turns, f"rest {turns}"))
        return Prompt(tokens, segments)

    homes = [placed(prompt(session, 0), servers) for session in range(400)]
    assert homes == [placed(prompt(session, 9), servers) for session in range(400)]
    assert min(homes.count(server) for server in servers) > 40
    left = servers[1:]
    moved = [placed(prompt(session, 0), left) for session in range(400)]
    assert all(now is before for now, before in zip(moved, homes, strict=True) if before is not servers[0])
    busy = homes[0]
    busy.running = 40
    assert placed(prompt(0, 0), servers) is not busy


def test_requests_wait_as_long_as_a_server_of_our_own_may_take_to_load_its_model() -> None:
    assert patience_s(RemoteSettings(start_s=1800.0)) == 1800.0
    assert patience_s(RemoteSettings(start_s=20.0)) == 300.0  # it may be killed again while it starts
    assert patience_s(RemoteSettings(urls=("http://127.0.0.1:1",), start_s=1800.0)) == 300.0


def test_a_model_is_described_by_its_folder() -> None:
    info = described(MODEL, 512, "vllm", 2)
    assert (info.vocab_size, info.context_length, info.eos_ids, info.device) == (4096, 512, (2,), "2 servers of vllm")
    assert info.parameters == 2_558_144
