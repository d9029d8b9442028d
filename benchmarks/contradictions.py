"""Does the check for contradictions find the replies that a hint made wrong, and what is said in their place?

On models and users of bench-transfer, and on problems that no recipe has: each problem is answered by the base model
with the user's wish as a hint and checked as teaching does (`teach/contradictions.py`). Counted are right and wrong
replies that the check lets through or not, and the right ones among the replies that come in place of the latter; and
those that slip (`teach/slips.py`). No check sees answers. With `--hint` all users have
this hint, such as one that a judge misheard. The last line is one line of JSON.
"""

from __future__ import annotations

import argparse
import asyncio
from collections import Counter
from pathlib import Path

from benchmarks.common import Figures, conditions, finish, is_quick, progress
from benchmarks.first_steps import LONGEST, TEMPERATURE, Ground
from benchmarks.transfer import folder_of
from benchmarks.transfer_users import BUNDLED, Errand, Visitor, hint_for, stranger, users_of
from openclaw_rl.core.hint import PlacedHint, with_hints
from openclaw_rl.core.message import Role, message
from openclaw_rl.engines.local.client import LocalEngine
from openclaw_rl.engines.settings import EngineSettings
from openclaw_rl.evals.learning import FIRST_HELD_OUT
from openclaw_rl.teach.contradictions import ContentCheck
from openclaw_rl.teach.slips import Sources, slips
from openclaw_rl.tiny import world as bundled

AT_ONCE = 4


async def looked_at(ground: Ground, errand: Errand, hint: str, seed: int) -> list[str]:
    """One problem, answered and checked, in words to count."""
    check = ContentCheck(ground.engine, ground.renderer, ground.ends, LONGEST, TEMPERATURE)
    asked = (message(Role.USER, errand.opening),)
    hinted = ground.renderer.prompt(with_hints(asked, [PlacedHint(0, "", hint)]), (), None)
    turn = await ground.turn(errand.opening, seed)
    said = await check.drawn(hinted, seed)
    unhinted = await check.drawn(turn.prompt, seed)
    reply = None if unhinted is None else await check.decoded(unhinted)
    anchored = None if reply is None else await check.after(turn, asked, reply, [hint])
    if said is None or anchored is None:
        return ["no end"]

    def kind(tokens: tuple[int, ...]) -> str:
        return "right" if errand.check(ground.renderer.decode(tokens)[0].text).right else "wrong"

    found = [kind(said.tokens)]
    if await slips(ground.engine, Sources((turn.prompt,)), hinted, said.tokens) is not None:
        found.append(f"{kind(said.tokens)}, slips")
    if not await check.contradicts(hinted, anchored, said.tokens):
        return [*found, f"{kind(said.tokens)}, let through"]
    second = await check.second(hinted, anchored, seed)
    instead = "none in its place" if second is None else f"{kind(second.tokens)} in its place"
    return [*found, f"{kind(said.tokens)}, found, {instead}"]


async def measured(model: str, seeds: list[int], problems: int, hint: str) -> list[Figures]:
    """A row for each user of a model, all seeds together."""
    folder = bundled.bundled_model() if model == BUNDLED else Path(folder_of(model))
    engine = await LocalEngine.start(EngineSettings(model=str(folder)))
    slots = asyncio.Semaphore(AT_ONCE)
    rows: dict[str, Counter[str]] = {}
    try:
        ground = Ground(folder, engine)

        async def one(user: Visitor, number: int) -> tuple[str, list[str]]:
            async with slots:
                errand = user.task(FIRST_HELD_OUT + number, held_out=True)
                return user.name, await looked_at(ground, errand, hint or hint_for(user.want), number)

        for seed in seeds:
            for visitor in [*users_of(model, seed), *([stranger(seed)] if model == BUNDLED else [])]:
                both = dict.fromkeys((visitor, visitor.elsewhere()))
                looks = await asyncio.gather(*(one(user, at) for user in both for at in range(problems)))
                for name, words in looks:
                    rows.setdefault(name, Counter()).update(words)
                told = {user.name: dict(rows[user.name]) for user in both}
                progress(f"{model} {seed}: {told}")
    finally:
        await engine.aclose()
    return [{"model": model, "user": name, **found} for name, found in rows.items()]


def main() -> None:
    """Runs what is asked for."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--models", nargs="*", default=[BUNDLED] if is_quick() else [BUNDLED, "ferries", "shop"])
    options.add_argument("--seeds", type=int, nargs="*", default=[0] if is_quick() else [0, 1])
    options.add_argument("--problems", type=int, default=20 if is_quick() else 100)
    options.add_argument("--hint", default="")
    given = options.parse_args()
    runs = (asyncio.run(measured(name, given.seeds, given.problems, given.hint)) for name in given.models)
    found = [row for rows in runs for row in rows]
    where = conditions(", ".join(given.models), threads=1, seeds=given.seeds, repeats=1)
    finish({"rows": found, "problems": given.problems, "conditions": where})


if __name__ == "__main__":
    main()
