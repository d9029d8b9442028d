"""Counts of the requests so far, and the reasons that they give why nothing is learned."""

from __future__ import annotations

from dataclasses import dataclass

from openclaw_rl.core.turn import TurnKind

ENOUGH = 20  # requests before anything is said


@dataclass(slots=True)
class Tally:
    """Counts of placed requests since the start."""

    main: int = 0
    side: int = 0
    fresh: int = 0  # named no session and went on from nothing
    with_history: int = 0  # main requests that hold an earlier reply
    going_on: int = 0  # main requests that continue a served turn
    _said: str | None = None

    def placed(self, kind: TurnKind, *, is_fresh: bool, goes_on: bool, has_history: bool) -> None:
        """One request more."""
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
