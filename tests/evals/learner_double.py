"""A server with the real routes and a scripted mind: it follows a user's wish once it was corrected often enough."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random

from aiohttp import web
from aiohttp.test_utils import TestServer

from openclaw_rl.core.hint import LABEL
from openclaw_rl.evals.people.jobs import Job, Person
from openclaw_rl.evals.people.wishes import WishKind
from openclaw_rl.evals.personalization.probes import FIRST_HELD_OUT
from openclaw_rl.tiny import world

STYLE = {
    WishKind.SOLVE: world.Style.NATURAL,
    WishKind.GRADE: world.Style.DETAILED,
    WishKind.COMMENT: world.Style.FRIENDLY,
}


@dataclass
class Learner:
    """Follows each user's wish by weights after `needed` corrections, or at once where the system text holds a note.

    `tool` is what it calls when it is asked to append; `forgets` makes it wrong on everything once it has learned.
    """

    people: Sequence[Person]
    needed: int = 2
    tool: str = "append"
    forgets: bool = False
    obeys_notes: bool = False
    sessions: int = 40
    measured: int = 4
    base_url: str = ""
    corrections: dict[str, int] = field(default_factory=dict)
    requests: list[dict[str, object]] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    _jobs: dict[str, Job] = field(default_factory=dict)
    _rng: Random = field(default_factory=lambda: Random(0))

    def __post_init__(self) -> None:
        for person in self.people:
            asked = [person.job(number) for number in range(1, self.sessions + 1)]
            asked += [person.job(FIRST_HELD_OUT + number, held_out=True) for number in range(self.measured)]
            self._jobs |= {job.opening: job for job in asked}

    @property
    def version(self) -> int:
        return sum(count >= self.needed for count in self.corrections.values())

    def has_learned(self, job: Job) -> bool:
        return self.corrections.get(job.wish.name, 0) >= self.needed

    async def chat(self, request: web.Request) -> web.Response:
        body = await request.json()
        headers = request.headers
        self.requests.append({"kind": headers.get("X-Turn-Type", "main"), "user": headers.get("X-User-Id"), **body})
        message, finish = self._message(body["messages"], is_main=headers.get("X-Turn-Type") != "side")
        choice = {"index": 0, "finish_reason": finish, "message": {"role": "assistant", **message}}
        answer = {"id": "c", "object": "chat.completion", "created": 0, "model": "toy", "choices": [choice]}
        answer["usage"] = {"prompt_tokens": 7, "completion_tokens": 1, "total_tokens": 8}
        told = {"x-openclaw-rl-turn": f"t{len(self.requests)}", "x-openclaw-rl-version": f"shared.{self.version}"}
        return web.json_response(answer, headers=told)

    def _message(self, messages: list[dict[str, str]], *, is_main: bool) -> tuple[dict[str, object], str]:
        asked = messages[-1]["content"] or ""
        has_note = (self.obeys_notes and messages[0]["role"] == "system") or LABEL in asked
        said = [item["content"].partition(f"\n\n{LABEL}")[0] for item in messages if item["role"] == "user"]
        job, last = self._jobs[said[0]], messages[-1]
        if last["role"] == "tool":
            return {"content": "Done, the answer stands in the file."}, "stop"
        if job.path is not None and job.path in last["content"]:
            line = f"Answer: {job.problem.conclusion}."
            arguments = json.dumps({"path": job.path, "content": line})
            function = {"name": self.tool, "arguments": arguments}
            return {"content": "", "tool_calls": [{"id": "a", "type": "function", "function": function}]}, "tool_calls"
        is_again = len(said) > 1
        replies = [item["content"] or "" for item in messages if item["role"] == "assistant"]
        if is_again and is_main and any(job.wish.follows(reply) for reply in replies):
            return {"content": "You are welcome."}, "stop"
        if is_again and is_main:
            self.corrections[job.wish.name] = self.corrections.get(job.wish.name, 0) + 1
        follows = is_again or has_note or self.has_learned(job)
        text = self.written(job, STYLE[job.wish.kind] if follows else world.Style.AI)
        if self.forgets and self.has_learned(job):
            text = text.replace(job.problem.answer, "999")
        return {"content": text}, "stop"

    def written(self, job: Job, style: world.Style) -> str:
        """The right reply in the style."""
        if job.work is None:
            return world.solution(job.problem, style, self._rng)
        if job.wish.kind is WishKind.GRADE:
            return world.grading(job.work.attempt, style, self._rng)
        return world.comment(job.work.attempt, style, self._rng)

    async def done(self, request: web.Request) -> web.Response:
        self.ended.append(request.headers["X-Session-Id"])
        return web.json_response({})

    async def status(self, request: web.Request) -> web.Response:
        train = {"ready": 0, "rehearsals": 0, "needed": 1, "steps": sum(self.corrections.values())}
        publish = {"at_gate": 0, "published": self.version, "refused": 0}
        hints = {"in_use": 1, "retired": 2}
        return web.json_response(
            {"is_settled": True, "ledger": {"ready": 0}, "train": train, "publish": publish, "hints": hints}
        )

    async def turn(self, request: web.Request) -> web.Response:
        verdict = {"score": -1, "votes": [], "hints": [{"text": "Write it as the user wants it."}]}
        return web.json_response({"id": request.match_info["id"], "state": "trained", "verdict": verdict})

    async def versions(self, request: web.Request) -> web.Response:
        last = self.version
        rows = [{"version": f"shared.{at}", "status": "live", "is_current": at == last} for at in range(last + 1)]
        return web.json_response({"versions": rows})

    async def models(self, request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": "toy", "object": "model"}]})


@asynccontextmanager
async def learning(mind: Learner) -> AsyncIterator[Learner]:
    """The server, listening while the context lasts."""
    app = web.Application()
    app.add_routes(
        [
            web.get("/v1/models", mind.models),
            web.post("/v1/chat/completions", mind.chat),
            web.post("/v1/rl/session_done", mind.done),
            web.get("/v1/rl/status", mind.status),
            web.get("/v1/rl/turns/{id}", mind.turn),
            web.get("/v1/rl/versions", mind.versions),
        ]
    )
    async with TestServer(app) as server:
        mind.base_url = str(server.make_url("/v1"))
        yield mind
