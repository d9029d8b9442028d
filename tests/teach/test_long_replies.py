"""Demonstrations where replies are longer than the settings say, and where the model's context has no room."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

import pytest
from elsewhere_double import PLAIN, Base, others, text
from reading_double import PLAIN as PLAINLY
from reading_double import Reader, assembling, base_serves, prompt_of, the_turn

from openclaw_rl.core.completion import Completion, Finish, SampledToken, Scores
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.sampling import Sampling
from openclaw_rl.core.turn import Turn
from openclaw_rl.core.version import BASE, PolicyVersion
from openclaw_rl.errors import BeyondContextError, RequestError
from openclaw_rl.teach.demonstrate import Demonstrator
from openclaw_rl.teach.settings import TeachSettings
from openclaw_rl.testing.turns import a_turn

WORDY = "plain " * 5  # longer than the 12 tokens that the doubles' settings allow


@dataclass
class Wordy(Base):
    """Replies in many words, and scores no text of more than `room` tokens."""

    room: int = 10_000

    def says(self, read: str, seed: int | None = None) -> str:
        return WORDY

    async def generate(self, prompt: Prompt, sampling: Sampling, version: PolicyVersion) -> AsyncIterator[SampledToken]:
        left = sampling.max_tokens
        async for item in super().generate(prompt, sampling, version):
            if left > 0:
                yield item
            left -= 1

    async def score(self, prompt: Prompt, *, start: int, version: PolicyVersion, top_k: int = 0) -> Scores:
        if len(prompt) > self.room:
            raise RequestError("too many tokens to score", code="context_length_exceeded")
        return await super().score(prompt, start=start, version=version, top_k=top_k)


def replied(turn: Turn, length: int) -> Turn:
    said = (7,) * length
    return replace(turn, completion=Completion(said, (-0.1,) * length, (-0.1,) * length, BASE, Finish.STOP))


@pytest.mark.parametrize(("corrected", "earlier", "shown"), [(3, 3, 0), (20, 3, 2), (3, 20, 2)])
async def test_replies_elsewhere_may_be_as_long_as_this_users_replies_are(
    corrected: int, earlier: int, shown: int
) -> None:
    """Real models write 300 tokens and more: no reply to another request was shown with the 256 of the settings."""
    mine = replied(a_turn("earlier", "What is 3 + 3?"), earlier)
    found = await others(Wordy(), mine, most=2).shown(replied(a_turn("t"), corrected), PLAIN, ())
    assert len([one for one in found if "\n" not in text(one.prompt)]) == shown
    assert all(text(one.reply.tokens[:-1]) == WORDY for one in found)


async def test_a_request_for_which_the_context_has_no_room_is_left_out_alone() -> None:
    long = replied(a_turn("earlier", f"What is {'3 + ' * 60} 3?"), 20)
    found = await others(Wordy(room=200), long, most=2).shown(replied(a_turn("t"), 20), PLAIN, ())
    assert found and not [one for one in found if one.turn == "earlier"]


async def test_a_corrected_turn_whose_hint_has_no_room_is_not_learned_from_without_it() -> None:
    class Full(Reader):
        async def score(self, prompt: Prompt, *, start: int, version: PolicyVersion, top_k: int = 0) -> Scores:
            raise RequestError("too many tokens to score", code="context_length_exceeded")

    engine = Full({})
    guide = Demonstrator(engine, base_serves, None, (2,), TeachSettings())  # type: ignore[arg-type]
    with pytest.raises(BeyondContextError):
        await guide.demonstrated(the_turn(), prompt_of(()), [], assembling(PLAINLY))
