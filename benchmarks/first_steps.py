"""What the step after a first correction does to a model: the wish and the right answers on unseen problems.

No server and no gate: the product's demonstrations and its trainer, on the models and users of bench-transfer, at a
minute of one core each. The bundled model has one more user here, `gives`, with problems that none of its recipes has.
A made model can have another body: `--models hotel@qwen3-moe`. `--hint`, `--warmth`, `--taught-temperature`, `--lr`,
`--others`, `--part` and `--unchecked` are for trying other ways than the product's; `--accepted` adds replies of
earlier sessions that the user accepted, as any step but a server's first may contain them. The last line is one line
of JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from benchmarks.common import Figures, conditions, finish, is_quick, progress
from benchmarks.transfer import folder_of
from benchmarks.transfer_users import BUNDLED, MODELS, Visitor, hint_for, stranger, users_of
from openclaw_rl.core.adapter import Adapter, digest_of_folder
from openclaw_rl.core.completion import Finish, completion_of
from openclaw_rl.core.hint import Hint, PlacedHint, with_hints
from openclaw_rl.core.message import Message, Role, message
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.sample import Sample
from openclaw_rl.core.sampling import Sampling
from openclaw_rl.core.turn import Turn, TurnKind
from openclaw_rl.core.verdict import Verdict, VerdictSource
from openclaw_rl.core.version import BASE, SHARED, PolicyVersion
from openclaw_rl.engines.local.client import LocalEngine
from openclaw_rl.engines.settings import EngineSettings
from openclaw_rl.evals.learning import FIRST_HELD_OUT
from openclaw_rl.render.renderer import ChatRenderer
from openclaw_rl.render.template import read_template
from openclaw_rl.teach.assemble import sample_of
from openclaw_rl.teach.contradictions import ContentCheck
from openclaw_rl.teach.demonstrate import Demonstrator
from openclaw_rl.teach.elsewhere import WARMTH, OtherReplies
from openclaw_rl.teach.made_up import MadeUpRequests, opens_of
from openclaw_rl.teach.other_requests import OtherRequests
from openclaw_rl.teach.settings import TeachSettings
from openclaw_rl.tiny import world as bundled
from openclaw_rl.trainers import checks
from openclaw_rl.trainers.lora import LoraTrainer
from openclaw_rl.trainers.settings import MethodSettings, TrainerSettings

TEMPERATURE = 0.7
LONGEST = 256
AT_ONCE = 8
OTHERS = TeachSettings().other_requests
EARLIER = 300  # the number of the first earlier session: above those of the others, below those of measurements


class Shares(NamedTuple):
    """The share of replies that keep to the wish, that of right answers, and how unsure the model is of its tokens.

    `nats` is -log p of a token as sampled, at temperature 1, in the mean of a reply's tokens and of the replies.
    """

    wish: float
    right: float
    nats: float


class Ground:
    """A model that users talk to: its engine, and how prompts are written for it."""

    def __init__(self, folder: Path, engine: LocalEngine) -> None:
        self.folder, self.engine = folder, engine
        self.renderer = ChatRenderer(read_template(folder))
        self.ends = self.renderer.ends(engine.info.eos_ids)

    def prompt(self, asked: str, hint: str = "") -> Prompt:
        """The ids of a request that opens a conversation, with a hint if one is given."""
        said = (message(Role.USER, asked),)
        return self.renderer.prompt(with_hints(said, [PlacedHint(0, "", hint)]) if hint else said, (), None)

    async def turn(self, asked: str, seed: int) -> Turn:
        """The base model's answer to this request."""
        return await self.answer("t", (message(Role.USER, asked),), seed, TEMPERATURE)

    async def answer(self, name: str, said: tuple[Message, ...], seed: int, temperature: float) -> Turn:
        """The base model's answer to these messages, as a turn of that name."""
        prompt = self.renderer.prompt(said, (), None)
        sampling = Sampling(max_tokens=LONGEST, temperature=temperature, seed=seed, stop_ids=self.ends)
        sampled = [item async for item in self.engine.generate(prompt, sampling, BASE)]
        reply, _ = self.renderer.decode([item.token for item in sampled])
        completion = completion_of(sampled, BASE, sampled[-1].finish or Finish.STOP)
        return Turn(name, "s", "ann", "main", TurnKind.MAIN, "m", said, (), prompt, completion, reply, 1.0)

    async def shares(self, user: Visitor, version: PolicyVersion, problems: int, *, hint: str = "") -> Shares:
        """What first replies to unseen problems are like, with a hint in the prompt if one is given."""
        slots = asyncio.Semaphore(AT_ONCE)

        async def one(number: int) -> Shares:
            errand = user.task(FIRST_HELD_OUT + number, held_out=True)
            sampling = Sampling(max_tokens=LONGEST, temperature=TEMPERATURE, seed=number, stop_ids=self.ends)
            async with slots:
                prompt = self.prompt(errand.opening, hint)
                said = [item async for item in self.engine.generate(prompt, sampling, version)]
            check = errand.check(self.renderer.decode([item.token for item in said])[0].text)
            return Shares(check.follows, check.right, -statistics.fmean(item.logp for item in said))

        found = await asyncio.gather(*(one(number) for number in range(problems)))
        wish, right, nats = (statistics.fmean(getattr(each, name) for each in found) for name in Shares._fields)
        return Shares(wish, right, nats)


