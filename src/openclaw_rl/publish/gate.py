"""The gate: the checks of a version before it is served, on prompts of its future users."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from openclaw_rl.core.protocols import Engine, Renderer
from openclaw_rl.core.sample import Sample
from openclaw_rl.core.turn import Turn
from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.core.width import Width
from openclaw_rl.publish import replies, wishes
from openclaw_rl.publish.divergence import distance
from openclaw_rl.publish.replies import BaseReplies, DepartureShare, TrialPrompt, mean_departure
from openclaw_rl.publish.settings import PublishSettings
from openclaw_rl.publish.tasks import TaskProbe
from openclaw_rl.publish.trial_prompts import TrialPrompts, VersionLessons
from openclaw_rl.publish.tried_turns import TriedTurns
from openclaw_rl.publish.versions import ancestors
from openclaw_rl.publish.wishes import MeanShift, RepeatedWishes, most_against, without_yielding
from openclaw_rl.store.db import Store
from openclaw_rl.store.rows import VersionRow

log = logging.getLogger(__name__)
LONGER = 16.0  # tokens by which a trial reply may be longer in any case
SHORTER = 4.0  # and by which it may be shorter
LEAST_UNASKED = 2  # generated requests: one alone is not enough evidence
DOUBT = 4.0  # a share of departures within a quarter and twice its bound is measured on more prompts
DOUBT_ABOVE = 2.0
MORE = 2  # times `probes`: how many more
MISSED = 1 / 16  # share of a step's checks from which on it counts as having failed at them
MOST_UNASKED = 48  # generated requests that a doubtful version is tried on
MANY_UNASKED, OF_MANY = 24, 1.5  # from so many on their bound is that of other users' requests, times this
DEPARTING = (
    ("gate_departs", "its users"),
    ("gate_departs_others", "others"),
    ("gate_departs_unasked", "generated requests"),
)


@dataclass(frozen=True, slots=True)
class GateReport:
    """Whether a version may be served, why (not), and what was measured."""

    passed: bool
    why: str
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class GateTrial:
    """One version being tried: the measurements so far, and the reason against it.

    `later` are the requests that followed a complaint (`TriedTurns.later`).
    """

    candidate: VersionRow
    parent: PolicyVersion
    turns: Sequence[Turn]
    later: Collection[str]
    metrics: dict[str, float] = field(default_factory=dict)
    against: str = ""
    trials: Sequence[replies.TrialReply] = ()


@dataclass(slots=True)
class Gate:
    """Tries versions that the engine has loaded. `stop_ids` end an answer; `tasks` are the owner's own probe tasks."""

    store: Store
    engine: Engine
    renderer: Renderer
    stop_ids: tuple[int, ...]
    settings: PublishSettings
    tasks: TaskProbe | None = None
    width: Width = field(default_factory=Width)
    _base: BaseReplies = field(init=False)
    _prompts: TrialPrompts = field(init=False)
    turns: TriedTurns = field(init=False)

    def __post_init__(self) -> None:
        self._base = BaseReplies(self.engine, self.stop_ids, self.settings.probe_tokens)
        self._prompts = TrialPrompts(self.store, self.engine, self.renderer, self._base, self.stop_ids, self.width)
        self.turns = TriedTurns(self.store, self.renderer, self.settings)

    def let_go(self) -> None:
        """Removes all turns from memory."""
        self._prompts.let_go()

    async def check(self, candidate: VersionRow, *, parent: PolicyVersion) -> GateReport:
        """The report. Raises EngineError or RequestError if the engine cannot try it now."""
        if not self.settings.gate:
            return GateReport(True, "not tried: the gate is off")
        later = await self.turns.later()
        turns = await self.turns.recent(candidate, later)
        attempt = GateTrial(candidate, parent, turns, later, {"gate_turns": float(len(turns))})
        for measure in (self._near, self._speaks, self._departs, self._follows, self._knows):
            await measure(attempt)
            if attempt.against:
                return GateReport(False, attempt.against, attempt.metrics)
        return GateReport(
            True, "passed the gate" if turns else "passed the gate: no prompts to try it on yet", attempt.metrics
        )

    async def departs(self, turn: Turn, version: PolicyVersion, known: VersionLessons) -> float:
        """How likely a version departs in its reply to a turn's request, or along the base model's; from 0 to 1.

        Raises EngineError or RequestError if the engine cannot try it now.
        """
        (prompt,) = await self._prompts.of_turns([turn], known)
        found = await self._base.departed(prompt, await self._base.reply(prompt.bare, version), version)
        return max(found.own, found.shown)

    async def _near(self, attempt: GateTrial) -> None:
        """Checks that it is near enough to the base model, with finite numbers."""
        nats = await distance(
            self.engine,
            attempt.turns[: self.settings.kl_turns],
            attempt.candidate.version,
            top_k=self.settings.kl_top_k,
        )
        if nats is None:
            return
        if not math.isfinite(nats):
            attempt.against = "its log-probabilities are not finite"
            return
        attempt.metrics["gate_kl"] = nats
        if nats > self.settings.margins.kl_max:
            attempt.against = (
                f"it is {nats:.2f} nats a token from the base model; {self.settings.margins.kl_max:g} are allowed"
            )

    async def _speaks(self, attempt: GateTrial) -> None:
        """Checks that trial replies are sound, and neither longer nor more repetitive than the earlier replies."""
        probes = attempt.turns[: self.settings.probes]
        trials = replies.Trials(self.renderer, self._base)
        tried = await trials.replies(probes, attempt.candidate.version)
        tried = await self._excused(attempt, trials, tried)
        faulty = [trial for trial in tried if trial.fault]
        attempt.metrics["gate_faults"] = float(len(faulty))
        if faulty:
            before = await trials.replies([trial.turn for trial in faulty], attempt.parent)
            were = sum(bool(trial.fault) for trial in before)
            attempt.metrics["gate_faults_before"] = float(were)
            if (len(faulty) - were) / len(probes) > self.settings.margins.probe_margin:
                kinds = ", ".join(sorted({trial.fault for trial in faulty}))
                attempt.against = (
                    f"{len(faulty)} of {len(probes)} trial replies are degenerate ({kinds}), {were} before"
                )
                return
        attempt.trials = [trial for trial in tried if not trial.fault]
        if attempt.trials:
            await self._compare(attempt, attempt.trials)

    async def _excused(
        self, attempt: GateTrial, trials: replies.Trials, tried: Sequence[replies.TrialReply]
    ) -> list[replies.TrialReply]:
        """The trial replies. One that does not end is given as many tokens as a wish makes the base model say."""
        endless = [trial.turn for trial in tried if trial.fault == replies.ENDLESS]
        wished = await self._wished_lengths(attempt, endless)
        longer = {turn.id: wished[turn.id] for turn in endless if wished[turn.id] > len(turn.completion.tokens)}
        version = attempt.candidate.version
        return [
            await trials.reply(trial.turn, version, beside=longer[trial.turn.id]) if trial.turn.id in longer else trial
            for trial in tried
        ]

    async def _wished_lengths(self, attempt: GateTrial, turns: Sequence[Turn]) -> dict[str, int]:
        """The tokens of the earlier reply to each turn's prompt, or of the base model's given the users' hints if more.

        By the turn's id. Where the base model's replies do not end even without hints, no wish makes them longer. Steps
        of episodes have no wishes.
        """
        found = {turn.id: len(turn.completion.tokens) for turn in turns}
        asked = [turn for turn in turns if turn.step is None]
        prompts = await self._prompts.of_turns(asked, await self._lessons(attempt, asked)) if asked else []
        for turn, prompt in zip(asked, prompts, strict=True):
            bare = TrialPrompt(turn.prompt, (turn.prompt,))
            usual, told = [len((await self._base.said(one)).tokens) for one in (bare, prompt)]
            if told > usual:
                found[turn.id] = max(found[turn.id], told)
        return found

    async def _lessons(self, attempt: GateTrial, turns: Sequence[Turn]) -> VersionLessons:
        samples = await self.store.effects.samples(attempt.candidate.turns)
        taught = [hint.text for sample in samples if not sample.is_promoted for hint in sample.hints]
        return VersionLessons(taught, list(dict.fromkeys(turn.user for turn in reversed(turns))))

    async def _compare(self, attempt: GateTrial, sound: Sequence[replies.TrialReply]) -> None:
        length, given = replies.lengths(sound)
        again, was = replies.repetitions(sound)
        attempt.metrics |= {"gate_length": length, "gate_repetition": again}
        most = self._longest(given)
        if length > most:
            wished = await self._wished_lengths(attempt, [trial.turn for trial in sound])
            most = self._longest(sum(wished.values()) / len(wished))
        if length > most:
            attempt.against = f"its trial replies have {length:.0f} tokens, {given:.0f} before; {most:.0f} are allowed"
        elif again > was + self.settings.margins.repetition_margin:
            attempt.against = f"{again:.0%} of its trial replies repeats itself, {was:.0%} before"

    def _longest(self, tokens: float) -> float:
        return self.settings.margins.length_max * tokens + LONGER

    async def _departs(self, attempt: GateTrial) -> None:
        """Checks that its replies contain only what the base model would say, with or without its users' hints.

        Steps of episodes are left out: outcomes should teach what the base model would not say. The version's replies
        in conversations are still checked; what follows a complaint only if there is nothing else (`after_complaints`).
        """
        trials = [trial for trial in attempt.trials if trial.turn.step is None]
        attempt.trials = [trial for trial in trials if trial.turn.id not in attempt.later] or trials
        if not attempt.trials:
            return
        turns = [trial.turn for trial in attempt.trials]
        known = await self._lessons(attempt, turns)
        own = await self._prompts.of_turns(turns, known)
        further = await self.turns.others(attempt.candidate, attempt.turns[: self.settings.probes], attempt.later)
        most = self.settings.probe_others // 2
        others = await self._prompts.of_turns(further[:most], known)
        unasked = await self._prompts.of_nobody(known, own, most=self.settings.probe_others - len(others))
        unasked = unasked if len(unasked) >= LEAST_UNASKED else []
        groups = await asyncio.gather(
            self._departures(attempt, own, [trial.said for trial in attempt.trials]),
            self._departures(attempt, others),
            self._departures(attempt, unasked),
        )
        await self._compare_length(attempt, own, groups[0])
        if not attempt.against:
            users = {turn.user for turn in turns}
            of_them = [turn for turn in further[most:] if turn.user in users]
            await self._add_if_doubtful(attempt, groups[0], self.settings.margins.departs_max, of_them, known)
            await self._add_if_doubtful(
                attempt, groups[1], self.settings.margins.departs_others_max, further[most:], known
            )
            await self._add_unasked_if_doubtful(attempt, groups[2], unasked, own, known)
            self._weigh(attempt, groups)

    async def _departures(
        self, attempt: GateTrial, prompts: Sequence[TrialPrompt], said: Sequence[replies.ScoredReply] = ()
    ) -> list[DepartureShare]:
        """How likely the version departs on each prompt; `said` are its replies, if known."""
        version = attempt.candidate.version
        said = said or await asyncio.gather(*(self._base.reply(prompt.bare, version) for prompt in prompts))
        asked = zip(prompts, said, strict=True)
        return await asyncio.gather(*(self._base.departed(prompt, reply, version) for prompt, reply in asked))

    async def _add_if_doubtful(
        self,
        attempt: GateTrial,
        group: list[DepartureShare],
        bound: float,
        turns: Sequence[Turn],
        known: VersionLessons,
    ) -> None:
        """Adds further turns to a group whose departures are near their bound.

        A version may get one problem in six wrong: a few prompts may then show little of it.
        """
        if group and bound / DOUBT < mean_departure(group) <= DOUBT_ABOVE * bound:
            more = await self._prompts.of_turns(turns[: MORE * self.settings.probes], known)
            group += await self._departures(attempt, more)

    async def _add_unasked_if_doubtful(
        self,
        attempt: GateTrial,
        group: list[DepartureShare],
        unasked: Sequence[TrialPrompt],
        own: Sequence[TrialPrompt],
        known: VersionLessons,
    ) -> None:
        """Adds many generated requests if the first ones depart, or the step failed at checks.

        Nobody may have asked for the kind of thing that a version has lost.
        """
        doubt = self.settings.margins.departs_others_max / DOUBT
        step = attempt.candidate.metrics
        failed = step.get("checks_missed", 0.0) >= max(1.0, MISSED * step.get("checks", 0.0))
        if self.settings.probe_others and (failed or (group and mean_departure(group) > doubt)):
            many = await self._prompts.of_nobody(known, own, most=MOST_UNASKED, in_doubt=True)
            tried = {prompt.bare.tokens for prompt in unasked}
            more = [one for one in many if one.bare.tokens not in tried]
            found = await self.width.each(more, lambda prompt: self._departures(attempt, [prompt]))
            group += [share for shares in found for share in shares]
            if len(group) < LEAST_UNASKED:
                group.clear()

    async def _compare_length(
        self, attempt: GateTrial, prompts: Sequence[TrialPrompt], own: Sequence[DepartureShare]
    ) -> None:
        """Checks that its replies are not much shorter than earlier ones and the base model's, in all its readings."""
        length = sum(len(one.reply.tokens) for one in own) / len(own)
        told = sum(len(one.base.said.tokens) for one in own) / len(own)
        _, given = replies.lengths(attempt.trials)
        attempt.metrics["gate_length_told"] = told
        least = self.settings.margins.length_min
        if length + SHORTER >= least * min(told, given):
            return
        shortest = sum([await self._base.shortest(prompt) for prompt in prompts]) / len(prompts)
        if length + SHORTER < least * shortest:
            attempt.against = (
                f"its trial replies have {length:.0f} tokens, {given:.0f} before, and {told:.0f} are those of the base "
                "model with its users' hints in the prompt"
            )

    def _weigh(self, attempt: GateTrial, groups: Sequence[Sequence[DepartureShare]]) -> None:
        margins = self.settings.margins
        unasked = margins.departs_unasked_max
        if len(groups[2]) >= MANY_UNASKED:
            unasked = min(unasked, OF_MANY * margins.departs_others_max)
        bounds = (margins.departs_max, margins.departs_others_max, unasked)
        for group, bound, (name, whose) in zip(groups, bounds, DEPARTING, strict=True):
            if not group:
                continue
            share = attempt.metrics[name] = mean_departure(group)
            attempt.metrics[f"{name}_of"] = float(len(group))
            if share > bound and not attempt.against:
                attempt.against = (
                    f"about {share:.0%} of its replies to {whose} are ones that the base model would not give, with "
                    f"the wish in its prompt or without it; {bound:.0%} are allowed"
                )

    async def _follows(self, attempt: GateTrial) -> None:
        """Checks that it follows the wishes it was trained for no worse, and not at the cost of earlier ones."""
        own = self.turns.short(await self.store.effects.samples(attempt.candidate.turns))
        own = sorted(own, key=lambda sample: sample.is_promoted)[: self.settings.wish_turns]  # rehearsal samples last
        before, after, margin = attempt.parent, attempt.candidate.version, self.settings.margins.wish_margin
        top_k = self.settings.kl_top_k
        wish = wishes.mean(await wishes.gaps(self.engine, own, before=before, after=after, top_k=top_k))
        if wish is not None:
            attempt.metrics |= {"gate_wish_before": wish.before, "gate_wish": wish.after}
            if wish.rise > margin:
                attempt.against = (
                    f"it is further from what its own hints ask for: {wish.after:.2f} nats a token, "
                    f"{wish.before:.2f} before"
                )
                return
        praised = await wishes.approval(self.engine, own, before=before, after=after)
        if praised is not None:
            attempt.metrics["gate_approval"] = praised.rise
            if praised.rise < -margin:
                attempt.against = f"it follows its own scores worse, by {-praised.rise:.2f} nats a token"
                return
        await self._keeps(attempt, own, won=0.0 if wish is None else max(0.0, -wish.rise))

    async def _keeps(self, attempt: GateTrial, own: Sequence[Sample], *, won: float) -> None:
        """Checks that it follows earlier wishes no worse, or by no more than it `won` for its own, in nats a token.

        If a user asked for the same before, and the gate refused it for an earlier wish of theirs, that wish yields.
        """
        before, after, most = attempt.parent, attempt.candidate.version, max(self.settings.margins.wish_margin, won)
        kept = wishes.still_wished(await self.turns.kept(attempt.candidate), own)[: self.settings.wish_turns]
        held = await wishes.gaps(self.engine, kept, before=before, after=after, top_k=self.settings.kl_top_k)
        others = wishes.mean(held)
        if others is None:
            return
        if others.rise > most:
            insisting = RepeatedWishes(
                self.store, self.engine, self.renderer, self.settings.margins.wish_margin, self.settings.kl_top_k
            )
            refusals = await insisting.refusals(attempt.candidate, own)
            attempt.metrics["gate_yielded"] = float(refusals.total())
            held = without_yielding(held, refusals)
            others = wishes.mean(held) or MeanShift(0.0, 0.0)
        attempt.metrics |= {"gate_kept_before": others.before, "gate_kept": others.after}
        if others.rise > most:
            log.info("version=%s gives up most of what a hint of turn=%s asks for", after, most_against(held).turn)
            attempt.against = (
                f"it is further from what earlier hints ask for: {others.after:.2f} nats a token, "
                f"{others.before:.2f} before"
            )

    async def _knows(self, attempt: GateTrial) -> None:
        """Checks that it solves the probe tasks as well as the served version, and as the best of its ancestors."""
        if self.tasks is None or not self.tasks.tasks:
            return
        share = await self.tasks.share(attempt.candidate.version)
        best = await self.tasks.share(attempt.parent)
        many = float(len(self.tasks.tasks))
        attempt.metrics |= {"gate_tasks": share, "gate_tasks_of": many}
        for row in ancestors(await self.store.versions(), attempt.candidate.version):
            if row.metrics.get("gate_tasks_of") == many:
                best = max(best, row.metrics.get("gate_tasks", 0.0))
        if best - share > self.settings.task_margin + 1e-9:
            attempt.against = f"it does {share:.0%} of {many:.0f} probe tasks, {best:.0%} were done before"
