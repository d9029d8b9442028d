"""The local trainer: a step over samples, and versions to continue from."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import torch
from torch import Tensor

from openclaw_rl.algo.advantage import kept_advantage
from openclaw_rl.algo.methods.opd import hindsight_advantage
from openclaw_rl.core.adapter import NO_NEARER, Adapter, StepReport, digest_of_folder
from openclaw_rl.core.ledger import DropReason
from openclaw_rl.core.sample import Sample
from openclaw_rl.core.version import BASE, PolicyVersion
from openclaw_rl.errors import AdapterError
from openclaw_rl.trainers import checkpoint
from openclaw_rl.trainers.batch import ConstantPrompts, PassOutput, balanced, read, token_logp
from openclaw_rl.trainers.checkpoint import CheckpointCache
from openclaw_rl.trainers.checks import MISSED_LEFT, MORE, ROUNDS, go_back, missed
from openclaw_rl.trainers.content import form_ids, is_content
from openclaw_rl.trainers.descent import (
    GENTLER,
    Descent,
    DescentResult,
    GradientStats,
    MatrixAdam,
    ProgressReporter,
    Report,
    adamw,
    settled,
    silent,
    walked,
)
from openclaw_rl.trainers.full import FullModel, load_teacher, open_full
from openclaw_rl.trainers.lessons import Lesson, TermWeights, check_lessons, counts, lessons, shares
from openclaw_rl.trainers.model import CausalModel, Speaker, learning_rate, load
from openclaw_rl.trainers.objective import LossSums, Objective, Targets, anchor_form, anchored
from openclaw_rl.trainers.ranks import ALONE, Ranks, clip, is_divided, like, on_first, use_device
from openclaw_rl.trainers.references import SamplingPolicies, TeacherReader
from openclaw_rl.trainers.settings import TeacherKind, TrainerSettings
from openclaw_rl.weights.lending import Loans

MOMENTS = ("exp_avg", "exp_avg_sq")


class LoraTrainer:
    """Trains LoRA weights of a frozen model, or every weight of one; `core.protocols.Trainer`.

    Equal state, settings and samples give equal bits on one machine.
    """

    def __init__(
        self,
        model: CausalModel | FullModel,
        settings: TrainerSettings,
        teacher: Speaker | None = None,
        *,
        ranks: Ranks = ALONE,
    ) -> None:
        self.model = model
        self._ranks = ranks
        self._reader = TeacherReader(model, settings, teacher)  # `teacher` is a separate model, or None
        self._settings = settings
        self._method = settings.method
        self._objective = Objective(model, settings.method, settings.logits_per_chunk, teacher or model.teacher)
        self._parameters = dict(model.named())
        self._optimizer = self._fresh_optimizer()
        self._mover: torch.optim.Optimizer = self._optimizer  # the one that this step's updates are taken with
        self._ema: dict[str, Tensor] = {}
        self._steps = 0  # updates of the optimiser that remembers earlier steps
        self._upon: checkpoint.SharedAdapter | None = None
        self._shelf = CheckpointCache(settings.scopes_in_memory if ranks.is_first else 0)
        self._heard = ProgressReporter(silent)
        self._samplers = SamplingPolicies(model, settings, teacher or model.teacher)
        self._beside: Path | None = None  # a version's folder; those of others are next to it
        self._spoken: PolicyVersion | None = BASE  # the version of these weights; None once they have changed
        self.restore(None)

    @classmethod
    def open(
        cls, folder: Path, settings: TrainerSettings, ranks: Ranks = ALONE, *, loans: Loans | None = None
    ) -> LoraTrainer:
        """A trainer for the model of a folder, as one of these ranks. Raises ModelError, ConfigError.

        With `loans`, frozen weights may be another process's: check those before and after each step.
        """
        use_device(settings, ranks)
        model: CausalModel | FullModel
        if settings.parameters == "full":
            model = open_full(folder, settings, ranks)
        else:
            model = load(folder, settings, ranks, loans=loans)
        teacher = None
        if settings.method.teacher is TeacherKind.MODEL:
            named, size = Path(settings.method.teacher_model), model.vocabulary
            teacher = load_teacher(named, settings, student=folder, vocabulary=size, ranks=ranks, loans=loans)
        return cls(model, settings, teacher, ranks=ranks)

    def step(self, samples: Sequence[Sample], report: Report = silent, *, gentleness: int = 0) -> StepReport:
        """One step of at most `trainer.updates` updates, until `trainer.enough`; its metrics are those of the first.

        An update that leads away from the teacher is undone and tried again half as large. If it then fails at checks,
        it goes on with these, up to twice, for at least a quarter of those updates each time, and ends halfway from
        where it began to go on. If nothing would be learned or a loss is not finite, no step is taken; then restore the
        weights. The first rate is multiplied by 0.3 ** `gentleness`.
        """
        began_s = time.perf_counter()
        dropped = [(sample.turn, reason.value) for sample in samples if (reason := self._unusable(sample)) is not None]
        unusable = {turn for turn, _ in dropped}
        usable = [sample for sample in samples if sample.turn not in unusable]
        taught = lessons(usable, self._method)
        if not any(one.has_signal for one in taught):
            return StepReport(False, {}, tuple(dropped), "no sample carries a signal for this method")
        most = self._most_updates(taught)
        # updates that may be undone need a distance, and memory for the weights a second time
        may_undo = most > 1 and self._settings.parameters == "lora"
        self._mover = MatrixAdam(self._parameters.values(), self._settings) if may_undo else self._optimizer
        self._heard = ProgressReporter(report, most=most, enough=self._settings.enough)
        share = GENTLER**gentleness
        walk = self._walked(taught, most, share)
        held = check_lessons(usable, self._method) if most > 1 and walk.updates and walk.not_finite is None else []
        walk, far = self._checked(walk, taught, held, most, share)
        self._optimizer.zero_grad(set_to_none=True)
        if walk.not_finite is not None:
            dropped += [(turn, DropReason.NOT_FINITE.value) for turn in walk.not_finite]
            return StepReport(False, {}, tuple(dropped), "the loss or its gradient is not finite")
        self._spoken = None
        self._follow()
        self._steps += walk.updates if self._mover is self._optimizer else 0
        metrics = (
            walk.first.metrics()
            | counts(taught)
            | {
                "grad_norm": walk.norm,
                "loss_distill_last": walk.distance,
                "updates": float(walk.updates),
                "updates_undone": float(walk.undone),
                "checks": float(len(held)),
                "checks_missed": float(far),
                "old_logp_missing": self._ranks.summed([self._samplers.missing])[0],
                "seconds": time.perf_counter() - began_s,
            }
        )
        if walk.updates == 0:
            return StepReport(False, metrics, tuple(dropped), NO_NEARER)
        return StepReport(True, metrics, tuple(dropped))

    def _walked(
        self, taught: Sequence[Lesson], most: int, share: float, *, enough: float | None = None
    ) -> DescentResult:
        """Takes at most this many updates on these lessons; the first rate is multiplied by `share`."""
        own, weights = self._own_part(taught, shares(taught, self._method), most)
        targets = self._targets(own, weights, form=form_ids(taught), is_once=most == 1)
        passes = self._passes(own, most)
        return walked(
            self._descent(most, share),
            lambda: self._gradient(own, targets, passes()),
            lambda: self._distance(targets, passes()),
            most=most,
            enough=self._settings.enough if enough is None else enough,
            arrived=self._heard.updated,
        )

    def _checked(
        self, walk: DescentResult, taught: Sequence[Lesson], held: Sequence[Lesson], most: int, share: float
    ) -> tuple[DescentResult, int]:
        """The result of a step that goes on with those of the `held` checks at which it fails, and how many these are.

        They are read again afterwards: what was mended for some may be lost for others. The step ends halfway between
        the weights before it went on and those after, if it may undo updates and so has the memory for both. The
        result's distance is the one after.
        """
        far: list[Lesson] = []
        before = self.model.weights() if held and self._mover is not self._optimizer else {}
        for _ in range(ROUNDS if held else 0):
            known = {id(one) for one in far}
            now = missed(self.model, [one for one in held if id(one) not in known], self._settings, self._ranks)
            if not now:
                break
            far += now
            self._spoken = None
            left = max(most - walk.updates, most // MORE, 2)
            self._heard.goes_on(walk.updates, most=left, enough=MISSED_LEFT)
            walk = walk.then(self._walked([*taught, *far], left, share, enough=MISSED_LEFT))
        go_back(self._parameters, before)
        return walk, len(far)

    def _own_part(
        self, taught: Sequence[Lesson], weights: Sequence[TermWeights], most: int
    ) -> tuple[Sequence[Lesson], Sequence[TermWeights]]:
        """This rank's part of the batch; a token's weights are those in the whole batch."""
        if self._ranks.count == 1:
            return taught, weights
        parts = balanced([one.reading() for one in taught], self._ranks.count, updates=most)
        own = parts[self._ranks.number]
        return [taught[index] for index in own], [weights[index] for index in own]

    def _descent(self, most: int, share: float) -> Descent:
        """Takes the updates, and undoes bad ones if it can."""
        can_undo = self._mover is not self._optimizer
        first = share * float(self._mover.param_groups[0]["lr"])
        if most == 1:
            first *= settled(self._steps + 1, self._settings.settle_after)
        return Descent(self._mover, self._parameters, can_undo=can_undo, first=first)

    def _most_updates(self, taught: Sequence[Lesson]) -> int:
        """More than one only toward a distribution, which shows how far to go: a score or an advantage does not."""
        if any(one.hints and (one.is_taught or self._method.moves_to_target) for one in taught):
            return self._settings.updates
        return 1

    def _passes(self, taught: Sequence[Lesson], most: int) -> Callable[[], Iterator[PassOutput]]:
        """What each update reads: only the replies if prompts are constant, else everything."""
        settings, readings = self._settings, [one.reading() for one in taught]
        is_constant = settings.prompts == "constant" or (
            settings.prompts == "auto" and settings.parameters == "lora" and most > 1
        )
        if is_constant:
            return ConstantPrompts(self.model, readings, settings.max_tokens_per_pass, self._heard.read).passes
        return lambda: read(self.model, readings, settings.max_tokens_per_pass)

    def _gradient(
        self, taught: Sequence[Lesson], targets: Sequence[Targets], passes: Iterable[PassOutput]
    ) -> GradientStats:
        """Leaves the clipped gradient in the weights."""
        tally = LossSums()
        self._optimizer.zero_grad(set_to_none=True)
        not_finite = self._ranks.gathered(self._accumulate(taught, targets, tally, passes))
        self._ranks.add_gradients(one for one in self._parameters.values() if not is_divided(one))
        tally.add_up(self._ranks.summed)
        norm = clip(list(self._parameters.values()), self._settings.grad_clip, self._ranks)
        is_finite = not not_finite and math.isfinite(norm) and math.isfinite(tally.loss)
        return GradientStats(tally, norm if is_finite else None, not_finite)

    def _distance(self, targets: Sequence[Targets], passes: Iterable[PassOutput]) -> float:
        """The policy's distance to its teacher now; leaves no gradient."""
        tally = LossSums()
        with torch.no_grad():
            for one in passes:
                for index, rows in one.parts:
                    with torch.enable_grad():
                        self._objective.gradient(one.hidden[rows], targets[index], tally, is_own=False)
        self._optimizer.zero_grad(set_to_none=True)
        tally.add_up(self._ranks.summed)
        return tally.distill if math.isfinite(tally.distill) else math.inf

    def export(self, folder: Path, version: PolicyVersion) -> Adapter:
        """Writes the adapter and the trainer's own state, on the disk when this returns. Raises OSError.

        The first rank writes the same files as a single rank would.
        """
        settings = self._settings
        rank = settings.rank + (0 if self._upon is None else self._upon.rank)
        alpha = settings.alpha / settings.rank * rank
        config = self.model.config(rank, alpha)
        weights, state = (on_first(held, self._ranks) for held in (self.model.weights(), self._state()))
        digest = ""
        if self._ranks.is_first:
            now = checkpoint.Checkpoint(weights, state, self._steps, version, self._upon)
            checkpoint.write(folder, now, config, asdict(settings))
            self._shelf.put(folder, now)
            digest = digest_of_folder(folder)
        self._spoken = version
        return Adapter(folder, str(self._ranks.shared(digest)), version)

    def restore(self, folder: Path | None, under: Path | None = None) -> None:
        """Restores an exported version, or for None fresh weights, which add nothing.

        They are based on the adapter in `under`, or for None on the base model, whatever the version was based on when
        it was exported. If it raises AdapterError, nothing has changed.
        """
        upon, self._beside = None if under is None else self._under(under), folder or under
        found = None
        if folder is not None:
            found = self._shelf.read(folder, {name: tuple(one.shape) for name, one in self._parameters.items()})
        self._stand_on(upon)
        if found is None:
            self.model.start_anew(self._settings.seed)
            own = upon.version if upon is not None else BASE
            found = checkpoint.Checkpoint(self.model.weights(), {}, 0, own, upon)
        self.model.set_weights(found.weights)
        self._optimizer = self._fresh_optimizer()
        for name, parameter in self._parameters.items():
            if f"{name}.{MOMENTS[0]}" in found.state:
                moments = {kind: like(parameter, found.state[f"{name}.{kind}"]) for kind in MOMENTS}
                # the fused kernel reads the count where the weights are
                steps = torch.tensor(float(found.steps), device=parameter.device)
                self._optimizer.state[parameter] = {"step": steps, **moments}
        self._ema = {}
        if self._method.teacher is TeacherKind.EMA:
            now = self.model.weights()
            self._ema = {
                name: found.state.get(f"{name}.ema", one).to(one.device, copy=True) for name, one in now.items()
            }
        self._steps = found.steps
        stood_on, stands_on = (None if one is None else one.version for one in (found.upon, upon))
        self._spoken = found.version if stood_on == stands_on else None

    def _under(self, folder: Path) -> checkpoint.SharedAdapter:
        found = checkpoint.read_under(folder, scale=self._settings.alpha / self._settings.rank)
        if found.weights.keys() != self._parameters.keys():
            raise AdapterError(
                f"the adapter in {folder} adapts other layers than are trained", fix="leave trainer.targets as it was"
            )
        return found

    def _stand_on(self, upon: checkpoint.SharedAdapter | None) -> None:
        self.model.stand_on({} if upon is None else upon.weights)
        self._upon = upon

    def optimizer_state(self) -> dict[str, Tensor]:
        """A copy of the optimiser's moments, by parameter and kind; empty before the first step."""
        return {
            f"{name}.{kind}": self._optimizer.state[parameter][kind].clone()
            for name, parameter in self._parameters.items()
            if parameter in self._optimizer.state
            for kind in MOMENTS
        }

    def _fresh_optimizer(self) -> torch.optim.AdamW:
        rate = learning_rate(self._settings, self.model.parameters)
        return adamw(list(self._parameters.values()), self._settings, rate)

    def _state(self) -> dict[str, Tensor]:
        return {f"{name}.ema": tensor.clone() for name, tensor in self._ema.items()} | self.optimizer_state()

    def _follow(self) -> None:
        """Moves the teacher's moving average toward the policy."""
        decay = self._method.ema_decay
        for name, average in self._ema.items():
            average.lerp_(self._parameters[name].detach(), 1.0 - decay)

    def _unusable(self, sample: Sample) -> DropReason | None:
        longest = max(len(prompt) for prompt in (sample.prompt, *(hint.tokens for hint in sample.hints)))
        replies = [reply.tokens for reply in (sample.own, *sample.shown) if reply is not None]
        if longest + max(map(len, (sample.response, *replies))) > self.model.longest:
            return DropReason.TOO_LONG
        return None

    def _is_own(self, sample: Sample) -> bool:
        spoken = self._spoken
        return spoken is not None and (sample.version == spoken or (sample.version.is_base and spoken.is_base))

    def _accumulate(
        self, taught: Sequence[Lesson], targets: Sequence[Targets], tally: LossSums, passes: Iterable[PassOutput]
    ) -> list[str]:
        """Sums the batch's gradient, a pass at a time. Returns the turns whose loss was not finite."""
        not_finite: list[str] = []
        for one in passes:
            gradient = torch.zeros_like(one.hidden)
            for index, rows in one.parts:
                is_own = not taught[index].is_taught and self._is_own(taught[index].sample)
                part = self._objective.gradient(one.hidden[rows], targets[index], tally, is_own=is_own)
                if not bool(part.isfinite().all()):
                    not_finite.append(taught[index].sample.turn)
                gradient[rows] = part
            if not_finite:
                if self.model.shared_by is None:
                    return not_finite
                gradient.zero_()  # the other ranks compute this pass too
            one.hidden.backward(gradient)  # type: ignore[no-untyped-call]
        return not_finite

    def _targets(
        self, taught: Sequence[Lesson], term_weights: Sequence[TermWeights], *, form: Tensor | None, is_once: bool
    ) -> list[Targets]:
        device, weights = self.model.device, self._method.weights
        ids = [torch.tensor([one.sample.response[at] for at in one.trained], device=device) for one in taught]
        old = [torch.tensor([one.sample.logp[at] for at in one.trained], device=device) for one in taught]
        reference, teachers = self._reader.read(taught, ids, ema=self._ema, heard=self._heard.read)
        selected = self._samplers.selected(taught, teachers, is_own=self._is_own, beside=self._beside, is_once=is_once)
        found: list[Targets] = []
        for index, (one, share) in enumerate(zip(taught, term_weights, strict=True)):
            teacher = teachers[index]
            rl = None if one.advantage is None else torch.tensor(one.advantage, device=device)
            opd = hinted = None
            if teacher is not None:
                hinted = token_logp(self._reader.head, teacher, ids[index], self._settings.logits_per_chunk)
            if hinted is not None and weights.opd and not one.is_taught:
                opd = hindsight_advantage(hinted, old[index], clip=self._method.clip)
            w_rl = self._method.rl_weight(has_outcome=one.sample.outcome is not None)
            advantage = self._method.loss.advantage(rl, opd, w_rl=w_rl, w_opd=weights.opd)
            if advantage is not None and one.kept:
                advantage = kept_advantage(advantage, torch.tensor(one.kept, device=device))
            kept = teacher if weights.distill or one.is_taught else None
            anchor = anchored(reference[index], hinted)
            content = is_content(ids[index], reference[index], hinted, form) if one.is_taught else None
            held = (advantage, reference[index], kept, one.is_taught, anchor, selected[index], one.is_literal, content)
            apart = anchor_form(is_hinted=teacher is not None, is_once=is_once)
            found.append(Targets(ids[index], old[index], share, *held, apart))
        return found
