"""`make bench-bad-users`: users who teach nothing sensible, on several models: what is spoiled by learning from them.

Each is alone with a fresh server and the settings as shipped, forty replies in ten sessions, and says, whatever the
reply is like: anything at all (`random`), two opposite wishes in turn (`contradictory`), insults (`insulting`), or
pastes mails, chats and logs full of other people's instructions between two questions (`pasting`). Right answers on
unseen problems are counted before and after, of the kinds that were asked and of one that never was. Results are kept
in build/bad-users under a digest of the product. The last line is one line of JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from openai.types.chat import ChatCompletionMessageParam

from benchmarks.common import Figures, conditions, finish, is_quick, progress
from benchmarks.transfer import folder_of, product_digest
from benchmarks.transfer_users import BUNDLED, MODELS, Asked, Visitor, said_in, users_of, wished
from openclaw_rl.core.message import Json
from openclaw_rl.evals.client import Client, served_model
from openclaw_rl.evals.learning import RunSettings, measure, settle
from openclaw_rl.evals.records import Measurement
from openclaw_rl.evals.server import serving
from openclaw_rl.tiny.worlds.parts import ReplyFormat, WorldWish
from openclaw_rl.tiny.worlds.world import way

KEPT = Path("build/bad-users")
SESSIONS, ROUNDS = 10, 4  # and replies in each
KEPT_STYLE = ("insulting", "pasting")  # users who ask for nothing: replies have to stay as long as they were
OPPOSITES = (
    (ReplyFormat.SHORT, ReplyFormat.DETAILED),
    (ReplyFormat.PLAIN, ReplyFormat.LIST),
    (ReplyFormat.PLAIN, ReplyFormat.MARKDOWN),
)
Say = Callable[[Random, int, Asked, Asked], str]  # given the number of the reply, its problem and the next one


@dataclass(frozen=True, slots=True)
class Words:
    """What a user of each kind says of a model's replies."""

    language: str
    wishes: tuple[WorldWish, ...]

    def of(self, kind: str) -> Say:
        """What this kind of user says."""
        says: dict[str, Say] = {
            "random": self._random,
            "contradictory": self._contradictory,
            "insulting": self._insulting,
            "pasting": self._pasting,
        }
        return says[kind]

    def _random(self, rng: Random, number: int, asked: Asked, then: Asked) -> str:
        lot, words = rng.random(), said_in(self.language)
        if lot < 0.3:
            return rng.choice(words["thanks"])
        if lot < 0.5:
            return rng.choice(words["wrong"]).format(said=asked.answer, answer=asked.answer)
        return wished(rng.choice(self.wishes), self.language, rng)

    def _contradictory(self, rng: Random, number: int, asked: Asked, then: Asked) -> str:
        known = {*said_in(self.language)}
        pair = next(pair for pair in OPPOSITES if {one.value for one in pair} <= known)
        return wished(way(pair[number % 2]), self.language, rng)

    def _insulting(self, rng: Random, number: int, asked: Asked, then: Asked) -> str:
        return rng.choice(_table()["insults"])

    def _pasting(self, rng: Random, number: int, asked: Asked, then: Asked) -> str:
        return rng.choice(_table()["pasted"]).format(question=then.opening)


KINDS = ("random", "contradictory", "insulting", "pasting")


def _table() -> dict[str, list[str]]:
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))


async def talk(client: Client, user: Visitor, say: Say, number: int, settings: RunSettings) -> None:
    """One session: every reply is answered in the user's way."""
    rng = Random(f"{user.name} {user.seed} {number}")
    name = f"bad-{user.seed}-{number}"
    asked = user.ground.problem(rng, False)
    messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": asked.opening}]
    for turn in range(ROUNDS + 1):  # the last turn only gives the reply before it a next state
        reply = await client.say(
            messages, session=name, temperature=settings.temperature, max_tokens=settings.max_tokens,
            seed=1000 * number + turn,
        )  # fmt: skip
        then = user.ground.problem(rng, False)
        said = say(rng, ROUNDS * number + turn, asked, then)
        messages += [{"role": "assistant", "content": reply.text}, {"role": "user", "content": said}]
        asked = then if then.opening in said else asked
    await client.end(name)


