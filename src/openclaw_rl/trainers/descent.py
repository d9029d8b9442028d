"""Updates toward a teacher that find their own size: one that raises the distance is undone and made smaller.

No rate is right for every model: one that brings one model nearer throws another far off. The distance shows it at no
cost, since each update measures the effect of the last one.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim import Optimizer

from openclaw_rl.core.adapter import StepProgress
from openclaw_rl.trainers.objective import LossSums
from openclaw_rl.trainers.ranks import is_divided
from openclaw_rl.trainers.settings import TrainerSettings

FIRST_RATE = 1e-4  # of updates that are undone if they lead away, for a model of any size
SMALLER, LARGER = 0.5, 1.3  # the rate's factors after a rise and after a fall
AT_FIRST = 1.5  # its factor after a fall until an update is undone: the first rate is small for most models
QUICK = 0.5  # of the distance: an update that leaves less was large enough, and the rate stays
GENTLER = 0.3  # factor of the first rate for each time that the gate refused the same lessons before
LEARNED = 1e-4  # nats a token from the teacher: nothing is left to learn
NEAR = 0.06  # share of the first distance: a step that is slow also ends there if it is not on a plateau
FEW, SLOW = 5, 0.75  # it is slow if so many updates leave more than this share; quick ones may follow a slow one
PLATEAU = 0.01  # share of a teacher's tokens: if more are far from it, a kind of replies is not learned yet
SETTLED = 0.1  # the smallest factor of a rate that falls with the updates: new tasks are still learned
LEAST, MOST = 1e-4, 20.0  # of the first rate: smaller ones gain nothing, with larger ones less holds elsewhere
ADAM_EPS = 1e-8
NO_GRADIENT = 1e-30  # a root of second moments below it is of a matrix that had no gradient yet: it stays
Report = Callable[[StepProgress], None]


def silent(progress: StepProgress) -> None:
    """Nobody listens."""


class ProgressReporter:
    """Keeps the progress of one step and hands it to `report` after each pass and each update."""

    def __init__(self, report: Report, *, most: int = 0, enough: float = 0.0) -> None:
        self._report = report
        self._began_s = time.perf_counter()
        self._before = 0  # updates before those that are counted now
        self._progress = StepProgress(most=most, enough=enough)

    def read(self, tokens: int) -> None:
        """More tokens were read before the first update."""
        now = self._progress
        spent_s = time.perf_counter() - self._began_s
        self._tell(replace(now, tokens=now.tokens + tokens, reading_s=spent_s))

    def updated(self, updates: int, distance: float) -> None:
        """This many updates were made and kept, and this share of the first distance is left."""
        spent_s = time.perf_counter() - self._began_s - self._progress.reading_s
        made = self._before + updates
        self._tell(replace(self._progress, updates=made, distance=distance, updating_s=spent_s))

    def goes_on(self, updates: int, *, most: int, enough: float) -> None:
        """After this many updates at most `most` more follow, until this share of another distance is left."""
        self._before = updates
        self._progress = replace(self._progress, most=updates + most, enough=enough)

    def _tell(self, progress: StepProgress) -> None:
        self._progress = progress
        self._report(progress)


def settled(update: int, after: int) -> float:
    """The factor of the rate at a scope's update number `update`, the first being 1.

        1 up to `after`, then after / update, but at least `SETTLED`; always 1 if `after` is 0

    With a rate that stays the same, the noise of single batches stays in the weights, however many there are.
    """
    return max(SETTLED, after / update) if 0 < after < update else 1.0


@dataclass(frozen=True, slots=True)
class GradientStats:
    """Sums at a point, the gradient's norm there or None if it is not finite, and the turns that made it so."""

    tally: LossSums
    norm: float | None
    not_finite: list[str]


@dataclass(slots=True)
class DescentResult:
    """The result of a step's updates: sums at the first point, the distance at the last kept one, and counts.

    `not_finite` lists the turns whose loss was not finite if that stopped the step, else it is None.
    """

    first: LossSums = field(default_factory=LossSums)
    norm: float = 0.0
    distance: float = 0.0
    updates: int = 0
    undone: int = 0
    not_finite: list[str] | None = None

    def then(self, later: DescentResult) -> DescentResult:
        """This and further updates of the same step, as one result; what came later may have made none."""
        distance = later.distance if later.updates else self.distance
        updates, undone = self.updates + later.updates, self.undone + later.undone
        return replace(self, distance=distance, updates=updates, undone=undone)


