"""A trial: people talk to a server session after session, and its first replies are measured at fixed points."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from openai.types.chat import ChatCompletionMessageParam

from openclaw_rl.core.message import Json
from openclaw_rl.evals.client import Client, TurnNews
from openclaw_rl.evals.learning import settle
from openclaw_rl.evals.people.agent import AgentAnswer, AskOptions, answered
from openclaw_rl.evals.people.jobs import Assessment, Job, Person
from openclaw_rl.evals.people.voices import Voice
from openclaw_rl.evals.people.workspace import Workspace, workspace
from openclaw_rl.evals.personalization.methods import EvalMethod, Memory, Notes
from openclaw_rl.evals.personalization.probes import MeasurementTarget, Probes
from openclaw_rl.evals.personalization.trials import (
    AGAIN,
    BEFORE,
    CONVERGED,
    LAST,
    TOLD,
    TWICE,
    Point,
    Trial,
    TrialSession,
    TrialSettings,
    converged,
)
from openclaw_rl.tiny import world

LEARNED = ("ready", "trained")  # states of a turn that became a sample
Tell = Callable[[str, int, str], None]
OnProgress = Callable[[int, int, str], None]


def nobody_listens(said: str, score: int, hint: str) -> None:
    """Does nothing: for judges that derive the meaning themselves."""


@dataclass(slots=True)
class TrialConversation:
    """A running conversation."""

    person: Person
    job: Job
    place: Workspace
    name: str
    number: int
    messages: list[ChatCompletionMessageParam]
    answers: list[AgentAnswer] = field(default_factory=list)
    corrections: int = 0
    first: Assessment | None = None
    filed: bool | None = None


@dataclass(slots=True)
class TrialRun:
    """A running trial. `people` teach, in turns; `everybody` is measured.

    `tell` gets the meaning of each user message, for a scripted judge; `on_progress` gets every session.
    """

    client: Client
    method: EvalMethod
    seed: int
    people: tuple[Person, ...]
    everybody: tuple[Person, ...]
    voice: Voice
    settings: TrialSettings
    probes: Probes
    tell: Tell = nobody_listens
    on_progress: OnProgress = lambda done, of, what: None
    sessions: list[TrialSession] = field(default_factory=list)
    points: list[Point] = field(default_factory=list)
    memories: dict[str, Memory] = field(default_factory=dict)

    async def run(self) -> Trial:
        """Measures, talks round after round, and measures again when somebody converges, and afterwards."""
        started, number = time.monotonic(), 0
        self.memories = {person.user_id: Memory() for person in self.everybody}
        await self._measure(BEFORE, 0)
        while number < self._until():
            number += 1
            for person in self.people:
                session = await self._session(person, number)
                self.sessions.append(session)
                self.on_progress(number, self._until(), f"{person.name} {'+' if session.is_good else '-'}")
            await self._measure_after(number)
        if self.points[-1].after_session != number:
            await self._measure(LAST, number, is_final=True)
        return await self._trial(time.monotonic() - started)

    async def run_in_turn(self) -> Trial:
        """One person after the other, each until they converge or are given up; everybody is measured at the end.

        Before that the untrained model is measured with all of their wishes as hints in its prompt.
        """
        started, total = time.monotonic(), len(self.people) * self.settings.sessions
        self.memories = {person.user_id: Memory() for person in self.everybody}
        await self._measure(BEFORE, 0)
        hints = " ".join(person.wish.stated(Random(self.seed)) for person in self.people)
        told = [await self.probes.shares(MeasurementTarget(person, hints=hints)) for person in self.everybody]
        self.points.append(Point(TOLD, 0, tuple(told)))
        for at, person in enumerate(self.people):
            for number in range(1, self.settings.sessions + 1):
                session = await self._session(person, number)
                self.sessions.append(session)
                done = at * self.settings.sessions + number
                self.on_progress(done, total, f"{person.name} {'+' if session.is_good else '-'}")
                if self._met()[at] is not None:
                    break
        await self._measure(LAST, len(self.sessions), is_final=True)
        return await self._trial(time.monotonic() - started)

    async def _trial(self, seconds: float) -> Trial:
        status = await self.client.status()
        return Trial(
            method=self.method.name,
            seed=self.seed,
            people=tuple(person.name for person in self.people),
            sessions=tuple(self.sessions),
            points=tuple(self.points),
            steps=_count(status, "train", "steps"),
            versions=_count(status, "publish", "published"),
            versions_refused=_count(status, "publish", "refused"),
            refused=self.client.refused,
            seconds=seconds,
            hints_in_use=_count(status, "hints", "in_use"),
            hints_retired=_count(status, "hints", "retired"),
        )

    def _met(self) -> list[int | None]:
        return [
            converged([session for session in self.sessions if session.person == person.name]) for person in self.people
        ]

    def _until(self) -> int:
        """The last round, as far as it is known."""
        met = [number for number in self._met() if number is not None]
        all_met = len(met) == len(self.people)
        return min(3 * max(met), self.settings.most_sessions) if all_met else self.settings.sessions

    async def _measure_after(self, number: int) -> None:
        met = self._met()
        for person, at in zip(self.people, met, strict=True):
            if at == number:
                await self._measure(CONVERGED, number, person.name, is_final=number >= self._until())
        known = [at for at in met if at is not None]
        if len(known) == len(met) and number in (2 * max(known), 3 * max(known)):
            label = AGAIN if number == 2 * max(known) else TWICE
            await self._measure(label, number, is_final=number >= self._until())

    async def _measure(self, label: str, number: int, whose: str = "", *, is_final: bool = False) -> None:
        """Main requests are measured only at the end: a server that carries hints looks at its users' latest turns."""
        shares = []
        for person in self.everybody:
            system = self.memories[person.user_id].system
            self.on_progress(number, max(number, self._until()), f"measuring {label}")
            shares.append(
                await self.probes.shares(MeasurementTarget(person, system, may_carry=self.method.carries and is_final))
            )
        self.points.append(Point(label, number, tuple(shares), whose))

    async def _session(self, person: Person, number: int) -> TrialSession:
        started, job = time.monotonic(), person.job(number)
        with workspace(job.files) as place:
            talk = TrialConversation(person, job, place, f"{person.name}-{self.seed}-{number}", number, [*job.before])
            await self._converse(talk)
        await self.client.end(talk.name)
        is_settled = await settle(self.client, limit_s=self.settings.settle_s, poll_s=self.settings.poll_s)
        news = [await self._news(reply.turn) for answer in talk.answers for reply in answer.replies]
        hints = [hint for item in news for hint in item.hints]
        if self.method.notes is Notes.HINTS:
            for hint in hints:
                self.memories[person.user_id].add(hint)
        assert talk.first is not None
        return TrialSession(
            person=person.name,
            number=number,
            follows=talk.first.follows,
            right=talk.first.right,
            odd=talk.first.odd,
            filed=talk.filed,
            corrections=talk.corrections,
            turns=len(news),
            hints=tuple(hints),
            samples=sum(item.state in LEARNED for item in news),
            version=talk.answers[0].replies[-1].version,
            reply=talk.answers[0].text,
            seconds=time.monotonic() - started,
            is_settled=is_settled,
        )

    async def _news(self, turn: str) -> TurnNews:
        return await self.client.turn(turn) if self.method.judges else TurnNews(turn, "", "", None, (), ())

    async def _converse(self, talk: TrialConversation) -> None:
        """Until the user is content, has the answer in their file and says so, or gives up."""
        job, said = talk.job, talk.job.opening
        while True:
            answer = await self._answer(talk, said)
            holds = job.path is not None and talk.place.holds(job.path, job.problem.answer)
            found = job.assess(answer, holds=holds)
            talk.first = talk.first or found
            if found.is_met:
                break
            if talk.corrections >= self.settings.most_corrections:
                return
            said = await self.voice.correction(job, answer.text, found)
            self._complains(talk, said, found)
        if talk.person.keeps_file and not await self._files(talk):
            return
        said = await self.voice.thanks(job)
        self.tell(said, 1, "")
        # The reply to thanks has no next state, so nothing is learned from it.
        await self._answer(talk, said)
        talk.answers.pop()

    def _complains(self, talk: TrialConversation, said: str, found: Assessment) -> None:
        talk.corrections += 1
        is_wish = found.right and not found.follows
        self.tell(said, -1, talk.job.wish.stated(talk.job.words) if is_wish else "")
        if self.method.notes is Notes.FOLLOWUPS:
            self.memories[talk.person.user_id].add(said)

    async def _files(self, talk: TrialConversation) -> bool:
        """The user asks for the answer in their file, and once more if it is not there."""
        job = talk.job
        assert job.path is not None
        asked = world.append_request(job.path, job.words)
        self.tell(asked, 1, "")
        for said in (asked, f"Again: {asked}"):
            talk.place.mark()
            answer = await self._answer(talk, said)
            holds = answer.is_finished and talk.place.holds(job.path, job.problem.answer)
            talk.filed = holds if talk.filed is None else talk.filed
            if holds:
                return True
            self.tell(f"Again: {asked}", -1, "")
        return False

    async def _answer(self, talk: TrialConversation, said: str) -> AgentAnswer:
        talk.messages.append({"role": "user", "content": said})
        manner = AskOptions(
            session=talk.name,
            user=talk.person.user_id,
            temperature=self.settings.temperature,
            max_tokens=self.settings.max_tokens,
            system=self.memories[talk.person.user_id].system,
        )
        seed = self.seed * 1_000_000 + talk.number * 1000 + len(talk.messages)
        answer = await answered(self.client, talk.messages, talk.place, manner, seed=seed)
        talk.answers.append(answer)
        return answer


def _count(status: dict[str, Json], part: str, name: str) -> int:
    table = status.get(part)
    value = table.get(name) if isinstance(table, dict) else None
    return value if isinstance(value, int) else 0
