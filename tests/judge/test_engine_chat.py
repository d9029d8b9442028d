"""The served model as its own judge."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from openclaw_rl.core.adapter import Adapter
from openclaw_rl.core.completion import SampledToken, Scores, Span
from openclaw_rl.core.hint import Hint
from openclaw_rl.core.message import Json, Message, Role, Tool, message
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.sampling import Sampling
from openclaw_rl.core.turn import Turn
from openclaw_rl.core.version import BASE, PolicyVersion
from openclaw_rl.errors import EngineError, JudgeError, RequestError
from openclaw_rl.judge.local import EngineChat


@dataclass
class Letters:
    """An engine that says one text, and a renderer for which each letter is an id."""

    says: str
    problem: Exception | None = None
    asked: list[tuple[str, Sampling, PolicyVersion]] = field(default_factory=list)
    options: Mapping[str, Json] | None = None

    async def generate(self, prompt: Prompt, sampling: Sampling, version: PolicyVersion) -> AsyncIterator[SampledToken]:
        self.asked.append(("".join(map(chr, prompt.tokens)), sampling, version))
        for letter in self.says:
            yield SampledToken(ord(letter), -0.1, -0.1, version)
        if self.problem is not None:
            raise self.problem

    async def score(self, prompt: Prompt, *, start: int, version: PolicyVersion, top_k: int = 0) -> Scores:
        raise NotImplementedError

    async def load(self, adapter: Adapter) -> None:
        raise NotImplementedError

    async def unload(self, version: PolicyVersion) -> None:
        raise NotImplementedError

    def prompt(
        self, messages: Sequence[Message], tools: Sequence[Tool], served: Turn | None,
        *, options: Mapping[str, Json] | None = None,
    ) -> Prompt:  # fmt: skip
        assert served is None and not tools
        self.options = options
        return Prompt(tuple(ord(letter) for item in messages for letter in item.text))

    def hinted(self, turn: Turn, hint: Hint) -> Prompt:
        raise NotImplementedError

    def reread(self, turn: Turn, messages: Sequence[Message]) -> Prompt:
        raise NotImplementedError

    def decode(self, tokens: Sequence[int]) -> tuple[Message, tuple[Span, ...]]:
        return message(Role.ASSISTANT, "".join(map(chr, tokens)).removesuffix("$")), ()


async def test_the_base_model_is_asked_and_its_text_is_the_answer() -> None:
    letters = Letters("\\boxed{1}$")
    chat = EngineChat(letters, letters, stop_ids=(ord("$"),), options={"enable_thinking": False})
    asked = [message(Role.SYSTEM, "Judge."), message(Role.USER, "Hm?")]
    assert await chat.reply(asked, temperature=0.6, max_tokens=50, seed=3) == "\\boxed{1}"
    wanted = Sampling(max_tokens=50, temperature=0.6, seed=3, stop_ids=(ord("$"),))
    assert letters.asked == [("Judge.Hm?", wanted, BASE)]
    assert letters.options == {"enable_thinking": False}


@pytest.mark.parametrize("problem", [EngineError("the engine is gone"), RequestError("the queue is full", status=429)])
async def test_an_engine_that_cannot_answer_is_a_judge_that_is_away(problem: Exception) -> None:
    letters = Letters("half", problem)
    with pytest.raises(JudgeError, match="the local judge cannot answer"):
        await EngineChat(letters, letters, stop_ids=()).reply([message(Role.USER, "a")], temperature=0, max_tokens=5)
