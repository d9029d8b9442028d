"""One run: a user talks to a server session after session, and the model's first replies are measured in between."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from openai.types.chat import ChatCompletionMessageParam

from openclaw_rl.evals.client import Client, ClientReply, served_model
from openclaw_rl.evals.people.users import User, UserTask
from openclaw_rl.evals.records import Example, LearningReport, Measurement, SessionRecord, TurnRecord, number_of
from openclaw_rl.evals.settled import is_settled
from openclaw_rl.evals.share import Share

BEFORE, CONVERGED, AFTER = "before", "converged", "after"
FIRST_HELD_OUT = 1_000_000  # numbers of measured tasks are above those of all sessions
EXAMPLES = 6


@dataclass(frozen=True, slots=True)
class RunSettings:
    """How a run is driven."""

    sessions: int = 24
    """The most sessions."""
    most_corrections: int = 3
    """How often a user corrects before giving a session up."""
    problems: int = 120
    """Unseen problems in one measurement."""
    stop_after: int | None = None
    """Sessions after the one that converged; None continues to the last."""
    temperature: float = 0.7
    """The temperature of every reply, measured ones included."""
    max_tokens: int = 256
    """Of every reply."""
    at_once: int = 8
    """Concurrent requests of a measurement."""
    settle_s: float = 60.0
    """How long a user waits at most between sessions for the server to learn what it can."""
    poll_s: float = 0.2
    """How often the server's status is read meanwhile."""


@dataclass(frozen=True, slots=True)
class SessionStarted:
    """A session begins."""

    number: int
    of: int


@dataclass(frozen=True, slots=True)
class Spoke:
    """A message of the user or the model; `version` is the model's, and `is_good` the user's opinion."""

    who: str
    text: str
    version: str = ""
    is_good: bool | None = None


@dataclass(frozen=True, slots=True)
class Measuring:
    """How many problems of a measurement are done."""

    label: str
    done: int
    of: int


Event = SessionStarted | Spoke | SessionRecord | Measuring | Measurement
OnEvent = Callable[[Event], None]


async def learn(
    base_url: str,
    key: str,
    user: User,
    *,
    settings: RunSettings | None = None,
    seed: int = 0,
    on_event: OnEvent = lambda event: None,
) -> LearningReport:
    """A whole run against the server at `base_url`, which ends in `/v1`.

    The same seed gives the same tasks, words and sampling seeds. Between sessions the user waits until the server has
    learned what it can from the last one, so that the relative speed of user and trainer does not affect the result.
    """
    async with Client(base_url, key, await served_model(base_url, key)) as client:
        run = LearningRun(client, user, settings or RunSettings(), seed=seed, on_event=on_event)
        await run.run()
        return await run.report()


