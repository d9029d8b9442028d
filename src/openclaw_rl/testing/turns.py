"""Turns for tests: a conversation in words, with ids for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from openclaw_rl.core.completion import Completion, Finish, Span, SpanKind
from openclaw_rl.core.message import Json, Message, Role, Tool, message
from openclaw_rl.core.prompt import Prompt, Segment
from openclaw_rl.core.sample import Sample
from openclaw_rl.core.turn import Arrival, Turn, TurnKind
from openclaw_rl.core.version import BASE, PolicyVersion


def ids_of(text: str) -> tuple[int, ...]:
    """One id for each byte, and one that ends the text."""
    return (*text.encode("utf-8", "surrogatepass"), 256)


def a_turn(
    name: str,
    asked: Sequence[Message] | str = "What is 2 + 2?",
    reply: Message | str = "4",
    *,
    session: str = "key:s",
    user: str = "alice",
    kind: TurnKind = TurnKind.MAIN,
    version: PolicyVersion = BASE,
    finish: Finish = Finish.STOP,
    at_s: float = 1000.0,
    tools: tuple[Tool, ...] = (),
    parent: str | None = None,
    group: str | None = None,
    options: Mapping[str, Json] | None = None,
) -> Turn:
    """A turn whose ids are the bytes of its messages."""
    messages = (message(Role.USER, asked),) if isinstance(asked, str) else tuple(asked)
    said = message(Role.ASSISTANT, reply) if isinstance(reply, str) else reply
    prompt = ids_of("\n".join(item.text for item in messages))
    tokens = ids_of(said.text)
    return Turn(
        id=name,
        session=session,
        user=user,
        agent="default",
        kind=kind,
        why="made for a test",
        messages=messages,
        tools=tools,
        prompt=Prompt(prompt, (Segment(0, len(prompt), "all"),)),
        completion=Completion(
            tokens=tokens,
            logp_sampled=tuple(-0.25 for _ in tokens),
            logp=tuple(-0.5 for _ in tokens),
            version=version,
            finish=finish,
            spans=(Span(SpanKind.TEXT, 0, len(tokens) - 1), Span(SpanKind.MARK, len(tokens) - 1, len(tokens))),
        ),
        reply=said,
        at_s=at_s,
        parent=parent,
        group=group,
        options=options or {},
    )


def an_arrival(
    messages: Sequence[Message] | str,
    *,
    key_name: str = "key",
    headers: Mapping[str, str] | None = None,
    facts: Mapping[str, Json] | None = None,
    at_s: float = 1000.0,
) -> Arrival:
    """A request as received; header names in any case."""
    said = (message(Role.USER, messages),) if isinstance(messages, str) else tuple(messages)
    lower = {name.lower(): value for name, value in (headers or {}).items()}
    return Arrival(said, (), lower, facts or {}, key_name, at_s)


def a_sample(turn: Turn, *, score: float | None = 1.0) -> Sample:
    """The turn as training data, every token trained."""
    completion = turn.completion
    return Sample(
        turn=turn.id,
        session=turn.session,
        user=turn.user,
        prompt=turn.prompt.tokens,
        response=completion.tokens,
        logp=completion.logp,
        mask=tuple(True for _ in completion.tokens),
        version=completion.version,
        score=score,
    )
