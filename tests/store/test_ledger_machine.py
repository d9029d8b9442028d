"""Whatever is asked of the ledger in whatever order, every main turn has one state and the counts add up."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from openclaw_rl.core.ledger import MOVES, DropReason, State
from openclaw_rl.core.message import Role, message
from openclaw_rl.core.next_state import Feedback, NextState, NextStateSource
from openclaw_rl.core.turn import TurnKind
from openclaw_rl.core.verdict import Verdict, VerdictSource
from openclaw_rl.store.db import Store
from openclaw_rl.store.rows import StepRecord
from openclaw_rl.testing.turns import a_sample, a_turn

turns = st.integers(0, 11).map(lambda number: f"t{number}")
reasons = st.sampled_from(DropReason)


class Ledger(RuleBasedStateMachine):
    """The store beside a model of it: a dictionary of states."""

    def __init__(self) -> None:
        super().__init__()
        self.home = Path(tempfile.mkdtemp())
        self.runner = asyncio.Runner()
        self.states: dict[str, State | None] = {}
        self.reasons: dict[str, DropReason] = {}
        self.sessions: dict[str, str] = {}
        self.thumbs: dict[str, int] = {}
        self.steps = 0

    @initialize()
    def opened(self) -> None:
        self.store = self.runner.run(Store.open(self.home))

    def may(self, turn: str, after: State) -> bool:
        before = self.states.get(turn)
        return before is not None and after in MOVES[before]

    @rule(turn=turns, session=st.sampled_from(["a", "b"]), is_main=st.booleans(), reason=st.none() | reasons)
    def serve(self, turn: str, session: str, is_main: bool, reason: DropReason | None) -> None:
        if turn in self.states:
            return
        kind = TurnKind.MAIN if is_main else TurnKind.SIDE
        given_reason = reason if is_main else None
        entered = a_turn(turn, session=session, kind=kind)
        self.runner.run(self.store.add_turn(entered, chain=turn, prefix=turn, reason=given_reason))
        self.sessions[turn] = session
        self.states[turn] = None if not is_main else State.SERVED if given_reason is None else State.DROPPED
        if given_reason is not None:
            self.reasons[turn] = given_reason

    @rule(turn=turns)
    def pair(self, turn: str) -> None:
        if turn in self.states:
            said = NextState(turn, (message(Role.USER, "no"),), NextStateSource.USER)
            assert self.runner.run(self.store.pair(said)) is self.may(turn, State.PAIRED)
            if self.may(turn, State.PAIRED):
                self.states[turn] = State.PAIRED

    @rule(turn=turns, score=st.sampled_from([None, -1, 0, 1]))
    def judge(self, turn: str, score: int | None) -> None:
        if turn in self.states:
            verdict = Verdict(turn, score, VerdictSource.VOTES)
            assert self.runner.run(self.store.judge(verdict)) is self.may(turn, State.JUDGED)
            if self.may(turn, State.JUDGED):
                self.states[turn] = State.JUDGED

    @rule(turn=turns)
    def admit(self, turn: str) -> None:
        if turn not in self.states:
            return
        try:
            self.runner.run(self.store.admit(a_sample(a_turn(turn))))
        except ValueError:
            assert not self.may(turn, State.READY)
        else:
            assert self.may(turn, State.READY)
            self.states[turn] = State.READY

    @rule(turn=turns, reason=reasons)
    def drop(self, turn: str, reason: DropReason) -> None:
        if turn in self.states:
            assert self.runner.run(self.store.drop(turn, reason)) is self.may(turn, State.DROPPED)
            if self.may(turn, State.DROPPED):
                self.states[turn], self.reasons[turn] = State.DROPPED, reason

    @rule(turn=turns, score=st.sampled_from([-1, 0, 1]), text=st.sampled_from([None, "", "better"]))
    def feedback(self, turn: str, score: int, text: str | None) -> None:
        if turn in self.states:
            self.runner.run(self.store.add_feedback(Feedback(turn, score, text, 1.0)))
            self.thumbs[turn] = score
            if text and self.may(turn, State.PAIRED):
                self.states[turn] = State.PAIRED

    @rule(trained=st.lists(turns, max_size=3, unique=True), dropped=st.lists(turns, max_size=2, unique=True))
    def step(self, trained: list[str], dropped: list[str]) -> None:
        self.steps += 1
        record = StepRecord(
            f"s{self.steps}", 0.0, 1.0, tuple(trained), tuple((turn, DropReason.STALE) for turn in dropped), {}, None
        )
        allowed = not set(trained) & set(dropped)
        allowed &= all(self.may(turn, State.TRAINED) for turn in trained)
        allowed &= all(self.may(turn, State.DROPPED) for turn in dropped)
        try:
            self.runner.run(self.store.commit_step(record))
        except ValueError:
            assert not allowed
            return
        assert allowed
        for turn in trained:
            self.states[turn] = State.TRAINED
        for turn in dropped:
            self.states[turn], self.reasons[turn] = State.DROPPED, DropReason.STALE

    @rule(session=st.sampled_from(["a", "b"]))
    def end(self, session: str) -> None:
        self.runner.run(self.store.end_session(session, why="done", at_s=2.0))
        for turn, state in self.states.items():
            if state is State.SERVED and self.sessions[turn] == session:
                if self.thumbs.get(turn):
                    self.states[turn] = State.PAIRED
                else:
                    self.states[turn], self.reasons[turn] = State.DROPPED, DropReason.NO_NEXT_STATE

    @rule()
    def reopen(self) -> None:
        self.runner.run(self.store.aclose())
        self.store = self.runner.run(Store.open(self.home))

    @invariant()
    def the_store_agrees(self) -> None:
        counts = self.runner.run(self.store.counts())
        main = [state for state in self.states.values() if state is not None]
        assert counts["main"] == len(main) == sum(counts[state.value] for state in State)
        assert counts["side"] == len(self.states) - len(main)
        for state in State:
            assert counts[state.value] == main.count(state)
        reasons = {name: many for name, many in counts.items() if name.startswith("dropped.")}
        assert sum(reasons.values()) == counts["dropped"]
        for reason in DropReason:
            expected = sum(1 for turn, why in self.reasons.items() if why is reason)
            assert reasons.get(f"dropped.{reason.value}", 0) == expected
        assert len(self.runner.run(self.store.ready(limit=99))) == main.count(State.READY)
        assert len(self.runner.run(self.store.paired(limit=99))) == main.count(State.PAIRED)

    def teardown(self) -> None:
        self.runner.run(self.store.aclose())
        self.runner.close()
        shutil.rmtree(self.home)


Ledger.TestCase.settings = settings(
    max_examples=20, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)
test_every_turn_has_one_state_and_the_counts_add_up = Ledger.TestCase
