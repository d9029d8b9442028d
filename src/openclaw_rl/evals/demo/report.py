"""A run as JSON for programs and as one HTML page for people; the page needs no other file."""

from __future__ import annotations

import os
from html import escape

from openclaw_rl.core.message import Json
from openclaw_rl.evals import plots
from openclaw_rl.evals.learning import BEFORE
from openclaw_rl.evals.records import LearningReport, Measurement, TurnRecord
from openclaw_rl.evals.report import Verbatim, conditions, figure, page, page_table
from openclaw_rl.evals.share import Share


def as_json(report: LearningReport, *, model: str) -> dict[str, Json]:
    """The figures of a run. A value that could not be measured is None, never invented."""
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


def as_html(report: LearningReport, *, model: str) -> str:
    """The page."""
    body = "\n".join(
        (
            f"<h1>{escape(headline(report))}</h1>",
            f"<p>A simulated {escape(report.user)} wished for this and never said so at the start: "
            f"<em>{escape(report.wish)}</em>. All the model got were corrections, as people make them.</p>",
            _tiles(report),
            figure(
                plots.first_replies(report.sessions, report.converged_at),
                "First replies. A filled dot met the user's rule (wish followed and answer right) unasked; the line is "
                f"the share of the last {plots.WINDOW}.",
            ),
            figure(
                plots.measured(report.measurements),
                "Unseen problems, nobody learns from these: wish followed (blue), answer right (green), with 95 % "
                f"intervals, sampled at temperature {report.temperature:g}.",
            ),
            figure(plots.versions(report.sessions), "The version that answered each session's first request."),
            _examples(report),
            _corrections(report),
            f"<footer>{escape(model)}, seed {report.seed}, {report.seconds:.0f} s, {os.cpu_count()} cores</footer>",
        )
    )
    return page("What was learned", body)


def headline(report: LearningReport) -> str:
    """A sentence on what was learned."""
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


def _examples(report: LearningReport) -> str:
    before, after = report.measured(BEFORE), report.last
    if before is None or after is None:
        return ""
    rows = [
        (old.question, Verbatim(old.reply), Verbatim(new.reply))
        for old, new in zip(before.examples, after.examples, strict=True)
    ]
    table = page_table(("problem", before.version, after.version), rows)
    return f"<h2>The same unseen problems, before and after</h2>{table}"


def _corrections(report: LearningReport) -> str:
    rows = [
        (
            str(session.number),
            Verbatim(turn.reply.text),
            turn.said or "",
            verdict_of(turn),
            hint_of(turn),
            turn.reply.version,
            _fate(turn),
        )
        for session in report.sessions
        for turn in session.turns
    ]
    head = ("session", "reply", "said next", "verdict", "hint", "version", "became")
    return f"<h2>What was said, and what the judge made of it</h2>{page_table(head, rows)}"


def verdict_of(turn: TurnRecord) -> str:
    """The score and its votes, as `-1 (-1, -1, 0)`."""
    if turn.news is None or turn.news.score is None:
        return "none"
    votes = ", ".join("?" if vote is None else f"{vote:+d}" for vote in turn.news.votes if vote is not None)
    return f"{turn.news.score:+d}" + (f" ({votes})" if votes else "")


def hint_of(turn: TurnRecord) -> str:
    """The first of the accepted hints; empty if there is none."""
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