def walked(
    descent: Descent,
    measure: Callable[[], GradientStats],
    distance: Callable[[], float],
    *,
    most: int,
    enough: float,
    arrived: Callable[[int, float], None] = lambda updates, share: None,
) -> DescentResult:
    """Takes at most `most` updates, not counting undone ones, until the distance is this share of its first value, or
    nearly so, with hardly a token far from the teacher, and several updates hardly lower it.

    `measure` leaves the gradient in the weights; `distance` reads how far off they are. The last update is checked too,
    so no step ends farther off than necessary. After each kept one `arrived` receives how many are kept and what
    share of the distance is left.
    """
    walk = DescentResult()
    is_first = True
    kept: list[float] = []  # the distance at each kept point
    while walk.updates - descent.undone < most:
        found = measure()
        if is_first:
            walk.first, walk.norm, walk.distance = found.tally, found.norm or 0.0, found.tally.distill
        if found.norm is None and (is_first or not descent.can_undo):
            walk.not_finite = found.not_finite
            break
        is_first = False
        is_kept = descent.arrived(found.tally.distill if found.norm is not None else math.inf)
        if is_kept:
            walk.distance = found.tally.distill
            kept.append(walk.distance)
            arrived(walk.updates - descent.undone, walk.distance / walk.first.distill if walk.first.distill else 0.0)
        elif descent.is_over:
            break
        descent.update()
        walk.updates += 1
        is_slow = len(kept) > FEW and kept[-1] > SLOW * kept[-1 - FEW]
        is_on_plateau = found.tally.far_tokens > PLATEAU * found.tally.taught_tokens
        share = max(enough, NEAR) if is_slow and not is_on_plateau else enough
        if is_kept and enough and walk.distance < max(share * walk.first.distill, LEARNED):
            break  # so little was left before this update
    if descent.can_undo and walk.not_finite is None and not descent.is_over:
        if (last := distance()) <= walk.distance:
            walk.distance = last
        else:
            descent.undo()
    descent.close()
    walk.undone = descent.undone
    walk.updates -= descent.undone
    return walk


def adamw(parameters: Sequence[Parameter], settings: TrainerSettings, rate: float) -> torch.optim.AdamW:
    """AdamW whose updates are smaller where the gradient of all weights is below `trainer.still_norm`."""
    kinds = [[one for one in parameters if is_divided(one) is part] for part in (False, True)]
    return torch.optim.AdamW(
        [{"params": kind} for kind in kinds if kind],  # one kernel takes no mixture of them
        lr=rate,
        betas=(settings.beta1, settings.beta2),
        eps=max(ADAM_EPS, settings.still_norm / math.sqrt(sum(one.numel() for one in parameters))),
        weight_decay=settings.weight_decay,
        fused=True,
    )


