"""Episodes as samples: once a group is complete, each step gets the rewards that its own reward is compared with.

    r_k = R + trainer.method.step_coefficient * step score,  R = outcome (+ the penalty of an overlong reply)

The trainer computes the advantage from the rewards in the sample (`Sample.peers`), so that a batch need not contain a
whole group. Episodes that failed because of an environment or a machine are masked: they have no reward.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from types import MappingProxyType

from openclaw_rl.core.episode import MASKED, EpisodeEnd, EpisodeState, FailureClass, has_spread, overlong_penalty
from openclaw_rl.core.facts import StoreFacts
from openclaw_rl.core.ledger import DropReason, State
from openclaw_rl.core.protocols import Renderer, StepJudge
from openclaw_rl.core.sample import Outcome, Peer, Sample
from openclaw_rl.core.scope import trained_scopes
from openclaw_rl.core.stage import StageReport
from openclaw_rl.core.turn import Turn
from openclaw_rl.core.verdict import Verdict, VerdictSource
from openclaw_rl.errors import DamageError, JudgeError
from openclaw_rl.store.db import Store
from openclaw_rl.store.tables.episodes import EpisodeRow, GroupKey, StepRow
from openclaw_rl.teach.admit import unfitness
from openclaw_rl.teach.assemble import sample_of
from openclaw_rl.teach.rules import LearningRules
from openclaw_rl.teach.settings import EpisodeSettings, StepGrouping
from openclaw_rl.teach.situations import Situation, neighbours, situation_of

log = logging.getLogger(__name__)
POLL_S = 5.0  # groups are checked at least this often, because some only wait for time to pass
NAMED = 5  # groups for which the status says why they wait
NO_SITUATIONS: Mapping[str, Situation] = MappingProxyType({})
UNSAID = frozenset({DropReason.NOT_FOLLOWED, DropReason.NO_NEXT_STATE, DropReason.CANCELLED, DropReason.DAMAGED})


@dataclass(frozen=True, slots=True)
class EpisodeStatus:
    """The status of episodes, for people: groups that wait and why, and what was settled since the start."""

    waiting: int = 0
    why_waiting: tuple[str, ...] = ()
    settled: int = 0
    samples: int = 0
    masked: int = 0  # settled episodes whose failure is not the policy's fault
    counts: Mapping[str, int] = field(default_factory=dict)  # of all episodes in the store, by state and failure class


@dataclass(slots=True)
class OutcomeStage:
    """Settles groups of episodes as they become complete: their steps become samples, or are dropped.

    `rules` are those by which any turn becomes a sample. If there is a `judge`, it scores steps without a score. While
    it is unavailable, groups with such steps wait.
    """

    store: Store
    renderer: Renderer
    settings: EpisodeSettings
    rules: LearningRules
    step_coefficient: float
    judge: StepJudge | None = None
    now: Callable[[], float] = time.time
    status: EpisodeStatus = field(default_factory=EpisodeStatus)
    _unvoted: set[str] = field(default_factory=set, init=False)  # turns of steps that the judge cast no vote on

    @property
    def name(self) -> str:
        """Its name as a stage."""
        return "episodes"

    def let_go(self) -> None:
        """Removes what is remembered of turns, as after a restart."""
        self.status = replace(self.status, waiting=0, why_waiting=())
        self._unvoted.clear()

    def gauges(self) -> Mapping[str, float]:
        """How many groups wait, and how many episodes were settled and masked since the start."""
        status = self.status
        return {
            "episode_groups_waiting": status.waiting,
            "episodes_settled": status.settled,
            "episodes_masked": status.masked,
        }

    async def report(self, facts: StoreFacts) -> StageReport:
        """The state of this stage. It is settled if no ended episode is left, or if groups are known to wait."""
        counts = await self.store.episodes.counts()
        is_settled = counts["ended"] == 0 or self.status.waiting > 0
        return StageReport(self.name, replace(self.status, counts=counts), is_settled)

    async def run(self) -> None:
        """Settles groups until cancelled."""
        while True:
            await self.once()
            await self.store.episodes.wait_ended(timeout_s=POLL_S)

    async def once(self) -> bool:
        """Ends idle episodes, and checks every group with an episode that waits; True if an episode was settled."""
        now_s, idle_s = self.now(), self.settings.idle_s
        lost = EpisodeEnd(None, FailureClass.INFRASTRUCTURE, f"there was no request of it for {idle_s:g} s")
        for name in await self.store.episodes.end_silent(before_s=now_s - idle_s, end=lost, at_s=now_s):
            log.warning("ended episode=%s: %s", name, lost.why)
        waiting: list[str] = []
        has_moved = False
        for key in await self.store.episodes.waiting_groups():
            rows = await self.store.episodes.of_group(key)
            for row in rows:
                if row.episode.state is EpisodeState.ENDED and row.episode.reward is None:
                    has_moved = await self.settle(row, {}) or has_moved
            left = _unsettled(rows)
            why = why_group_waits(rows, now_s, self.settings) if left else ""
            if left and not why and self.judge is not None:
                why = await self._scored(rows, self.judge)
                rows = await self.store.episodes.of_group(key)
                left = _unsettled(rows)
            if why:
                waiting.append(f"{_named(key)}: {why}")
                continue
            rewards, peers = await self._compared(rows) if left else ({}, {})
            for row in left:
                has_moved = await self.settle(row, peers, rewards.get(row.episode.id)) or has_moved
        self.status = replace(self.status, waiting=len(waiting), why_waiting=tuple(waiting[:NAMED]))
        return has_moved

    async def _scored(self, rows: Sequence[EpisodeRow], judge: StepJudge) -> str:
        """Lets the judge score each step without a score. Returns why this is not finished; empty if it is."""
        kinds = {row.episode.id: row.episode.environment for row in rows}

        async def score(step: StepRow) -> str:
            held = await self.store.row(step.turn)
            if held is None or held.next_state is None:
                return ""
            try:
                found = await judge.step_score(held.turn, held.next_state, kinds[step.step.episode])
            except JudgeError as problem:
                return f"the judge did not score step {step.step.index} of {step.step.episode}: {problem}"
            if found is None:
                self._unvoted.add(step.turn)
            else:
                await self.store.episodes.score_step(step.turn, found)
            return ""

        open_steps = [step for step in graded_steps(rows) if step.score is None and step.turn not in self._unvoted]
        problems = [problem for problem in await asyncio.gather(*map(score, open_steps)) if problem]
        if not problems:  # the group is settled now
            self._unvoted -= {step.turn for step in graded_steps(rows)}
        return problems[0] if problems else ""

    async def _compared(self, rows: Sequence[EpisodeRow]) -> tuple[dict[str, float], dict[str, tuple[Peer, ...]]]:
        """The reward of each graded episode, by its id, and what each step of the group is compared with, by turn."""
        settings, turns = self.settings, dict[str, Turn]()
        needs_turns = settings.grouping is StepGrouping.SITUATION or settings.overlong_tokens
        for step in graded_steps(rows) if needs_turns else ():
            try:
                turn = await self.store.turn(step.turn)
            except DamageError:  # the step is compared by its index, and is itself dropped
                continue
            if turn is not None:
                turns[step.turn] = turn
        lengths = {name: len(turn.completion.tokens) for name, turn in turns.items()}
        rewards = rewards_of(rows, lengths, settings)
        by_situation = settings.grouping is StepGrouping.SITUATION
        situations = {name: situation_of(turn) for name, turn in turns.items()} if by_situation else {}
        peers = peers_of(rows, settings.grouping, situations, rewards)
        if by_situation:  # prompts are long: compared beside the loop that also serves tokens
            return rewards, await asyncio.to_thread(all_sharing, peers, turns)
        return rewards, peers

    async def settle(self, row: EpisodeRow, peers: Mapping[str, tuple[Peer, ...]], reward: float | None = None) -> bool:
        """Makes samples of an ended episode's steps, or drops them; False if its state has changed meanwhile.

        Without a `reward` the episode's outcome is the reward.
        """
        episode = row.episode
        if any(step.state in (State.SERVED, State.PAIRED) for step in row.steps):  # as a repair leaves them
            await self.store.episodes.judge_left(episode.id)
            found = await self.store.episodes.get(episode.id)
            if found is None:
                return False
            row = found
        samples: list[Sample] = []
        dropped: list[tuple[str, DropReason]] = []
        for step in row.steps:
            if step.state is State.JUDGED:
                made = await self._made(row, step, peers.get(step.turn, ()), reward)
                if isinstance(made, Sample):
                    samples.append(made)
                else:
                    dropped.append((step.turn, made))
        scopes = [(one, await self._scopes(one)) for one in samples]
        try:
            if not await self.store.episodes.settle(episode.id, scopes, dropped):
                return False
        except ValueError:
            log.info("not settled episode=%s: the state of one of its turns has changed", episode.id)
            return False
        why = dict(Counter(reason.value for _, reason in dropped))
        log.info("settled episode=%s outcome=%s samples=%d dropped=%s", episode.id, episode.reward, len(samples), why)
        self.status = replace(
            self.status,
            settled=self.status.settled + 1,
            samples=self.status.samples + len(samples),
            masked=self.status.masked + (not episode.failure.is_graded),
        )
        return True

    async def _made(
        self, row: EpisodeRow, step: StepRow, peers: tuple[Peer, ...], reward: float | None
    ) -> Sample | DropReason:
        """The step's sample, or why the step is dropped."""
        episode = row.episode
        if not episode.failure.is_graded or episode.reward is None:
            return MASKED[episode.failure]
        if (no_signal := silence(peers, self.step_coefficient)) is not None:
            return no_signal
        try:
            turn = await self.store.turn(step.turn)
        except DamageError:
            turn = None
        if turn is None:
            return DropReason.DAMAGED
        rules, most = self.rules, self.rules.max_sample_tokens
        may_teach = rules.may_teach is None or rules.may_teach(turn)
        unfit = unfitness(turn, may_teach=may_teach, max_tokens=most, weights_learn=rules.weights_learn)
        if unfit is not None:
            return unfit
        verdict = Verdict(turn.id, None, VerdictSource.ENVIRONMENT)
        sample = sample_of(turn, verdict, self.renderer, baseline=None, max_tokens=most)
        outcome = Outcome(episode.reward if reward is None else reward, episode.reward > 0, episode.why)
        return replace(sample, score=step.score, outcome=outcome, peers=peers, group=None)

    async def _scopes(self, sample: Sample) -> Sequence[str]:
        turn = await self.store.turn(sample.turn)
        agent = "" if turn is None else turn.agent
        return trained_scopes(self.rules.scopes, user=sample.user, agent=agent)


