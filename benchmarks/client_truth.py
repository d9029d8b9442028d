"""What a recorded exchange of a real client is, and what of that the server did not see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(slots=True)
class Label:
    """The truth about one exchange, known by construction.

    `kind` is main, or side with the `errand` that it is. `words` is what the owner typed since the last reply that
    they saw, `answers` the exchange whose reply this one goes on from, `after_summary` that a summary stands in
    between, and `was_cut` that this reply was cancelled: then nothing need follow it. `is_refused` was refused when it
    was recorded; `is_too_long` says that it should be.
    """

    at: int
    session: str
    kind: str
    errand: str | None
    words: list[str] = field(default_factory=list)
    answers: int | None = None
    has_results: bool = False
    after_summary: bool = False
    was_cut: bool = False
    is_refused: bool = False
    is_too_long: bool = False


@dataclass(frozen=True, slots=True)
class Made:
    """What the server made of an exchange; `heard` is its next state, by role and text."""

    turn: str
    session: str
    kind: str
    why: str
    parent: str | None
    heard: tuple[tuple[str, str], ...] | None


@dataclass(slots=True)
class Findings:
    """What was due and what was wrong with it, in words; `words` are those of a program taken for the owner's."""

    kinds: int = 0
    links: int = 0
    next_states: int = 0
    kinds_wrong: list[str] = field(default_factory=list)
    links_wrong: list[str] = field(default_factory=list)
    links_missed: list[str] = field(default_factory=list)
    next_states_wrong: list[str] = field(default_factory=list)
    words: list[str] = field(default_factory=list)


def is_too_long(refusal: str | None) -> bool:
    """Whether a request was refused since it does not fit."""
    return refusal is not None and ("context_length" in refusal or "too long" in refusal or "context holds" in refusal)


def found(labels: Sequence[Label], made: Mapping[int, Made]) -> Findings:
    """The labels against what the server made of the exchanges that it answered."""
    findings, at_of = Findings(), {each.turn: at for at, each in made.items()}
    answers: dict[int, list[Label]] = {}
    for label in labels:
        if label.kind == "main" and label.answers is not None:
            answers.setdefault(label.answers, []).append(label)
    for label in labels:
        row = made.get(label.at)
        if row is None:
            continue
        findings.kinds += 1
        if row.kind != label.kind:
            findings.kinds_wrong.append(f"{label.at}: {label.errand or 'main'} is {row.kind} ({row.why})")
        if label.kind == "main":
            _look_at_link(findings, label, row, made, at_of)
            _look_at_next_state(findings, label, row, [each for each in answers.get(label.at, [])], made)
    _look_at_sessions(findings, labels, made)
    return findings


def _look_at_link(
    findings: Findings, label: Label, row: Made, made: Mapping[int, Made], at_of: Mapping[str, int]
) -> None:
    """A request goes on from the turn it answers, in its session; after a summary the session is enough."""
    due = None if label.answers is None else made.get(label.answers)
    findings.links += due is not None
    if row.parent is not None and (due is None or row.parent != due.turn):
        findings.links_wrong.append(f"{label.at}: goes on from {at_of.get(row.parent)}, not from {label.answers}")
    elif due is not None and (row.session != due.session or (row.parent is None and not label.after_summary)):
        findings.links_missed.append(f"{label.at}: does not go on from {label.answers} ({row.why})")


def _look_at_sessions(findings: Findings, labels: Sequence[Label], made: Mapping[int, Made]) -> None:
    """Two conversations in one session are a wrong link."""
    owner: dict[str, str] = {}
    for label in labels:
        if label.kind == "main" and (row := made.get(label.at)) is not None:
            name = owner.setdefault(row.session, label.session)
            if name != label.session:
                findings.links_wrong.append(f"{label.at}: conversations {name} and {label.session} are one session")


def _look_at_next_state(
    findings: Findings, label: Label, row: Made, due: Sequence[Label], made: Mapping[int, Made]
) -> None:
    """The first answered request that goes on from a reply is its next state; a refused one counts for nothing."""
    served = [each for each in due if each.at in made]
    said = " ".join(text for role, text in row.heard or () if role == "user")
    is_due = bool(served) and not label.was_cut and not served[0].after_summary
    is_due = is_due and (bool(served[0].words) or served[0].has_results)
    findings.next_states += is_due
    if row.heard is None:
        if is_due:
            findings.next_states_wrong.append(f"{label.at}: none, though {served[0].at} answers it ({row.why})")
        return
    missed, rest = _residue(said, served[0].words) if served else ("", said.strip())
    if rest:
        findings.words.append(f"{label.at}: {rest[:100]!r}")
    if rest or missed:
        findings.next_states_wrong.append(f"{label.at}: {said[:80]!r}" + (f" lacks {missed[:60]!r}" if missed else ""))


def _residue(heard: str, words: Sequence[str]) -> tuple[str, str]:
    """What of the owner's words was not heard, and what was heard that is not theirs."""
    missed = ""
    for text in (each.strip() for each in words):  # a client may leave out the space at an end
        if text in heard:
            heard = heard.replace(text, "", 1)
        else:
            missed = text
    return missed, heard.strip(" \n\"'")
