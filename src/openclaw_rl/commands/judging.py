"""`openclaw-rl eval judge`: how well a judge judges."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from openclaw_rl.commands.common import run_in_order, say
from openclaw_rl.core.message import Json
from openclaw_rl.evals.judging.cases import Case, spread, taught_cases, written_cases
from openclaw_rl.evals.judging.measure import SAID, Judged, as_json, judged
from openclaw_rl.judge.endpoint import EndpointChat
from openclaw_rl.judge.llm import LlmJudge
from openclaw_rl.judge.settings import HintFrom, JudgeSettings

app = typer.Typer()
QUICK_CASES = 40


@app.command()
def judge(
    *,
    url: Annotated[
        str,
        typer.Option("--judge", help="The base URL of the judge's API, up to and with /v1. [default: bundled model]"),
    ] = "",
    name: Annotated[str, typer.Option("--judge-model", help="The model's name at that endpoint.")] = "",
    votes: Annotated[int, typer.Option("--votes", help="Votes for each case.", min=1)] = 3,
    at_once: Annotated[int, typer.Option("--at-once", help="Cases under way at the same time.", min=1)] = 4,
    out: Annotated[Path | None, typer.Option("--json", help="Write every case with its verdict to this file.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A few cases of each kind only.")] = False,
) -> None:
    """Try a judge on labelled cases: thanks, corrections, sarcasm, tool errors, injections, other languages and more.

    The key for an endpoint is read from OPENCLAW_RL_JUDGE_KEY. Without --judge the bundled model is served and judges:
    it was taught the toy world's cases alone, and the table says how it does on those and on the rest. Ends with one
    line of JSON.
    """
    cases = [*taught_cases(), *written_cases()]
    chosen = spread(cases, QUICK_CASES) if quick else cases
    results = run_in_order(_run(url, name, votes, at_once, chosen))
    if out is not None:
        out.write_text(json.dumps([_case_json(result) for result in results], indent=1, ensure_ascii=False), "utf-8")
    _show(results)
    conditions: dict[str, Json] = {
        "judge": url or "bundled",
        "model": name or "openclaw-rl-tiny",
        "votes": votes,
        "temperature": JudgeSettings().temperature,
        "cores": os.cpu_count(),
    }
    print(json.dumps({**as_json(results), "conditions": conditions}))


async def _run(url: str, name: str, votes: int, at_once: int, cases: Sequence[Case]) -> list[Judged]:
    key = os.environ.get("OPENCLAW_RL_JUDGE_KEY", "")
    settings = JudgeSettings(votes=votes, hint_source=HintFrom.FOLLOWUP, calls_in_flight=at_once * votes)
    async with AsyncExitStack() as stack:
        if not url:
            from openclaw_rl.evals.client import served_model
            from openclaw_rl.evals.server import serving

            home = stack.enter_context(tempfile.TemporaryDirectory(prefix="openclaw-rl-judge-"))
            server = await stack.enter_async_context(serving(Path(home), model="bundled", options=("--no-learn",)))
            url, key, name = server.base_url, server.key, await served_model(server.base_url, server.key)
        chat = await stack.enter_async_context(EndpointChat(url, name, key))
        bar = stack.enter_context(Progress(*Progress.get_default_columns(), console=say))
        shown = bar.add_task("judging", total=len(cases))
        done = await judged(LlmJudge(chat, settings), cases, at_once=at_once, on_case=lambda _: bar.advance(shown))
    return done


def _show(results: Sequence[Judged]) -> None:
    facts = as_json(results)
    by_kind = facts["by_kind"]
    assert isinstance(by_kind, dict)
    table = Table("kind", "cases", "right", *SAID.values(), title="what the judge said")
    for kind, found in by_kind.items():
        assert isinstance(found, dict)
        said = found["said"]
        assert isinstance(said, dict)
        counts = [str(said[name] or "") for name in SAID.values()]
        table.add_row(kind, str(found["cases"]), f"{found['accuracy']:.0%}", *counts)
    Console(stderr=True).print(table)


def _case_json(result: Judged) -> dict[str, Json]:
    case = result.case
    votes: list[Json] = [] if result.verdict is None else [vote.raw for vote in result.verdict.votes]
    return {
        "kind": case.kind,
        "role": case.role,
        "request": [item.as_json() for item in case.request],
        "reply": case.reply.as_json(),
        "next_state": [item.as_json() for item in case.next_state],
        "label": case.score,
        "score": result.score,
        "votes": votes,
    }
