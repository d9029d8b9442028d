"""A judge that knows what each user meant: an ablation that separates the judge's mistakes from those of learning.

It answers over the same API as any judge, with the score and hint that the harness gave it before each message.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web

_NEXT = re.compile(r"<<<next\n(.*)\nnext>>>", re.DOTALL)
MODEL = "scripted-judge"


@dataclass(slots=True)
class OracleJudge:
    """Scores and hints by message."""

    url: str = ""
    known: dict[str, tuple[int, str]] = field(default_factory=dict)

    def tell(self, said: str, score: int, hint: str) -> None:
        """Sets the score and hint of a message; an empty hint means none."""
        self.known[said] = (score, hint)

    def answer(self, prompt: str, *, wants_hint: bool) -> str:
        """The judge's reply; for unknown messages, that they mean nothing."""
        found = _NEXT.search(prompt)
        said = found[1] if found else ""
        role, _, words = said.partition(": ")
        score, hint = self.known.get(words, (0, ""))
        if role == "tool":
            score = -1 if words.startswith("Error") else 1
        if not wants_hint:
            return f"\\boxed{{{score}}}"
        return f"[HINT_START]\n{hint}\n[HINT_END]\n\\boxed{{1}}" if hint else "\\boxed{-1}"

    async def chat(self, request: web.Request) -> web.Response:
        """POST /v1/chat/completions."""
        body = await request.json()
        system, asked = (str(message["content"]) for message in body["messages"])
        text = self.answer(asked, wants_hint="[HINT_START]" in system)
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
        return web.json_response(
            {"id": "vote", "object": "chat.completion", "created": 0, "model": MODEL, "choices": [choice]}
        )

    async def models(self, request: web.Request) -> web.Response:
        """GET /v1/models."""
        return web.json_response({"object": "list", "data": [{"id": MODEL, "object": "model"}]})


@asynccontextmanager
async def scripted_judge() -> AsyncIterator[OracleJudge]:
    """A judge that listens on a free port of this machine while the context lasts."""
    judge = OracleJudge()
    app = web.Application()
    app.add_routes([web.post("/v1/chat/completions", judge.chat), web.get("/v1/models", judge.models)])
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        judge.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        yield judge
    finally:
        await runner.cleanup()