class MatrixAdam(Optimizer):
    """Adam with one second moment for each matrix: an update has a matrix's gradient's own direction.

        m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) mean(g^2);  w = w - rate m' / sqrt(v')

    m' and v' are m and v without their bias to 0. If the first gradient's norm is below `trainer.still_norm`, all rates
    are as much smaller. AdamW divides each weight by its own root, which turns an update away from the gradient; with
    few examples it loses more that they say nothing of. Source: a second moment for each layer, arXiv 1905.11286. All
    parameters must be whole on this process.
    """

    def __init__(self, parameters: Iterable[Parameter], settings: TrainerSettings) -> None:
        betas = (settings.beta1, settings.beta2)
        group = {"lr": settings.lr or FIRST_RATE, "betas": betas, "weight_decay": settings.weight_decay}
        super().__init__(parameters, group)
        self._still_norm = settings.still_norm
        self._share: float | None = None  # of each rate; None until the first gradient is there

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """One update along the current gradient."""
        if self._share is None:
            norms = [one.grad.norm() for group in self.param_groups for one in group["params"] if one.grad is not None]
            norm = float(torch.stack(norms).norm()) if norms else 0.0
            self._share = min(1.0, norm / self._still_norm) if self._still_norm else 1.0
        for group in self.param_groups:
            rate, (beta1, beta2) = self._share * float(group["lr"]), group["betas"]
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if not state:
                    state["step"] = torch.zeros(())  # on the CPU, where it is read
                    state["exp_avg"] = torch.zeros_like(parameter)
                    state["exp_avg_sq"] = torch.zeros((), device=parameter.device)
                state["step"] += 1
                count = int(state["step"])
                mean = state["exp_avg"].lerp_(parameter.grad, 1 - beta1)
                square = state["exp_avg_sq"].lerp_(parameter.grad.square().mean(), 1 - beta2)
                root = (square / (1 - beta2**count)).sqrt().clamp_min(NO_GRADIENT)
                if group["weight_decay"]:
                    parameter.mul_(1 - rate * group["weight_decay"])
                parameter.sub_(mean / root * (rate / (1 - beta1**count)))


@dataclass(frozen=True, slots=True)
class _Point:
    """Weights, the optimiser's moments and the gradient at a point, and the distance there."""

    distance: float
    weights: dict[str, Tensor]
    moments: dict[str, dict[str, Tensor]]
    gradient: dict[str, Tensor | None]


class Descent:
    """Takes updates with an optimiser of one rate and, with `can_undo`, undoes those that lead away."""

    def __init__(
        self, optimizer: Optimizer, parameters: Mapping[str, Parameter], *, can_undo: bool, first: float | None = None
    ) -> None:
        self.can_undo = can_undo
        self.undone = 0
        self._optimizer = optimizer
        self._parameters = parameters
        self._whole = float(optimizer.param_groups[0]["lr"])  # of a step that has one update
        self._first = self._whole if first is None else first
        self._rate = self._first
        self._point: _Point | None = None

    @property
    def is_over(self) -> bool:
        """Whether no smaller update is worth trying."""
        return self._rate < LEAST * self._first

    def arrived(self, distance: float) -> bool:
        """Whether the last update is kept, at the distance read after it; the gradient is that of this point.

        If it is not, weights, moments and gradient are those from before it, and the rate is smaller.
        """
        if not self.can_undo:
            return True
        if self._point is not None:
            if not distance <= self._point.distance:
                self.undo()
                self._rate *= SMALLER
                return False
            if distance > QUICK * self._point.distance:
                larger = LARGER if self.undone else AT_FIRST
                self._rate = min(MOST * self._first, self._rate * larger)
        self._point = self._here(distance)
        return True

    def undo(self) -> None:
        """Goes back to the point that was kept last, if there is one.

        The mean of earlier gradients is forgotten: along it, an update may lead away from here, however small it is.
        """
        if self._point is None:
            return
        self.undone += 1
        with torch.no_grad():
            for name, parameter in self._parameters.items():
                parameter.copy_(self._point.weights[name])
                held = self._point.gradient[name]
                parameter.grad = None if held is None else held.clone()
                if name not in self._point.moments:
                    self._optimizer.state.pop(parameter, None)
                    continue
                for kind, value in self._point.moments[name].items():
                    self._optimizer.state[parameter][kind].copy_(value)
                self._optimizer.state[parameter]["exp_avg"].zero_()

    def update(self) -> None:
        """One update along the current gradient, with the current rate."""
        for group in self._optimizer.param_groups:
            group["lr"] = self._rate
        self._optimizer.step()

    def close(self) -> None:
        """The next step begins with the first rate again."""
        for group in self._optimizer.param_groups:
            group["lr"] = self._whole

    def _here(self, distance: float) -> _Point:
        moments = {
            name: {kind: value.clone() for kind, value in self._optimizer.state[parameter].items()}
            for name, parameter in self._parameters.items()
            if parameter in self._optimizer.state
        }
        return _Point(
            distance,
            {name: parameter.detach().clone() for name, parameter in self._parameters.items()},
            moments,
            {name: None if one.grad is None else one.grad.clone() for name, one in self._parameters.items()},
        )
