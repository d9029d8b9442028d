"""What comes out of the store is what went in, to the last bit."""

from __future__ import annotations

import asyncio
import itertools
import json
import math
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from openclaw_rl.core.completion import Completion, Finish, Span, SpanKind
from openclaw_rl.core.hint import Hint, HintSource
from openclaw_rl.core.ledger import State
from openclaw_rl.core.message import ImagePart, Json, Message, Role, TextPart, Tool, ToolCall, message
from openclaw_rl.core.next_state import Feedback, NextState, NextStateSource
from openclaw_rl.core.prompt import Prompt, Segment
from openclaw_rl.core.sample import HintPrompt, Outcome, Sample
from openclaw_rl.core.turn import Session, Turn, TurnKind
from openclaw_rl.core.verdict import Verdict, VerdictSource, Vote
from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.store import codec
from openclaw_rl.store.db import Store
from openclaw_rl.testing.turns import a_turn

# every code point, lone surrogates and NUL included
texts = st.text(st.characters(), max_size=40) | st.sampled_from(["", "\ud800", "\ud83d\ude00", "a\x00b", "é" * 3000])
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
parts = st.lists(st.builds(TextPart, texts) | st.builds(ImagePart, texts), max_size=3).map(tuple)
calls = st.lists(st.builds(ToolCall, texts, texts, texts), max_size=2).map(tuple)
plain_messages = st.builds(
    Message,
    st.sampled_from([Role.SYSTEM, Role.USER, Role.TOOL]),
    parts,
    reasoning=st.none() | texts,
    tool_call_id=st.none() | texts,
    name=st.none() | texts,
)
replies = st.builds(Message, st.just(Role.ASSISTANT), parts, reasoning=st.none() | texts, tool_calls=calls)
tools = st.builds(Tool, texts, texts, st.dictionaries(texts, values, max_size=2))
ids = st.integers(0, 2**31 - 1)
scopes = st.sampled_from(["shared", "alice", "a.b"])
versions = st.builds(PolicyVersion, scopes, st.integers(0, 10**6))
wide = st.floats(max_value=0.0, min_value=-1e6)
narrow = st.floats(max_value=0.0, min_value=-1e6, width=32)


@st.composite
def completions(draw: st.DrawFn) -> Completion:
    size = draw(st.integers(0, 6))
    is_held = draw(st.booleans())
    flags = st.lists(st.booleans(), min_size=size, max_size=size).map(tuple)
    logp = st.lists(draw(st.sampled_from([wide, narrow])), min_size=size, max_size=size).map(tuple)
    return Completion(
        tokens=tuple(draw(st.lists(ids, min_size=size, max_size=size))),
        logp_sampled=draw(logp),
        logp=draw(logp),
        version=draw(versions),
        finish=draw(st.sampled_from(Finish)),
        logp_masked=draw(logp) if is_held else (),
        forced=draw(flags) if is_held else (),
        spans=tuple(draw(st.lists(st.builds(Span, st.sampled_from(SpanKind), ids, ids), max_size=2))),
    )


@st.composite
def prompts(draw: st.DrawFn) -> Prompt:
    tokens = tuple(draw(st.lists(ids, min_size=1, max_size=300)))
    cut = draw(st.integers(0, len(tokens)))
    segments = (Segment(0, cut, draw(texts)), Segment(cut, len(tokens), draw(texts)))
    return Prompt(tokens, draw(st.sampled_from([(), segments])), cut, tuple(draw(st.lists(texts, max_size=2))))


turns = st.builds(
    Turn,
    id=texts,
    session=texts,
    user=texts,
    agent=texts,
    kind=st.sampled_from(TurnKind),
    why=texts,
    messages=st.lists(plain_messages | replies, max_size=4).map(tuple),
    tools=st.lists(tools, max_size=2).map(tuple),
    prompt=prompts(),
    completion=completions(),
    reply=replies,
    at_s=st.floats(0, 1e11),
    parent=st.none() | texts,
    group=st.none() | texts,
    api=texts,
    options=st.dictionaries(texts, values, max_size=2),
)


def test_any_turn_comes_back_as_it_was(tmp_path: Path) -> None:
    number = itertools.count()
    with asyncio.Runner() as runner:
        store = runner.run(Store.open(tmp_path))

        async def there_and_back(turn: Turn) -> None:
            chain = f"chain {next(number)}"
            await store.add_turn(turn, chain=chain)
            assert await store.turn(turn.id) == turn
            (found,) = await store.served([chain])
            assert await store.turn(found.turn) == turn

        @settings(max_examples=150, deadline=None)
        @given(turn=turns)
        def each(turn: Turn) -> None:
            runner.run(there_and_back(replace(turn, id=f"{next(number)} {turn.id}")))

        try:
            each()
        finally:
            runner.run(store.aclose())


@settings(deadline=None)
@given(values)
def test_any_json_comes_back_with_its_surrogates_and_its_order(value: Json) -> None:
    held = codec.unpack_json(codec.pack_json(value))
    assert held == value
    assert repr(held) == repr(value)  # -0.0, and the order of keys


