"""The bridge stage: tests whether the weights follow a user's hints without them, and retires those they do follow."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from openclaw_rl.core.facts import StoreFacts
from openclaw_rl.core.hint import FOLLOWED, Carry, KeptHint, last_user_index, with_hints
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.protocols import Renderer
from openclaw_rl.core.stage import StageReport
from openclaw_rl.core.turn import Turn
from openclaw_rl.errors import EngineError
from openclaw_rl.store.db import Store
from openclaw_rl.teach.in_use import HintsInUse
from openclaw_rl.teach.probes import Gap, Prober
from openclaw_rl.teach.settings import TeachSettings

log = logging.getLogger(__name__)
POLL_S = 1.0
MISLED = 2  # a hint is retired if it caused this many replies or more, and all of them were corrected
BROUGHT_NATS = 2.0  # by which a hint makes a reply likelier, at least, if it caused the reply
LATELY = 8  # this many of the latest replies sampled with a hint are examined for this
LOOK_BACK = 4  # times `probes`: how many of a user's latest turns are searched for those with a hint

Seen = tuple[int, tuple[tuple[str, str], ...], str]  # the user's verdicts, their hints in use, the weights


@dataclass(frozen=True, slots=True)
class BridgeStatus:
    """The status of hints, for people. `in_use` counts those that are in prompts."""

    carry: str = ""
    kept: int = 0
    in_use: int = 0
    retired: int = 0
    last: str = ""


@dataclass(slots=True)
class BridgeStage:
    """Tests a user's hints again when the user has new verdicts, or when the hints or the weights have changed."""

    store: Store
    hints: HintsInUse
    prober: Prober
    renderer: Renderer
    settings: TeachSettings
    now: Callable[[], float] = time.time
    status: BridgeStatus = field(default_factory=BridgeStatus)
    _seen: dict[str, Seen] = field(default_factory=dict)
    _newest: dict[str, Turn] = field(default_factory=dict)  # a turn of each user, to ask which version serves the user
    _known: tuple[int, tuple[str, ...]] = (-1, ())  # the store's `changes`, and the users with hints in use then

    @property
    def name(self) -> str:
        """Its name as a stage."""
        return "hints"

    def gauges(self) -> Mapping[str, float]:
        """How many hints there are, how many are in prompts, and how many are retired."""
        status = self.status
        return {"hints_kept": status.kept, "hints_in_use": status.in_use, "hints_retired": status.retired}

    async def report(self, facts: StoreFacts) -> StageReport:
        """The state of the bridge."""
        return StageReport(self.name, await self.status_now(), not await self.has_work())

    def let_go(self) -> None:
        """Removes what is remembered of turns and hints, as after a restart. Not to be called while it runs."""
        self._seen.clear()
        self._newest.clear()
        self._known = (-1, ())
        self.hints.let_go()
        self.prober.let_go()

    async def run(self) -> None:
        """Tests hints until cancelled."""
        while True:
            if not await self.once():
                await asyncio.sleep(POLL_S)

    async def once(self) -> bool:
        """Tests the hints of every user with hints in use whose verdicts, hints or weights have changed.

        True if any were tested: then there may be more to do. At most one hint of a user is retired in one pass: if two
        say the same, each has no effect while the other is in the prompt.
        """
        if self.hints.carry is not Carry.BRIDGE:
            return False
        has_changed = False
        for user in await self._users():
            held = await self.hints.of_user(user)
            seen = await self._seen_now(user, held)
            if self._seen.get(user) == seen:
                continue
            judged = await self._judged(user)
            turns = _good(judged)
            if turns and self._newest.get(user) is None:  # the user's version can be asked for only now
                self._newest[user] = turns[0]
                seen = await self._seen_now(user, held)
            try:
                has_retired = await self._retire_misleading(held, judged) or await self._look(held, turns)
            except EngineError as problem:
                self.status = replace(self.status, last=f"the weights cannot be asked: {problem}")
                continue
            has_changed = True
            if not has_retired:
                self._seen[user] = seen
        return has_changed

    async def has_work(self) -> bool:
        """Whether some user's hints have not been tested since the last change."""
        if self.hints.carry is not Carry.BRIDGE:
            return False
        for user in await self._users():
            if self._seen.get(user) != await self._seen_now(user, await self.hints.of_user(user)):
                return True
        return False

    async def status_now(self) -> BridgeStatus:
        """The current counts."""
        kept = await self.store.hints.everyone()
        used = 0
        is_left = self.hints.carry is Carry.WEIGHTS  # only what the weights could not learn is in prompts
        for user in dict.fromkeys(item.user for item in kept if item.needs_prompt or not is_left):
            used += len(await self.hints.of_user(user))
        retired = sum(not item.is_in_use for item in kept)
        self.status = replace(self.status, carry=self.hints.carry.value, kept=len(kept), in_use=used, retired=retired)
        return self.status

    async def _users(self) -> tuple[str, ...]:
        changes = self.store.hints.changes
        if self._known[0] != changes:
            kept = await self.store.hints.everyone()
            self._known = changes, tuple(dict.fromkeys(item.user for item in kept if item.is_in_use))
            users = frozenset(self._known[1])
            self._newest = {user: turn for user, turn in self._newest.items() if user in users}
            self._seen = {user: seen for user, seen in self._seen.items() if user in users}
        return self._known[1]

    async def _judged(self, user: str) -> list[tuple[Turn, int]]:
        """The user's latest turns that were sampled with hints and scored, newest first, with the score of each."""
        rows = await self.store.hints.latest_rows(user, limit=LOOK_BACK * self.settings.probes)
        found = [(row.turn, row.verdict.score) for row in rows if row.verdict is not None and row.turn.carried]
        return [(turn, score) for turn, score in found if score is not None and turn.completion.tokens]

    async def _retire_misleading(self, held: Sequence[KeptHint], judged: Sequence[tuple[Turn, int]]) -> bool:
        """Retires the first hint that caused recent replies which were all corrected; True if one was retired.

        Replies from before the user last asked for the hint do not count. A judge sometimes invents a hint, or
        misunderstands what it applies to, and a model that follows such a hint gives one bad reply after another.
        """
        for hint in held:
            with_hint = [(turn, score) for turn, score in judged if _stands_in(hint, turn)]
            if await self._misleads(hint, held, with_hint[:LATELY]):
                return await self._retire(hint, "all recent replies that it caused were corrected")
        return False

    async def _misleads(self, hint: KeptHint, held: Sequence[KeptHint], judged: Sequence[tuple[Turn, int]]) -> bool:
        """Whether the hint caused at least `MISLED` of these replies, and all that it caused were corrected."""
        if sum(score < 0 for _, score in judged) < MISLED:
            return False
        corrected = 0
        for turn, score in judged:
            if await self._brought_about(hint, held, turn):
                if score >= 0:
                    return False
                corrected += 1
        return corrected >= MISLED

    async def _brought_about(self, hint: KeptHint, held: Sequence[KeptHint], turn: Turn) -> bool:
        """Whether the hint caused the reply: the weights would hardly have given it without the hint."""
        hinted, without = await asyncio.to_thread(self._prompts, turn, hint, held)
        return await self.prober.worth(turn, hinted, without) >= BROUGHT_NATS

    async def _retire(self, hint: KeptHint, why: str) -> bool:
        """Retires a hint; False if it is no longer in use, or was reworded meanwhile."""
        has_retired = await self.store.hints.retire(hint.id, why=why, at_s=self.now(), text=hint.text)
        if has_retired:
            log.info("retired hint=%s user=%s: %s", hint.id, hint.user, why)
            self.status = replace(self.status, last=f"{hint.id} retired: {why}")
        return has_retired

    async def _seen_now(self, user: str, held: Sequence[KeptHint]) -> Seen:
        """What the result of a test depends on, as far as it is known without reading any turn."""
        newest = self._newest.get(user)
        version = "" if newest is None else str(await self.prober.current(newest))
        verdicts = await self.store.hints.verdicts_seen(user)
        return verdicts, tuple((hint.id, hint.text) for hint in held), version

    async def _look(self, held: Sequence[KeptHint], turns: Sequence[Turn]) -> bool:
        """Tests each hint that has `probes` telling turns; True as soon as one was retired. Raises EngineError."""
        for hint in held:
            tested = telling(hint, turns)[: self.settings.probes]
            if len(tested) == self.settings.probes and await self._retires(hint, held, tested):
                return True
        return False

    async def _retires(self, hint: KeptHint, held: Sequence[KeptHint], turns: Sequence[Turn]) -> bool:
        """Retires the hint if the weights reply the same without it; False if it stays. Raises EngineError."""
        gaps: list[Gap] = []
        for turn in turns:
            hinted, without = await asyncio.to_thread(self._prompts, turn, hint, held)
            gaps.append(await self.prober.gap(turn, hinted, without))
            if not gaps[-1].is_closed:
                break
        said = sum(gap.said for gap in gaps) / len(gaps)
        strays, replies = sum(gap.strays for gap in gaps), sum(gap.replies for gap in gaps)
        what = f"it is worth {said:.3f} nats a token, and would have prevented {strays} of {replies} replies without it"
        log.info("tried hint=%s said=%.3f strays=%d turns=%d", hint.id, said, strays, len(gaps))
        if said > self.settings.retire_gap or not all(gap.is_closed for gap in gaps):
            self.status = replace(self.status, last=f"{hint.id} stays: {what}")
            return False
        version = await self.prober.current(turns[0])
        return await self._retire(hint, f"version {version}{FOLLOWED}: {what}")

    def _prompts(self, turn: Turn, hint: KeptHint, held: Sequence[KeptHint]) -> tuple[Prompt, Prompt]:
        """The turn's prompt with those of its hints that are still in use, and the same without this hint."""
        texts = {item.id: item.text for item in held}
        used = tuple(item for item in turn.carried if texts.get(item.id) == item.text)
        rest = tuple(item for item in used if item.id != hint.id)
        return (
            self.renderer.reread(turn, with_hints(turn.messages, used)),
            self.renderer.reread(turn, with_hints(turn.messages, rest)),
        )


