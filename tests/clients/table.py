"""What the server made of a client's exchanges, against what they are: one row of the table."""

from __future__ import annotations

from collections import Counter

from benchmarks.client_truth import Label, Made, found

COLUMNS = ("runs", "streams", "tools", "structured", "linked", "kinds right", "corrections paired", "nothing refused")


def row_of(client: dict, version: str, noted: dict, labels: list[Label]) -> dict:
    """The row: each column with whether it is good and the reason where it is not."""
    found: dict[str, dict] = {}
    for column in ("runs", "streams", "tools", "structured"):
        notes = [note for note in noted["notes"] if note["what"] == column]
        bad = [note["detail"] for note in notes if not note["good"]]
        if notes:
            found[column] = {"good": not bad, "why": "; ".join(map(str, bad))[:400], "of": len(notes)}
    wrong = judged(noted, labels)
    mains = [each for each in labels if each.kind == "main" and not each.is_refused]
    for column, of in (
        ("linked", sum(each.answers is not None for each in mains)),
        ("kinds right", len(labels)),
        ("corrections paired", sum(each.answers is not None for each in mains)),
        ("nothing refused", len(labels)),
    ):
        bad = wrong[column]
        found[column] = {"good": not bad, "why": "; ".join(bad)[:400], "of": of, "bad": len(bad)}
    others = [note for note in noted["notes"] if note["what"] not in COLUMNS]
    return {
        "client": client["name"],
        "release": version,
        "exchanges": len(labels),
        "kinds": dict(Counter(each.errand or "main" for each in labels)),
        "columns": found,
        "cannot": client.get("cannot", {}),
        "wrong": {column: each for column, each in wrong.items() if each},
        "notes": others,
    }


def judged(noted: dict, labels: list[Label]) -> dict[str, list[str]]:
    """By column, what came out wrong."""
    made = {each.at: _made(row) for each in labels for row in noted["exchanges"][each.at]["rows"][:1]}
    findings = found(labels, made)
    refused = [each for each in labels if each.is_refused and not each.is_too_long]
    told = [(each.at, noted["exchanges"][each.at]) for each in refused]
    return {
        "linked": findings.links_wrong + findings.links_missed,
        "kinds right": findings.kinds_wrong,
        "corrections paired": findings.next_states_wrong,
        "nothing refused": [f"{at}: {held['status']} {held['refusal'] or ''}"[:240] for at, held in told],
    }


def _made(row: dict) -> Made:
    heard = row["next_state"]
    said = None if heard is None else tuple((role, text) for role, text in heard)
    return Made(row["turn"], row["session"], row["kind"], row["why"], row["parent"], said)


def written(rows: list[dict]) -> str:
    """The table in Markdown, and below it the reasons."""
    lines = ["| client | exchanges | " + " | ".join(COLUMNS) + " |", "|" + "---|" * (len(COLUMNS) + 2)]
    reasons = []
    for row in rows:
        name = f"{row['client']} {row['release']}"
        if "failed" in row:
            lines.append(f"| {name} | did not run |" + " |" * len(COLUMNS))
            reasons.append(f"- {name}: {row['failed']}")
            continue
        cells = []
        for column in COLUMNS:
            held = row["columns"].get(column)
            if held is None:
                cells.append("-")
                continue
            cells.append(
                "yes" if held["good"] else f"**no** ({held['bad']} of {held['of']})" if "bad" in held else "**no**"
            )
            if not held["good"]:
                reasons.append(f"- {name}, {column}: {held['why']}")
        lines.append(f"| {name} | {row['exchanges']} | " + " | ".join(cells) + " |")
        reasons += [f"- {name}, {note['what']}: {note['detail']}" for note in row["notes"] if not note["good"]]
    return "\n".join([*lines, "", *reasons, ""])
