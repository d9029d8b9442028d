"""Plots as inline SVG: no library, no other file, and colours that follow the page's light or dark mode."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from openclaw_rl.evals.records import Measurement, SessionRecord
from openclaw_rl.evals.share import Share

WIDTH, HEIGHT = 720, 230
LEFT, RIGHT, TOP, BOTTOM = 52, 16, 18, 40
WINDOW = 5  # sessions in the running share


def first_replies(sessions: Sequence[SessionRecord], converged_at: int | None) -> str:
    """A dot for each session, filled where the first reply met the rule, and the running share as a line."""
    good = [session.is_good for session in sessions]
    parts = [frame(len(sessions), "session")]
    for at, (session, is_good) in enumerate(zip(sessions, good, strict=True)):
        window = good[max(0, at - WINDOW + 1) : at + 1]
        tip = f"session {session.number}: first reply {'met' if is_good else 'did not meet'} the rule, "
        tip += f"{session.corrections} corrections, {len(window)} last: {100 * sum(window) / len(window):.0f} %"
        parts.append(
            f'<circle class="{"dot" if is_good else "dot off"}" cx="{x_of(at, len(good)):.1f}" '
            f'cy="{y_of(1.0 if is_good else 0.0):.1f}" r="5"><title>{escape(tip)}</title></circle>'
        )
    shares = [sum(good[max(0, at - WINDOW + 1) : at + 1]) / min(at + 1, WINDOW) for at in range(len(good))]
    points = " ".join(f"{x_of(at, len(good)):.1f},{y_of(share):.1f}" for at, share in enumerate(shares))
    parts.insert(1, f'<polyline class="line" points="{points}"/>')
    if converged_at is not None:
        x = x_of(converged_at - 1, len(good))
        parts.append(f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>')
        anchor, shift = ("end", -6) if converged_at > len(good) / 2 else ("start", 6)
        label = f"three in a row: session {converged_at}"
        parts.append(words_at(label, x + shift, y_of(0.5), "note", anchor=anchor))
    return svg(parts, "First replies that met the rule, session by session")


def versions(sessions: Sequence[SessionRecord]) -> str:
    """The version that answered each session's first request, as steps."""
    numbers = [int(session.turns[0].reply.version.rpartition(".")[2] or 0) for session in sessions]
    top = max(1, *numbers) if numbers else 1
    parts = [frame(len(sessions), "session", ticks=[(value / top, str(value)) for value in _whole(top)])]
    steps: list[str] = []
    for at, number in enumerate(numbers):
        x, y = x_of(at, len(numbers)), y_of(number / top)
        if at:
            steps.append(f"{x:.1f},{y_of(numbers[at - 1] / top):.1f}")
        steps.append(f"{x:.1f},{y:.1f}")
        tip = f"session {at + 1}: version {number}"
        parts.append(f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="3"><title>{tip}</title></circle>')
    parts.insert(1, f'<polyline class="line" points="{" ".join(steps)}"/>')
    return svg(parts, "The version that served each session")


def measured(measurements: Sequence[Measurement]) -> str:
    """Wish followed and answers right at each measurement, with 95 % intervals."""
    parts = [grid([(value / 4, f"{25 * value} %") for value in range(5)])]
    room = (WIDTH - LEFT - RIGHT) / max(1, len(measurements))
    bar = min(54.0, room / 3.2)
    for at, item in enumerate(measurements):
        middle = LEFT + room * (at + 0.5)
        parts.append(_bar(item.wish, middle - bar - 4, bar, "wish", "follow the wish"))
        parts.append(_bar(item.right, middle + 4, bar, "right", "are right"))
        parts.append(words_at(f"{item.label} ({item.version})", middle, HEIGHT - BOTTOM + 18, "axis", anchor="middle"))
    return svg(parts, "First replies to unseen problems")


def _bar(share: Share, x: float, width: float, name: str, claim: str) -> str:
    low, high = share.interval()
    middle, top = x + width / 2, y_of(share.value)
    tip = f"{share} {claim}; 95 % interval {100 * low:.0f} to {100 * high:.0f} %"
    return (
        f'<g><title>{escape(tip)}</title><rect class="{name}" x="{x:.1f}" y="{top:.1f}" width="{width:.1f}" '
        f'height="{max(1.0, HEIGHT - BOTTOM - top):.1f}" rx="3"/>'
        f'<path class="whisker" d="M{middle:.1f} {y_of(low):.1f}V{y_of(high):.1f}"/></g>'
        + words_at(f"{100 * share.value:.0f} %", middle, y_of(high) - 4, "note", anchor="middle")
    )


def frame(count: int, label: str, ticks: Sequence[tuple[float, str]] | None = None) -> str:
    """The axes of a plot over this many sessions."""
    parts = [grid(ticks or [(0.0, "0 %"), (0.5, "50 %"), (1.0, "100 %")])]
    every = max(1, count // 12)
    for at in range(0, count, every):
        parts.append(words_at(str(at + 1), x_of(at, count), HEIGHT - BOTTOM + 16, "axis", anchor="middle"))
    parts.append(words_at(label, WIDTH - RIGHT, HEIGHT - 6, "axis", anchor="end"))
    return "".join(parts)


def grid(ticks: Sequence[tuple[float, str]]) -> str:
    """Lines at these heights, each with its name."""
    return "".join(
        f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y_of(value):.1f}" y2="{y_of(value):.1f}"/>'
        + words_at(name, LEFT - 8, y_of(value) + 4, "axis", anchor="end")
        for value, name in ticks
    )


def svg(parts: Sequence[str], title: str) -> str:
    """The parts as one picture."""
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}" '
        f'xmlns="http://www.w3.org/2000/svg">{"".join(parts)}</svg>'
    )


def words_at(words: str, x: float, y: float, kind: str, *, anchor: str = "start") -> str:
    """Words in a picture."""
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def x_of(at: int, count: int) -> float:
    """The x position of an item among all."""
    return LEFT + 12 + (WIDTH - LEFT - RIGHT - 24) * (at / max(1, count - 1))


def y_of(value: float) -> float:
    """The y position of a share."""
    return TOP + (HEIGHT - TOP - BOTTOM) * (1 - value)


def _whole(top: int) -> list[int]:
    """About four whole numbers from 0 to the top."""
    every = max(1, round(top / 4))
    return list(range(0, top + 1, every))
