"""Main or side, which replies teach nothing whatever follows them, and counts of both."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from openclaw_rl.collect.clients.rules import ClientRules
from openclaw_rl.collect.sessions import names_episode
from openclaw_rl.core.completion import Finish
from openclaw_rl.core.ledger import DropReason
from openclaw_rl.core.turn import CONNECTING, Arrival, Turn, TurnKind

LONGEST_UNIT = 200  # letters of the repeated piece
LEAST_REPEATS = 6
KINDS = {kind.value: kind for kind in TurnKind}
LEAST_LOOPED = 120  # letters
END = 8  # letters with which a repetition is searched for
ENOUGH = 20  # requests before anything is said


def is_vouched(arrival: Arrival) -> bool:
    """Whether the client itself says that this is its owner's turn, or a step of an episode."""
    said = arrival.facts.get("turn_type")
    claims = (arrival.headers.get("x-turn-type"), said if isinstance(said, str) else None)
    return next(
        (claim.strip().lower() == TurnKind.MAIN for claim in claims if claim is not None), names_episode(arrival)
    )


def kind_of(arrival: Arrival, rules: ClientRules, *, has_stamped: bool = False) -> tuple[TurnKind, str]:
    """Main or side, and by which rule."""
    kind, rule = _kind_of(arrival, rules, has_stamped=has_stamped)
    if arrival.headers.get(CONNECTING, "").strip():
        return TurnKind.SIDE, f"side: connection test (of openclaw-rl connect; otherwise {rule})"
    return kind, rule


def degenerate(turn: Turn, control_tokens: Collection[str]) -> DropReason | None:
    """Why this reply teaches nothing, or None if it may."""
    if turn.completion.finish is Finish.CANCELLED:
        return DropReason.CANCELLED
    if turn.completion.finish is Finish.LENGTH:
        return DropReason.CUT_BY_LENGTH
    text = turn.reply.text.strip()
    if not text and not turn.reply.tool_calls:
        return DropReason.EMPTY
    if text in control_tokens and not turn.reply.tool_calls:
        return DropReason.CONTROL_TOKEN
    if loops(text) or any(loops(call.arguments.rstrip(' \n"}]')) for call in turn.reply.tool_calls):
        return DropReason.LOOP
    return None


def loops(text: str) -> bool:
    """Whether the text ends in one piece that is repeated; a ruler (such as -----) may have any length."""
    start, at = max(0, len(text) - LONGEST_UNIT - END), len(text) - END
    while at > 0 and (at := text.rfind(text[-END:], start, at + END - 1)) >= 0:  # where the last letters occur before
        unit = len(text) - END - at
        looped = max(LEAST_LOOPED, unit * LEAST_REPEATS)
        if looped > len(text) or not any(letter.isalnum() for letter in text[-unit:]):
            continue
        if text[-looped + unit :] == text[-looped:-unit]:
            return True
    return False


def _kind_of(arrival: Arrival, rules: ClientRules, *, has_stamped: bool) -> tuple[TurnKind, str]:
    said = arrival.facts.get("turn_type")
    claims = [("X-Turn-Type", arrival.headers.get("x-turn-type"))]
    claims.append(("the body's turn_type", said if isinstance(said, str) else None))
    passed_over = ""
    for where, claim in claims:
        if claim is None:
            continue
        word = claim.strip().lower()
        if word in KINDS:
            return KINDS[word], f"{word}: {where} says so"
        passed_over += f", {where} is neither main nor side"
    if names_episode(arrival):
        return TurnKind.MAIN, f"main: it is a step of an episode{passed_over}"
    known = rules.kind(arrival, has_stamped=has_stamped)
    if known is not None:
        return known[0], f"{known[0].value}: {known[1]}{passed_over}"
    return TurnKind.MAIN, f"main: no rule says otherwise{passed_over}"


@dataclass(slots=True)
class Tally:
    """Counts of placed requests since the start, and reasons why nothing is learned from them."""

    main: int = 0
    side: int = 0
    fresh: int = 0  # named no session and continued nothing
    with_history: int = 0  # main requests that contain an earlier reply
    going_on: int = 0  # main requests that continue a served turn
    _said: str | None = None

    def placed(self, kind: TurnKind, *, is_fresh: bool, goes_on: bool, has_history: bool) -> None:
        """Counts one more request."""
        if kind is TurnKind.SIDE:
            self.side += 1
            return
        self.main += 1
        self.fresh += is_fresh
        self.with_history += has_history
        self.going_on += goes_on

    def complaint(self) -> str | None:
        """Why nothing can be learned from these requests, in plain words; None if something can."""
        if self.main + self.side < ENOUGH or self.going_on:
            return None
        if not self.main:
            return (
                f"all {self.side} requests so far were side requests, so nothing is learned: "
                "have the client send X-Turn-Type: main with the user's own turns"
            )
        if self.main < ENOUGH:
            return None
        if self.with_history:
            return (
                f"{self.with_history} requests contained a conversation, but none of them contains a reply as it was "
                "served, so no turn has a next state and nothing is learned: the client changes or drops the replies"
            )
        return (
            f"none of {self.main} requests continues an earlier one, so no turn has a next state and nothing is "
            "learned: the client must send the whole conversation, or POST /v1/feedback"
        )

    def news(self) -> str | None:
        """The complaint, once for each kind."""
        complaint = self.complaint()
        kind = None if complaint is None else complaint.rsplit(":", 1)[-1]
        if kind == self._said:
            return None
        self._said = kind
        return complaint
