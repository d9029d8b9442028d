"""The small agent of a simulated user: it asks the model, runs the tools it calls, and asks again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from openai.types.chat import (
    ChatCompletionAssistantMessageParam,
    ChatCompletionMessageFunctionToolCallParam,
    ChatCompletionMessageParam,
)

from openclaw_rl.core.message import ToolCall
from openclaw_rl.evals.client import Client, ClientReply
from openclaw_rl.evals.people.workspace import Workspace
from openclaw_rl.tiny import world

MOST_STEPS = 5  # requests for one answer
TOOLS = world.HOMEWORK_TOOLS


@dataclass(frozen=True, slots=True)
class AgentAnswer:
    """The agent's result: the model's replies; the user reads the last."""

    replies: tuple[ClientReply, ...]
    changed_files: bool = False
    failed_calls: int = 0

    @property
    def text(self) -> str:
        """The text that the user reads."""
        return self.replies[-1].text

    @property
    def reasoning(self) -> str:
        """The reasoning apart from the text."""
        return "\n".join(reply.reasoning for reply in self.replies if reply.reasoning)

    @property
    def is_finished(self) -> bool:
        """Whether the model finished by itself within the steps."""
        return not self.replies[-1].calls and self.replies[-1].finish == "stop"


@dataclass(frozen=True, slots=True)
class AskOptions:
    """An agent's user, session and sampling. Side requests are never learned from."""

    session: str
    user: str
    temperature: float
    max_tokens: int
    is_side: bool = False
    system: str = ""


async def answered(
    client: Client, messages: list[ChatCompletionMessageParam], place: Workspace, manner: AskOptions, *, seed: int
) -> AgentAnswer:
    """The model's answer to the messages, to which replies and tool results are appended."""
    place_before, failed = place.files(), place.failed
    replies: list[ClientReply] = []
    for step in range(MOST_STEPS):
        reply = await client.say(
            [*_system(manner.system), *messages],
            session=manner.session,
            user=manner.user,
            temperature=manner.temperature,
            max_tokens=manner.max_tokens,
            seed=seed * MOST_STEPS + step,
            is_side=manner.is_side,
            tools=TOOLS,
        )
        replies.append(reply)
        messages.append(_spoken(reply))
        if not reply.calls:
            break
        for call in reply.calls:
            messages.append({"role": "tool", "tool_call_id": call.id, "content": place.run(call)})
    return AgentAnswer(tuple(replies), place.files() != place_before, place.failed - failed)


def _system(text: str) -> Sequence[ChatCompletionMessageParam]:
    return [{"role": "system", "content": text}] if text else []


def _spoken(reply: ClientReply) -> ChatCompletionMessageParam:
    message: ChatCompletionAssistantMessageParam = {"role": "assistant", "content": reply.text}
    if reply.calls:
        message["tool_calls"] = [_call(call) for call in reply.calls]
    return message


def _call(call: ToolCall) -> ChatCompletionMessageFunctionToolCallParam:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
