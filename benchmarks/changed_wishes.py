"""Is a user heeded who wants another form than the one that the weights have learned?

On models of bench-transfer: for each two wishes the base model's reply to a problem, given the first as a hint, stands
for a reply of weights that learned it. It is corrected with the other wish, which a judge heard right. Counted are the
corrections that teach nothing since the hint seems to have no effect (`unheeded`), for wishes for the same part of a
reply (a change of mind) and for different parts (one more wish), and of those that are learned the ones whose likeliest
demonstration is as wished. No server and no step: minutes of one core a model. The last line is one line of JSON.

With `--others N` (16 as shipped) only changes of mind are looked at, with demonstrations on up to N other
requests: how many of these are as wished, and how many as the wish that was learned before.
"""

from __future__ import annotations

import argparse
import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.common import Figures, conditions, finish, is_quick, progress
from benchmarks.first_steps import TEMPERATURE, Ground, demonstrated
from benchmarks.misheard import WISHES
from benchmarks.transfer import folder_of
from benchmarks.transfer_users import BUNDLED, MODELS, Visitor, hint_for, users_of
from openclaw_rl.core.hint import Hint, PlacedHint, with_hints
from openclaw_rl.core.message import Role, message
from openclaw_rl.core.sample import Sample
from openclaw_rl.core.turn import Turn
from openclaw_rl.core.verdict import Verdict, VerdictSource
from openclaw_rl.core.version import BASE, PolicyVersion
from openclaw_rl.engines.local.client import LocalEngine
from openclaw_rl.engines.settings import EngineSettings
from openclaw_rl.evals.learning import FIRST_HELD_OUT
from openclaw_rl.teach.assemble import sample_of
from openclaw_rl.teach.demonstrate import Demonstrator
from openclaw_rl.teach.settings import TeachSettings
from openclaw_rl.tiny import world as bundled
from openclaw_rl.tiny.worlds.parts import WorldWish

AT_ONCE = 3


async def _base(turn: Turn) -> PolicyVersion:
    return BASE


async def looked_at(
    ground: Ground, user: Visitor, number: int, learned: WorldWish, wanted: WorldWish, *, others: int
) -> Counter[str]:
    """One problem and two wishes; nothing is counted if the reply is not as the first asks, or is as both ask."""
    errand = user.task(FIRST_HELD_OUT + number, held_out=True)
    asked, known = (message(Role.USER, errand.opening),), PlacedHint(0, "learned", hint_for(learned))
    said = await ground.answer("t", with_hints(asked, [known]), number, TEMPERATURE)
    holds = user.ground.holds
    if not holds(said.reply.text, learned) or holds(said.reply.text, wanted):
        return Counter()
    turn = replace(said, messages=asked, prompt=ground.prompt(errand.opening))
    kind = "change of mind" if learned.place is wanted.place else "one more wish"
    hint = hint_for(wanted)
    if others:
        sample = await demonstrated(ground, turn, hint, hint, known=[known], others=others)
    else:
        sample = await _corrected_alone(ground, turn, hint, known)
    shown = [ground.renderer.decode(each.tokens)[0].text for each in sample.shown[:1]]
    elsewhere = [ground.renderer.decode(each.reply.tokens)[0].text for each in sample.elsewhere]
    found = {
        f"{kind}": 1,
        f"{kind}, unheeded": not sample.hints,
        f"{kind}, shown as wished": bool(sample.hints) and any(holds(text, wanted) for text in shown),
    }
    if others:
        found |= {
            "elsewhere": len(elsewhere),
            "elsewhere as wished": sum(holds(text, wanted) for text in elsewhere),
            "elsewhere as learned": sum(holds(text, learned) for text in elsewhere),
        }
    return Counter(found)


async def _corrected_alone(ground: Ground, turn: Turn, hint: str, known: PlacedHint) -> Sample:
    """The sample of a correction without demonstrations on other requests."""
    verdict = Verdict(turn.id, -1, VerdictSource.VOTES, hints=(Hint(hint),))

    async def assembled(beside: Sequence[PlacedHint]) -> Sample:
        return sample_of(turn, verdict, ground.renderer, baseline=None, max_tokens=8192, known=beside)

    settings = TeachSettings(other_requests=0)
    teacher = Demonstrator(ground.engine, _base, ground.renderer, ground.ends, settings)
    sample, _ = await teacher.demonstrated(turn, turn.prompt, [known], assembled)
    return sample


async def measured(model: str, seed: int, problems: int, others: int) -> Figures:
    """A row for a model: all pairs of wishes, on the problems of its first user."""
    folder = bundled.bundled_model() if model == BUNDLED else Path(folder_of(model))
    engine = await LocalEngine.start(EngineSettings(model=str(folder)))
    slots, row = asyncio.Semaphore(AT_ONCE), Counter[str]()
    try:
        ground, user = Ground(folder, engine), users_of(model, seed)[0]

        async def one(number: int, learned: WorldWish, wanted: WorldWish) -> Counter[str]:
            async with slots:
                return await looked_at(ground, user, number, learned, wanted, others=others)

        pairs = [(learned, wanted) for learned in WISHES for wanted in WISHES if learned != wanted]
        pairs = [pair for pair in pairs if not others or pair[0].place is pair[1].place]
        for found in await asyncio.gather(*(one(number, *pair) for pair in pairs for number in range(problems))):
            row.update(found)
    finally:
        await engine.aclose()
    progress(f"{model} {seed}: {dict(row)}")
    return {"model": model, "seed": seed, **row}


def main() -> None:
    """Runs what is asked for."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--models", nargs="*", default=[BUNDLED], choices=MODELS)
    options.add_argument("--seeds", type=int, nargs="*", default=[0])
    options.add_argument("--problems", type=int, default=1 if is_quick() else 2, help="for each two wishes")
    options.add_argument("--others", type=int, default=0, help="other requests on which the new wish is demonstrated")
    given = options.parse_args()
    found = [
        asyncio.run(measured(name, seed, given.problems, given.others)) for name in given.models for seed in given.seeds
    ]
    where = conditions(", ".join(given.models), threads=1, seeds=given.seeds, repeats=given.problems)
    finish({"rows": found, "conditions": where})


if __name__ == "__main__":
    main()
