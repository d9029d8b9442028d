"""Versions on disk and in a real store, and an engine whose versions speak as they are told."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from openclaw_rl.core.adapter import CONFIG, WEIGHTS, Adapter, digest_of_folder
from openclaw_rl.core.completion import Completion, Finish, SampledToken, Scores, Span
from openclaw_rl.core.hint import Hint
from openclaw_rl.core.manifest import Manifest, version_folder, write_manifest
from openclaw_rl.core.message import Json, Message, Role, Tool, message
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.sampling import Sampling
from openclaw_rl.core.turn import Session, Turn, TurnKind
from openclaw_rl.core.version import BASE, SHARED, PolicyVersion
from openclaw_rl.errors import AdapterError, EngineError
from openclaw_rl.publish.gate import Gate
from openclaw_rl.publish.settings import PublishSettings
from openclaw_rl.publish.stage import PublishStage
from openclaw_rl.publish.swap import Served
from openclaw_rl.store.db import Store
from openclaw_rl.store.rows import StepRecord, VersionRow, VersionStatus

END = ord("$")
GOOD = "It is four.$"


def version(number: int) -> PolicyVersion:
    return PolicyVersion(SHARED, number)


def turn(name: str, asked: str = "", *, answer: str = GOOD, kind: TurnKind = TurnKind.MAIN) -> Turn:
    text = asked or f"Question {name}?"
    ids = tuple(map(ord, answer))
    return Turn(
        id=name,
        session="s1",
        user="ann",
        agent="main",
        kind=kind,
        why="test",
        messages=(message(Role.USER, text),),
        tools=(),
        prompt=Prompt(tuple(map(ord, text))),
        completion=Completion(ids, (-0.1,) * len(ids), (-0.1,) * len(ids), BASE, Finish.STOP),
        reply=message(Role.ASSISTANT, answer.removesuffix("$")),
        at_s=1.0,
    )


@dataclass
class ToldEngine:
    """Each version says its text (`GOOD` where none is given) and has its chance of the likeliest token.

    Ids are code points. A loaded version whose weights hold `nan` is refused, as a real engine does.
    """

    says: dict[PolicyVersion, str] = field(default_factory=dict)
    chance: dict[PolicyVersion, float] = field(default_factory=dict)
    loaded: list[PolicyVersion] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    prompts: list[str] = field(default_factory=list)
    away: bool = False

    async def generate(self, prompt: Prompt, sampling: Sampling, version: PolicyVersion) -> AsyncIterator[SampledToken]:
        self._check(version)
        self.calls.append(f"generate {version}")
        self.prompts.append("".join(map(chr, prompt.tokens)))
        text = self.says.get(version, GOOD)[: sampling.max_tokens]
        for index, letter in enumerate(text):
            is_last = index + 1 == len(text)
            finish = (Finish.STOP if letter == "$" else Finish.LENGTH) if is_last else None
            yield SampledToken(ord(letter), -0.1, -0.1, version, finish=finish)

    async def score(self, prompt: Prompt, *, start: int, version: PolicyVersion, top_k: int = 0) -> Scores:
        self._check(version)
        self.calls.append(f"score {version}")
        chance = self.chance.get(version, 0.9)
        if math.isnan(chance):
            return Scores(start, (math.nan,) * (len(prompt) - start))
        top = ((1, math.log(chance)), (2, math.log((1.0 - chance) / 2)))
        many = len(prompt) - start
        return Scores(start, (math.log(chance),) * many, (top,) * many)

    async def load(self, adapter: Adapter) -> None:
        if self.away:
            self.calls.append("nobody there")
            raise EngineError("the engine is gone")
        if b"nan" in (adapter.folder / WEIGHTS).read_bytes():
            raise AdapterError(f"the adapter in {adapter.folder} is not finite", fix="roll back")
        self.loaded.append(adapter.version)
        self.calls.append(f"load {adapter.version}")

    async def unload(self, version: PolicyVersion) -> None:
        self.loaded.remove(version)
        self.calls.append(f"unload {version}")

    def _check(self, version: PolicyVersion) -> None:
        if self.away:
            raise EngineError("the engine is gone")
        if not version.is_base and version not in self.loaded:
            raise EngineError(f"version {version} is not loaded")


class Letters:
    """A renderer for which each letter is an id; `?` at an answer's start cannot be read."""

    def prompt(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool],
        served: Turn | None,
        *,
        options: Mapping[str, Json] | None = None,
    ) -> Prompt:
        return Prompt(tuple(map(ord, messages[-1].text)))

    def user_opening(self) -> tuple[Prompt, int] | None:
        return None

    def hinted(self, turn: Turn, hint: Hint) -> Prompt:
        raise NotImplementedError

    def reread(self, turn: Turn, messages: Sequence[Message]) -> Prompt:
        return Prompt(tuple(map(ord, "".join(item.text for item in messages))))

    def decode(self, tokens: Sequence[int]) -> tuple[Message, tuple[Span, ...]]:
        text = "".join(map(chr, tokens))
        if text.startswith("?"):
            raise ValueError("a tool call that is none")
        return message(Role.ASSISTANT, text.removesuffix("$")), ()


