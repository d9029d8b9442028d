"""The other requests on which a hint is demonstrated.

They are the user's own: those with which earlier wishes were asked for, or these would be unlearned there, and
others, both the newest and older ones. Then come some, of many kinds, that the base model generates in the place of a
user's message after the same system text, then a few that ship with the product. Requests in the middle of
conversations are added: the answer to the corrected reply, and the user's own from later in a conversation. If these
are too few, conversations that began with the hint continue with thanks, and with a second request.

Requests that are left over, the user's own and generated ones, and further generated ones are checks: a step learns
from one only if it fails at it.
"""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from openclaw_rl.core.hint import last_user_index
from openclaw_rl.core.message import Message, Role, message
from openclaw_rl.core.protocols import Renderer
from openclaw_rl.core.turn import Turn
from openclaw_rl.teach.made_up import MadeUpRequests, of_many_kinds, shipped, thanks
from openclaw_rl.teach.settings import TeachSettings

LATER = 2  # one less than the most requests in the middle of conversations
MADE_UP = 4  # one in so many requests is generated, at least: a user's own may all be of a few kinds
TRIES = 3  # draws for each request that is needed: those that are asked are chosen from them
OWN_CHECKS = 8  # checks that are the user's own, at most, and at most half of them
VARIED_CHECKS = 16  # that are of as many kinds as possible; the others are as they come, the common ones most
MOST_SHIPPED = 8  # requests up to which those that ship with the product fill up: they say little of this user's
MORE_TOKENS = 1024  # that an earlier prompt may have after the prefix that it shares with the corrected one


@dataclass(frozen=True, slots=True)
class Request:
    """Another request, as a conversation, the turn it was taken from, if any, and whether the user asked it.

    `length` is how many tokens its reply had, or the median of the user's others where there was none.
    """

    messages: tuple[Message, ...]
    turn: str = ""
    is_users: bool = False
    length: int = 0