def why_group_waits(rows: Sequence[EpisodeRow], now_s: float, settings: EpisodeSettings) -> str:
    """What a group still waits for; empty if it is complete, or has waited long enough.

    An attempt that failed because of an environment or a machine does not count: another may take its place.
    """
    graded = sum(row.episode.reward is not None for row in rows)
    still = sum(row.episode.is_open for row in rows)
    sizes = [row.episode.group_size for row in rows if row.episode.group_size is not None]
    size, is_closed = max(sizes, default=None), any(row.episode.closes_group for row in rows)
    is_alone = all(row.episode.group is None for row in rows)
    is_complete = is_alone or is_closed or (size is not None and graded >= size)
    if is_complete and not still:
        return ""
    last_s = max(max(row.seen_s, row.episode.ended_s or 0.0) for row in rows)
    left_s = last_s + settings.group_wait_s - now_s
    if left_s <= 0:
        return ""
    expected = "its size was not given" if size is None else f"{graded} of {size} are graded"
    open_ones = f", {still} still open" if still else ""
    return f"{expected}{open_ones}; learned from incomplete in {left_s:.0f} s unless something happens"


def graded_steps(rows: Sequence[EpisodeRow]) -> list[StepRow]:
    """The steps of a group's graded episodes that may be compared."""
    return [
        step
        for row in rows
        if row.episode.reward is not None
        for step in row.steps
        if step.state is not None and step.reason not in UNSAID
    ]


