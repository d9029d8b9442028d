"""What stands behind the server in these tests: an engine that says what a test gives it, and a book of turns."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files

from aiohttp import web
from anthropic.types import RawMessageStreamEvent
from openai.types.responses import FunctionToolParam, ResponseStreamEvent
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from openclaw_rl.core.completion import Finish
from openclaw_rl.core.episode import EpisodeStep
from openclaw_rl.core.message import Json
from openclaw_rl.core.next_state import Feedback
from openclaw_rl.core.turn import Arrival, Placement, Turn, TurnKind
from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.render.renderer import ChatRenderer
from openclaw_rl.render.template import ChatTemplate, compile_template
from openclaw_rl.serve.app import build_app, runner_of
from openclaw_rl.serve.door.auth import Keys
from openclaw_rl.serve.parts import Control, ServeParts
from openclaw_rl.serve.settings import ServeSettings
from openclaw_rl.store.db import Store
from openclaw_rl.testing.engine import Says, ScriptedEngine
from openclaw_rl.testing.listening import listening

VERSION = PolicyVersion("shared", 3)
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MARKS = ["<think>", "</think>", "<tool_call>", "</tool_call>"]
THINKS_AND_CALLS = (
    "<think>\nfirst the file\n</think>\n\nI read it.\n"
    '<tool_call>\n{"name": "read", "arguments": {"path": "a ü"}}\n</tool_call>\n'
    '<tool_call>\n{"name": "read", "arguments": {"path": "b"}}\n</tool_call>'
)
READ: FunctionToolParam = {
    "type": "function",
    "name": "read",
    "description": "Reads.",
    "parameters": {"type": "object", "properties": {"path": {"type": "string"}}},
    "strict": True,
}


def a_renderer() -> ChatRenderer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=600, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(["user assistant system read the file and write the answer hello there"] * 4, trainer)
    tokenizer.add_tokens(MARKS)
    source = files("openclaw_rl.tiny").joinpath("chat_template.jinja").read_text("utf-8")
    return ChatRenderer(ChatTemplate(tokenizer, compile_template(source), {"eos_token": "<|im_end|>"}))


class Book:
    """A collector: every request goes on from the newest turn of its session; commits can be held."""

    def __init__(self, store: Store) -> None:
        self.arrivals: list[Arrival] = []
        self.turns: list[Turn] = []
        self.committed: asyncio.Queue[Turn] = asyncio.Queue()
        self.step: EpisodeStep | None = None  # that every request is said to be
        self.may_commit = asyncio.Event()
        self.may_commit.set()
        self._store = store

    async def place(self, arrival: Arrival) -> Placement:
        self.arrivals.append(arrival)
        session = f"{arrival.key_name}:{arrival.headers.get('x-session-id', 's')}"
        kind = TurnKind.SIDE if arrival.facts.get("turn_type") == "side" else TurnKind.MAIN
        mine = [turn for turn in self.turns if turn.session == session and turn.is_main]
        return Placement(session, arrival.key_name, "default", kind, "test", mine[-1] if mine else None, step=self.step)

    async def commit(self, turn: Turn) -> None:
        await self.may_commit.wait()
        await self._store.add_turn(turn, chain=turn.id)
        self.turns.append(turn)
        self.committed.put_nowait(turn)


@dataclass
class Serving:
    """A running server and what stands behind it."""

    url: str
    parts: ServeParts
    engine: ScriptedEngine
    book: Book
    feedback: list[Feedback] = field(default_factory=list)
    ended: list[tuple[str, str]] = field(default_factory=list)
    rolled: list[PolicyVersion] = field(default_factory=list)
    answers: deque[Says] = field(default_factory=deque)
    given: asyncio.Queue[int] = field(default_factory=asyncio.Queue)  # how many tokens each answer gave

    def says(self, text: str, *, ends: bool = True, **how: int | Exception) -> tuple[int, ...]:
        """The engine's next answer; returns its ids."""
        ids = self.parts.renderer.encode(text + ("<|im_end|>" if ends else ""))
        self.says_ids(ids, **how)
        return ids

    def says_ids(self, ids: Sequence[int], **how: int | Exception) -> None:
        self.answers.append(Says(ids, **how))  # type: ignore[arg-type]

    async def stored_before_the_end(
        self, events: AsyncIterator[RawMessageStreamEvent | ResponseStreamEvent]
    ) -> list[str]:
        """The kinds of a stream's further events; its end waits for the turn to be stored."""
        self.engine.go.set()
        await self.given.get()

        async def rest() -> list[str]:
            return [event.type async for event in events]

        async with asyncio.TaskGroup() as group:
            task = group.create_task(rest())
            await asyncio.wait([task], timeout=0.05)
            assert not task.done() and not self.book.turns
            self.book.may_commit.set()
        return task.result()


@contextlib.asynccontextmanager
async def serving(
    renderer: ChatRenderer,
    store: Store,
    *,
    settings: ServeSettings | None = None,
    keys: Mapping[str, str] | None = None,
    change: Callable[[ServeParts], ServeParts] = lambda parts: parts,
    page: Callable[[web.Application, ServeParts], None] | None = None,
) -> AsyncIterator[Serving]:
    """A server on a free port, over real HTTP."""
    eos = renderer.template.eos_ids()[0]
    answers: deque[Says] = deque()
    given: asyncio.Queue[int] = asyncio.Queue()
    engine = ScriptedEngine(lambda *asked: answers.popleft(), ends=Finish.LENGTH, cached=5, on_end=given.put_nowait)
    engine.versions[VERSION] = None
    book = Book(store)
    made: list[Serving] = []

    async def feedback(said: Feedback) -> None:
        made[0].feedback.append(said)

    async def session_done(session: str, why: str) -> None:
        made[0].ended.append((session, why))

    async def status() -> Mapping[str, Json]:
        return {"turns": len(book.turns)}

    async def rollback(version: PolicyVersion) -> None:
        made[0].rolled.append(version)

    def session_name(key_name: str, given: str) -> str:
        return given if given.startswith(f"{key_name}:") else f"{key_name}:{given}"

    parts = change(
        ServeParts(
            engine=engine,
            renderer=renderer,
            collector=book,
            store=store,
            control=Control(feedback, session_done, status, rollback, session_name),
            current=lambda user: VERSION,
            models=("tiny",),
            context_length=1024,
            eos_ids=(eos,),
            keys=Keys({"alice": "secret"} if keys is None else keys),
            settings=settings or ServeSettings(),
        )
    )
    async with listening(runner_of(build_app(parts, page))) as url:
        made.append(Serving(url, parts, engine, book, answers=answers, given=given))
        yield made[0]
