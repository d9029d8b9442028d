"""A plan's figures for people: an HTML page, and a section of the results document with a picture next to it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from pathlib import Path

from openclaw_rl.core.message import Json, json_list
from openclaw_rl.evals import plots
from openclaw_rl.evals.personalization.methods import Mode
from openclaw_rl.evals.personalization.plan import EvalPlan
from openclaw_rl.evals.personalization.trials import Trial
from openclaw_rl.evals.report import figure, markdown_table, page, page_table, put_section

COLUMNS = (
    "method",
    "user",
    "sessions (gated)",
    "median, spread",
    "raw median",
    "corrections",
    "hints",
    "accuracy lost at convergence / end",
    "interference",
    "degenerate",
    "wish before → end",
)
LEGEND = (
    "Sessions until three in a row whose first reply counted, the third included; a dash is a seed that never got "
    "there. A first reply counts if the wish was followed, the answer was right, nothing about it was odd, and the "
    "file changed as asked. Raw: the wish alone. Points lost are percentage points on unseen problems against the "
    "untaught model. Corrections and hints are means over the seeds until convergence, or over all sessions."
)
WINDOW = 3  # sessions in the running share
COLOURS = ("#2f6fde", "#2a9d6e", "#d9822b", "#8e5bd0", "#c0417a")
WIDTHS = (8, 6, 4, 3, 2)  # lines that overlap still show
STYLE = (
    "svg{background:#fff}.grid{stroke:#e4e7ec}.axis{fill:#667085;font:12px system-ui,sans-serif}"
    ".note{fill:#1d2430;font:600 13px system-ui,sans-serif}"
)


def as_html(plan: EvalPlan, figures: dict[str, Json], trials: Sequence[Trial]) -> str:
    """The page; it needs no other file."""
    plots = "".join(
        figure(
            curves(method.name, _of(trials, method.name)),
            f"{method.name}: {method.about}. Share of seeds whose first reply counted, "
            f"over the last {WINDOW} sessions.",
        )
        for method in plan.methods
    )
    return page(
        f"What was learned, {plan.mode}",
        f"<h1>{escape(headline(figures))}</h1><p>{escape(LEGEND)}</p>{page_table(COLUMNS, table(plan, figures))}"
        f"{_degenerate(plan, figures)}{plots}<footer>{escape(json.dumps(figures['conditions']))}</footer>",
    )


def headline(figures: dict[str, Json]) -> str:
    """Who came first."""
    best, baseline = figures["best_method"], figures["best_baseline"]
    who = "Three users on one model" if figures["mode"] == Mode.JOINT else "Each user with a model of their own"
    return f"{who}: fewest sessions by {best or 'none'}, among the baselines by {baseline or 'none'}"


def table(plan: EvalPlan, figures: dict[str, Json]) -> list[list[str]]:
    """A row for each method and user."""
    rows = []
    for method in plan.methods:
        for user, own in _items(_at(figures, "methods", method.name)):
            if user == "about":
                continue
            before, end = _at(own, "moments", "before", "wish"), _at(own, "moments", "end", "wish")
            rows.append(
                [
                    method.name,
                    user,
                    " ".join("–" if at is None else str(at) for at in json_list(_at(own, "sessions"))),
                    f"{_number(_at(own, 'median'))} ({_range(_at(own, 'spread'))})",
                    _number(_at(own, "raw", "median")),
                    _sum(_at(own, "corrections")),
                    _sum(_at(own, "hints")),
                    f"{_number(_at(own, 'accuracy_drop_points'))} / {_number(_at(own, 'accuracy_drop_points_end'))}",
                    _number(_at(own, "interference_points")),
                    _number(_at(own, "degenerate")),
                    f"{_percent(before)} → {_percent(end)}",
                ]
            )
    return rows


def as_markdown(plan: EvalPlan, figures: dict[str, Json], picture: str) -> str:
    """A section of a document: headline, table, the picture, the conditions."""
    lines = [f"**{headline(figures)}.** {LEGEND}", "", *markdown_table(COLUMNS, table(plan, figures))]
    lines += ["", f"![First replies that counted, session by session, method by method]({picture})", ""]
    lines += [f"Conditions: `{json.dumps(figures['conditions'])}`"]
    return "\n".join(lines)


def write_results(
    document: Path, plan: EvalPlan, figures: dict[str, Json], trials: Sequence[Trial], section: str = ""
) -> None:
    """The plan's section of the document, by default named after the mode, and its picture next to it."""
    section = section or plan.mode
    picture = document.with_name(f"{document.stem}-{section}.svg")
    put_section(document, f"eval-{section}", as_markdown(plan, figures, picture.name))
    drawn = [curves(method.name, _of(trials, method.name)) for method in plan.methods]
    picture.write_text(sheet(drawn), "utf-8")


