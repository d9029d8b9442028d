"""Versions on disk and in a real store, and what each of them says."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from openclaw_rl.core.adapter import CONFIG, WEIGHTS, Adapter, digest_of_folder
from openclaw_rl.core.completion import Completion, Finish, Scores
from openclaw_rl.core.manifest import Manifest, version_folder, write_manifest
from openclaw_rl.core.message import Message, Role, message
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.sampling import Sampling
from openclaw_rl.core.turn import Session, Turn, TurnKind
from openclaw_rl.core.version import BASE, SHARED, PolicyVersion
from openclaw_rl.publish.divergence import Top
from openclaw_rl.publish.gate import Gate
from openclaw_rl.publish.settings import PublishSettings
from openclaw_rl.publish.stage import PublishStage
from openclaw_rl.publish.swap import ServedVersions
from openclaw_rl.publish.trial_in_use import TrialInUse
from openclaw_rl.store.db import Store
from openclaw_rl.store.rows import StepRecord, VersionRow, VersionStatus
from openclaw_rl.testing.engine import ScriptedEngine
from openclaw_rl.testing.renderer import END, LetterRenderer, ids_of, text_of

GOOD = "It is four.$"
UNKNOWN = 1e-12  # how likely a letter is that a double does not say
Says = Mapping[str, float]


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
class Minds:
    """What each version says (`GOOD` where nothing is given), and its chance of the likeliest token."""

    says: dict[PolicyVersion, str] = field(default_factory=dict)
    chance: dict[PolicyVersion, float] = field(default_factory=dict)

    def reply(self, prompt: Prompt, sampling: Sampling, version: PolicyVersion) -> Sequence[int]:
        return ids_of(self.says.get(version, GOOD))

    def scores(self, prompt: Prompt, start: int, version: PolicyVersion, top_k: int) -> Scores:
        chance = self.chance.get(version, 0.9)
        many = len(prompt) - start
        if math.isnan(chance):
            return Scores(start, (math.nan,) * many)
        top = ((1, math.log(chance)), (2, math.log((1.0 - chance) / 2)))
        return Scores(start, (math.log(chance),) * many, (top,) * many)

    def engine(self) -> ScriptedEngine:
        return ScriptedEngine(self.reply, scoring=self.scores, ends=Finish.LENGTH)


@dataclass
class Knowing(Minds):
    """A version says one of its whole replies, each with its chance; the first to a prompt that holds the key."""

    knows: dict[PolicyVersion, dict[str, Says]] = field(default_factory=dict)

    def reply(self, prompt: Prompt, sampling: Sampling, version: PolicyVersion) -> Sequence[int]:
        return ids_of(next(iter(self._known(prompt.tokens, version))))

    def scores(self, prompt: Prompt, start: int, version: PolicyVersion, top_k: int) -> Scores:
        asked, said = prompt.tokens[:start], prompt.tokens[start:]
        tops = tuple(self._top(asked, said[:at], version) for at in range(len(said)))
        logp = tuple(dict(top).get(token, math.log(UNKNOWN)) for top, token in zip(tops, said, strict=True))
        return Scores(start, logp, tops)

    def _known(self, prompt: tuple[int, ...], version: PolicyVersion) -> Says:
        text = "".join(map(chr, prompt))
        return next(says for key, says in self.knows[version].items() if key in text)

    def _top(self, prompt: tuple[int, ...], said: tuple[int, ...], version: PolicyVersion) -> Top:
        """The next letters of the replies that begin so; where none does, the first of them goes on all the same."""
        before = "".join(map(chr, said))
        says = self._known(prompt, version)
        held = {text: chance for text, chance in says.items() if text.startswith(before) and len(text) > len(before)}
        if not held:
            first = next(iter(says))
            held = {first[: len(before)] + first[min(len(before), len(first) - 1) :]: 1.0}
        chances: dict[int, float] = {}
        for text, chance in held.items():
            letter = ord(text[len(before)] if len(text) > len(before) else "$")
            chances[letter] = chances.get(letter, 0.0) + chance
        total = sum(chances.values()) / 0.999
        return tuple((letter, math.log(chance / total)) for letter, chance in chances.items())


def prompts_of(engine: ScriptedEngine) -> list[str]:
    """What it was asked, word for word."""
    return [text_of(asked.prompt.tokens) for asked in engine.asked]


def last_message(messages: Sequence[Message]) -> str:
    return messages[-1].text


def letters() -> LetterRenderer:
    """A prompt is the words of the last message."""
    return LetterRenderer(last_message)


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
    minds: Minds
    settings: PublishSettings
    now_s: float = 100.0
    engine: ScriptedEngine = field(init=False)
    stage: PublishStage = field(init=False)
    served: ServedVersions = field(init=False)

    def __post_init__(self) -> None:
        self.engine = self.minds.engine()
        self.served = ServedVersions(self.store, self.engine, self.settings.keep_loaded)
        gate = Gate(self.store, self.engine, letters(), (END,), self.settings)
        trial = TrialInUse(self.store, self.served, gate, self.settings)
        self.stage = PublishStage(self.store, self.served, gate, self.settings, trial=trial, clock=lambda: self.now_s)

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
    home: Path, minds: Minds | None = None, settings: PublishSettings | None = None
) -> AsyncIterator[Flow]:
    store = await Store.open(home)
    flow = Flow(home, store, minds or Minds(), settings or PublishSettings())
    try:
        yield flow
    finally:
        await store.aclose()
