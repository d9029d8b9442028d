"""First replies to unseen problems, in batches: measures what a model does unprompted, without teaching it."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec
from openai.types.chat import ChatCompletionMessageParam

from openclaw_rl.core.hint import Hint, hinted
from openclaw_rl.core.message import Message, Role, message
from openclaw_rl.evals.client import Client
from openclaw_rl.evals.people.agent import AgentAnswer, AskOptions, answered
from openclaw_rl.evals.people.jobs import Assessment, Person
from openclaw_rl.evals.people.workspace import workspace
from openclaw_rl.evals.personalization.trials import FaultyReply, MeasuredShares, TrialSettings
from openclaw_rl.evals.records import number_of

FIRST_HELD_OUT = 1_000_000  # numbers of measured tasks are above those of all sessions
ODD_KEPT = 3  # replies of one measurement that are kept to be read


@dataclass(frozen=True, slots=True)
class MeasurementTarget:
    """Whom to measure, with which system text, and with which hints after each request.

    `may_carry` says that the server may add hints to main requests.
    """

    person: Person
    system: str = ""
    may_carry: bool = False
    hints: str = ""


@dataclass(slots=True)
class BaseShares:
    """Measurements of the untrained model, stored in a folder, since they are the same for every method."""

    folder: Path
    conditions: str

    def get(self, person: Person) -> MeasuredShares | None:
        """An earlier measurement under the same conditions."""
        path = self._path(person)
        return msgspec.json.decode(path.read_bytes(), type=MeasuredShares) if path.is_file() else None

    def put(self, person: Person, shares: MeasuredShares) -> None:
        """Keeps it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._path(person).write_bytes(msgspec.json.encode(shares))

    def _path(self, person: Person) -> Path:
        conditions = json.dumps([self.conditions, person.name, person.seed, person.wish.name, person.wish.kind])
        return self.folder / f"before-{hashlib.blake2b(conditions.encode(), digest_size=8).hexdigest()}.json"


@dataclass(slots=True)
class Probes:
    """Measures one server. The same version with the same system text is measured once."""

    client: Client
    settings: TrialSettings
    base: BaseShares
    _made: int = 0
    _known: dict[tuple[str, str, str, str], MeasuredShares] = field(default_factory=dict)

    async def shares(self, asked: MeasurementTarget) -> MeasuredShares:
        """Each time the same problems with the same sampling seeds, at the temperature used for everybody.

        Side requests, which are not learned from and get no hint. If the server may carry hints, also main requests, in
        separate sessions without a next state, so that these are not learned from either.
        """
        person, version = asked.person, await self._version()
        if asked.may_carry:
            served = await self._measured(asked, is_side=False)
            bare = await self.shares(replace(asked, may_carry=False))
            return replace(served, bare=bare.wish)
        key = (version, person.name, asked.system, asked.hints)
        is_base = number_of(version) == 0 and not asked.system and not asked.hints
        found = self._known.get(key) or (self.base.get(person) if is_base else None)
        if found is None:
            found = await self._measured(asked, is_side=True)
            if is_base:
                self.base.put(person, found)
        self._known[key] = found
        return found

    async def _version(self) -> str:
        """The version that is being served."""
        rows = await self.client.versions()
        return next((str(row.get("version")) for row in rows if row.get("is_current")), "shared.0")

    async def _measured(self, asked: MeasurementTarget, *, is_side: bool) -> MeasuredShares:
        slots, person = asyncio.Semaphore(self.settings.at_once), asked.person
        self._made += 1
        name = f"measure-{self._made}"

        async def one(number: int) -> _Found:
            job = person.job(FIRST_HELD_OUT + number, held_out=True)
            manner = AskOptions(
                session=f"{name}-{number}",
                user=person.user_id,
                temperature=self.settings.temperature,
                max_tokens=self.settings.max_tokens,
                is_side=is_side,
                system=asked.system,
            )
            async with slots:
                with workspace(job.files) as place:
                    messages: list[ChatCompletionMessageParam] = [*job.before]
                    said: tuple[Message, ...] = (message(Role.USER, job.opening),)
                    if asked.hints:
                        said = hinted(said, Hint(asked.hints))
                    messages.append({"role": "user", "content": said[0].text})
                    answer = await answered(self.client, messages, place, manner, seed=number)
                    holds = job.path is not None and place.holds(job.path, job.problem.answer)
            return _Found(job.opening, answer, job.assess(answer, holds=holds))

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(number)) for number in range(self.settings.problems)]
        return _shares(person.name, [task.result() for task in tasks])


@dataclass(frozen=True, slots=True)
class _Found:
    """The request, the reply, and its rating."""

    asked: str
    answer: AgentAnswer
    worth: Assessment


def _shares(person: str, found: Sequence[_Found]) -> MeasuredShares:
    odd = [FaultyReply(each.worth.odd, each.asked, each.answer.text) for each in found if each.worth.odd]
    return MeasuredShares(
        person=person,
        of=len(found),
        wish=sum(each.worth.follows for each in found),
        right=sum(each.worth.right for each in found),
        good=sum(each.worth.is_met for each in found),
        degenerate=len(odd),
        mean_chars=sum(len(each.answer.text) for each in found) / len(found),
        prompt_tokens=sum(each.answer.replies[0].prompt_tokens for each in found) / len(found),
        version=found[-1].answer.replies[-1].version,
        odd=tuple(odd[:ODD_KEPT]),
    )