def _degenerate(plan: EvalPlan, figures: dict[str, Json]) -> str:
    """The stored degenerate replies, for reading; empty if there were none."""
    items = [
        f"<li>{escape(method.name)}, {escape(user)}, seed {_at(odd, 'seed')}, after session {_at(odd, 'after_session')}"
        f" ({escape(', '.join(map(str, json_list(_at(odd, 'why')))))}): {escape(str(_at(odd, 'reply')))}</li>"
        for method in plan.methods
        for user, own in _items(_at(figures, "methods", method.name))
        for odd in json_list(_at(own, "degenerate_replies"))
    ]
    if not items:
        return ""
    return f"<details><summary>Degenerate replies ({len(items)})</summary><ul>{''.join(items)}</ul></details>"


def _of(trials: Sequence[Trial], method: str) -> list[Trial]:
    return [trial for trial in trials if trial.method == method]


def _at(value: Json, *keys: str) -> Json:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _items(value: Json) -> list[tuple[str, Json]]:
    return list(value.items()) if isinstance(value, dict) else []


def _number(value: Json) -> str:
    return f"{value:g}" if isinstance(value, int | float) else "–"


def _percent(value: Json) -> str:
    return f"{100 * value:.0f} %" if isinstance(value, int | float) else "–"


def _range(value: Json) -> str:
    return " to ".join("–" if item is None else str(item) for item in json_list(value))


def _sum(value: Json) -> str:
    """The mean over the seeds."""
    numbers = [item for item in json_list(value) if isinstance(item, int)]
    return f"{sum(numbers) / len(numbers):.1f}" if numbers else "–"


def curves(method: str, trials: Sequence[Trial]) -> str:
    """A picture of the method as inline SVG; lines end with the sessions.

    Session by session, the share of seeds whose first reply counted, a line for each user.
    """
    people = list(dict.fromkeys(name for trial in trials for name in trial.people))
    longest = max((session.number for trial in trials for session in trial.sessions), default=1)
    parts = [plots.frame(longest, "session"), plots.words_at(method, plots.LEFT, 13, "note")]
    for at, (person, colour) in enumerate(zip(people, COLOURS, strict=False)):
        shares = running(trials, person)
        points = " ".join(
            f"{plots.x_of(index, longest):.1f},{plots.y_of(share):.1f}" for index, share in enumerate(shares)
        )
        parts.append(
            f'<polyline fill="none" stroke="{colour}" stroke-width="{WIDTHS[at]}" '
            f'stroke-linejoin="round" points="{points}">'
            f"<title>{escape(person)}</title></polyline>"
        )
        x = plots.WIDTH - plots.RIGHT - 90 * (len(people) - at)
        parts.append(f'<text class="axis" x="{x}" y="13" style="fill:{colour}">{escape(person)}</text>')
    return plots.svg(parts, f"First replies that counted, {method}")


def running(trials: Sequence[Trial], person: str) -> list[float]:
    """For each session the seeds' share of good first replies, over the last few sessions."""
    rows = [[session.is_good for session in trial.sessions_of(person)] for trial in trials if person in trial.people]
    shares = []
    for at in range(max((len(row) for row in rows), default=0)):
        seen = [good for row in rows if len(row) > at for good in row[max(0, at - WINDOW + 1) : at + 1]]
        shares.append(sum(seen) / len(seen))
    return shares


def sheet(pictures: Sequence[str]) -> str:
    """Pictures one below another as one SVG file, with its style."""
    placed = "".join(
        picture.replace("<svg ", f'<svg y="{at * plots.HEIGHT}" width="{plots.WIDTH}" height="{plots.HEIGHT}" ', 1)
        for at, picture in enumerate(pictures)
    )
    height = plots.HEIGHT * max(1, len(pictures))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {plots.WIDTH} {height}" width="{plots.WIDTH}" '
        f'height="{height}"><style>{STYLE}</style>{placed}</svg>\n'
    )
