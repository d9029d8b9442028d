"""A run as JSON for programs and as one HTML page for people; the page needs nothing beside it."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from html import escape
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files

from openclaw_rl.core.message import Json
from openclaw_rl.evals import plots
from openclaw_rl.evals.learning import BEFORE
from openclaw_rl.evals.records import LearningReport, Measurement, Share, TurnRecord

LIBRARIES = ("openclaw-rl", "torch", "transformers", "peft", "openai")


def as_json(report: LearningReport, *, model: str) -> dict[str, Json]:
    """The figures of a run. A value that could not be measured is None, never made up."""
    before, after = report.measured(BEFORE), report.last
    body: dict[str, Json] = {
        "sessions": len(report.sessions),
        "converged_at": report.converged_at,
        "corrections": report.corrections,
        "wish_before": _value(_wish(before)),
        "wish_after": _value(_wish(after)),
        "accuracy_before": _value(_right(before)),
        "accuracy_after": _value(_right(after)),
        "refused": report.refused,
        "versions": report.versions,
        "seconds": round(report.seconds, 1),
        "first_replies_good": [session.is_good for session in report.sessions],
        "unsettled_sessions": sum(not session.is_settled for session in report.sessions),
        "measurements": [_measurement(item) for item in report.measurements],
    }
    body["conditions"] = conditions(model=model, seeds=[report.seed], repeats=1) | {"temperature": report.temperature}
    return body


def conditions(*, model: str, seeds: Sequence[int], repeats: int) -> dict[str, Json]:
    """Under what a figure was taken."""
    return {
        "cores": os.cpu_count(),
        "threads": os.environ.get("OMP_NUM_THREADS", "default"),
        "python": platform.python_version(),
        "versions": {name: _installed(name) for name in LIBRARIES},
        "model": model,
        "seeds": list(seeds),
        "repeats": repeats,
    }


def as_html(report: LearningReport, *, model: str) -> str:
    """The page."""
    style = files("openclaw_rl.evals").joinpath("report.css").read_text("utf-8")
    body = "\n".join(
        (
            f"<h1>{escape(headline(report))}</h1>",
            f"<p>A simulated {escape(report.user)} wished for this and never said so at the start: "
            f"<em>{escape(report.wish)}</em>. All the model got were corrections, as people make them.</p>",
            _tiles(report),
            _figure(
                plots.first_replies(report.sessions, report.converged_at),
                "First replies. A filled dot met the user's rule (wish followed and answer right) unasked; the line is "
                f"the share of the last {plots.WINDOW}.",
            ),
            _figure(
                plots.measured(report.measurements),
                "Unseen problems, nobody learns from these: wish followed (blue), answer right (green), with 95 % "
                f"intervals, sampled at temperature {report.temperature:g}.",
            ),
            _figure(plots.versions(report.sessions), "The version that answered each session's first request."),
            _examples(report),
            _corrections(report),
            f"<footer>{escape(model)}, seed {report.seed}, {report.seconds:.0f} s, {os.cpu_count()} cores</footer>",
        )
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>What was learned</title><style>{style}</style></head><body>{body}</body></html>\n"
    )


def headline(report: LearningReport) -> str:
    """What was learned, in a sentence."""
    met_at, last = report.converged_at, report.last
    if met_at is None:
        return f"After {len(report.sessions)} sessions the wish was not yet met three times in a row"
    said = sum(session.corrections for session in report.sessions[:met_at])
    told = f"{said} correction" if said == 1 else f"{said} corrections"
    words = f"It learned: the wish held three sessions running at session {met_at}, after {told}"
    return words if last is None else f"{words}; now {100 * last.wish.value:.0f} % of first replies follow it"


def _tiles(report: LearningReport) -> str:
    before, after = report.measured(BEFORE), report.last
    facts = [
        ("sessions until three in a row", str(report.converged_at or "not yet")),
        ("corrections in all", str(report.corrections)),
        ("wish followed, unseen problems", _change(_wish(before), _wish(after))),
        ("answers right, unseen problems", _change(_right(before), _right(after))),
        ("requests refused", str(report.refused)),
        ("versions made and served", str(report.versions)),
    ]
    cells = "".join(f"<div><b>{escape(value)}</b><span>{escape(name)}</span></div>" for name, value in facts)
    return f'<section class="tiles">{cells}</section>'


def _figure(plot: str, caption: str) -> str:
    return f"<figure>{plot}<figcaption>{escape(caption)}</figcaption></figure>"


def _examples(report: LearningReport) -> str:
    before, after = report.measured(BEFORE), report.last
    if before is None or after is None:
        return ""
    rows = "".join(
        f"<tr><td>{escape(old.question)}</td><td><pre>{escape(old.reply)}</pre></td>"
        f"<td><pre>{escape(new.reply)}</pre></td></tr>"
        for old, new in zip(before.examples, after.examples, strict=True)
    )
    return (
        "<h2>The same unseen problems, before and after</h2><div class='wide'><table><thead><tr><th>problem</th>"
        f"<th>{escape(before.version)}</th><th>{escape(after.version)}</th></tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _corrections(report: LearningReport) -> str:
    rows = "".join(
        f"<tr><td>{session.number}</td><td><pre>{escape(turn.reply.text)}</pre></td><td>{escape(turn.said or '')}</td>"
        f"<td>{escape(verdict_of(turn))}</td><td>{escape(hint_of(turn))}</td><td>{escape(turn.reply.version)}</td>"
        f"<td>{escape(_fate(turn))}</td></tr>"
        for session in report.sessions
        for turn in session.turns
    )
    return (
        "<h2>What was said, and what the judge made of it</h2><div class='wide'><table><thead><tr><th>session</th>"
        "<th>reply</th><th>said next</th><th>verdict</th><th>hint</th><th>version</th><th>became</th></tr></thead>"
        f"<tbody>{rows}</tbody></table></div>"
    )


def verdict_of(turn: TurnRecord) -> str:
    """The score and the votes behind it, as `-1 (-1, -1, 0)`."""
    if turn.news is None or turn.news.score is None:
        return "none"
    votes = ", ".join("?" if vote is None else f"{vote:+d}" for vote in turn.news.votes if vote is not None)
    return f"{turn.news.score:+d}" + (f" ({votes})" if votes else "")


def hint_of(turn: TurnRecord) -> str:
    """The first of the accepted hints, or nothing."""
    return turn.news.hints[0] if turn.news is not None and turn.news.hints else ""


def _fate(turn: TurnRecord) -> str:
    if turn.news is None:
        return ""
    return f"{turn.news.state}: {turn.news.reason}" if turn.news.reason else turn.news.state


def _measurement(item: Measurement) -> dict[str, Json]:
    wish, right = item.wish.interval(), item.right.interval()
    return {
        "label": item.label,
        "after_session": item.after_session,
        "version": item.version,
        "problems": item.wish.of,
        "wish": round(item.wish.value, 4),
        "wish_interval_95": [round(value, 4) for value in wish],
        "accuracy": round(item.right.value, 4),
        "accuracy_interval_95": [round(value, 4) for value in right],
        "degenerate": item.degenerate,
        "mean_chars": round(item.mean_chars, 1),
    }


def _wish(item: Measurement | None) -> Share | None:
    return None if item is None else item.wish


def _right(item: Measurement | None) -> Share | None:
    return None if item is None else item.right


def _value(share: Share | None) -> float | None:
    return None if share is None else round(share.value, 4)


def _change(before: Share | None, after: Share | None) -> str:
    old, new = (("?" if share is None else f"{100 * share.value:.0f} %") for share in (before, after))
    return f"{old} → {new}"


def _installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