@settings(deadline=None)
@given(st.lists(st.floats(), max_size=20).map(tuple))
def test_any_float_comes_back_to_the_bit(numbers: tuple[float, ...]) -> None:
    assert list(map(repr, codec.floats_of(codec.floats_bytes(numbers)))) == list(map(repr, numbers))


def test_log_probabilities_sampled_in_float32_take_four_bytes() -> None:
    assert len(codec.floats_bytes((-0.5, -0.25))) == 1 + 2 * 4
    assert len(codec.floats_bytes((-0.1, -0.25))) == 1 + 2 * 8
    assert codec.floats_of(codec.floats_bytes((-math.inf,))) == (-math.inf,)


async def test_a_long_text_that_comes_again_is_kept_once(tmp_path: Path) -> None:
    store = await Store.open(tmp_path)
    system = message(Role.SYSTEM, "".join(chr(32 + (i * i) % 7919) for i in range(50_000)))
    asked = [(system, message(Role.USER, f"question {i}")) for i in range(20)]
    for i, messages in enumerate(asked):
        await store.add_turn(a_turn(f"t{i}", messages), chain=str(i))
    held = [await store.turn(f"t{i}") for i in range(20)]
    await store.aclose()
    assert [turn.messages for turn in held if turn is not None] == asked
    # twenty copies of the ids, one of the text
    assert (tmp_path / "store.db").stat().st_size < 20 * 2 * 4 * 50_000


async def test_verdict_feedback_next_state_and_sample_come_back_as_they_were(store: Store) -> None:
    turn = a_turn("t")
    await store.add_turn(turn, chain="c")
    image = Message(Role.TOOL, (TextPart("a"), ImagePart("data:x"), TextPart("b" * 5000)), tool_call_id="1", name="ls")
    next_state = NextState("t", (image, message(Role.USER, "\ud800 danke")), NextStateSource.TOOL)
    feedback = Feedback("t", -1, "too long \ud800", 12.5)
    verdict = Verdict(
        "t",
        -1,
        VerdictSource.FEEDBACK,
        votes=(Vote("score", "\\boxed{-1}", -1, None, "base", 0.25), Vote("hint", "?", None, "say it", "other")),
        hints=(Hint("Answer in one line.", HintSource.JUDGE), Hint("shorter", HintSource.FOLLOWUP)),
        mean=-1 / 3,
    )
    sample = Sample(
        turn="t",
        session=turn.session,
        user="alice",
        prompt=(1, 2),
        response=(3, 2**31 - 1),
        logp=(-0.1, -1e-300),
        mask=(True, False),
        version=PolicyVersion("shared", 3),
        score=-1 / 3,
        baseline=0.1,
        outcome=Outcome(0.5, True, "passed"),
        hints=(HintPrompt("é", (1, 9)), HintPrompt("b", ())),
        group="g",
        is_promoted=True,
    )
    await store.add_feedback(Feedback("t", 1, None, 11.0))
    assert await store.pair(next_state)
    await store.add_feedback(feedback)
    assert await store.paired(limit=10) == [(turn, next_state, feedback)]
    assert await store.judge(verdict)
    (judged,) = await store.judged(limit=10)
    assert judged.turn == turn
    assert judged.verdict == verdict
    assert judged.session == Session("key:s", "alice", "default", 1000.0, 1000.0)
    await store.admit(sample)
    assert await store.ready(limit=10) == [sample]
    row = await store.row("t")
    assert row is not None
    assert (row.turn, row.state, row.reason) == (turn, State.READY, None)
    assert (row.next_state, row.verdict, row.feedback) == (next_state, verdict, feedback)
    assert (row.has_sample, row.step, row.trained_version) == (True, None, None)


def test_much_json_is_written_in_slices_to_the_same_bytes() -> None:
    long = 'é"\\\n\ud800🙂' * 400_000
    held: Json = {
        "a": [[at, "x", None, 0.5] for at in range(1_000)],
        long[:5]: {"b": [long, {}, [], [long]], "c": long},
        "d": {str(at): at for at in range(1_000)},
        "e": [{"content": "short"}, {"content": long}] * 3,
    }
    whole = json.dumps(held, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
    assert codec.json_bytes(held) == whole
    assert codec.json_bytes([]) == b"[]"
    assert codec.json_bytes(long) == json.dumps(long, ensure_ascii=False).encode("utf-8", "surrogatepass")


async def test_long_thinking_and_long_arguments_come_back(tmp_path: Path) -> None:
    call = ToolCall("c", "write", json.dumps({"text": "y" * 5_000}))
    messages = (
        message(Role.USER, "hi"),
        Message(Role.ASSISTANT, (TextPart("ok"),), reasoning="z" * 5_000, tool_calls=(call,)),
        message(Role.USER, "and?"),
    )
    async with aclosing(await Store.open(tmp_path)) as store:
        await store.add_turn(a_turn("t", messages), chain="t")
    async with aclosing(await Store.open(tmp_path)) as store:
        found = await store.turn("t")
    assert found is not None
    assert found.messages == messages
