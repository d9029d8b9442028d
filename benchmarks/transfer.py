"""Does learning hold elsewhere: made models and the bundled one, users with words of their own, default settings.

Every model x its users x seeds, each a fresh server on a fresh folder, driven over HTTP until three sessions in a row
need no correction. Results are kept in build/transfer under a digest of the product, so a run that was stopped goes
on. Progress goes to standard error; the last line is one line of JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import tempfile
import time
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks.common import end_servers_on_term, finish, is_quick, progress
from benchmarks.transfer_figures import figures
from benchmarks.transfer_users import BUNDLED, FIRST, MODELS, PEOPLE, Visitor, users_of
from openclaw_rl.evals.client import Client, served_model
from openclaw_rl.evals.learning import AFTER, CONVERGED, Event, LearningRun, RunSettings, measure
from openclaw_rl.evals.records import Measurement, SessionRecord
from openclaw_rl.evals.scripted_judge import MODEL as SCRIPTED_MODEL
from openclaw_rl.evals.scripted_judge import scripted_judge
from openclaw_rl.evals.server import serving
from openclaw_rl.tiny.cli import building
from openclaw_rl.tiny.worlds import make, world

SCRIPTED = "scripted"
KEPT = Path("build/transfer")
SETTLE_S = 300.0  # so that a busy machine changes no figure: a session waits until the server has learned what it can
TOLD, NEVER_TOLD, NEVER_BEFORE, NEVER_AFTER = "told", "never told", "never before", "never after"


@dataclass(frozen=True, slots=True)
class Cast:
    """Who judges, and whose words the users say."""

    judge: str
    people: str


@dataclass(frozen=True, slots=True)
class Moment:
    """Shares of first replies to unseen problems, and how long they are."""

    wish: float
    right: float
    chars: float
    odd: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """One model, one user, one seed. `converged_at` is the third session in a row without a correction, or None."""

    model: str
    user: str
    seed: int
    is_about_length: bool
    converged_at: int | None
    sessions: int
    corrections: int
    versions: int
    requests_refused: int
    versions_refused: int
    unsettled: int
    seconds: float
    moments: dict[str, Moment]
    heard: list[dict[str, object]] = field(default_factory=list)  # what was said, and what the judge made of it
    examples: list[dict[str, str]] = field(default_factory=list)


def kept(name: str) -> Outcome | None:
    """What an earlier run came to, where there was one."""
    path = KEPT / f"{name}.json"
    if not path.is_file():
        return None
    held = json.loads(path.read_text("utf-8"))
    return Outcome(**{**held, "moments": {label: Moment(**moment) for label, moment in held["moments"].items()}})


async def tried(user: Visitor, model: str, settings: RunSettings, *, base_url: str, key: str) -> Outcome:
    """One user with a server: measured, taught, measured again."""
    began = time.monotonic()

    def show(event: Event) -> None:
        if isinstance(event, SessionRecord):
            marks = "".join("+" if turn.check.is_met else "-" for turn in event.turns)
            hints = sum(bool(turn.news and turn.news.hints) for turn in event.turns)
            version = event.turns[0].reply.version
            progress(f"  session {event.number} {version} {marks} hints={hints} {event.seconds:.1f} s")
        elif isinstance(event, Measurement):
            progress(f"  {event.label}: wish {event.wish}, right {event.right}, {event.mean_chars:.0f} characters")

    async with Client(base_url, key, await served_model(base_url, key)) as client:
        told = await measure(client, user.told(), settings, label=TOLD, on_event=show)
        never_told = await measure(client, user.elsewhere().told(), settings, label=NEVER_TOLD, on_event=show)
        before = await measure(client, user.elsewhere(), settings, label=NEVER_BEFORE, on_event=show)
        run = LearningRun(client, user, settings, seed=user.seed, on_event=show)
        await run.run()
        after = await measure(client, user.elsewhere(), settings, label=NEVER_AFTER, on_event=show)
        for item in (told, never_told, before, after):
            show(item)
        report = await run.report()
        refused = [version for version in await client.versions() if version["status"] == "refused"]
    found = [told, never_told, before, after, *(item for item in report.measurements if item.label != CONVERGED)]
    last = report.measured(AFTER)
    return Outcome(
        model=model,
        user=user.name,
        seed=user.seed,
        is_about_length=user.is_about_length,
        converged_at=report.converged_at,
        sessions=len(report.sessions),
        corrections=report.corrections,
        versions=report.versions,
        requests_refused=report.refused,
        versions_refused=len(refused),
        unsettled=sum(not session.is_settled for session in report.sessions),
        seconds=round(time.monotonic() - began, 1),
        moments={item.label: _moment(item) for item in found},
        heard=[_heard(session) for session in report.sessions],
        examples=[{"asked": item.question, "reply": item.reply} for item in (last.examples[:3] if last else ())],
    )


def _moment(item: Measurement) -> Moment:
    return Moment(item.wish.value, item.right.value, round(item.mean_chars, 1), item.degenerate)


def _heard(session: SessionRecord) -> dict[str, object]:
    turns = [
        {
            "reply": turn.reply.text,
            "met": turn.check.is_met,
            "right": turn.check.right,
            "said": turn.said,
            "score": turn.news.score if turn.news else None,
            "hints": list(turn.news.hints) if turn.news else [],
            "version": turn.reply.version,
        }
        for turn in session.turns
    ]
    return {"number": session.number, "turns": turns}


async def one(model: str, folder: str, user_name: str, seed: int, *, settings: RunSettings, cast: Cast) -> Outcome:
    """One run, server and judge and all. Nothing is set but the model and the judge."""
    async with AsyncExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="openclaw-rl-transfer-")))
        config: Path | None = home / "judge.toml"
        visitors = users_of(model, seed, people=cast.people)
        if cast.judge == SCRIPTED:
            scripted = await stack.enter_async_context(scripted_judge())
            visitors = users_of(model, seed, scripted.tell, cast.people)
            _write(home / "judge.toml", f'[judge]\nurl = "{scripted.url}"\nmodel = "{SCRIPTED_MODEL}"\n')
        elif cast.judge == model:
            config = None  # a model judges itself where nothing is set
        else:
            _write(home / "judge.toml", f'[judge]\nmodel = "{cast.judge}"\n')
        user = next(visitor for visitor in visitors if visitor.name == user_name)
        server = await stack.enter_async_context(serving(home, model=folder, config=config))
        return await tried(user, model, settings, base_url=server.base_url, key=server.key)


def product_digest() -> str:
    """What tells this state of the product from any other, the bundled model included: results are not mixed."""
    import openclaw_rl

    root = Path(openclaw_rl.__file__).parent
    digest = hashlib.blake2b(digest_size=4)
    for path in sorted(root.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            digest.update(str(path.relative_to(root)).encode() + path.read_bytes())
    return digest.hexdigest()


def _write(path: Path, text: str) -> None:
    path.write_text(text, "utf-8")


def folder_of(model: str) -> str:
    """Where a model is; made first where it is missing."""
    if model == BUNDLED:
        return BUNDLED
    made = world(model)
    folder = make.place(made)
    if not make.is_made(folder):
        with building(model) as report:
            make.make(made, folder, on_step=report)
    return str(folder)


def runs(models: list[str], users: list[str], seeds: list[int], settings: RunSettings, cast: Cast) -> list[Outcome]:
    """All runs, model by model, those of before taken over."""
    KEPT.mkdir(parents=True, exist_ok=True)
    wanted = [
        (model, user.name, seed)
        for model in models
        for user in users_of(model, 0)
        if not users or user.name in users
        for seed in seeds
    ]
    found: list[Outcome] = []
    product = product_digest()
    for number, (model, name, seed) in enumerate(wanted, 1):
        folder = folder_of(model)
        key = f"{product}-{cast.judge}-{Path(folder).name}-{name}-{seed}-{settings.sessions}x{settings.problems}"
        key += "" if cast.people == FIRST else f"-{cast.people}"
        outcome = kept(key)
        if outcome is None:
            progress(f"[{number}/{len(wanted)}] {model}, {name}, seed {seed}")
            outcome = asyncio.run(one(model, folder, name, seed, settings=settings, cast=cast))
            _write(KEPT / f"{key}.json", json.dumps(asdict(outcome), indent=1, ensure_ascii=False) + "\n")
        progress(f"[{number}/{len(wanted)}] {model}, {name}, seed {seed}: converged at {outcome.converged_at}")
        found.append(outcome)
    return found


def main() -> None:
    """Runs what is asked for and is not there yet."""
    end_servers_on_term()
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--models", nargs="*", default=[BUNDLED, "kitchen"] if is_quick() else list(MODELS))
    options.add_argument("--users", nargs="*", default=[], help="Only users of these names; all by default.")
    options.add_argument("--seeds", type=int, nargs="*", default=[0] if is_quick() else list(range(5)))
    options.add_argument("--sessions", type=int, default=10)
    options.add_argument("--problems", type=int, default=40 if is_quick() else 100)
    options.add_argument("--judge", default=BUNDLED, help="`scripted`, or a model that judges.")
    options.add_argument("--people", default=FIRST, choices=list(PEOPLE), help="Whose words the users say.")
    given = options.parse_args()
    settings = RunSettings(sessions=given.sessions, problems=given.problems, stop_after=0, settle_s=SETTLE_S)
    found = runs(given.models, given.users, given.seeds, settings, Cast(given.judge, given.people))
    finish(figures(found, judge=given.judge, settings=settings))


if __name__ == "__main__":
    main()
