"""Which hints does teaching find to be rivals: hints that the base model hardly ever follows together?

On models of bench-transfer: each two of eight wishes (six formats, first words, last words), the newer one as the hint
of a user's first correction. Wishes for the same part of a reply should be rivals, where the model has no way to follow
both, and wishes for different parts should not. On `museum`, whose users have twelve wishes about kinds of problems
that go together, none should be: there, requests of the other users count as earlier ones. No server and no step: one
to seven minutes of one core a model. The last line is one line of JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from benchmarks.common import Figures, conditions, finish, is_quick, progress
from benchmarks.first_steps import TEMPERATURE, Ground, other_replies
from benchmarks.many_wishes import MODEL as SEVERAL
from benchmarks.misheard import WISHES
from benchmarks.transfer import folder_of
from benchmarks.transfer_users import BUNDLED, MODELS, Visitor, hint_for, users_of
from openclaw_rl.core.hint import PlacedHint
from openclaw_rl.core.message import Role, message
from openclaw_rl.engines.local.client import LocalEngine
from openclaw_rl.engines.settings import EngineSettings
from openclaw_rl.teach.settings import TeachSettings
from openclaw_rl.tiny import world as bundled
from openclaw_rl.tiny.worlds.parts import WorldWish

EARLIER = (5, 6)  # of every third user of `museum`: the numbers of these requests


def cases(model: str, users: Sequence[Visitor]) -> list[tuple[Visitor, WorldWish, list[WorldWish]]]:
    """Who corrects, their wish, and the older ones."""
    if model == SEVERAL:
        return [(user, user.want, [other.want for other in users if other is not user]) for user in users]
    return [(users[0], newer, [older for older in WISHES if older != newer]) for newer in WISHES]


async def measured(model: str, seed: int) -> Figures:
    """A row for a model: pairs of wishes, and how many are rivals, for the same part of a reply and for others."""
    began = time.monotonic()
    folder = bundled.bundled_model() if model == BUNDLED else Path(folder_of(model))
    engine = await LocalEngine.start(EngineSettings(model=str(folder)))
    row, found = Counter[str](), list[str]()
    try:
        ground, users = Ground(folder, engine), users_of(model, seed)
        early = [user.task(number).opening for user in users[::3] for number in EARLIER] if model == SEVERAL else []
        earlier = [
            await ground.answer(f"earlier {number}", (message(Role.USER, asked),), number, TEMPERATURE)
            for number, asked in enumerate(early)
        ]
        for user, newer, older in cases(model, users):
            turn = await ground.turn(user.task(1).opening, seed)
            known = [PlacedHint(0, hint_for(wish), hint_for(wish)) for wish in older]
            rivals = {
                hint.text
                for hint in await other_replies(ground, TeachSettings(), before=earlier).rivals(
                    turn, hint_for(newer), known
                )
            }
            for wish in older:
                part = "same part" if (wish.place, wish.scope) == (newer.place, newer.scope) else "another part"
                row.update({part: 1, f"{part}, rivals": hint_for(wish) in rivals})
                if part == "another part" and hint_for(wish) in rivals:
                    found.append(f"{wish.value} / {newer.value}")
    finally:
        await engine.aclose()
    seconds = round(time.monotonic() - began)
    progress(f"{model} {seed}: {dict(row)} {found} {seconds} s")
    return {"model": model, "seed": seed, **row, "rivals for another part": found, "seconds": seconds}


def main() -> None:
    """Runs what is asked for."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--models", nargs="*", default=["kitchen"] if is_quick() else [*MODELS, SEVERAL])
    options.add_argument("--seeds", type=int, nargs="*", default=[0])
    given = options.parse_args()
    found = [asyncio.run(measured(name, seed)) for name in given.models for seed in given.seeds]
    finish({"rows": found, "conditions": conditions(", ".join(given.models), threads=1, seeds=given.seeds, repeats=1)})


if __name__ == "__main__":
    main()