@dataclass(slots=True)
class OtherRequests:
    """Finds other requests for a corrected turn.

    `earlier` returns the user's turns, newest first, and `wished` those that open the conversations in which the user's
    wishes were asked for, the newest wish first. `answered` returns the messages with which the user answered a
    turn, if they are known.
    """

    renderer: Renderer
    settings: TeachSettings
    earlier: Callable[[Turn], Awaitable[Sequence[Turn]]]
    wished: Callable[[Turn], Awaitable[Sequence[Turn]]]
    answered: Callable[[Turn], Awaitable[Sequence[Message]]]
    made_up: MadeUpRequests

    async def openings(
        self, turn: Turn, checks: int = 0, *, with_shipped: bool = True
    ) -> tuple[list[Request], list[Request]]:
        """At most `other_requests` requests to learn from, and at most `checks` others to check what was learned on.

        No two have the same words, and none those of the turn.
        """
        most = self.settings.other_requests
        seen = {words_of(turn.messages)}
        wished = self._openings(turn, await self.wished(turn), seen)
        own = self._openings(turn, await self.earlier(turn), seen)
        length = int(statistics.median([one.length for one in (*wished, *own)] or [0]))
        system = [item for item in turn.messages if item.role is Role.SYSTEM][:1]
        needed = max(most // MADE_UP, most - len(wished) - len(own))
        drawn = await self.made_up.drawn(turn, system, TRIES * needed + checks)
        choice = [words for words in drawn[: TRIES * needed] if words and words not in seen]
        made_up = of_many_kinds(choice, needed)
        found = spread(wished, (most - len(made_up)) * 2 // 3)
        found += spread(own, most - len(made_up) - len(found))
        room = (min(most, MOST_SHIPPED) if with_shipped else 0) - len(found) - len(made_up)
        spare = [one for one in (*own, *wished) if one not in found]
        for words in [*made_up, *shipped()[: max(0, room)]]:
            if words not in seen:
                seen.add(words)
                found.append(Request((*system, message(Role.USER, words)), length=length))
        spare = spread(spare, min(OWN_CHECKS, checks // 2))
        left = of_many_kinds([words for words in choice if words not in seen], min(VARIED_CHECKS, checks) - len(spare))
        seen.update(left)
        left += [words for words in drawn if words and words not in seen][: checks - len(spare) - len(left)]
        return found, [*spare, *(Request((*system, message(Role.USER, words)), length=length) for words in left)]

    async def drawn_besides(self, turn: Turn, asked: Sequence[Request], most: int) -> list[Request]:
        """At most this many requests that the base model makes up besides those that were `asked`."""
        system = [item for item in turn.messages if item.role is Role.SYSTEM][:1]
        seen = {words_of(turn.messages), *(words_of(one.messages) for one in asked)}
        drawn = await self.made_up.drawn(turn, system, most + len(asked))
        length = int(statistics.median([one.length for one in asked] or [0]))
        fresh = [words for words in drawn if words and words not in seen][:most]
        return [Request((*system, message(Role.USER, words)), length=length) for words in fresh]

    def _openings(self, turn: Turn, others: Sequence[Turn], seen: set[str]) -> list[Request]:
        """The requests of turns that open a conversation, without those whose words were `seen`, which are added."""
        found = []
        for other in others:
            words = words_of(other.messages)
            if other.parent is None and _is_near(other, turn) and words not in seen:
                seen.add(words)
                found.append(Request(other.messages, other.id, is_users=True, length=len(other.completion.tokens)))
        return found

    async def later(self, turn: Turn, opened: Sequence[tuple[Request, Sequence[int]]]) -> list[Request]:
        """Requests in the middle of a conversation: a wish learned only on first requests may change in later ones.

        The first is the user's answer to the corrected reply, if it is known. The next are the user's own from later in
        a conversation, newest first. If these are too few, conversations that `opened` with the hint continue with
        thanks, and with the request of the first of them.
        """
        found = []
        if answer := await self.answered(turn):
            found.append(Request((*turn.messages, turn.reply, *answer), is_users=True))
        seen = {words_of(request.messages) for request in found}
        for other in await self.earlier(turn):
            words = words_of(other.messages)
            if other.parent is not None and other.id != turn.id and words not in seen and _is_near(other, turn):
                seen.add(words)
                found.append(Request(other.messages, other.id, is_users=True, length=len(other.completion.tokens)))
            if len(found) > LATER:
                return found
        another = [words_of(request.messages) for request, _ in opened[:1]]
        for (request, reply), words in zip(opened, [*thanks(), *another], strict=False):
            if len(found) <= LATER:
                said, _ = await asyncio.to_thread(self.renderer.decode, tuple(reply))
                asked = (*request.messages, said, message(Role.USER, words))
                found.append(Request(asked, request.turn, length=request.length))
        return found


def spread(newest_first: Sequence[Request], most: int) -> list[Request]:
    """At most this many requests: half of them the newest, the others evenly spread over the rest.

    With the newest alone, wishes about what a user asked for some time ago would be unlearned.
    """
    if len(newest_first) <= most:
        return list(newest_first)
    recent = -(-most // 2)
    older = newest_first[recent:]
    return [*newest_first[:recent], *(older[index * len(older) // (most - recent)] for index in range(most - recent))]


def words_of(messages: Sequence[Message]) -> str:
    """The text of the last message of a user."""
    last = last_user_index(messages)
    return "" if last is None else messages[last].text


def _is_near(other: Turn, turn: Turn) -> bool:
    """Whether a turn answers a user's message, and is cheap to read after the corrected one.

    It is cheap if at most `MORE_TOKENS` ids of its prompt follow the prefix that it shares with the corrected one: the
    prefix need not be computed again. A prompt with images does not count.
    """
    last = other.messages[-1] if other.messages else None
    if last is None or last.role is not Role.USER or other.prompt.images:
        return False
    shared = max(0, len(other.prompt) - MORE_TOKENS)  # at least; compared at once, since many turns are looked at
    return other.prompt.tokens[:shared] == turn.prompt.tokens[:shared]
