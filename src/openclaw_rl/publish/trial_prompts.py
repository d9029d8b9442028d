"""The prompts that a version is tried on besides its users' latest: other users', generated, and uncorrected ones.

Other users' requests come first, then requests that the base model generates when it continues the opening of a user's
turn, then a few ordinary requests that ship with the program. A generated request is used only if the base model is
reasonably sure of its reply: hardly less sure than of those to its users.
"""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.resources import files

from openclaw_rl.core.hint import CONCERNS_NATS, PlacedHint, last_user_index, orders, told_after, with_hints
from openclaw_rl.core.message import Message, Role, message
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.protocols import Engine, Renderer
from openclaw_rl.core.sampling import Sampling
from openclaw_rl.core.turn import Turn
from openclaw_rl.core.version import BASE
from openclaw_rl.core.width import Width
from openclaw_rl.errors import RequestError
from openclaw_rl.publish.replies import BaseReplies, ScoredReply, TrialPrompt, is_loop
from openclaw_rl.store.db import Store

LESS_SURE = 1.5  # times as uncertain, in nats a token, as for the users' own prompts
MADE_UP, MADE_UP_IN_DOUBT = 3, 64  # requests that the base model generates
FIRST_SEED = 100_000  # of theirs; teaching takes the seeds from 0 (`teach/made_up.py`), and taught ones show no damage
MADE_TOKENS = 64  # the longest of them
SHORTEST = 8  # letters of a request
LOOKED_AT = 8  # generated requests that are considered for each version
MOST_TAUGHT = 2  # hints of one step that are read alone
MOST_USERS = 3  # whose wishes are read
MOST_ALONE = 3  # wishes that concern a prompt and are each read alone, the newest

Hinted = Callable[[Sequence[str]], Prompt | None]  # a prompt with these hints in it; None if the template refuses


@dataclass(frozen=True, slots=True)
class VersionLessons:
    """What a version may have learned: the hints its step taught, and its latest users, whose wishes it follows."""

    taught: Sequence[str] = ()
    users: Sequence[str] = ()
    most_alone: int = MOST_TAUGHT

    @property
    def alone(self) -> Sequence[tuple[str, ...]]:
        """The taught hints that the base model reads each alone."""
        return [(text,) for text in dict.fromkeys(self.taught)][: self.most_alone]


