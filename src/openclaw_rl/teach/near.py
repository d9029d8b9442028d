"""Demonstrations on requests like the corrected one, if its hint also changes the content of replies.

A base model that is told a wish may reply wrongly where it replies rightly without it. Whether it does is tried on the
corrected request with other numbers. If so, only replies are learned that show the hint, contradict none of several
that it gives without the hint and state their result, and requests with less in them keep the replies that they have.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from openclaw_rl.core.hint import CONCERNS_NATS, PlacedHint, last_user_index
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.sample import HintPrompt, OtherRequestReply, SampledReply
from openclaw_rl.core.turn import Turn
from openclaw_rl.core.version import BASE
from openclaw_rl.teach.asking import reply_logp
from openclaw_rl.teach.contradictions import COSTLY
from openclaw_rl.teach.elsewhere import AskedRequest, OtherReplies
from openclaw_rl.teach.other_requests import Request
from openclaw_rl.teach.results import has_digit, results, shared, states
from openclaw_rl.teach.variants import how_many_numbers, with_less, with_other_numbers
from openclaw_rl.wording.words import words_in

log = logging.getLogger(__name__)
NUMBERED = 8  # requests with other numbers
TRIED = 64  # most requests that are looked at to find so many usual ones
LEAST_CONTRARY = 2  # replies that contradict: one may do so by chance
LEAST_NUMBERED = 4  # if there are fewer, nothing can be said
UNUSUAL_NATS = 3.0  # a number, by which a request may be less likely than the corrected one
SHORTER = 8  # requests with less in them
UNHINTED = 3  # replies without the hint that a demonstration must agree with
KNOWN = 0.5  # share of the requests with other numbers on which the model must know a result to be held to it
CONFUSED = 0.5  # if more of the replies with a hint lose their content, and no more of the demonstrations pass
DRAWS, DRAW_SEEDS = 4, 1_000  # of a demonstration until one agrees, and between the seeds of one request's replies


@dataclass(frozen=True, slots=True)
class _Trial:
    """A request with other numbers, the hints that its reply was given, their prompt and the reply.

    `anchored` is the prompt with the base model's reply without hints and then the hints: the reply may contradict it,
    or lack its number.
    """

    asked: AskedRequest
    hints: Sequence[str]
    hinted: Prompt
    said: SampledReply
    anchored: Prompt
    is_contrary: bool
    is_lost: bool


@dataclass(frozen=True, slots=True)
class NearReplies:
    """What is learned if a hint costs content: `replies` to near requests, and those `shown` on the corrected one."""

    replies: tuple[OtherRequestReply, ...]
    shown: tuple[SampledReply, ...]


@dataclass(frozen=True, slots=True)
class NearRequests:
    """Asks the base model through `others`, as for all other requests."""

    others: OtherReplies

    async def found(
        self, turn: Turn, hint: str, known: Sequence[PlacedHint], shown: tuple[SampledReply, ...]
    ) -> NearReplies:
        """Checked replies to requests with other numbers, and the replies without hints to requests with less in them.

        Of the replies `shown` on the corrected request those that state its result. No replies, and `shown` as it is,
        if only one of the replies with the hint contradicts those without, or fewer than `COSTLY` of them do; also if
        few requests with other numbers are usual, or if no reply passes the check; and if the replies without the hint
        to more than half of the requests differ in their result: a model that knows none loses none, so a reply to such
        a request is not counted. If most replies with the hint contradict or lose their number, and few that do not can
        be drawn, these are noted as left out. Raises EngineError.
        """
        nothing = NearReplies((), shown)
        at = last_user_index(turn.messages)
        if self.others.settings.other_requests == 0 or at is None:
            return nothing
        words = turn.messages[at].text
        asked = await self._asked(turn, await self._numbered(turn, at))
        if len(asked) < LEAST_NUMBERED:
            return nothing
        tried = await asyncio.gather(*(self._tried(one, hint, known) for one in asked))
        trials = [trial for trial in tried if trial is not None]
        contrary = [trial.is_contrary for trial in trials]
        lost = sum(trial.is_lost for trial in trials)
        changed = sum(trial.is_contrary or trial.is_lost for trial in trials)
        may_confuse = changed > CONFUSED * len(trials) and lost >= COSTLY * len(trials)
        if not may_confuse and not _are_many(contrary):
            self.others.contradictions.note(hint, contrary)
            return nothing
        untold = await asyncio.gather(*(self._untold(trial.asked) for trial in trials))
        found = [
            results(own, trial.asked.request.messages[at].text, untold[:index] + untold[index + 1 :])
            for index, (trial, own) in enumerate(zip(trials, untold, strict=True))
        ]
        contrary = [trial.is_contrary and len(each) == 1 for trial, each in zip(trials, found, strict=True)]
        self.others.contradictions.note(hint, contrary)
        if sum(len(each) == 1 for each in found) < KNOWN * len(found) or not (may_confuse or _are_many(contrary)):
            return nothing
        known_results = [(trial, shared(each)) for trial, each in zip(trials, found, strict=True) if len(each) == 1]
        agreed = await asyncio.gather(*(self._agreeing(trial, result) for trial, result in known_results))
        taught = [reply for reply in agreed if reply is not None]
        log.info(
            "near requests turn=%s: of %d replies %d contradict, %d lose their number; %d pass",
            turn.id, len(trials), sum(contrary), lost, len(taught),
        )  # fmt: skip
        is_confused = may_confuse and len(taught) <= CONFUSED * len(trials)
        if is_confused:
            self.others.contradictions.note(hint, [], left_out=len(trials) - len(taught))
        if is_confused or not taught:
            return nothing
        shorter = await self._asked(turn, with_less(words, SHORTER))
        held = await asyncio.gather(*(self._held(one, hint) for one in shorter))
        return NearReplies(
            (*taught, *(reply for reply in held if reply is not None)), await self._stating(turn, words, untold, shown)
        )

    async def _numbered(self, turn: Turn, at: int) -> list[str]:
        """The corrected request with other numbers that its user might ask about, too.

        About others the base model may but guess: guesses contradict each other, and what is learned is to guess.
        """
        words = turn.messages[at].text
        tried, by = with_other_numbers(words, TRIED), UNUSUAL_NATS * how_many_numbers(words)
        return await self.others.requests.made_up.usual(turn, at, tried, NUMBERED, by)

    async def _stating(
        self, turn: Turn, words: str, elsewhere: Sequence[Sequence[str]], shown: tuple[SampledReply, ...]
    ) -> tuple[SampledReply, ...]:
        """Those replies to the corrected request that state the result which all replies without hints state.

        None if that is a number of the request: replies with another result may contain it, too.
        """
        own = await self._asked(turn, [words])
        stated = shared(results(await self._untold(own[0]), words, elsewhere)) if own else None
        if stated is not None and has_digit(stated) and stated in words_in(words):
            return ()
        said = [(reply, await self.others.content.decoded(reply)) for reply in shown]
        return tuple(reply for reply, read in said if read is None or states(read.text, stated))

    async def _untold(self, asked: AskedRequest) -> list[str]:
        """The texts of several replies without hints; those that do not end are left out."""
        texts = []
        for draw in range(UNHINTED):
            said = await self.others.without_hints(replace(asked, seed=asked.seed + draw * DRAW_SEEDS))
            reply = None if said is None else await self.others.content.decoded(said)
            texts += [] if reply is None else [reply.text]
        return texts

    async def _asked(self, turn: Turn, texts: Sequence[str]) -> list[AskedRequest]:
        """The corrected request with these texts in place of its own."""
        at, found = last_user_index(turn.messages), []
        for seed, text in enumerate(texts if at is not None else ()):
            messages = [item.with_text(text) if index == at else item for index, item in enumerate(turn.messages)]
            bare = await self.others.prompt(turn, messages)
            if bare is not None:
                found.append(AskedRequest(turn, Request(tuple(messages)), bare, seed))
        return found

    async def _tried(self, asked: AskedRequest, hint: str, known: Sequence[PlacedHint]) -> _Trial | None:
        hints, hinted, said = await self.others.read(asked, hint, [one.text for one in known])
        anchored = await self.others.anchored(asked, hints)
        if hinted is None or said is None or anchored is None:
            return None
        is_contrary = await self.others.content.contradicts(hinted, anchored, said.tokens)
        is_lost = await self.others.is_lost(asked, hinted, said)
        return _Trial(asked, hints, hinted, said, anchored, is_contrary, is_lost)

    async def _agreeing(self, trial: _Trial, stated: str | None) -> OtherRequestReply | None:
        """A reply with the hint that contradicts none of several without it and states their result; None if not drawn.

        It must also show the hint: be likelier with it than without.
        """
        check = self.others.content
        again = [replace(trial.asked, seed=trial.asked.seed + draw * DRAW_SEEDS) for draw in range(1, UNHINTED)]
        drawn = await asyncio.gather(*(self.others.anchored(asked, trial.hints) for asked in again))
        anchors = list(dict.fromkeys([trial.anchored, *(prompt for prompt in drawn if prompt is not None)]))
        read, said = trial.hinted, trial.said if not trial.is_contrary else None
        for draw in range(DRAWS + 1):
            if said is not None and await self._shows(trial, said) and await self._states(said, stated):
                others = [prompt for prompt in anchors if prompt is not read]
                found = await asyncio.gather(*(check.contradicts(read, prompt, said.tokens) for prompt in others))
                if not any(found):
                    hint = HintPrompt(" ".join(trial.hints), read.tokens)
                    return OtherRequestReply(trial.asked.bare.tokens, hint, said)
            read = anchors[draw % len(anchors)]
            said = await check.second(trial.hinted, read, trial.asked.seed + draw * DRAW_SEEDS, trial.asked.longest)
        return None

    async def _shows(self, trial: _Trial, said: SampledReply) -> bool:
        bare, hinted = [
            await reply_logp(self.others.engine, prompt, said.tokens, BASE)
            for prompt in (trial.asked.bare, trial.hinted)
        ]
        return sum(hinted) - sum(bare) >= CONCERNS_NATS

    async def _states(self, said: SampledReply, stated: str | None) -> bool:
        reply = await self.others.content.decoded(said)
        return reply is not None and states(reply.text, stated)

    async def _held(self, asked: AskedRequest, hint: str) -> OtherRequestReply | None:
        """The base model's reply without hints, read without hints, too."""
        said = await self.others.without_hints(asked)
        return None if said is None else OtherRequestReply(asked.bare.tokens, HintPrompt(hint, asked.bare.tokens), said)


def _are_many(contrary: Sequence[bool]) -> bool:
    return sum(contrary) >= max(LEAST_CONTRARY, COSTLY * len(contrary))
