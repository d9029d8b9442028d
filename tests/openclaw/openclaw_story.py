"""A conversation with the real client, and what the server made of it."""

from __future__ import annotations

import asyncio
import sys
import time
from dataclasses import dataclass, field

from openclaw_account import Account
from openclaw_gateway import STUDENT, Gateway

from openclaw_rl.core.message import Json

FILES = ("homework.txt", "answers.txt", "math.txt", "notes.txt", "homework/today.txt", "tasks.txt", "solution.txt")
PROBLEM = "Tom has 5 apples. He buys 3 bags with 4 apples each. How many apples does he have?"
OPENINGS = (
    "Read homework.txt and solve the problem in it.",
    "Please solve the problem in homework.txt.",
    "Open homework.txt and help me with the problem.",
    "My homework is in homework.txt. Can you solve it?",
)
CORRECTIONS = (
    "No headings please, just talk to me.",
    "Not like that. I want it in plain sentences, without headings.",
    "Do it again without bold text or numbered steps.",
)
FURTHER = (
    "Mia has 3 boxes with 4 pens each. How many pens does she have?",
    "Ben has 12 cards. He gives 5 cards away. How many cards does he have left?",
    "Lena buys 4 bags with 6 eggs each. How many eggs does she have?",
)
JUDGED_S = 180.0
VERSION_S = 600.0


@dataclass(slots=True)
class Story:
    """One run of the client against one server."""

    gateway: Gateway
    account: Account
    name: str
    seen: set[str] = field(default_factory=set)
    session: str = ""
    said: list[str] = field(default_factory=list)

    def tell(self, text: str) -> None:
        """Progress, for whoever waits."""
        print(f"[{self.name}] {text}", file=sys.stderr, flush=True)

    async def news(self) -> list[dict[str, Json]]:
        """Turns not seen before."""
        fresh = [row for row in await self.account.turns() if str(row["id"]) not in self.seen]
        self.seen |= {str(row["id"]) for row in fresh}
        return fresh

    async def say(self, agent: str, user: str, text: str) -> list[dict[str, Json]]:
        """A user speaks; the main turns this led to, which must all be of one session."""
        answer = await self.gateway.say(agent, user, text)
        main = [row for row in await self.news() if row["kind"] == "main"]
        assert main, f"{text!r} led to no main turn"
        assert len({row["session"] for row in main}) == 1, [row["why"] for row in main]
        self.tell(f"{user}: {text}  ->  {answer[:100]!r} ({len(main)} turns, {main[-1]['version']})")
        return main

    async def as_shipped(self) -> float:
        """Two words with an agent as OpenClaw ships it; the share of the second prompt that was not read anew."""
        first = await self.say("main", "visitor", "Hello, who are you?")
        second = await self.say("main", "visitor", "And what can you do for me?")
        assert {row["session"] for row in first} == {row["session"] for row in second}
        row = second[0]
        continued, prompt = row["continued_tokens"], row["prompt_tokens"]
        assert isinstance(continued, int) and isinstance(prompt, int)
        self.tell(f"a prompt of {prompt} tokens, {continued} of them continued")
        return continued / prompt

    async def errands(self) -> int:
        """The client's own requests: a single question, and a heartbeat. How many side turns they led to."""
        side = 0
        for words in (
            ("infer", "model", "run", "--gateway", "--model", "openclaw-rl/default", "--prompt", "Say hello."),
            ("system", "event", "--text", "Time to stretch.", "--mode", "now"),
        ):
            await self.gateway.run(*words)
            fresh = await self._until_news()
            kinds = [f"{row['kind']}: {row['why']}" for row in fresh]
            self.tell(f"openclaw {words[0]} {words[1]}  ->  {kinds}")
            assert fresh and all(row["kind"] == "side" for row in fresh), kinds
            side += len(fresh)
        return side

    async def homework(self) -> dict[str, Json]:
        """A problem from a file, by a tool call; gives the turn that called."""
        for number, words in enumerate(OPENINGS):
            user = f"{self.name}-{number}"
            main = await self.say(STUDENT, user, words)
            rows = [await self.account.turn(str(row["id"])) for row in main]
            caller = next((row for row in rows if _calls(row)), None)
            if caller is not None and not _calls(rows[-1]):
                self.session, self.said = str(caller["session"]), [user]
                return caller
        raise AssertionError("the model called no tool, however it was asked")

    async def correction(self) -> dict[str, Json]:
        """The user corrects until a turn is judged bad; gives that turn."""
        for words in CORRECTIONS:
            corrected = (await self.account.of_session(self.session))[-1]
            await self.go_on(words)
            row = await self.account.until(str(corrected["id"]), _is_judged, limit_s=JUDGED_S)
            self.tell(f"judged {_score(row)}: {row['state']} {row['reason'] or ''}")
            if _score(row) == -1:
                return row
        last = str((await self.account.of_session(self.session))[-1]["id"])
        await self.account.thumb_down(last, CORRECTIONS[0])
        return await self.account.until(last, _is_judged, limit_s=JUDGED_S)

    async def new_version(self) -> list[str]:
        """The user goes on talking until a new version answers; the versions that have answered, in order."""
        until = time.monotonic() + VERSION_S
        for number in range(200):
            versions = [str(row["version"]) for row in await self.account.of_session(self.session)]
            if versions[-1] != versions[0]:
                return versions
            assert time.monotonic() < until, f"no new version: {(await self.account.status())['story']}"
            await self.go_on(FURTHER[number % len(FURTHER)])
            await asyncio.sleep(3)
        raise AssertionError("no new version")

    async def go_on(self, text: str) -> None:
        """The user of the homework speaks again: the same session, and the last turn gets these words as next state."""
        before = (await self.account.of_session(self.session))[-1]
        main = await self.say(STUDENT, self.said[0], text)
        assert {row["session"] for row in main} == {self.session}
        if before["reason"] is None or before["state"] != "dropped":
            after = (await self.account.turn(str(before["id"])))["next_state"]
            assert isinstance(after, dict), f"{before['id']} has no next state after {text!r}"
            assert (after["source"], _texts(after)) == ("user", [text])

    async def _until_news(self) -> list[dict[str, Json]]:
        until = time.monotonic() + JUDGED_S
        while True:
            fresh = await self.news()
            if fresh or time.monotonic() > until:
                return fresh
            await asyncio.sleep(1)


def _is_judged(row: dict[str, Json]) -> bool:
    return row["verdict"] is not None or row["feedback"] is not None or row["state"] in ("dropped", "trained")


def _score(row: dict[str, Json]) -> Json:
    verdict, feedback = row["verdict"], row["feedback"]
    if isinstance(feedback, dict):
        return feedback["score"]
    return verdict["score"] if isinstance(verdict, dict) else None


def _calls(row: dict[str, Json]) -> bool:
    reply = row["reply"]
    return isinstance(reply, dict) and bool(reply.get("tool_calls"))


def _texts(after: dict[str, Json]) -> list[Json]:
    held = after["messages"]
    assert isinstance(held, list)
    return [item["content"] for item in held if isinstance(item, dict)]


def texts_of(row: dict[str, Json]) -> list[Json]:
    """What followed a turn, in words."""
    after = row["next_state"]
    assert isinstance(after, dict), f"{row['id']} has no next state"
    return _texts(after)