def rewards_of(rows: Sequence[EpisodeRow], lengths: Mapping[str, int], settings: EpisodeSettings) -> dict[str, float]:
    """The reward of each graded episode, by its id: its outcome, and the penalty of its longest reply.

    R = outcome + overlong_penalty(longest reply) if `overlong_tokens` is set, else the outcome. `lengths` are the
    replies' lengths in tokens, by turn. Source: arXiv 2503.14476, for one reply.
    """
    found: dict[str, float] = {}
    for row in rows:
        if row.episode.reward is None:
            continue
        longest = max((lengths.get(step.turn, 0) for step in row.steps), default=0)
        most, cache = settings.overlong_tokens, settings.overlong_cache
        found[row.episode.id] = row.episode.reward + (
            overlong_penalty(longest, longest=most, cache=cache) if most else 0.0
        )
    return found


def peers_of(
    rows: Sequence[EpisodeRow],
    grouping: StepGrouping,
    situations: Mapping[str, Situation] = NO_SITUATIONS,
    rewards: Mapping[str, float] | None = None,
) -> dict[str, tuple[Peer, ...]]:
    """The steps that each turn of a group's graded episodes is compared with, by turn; its own step is among them.

    `rewards` are those of the episodes, by id. Without them the outcomes are used.
    """
    steps = graded_steps(rows)
    own = {row.episode.id: row.episode.reward or 0.0 for row in rows} if rewards is None else rewards
    made = {step.turn: Peer(step.turn, own[step.step.episode], step.score) for step in steps}
    if grouping is StepGrouping.EPISODE:
        firsts = {step.step.episode: replace(made[step.turn], score=None) for step in reversed(steps)}
        return {
            step.turn: tuple(
                made[step.turn] if name == step.step.episode else firsts[name] for name in reversed(firsts)
            )
            for step in steps
        }
    if grouping is StepGrouping.SITUATION:
        found = neighbours(steps, situations)
    elif grouping is StepGrouping.TASK:
        found = dict.fromkeys(made, tuple(made))
    else:
        found = {
            step.turn: tuple(other.turn for other in steps if other.step.index == step.step.index) for step in steps
        }
    return {turn: tuple(made[other] for other in others) for turn, others in found.items()}