@dataclass(slots=True)
class LearningRun:
    """The state of a run, so that a run stopped early still has its results."""

    client: Client
    user: User
    settings: RunSettings
    seed: int = 0
    on_event: OnEvent = lambda event: None
    sessions: list[SessionRecord] = field(default_factory=list)
    measurements: list[Measurement] = field(default_factory=list)
    started_s: float = field(default_factory=time.monotonic)
    versions: int = 0

    async def run(self) -> None:
        """Measures, talks, measures again when the wish is followed, and at the end."""
        await self._measure(BEFORE)
        for number in range(1, self.settings.sessions + 1):
            await self._session(number)
            met_at = self.report_now().converged_at
            if met_at == number:
                await self._measure(CONVERGED)
            stop_after = self.settings.stop_after
            if met_at is not None and stop_after is not None and number >= met_at + stop_after:
                break
        newest = self.measurements[-1]
        if newest.label == CONVERGED and newest.after_session == len(self.sessions):
            self._measured(replace(newest, label=AFTER))  # no session since: the same figures
        else:
            await self._measure(AFTER)

    async def report(self) -> LearningReport:
        """The results of the run, with the server's number of versions."""
        rows = await self.client.versions()
        self.versions = sum(
            1 for row in rows if str(row.get("status")) == "live" and number_of(str(row.get("version"))) > 0
        )
        return self.report_now()

    def report_now(self) -> LearningReport:
        """The same without asking the server."""
        return LearningReport(
            user=self.user.name,
            wish=self.user.wish,
            seed=self.seed,
            temperature=self.settings.temperature,
            sessions=tuple(self.sessions),
            measurements=tuple(self.measurements),
            refused=self.client.refused,
            versions=max([self.versions, *(number_of(turn.reply.version) for turn in self._turns())]),
            seconds=time.monotonic() - self.started_s,
        )

    def _turns(self) -> list[TurnRecord]:
        return [turn for session in self.sessions for turn in session.turns]

    async def _session(self, number: int) -> None:
        started = time.monotonic()
        self.on_event(SessionStarted(number, self.settings.sessions))
        name = f"{self.user.name}-{self.seed}-{number}"
        turns = await self._talk(self.user.task(number), name, number)
        await self.client.end(name)
        is_settled = await settle(self.client, limit_s=self.settings.settle_s, poll_s=self.settings.poll_s)
        judged = [replace(turn, news=await self.client.turn(turn.reply.turn)) for turn in turns]
        record = SessionRecord(number, tuple(judged), time.monotonic() - started, is_settled)
        self.sessions.append(record)
        self.on_event(record)

    async def _talk(self, task: UserTask, name: str, number: int) -> list[TurnRecord]:
        """The conversation: until the user is content and says so, or gives up."""
        messages: list[ChatCompletionMessageParam] = []
        turns: list[TurnRecord] = []
        asked = task.opening
        while True:
            self.on_event(Spoke("user", asked))
            messages.append({"role": "user", "content": asked})
            reply = await self._reply(messages, name, seed=1000 * number + len(turns))
            check = task.check(reply.text)
            self.on_event(Spoke("model", reply.text, reply.version, check.is_met))
            if not check.is_met and len(turns) >= self.settings.most_corrections:
                turns.append(TurnRecord(asked, reply, check, None))
                return turns
            said = task.answer(reply.text, check)
            turns.append(TurnRecord(asked, reply, check, said))
            messages.append({"role": "assistant", "content": reply.text})
            if check.is_met:
                self.on_event(Spoke("user", said))
                # The reply to thanks has no next state, so nothing is learned from it.
                await self._reply([*messages, {"role": "user", "content": said}], name, seed=1000 * number + 999)
                return turns
            asked = said

    async def _reply(self, messages: list[ChatCompletionMessageParam], name: str, *, seed: int) -> ClientReply:
        return await self.client.say(
            messages,
            session=name,
            temperature=self.settings.temperature,
            max_tokens=self.settings.max_tokens,
            seed=self.seed * 1_000_000 + seed,
        )

    async def _measure(self, label: str) -> None:
        measurement = await measure(
            self.client,
            self.user,
            self.settings,
            label=label,
            after_session=len(self.sessions),
            on_event=self.on_event,
        )
        self._measured(measurement)

    def _measured(self, measurement: Measurement) -> None:
        self.measurements.append(measurement)
        self.on_event(measurement)


async def measure(
    client: Client,
    user: User,
    settings: RunSettings,
    *,
    label: str,
    after_session: int = 0,
    on_event: OnEvent = lambda event: None,
) -> Measurement:
    """First replies to unseen problems, as side turns in separate sessions: they neither train nor count.

    Each time the same problems with the same sampling seeds, at the temperature used for everybody.
    """
    slots = asyncio.Semaphore(settings.at_once)
    done = 0

    async def one(number: int) -> tuple[Example, ClientReply]:
        nonlocal done
        task = user.task(FIRST_HELD_OUT + number, held_out=True)
        async with slots:
            reply = await client.say(
                [{"role": "user", "content": task.opening}],
                session=f"measure-{label}-{after_session}-{number}",
                temperature=settings.temperature,
                max_tokens=settings.max_tokens,
                seed=number,
                is_side=True,
            )
        done += 1
        on_event(Measuring(label, done, settings.problems))
        return Example(task.opening, reply.text, task.check(reply.text)), reply

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(number)) for number in range(settings.problems)]
    examples = [task.result()[0] for task in tasks]
    replies = [task.result()[1] for task in tasks]
    return Measurement(
        label=label,
        after_session=after_session,
        version=replies[-1].version,
        wish=Share(sum(item.check.follows for item in examples), len(examples)),
        right=Share(sum(item.check.right for item in examples), len(examples)),
        degenerate=sum(
            not item.check.sane or reply.finish == "length" for item, reply in zip(examples, replies, strict=True)
        ),
        mean_chars=sum(len(reply.text) for reply in replies) / len(replies),
        examples=tuple(examples[:EXAMPLES]),
    )


async def settle(client: Client, *, limit_s: float, poll_s: float = 0.2) -> bool:
    """Waits until the server has learned what it can from its turns; False if `limit_s` was not enough."""
    until = time.monotonic() + limit_s
    while time.monotonic() < until:
        if is_settled(await client.status()):
            return True
        await asyncio.sleep(poll_s)
    return False