def _good(judged: Sequence[tuple[Turn, int]]) -> list[Turn]:
    """The turns that were not scored -1: a bad reply does not show that a hint was learned."""
    return [turn for turn, score in judged if score >= 0]


def telling(hint: KeptHint, turns: Sequence[Turn]) -> list[Turn]:
    """The turns sampled with the hint, one for each request; those with the hint after the last user message first.

    Later in a conversation the earlier replies show what the hint says, so it has little effect in any case. The same
    request again gives no new information: weights may follow a wish in one kind of task and not in another. Replies
    from before the user asked for the hint (again) do not count: after them the user still had to ask.
    """
    found: dict[str, tuple[bool, Turn]] = {}
    for turn in turns:
        last = last_user_index(turn.messages)
        if last is not None and _stands_in(hint, turn):
            at = next(item.at for item in turn.carried if item.id == hint.id)
            found.setdefault(turn.messages[last].text, (at != last, turn))
    return [turn for _, turn in sorted(found.values(), key=lambda pair: pair[0])]


def _stands_in(hint: KeptHint, turn: Turn) -> bool:
    """Whether a turn was served with the hint in its current words, after it was last asked for or edited."""
    same = (hint.id, hint.text)
    return turn.at_s >= hint.changed_s and any((item.id, item.text) == same for item in turn.carried)
