"""Finds replies that follow a hint but differ in content from the reply without it: the hint changed the answer too.

A small model that is asked to write in another style may begin differently, and then add what it should subtract. The
base model detects this. Its prompt is given the reply without the hint, and then the hint as the user's next message.
If a token of the reply with the hint is now much less likely than with the hint alone, the two replies contradict each
other. How many wrong replies this finds is measured in docs/decisions/0035-replies-that-contradict.md.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from openclaw_rl.core.hint import last_user_index, told_after
from openclaw_rl.core.message import Message
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.protocols import Engine, Renderer
from openclaw_rl.core.sample import HintPrompt, SampledReply
from openclaw_rl.core.sampling import Sampling
from openclaw_rl.core.turn import Turn
from openclaw_rl.core.version import BASE
from openclaw_rl.errors import RequestError
from openclaw_rl.teach.asking import reply_logp, reply_scores, sampled_reply
from openclaw_rl.teach.results import loses_number
from openclaw_rl.teach.slips import slips, sources

log = logging.getLogger(__name__)
FIRST = 2  # tokens of a reply that are not compared: a reply to a complaint begins differently ("Sure, ...")
CONTRADICTS_NATS = 3.0  # by which a token must become less likely when the reply without the hint is in the prompt
SURE, POSSIBLE = math.log(0.6), math.log(0.01)  # probabilities of a token without a hint and with it, in nats
SURE_END = math.log(0.9)  # from this probability on a reply with a hint surely ends
TOP_K = 20  # likeliest tokens among which it is looked for
OPENS_NATS = 3.0  # a token: a second reply whose beginning is less likely than this with the hint alone is left out
SECONDS = 4  # replies sampled with the corrected reply in the prompt, if others contradict it
HINTS_COUNTED = 32  # the hints that were checked last
LEAST_CHECKED = 6  # replies with a hint, before anything is concluded from them
COSTLY = 0.2  # share of them that contradict, at least; with hints that cost no right answers it is one in 250


@dataclass(slots=True)
class ContradictionCounts:
    """How many replies with each of the latest hints were checked, how many contradict, and how many were left out.

    Those are left out that lose their number, and in whose place no other one could be drawn.
    """

    _by_hint: OrderedDict[str, tuple[int, int, int]] = field(default_factory=OrderedDict)

    def note(self, hint: str, found: Sequence[bool], *, left_out: int = 0) -> None:
        """Adds the results of the check of some replies with a hint: True for each that contradicts."""
        contrary, checked, left = self._by_hint.pop(hint, (0, 0, 0))
        self._by_hint[hint] = (contrary + sum(found), checked + len(found), left + left_out)
        while len(self._by_hint) > HINTS_COUNTED:
            self._by_hint.popitem(last=False)

    def costly(self) -> Iterator[tuple[str, int, int]]:
        """The hints that often change the content of replies: the hint, replies that it changes, replies checked."""
        for hint, (contrary, checked, left) in self._by_hint.items():
            changed = max(contrary, left)
            if checked >= LEAST_CHECKED and changed >= COSTLY * checked:
                yield hint, changed, checked

    def confuses(self, hint: str) -> bool:
        """Whether many replies with this hint lose their number, and no others could be drawn in their place."""
        _, checked, left = self._by_hint.get(hint, (0, 0, 0))
        return checked >= LEAST_CHECKED and left >= COSTLY * checked

    def let_go(self) -> None:
        """Removes all counts, as after a restart."""
        self._by_hint.clear()


@dataclass(frozen=True, slots=True)
class ContentCheck:
    """Asks the base model. A reply ends with one of `stop_ids`; `warmth` is the temperature.

    It has at most `longest` tokens, or more where a method is told so.
    """

    engine: Engine
    renderer: Renderer
    stop_ids: tuple[int, ...]
    longest: int
    warmth: float
    counts: ContradictionCounts = field(default_factory=ContradictionCounts)

    async def decoded(self, said: SampledReply) -> Message | None:
        """A reply as a message; None if it calls a tool or cannot be decoded."""
        try:
            reply, _ = await asyncio.to_thread(self.renderer.decode, said.tokens)
        except (RequestError, ValueError):
            return None
        return None if reply.tool_calls else reply

    async def after(
        self, turn: Turn, messages: Sequence[Message], reply: Message, hints: Sequence[str]
    ) -> Prompt | None:
        """The prompt in which `reply` answers `messages`, and the hints are the user's next message.

        Tools and options are the turn's. None if the template refuses.
        """
        said = told_after(messages, reply, hints)
        try:
            return await asyncio.to_thread(self.renderer.prompt, said, turn.tools, None, options=turn.options)
        except (RequestError, ValueError):
            return None

    async def consistent(
        self, turn: Turn, hint: HintPrompt, shown: Sequence[SampledReply]
    ) -> tuple[HintPrompt, tuple[SampledReply, ...]]:
        """The hint of a corrected turn, and replies with it that neither contradict the corrected reply nor slip.

        Both are as given if no reply does either, if the corrected reply calls tools, or if the template refuses.
        Otherwise these replies are left out, and up to `SECONDS` replies are added that are sampled with the
        corrected reply and then the hint in the prompt. The hint's prompt is then that one; if no reply is left, the
        hint is as given. Raises EngineError.
        """
        anchored = None if turn.reply.tool_calls else await self.after(turn, turn.messages, turn.reply, [hint.text])
        if anchored is None:
            return hint, tuple(shown)
        hinted = Prompt(hint.tokens)
        found = await asyncio.gather(*(self.contradicts(hinted, anchored, said.tokens) for said in shown))
        found = [
            is_contrary or await self._is_lost(turn, hinted, said)
            for is_contrary, said in zip(found, shown, strict=True)
        ]
        self.counts.note(hint.text, found)
        clear = await sources(self.renderer, turn, turn.messages, [hint.text])
        found = [
            is_contrary or await slips(self.engine, clear, hinted, said.tokens) is not None
            for is_contrary, said in zip(found, shown, strict=True)
        ]
        if not any(found):
            return hint, tuple(shown)
        kept = {said.tokens: said for said, is_contrary in zip(shown, found, strict=True) if not is_contrary}
        log.info("contradictions turn=%s: %d of %d replies given its hint", turn.id, sum(found), len(found))
        for seed in range(SECONDS):
            second = await self.second(hinted, anchored, seed, 2 * len(turn.completion.tokens))
            if second is None or await self._loses_number(turn, second):
                continue
            if await slips(self.engine, clear, hinted, second.tokens) is None:
                kept.setdefault(second.tokens, second)
        return (HintPrompt(hint.text, anchored.tokens) if kept else hint), tuple(kept.values())

    async def _loses_number(self, turn: Turn, said: SampledReply) -> bool:
        """Whether a reply lacks the number with which the corrected one ends."""
        at, told = last_user_index(turn.messages), await self.decoded(said)
        request = "" if at is None else turn.messages[at].text
        return told is not None and loses_number(told.text, turn.reply.text, request)

    async def _is_lost(self, turn: Turn, hinted: Prompt, said: SampledReply) -> bool:
        if not await self._loses_number(turn, said):
            return False
        try:
            bare = await asyncio.to_thread(self.renderer.prompt, turn.messages, turn.tools, None, options=turn.options)
        except (RequestError, ValueError):
            return False
        return await self.wavers(bare, hinted, said)

    async def wavers(self, bare: Prompt, hinted: Prompt, said: SampledReply) -> bool:
        """Whether a reply goes on, at some token, as the model would surely not without the hint, and unsurely with it.

        After the same beginning the model without the hint is sure (`SURE`) of a token that is `CONTRADICTS_NATS`
        likelier there than the reply's own. With the hint this token is possible, too (`POSSIBLE`): else the hint asks
        for another, such as a word in place of the digits. Ends are not compared. Raises EngineError.
        """
        without, given = await asyncio.gather(
            *(reply_scores(self.engine, prompt, said.tokens, BASE, top_k=TOP_K) for prompt in (bare, hinted))
        )
        for place in range(FIRST, len(said.tokens)):
            token, logp = max(without.top[place], key=lambda each: each[1])
            if token in self.stop_ids or logp < SURE or logp - without.logp[place] < CONTRADICTS_NATS:
                continue
            if dict(given.top[place]).get(token, -math.inf) >= POSSIBLE:
                return True
        return False

    async def contradicts(self, hinted: Prompt, anchored: Prompt, said: tuple[int, ...]) -> bool:
        """Whether a reply to the hinted prompt contradicts the reply that the anchored prompt contains.

        It does if a token after the first `FIRST` is at least `CONTRADICTS_NATS` less likely after the anchored prompt.
        An end of which the model is sure with the hint, too, is not compared: if a hint does not concern a request
        ("In hours: End with ..."), the reply ends as it does without it, but a model takes what is said right after a
        reply as said about that reply. Raises EngineError.
        """
        hinted_logp, anchored_logp = await asyncio.gather(
            *(reply_logp(self.engine, prompt, said, BASE) for prompt in (hinted, anchored))
        )
        lost = [
            before - after
            for token, before, after in zip(said, hinted_logp, anchored_logp, strict=True)
            if token not in self.stop_ids or before < SURE_END
        ]
        return max(lost[FIRST:], default=0.0) >= CONTRADICTS_NATS

    async def second(self, hinted: Prompt, anchored: Prompt, seed: int, longest: int = 0) -> SampledReply | None:
        """A reply to the anchored prompt whose beginning is likely enough after the hinted prompt, too.

        None if it does not end, or if its first `FIRST` + 1 tokens are too unlikely there (`OPENS_NATS`). Raises
        EngineError.
        """
        said = await self.drawn(anchored, seed, longest)
        if said is None:
            return None
        opening = said.tokens[: FIRST + 1]
        nats = -sum(await reply_logp(self.engine, hinted, opening, BASE))
        return said if nats <= OPENS_NATS * len(opening) else None

    async def drawn(self, prompt: Prompt, seed: int, longest: int = 0) -> SampledReply | None:
        """The base model's reply to a prompt; None if it does not end within so many tokens. Raises EngineError."""
        most = max(self.longest, longest)
        sampling = Sampling(max_tokens=most, temperature=self.warmth, seed=seed, stop_ids=self.stop_ids)
        said = await sampled_reply(self.engine, prompt, sampling, BASE)
        return said if said.tokens and said.tokens[-1] in self.stop_ids else None
