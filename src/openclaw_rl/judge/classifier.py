"""A judge that is a classifier: one fast reading of the next state, and no vote if it is not sure."""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from openclaw_rl.core.message import Message
from openclaw_rl.core.next_state import NextState
from openclaw_rl.core.turn import Turn
from openclaw_rl.core.verdict import Verdict, VerdictSource, Vote
from openclaw_rl.judge.encoder import Class, Encoder, Sound
from openclaw_rl.judge.keep import taught_hints
from openclaw_rl.judge.prompt import Question
from openclaw_rl.judge.reading import TurnReading, folded, reading
from openclaw_rl.judge.settings import HintFrom, JudgeSettings
from openclaw_rl.judge.signals import foreign_messages, owner_messages, tool_status

MOST_EARLIER = 12  # corrections of a user that are read again
LIKELY = 0.4  # share that a wish must have in a message for it to count as said again
SURE_AGAIN = 0.9  # the least certainty of what was said again: what one person says is not independent
_QUOTES = frozenset('"“”„«»‹›「」『』')


async def _nothing_earlier(_user: str) -> Sequence[tuple[Turn, NextState]]:
    return ()


@dataclass(frozen=True, slots=True)
class ClassifierJudge:
    """Asks an `Encoder`, which has one vote; a tool's own error status outranks it.

    A score or a wish that it is less sure of than the folder's `judge.json` demands is not a vote: None, which teaches
    nothing. What it quotes are the user's own words, as they are in the message.

    A wish that is likely, though not sure, is compared with the user's earlier corrections that gave no hint
    (`unheard`): somebody whose words it does not know says the same again in others (decision 0040).
    """

    encoder: Encoder
    settings: JudgeSettings
    name: str = "judge"
    readable: Callable[[Sequence[Message]], Sequence[Message]] = tuple
    clock: Callable[[], float] = time.monotonic
    unheard: Callable[[str], Awaitable[Sequence[tuple[Turn, NextState]]]] = _nothing_earlier

    async def judge(self, turn: Turn, next_state: NextState) -> Verdict:
        """The verdict on a turn; it never fails and needs no other machine."""
        verdict = await asyncio.to_thread(self._judged, turn, next_state)
        if verdict.score != -1 or verdict.hints:
            return verdict
        earlier = await self.unheard(turn.user)
        return await asyncio.to_thread(self._judged, turn, next_state, earlier) if earlier else verdict

    def _judged(self, turn: Turn, next_state: NextState, earlier: Sequence[tuple[Turn, NextState]] = ()) -> Verdict:
        said, status = owner_messages(next_state), tool_status(next_state)
        heard_from = said or (foreign_messages(next_state) if self.settings.tool_votes else ())
        request = self.readable(turn.messages)
        votes: list[Vote] = []
        if heard_from:
            began = self.clock()
            read = reading(request, turn.reply, heard_from)
            sound = self.encoder.hear(read)
            hint, heard = self._hint(read, sound, earlier) if said else (None, "no person spoke")
            score, scored = self._score(sound, has_hint=hint is not None)
            spent = self.clock() - began
            if status is None:
                votes.append(Vote(Question.SCORE.value, scored, score, judge=self.name, seconds=spent))
            if said and self.settings.hint_source is not HintFrom.FOLLOWUP:
                vote = 1 if hint is not None else -1
                votes.append(Vote(Question.HINT.value, heard, vote, hint, judge=self.name))
        scores = [vote.score for vote in votes if vote.asked == Question.SCORE.value]
        final = status if status is not None else scores[0] if scores else None
        hinting = [vote for vote in votes if vote.asked == Question.HINT.value]
        return Verdict(
            turn=turn.id,
            score=final,
            source=VerdictSource.VOTES if status is None else VerdictSource.ENVIRONMENT,
            votes=tuple(votes),
            hints=taught_hints(hinting, final, next_state, request, self.settings.hint_source),
            mean=None if not scores or scores[0] is None else float(scores[0]),
        )

    def _score(self, sound: Sound, *, has_hint: bool) -> tuple[int | None, str]:
        """The score and its explanation; a user who surely wishes for another reply was not content with this one."""
        about = self.encoder.about
        at = _highest(sound.scores)
        likely = ", ".join(f"{score:+d}: {share:.2f}" for score, share in zip(about.scores, sound.scores, strict=True))
        if has_hint:
            return -1, f"-1, since a wish was recognised ({likely})"
        if sound.scores[at] < about.score_sure:
            return None, f"not sure ({likely})"
        return about.scores[at], f"{about.scores[at]:+d} ({likely})"

    def _hint(
        self, read: TurnReading, sound: Sound, earlier: Sequence[tuple[Turn, NextState]]
    ) -> tuple[str | None, str]:
        """The hint, if it is sure of one, and its explanation."""
        about = self.encoder.about
        at = _highest(sound.wishes)
        wish, share = about.wishes[at], sound.wishes[at]
        if not wish.hint:
            return None, f"recognised {wish.name} ({share:.2f})"
        literal = _literal(wish, read, sound, about.languages)
        literally = f", {sound.literal:.2f} of {literal!r}" if wish.holds else ""
        told = f"recognised {wish.name} ({share:.2f}{literally})"
        sure, needed = share * (sound.literal if wish.holds else 1.0), wish.sure
        if LIKELY <= sure < wish.sure and not wish.holds and (again := self._said_before(read, at, earlier)):
            sure, needed = 1 - (1 - sure) * math.prod(1 - one for one in again), max(needed, SURE_AGAIN)
            told += f", {len(again)} times before in other words: {sure:.2f}"
        if sure < needed or literal is None:
            return None, f"{told}: not sure"
        at = _highest(sound.places)
        place = about.places[at] if sound.places[at] >= about.place_sure else ""
        return _ended(wish.hint.replace("{x}", literal), place), told

    def _said_before(self, read: TurnReading, wish: int, earlier: Sequence[tuple[Turn, NextState]]) -> list[float]:
        """The shares of a wish in a user's earlier corrections where it was likely, each wording once."""
        shares: dict[tuple[str, ...], float] = {read.words: 0.0}
        for turn, after in earlier:
            said = owner_messages(after)
            before = reading(self.readable(turn.messages), turn.reply, said)
            if said and before.words not in shares:
                shares[before.words] = self.encoder.hear(before).wishes[wish]
        return [share for share in shares.values() if share >= LIKELY]


def _literal(wish: Class, read: TurnReading, sound: Sound, languages: Mapping[str, tuple[str, ...]]) -> str | None:
    """The user's words that the wish is about; None if they cannot be used, empty if it is about none."""
    if not wish.holds:
        return ""
    text = read.text[read.places[sound.first][0] : read.places[sound.last][1]].strip()
    if wish.holds == "language":
        said = folded(text)
        return next((name for name, words in languages.items() if said in map(folded, (name, *words))), None)
    return None if not text or _QUOTES & set(text) or "\n" in text else text


def _ended(hint: str, place: str) -> str:
    """The hint with the place it is about, and with a full stop unless the quoted words are its end."""
    said = hint if re.search(r'[.!?]"?$', hint) else f"{hint}."
    return f"{place}: {said}" if place else said


def _highest(shares: Sequence[float]) -> int:
    return max(range(len(shares)), key=shares.__getitem__)