async def corrected(ground: Ground, user: Visitor, hint: str, warmth: float, others: int) -> Sample:
    """The sample of this user's first correction, a judge having heard it right."""
    errand = user.task(1)
    turn = await ground.turn(errand.opening, user.seed)
    said = errand.answer(turn.reply.text, errand.check(turn.reply.text))
    return await demonstrated(ground, turn, said, hint, warmth=warmth, others=others)


async def demonstrated(
    ground: Ground,
    turn: Turn,
    said: str,
    hint: str,
    *,
    before: Sequence[Turn] = (),
    known: Sequence[PlacedHint] = (),
    warmth: float = WARMTH,
    others: int = OTHERS,
) -> Sample:
    """The sample of a turn whose user answered so, which a judge heard as this hint.

    Its user had these turns `before`, newest first, and the weights may have learned these hints.
    """
    verdict = Verdict(turn.id, -1, VerdictSource.VOTES, hints=(Hint(hint),))
    settings = TeachSettings(other_requests=others)

    async def current(turn: Turn) -> PolicyVersion:
        return BASE

    async def assembled(beside: Sequence[PlacedHint]) -> Sample:
        return sample_of(turn, verdict, ground.renderer, baseline=None, max_tokens=8192, known=beside)

    elsewhere = other_replies(ground, settings, before=before, said=said, warmth=warmth)
    teacher = Demonstrator(ground.engine, current, ground.renderer, ground.ends, settings, elsewhere)
    sample, _ = await teacher.demonstrated(turn, turn.prompt, known, assembled)
    return sample


def other_replies(
    ground: Ground, settings: TeachSettings, *, before: Sequence[Turn] = (), said: str = "", warmth: float = WARMTH
) -> OtherReplies:
    """What is asked for replies to other requests, of a user who had these turns `before` and then answered so."""

    async def earlier(turn: Turn) -> Sequence[Turn]:
        return before

    async def wished(turn: Turn) -> Sequence[Turn]:
        return ()

    async def answered(turn: Turn) -> Sequence[Message]:
        return (message(Role.USER, said),) if said else ()

    made_up = MadeUpRequests(ground.engine, ground.ends, opens_of(ground.renderer))
    requests = OtherRequests(ground.renderer, settings, earlier, wished, answered, made_up)
    return OtherReplies(ground.engine, ground.renderer, ground.ends, settings, requests, warmth)


async def accepted(ground: Ground, user: Visitor, many: int) -> list[Sample]:
    """Replies of earlier sessions that this user accepted, as samples: they train the anchor alone."""
    found: list[Sample] = []
    for session in range(many):
        name = f"earlier {session}"
        said = (message(Role.USER, user.task(EARLIER + session).opening),)
        turn = replace(await ground.answer(name, said, EARLIER + session, TEMPERATURE), session=name)
        verdict = Verdict(name, 0, VerdictSource.VOTES)
        found.append(sample_of(turn, verdict, ground.renderer, baseline=None, max_tokens=8192, reward=0.0))
    return found


