"""A base model whose replies depend on the hints it reads, and other requests that are put to it."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field

from openclaw_rl.core.adapter import Adapter
from openclaw_rl.core.completion import Finish, SampledToken, Scores, Span
from openclaw_rl.core.hint import LABEL, Hint
from openclaw_rl.core.message import Json, Message, Role, Tool, message
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.sampling import Sampling
from openclaw_rl.core.turn import Turn
from openclaw_rl.core.version import BASE, PolicyVersion
from openclaw_rl.errors import EngineError
from openclaw_rl.teach.elsewhere import OtherReplies
from openclaw_rl.teach.made_up import REQUEST_AMONG, REQUEST_WARMTH, MadeUpRequests, Opening
from openclaw_rl.teach.other_requests import OtherRequests
from openclaw_rl.teach.settings import TeachSettings

END, OPENING = 2, tuple(b"user: ")
PLAIN, KIND, SHORT = "Write plainly.", "Be kind.", "Be short."


def ids_of(said: str) -> tuple[int, ...]:
    return tuple(said.encode())


class Bytes:
    """A prompt is the bytes of its messages' texts."""

    def prompt(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool],
        served: Turn | None,
        *,
        options: Mapping[str, Json] | None = None,
    ) -> Prompt:
        return Prompt(ids_of("\n".join(item.text for item in messages)))

    def hinted(self, turn: Turn, hint: Hint) -> Prompt:
        raise NotImplementedError

    def reread(self, turn: Turn, messages: Sequence[Message]) -> Prompt:
        return self.prompt(messages, (), None)

    def decode(self, tokens: Sequence[int]) -> tuple[Message, tuple[Span, ...]]:
        return message(Role.ASSISTANT, text(tokens[:-1])), ()


def text(ids: Sequence[int]) -> str:
    return bytes(ids).decode()


@dataclass
class Base:
    """Answers "ok", "plain" or "kind" by the hints it reads, and makes up `invented` requests, one for each seed.

    `surprise` is what each token of a user's words costs it, in nats; words that hold `not_surprised` cost little. Told
    a hint after its own reply it says `again`, if anything; a token that it does not say has `unlikely` nats. Told
    several hints it follows `only` one, if that is among them, and says "kind", but "plain" with seeds from `late` on.
    It says "kinin" to hints in an order of `both`; each token of a reply to `unsure` words has -0.2 nats.
    """

    invented: tuple[str, ...] = ()
    surprise: float = 1.0
    not_surprised: str = "\0"
    endless: str = "\0"
    is_away: bool = False
    again: str = ""
    unlikely: float = -3.0
    only: str = ""
    late: int = 1_000_000
    both: tuple[str, ...] = ()
    unsure: str = "\0"
    opened: int = 0
    drawn: list[tuple[float, int | None]] = field(default_factory=list)  # temperature and seed of each reply to a hint

    def says(self, read: str, seed: int | None = None) -> str:
        told = read.partition(LABEL)[2]
        if any(order in told for order in self.both):
            return "kinin"
        if self.only and self.only in told:
            return "kind"
        if self.again and read.endswith(f"\n{PLAIN}"):
            return self.again
        return "plain" if PLAIN in told else "kind" if KIND in told else "sh" if SHORT in told else "ok"

    async def generate(self, prompt: Prompt, sampling: Sampling, version: PolicyVersion) -> AsyncIterator[SampledToken]:
        if self.is_away:
            raise EngineError("away")
        if prompt.tokens == OPENING:
            assert version == BASE and sampling.seed is not None
            assert (sampling.temperature, sampling.top_k) == (REQUEST_WARMTH, REQUEST_AMONG)
            self.opened += 1
            ids = (*ids_of(self.invented[sampling.seed % len(self.invented)]), END)
        else:
            read = text(prompt.tokens)
            if LABEL in read:
                self.drawn.append((sampling.temperature, sampling.seed))
            is_late = PLAIN in read and sampling.seed is not None and sampling.seed >= self.late
            said = ids_of("plain" if is_late else self.says(read, sampling.seed))
            ids = (said * 9)[: sampling.max_tokens] if self.endless in read else (*said, END)
        for index, token in enumerate(ids):
            yield SampledToken(token, -0.1, -0.1, version, finish=Finish.STOP if index + 1 == len(ids) else None)

    async def score(self, prompt: Prompt, *, start: int, version: PolicyVersion, top_k: int = 0) -> Scores:
        read, said = prompt.tokens[:start], prompt.tokens[start:]
        if read == OPENING:
            is_known = self.not_surprised in text(said)
            return Scores(start, (-0.1 if is_known else -self.surprise,) * len(said), ())
        likely, own = (*ids_of(self.says(text(read))), END), -0.2 if self.unsure in text(read) else -0.1
        logp = tuple(own if likely[at : at + 1] == (t,) else self.unlikely for at, t in enumerate(said))
        return Scores(start, logp, tuple(((token, nats),) for token, nats in zip(said, logp, strict=True)))

    async def load(self, adapter: Adapter) -> None:
        raise NotImplementedError

    async def unload(self, version: PolicyVersion) -> None:
        raise NotImplementedError


