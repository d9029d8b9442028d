"""Finds requests at which a hint gives content besides form: without it the model loses a word of the request.

Told to be short, a small model writes "Alma 14 < Irma 16, Irma." Most such replies are as likely without the hint, but
for their first token: then a step has only the form to learn. Where a token like "Irma" is lost without the hint, the
model must be taught to copy it, and from two or three examples it learns to say these names. So more requests of that
kind are needed. How many, and what it brings: docs/decisions/0058-where-a-hint-gives-content.md.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median_high

from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.protocols import Engine, Renderer
from openclaw_rl.core.sample import OtherRequestReply
from openclaw_rl.core.version import BASE
from openclaw_rl.teach.asking import reply_logp
from openclaw_rl.wording.words import words_in

BEFORE = 4  # tokens in which the end of a sentence is looked for
FIRST = 2  # tokens of a reply that are not compared: replies in another form begin differently
SURE = math.log(0.9)  # log-probability of a word with the hint, at least
LOST = math.log(0.37)  # log-probability of it without the hint, at most
ON_TRACK = math.log(0.5)  # log-probability, without the hint, of the token before it, at least
RARE = 0.25  # share of the requests that contain a word, at most: others belong to the form of requests
LEAST, SHARE = 3, 0.08  # replies that lean on the hint, and their share of all, from which on more requests are needed
MOST = 64  # further requests of that kind
MOST_DRAWN, DRAWN_TOKENS = 384, 16_000  # requests among which these are looked for, and the length of their replies
_SENTENCE_ENDS = (".", "!", "?", "\n", "\u3002", "\uff01", "\uff1f", "\u061f", "\u0964")


@dataclass(frozen=True, slots=True)
class Leaning:
    """Whether replies to other requests lean on their hints. `common` are words that many of the requests contain."""

    engine: Engine
    renderer: Renderer
    common: frozenset[str]

    @classmethod
    def of(cls, engine: Engine, renderer: Renderer, requests: Sequence[str]) -> Leaning:
        """For these requests, by their texts."""
        counts = Counter(word for text in requests for word in set(words_in(text)))
        common = (word for word, count in counts.items() if count > RARE * len(requests))
        return cls(engine, renderer, frozenset(common))

    async def leans(self, words: str, made: OtherRequestReply) -> bool:
        """Whether the reply to the request of these words leans on its hints. Raises EngineError."""
        told, said = made.reply.logp, made.reply.tokens
        untold = await reply_logp(self.engine, Prompt(made.prompt), said, BASE)
        places = [
            place
            for place in range(FIRST, len(said))
            if told[place] >= SURE and untold[place] <= LOST and untold[place - 1] >= ON_TRACK
        ]
        own = set(words_in(words)) - self.common - set(words_in(made.hint.text))
        for place in places:
            if await self._is_one_of(own, said, place):
                return True
        return False

    async def _is_one_of(self, words: set[str], said: tuple[int, ...], place: int) -> bool:
        """Whether one of these words begins here, and no sentence does: sentences begin as the form wants it."""
        parts = (said[max(0, place - BEFORE) : place], said[place:])
        before, after = [(await asyncio.to_thread(self.renderer.decode, part))[0].text.rstrip(" ") for part in parts]
        if not before or before.endswith(_SENTENCE_ENDS):
            return False
        found = words_in(after)[:1]
        return bool(found) and found[0] in words and after.lstrip(" ").casefold().startswith(found[0])


def are_needed(leaning: Sequence[bool]) -> bool:
    """Whether more requests are needed at which the hint gives content."""
    return sum(leaning) >= max(LEAST, SHARE * len(leaning))


def drawn_at_most(replies: Sequence[OtherRequestReply]) -> int:
    """How many further requests are drawn: fewer where replies are long."""
    return min(MOST_DRAWN, DRAWN_TOKENS // median_high(len(made.reply.tokens) for made in replies))
