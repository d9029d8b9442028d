"""Finds hints that a user did not mean: the reply that the user accepted after the correction does not follow them.

A judge may take "keep it to the bare result" for a wish to see each step. The model, which read these words in the
conversation, gave the bare result, and its user was content. So the accepted reply shows what the correction meant.
Compared with the answer to the corrected request it is much likelier in the conversation, and it should be likelier
with the hint, too. If it is not, the user's own words are the better hint: with them in the hint's place the accepted
reply is about as likely as in the conversation. So they are where the hint explains two replies much less well,
whether it was misheard or merely badly put. Measured in docs/decisions/0049-what-was-accepted.md.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from openclaw_rl.core.finding import many
from openclaw_rl.core.hint import Hint, HintSource, PlacedHint, last_user_index
from openclaw_rl.core.ledger import DropReason, State
from openclaw_rl.core.next_state import NextState
from openclaw_rl.core.protocols import Engine, Renderer, TakesBack
from openclaw_rl.core.sample import Sample
from openclaw_rl.core.turn import Turn
from openclaw_rl.core.verdict import Verdict
from openclaw_rl.core.version import BASE
from openclaw_rl.errors import EngineError
from openclaw_rl.store.db import Store
from openclaw_rl.store.rows import JudgedTurn, TurnRow
from openclaw_rl.store.tables.unmeant import Undoing, Unmeant
from openclaw_rl.teach.asking import reading, reply_logp
from openclaw_rl.teach.assemble import bare_prompt
from openclaw_rl.teach.demonstrate import FOLLOWED_NATS, Demonstrator
from openclaw_rl.teach.in_use import MISHEARD, OUTDONE, UNWANTED, HintsInUse
from openclaw_rl.wording.likeness import is_general
from openclaw_rl.wording.quotes import quoted
from openclaw_rl.wording.words import plain

log = logging.getLogger(__name__)
CHANGED_NATS = 4.0  # by which the conversation must make an accepted reply likelier, or it shows nothing
ANSWERS = 0.2  # share of tokens in common with the corrected reply, at least: else it may be a mere "You are welcome."
OUTDONE_SHARE = 0.6  # of what the user's own words explain of an accepted reply: a hint that explains less is outdone
CORRECTED_MOST = 8  # corrections of one request that are examined
HELD = 10_000  # turns that are remembered


ACCEPTED, STAYS = Undoing("accepted a reply that shows that the hint was misheard"), Undoing(None)


@dataclass(slots=True)
class MisheardHints:
    """Compares accepted replies with the hints of the corrections before them, and undoes what was misheard.

    Only a judge's hints are compared, not what a user or an owner wrote. A correction whose hints were all misheard
    teaches nothing. If a version was made from it, the one before is served again where nothing else was learned since.
    Kept hints that were misheard are retired. The accepted reply is learned from instead, with the user's own words as
    the hint: `own_words` makes it of what followed a reply, None if that says nothing. What was misheard and what is
    still to be undone is in the store, so a restart forgets neither.

    Hints that these words *outdo* were not misheard for certain, and those that quote what is in the reply were not.
    The others give way when a second reply outdoes them, and once a sample with these words was made: a version that
    learned them stays, and a step that reads them is not disturbed. `in_step` returns the turns of the step that is
    being taken.
    """

    store: Store
    engine: Engine
    renderer: Renderer
    hints: HintsInUse | None = None
    publishing: TakesBack | None = None
    own_words: Callable[[NextState], Hint | None] = lambda after: Hint(after.text, HintSource.FOLLOWUP)
    in_step: Callable[[], frozenset[str]] = frozenset
    now: Callable[[], float] = time.time
    look_again: bool = False  # accepted replies were left out, and can be looked at now
    _examined: OrderedDict[str, frozenset[str]] = field(default_factory=OrderedDict)  # accepted turns; no hints
    _awaited: OrderedDict[str, frozenset[str]] = field(default_factory=OrderedDict)  # accepted turns, by unjudged one
    _misheard: OrderedDict[str, frozenset[str]] = field(default_factory=OrderedDict)  # hints, by turn; as in the store
    _outdone: OrderedDict[str, frozenset[str]] = field(default_factory=OrderedDict)  # with those that were misheard
    _doubted: OrderedDict[tuple[str, str], str] = field(default_factory=OrderedDict)  # accepted turns, by user and hint
    _undoing: dict[str, Undoing] = field(default_factory=dict)  # by turn: samples to drop, or versions to take back
    _has_recalled: bool = False  # what is to be undone was read from the store

    def let_go(self) -> None:
        """Removes what is remembered of turns, as after a restart."""
        self._examined.clear()
        self._awaited.clear()
        self._misheard.clear()
        self._outdone.clear()
        self._doubted.clear()
        self._undoing.clear()
        self._has_recalled = False

    async def sifted(self, rows: Sequence[JudgedTurn]) -> tuple[list[JudgedTurn], dict[str, DropReason]]:
        """The turns without hints known to be misheard, and those of them that have no other hints, to be dropped.

        Looks at each accepted reply among them once, and undoes what it shows to be misheard in other turns. One that
        was judged before the correction that it answers is left out until that has its verdict, too.
        """
        for name in {row.turn.id for row in rows} & self._awaited.keys():
            for accepted in self._awaited.pop(name):  # before this correction is learned from
                turn = await self.store.turn(accepted)
                if turn is not None:
                    await self._is_examined(turn)
            self.look_again = True
        left_out = {
            row.turn.id
            for row in rows
            if row.turn.id not in self._examined and is_accepted(row) and not await self._is_examined(row.turn)
        }
        rows = [row for row in rows if row.turn.id not in left_out]
        await self.go_on_undoing()
        for row in rows:
            await self.recall(row)
        heard = [self._heard(row) for row in rows]
        pairs = zip(rows, heard, strict=True)
        dropped = {
            row.turn.id: DropReason.MISHEARD for row, left in pairs if row.verdict.hints and not left.verdict.hints
        }
        return heard, dropped

    async def recall(self, row: JudgedTurn | TurnRow) -> None:
        """Reads from the store which hints of a turn were not meant."""
        if row.verdict is None or not row.verdict.hints or row.turn.id in self._misheard:
            return
        known = await self.store.unmeant.of_turn(row.turn.id)
        _remember(self._misheard, row.turn.id, frozenset() if known is None else known.hints)

    def _heard(self, row: JudgedTurn) -> JudgedTurn:
        wrong = self._misheard.get(row.turn.id, frozenset())
        left = tuple(hint for hint in row.verdict.hints if hint.text not in wrong)
        return replace(row, verdict=replace(row.verdict, hints=left)) if wrong else row

    def is_misheard(self, corrected: TurnRow) -> bool:
        """Whether all hints of a correction are known to be misheard."""
        hints = () if corrected.verdict is None else [hint.text for hint in corrected.verdict.hints]
        wrong = self._misheard.get(corrected.turn.id, frozenset())
        return corrected.reason is DropReason.MISHEARD or (bool(wrong) and wrong.issuperset(hints))

    def outdone(self, corrected: TurnRow) -> frozenset[str]:
        """The hints of a correction that its user's own words outdo, if that is all of them."""
        hints = () if corrected.verdict is None else [hint.text for hint in corrected.verdict.hints]
        less = self._outdone.get(corrected.turn.id, frozenset())
        return less if less.issuperset(hints) else frozenset()

    def gives_way(self, corrected: TurnRow) -> bool:
        """Whether a correction is better learned from with its user's own words as the hint."""
        return self.is_misheard(corrected) or bool(self.outdone(corrected))

    def meant(self, corrected: TurnRow) -> Sequence[Hint]:
        """The hint in its user's own words; none if it would mean nothing after another request."""
        said = None if corrected.next_state is None else self.own_words(corrected.next_state)
        asked = " ".join(item.text for item in corrected.turn.messages)
        return () if said is None or not is_general(said.text, asked) else (said,)

    def left(self, known: Sequence[PlacedHint], corrected: Sequence[TurnRow]) -> list[PlacedHint]:
        """The known hints without those of these corrections that their user's own words outdo."""
        less = {text for row in corrected for text in self.outdone(row)}
        return [hint for hint in known if hint.text not in less]

    async def taught(
        self, found: Sample, hint: Hint, corrected: Sequence[TurnRow], known: Sequence[PlacedHint], base: Demonstrator
    ) -> Sample | None:
        """The sample of an accepted reply with demonstrations on other requests, given the hint in its user's words.

        It takes the place of what the `corrected` turns have to teach, of which the last came first in the
        conversation. The hint is kept like others. None if the base model cannot follow it.
        """
        first = corrected[-1].turn
        sample = await base.elsewhere(first, known, found)
        if not sample.hints:
            return None
        await self.store.hints.adopt(first.user, hint, at_s=self.now(), turn=first.id, why="in its user's words")
        for row in corrected:
            if less := self.outdone(row):
                log.info("outdone turn=%s: its user's own words explain more of what was accepted", row.turn.id)
                if self.hints is not None:
                    await self.hints.misheard(row.turn, sorted(less), why=OUTDONE)
                if not await self._is_undone(row.turn.id, STAYS):
                    self._undoing.setdefault(row.turn.id, STAYS)
        return sample

    async def _is_examined(self, accepted: Turn) -> bool:
        """Compares an accepted reply with the corrections before it; False if one of them has no verdict yet."""
        awaited = await self._look_back(accepted)
        if awaited is None:
            _remember(self._examined, accepted.id, frozenset())
        else:
            _remember(self._awaited, awaited, self._awaited.get(awaited, frozenset()) | {accepted.id})
        return awaited is None

    async def _look_back(self, accepted: Turn) -> str | None:
        parent = accepted.parent
        for _ in range(CORRECTED_MOST):
            row = None if parent is None else await self.store.row(parent)
            if row is not None and row.state is State.PAIRED:
                return row.turn.id
            if row is None or row.verdict is None or row.verdict.score is None or row.verdict.score >= 0:
                return None
            hints = [hint.text for hint in row.verdict.hints if hint.source is HintSource.JUDGE]
            own = [hint.text for hint in self.meant(row)]
            nats = await explained(self.engine, self.renderer, accepted, row.turn, hints, own=own)
            if wrong := [hint for hint in hints if is_misheard(nats, hint)]:
                await self.undo(row, wrong)
            doubted = [hint for hint in hints if not are_quotes_in(hint, accepted.reply.text)]
            less = [hint for hint in doubted if any(is_outdone(nats, hint, said) for said in own)]
            if less := [*wrong, *(hint for hint in less if self._is_doubted_again(accepted, hint))]:
                _remember(self._outdone, row.turn.id, frozenset(less))
            parent = row.turn.parent
        return None

    def _is_doubted_again(self, accepted: Turn, hint: str) -> bool:
        """Whether another reply that this user accepted has outdone the hint before."""
        first = self._doubted.setdefault((accepted.user, hint), accepted.id)
        while len(self._doubted) > HELD:
            self._doubted.popitem(last=False)
        return first != accepted.id

    async def undo(
        self,
        row: TurnRow,
        wrong: Sequence[str],
        *,
        why: str = MISHEARD,
        undoing: Undoing = ACCEPTED,
        since: str | None = None,
    ) -> None:
        """Undoes what is learned from hints of a correction that its user did not mean; `why` is kept with the hint.

        A version that cannot be taken back now is as soon as it can be. `since` is the turn whose correction replaced
        the hints, None if an accepted reply shows that they were misheard.
        """
        turn = row.turn
        await self.recall(row)
        _remember(self._misheard, turn.id, self._misheard.get(turn.id, frozenset()) | frozenset(wrong))
        is_whole = self.is_misheard(row)
        found = Unmeant(turn.id, frozenset(wrong), since, undoing if is_whole else None)
        if not await self.store.unmeant.add(found):
            return  # it was forgotten meanwhile
        log.warning("misheard turn=%s: %s was not meant, since %s", turn.id, many(len(wrong), "hint"), why)
        if self.hints is not None:
            await self.hints.misheard(turn, wrong, why=why)
        if is_whole:
            self._undoing[turn.id] = undoing

    async def go_on_undoing(self) -> None:
        """Tries again to undo what could not be undone yet, or before a restart."""
        if not self._has_recalled:
            for found in await self.store.unmeant.to_undo():
                await self._go_on_with(found)
            self._has_recalled = True
        for name, undoing in tuple(self._undoing.items()):
            if await self._is_undone(name, undoing):
                del self._undoing[name]
                await self.store.unmeant.undone(name)

    async def _go_on_with(self, found: Unmeant) -> None:
        """Undoes what an earlier process had begun to."""
        turn = await self.store.turn(found.turn)
        if turn is None or found.undoing is None:
            return
        if self.hints is not None:
            await self.hints.misheard(turn, sorted(found.hints), why=MISHEARD if found.since is None else UNWANTED)
        self._undoing.setdefault(found.turn, found.undoing)

    async def _is_undone(self, name: str, undoing: Undoing) -> bool:
        """Drops a sample that waits for a step, or serves the version before the one that learned from it.

        False while the gate has yet to decide on that version: if it refuses it, the sample waits again. False also
        while a step is being taken whose version would stay.
        """
        row = await self.store.row(name)
        if row is not None and row.state is State.READY:
            if undoing.why is None and name in self.in_step():
                return False
            await self.store.drop(name, DropReason.MISHEARD)
            row = await self.store.row(name)  # another scope may have learned from it already
        if row is None or row.verdict is None or row.state is not State.TRAINED:
            return True
        is_at_the_gate = any(name in candidate.turns for candidate in await self.store.candidates())
        if undoing.why is None or self.publishing is None:
            return not is_at_the_gate
        wish = (*(hint.text for hint in row.verdict.hints), *undoing.against)
        why = f"{row.turn.user} {undoing.why}"
        is_taken_back = await self.publishing.take_back(row.turn.user, row.turn.completion.version, wish, why=why)
        return is_taken_back or not is_at_the_gate


