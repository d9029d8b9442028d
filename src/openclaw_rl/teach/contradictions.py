"""Replies that heed a hint and say something else than the model says without it: the hint took the answer along.

A small model that is to write in another manner may take another beginning, and after it add what is to be taken away.
The base model tells: it is given its own reply without the hint, and then the hint as its user's answer. What it now
finds much less likely than with the hint alone, it would not say if it saw what it says anyway. How many wrong replies
this finds is measured in docs/decisions/0035-replies-that-contradict.md.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from openclaw_rl.core.hint import told_after
from openclaw_rl.core.message import Message
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.protocols import Engine, Renderer
from openclaw_rl.core.sample import HintPrompt, SampledReply
from openclaw_rl.core.sampling import Sampling
from openclaw_rl.core.turn import Turn
from openclaw_rl.core.version import BASE
from openclaw_rl.errors import RequestError
from openclaw_rl.teach.asking import reply_logp, sampled_reply

log = logging.getLogger(__name__)
FIRST = 2  # tokens of a reply: how it opens is another matter where it answers a complaint ("Sure, ...")
CONTRADICTS_NATS = 3.0  # by which a token is less likely once the reply without the hint is known
OPENS_NATS = 3.0  # a token, at most: a second reply that opens as hardly any first one would is not learned from
SECONDS = 4  # replies that are given in knowledge of the corrected one, where others contradict it
HINTS_COUNTED = 32  # the latest
LEAST_CHECKED = 6  # replies with a hint, before anything is concluded from them
COSTLY = 0.2  # share of them that say something else: of hints that cost nothing one in 250 does


@dataclass(slots=True)
class ContradictionCounts:
    """Of the latest hints, how many replies with each were checked, and how many of them said something else."""

    _by_hint: OrderedDict[str, tuple[int, int]] = field(default_factory=OrderedDict)

    def note(self, hint: str, found: Sequence[bool]) -> None:
        """What the check said of some replies with a hint."""
        contrary, checked = self._by_hint.pop(hint, (0, 0))
        self._by_hint[hint] = (contrary + sum(found), checked + len(found))
        while len(self._by_hint) > HINTS_COUNTED:
            self._by_hint.popitem(last=False)

    def costly(self) -> Iterator[tuple[str, int, int]]:
        """The hints that change what is said: replies that say something else, and replies checked."""
        for hint, (contrary, checked) in self._by_hint.items():
            if checked >= LEAST_CHECKED and contrary >= COSTLY * checked:
                yield hint, contrary, checked

    def let_go(self) -> None:
        """Counts from nothing, as after a restart."""
        self._by_hint.clear()


@dataclass(frozen=True, slots=True)
class ContentCheck:
    """Asks the base model. `stop_ids` end a reply, `longest` tokens cut it; it is drawn at `warmth`."""

    engine: Engine
    renderer: Renderer
    stop_ids: tuple[int, ...]
    longest: int
    warmth: float
    counts: ContradictionCounts = field(default_factory=ContradictionCounts)

    async def reply(self, bare: Prompt, seed: int) -> Message | None:
        """What the base model says to a prompt without hints; None where that finds no end or calls a tool.

        Raises EngineError.
        """
        said = await self.drawn(bare, seed)
        if said is None:
            return None
        try:
            reply, _ = await asyncio.to_thread(self.renderer.decode, said.tokens)
        except (RequestError, ValueError):
            return None
        return None if reply.tool_calls else reply

    async def after(
        self, turn: Turn, messages: Sequence[Message], reply: Message, hints: Sequence[str]
    ) -> Prompt | None:
        """The prompt in which `reply` was given to `messages` without the hints, which come then; tools and options are
        the turn's. None where the template refuses.
        """
        said = told_after(messages, reply, hints)
        try:
            return await asyncio.to_thread(self.renderer.prompt, said, turn.tools, None, options=turn.options)
        except (RequestError, ValueError):
            return None

    async def consistent(
        self, turn: Turn, hint: HintPrompt, shown: Sequence[SampledReply]
    ) -> tuple[HintPrompt, tuple[SampledReply, ...]]:
        """The hint of a corrected turn, and replies with it, that say what was corrected and not something else.

        Where all do, they are as given. Else the teacher reads the corrected reply and then the hint, and those that
        contradict it are left out for some that are given so. Where none comes of that either, only the contradicting
        ones are left out. Raises EngineError.
        """
        anchored = None if turn.reply.tool_calls else await self.after(turn, turn.messages, turn.reply, [hint.text])
        if anchored is None:
            return hint, tuple(shown)
        hinted = Prompt(hint.tokens)
        found = await asyncio.gather(*(self.contradicts(hinted, anchored, said.tokens) for said in shown))
        self.counts.note(hint.text, found)
        if not any(found):
            return hint, tuple(shown)
        kept = {said.tokens: said for said, is_contrary in zip(shown, found, strict=True) if not is_contrary}
        log.info("turn=%s: %d of %d replies with its hint contradict it", turn.id, sum(found), len(found))
        check = replace(self, longest=max(self.longest, 2 * len(turn.completion.tokens)))
        for seed in range(SECONDS):
            if (second := await check.second(hinted, anchored, seed)) is not None:
                kept.setdefault(second.tokens, second)
        return (HintPrompt(hint.text, anchored.tokens) if kept else hint), tuple(kept.values())

    async def contradicts(self, hinted: Prompt, anchored: Prompt, said: tuple[int, ...]) -> bool:
        """Whether a reply to the hinted prompt says something else than the reply in the anchored one."""
        with_hint, knowing = await asyncio.gather(
            *(reply_logp(self.engine, prompt, said, BASE) for prompt in (hinted, anchored))
        )
        lost = [before - after for before, after in zip(with_hint, knowing, strict=True)]
        return max(lost[FIRST:], default=0.0) >= CONTRADICTS_NATS

    async def second(self, hinted: Prompt, anchored: Prompt, seed: int) -> SampledReply | None:
        """A reply to the anchored prompt that could as well be one to the hinted prompt; None where there is none."""
        said = await self.drawn(anchored, seed)
        if said is None:
            return None
        opening = said.tokens[: FIRST + 1]
        nats = -sum(await reply_logp(self.engine, hinted, opening, BASE))
        return said if nats <= OPENS_NATS * len(opening) else None

    async def drawn(self, prompt: Prompt, seed: int) -> SampledReply | None:
        """What the base model says to a prompt; None where that finds no end."""
        sampling = Sampling(max_tokens=self.longest, temperature=self.warmth, seed=seed, stop_ids=self.stop_ids)
        said = await sampled_reply(self.engine, prompt, sampling, BASE)
        return said if said.tokens and said.tokens[-1] in self.stop_ids else None