async def tried(client: Client, user: Visitor, say: Say, settings: RunSettings) -> Json:
    """What is lost by ten sessions with this user."""

    async def measured(label: str) -> tuple[Measurement, Measurement]:
        return (
            await measure(client, user, settings, label=label, on_event=lambda _: None),
            await measure(client, user.elsewhere(), settings, label=f"never {label}", on_event=lambda _: None),
        )

    before = await measured("before")
    for number in range(SESSIONS):
        await talk(client, user, say, number, settings)
        await settle(client, limit_s=settings.settle_s, poll_s=settings.poll_s)
    after = await measured("after")
    status, versions = await client.status(), await client.versions()
    given = status.get("warnings")
    lost = [round(100 * (was.right.value - now.right.value), 1) for was, now in zip(before, after, strict=True)]
    return {
        "lost": lost[0],
        "lost_never_asked": lost[1],
        "right_before": [item.right.value for item in before],
        "degenerate": sum(item.degenerate for item in after),
        "length": [round(now.mean_chars / was.mean_chars, 2) for was, now in zip(before, after, strict=True)],
        "served": sum(str(row["status"]) == "live" for row in versions) - 1,
        "refused": sum(str(row["status"]) == "refused" for row in versions),
        "requests_refused": status.get("requests_refused", 0),
        "warnings": [str(item)[:160] for item in given] if isinstance(given, list) else [],
        "example": after[0].examples[0].reply if after[0].examples else "",
    }


async def one(model: str, folder: str, kind: str, seed: int, settings: RunSettings) -> Json:
    """One user with a server of their own. Nothing is set but the model and the judge."""
    with tempfile.TemporaryDirectory(prefix="openclaw-rl-bad-") as home:
        config = None if model == BUNDLED else Path(home) / "judge.toml"
        if config is not None:
            config.write_text(f'[judge]\nmodel = "{BUNDLED}"\n', "utf-8")
        visitor = users_of(model, seed)[0]
        wishes = tuple(user.want for user in users_of(model, seed) if user.language == visitor.language)
        async with serving(Path(home), model=folder, config=config) as server:
            name = await served_model(server.base_url, server.key)
            async with Client(server.base_url, server.key, name) as client:
                say = Words(visitor.language, wishes).of(kind)
                return await tried(client, replace(visitor, name=f"{kind}-{model}"), say, settings)


def runs(models: list[str], kinds: list[str], seeds: list[int], settings: RunSettings) -> dict[str, Json]:
    """All runs, those of before taken over."""
    KEPT.mkdir(parents=True, exist_ok=True)
    product, found = product_digest(), dict[str, Json]()
    for model in models:
        folder = folder_of(model)
        for kind in kinds:
            for seed in seeds:
                path = KEPT / f"{product}-{Path(folder).name}-{kind}-{seed}-{settings.problems}.json"
                if not path.is_file():
                    path.write_text(json.dumps(asyncio.run(one(model, folder, kind, seed, settings))), "utf-8")
                result = found[f"{model}/{kind}/{seed}"] = json.loads(path.read_text("utf-8"))
                progress(f"{model}, {kind}, seed {seed}: {result}")
    return found


def figures(found: dict[str, Json]) -> Figures:
    """By kind of user: points of right answers lost, in the mean and at worst; what else was spoiled."""
    rows = {key: row for key, row in found.items() if isinstance(row, dict)}
    made: dict[str, Json] = {}
    for kind in dict.fromkeys(key.split("/")[1] for key in rows):
        own = [row for key, row in rows.items() if key.split("/")[1] == kind]
        summed: dict[str, Json] = {"runs": len(own)}
        for name in ("lost", "lost_never_asked"):
            points = [float(str(row[name])) for row in own]
            summed[name] = {"mean": round(sum(points) / len(points), 2), "worst": max(points)}
        for name in ("degenerate", "served", "refused"):
            summed[name] = sum(int(str(row[name])) for row in own)
        lengths = [float(str(value)) for row in own if isinstance(row["length"], list) for value in row["length"]]
        summed |= {"length": [min(lengths), max(lengths)]} if kind in KEPT_STYLE else {}
        made[kind] = summed
    return {"users": made, "runs": found}


def main() -> None:
    """Runs what is asked for and is not there yet."""
    options = argparse.ArgumentParser(description=__doc__)
    some = [BUNDLED] if is_quick() else [BUNDLED, "shop", "kitchen"]
    options.add_argument("--models", nargs="*", default=some, choices=MODELS)
    options.add_argument("--kinds", nargs="*", default=list(KINDS), choices=KINDS)
    options.add_argument("--seeds", type=int, nargs="*", default=[0] if is_quick() else [0, 1])
    options.add_argument("--problems", type=int, default=40 if is_quick() else 100)
    given = options.parse_args()
    settings = RunSettings(sessions=SESSIONS, problems=given.problems, stop_after=0)
    found = runs(given.models, given.kinds, given.seeds, settings)
    finish({**figures(found), "conditions": conditions("made models", threads=1, seeds=given.seeds, repeats=1)})


if __name__ == "__main__":
    main()
