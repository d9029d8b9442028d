"""A server with the real routes and a scripted mind: it writes as it is told to once it was corrected often enough."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random

from aiohttp import web
from aiohttp.test_utils import TestServer

from openclaw_rl.evals.learning import FIRST_HELD_OUT
from openclaw_rl.evals.people.users import Student
from openclaw_rl.tiny import world


@dataclass
class ScriptedServer:
    """Learns the natural style after `needed` corrections; refuses the first `refusals` requests."""

    problems: list[world.Problem]
    needed: int = 2
    refusals: int = 0
    obeys_corrections: bool = True
    base_url: str = ""
    corrections: int = 0
    ended: list[str] = field(default_factory=list)
    requests: list[tuple[str, str, list[dict[str, str]]]] = field(default_factory=list)  # session, kind, messages
    polls_until_settled: int = 0
    _rng: Random = field(default_factory=lambda: Random(0))

    def app(self) -> web.Application:
        app = web.Application()
        app.add_routes(
            [
                web.get("/v1/models", self._models),
                web.post("/v1/chat/completions", self._chat),
                web.post("/v1/rl/session_done", self._done),
                web.get("/v1/rl/status", self._status),
                web.get("/v1/rl/turns/{id}", self._turn),
                web.get("/v1/rl/versions", self._versions),
            ]
        )
        return app

    @property
    def version(self) -> int:
        return 1 if self.corrections >= self.needed else 0

    async def _models(self, request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": "toy", "object": "model"}]})

    async def _chat(self, request: web.Request) -> web.Response:
        if self.refusals:
            self.refusals -= 1
            return web.json_response({"error": {"message": "busy"}}, status=503)
        body = await request.json()
        kind = request.headers.get("X-Turn-Type", "main")
        messages = body["messages"]
        self.requests.append((request.headers["X-Session-Id"], kind, messages))
        told = [item["content"] for item in messages if item["role"] == "user"]
        # Answers here are always right, so a natural one is thanked for.
        is_thanks = len(told) > 1 and not world.has_markup(messages[-2]["content"])
        if len(told) > 1 and kind == "main" and not is_thanks:
            self.corrections += 1
        obeys = self.version or (self.obeys_corrections and len(told) > 1)
        style = world.Style.NATURAL if obeys else world.Style.AI
        reply = "You are welcome." if is_thanks else world.solution(self._asked(told[0]), style, self._rng)
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": reply}}
        answer = {"id": "c", "object": "chat.completion", "created": 0, "model": "toy", "choices": [choice]}
        headers = {"x-openclaw-rl-turn": f"t{len(self.requests)}", "x-openclaw-rl-version": f"shared.{self.version}"}
        return web.json_response(answer, headers=headers)

    async def _done(self, request: web.Request) -> web.Response:
        self.ended.append(request.headers["X-Session-Id"])
        return web.json_response({})

    async def _status(self, request: web.Request) -> web.Response:
        waiting = int(self.polls_until_settled > 0)
        self.polls_until_settled -= waiting
        train = {"ready": 0, "rehearsals": 0, "needed": 2}
        ledger = {"paired": waiting, "ready": 0}
        return web.json_response({"is_settled": True, "ledger": ledger, "train": train, "publish": {"at_gate": 0}})

    async def _turn(self, request: web.Request) -> web.Response:
        hints = [{"text": "Write it in plain sentences."}]
        votes = [{"asked": "score", "score": score} for score in (-1, -1, None)] + [{"asked": "hint", "score": 1}]
        verdict = {"score": -1, "votes": votes, "hints": hints}
        return web.json_response({"id": request.match_info["id"], "state": "trained", "verdict": verdict})

    async def _versions(self, request: web.Request) -> web.Response:
        rows = [{"version": f"shared.{number}", "status": "live"} for number in range(self.version + 1)]
        return web.json_response({"versions": rows})

    def _asked(self, words: str) -> world.Problem:
        """The problem behind an opening."""
        return next(item for item in self.problems if item.question in words)


@asynccontextmanager
async def running(script: ScriptedServer) -> AsyncIterator[ScriptedServer]:
    """The server, listening while the context lasts."""
    async with TestServer(script.app()) as server:
        script.base_url = str(server.make_url("/v1"))
        yield script


def problems_of(user: Student, *, sessions: int, measured: int) -> list[world.Problem]:
    """What this student will ask."""
    asked = [user.task(number) for number in range(1, sessions + 1)]
    held_out = [user.task(FIRST_HELD_OUT + number, held_out=True) for number in range(measured)]
    return [task.problem for task in (*asked, *held_out)]