async def explained(
    engine: Engine,
    renderer: Renderer,
    accepted: Turn,
    corrected: Turn,
    hints: Sequence[str],
    *,
    own: Sequence[str] = (),
) -> dict[str, float]:
    """By how many nats each hint makes a reply likelier as the answer to the request that was corrected before it.

    The user's `own` words are among them. If even these make it hardly likelier, nothing is known: the reply has
    another content, such as a wrong result, and was accepted all the same.

    Nothing is known if the reply is the corrected one again or no answer to the request, if the conversation hardly
    makes it likelier, if a tool is called, if the prompt has images or a grammar constrained the reply, and if the
    engine is unavailable.
    """
    said, asked = accepted.completion.tokens, last_user_index(corrected.messages)
    calls = accepted.reply.tool_calls or corrected.reply.tool_calls
    if not hints or asked is None or calls or accepted.prompt.images or accepted.completion.forced:
        return {}
    if said == corrected.completion.tokens or in_common(said, corrected.completion.tokens) < ANSWERS:
        return {}
    found = dict[str, float]()
    try:
        bare = await asyncio.to_thread(bare_prompt, corrected, renderer)
        alone = sum(await reply_logp(engine, bare, said, BASE))
        if sum(await reply_logp(engine, accepted.prompt, said, BASE)) - alone < CHANGED_NATS:
            return {}
        for hint in (*hints, *own):
            hinted = await reading(renderer, corrected, [PlacedHint(asked, "", hint)])
            if hinted is not None:
                found[hint] = sum(await reply_logp(engine, hinted, said, BASE)) - alone
    except EngineError:
        return {}
    return {} if own and max(found.get(said, 0.0) for said in own) < CHANGED_NATS else found


