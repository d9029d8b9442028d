"""What a user accepted after having corrected it: when it is an answer to what was asked first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
from carry_doubles import label_renderer

from openclaw_rl.core.completion import Completion, Finish, Scores
from openclaw_rl.core.hint import PlacedHint, with_hints
from openclaw_rl.core.message import Role, message
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.sample import HintPrompt, Sample
from openclaw_rl.core.turn import Turn
from openclaw_rl.core.version import BASE, PolicyVersion
from openclaw_rl.errors import EngineError
from openclaw_rl.teach.redone import Hindsight
from openclaw_rl.testing.turns import a_turn

ASKED = (message(Role.USER, "Thanks!"),)
TALK = (*ASKED, message(Role.ASSISTANT, "Bye."), message(Role.USER, "Begin with Okay!"))
SAID = (20, 21, 22)  # "Okay" "you are" "welcome"
FIRST = (25, 21, 22)  # what was corrected
HINT, OTHER = "Begin with Okay!", "Be brief."


def prompt_of(hint: str = "") -> Prompt:
    placed = [PlacedHint(0, "", hint)] if hint else []
    return label_renderer().prompt(with_hints(ASKED, placed), (), None)


TOLD = label_renderer().prompt(TALK, (), None)


@dataclass
class Reader:
    """The base model: nats of each token of SAID after the request, the conversation, and the request with a hint.

    `first` are those of what was corrected, after the request with the other hint.
    """

    bare: tuple[float, ...] = (-9.0, -0.1, -0.1)
    told: tuple[float, ...] = (-0.1, -0.1, -0.1)
    hinted: tuple[float, ...] = (-5.0, -0.1, -0.1)
    other: tuple[float, ...] = (-9.0, -0.1, -0.1)
    first: tuple[float, ...] = (-9.0, -0.1, -0.1)
    is_away: bool = False

    async def score(self, prompt: Prompt, *, start: int, version: PolicyVersion, top_k: int = 0) -> Scores:
        if self.is_away:
            raise EngineError("away")
        said = prompt.tokens[start:]
        assert version == BASE and said in {SAID, FIRST}
        known = {
            prompt_of().tokens: self.bare,
            TOLD.tokens: self.told,
            prompt_of(HINT).tokens: self.hinted,
            prompt_of(OTHER).tokens: self.other if said == SAID else self.first,
        }
        return Scores(start, known[prompt.tokens[:start]], ())


def served(name: str, messages: Sequence[object], prompt: Prompt, *, logp: float = -0.1) -> Turn:
    completion = Completion(SAID, (logp,) * 3, (logp,) * 3, BASE, Finish.STOP)
    return replace(a_turn(name, tuple(messages)), completion=completion, prompt=prompt)  # type: ignore[arg-type]


ACCEPTED = served("accepted", TALK, TOLD)
CORRECTED = replace(
    served("corrected", ASKED, prompt_of()),
    completion=Completion(FIRST, (-0.1,) * 3, (-0.1,) * 3, BASE, Finish.STOP),
)
RIDER = Sample(
    "accepted", "s", "u", TOLD.tokens, SAID, (-0.1,) * 3, (True,) * 3, BASE, score=0.0, is_promoted=True
)  # fmt: skip


async def redone(engine: Reader, *hints: str, accepted: Turn = ACCEPTED, known: Sequence[str] = ()) -> Sample | None:
    hindsight = Hindsight(engine, label_renderer())  # type: ignore[arg-type]
    placed = [PlacedHint(0, "", text) for text in known]
    return await hindsight.redone(accepted, CORRECTED, prompt_of(), hints, RIDER, known=placed)


async def test_an_accepted_reply_answers_what_was_asked_first_as_who_reads_the_correction_says_it() -> None:
    found = await redone(Reader(), OTHER, HINT)
    assert found is not None
    assert (found.prompt, found.response) == (prompt_of().tokens, SAID)
    assert found.hints == (HintPrompt(HINT, TOLD.tokens),)  # what the teacher reads is the conversation
    assert (found.is_taught, found.is_promoted, found.score, found.turn) == (True, False, None, "accepted")


@pytest.mark.parametrize(
    "engine",
    [
        Reader(hinted=(-7.5, -0.1, -0.1)),  # the hint makes little difference
        Reader(bare=(-9.0, -9.0, -0.1), hinted=(-1.0, -9.0, -0.1)),  # an apology beside it, which no hint asks for
        Reader(bare=(-3.0, -0.1, -0.1), hinted=(-0.5, -0.1, -0.1)),  # nothing in it was brought by the conversation
        Reader(told=(-1.0, -0.1, -0.1)),  # the base model would hardly have said it
        Reader(is_away=True),
    ],
)
async def test_but_not_what_only_the_conversation_explains(engine: Reader) -> None:
    assert await redone(engine, HINT) is None


async def test_nor_without_a_hint_or_of_what_was_seen() -> None:
    assert await redone(Reader()) is None
    seen = replace(ACCEPTED, prompt=replace(TOLD, images=("a",)))
    assert await redone(Reader(), HINT, accepted=seen) is None


async def test_a_reply_that_gives_up_an_earlier_wish_which_the_corrected_one_followed_is_none() -> None:
    """As an answer to the request it would teach the weights to forget that wish."""
    held, kept, never = (
        Reader(first=(-5.0, -0.1, -0.1)),
        Reader(first=(-5.0, -0.1, -0.1), other=(-5.0, -0.1, -0.1)),
        Reader(),
    )
    assert await redone(held, HINT, known=[OTHER]) is None
    assert await redone(kept, HINT, known=[OTHER]) is not None
    assert await redone(never, HINT, known=[OTHER]) is not None
