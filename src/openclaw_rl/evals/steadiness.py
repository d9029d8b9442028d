"""Two difficult users: one whose wish changes, and one whose wishes are contradictory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from openai.types.chat import ChatCompletionMessageParam

from openclaw_rl.core.message import Json
from openclaw_rl.evals.client import Client
from openclaw_rl.evals.learning import BEFORE, LearningRun, OnEvent, RunSettings, measure, settle
from openclaw_rl.evals.people.users import Student
from openclaw_rl.evals.records import LearningReport, Measurement
from openclaw_rl.tiny import world

TURNS = 40  # of a user with contradictory wishes
ROUNDS = 4  # replies in each of their sessions
NO_EFFECT = "training has no effect for this user"  # in the server's warning about one who corrects as much as before


@dataclass(frozen=True, slots=True)
class ChangedWish:
    """How long a wish took to learn, and then its opposite."""

    first: LearningReport
    second: LearningReport

    def as_json(self) -> dict[str, Json]:
        """The figures: sessions until each held three times running, and how often it is followed at the end."""
        return {
            "first_converged_at": self.first.converged_at,
            "second_converged_at": self.second.converged_at,
            "first_wish_at_end": _wish(self.first),
            "second_wish_at_end": _wish(self.second),
            "accuracy_drop_points": _dropped(self.first.measurements[0], self.second.measurements[-1]),
        }


@dataclass(frozen=True, slots=True)
class Contrary:
    """The cost of random feedback, and whether the server reported a problem."""

    before: Measurement
    after: Measurement
    turns: int
    versions: int
    warnings: tuple[str, ...]

    def as_json(self) -> dict[str, Json]:
        """The figures. `noticed` contains the server's warnings about users on whom training has no effect."""
        return {
            "turns": self.turns,
            "versions": self.versions,
            "accuracy_before": round(self.before.right.value, 4),
            "accuracy_after": round(self.after.right.value, 4),
            "accuracy_drop_points": _dropped(self.before, self.after),
            "degenerate_after": self.after.degenerate,
            "noticed": list(self.warnings),
        }


async def changed_wish(client: Client, seed: int, settings: RunSettings, on_event: OnEvent) -> ChangedWish:
    """A student who wants plain sentences until they get them, and then wants headers and numbered steps after all."""
    wanted = (world.Style.NATURAL, world.Style.AI)
    reports = []
    for style in wanted:
        student = replace(Student(seed), style=style, name=f"student-{style}")
        run = LearningRun(client, student, settings, seed=seed, on_event=on_event)
        await run.run()
        reports.append(await run.report())
    return ChangedWish(*reports)


async def contrary(client: Client, seed: int, settings: RunSettings, on_event: OnEvent) -> Contrary:
    """Forty replies, each answered at random: thanked for, called wrong, or wanted in a style drawn by lot."""
    student = Student(seed)
    before = await measure(client, student, settings, label=BEFORE, on_event=on_event)
    for number in range(TURNS // ROUNDS):
        await _talk(client, seed, number, settings)
        await settle(client, limit_s=settings.settle_s, poll_s=settings.poll_s)
    after = await measure(client, student, settings, label="after", after_session=TURNS // ROUNDS, on_event=on_event)
    status, versions = await client.status(), await client.versions()
    warnings_given = status.get("warnings")
    warnings = [str(item) for item in warnings_given] if isinstance(warnings_given, list) else []
    made = sum(str(row.get("status")) == "live" for row in versions) - 1
    return Contrary(before, after, TURNS, made, tuple(item for item in warnings if NO_EFFECT in item))


async def _talk(client: Client, seed: int, number: int, settings: RunSettings) -> None:
    words = Random(f"contrary {seed} {number}")
    name = f"contrary-{seed}-{number}"
    made = world.problem(words)
    messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": world.request(made, words)}]
    for turn in range(ROUNDS + 1):  # the last turn only gives the reply before it a next state
        reply = await client.say(
            messages,
            session=name,
            temperature=settings.temperature,
            max_tokens=settings.max_tokens,
            seed=1000 * number + turn,
        )
        messages += [
            {"role": "assistant", "content": reply.text},
            {"role": "user", "content": _said(made, reply.text, words)},
        ]
    await client.end(name)


def _said(made: world.Problem, reply: str, words: Random) -> str:
    """Anything at all."""
    lot = words.random()
    if lot < 0.3:
        return world.thanks(words)
    if lot < 0.5:
        return world.wrong(made, words, said=world.answer_in(reply) or "")
    return world.correction(words.choice(list(world.Style)), words)


def _wish(report: LearningReport) -> float:
    return round(report.measurements[-1].wish.value, 4)


def _dropped(before: Measurement, after: Measurement) -> float:
    return round(100 * (before.right.value - after.right.value), 2)
