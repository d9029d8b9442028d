"""A picture of each method: session by session, the share of seeds whose first reply counted, a line for each user."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from openclaw_rl.evals import plots
from openclaw_rl.evals.personalization.trials import Trial

WINDOW = 3  # sessions in the running share
COLOURS = ("#2f6fde", "#2a9d6e", "#d9822b", "#8e5bd0", "#c0417a")
WIDTHS = (8, 6, 4, 3, 2)  # lines that lie on each other still show
STYLE = (
    "svg{background:#fff}.grid{stroke:#e4e7ec}.axis{fill:#667085;font:12px system-ui,sans-serif}"
    ".note{fill:#1d2430;font:600 13px system-ui,sans-serif}"
)


def curves(method: str, trials: Sequence[Trial]) -> str:
    """The picture as inline SVG; lines end where the sessions do."""
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
    """For each session the share of good first replies among the seeds, over the last few sessions."""
    rows = [[session.is_good for session in trial.sessions_of(person)] for trial in trials if person in trial.people]
    shares = []
    for at in range(max((len(row) for row in rows), default=0)):
        seen = [good for row in rows if len(row) > at for good in row[max(0, at - WINDOW + 1) : at + 1]]
        shares.append(sum(seen) / len(seen))
    return shares


def sheet(pictures: Sequence[str]) -> str:
    """Pictures below each other as one SVG file, its style inside."""
    placed = "".join(
        picture.replace("<svg ", f'<svg y="{at * plots.HEIGHT}" width="{plots.WIDTH}" height="{plots.HEIGHT}" ', 1)
        for at, picture in enumerate(pictures)
    )
    height = plots.HEIGHT * max(1, len(pictures))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {plots.WIDTH} {height}" width="{plots.WIDTH}" '
        f'height="{height}"><style>{STYLE}</style>{placed}</svg>\n'
    )
