"""Does what a user accepted show which hints they did not mean, and never that they did not mean the right one?

On models and users of bench-transfer: the base model's reply to a problem is corrected in each of the user's wordings,
and answered again three times by the base model in that conversation. What is right and keeps to the wish then, its
user accepts. Each is compared with the right hint, with the user's own words as a hint, and with the hints of other
wishes (`teach/misheard.py`), those for the same part of a reply counted apart. A hint that the user's own words outdo,
or that was misheard, counts as outdone. "Accepted out of politeness" are all
other replies, had their users been content with them: there the right hint should not be taken for misheard either,
but is. The last line is one line of JSON.
"""

from __future__ import annotations

import argparse
import asyncio
from collections import Counter
from pathlib import Path

from benchmarks.common import Figures, conditions, finish, is_quick, progress
from benchmarks.first_steps import Ground
from benchmarks.transfer import folder_of
from benchmarks.transfer_users import BUNDLED, MODELS, Visitor, hint_for, said_in, users_of
from openclaw_rl.core.hint import told_after
from openclaw_rl.engines.local.client import LocalEngine
from openclaw_rl.engines.settings import EngineSettings
from openclaw_rl.evals.learning import FIRST_HELD_OUT
from openclaw_rl.teach.misheard import are_quotes_in, explained, is_misheard, is_outdone
from openclaw_rl.tiny import world as bundled
from openclaw_rl.tiny.worlds.parts import ReplyFormat
from openclaw_rl.tiny.worlds.world import first, last, way

AGAIN = 3  # replies to each correction
AT_ONCE = 4
WISHES = (
    *map(way, (ReplyFormat.PLAIN, ReplyFormat.SHORT, ReplyFormat.DETAILED, ReplyFormat.LIST, ReplyFormat.FRIENDLY)),
    way(ReplyFormat.MARKDOWN), first("Dear friend!"), last("Good luck!"),
)  # fmt: skip


async def looked_at(ground: Ground, user: Visitor, number: int, words: str) -> Counter[str]:
    """One problem and one wording."""
    found = Counter[str]()
    errand = user.task(FIRST_HELD_OUT + number, held_out=True)
    corrected = await ground.turn(errand.opening, number)
    if user.ground.holds(corrected.reply.text, user.want):
        return found
    right = hint_for(user.want)
    others = {hint_for(wish): wish.place for wish in WISHES if wish != user.want}
    for seed in range(AGAIN):
        told = told_after(corrected.messages, corrected.reply, [words])
        again = await ground.answer("again", told, seed, temperature=1.0)
        nats = await explained(ground.engine, ground.renderer, again, corrected, [right, *others], own=[words])
        wrong = [hint for hint in nats if is_misheard(nats, hint)]
        doubted = [hint for hint in (*others, right) if not are_quotes_in(hint, again.reply.text)]
        less = [*wrong, *(hint for hint in doubted if is_outdone(nats, hint, words))]
        if not (user.ground.holds(again.reply.text, user.want) and errand.check(again.reply.text).right):
            found["accepted out of politeness"] += 1
            found["right hint misheard then"] += right in wrong
            found["right hint outdone then"] += right in less
            continue
        found["accepted"] += 1
        found["right hint misheard"] += right in wrong
        found["right hint outdone"] += right in less
        found["own words misheard"] += words in wrong
        for hint, place in others.items():
            kind = "of the same part" if place is user.want.place else "of another part"
            found[f"wrong hint {kind}"] += 1
            found[f"wrong hint {kind} found"] += hint in wrong
            found[f"wrong hint {kind} outdone"] += hint in less
    return found


async def measured(model: str, seeds: list[int]) -> list[Figures]:
    """A row for a model, all users and seeds together."""
    folder = bundled.bundled_model() if model == BUNDLED else Path(folder_of(model))
    engine = await LocalEngine.start(EngineSettings(model=str(folder)))
    slots = asyncio.Semaphore(AT_ONCE)
    rows = Counter[str]()
    try:
        ground = Ground(folder, engine)

        async def one(user: Visitor, number: int, words: str) -> Counter[str]:
            async with slots:
                return await looked_at(ground, user, number, words)

        for seed in seeds:
            for user in users_of(model, seed):
                wordings = said_in(user.language)[user.want.way or user.want.place]
                said = [words.format(words=user.want.value) for words in wordings]
                for found in await asyncio.gather(*(one(user, at, words) for at, words in enumerate(said))):
                    rows.update(found)
                progress(f"{model} {seed} {user.name}: {dict(rows)}")
    finally:
        await engine.aclose()
    return [{"model": model, **rows}]


def main() -> None:
    """Runs what is asked for."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--models", nargs="*", default=[BUNDLED], choices=MODELS)
    options.add_argument("--seeds", type=int, nargs="*", default=[0] if is_quick() else [0, 1])
    given = options.parse_args()
    found = [row for name in given.models for row in asyncio.run(measured(name, given.seeds))]
    where = conditions(", ".join(given.models), threads=1, seeds=given.seeds, repeats=1)
    finish({"rows": found, "conditions": where})


if __name__ == "__main__":
    main()