@dataclass
class Sums(Base):
    """Adds the numbers of a request. Given the hint after its own reply it states the sum only if `is_whole`.

    Given the hint with the request it states none, or the sum of all but the first `lost` requests. It is sure of what
    it says, but for a reply with the hint unless it `is_sure` of that, too.
    """

    is_whole: bool = True
    is_sure: bool = False
    lost: int | None = None
    told: list[str] = field(default_factory=list)

    def says(self, read: str, seed: int | None = None) -> str:
        request = read.partition("?")[0]
        added = sum(int(one) for one in re.findall(r"\d+", request))
        if LABEL not in read and read.endswith(f"\n{PLAIN}"):
            return f"plan {added}" if self.is_whole else "plan"
        if PLAIN not in read:
            return f"ok {added}"
        if request not in self.told:
            self.told.append(request)
        is_lost = self.lost is None or self.told.index(request) < self.lost
        return super().says(read, seed) if is_lost else f"plain {added}"

    async def score(self, prompt: Prompt, *, start: int, version: PolicyVersion, top_k: int = 0) -> Scores:
        found = await super().score(prompt, start=start, version=version, top_k=top_k)
        read, size = text(prompt.tokens[:start]), len(prompt) - start
        untold = read.partition(LABEL)[0].strip() if LABEL in read and not self.is_sure else read
        sure, unsure = [[*ids_of(self.says(each)), *[END] * size] for each in (read, untold)]
        tops = tuple(
            ((one, 0.0), (other, -2.5))[: 1 + (one != other)] for one, other in zip(sure, unsure, strict=False)
        )
        return Scores(found.start, found.logp, tops[:size])


def others(
    engine: Base,
    *earlier: Turn,
    most: int = 3,
    answer: str = "",
    asked_in: Sequence[Turn] = (),
    checks: int = 0,
) -> OtherReplies:
    async def known(turn: Turn) -> Sequence[Turn]:
        return earlier

    async def wished(turn: Turn) -> Sequence[Turn]:
        return asked_in

    async def answered(turn: Turn) -> Sequence[Message]:
        return [message(Role.USER, answer)] if answer else ()

    def opens(before: Sequence[Message], tools: Sequence[Tool], options: Mapping[str, Json] | None) -> Opening | None:
        return Opening(OPENING, END, text, ids_of) if engine.invented else None

    settings = TeachSettings(other_requests=most, checks=checks, probe_tokens=12)
    made_up = MadeUpRequests(engine, (END,), opens)
    requests = OtherRequests(Bytes(), settings, known, wished, answered, made_up)
    return OtherReplies(engine, Bytes(), (END,), settings, requests)
