"""`openclaw-rl eval judge`: how well a judge judges."""

from __future__ import annotations

import asyncio
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

from openclaw_rl.cli.common import Home, home_of, print_evaluation, run_in_order, say
from openclaw_rl.core.message import Json
from openclaw_rl.errors import ConfigError, JudgeError
from openclaw_rl.evals.judging.cases import JudgeCase, overruled_cases, spread, taught_cases, written_cases
from openclaw_rl.evals.judging.measure import SAID, JudgedCase, as_json, judged
from openclaw_rl.home.models import model_folder
from openclaw_rl.judge.classifier import ClassifierJudge
from openclaw_rl.judge.encoder import Encoder, has_classifier
from openclaw_rl.judge.llm import LlmJudge
from openclaw_rl.judge.partners import EndpointChat
from openclaw_rl.judge.settings import HintFrom, JudgeSettings

app = typer.Typer()
QUICK_CASES, QUICK_WORDINGS = 40, 130
KEY = "OPENCLAW_RL_JUDGE_KEY"

Url = Annotated[
    str,
    typer.Option("--judge", help="The base URL of the judge's API, up to and including /v1. [default: a served model]"),
]
Name = Annotated[
    str, typer.Option("--judge-model", help="The model's name at that endpoint. [default: the first it offers]")
]
Served = Annotated[
    str, typer.Option("--model", help="Without --judge, the model that is served: bundled, a folder, or a hub name.")
]
Votes = Annotated[int, typer.Option("--votes", help="Votes for each case.", min=1)]
AtOnce = Annotated[int, typer.Option("--at-once", help="Cases under way at the same time.", min=1)]
Out = Annotated[Path | None, typer.Option("--json", help="Write every case with its verdict to this file.")]
Quick = Annotated[bool, typer.Option("--quick", help="Use only a few cases of each kind.")]


@app.command()
def judge(
    *,
    url: Url = "",
    name: Name = "",
    model: Served = "bundled",
    votes: Votes = 3,
    at_once: AtOnce = 4,
    out: Out = None,
    quick: Quick = False,
    overruled: Annotated[
        bool, typer.Option("--overruled", help="The cases are the verdicts that were overruled in the home folder.")
    ] = False,
    home: Home = None,
) -> None:
    """Try a judge on labelled cases: thanks, corrections, sarcasm, tool errors, injections, other languages and more.

    The key for an endpoint is read from OPENCLAW_RL_JUDGE_KEY. Without --judge a model on this machine judges: with the
    classifier in its folder, as the bundled one does, or as a served language model. `taught` are the toy world's
    cases. With --overruled the cases are verdicts that the owner replaced. Ends with one line of JSON.
    """
    cases = _overruled(home) if overruled else [*taught_cases(), *written_cases()]
    chosen = spread(cases, QUICK_CASES) if quick else cases
    settings = JudgeSettings(votes=votes, hint_source=HintFrom.FOLLOWUP, calls_in_flight=at_once * votes)
    results = run_in_order(_run((url, name, model), settings, at_once, chosen))
    _write(out, results)
    _show(results)
    print_evaluation("judge", {**as_json(results), "conditions": _conditions(url, name, model, settings)})


def _overruled(home: Path | None) -> list[JudgeCase]:
    """The installation's own cases. Raises ConfigError if there is none."""
    from openclaw_rl.owner.inspection import overruled_of

    folder = home_of(home)
    found = overruled_cases(asyncio.run(overruled_of(folder)))
    if not found:
        raise ConfigError(
            f"no verdict was overruled in {folder} of a reply that somebody reacted to",
            fix="overrule some on the page at the server's address (docs/page.md)",
        )
    return found