@dataclass(slots=True)
class TrialPrompts:
    """Finds and renders them. Requests that the base model generated are kept for the next version."""

    store: Store
    engine: Engine
    renderer: Renderer
    base: BaseReplies
    stop_ids: tuple[int, ...]
    width: Width
    _made_up: list[str | None] = field(default_factory=list)  # by seed; None if a seed gave no request

    async def of_turns(self, turns: Sequence[Turn], known: VersionLessons) -> list[TrialPrompt]:
        """The prompts of turns, read with what their users wish for too."""
        found = []
        for turn in turns:
            wishes = await self._wishes([*known.users, turn.user])
            at = last_user_index(turn.messages)
            hinted = partial(self._reread, turn, at)
            told = _readings([*wishes, *await self._concerned(turn.prompt, hinted, wishes, known.taught)], known)
            readings = [turn.prompt, *await self._after_the_reply(turn.messages, turn.prompt, told, turn)]
            for texts in told:
                prompt = await asyncio.to_thread(hinted, texts)
                if prompt is not None and prompt.tokens not in {one.tokens for one in readings}:
                    readings.append(prompt)
            found.append(TrialPrompt(turn.prompt, tuple(readings)))
        return found

    async def _concerned(
        self, bare: Prompt, hinted: Hinted, wishes: Sequence[tuple[str, ...]], taught: Sequence[str]
    ) -> list[tuple[str, ...]]:
        """The wishes that concern a prompt: each of the newest alone, then all of each user in several orders.

        The last of these has the newly taught ones last: the base model's reply is drawn with the last reading.

        Teaching reads earlier wishes where they concern a request (`teach/elsewhere.py`), in the order in which the
        base model follows most of them, so a version says what the base model says given these, and what it says given
        one of them if others are lost.
        """
        texts = list(dict.fromkeys(text for texts in wishes for text in texts))
        if len(texts) < 2 or bare.images:
            return []
        said = await self.base.said(TrialPrompt(bare, (bare,)))
        prompts = [await asyncio.to_thread(hinted, (text,)) for text in texts]
        are_objected = await asyncio.gather(*(self._is_objected(said, prompt) for prompt in prompts))
        concern = {text for text, is_objected in zip(texts, are_objected, strict=True) if is_objected}
        alone = [(text,) for text in texts if text in concern]
        together = [sorted((text for text in own if text in concern), key=set(taught).__contains__) for own in wishes]
        return [*alone[-MOST_ALONE:], *(order for own in together if own for order in reversed(orders(own)))]

    async def _is_objected(self, said: ScoredReply, hinted: Prompt | None) -> bool:
        """Whether a hint concerns a prompt: with it the base model finds its own reply without it less likely."""
        if hinted is None or not said.tokens:
            return False
        return sum(said.logp) - sum(await self.base.likelihood(hinted, said.tokens)) >= CONCERNS_NATS

    async def _after_the_reply(
        self, messages: Sequence[Message], bare: Prompt, told: Sequence[tuple[str, ...]], turn: Turn | None = None
    ) -> list[Prompt]:
        """The prompt with the base model's reply to it, followed by the first and the last of these hints.

        Teaching samples replies in such a conversation if those with only the hint contradict those without.
        """
        if not told or bare.images:
            return []
        said = await self.base.said(TrialPrompt(bare, (bare,)))
        try:
            reply, _ = await asyncio.to_thread(self.renderer.decode, said.tokens)
        except (RequestError, ValueError):
            return []
        if reply.tool_calls or not said.has_ended:
            return []
        tools, options = ((), None) if turn is None else (turn.tools, turn.options)
        found = []
        for texts in dict.fromkeys((told[0], told[-1])):
            talk = told_after(messages, reply, texts)
            try:
                found.append(await asyncio.to_thread(self.renderer.prompt, talk, tools, None, options=options))
            except (RequestError, ValueError):
                continue
        return found

    async def of_nobody(
        self, known: VersionLessons, beside: Sequence[TrialPrompt], *, most: int, in_doubt: bool = False
    ) -> list[TrialPrompt]:
        """At most this many generated requests, of which the base model is about as sure as of the given ones.

        `in_doubt` many more are generated and looked at.
        """
        if not beside or most < 1:
            return []
        nats = [(await self.base.said(prompt)).nats for prompt in beside]
        bound = LESS_SURE * statistics.median(nats)
        wishes = await self._wishes(known.users)
        found: list[TrialPrompt] = []
        for text in await self._requests(in_doubt=in_doubt):
            prompt = await self._unasked(text, wishes, known)
            if prompt is not None and (await self.base.said(prompt)).nats <= bound:
                found.append(prompt)
            if len(found) == most:
                break
        return found

    def let_go(self) -> None:
        """Removes all prompts from memory."""
        self._made_up.clear()
        self.base.let_go()

    async def _wishes(self, users: Sequence[str]) -> list[tuple[str, ...]]:
        """The wishes of each user that were not withdrawn; the last user's come last."""
        last_first = list(dict.fromkeys(reversed(users)))[:MOST_USERS]
        held = [await self.store.hints.of_user(user) for user in reversed(last_first)]
        return [tuple(hint.text for hint in hints if hint.is_wished) for hints in held]

    async def _requests(self, *, in_doubt: bool) -> list[str]:
        made = await self._make_up(MADE_UP_IN_DOUBT if in_doubt else MADE_UP)
        return [*made, *(await asyncio.to_thread(ordinary_requests))][: max(LOOKED_AT, len(made))]

    async def _make_up(self, count: int) -> list[str]:
        """Requests that the base model writes in place of a user's message; only those that look like one."""
        opening = await asyncio.to_thread(self.renderer.user_opening)
        if opening is None:
            return []
        tried = self._made_up
        seeds = range(FIRST_SEED + len(tried), FIRST_SEED + count)
        tried += await self.width.each(seeds, lambda seed: self._one_made_up(*opening, seed))
        return list(dict.fromkeys(text for text in tried[:count] if text is not None))

    async def _one_made_up(self, prompt: Prompt, end: int, seed: int) -> str | None:
        sampling = Sampling(max_tokens=MADE_TOKENS, temperature=1.0, seed=seed, stop_ids=(end, *self.stop_ids))
        said = [item async for item in self.engine.generate(prompt, sampling, BASE)]
        tokens = tuple(item.token for item in said)
        if tokens[-1:] != (end,) or is_loop(tokens):
            return None
        try:
            reply, _ = self.renderer.decode(tokens[:-1])
        except (RequestError, ValueError):
            return None
        text = reply.text.strip()
        is_request = len(text) >= SHORTEST and not reply.tool_calls and not reply.reasoning and "<|" not in text
        return text if is_request else None

    def _reread(self, turn: Turn, at: int | None, texts: Sequence[str]) -> Prompt | None:
        if at is None:
            return None
        try:
            return self.renderer.reread(turn, with_hints(turn.messages, _placed(at, texts)))
        except (RequestError, ValueError):  # the template refuses
            return None

    async def _unasked(self, text: str, wishes: Sequence[tuple[str, ...]], known: VersionLessons) -> TrialPrompt | None:
        hinted = partial(self._rendered, text)
        bare = await asyncio.to_thread(hinted, ())
        if bare is None:
            return None
        told = _readings([*wishes, *await self._concerned(bare, hinted, wishes, known.taught)], known)
        prompts = [await asyncio.to_thread(hinted, texts) for texts in told]
        if None in prompts:
            return None
        after = await self._after_the_reply((message(Role.USER, text),), bare, told)
        return TrialPrompt(bare, tuple({one.tokens: one for one in (bare, *after, *prompts) if one}.values()))

    def _rendered(self, text: str, texts: Sequence[str]) -> Prompt | None:
        said: tuple[Message, ...] = (message(Role.USER, text),)
        try:
            return self.renderer.prompt(with_hints(said, _placed(0, texts)), (), None)
        except (RequestError, ValueError):
            return None


def ordinary_requests() -> list[str]:
    """The requests that ship with the program."""
    text = files("openclaw_rl.publish").joinpath("requests.txt").read_text("utf-8")
    return [line for line in text.splitlines() if line.strip()]


def _readings(wishes: Sequence[tuple[str, ...]], known: VersionLessons) -> list[tuple[str, ...]]:
    """The hints of each reading besides the plain one: the newly taught ones alone, then these groups of wishes."""
    return [*known.alone, *(tuple(dict.fromkeys(texts)) for texts in wishes if texts)]


def _placed(at: int, texts: Sequence[str]) -> tuple[PlacedHint, ...]:
    return tuple(PlacedHint(at, "", text) for text in texts)