class Asking(Letters):
    """A renderer whose prompt is the words of the last message."""

    def prompt(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool],
        served: Turn | None,
        *,
        options: Mapping[str, Json] | None = None,
    ) -> Prompt:
        return Prompt(tuple(map(ord, messages[-1].text)))


def safetensors(data: bytes) -> bytes:
    header = json.dumps({"a": {"dtype": "U8", "shape": [len(data)], "data_offsets": [0, len(data)]}}).encode()
    return struct.pack("<Q", len(header)) + header + data


def write_adapter(home: Path, made: PolicyVersion, parent: PolicyVersion, data: bytes = b"weights") -> Adapter:
    """A version's folder as a step leaves it."""
    folder = version_folder(home, made)
    folder.mkdir(parents=True)
    (folder / CONFIG).write_text("{}")
    (folder / WEIGHTS).write_bytes(safetensors(data + str(made).encode()))
    digest = digest_of_folder(folder)
    write_manifest(folder, Manifest(made, parent, f"step {made}", (), 0, digest, 1.0))
    return Adapter(folder, digest, made)


def cut_weights(home: Path, made: PolicyVersion) -> None:
    """Damages a version on disk."""
    weights = version_folder(home, made) / WEIGHTS
    weights.write_bytes(weights.read_bytes()[:-4])


@dataclass
class Flow:
    """The stage, its store and its engine."""

    home: Path
    store: Store
    engine: ToldEngine
    settings: PublishSettings
    now_s: float = 100.0
    stage: PublishStage = field(init=False)
    served: Served = field(init=False)

    def __post_init__(self) -> None:
        self.served = Served(self.store, self.engine, self.settings.keep_loaded)
        gate = Gate(self.store, self.engine, Letters(), (END,), self.settings)
        self.stage = PublishStage(self.store, self.served, gate, self.settings, clock=lambda: self.now_s)

    async def candidate(
        self, number: int, *, parent: int | None = None, data: bytes = b"weights", turns: tuple[str, ...] = (),
        consumed: tuple[str, ...] = (),
    ) -> VersionRow:  # fmt: skip
        """A version a step has made, on disk and in the store; the samples `consumed` waited for it."""
        made, from_version = version(number), version(number - 1 if parent is None else parent)
        adapter = write_adapter(self.home, made, from_version, data)
        row = VersionRow(
            made, from_version, adapter.folder, adapter.digest, VersionStatus.CANDIDATE, "", 1.0, turns, {"loss": 0.5}
        )
        await self.store.commit_step(StepRecord(f"step {made}", 1.0, 2.0, consumed, (), {"loss": 0.5}, row))
        return row

    async def publish(self, *numbers: int) -> None:
        """Brings versions through the gate, one after the other."""
        for number in numbers:
            await self.candidate(number)
            assert await self.stage.once()
            assert self.served.current() == version(number)

    async def row(self, number: int) -> VersionRow:
        return next(row for row in await self.store.versions() if row.version == version(number))

    async def talk(self, *turns: Turn) -> None:
        """Turns that were served."""
        await self.store.see_session(Session("s1", "ann", "main", 0.0, 1.0))
        for each in turns:
            await self.store.add_turn(each, chain=each.id)


@asynccontextmanager
async def flowing(
    home: Path, engine: ToldEngine | None = None, settings: PublishSettings | None = None
) -> AsyncIterator[Flow]:
    store = await Store.open(home)
    flow = Flow(home, store, engine or ToldEngine(), settings or PublishSettings())
    try:
        yield flow
    finally:
        await store.aclose()