@app.command()
def wordings(
    *,
    url: Url = "",
    name: Name = "",
    model: Served = "bundled",
    votes: Votes = 3,
    at_once: AtOnce = 8,
    out: Out = None,
    quick: Quick = False,
    words: Annotated[
        Path | None,
        typer.Option("--wordings", help="A file of other wordings, in the form of benchmarks/wordings_first.toml."),
    ] = None,
) -> None:
    """Try a judge on users' words: twelve wishes in ten tones and five languages, and words without a wish.

    A case is right if every hint that would be learned states the wish, and wrong if a hint says anything else.
    None of the wordings is among those that the bundled model was taught. The key for an endpoint is read from
    OPENCLAW_RL_JUDGE_KEY. Ends with one line of JSON.
    """
    from openclaw_rl.evals.judging import wordings as kept

    made = kept.utterances() if words is None else kept.utterances_in(words)
    step = max(1, len(made) // QUICK_WORDINGS) if quick else 1
    chosen = made[::step]
    settings = JudgeSettings(votes=votes, calls_in_flight=2 * at_once * votes)
    results = run_in_order(_run((url, name, model), settings, at_once, [said.case for said in chosen]))
    _write(out, results)
    figures = kept.as_json(chosen, results)
    for title in ("by_wish", "by_language", "by_tone"):
        _show_heard(title, figures[title])
    print_evaluation("wordings", {**figures, "conditions": _conditions(url, name, model, settings)})


async def _run(
    asked: tuple[str, str, str], settings: JudgeSettings, at_once: int, cases: Sequence[JudgeCase]
) -> list[JudgedCase]:
    """The verdicts of the judge at a URL, or of a model that is served for this."""
    url, name, model = asked
    key = os.environ.get(KEY, "")
    async with AsyncExitStack() as stack:
        bar = stack.enter_context(Progress(*Progress.get_default_columns(), console=say))
        shown = bar.add_task("judging", total=len(cases))
        by_folder = None if url else await asyncio.to_thread(_classifier, model, settings)
        if by_folder is not None:
            return await judged(by_folder, cases, at_once=at_once, on_case=lambda _: bar.advance(shown))
        if not url:
            from openclaw_rl.evals.server import serving

            home = stack.enter_context(tempfile.TemporaryDirectory(prefix="openclaw-rl-judge-"))
            server = await stack.enter_async_context(serving(Path(home), model=model, options=("--no-learn",)))
            url, key = server.base_url, server.key
        if not name:
            name = await _first_model(url, key)
        chat = await stack.enter_async_context(EndpointChat(url, name, key))
        return await judged(LlmJudge(chat, settings), cases, at_once=at_once, on_case=lambda _: bar.advance(shown))


def _classifier(model: str, settings: JudgeSettings) -> ClassifierJudge | None:
    """The judge of a model folder that brings a classifier. Raises ModelError."""
    folder = model_folder(model)
    return ClassifierJudge(Encoder.load(folder), settings) if has_classifier(folder) else None


async def _first_model(url: str, key: str) -> str:
    from openai import OpenAIError

    from openclaw_rl.evals.client import served_model

    try:
        return await served_model(url, key or "none")
    except (OpenAIError, IndexError) as problem:
        raise JudgeError(
            f"{url} does not say which models it has: {problem}",
            fix=f"check that it is running, put its key into {KEY}, or name a model with --judge-model",
        ) from problem


def _conditions(url: str, name: str, model: str, settings: JudgeSettings) -> dict[str, Json]:
    is_classifier = not url and has_classifier(model_folder(model))
    return {
        "judge": url or model,
        "model": "its classifier" if is_classifier else name or ("the first that is offered" if url else model),
        "votes": 1 if is_classifier else settings.votes,
        "temperature": None if is_classifier else settings.temperature,
        "cores": os.cpu_count(),
    }


def _write(out: Path | None, results: Sequence[JudgedCase]) -> None:
    if out is not None:
        out.write_text(json.dumps([_case_json(result) for result in results], indent=1, ensure_ascii=False), "utf-8")


def _show_heard(title: str, groups: Json) -> None:
    assert isinstance(groups, dict)
    table = Table(
        title.removeprefix("by_"), "cases", "right hint", "wrong hint", "nothing", title="what was recognised"
    )
    for group, found in groups.items():
        assert isinstance(found, dict)
        shares = (found["right_hint"], found["wrong_hint"], found["nothing"])
        table.add_row(group, str(found["cases"]), *("" if share is None else f"{share:.0%}" for share in shares))
    Console(stderr=True).print(table)


def _show(results: Sequence[JudgedCase]) -> None:
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


def _case_json(result: JudgedCase) -> dict[str, Json]:
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
        "hints": [] if result.verdict is None else [hint.text for hint in result.verdict.hints],
        "votes": votes,
    }
