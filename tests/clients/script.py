"""What is said on the stage: directions in, replies out, and the notes of who said what."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path

WORDS = json.loads((Path(__file__).parent / "words.json").read_text("utf-8"))
DONE = "That is all there is to say."
ERRAND_REPLY = "A short note about the talk"


@dataclass(slots=True)
class Exchange:
    """One request, and what became of it."""

    method: str
    path: str
    headers: dict[str, str]
    body: object
    status: int = 0
    is_answered: bool = False
    refusal: str | None = None
    errand: str | None = None
    replies: list[str] = field(default_factory=list)
    turns: list[str] = field(default_factory=list)
    prompt_tokens: int = 0
    taken: object = None  # the direction its reply came from

    def as_json(self) -> dict[str, object]:
        """All but the direction."""
        return {name: getattr(self, name) for name in self.__slots__ if name != "taken"}

    @property
    def text(self) -> str:
        """The whole body as text, for the rules of errands."""
        return json.dumps(self.body, ensure_ascii=False)


class Script:
    """Directions that wait, errands that are known, and all that happened, in order."""

    def __init__(self, client: str) -> None:
        self.exchanges: list[Exchange] = []
        self.events: list[dict[str, object]] = []
        self.notes: list[dict[str, object]] = []
        self.is_slow = False
        self.newest_kind = ""
        self._waiting: list[object] = []
        self._errands: list[dict[str, object]] = []
        start = int(hashlib.sha256(client.encode()).hexdigest(), 16)
        self._at = {kind: start % len(words) for kind, words in WORDS.items()}

    def note(self, exchange: Exchange) -> None:
        """A request has come."""
        exchange.errand = self._errand(exchange)
        self.events.append({"exchange": len(self.exchanges)})
        self.exchanges.append(exchange)

    def reply(self, exchange: Exchange) -> str:
        """What the model says to it, as the bundled model would write it."""
        if exchange.taken is None:
            rule = next((each for each in self._errands if each["kind"] == exchange.errand), None)
            waiting = self._waiting if rule is None else rule.get("replies") or []
            assert isinstance(waiting, list)
            default = DONE if rule is None else rule.get("reply") or ERRAND_REPLY
            exchange.taken = waiting.pop(0) if waiting else default
        text = written(exchange.taken)
        exchange.replies.append(text)
        return text

    def give_back(self, exchange: Exchange) -> None:
        """A request that was refused in the end has used no reply."""
        if exchange.taken is not None and exchange.errand is None:
            self._waiting.insert(0, exchange.taken)
        elif exchange.taken is None and exchange.errand is None:  # what it would have been answered
            exchange.replies = [written(self._waiting[0] if self._waiting else DONE)]

    def direct(self, what: str, said: dict[str, object]) -> dict[str, object]:
        """Carries out one direction."""
        if what == "talk":
            self._waiting = []
            self.is_slow = False
            self.events.append({"talk": said["name"]})
        elif what == "say":
            return self._say(said)
        elif what == "errands":
            self._errands = list(said["errands"])  # type: ignore[call-overload]
        elif what == "slow":
            self.is_slow = bool(said["is_slow"])
        elif what == "note":
            self.notes.append(said)
        elif what == "event":
            self.events.append(said)
        last = next((each for each in reversed(self.exchanges) if each.errand is None and each.prompt_tokens), None)
        running = sum(each.is_answered and not each.status for each in self.exchanges)
        return {
            "exchanges": len(self.exchanges),
            "prompt_tokens": last.prompt_tokens if last else 0,
            "running": running,
        }

    def _say(self, said: dict[str, object]) -> dict[str, object]:
        kind = str(said.get("kind") or "ask")
        typed = said.get("typed")
        if typed is None:
            typed = WORDS[kind][self._at[kind] % len(WORDS[kind])]
            self._at[kind] += 1
        typed = f"{typed}{said.get('more') or ''}"
        replies = said.get("replies")
        self._waiting = list(replies) if isinstance(replies, list) else []
        self.newest_kind = kind
        self.events.append({"typed": typed, "kind": kind})
        return {"typed": typed}

    def _errand(self, exchange: Exchange) -> str | None:
        for rule in self._errands:
            where = json.dumps(exchange.headers) if rule.get("where") == "headers" else exchange.text
            if rule.get("where") == "newest":
                where = json.dumps(newest(exchange.body), ensure_ascii=False)
            if rule.get("no_tools") and isinstance(exchange.body, dict) and exchange.body.get("tools"):
                continue
            if any(json.dumps(word, ensure_ascii=False)[1:-1] in where for word in rule["has"]):  # type: ignore[attr-defined]
                return str(rule["kind"])
        return None


def newest(body: object) -> list[object]:
    """What stands behind the last reply in a request's messages."""
    held = (body.get("messages") or body.get("input") or []) if isinstance(body, dict) else []
    if isinstance(held, str):
        return [held]
    at = len(held)
    while at and not _is_reply(held[at - 1]):
        at -= 1
    return list(held[at:])


def _is_reply(item: object) -> bool:
    if not isinstance(item, dict):
        return False
    return item.get("role") == "assistant" or item.get("type") in (
        "function_call",
        "custom_tool_call",
        "reasoning",
        "local_shell_call",
    )


def written(reply: object) -> str:
    """A reply as the bundled model writes it: words, thoughts, calls."""
    if isinstance(reply, str):
        return reply
    assert isinstance(reply, dict)
    text = f"<think>\n{reply['think']}\n</think>\n\n" if reply.get("think") else ""
    text += str(reply.get("text") or "")
    for name, arguments in reply.get("calls") or []:
        text += f"\n<tool_call>\n{json.dumps({'name': name, 'arguments': arguments}, ensure_ascii=False)}\n</tool_call>"
    return text.lstrip("\n") if not reply.get("text") else text
