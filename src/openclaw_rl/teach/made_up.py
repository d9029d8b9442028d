"""Requests that nobody asked: those that the base model makes up in the place of a user's message, and shipped ones."""

from __future__ import annotations

import asyncio
import tomllib
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from itertools import chain

from openclaw_rl.core.message import Json, Message, Role, Tool
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.protocols import Engine
from openclaw_rl.core.sampling import Sampling
from openclaw_rl.core.turn import Turn
from openclaw_rl.core.version import BASE
from openclaw_rl.core.width import Width
from openclaw_rl.render.renderer import ChatRenderer
from openclaw_rl.render.template import user_opening
from openclaw_rl.teach.asking import reply_logp, sampled_reply
from openclaw_rl.wording.words import words_in

REQUEST_TOKENS = 128  # the longest request that is generated
LEAST_WORDS = 3  # of a generated request
REQUEST_WARMTH = 1.3  # their temperature: unusual names and numbers show what a reply takes from its request
REQUEST_AMONG = 64  # the likeliest tokens, one of which is drawn: in a large vocabulary the rest would be no language
KNOWN_NATS = 4.5  # a token of the user's message, at most: a model that never learned what users say generates nothing
OPENINGS_HELD = 32  # openings that are kept, with the requests generated after them


@dataclass(frozen=True, slots=True)
class Opening:
    """The ids before a user's message, the id after it, and the conversions between its text and ids."""

    ids: tuple[int, ...]
    end: int
    text: Callable[[Sequence[int]], str]
    encode: Callable[[str], Sequence[int]]


Opens = Callable[[Sequence[Message], Sequence[Tool], Mapping[str, Json] | None], Opening | None]


def opens_of(renderer: ChatRenderer) -> Opens:
    """Finds the opening of a user's message as the model's template writes it."""

    def opens(before: Sequence[Message], tools: Sequence[Tool], options: Mapping[str, Json] | None) -> Opening | None:
        found = user_opening(renderer.template, before, tools, options)
        if found is None:
            return None
        return Opening(found.ids, found.end, renderer.table.text, lambda words: renderer.encode(found.blanks + words))

    return opens


@dataclass(slots=True)
class MadeUpRequests:
    """Lets the base model make up requests, and remembers them. `opens` returns the opening of a user's message."""

    engine: Engine
    stop_ids: tuple[int, ...]
    opens: Opens
    width: Width = field(default_factory=Width)
    _held: OrderedDict[tuple[int, ...], list[str | None]] = field(default_factory=OrderedDict)

    def let_go(self) -> None:
        """Removes what is remembered of requests, as after a restart."""
        self._held.clear()

    async def drawn(self, turn: Turn, system: Sequence[Message], draws: int) -> list[str | None]:
        """What each of so many draws gives in place of a user's message after this system text; None if nothing new.

        Empty if the model does not know what users say.
        """
        opening = await asyncio.to_thread(self.opens, system, turn.tools, turn.options) if draws > 0 else None
        if opening is None or not await self._knows_users(turn, opening):
            return []
        tried = self._held.setdefault(opening.ids, [])  # by seed; None if a seed gave no request
        self._held.move_to_end(opening.ids)
        while len(self._held) > OPENINGS_HELD:
            self._held.popitem(last=False)
        seeds = range(len(tried), draws)
        for words in await self.width.each(seeds, lambda seed: self._request(opening, seed), tokens=len(opening.ids)):
            tried.append(None if words in tried else words)
        return tried[:draws]

    async def usual(self, turn: Turn, at: int, texts: Sequence[str], most: int, by: float) -> list[str]:
        """The first of these texts, at most so many, that the user could as well have said in message number `at`.

        The base model finds one at most `by` nats less likely than what was said. If it does not know what users say,
        the first ones are taken.
        """
        before, said = turn.messages[:at], turn.messages[at].text
        opening = await asyncio.to_thread(self.opens, before, turn.tools, turn.options) if texts else None
        if opening is None or not await self._knows_users(turn, opening):
            return list(texts[:most])
        least, found = sum(await self._message_logp(opening, said)) - by, list[str]()
        for text in texts:
            if len(found) == most:
                break
            if sum(await self._message_logp(opening, text)) >= least:
                found.append(text)
        return found

    async def _request(self, opening: Opening, seed: int) -> str | None:
        sampling = Sampling(
            max_tokens=REQUEST_TOKENS,
            temperature=REQUEST_WARMTH,
            top_k=REQUEST_AMONG,
            seed=seed,
            stop_ids=(opening.end, *self.stop_ids),
        )
        said = await sampled_reply(self.engine, Prompt(opening.ids), sampling, BASE)
        words = opening.text(said.tokens[:-1]).strip()
        return words if said.tokens[-1] == opening.end and len(words.split()) >= LEAST_WORDS else None

    async def _knows_users(self, turn: Turn, opening: Opening) -> bool:
        """Whether the base model can predict the user's first or last words: many models learned only replies.

        A request that such a model generates would be no request at all.
        """
        said = [one.text for one in turn.messages if one.role is Role.USER]
        for text in dict.fromkeys((*said[:1], *said[-1:])):  # the last may be a complaint, which no model expects
            logp = await self._message_logp(opening, text)
            if logp and -sum(logp) <= KNOWN_NATS * len(logp):
                return True
        return False

    async def _message_logp(self, opening: Opening, text: str) -> Sequence[float]:
        """The log-probabilities of the first tokens of a user's message, none if it is empty."""
        words = tuple(opening.encode(text)[:REQUEST_TOKENS])
        return await reply_logp(self.engine, Prompt(opening.ids), words, BASE) if words else ()


def of_many_kinds(texts: Sequence[str], most: int) -> list[str]:
    """At most this many of the texts, of as many kinds as there are, however rare: a wish is learned as what it was
    seen on, and what nobody asked for yet is changed by it, too.

    The next is always the one whose words were chosen least so far. A word of one text alone is a name or a number.
    """
    held = [set(words_in(text)) for text in texts]
    common = {word for word, count in Counter(chain.from_iterable(held)).items() if count > 1}
    chosen: Counter[str] = Counter()
    left, found = list(range(len(texts))), list[str]()
    while left and len(found) < most:
        new = [sum(1 / (1 + chosen[word]) for word in held[at] & common) / max(1, len(held[at])) for at in left]
        at = left.pop(new.index(max(new)))
        chosen.update(held[at])
        found.append(texts[at])
    return found


def shipped() -> tuple[str, ...]:
    """The ordinary requests of many kinds that ship with the product, for when no user has asked anything yet."""
    return tuple(_words_shipped()["requests"])


def thanks() -> tuple[str, ...]:
    """Messages of a satisfied user, which ship with the product."""
    return tuple(_words_shipped()["thanks"])


@cache
def _words_shipped() -> Mapping[str, Sequence[str]]:
    return tomllib.loads(files("openclaw_rl.teach").joinpath("requests.toml").read_text("utf-8"))
