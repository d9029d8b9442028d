"""Conversations through a client that rewrites like OpenClaw does: what is said, and what comes back changed."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from openclaw_rl.core.message import Message, Role, TextPart, Tool, ToolCall, message
from openclaw_rl.core.turn import Turn
from openclaw_rl.testing.families import StandIn
from openclaw_rl.testing.rewriting import Rewriting, served_form
from openclaw_rl.testing.writing import arguments

REQUESTS = 7
TOOLS = (
    Tool("read", "Reads a file.", {"type": "object", "properties": {"path": {"type": "string"}}}),
    Tool("write", "Writes.", {"properties": {"path": {"type": "string"}, "lines": {"type": "number"}}}),
)
SAYINGS = (
    "Anna has 12 apples and buys 7 more.\n\n  How many?  ",
    "Bitte kürzer\t und ohne Überschriften, danke schön.\r\nJa?",
    "もう一度、日本語で説明してください。",
    "Спасибо!\u00a0А если 15?",
    "🙂👩‍👩‍👧 naïve cafe\u0301 \u2028 \u200f עברית",
    'What do <tool_call> and [INST] mean? { "name": "read" }',
    "Please read homework.txt and write the answer into it.",
)
REPLIES = (
    "Sure.  \n\nIt is 19.\n ", "Gern 🙂 — kürzer geht kaum.", "はい、\n\n\n12です。 ", "a < b, { c: [1, 2] }\t\n| x |",
    "**No**\n- one \n- two\n\n", "Да.",
)  # fmt: skip
THOUGHTS = ("They ask for  apples.\n\nSo 19.", "read first 🙂", "むずかしい")
RESULTS = ("Problem 1: 5 + 8 = ?", "ok, 42 bytes\n", '{"error": "Файл не найден"}', " 空のファイル ")
PATHS = ("homework.txt", "日本/メモ.txt", 'a "b"\\c.txt', "line\nbreak")
INSERT = "<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>\nKeep this in mind for the next step.\n<<<END>>>"
ONE_CALL = ("llama3", "gpt_oss")  # their templates take no more in one message


@dataclass(slots=True)
class Talk:
    """One conversation. `is_quiet` clients change replies alone; others the system text too, and insert blocks."""

    model: StandIn
    client: Rewriting
    is_quiet: bool
    seed: int
    history: list[Message] = field(default_factory=list)
    places: dict[int, Turn] = field(default_factory=dict)  # by place in the history
    asked: int = 0
    is_changed: bool = False  # whether anything in front of the last reply is not as it was
    random: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.random = random.Random(f"{self.model.name}/{self.client}/{self.is_quiet}/{self.seed}")

    def request(self) -> list[Message] | None:
        """The next request's messages; None once the conversation is over."""
        if self.asked == REQUESTS:
            return None
        if not self.history or self.history[-1].role is Role.ASSISTANT:
            self.history.append(
                message(Role.USER, f"[Sat 2026-11-21 08:0{self.asked} UTC] {self.random.choice(SAYINGS)}")
            )
        self.is_changed = not self.is_quiet and bool(self.asked)
        self.asked += 1
        inserted = [] if self.is_quiet else [message(Role.USER, INSERT)]
        return [self._system(), *self.history, *inserted]

    def intent(self) -> Message | None:
        """What the model means to say now; None where it is to say whatever it samples."""
        kind = self.random.random()
        if kind < 0.25:
            return None
        thought = self.random.choice(THOUGHTS) if self.model.has_thinking and self.random.random() < 0.4 else None
        if kind < 0.6:
            return Message(Role.ASSISTANT, (TextPart(self.random.choice(REPLIES)),), thought)
        most = 1 if self.model.name in ONE_CALL else 3
        calls = tuple(
            ToolCall("", self.random.choice(TOOLS).name, arguments(path=self.random.choice(PATHS), lines=2.0))
            for _ in range(self.random.randint(1, most))
        )
        has_words = self.random.random() < 0.3 and self.model.name not in ONE_CALL
        return Message(Role.ASSISTANT, (TextPart("Let me see:"),) if has_words else (), thought, calls)

    def answer(self, turn: Turn) -> None:
        """Keeps the reply in the client's way, and runs its calls."""
        self.places[len(self.history)] = turn
        self.history.append(self.client.reply(turn.reply))
        self.history += [
            Message(Role.TOOL, (TextPart(self.random.choice(RESULTS)),), tool_call_id=call.id)
            for call in self.history[-1].tool_calls
        ]

    def replies(self) -> dict[int, Turn]:
        """The turns by their replies' place in a request."""
        return {place + 1: turn for place, turn in self.places.items()}

    def as_served(self, messages: Sequence[Message], places: Collection[int]) -> list[Message]:
        """A request's messages, the replies at these places as they were served and all others as they were sent."""
        return served_form(messages, {place: turn.reply for place, turn in self.replies().items() if place in places})

    def _system(self) -> Message:
        """A long text of which, for most clients, a part changes."""
        told = " ".join(f"Rule {index}: keep files tidy and answers short, 正確に。" for index in range(24))
        changing = "" if self.is_quiet or self.asked < 2 else f"\nBOOTSTRAP.md is gone; step {self.asked // 2}."
        return message(Role.SYSTEM, f"{told}{changing}")