def all_sharing(peers: Mapping[str, tuple[Peer, ...]], turns: Mapping[str, Turn]) -> dict[str, tuple[Peer, ...]]:
    """`sharing` for each step of a group."""
    return {name: sharing(name, found, turns) for name, found in peers.items()}


def sharing(name: str, peers: tuple[Peer, ...], turns: Mapping[str, Turn]) -> tuple[Peer, ...]:
    """A step's peers with how many first tokens of its reply each has said, too, after the same prompt."""
    if name not in turns:
        return peers
    own = turns[name]
    return tuple(replace(peer, shared=_begun_alike(own, turns.get(peer.turn))) for peer in peers)


def _begun_alike(own: Turn, other: Turn | None) -> int:
    """How many first tokens two replies to the same prompt have in common; 0 if their prompts differ."""
    if other is None or other.prompt.tokens != own.prompt.tokens:
        return 0
    pairs = zip(own.completion.tokens, other.completion.tokens, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def silence(peers: Sequence[Peer], step_coefficient: float) -> DropReason | None:
    """Why a step teaches nothing, compared with its peers; None if it teaches something.

    Rewards that are all equal teach nothing. If a step has no peer but itself, its reward must not be 0.
    """
    rewards = [peer.outcome + step_coefficient * (peer.score or 0.0) for peer in peers]
    if len(rewards) == 1:
        return None if rewards[0] else DropReason.NO_SIGNAL
    return None if rewards and has_spread(rewards) else DropReason.NO_SPREAD


def _unsettled(rows: Sequence[EpisodeRow]) -> list[EpisodeRow]:
    """The graded episodes that have ended and are not settled yet."""
    return [row for row in rows if row.episode.state is EpisodeState.ENDED and row.episode.reward is not None]


def _named(key: GroupKey) -> str:
    return f"task {key.task}" if key.group is None else f"task {key.task}, group {key.group}"