async def one(ground: Ground, user: Visitor, number: int, given: argparse.Namespace) -> Figures:
    """One user's first step: wish, and right answers before, when the base model is told the wish, and after it.

    Each is a share of first replies, for both kinds of problems.
    """
    version = PolicyVersion(SHARED, number)
    started = time.process_time()
    hint = given.hint or hint_for(user.want)
    sample = await corrected(ground, user, hint, given.warmth, given.others)
    samples = [sample, *await accepted(ground, user, given.accepted)]
    drawn = time.process_time()
    problems: int = given.problems
    with tempfile.TemporaryDirectory(prefix="openclaw-rl-steps-") as home:
        folder = Path(home) / "v"
        method = MethodSettings(taught_temperature=given.taught_temperature)
        trainer = LoraTrainer.open(ground.folder, replace(TrainerSettings(), lr=given.lr, method=method))
        opened = time.process_time()
        report = await asyncio.to_thread(trainer.step, samples)
        stepped = time.process_time()
        trainer.export(folder, version)
        await ground.engine.load(Adapter(folder, digest_of_folder(folder), version))
        found: Figures = {"user": user.name, "seed": user.seed, "updates": report.metrics.get("updates")}
        found |= {"drawn_cpu_s": round(drawn - started, 2), "step_cpu_s": round(stepped - opened, 2)}
        for kind, who in (("taught", user), ("never", user.elsewhere())):
            before = await ground.shares(who, BASE, problems)
            told = await ground.shares(who, BASE, problems, hint=hint)
            after = await ground.shares(who, version, problems)
            found |= {f"{kind}_wish": after.wish, f"{kind}_before": before.right, f"{kind}_told": told.right}
            found |= {f"{kind}_right": after.right, f"{kind}_nats_told": told.nats, f"{kind}_nats": after.nats}
        await ground.engine.unload(version)
    return found


async def measured(model: str, users: list[str], seeds: list[int], given: argparse.Namespace) -> list[Figures]:
    """Every user of a model."""
    folder = bundled.bundled_model() if model == BUNDLED else Path(folder_of(model))
    engine = await LocalEngine.start(EngineSettings(model=str(folder)))
    found: list[Figures] = []
    try:
        ground = Ground(folder, engine)
        for seed in seeds:
            visitors = [*users_of(model, seed), *([stranger(seed)] if model == BUNDLED else [])]
            for user in (user for user in visitors if not users or user.name in users):
                found.append({"model": model} | await one(ground, user, len(found) + 1, given))
                progress(f"{found[-1]}")
    finally:
        await engine.aclose()
    return found


async def _never(self: ContentCheck, hinted: Prompt, anchored: Prompt, said: tuple[int, ...]) -> bool:
    return False


def main() -> None:
    """Runs what is asked for."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--models", nargs="*", default=[BUNDLED] if is_quick() else list(MODELS))
    options.add_argument("--users", nargs="*", default=[], help="only users of these names; all by default")
    options.add_argument("--seeds", type=int, nargs="*", default=[0] if is_quick() else list(range(5)))
    options.add_argument("--problems", type=int, default=40 if is_quick() else 200)
    options.add_argument("--warmth", type=float, default=WARMTH, help="temperature of replies to other requests")
    options.add_argument("--taught-temperature", type=float, default=MethodSettings().taught_temperature)
    options.add_argument("--lr", type=float, default=None, help="rate of the first update")
    options.add_argument("--others", type=int, default=OTHERS, help="how many other requests a wish is taught on")
    options.add_argument("--hint", default="", help="the hint's words, in place of those that the model was taught")
    options.add_argument("--part", type=float, default=checks.PART, help="of the way to mended checks; 1: all of it")
    options.add_argument("--accepted", type=int, default=0, help="how many replies accepted earlier are in the step")
    options.add_argument("--unchecked", action="store_true", help="learn from replies that contradict, too")
    given = options.parse_args()
    if given.unchecked:
        ContentCheck.contradicts = _never  # type: ignore[method-assign]
    checks.PART = given.part
    found = [row for name in given.models for row in asyncio.run(measured(name, given.users, given.seeds, given))]
    where = conditions(", ".join(given.models), threads=1, seeds=given.seeds, repeats=1)
    finish(
        {
            "runs": found,
            "warmth": given.warmth,
            "taught_temperature": given.taught_temperature,
            "lr": given.lr,
            "others": given.others,
            "hint": given.hint,
            "accepted": given.accepted,
            "part": given.part,
            "unchecked": given.unchecked,
            "problems": given.problems,
            "conditions": where,
        }
    )


if __name__ == "__main__":
    main()
