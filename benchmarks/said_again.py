"""`make bench-said-again`: people whose words the bundled judge is not sure of say the same again in other words.

Of the wordings of `eval wordings` those are taken that give no hint when they are heard alone. Each person has one wish
and says up to five of these, in an order of their own, until a hint is heard. Others have a wish that the judge does
not know (unlisted_wishes.toml): any hint is a wrong one then. Both are tried with and without the memory of what was
said before. The last line is one line of JSON.
"""

from __future__ import annotations

import asyncio
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from benchmarks.common import Figures, conditions, finish, is_quick, progress
from openclaw_rl.core.message import Message, Role, message
from openclaw_rl.core.next_state import NextState, NextStateSource
from openclaw_rl.core.turn import Turn
from openclaw_rl.evals.judging.wordings import NOTHING, Utterance, states, utterances
from openclaw_rl.judge.classifier import ClassifierJudge
from openclaw_rl.judge.encoder import Encoder
from openclaw_rl.judge.settings import JudgeSettings
from openclaw_rl.testing.turns import a_turn
from openclaw_rl.tiny.world import bundled_model

LONGEST = 5  # messages of one person
PEOPLE = 4 if is_quick() else 30  # of each wish and language
UNLISTED = "a wish that it does not know"


@dataclass(frozen=True, slots=True)
class Said:
    """One message after a reply."""

    request: Sequence[Message]
    reply: Message
    text: str
    name: str

    @property
    def rows(self) -> tuple[Turn, NextState]:
        """The turn and what followed it."""
        after = NextState(self.name, (message(Role.USER, self.text),), NextStateSource.USER)
        return a_turn(self.name, self.request, self.reply), after


async def heard(judge: ClassifierJudge, sequence: Sequence[Said], *, remembers: bool) -> tuple[int, str]:
    """The number of messages until a hint was heard, and the hint; all of them and no hint if there was none."""
    before: list[tuple[Turn, NextState]] = []

    async def unheard(_user: str) -> Sequence[tuple[Turn, NextState]]:
        return list(reversed(before)) if remembers else ()

    listening = replace(judge, unheard=unheard)
    for number, said in enumerate(sequence, 1):
        turn, after = said.rows
        verdict = await listening.judge(turn, after)
        if verdict.hints:
            return number, verdict.hints[0].text
        if verdict.score == -1:
            before.append((turn, after))
    return len(sequence), ""


async def unsure(judge: ClassifierJudge) -> dict[tuple[str, str, str], list[Utterance]]:
    """The wordings that give no hint alone, by wish, literal and language, each once."""
    found: dict[tuple[str, str, str], dict[str, Utterance]] = defaultdict(dict)
    for one in utterances():
        if one.wish == NOTHING or one.literal:
            continue
        turn, after = _said(one, "alone").rows
        if not (await judge.judge(turn, after)).hints:
            found[one.wish, one.literal, one.language].setdefault(after.text, one)
    return {key: list(said.values()) for key, said in found.items() if len(said) > 1}


def _said(one: Utterance, name: str) -> Said:
    return Said(one.case.request, one.case.reply, one.case.next_state[0].text, name)


def unlisted() -> Iterator[list[Said]]:
    """People with a wish that the judge does not know: each wish after each of the English replies."""
    wishes = tomllib.loads(Path(__file__).with_name("unlisted_wishes.toml").read_text("utf-8"))
    scenes = {one.case.reply.text: one.case for one in utterances() if one.language == "en"}
    rng = Random("unlisted")
    for texts in wishes.values():
        for scene in scenes.values():
            order = rng.sample(texts, len(texts))
            yield [Said(scene.request, scene.reply, text, f"u-{at}") for at, text in enumerate(order)]


async def run() -> Figures:
    """All people, with and without the memory of what they said before."""
    judge = ClassifierJudge(await asyncio.to_thread(Encoder.load, bundled_model()), JudgeSettings())
    groups, counts, needed = await unsure(judge), Counter[str](), list[int]()
    by_wish: dict[str, Counter[str]] = defaultdict(Counter)
    for (wish, literal, language), said in groups.items():
        rng = Random(f"{wish} {literal} {language}")
        for _ in range(PEOPLE):
            chosen = rng.sample(said, min(LONGEST, len(said)))
            number, hint = await heard(judge, [_said(one, f"m-{at}") for at, one in enumerate(chosen)], remembers=True)
            what = "never" if not hint else "right" if states(hint, wish, literal) else "wrong"
            counts[what] += 1
            by_wish[wish][what] += 1
            needed += [number] if what == "right" else []
        progress(f"{wish} {literal} {language}: {len(said)} wordings, {dict(by_wish[wish])}")
    people = list(unlisted())
    hints = {
        remembers: sum([bool((await heard(judge, one, remembers=remembers))[1]) for one in people])
        for remembers in (False, True)
    }
    return {
        "wordings_unsure": sum(map(len, groups.values())),
        "people": counts.total(),
        "heard": {what: round(counts[what] / counts.total(), 3) for what in ("right", "wrong", "never")},
        "messages_needed_mean": round(sum(needed) / max(1, len(needed)), 2),
        "by_wish": {wish: dict(found) for wish, found in by_wish.items()},
        UNLISTED: {"people": len(people), "with_a_hint": hints[True], "with_a_hint_without_memory": hints[False]},
    }


def main() -> None:
    """Prints the figures."""
    found = asyncio.run(run())
    finish({**found, "conditions": conditions("the bundled judge", threads=1, seeds=[0], repeats=1)})


if __name__ == "__main__":
    main()