def is_misheard(nats: Mapping[str, float], hint: str) -> bool:
    """Whether a reply does not follow a hint, given by how much each makes it likelier (`explained`)."""
    return nats.get(hint, math.inf) < FOLLOWED_NATS


def is_outdone(nats: Mapping[str, float], hint: str, own: str) -> bool:
    """Whether its user's own words explain a reply much better than a hint does."""
    return nats.get(hint, math.inf) < OUTDONE_SHARE * nats.get(own, 0.0)


def are_quotes_in(hint: str, reply: str) -> bool:
    """Whether a hint quotes something, and all of it is in a reply: that hint was heard right."""
    quotes = quoted(hint)
    return bool(quotes) and all(plain(text) in plain(reply) for text in quotes)


def is_accepted(row: JudgedTurn) -> bool:
    """Whether a reply continues a conversation, and its user was content with it."""
    is_good = is_content(row.verdict) and not row.verdict.hints
    return is_good and row.turn.group is None and row.turn.parent is not None


def is_content(verdict: Verdict | None) -> bool:
    """Whether a user was content with a reply."""
    return verdict is not None and verdict.score is not None and verdict.score > 0


def in_common(one: Sequence[int], other: Sequence[int]) -> float:
    """How much two replies have in common, from 0 to 1: twice the tokens that are in both over all tokens (Dice)."""
    both = (Counter(one) & Counter(other)).total()
    return 2 * both / max(1, len(one) + len(other))


def _remember(held: OrderedDict[str, frozenset[str]], name: str, hints: frozenset[str]) -> None:
    held[name] = hints
    while len(held) > HELD:
        held.popitem(last=False)
