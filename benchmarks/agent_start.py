"""`make bench-agent-start`: how likely the agent model makes the right attempt before any reinforcement, by family.

Computed from the tokens of the demonstrations, nothing is sampled: the probability of an attempt is the product of
those of its moves, each after the observations of the moves before. Where several orders are right only one counts, so
`right` is a lower bound. `first` compares first moves alone: the right one, and the likeliest of the wrong ones. Where
the two are alike, the model does not know what to choose, and reinforcement has little to make more of. For software
also by the number of repairs, and for the counter's page what is pressed next, by how often was pressed and how often
must still be. `lessons` is the share of answers in new samples of the lessons that the model would give as they are.

python -m benchmarks.agent_start [--model FOLDER] [--seed 0] [--count 48]
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from benchmarks.common import Figures, conditions, finish, is_quick, progress
from openclaw_rl.render.template import ChatTemplate, read_template
from openclaw_rl.tiny.agent import demos, make
from openclaw_rl.tiny.agent.exercise import Exercise, Family, Move, Setting
from openclaw_rl.tiny.worlds.trial import loaded

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def moves_logp(model: PreTrainedModel, template: ChatTemplate, made: Exercise, moves: tuple[Move, ...]) -> list[float]:
    """The log-probability of each move in nats, after those before it and what they showed."""
    import torch

    spoken = demos.dialogue(made, moves)
    found: list[float] = []
    for number in range(len(moves)):
        until = 1 + 2 * number  # the request, and a move and its observation each
        prompt = template.text(spoken.messages[:until], spoken.tools, generation_prompt=True)
        whole = template.text(spoken.messages[: until + 1], spoken.tools, generation_prompt=False)
        said = whole.removeprefix(prompt).rstrip("\n")  # the reply ends with its closing token
        before, after = template.encode(prompt), template.encode(said)
        with torch.no_grad():
            logits = model(torch.tensor([[*before, *after]])).logits[0, len(before) - 1 : -1]
        logp = logits.log_softmax(-1).gather(1, torch.tensor(after)[:, None])
        found.append(float(logp.sum()))
    return found


def repairs_figures(model: PreTrainedModel, template: ChatTemplate, *, rng: Random, count: int) -> Figures:
    """The probability of the right attempt at software, by the number of repairs, and of each move in the mean."""
    found: dict[int, list[list[float]]] = {}
    families = tuple(demos.UNSEEN[Setting.SOFTWARE].values())
    for number in range(count):
        made = families[number % len(families)](rng)
        logp = moves_logp(model, template, made, made.attempts[0])
        found.setdefault(len(logp) - 2, []).append([math.exp(sum(logp)), *map(math.exp, logp)])
    figures: Figures = {}
    for repairs, rows in sorted(found.items()):
        right, *moves = (round(statistics.fmean(column), 3) for column in zip(*rows, strict=True))
        figures[str(repairs)] = {"exercises": len(rows), "right": right, "moves": [*moves]}
    return figures


def lesson_figures(model: PreTrainedModel, template: ChatTemplate, *, rng: Random, count: int) -> Figures:
    """The share of answers in samples of the lessons whose tokens are each the likeliest."""
    import torch

    figures: Figures = {}
    for name, draw in (("copying", demos.copying_sample), ("counting", demos.counting_sample)):
        right: list[bool] = []
        for _ in range(count):
            pieces = draw(rng).pieces[:-1]  # without the end
            ids = [(template.encode(text), is_answer) for text, is_answer in pieces]
            whole = [token for some, _ in ids for token in some]
            with torch.no_grad():
                likeliest = model(torch.tensor([whole])).logits[0].argmax(-1).tolist()
            begin = 0
            for some, is_answer in ids:
                if is_answer:
                    right.append(likeliest[begin - 1 : begin - 1 + len(some)] == [*some])
                begin += len(some)
        figures[name] = {"answers": len(right), "right": round(statistics.fmean(right), 3)}
    return figures


def family_figures(model: PreTrainedModel, template: ChatTemplate, made: Sequence[Exercise]) -> Figures:
    """Means over the exercises of one family."""
    right, first, other = [], [], []
    for each in made:
        logp = moves_logp(model, template, each, each.attempts[0])
        right.append(math.exp(sum(logp)))
        first.append(math.exp(logp[0]))
        begun = {str(attempt[0]): attempt for attempt in each.attempts[1:] if attempt[0] != each.attempts[0][0]}
        others = [moves_logp(model, template, each, attempt[:1])[0] for attempt in begun.values()]
        other.append(math.exp(max(others)) if others else 0.0)
    means = [round(statistics.fmean(values), 3) for values in (right, first, other)]
    return {"exercises": len(made), "right": means[0], "first": {"right": means[1], "likeliest_wrong": means[2]}}


def setting_figures(
    model: PreTrainedModel, template: ChatTemplate, families: dict[str, Family], *, rng: Random, count: int
) -> Figures:
    """So many exercises spread over the families."""
    found: Figures = {}
    each = max(1, count // len(families))
    for name, family in families.items():
        found[name] = family_figures(model, template, [family(rng) for _ in range(each)])
    return found


def counter_figures(model: PreTrainedModel, template: ChatTemplate, *, rng: Random, count: int) -> Figures:
    """The next press on the counter's page, after right presses only: towards the wanted number, away from it, or OK.

    By presses made and presses left. Where only the presses made matter, the model does not read the number shown.
    """
    found: dict[str, list[tuple[float, ...]]] = {}
    for _ in range(count):
        made = demos.UNSEEN[Setting.SCREEN]["counter"](rng)
        right = made.attempts[0]
        towards = str(right[0].arguments["ref"])
        for done in range(len(right)):
            presses = (towards, "-" if towards == "+" else "+", "OK")
            moves = [Move("click", {"ref": name}, "", None) for name in presses]
            logp = [moves_logp(model, template, made, (*right[:done], move))[-1] for move in moves]
            found.setdefault(f"{done} made, {len(right) - 1 - done} left", []).append(tuple(map(math.exp, logp)))
    figures: Figures = {}
    for state, rows in sorted(found.items()):
        near, away, ok = (round(statistics.fmean(column), 2) for column in zip(*rows, strict=True))
        figures[state] = {"towards": near, "away": away, "ok": ok, "pages": len(rows)}
    return figures


def main() -> None:
    """All settings: unseen exercises, and those of the held-back family."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument(
        "--model", type=Path, default=make.shipped(), help="a model folder; the shipped one by default"
    )
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--count", type=int, default=12 if is_quick() else 48, help="exercises a setting")
    given = options.parse_args()
    model, template = loaded(given.model), read_template(given.model)
    figures: Figures = {}
    for setting in Setting:
        parts = {"unseen": demos.UNSEEN[setting], "held_back": demos.UNSEEN_HELD_BACK[setting]}
        of_setting: Figures = {}
        for part, families in parts.items():
            rng = Random(f"start {given.seed} {setting.value} {part}")
            of_setting[part] = setting_figures(model, template, dict(families), rng=rng, count=given.count)
        figures[setting.value] = of_setting
        if setting is Setting.SOFTWARE:
            rng = Random(f"start {given.seed} repairs")
            of_setting["repairs"] = repairs_figures(model, template, rng=rng, count=4 * given.count)
        if setting is Setting.SCREEN:
            rng = Random(f"start {given.seed} counter")
            of_setting["counter"] = counter_figures(model, template, rng=rng, count=given.count // 2)
        progress(f"{setting.value}: {of_setting}")
    figures["lessons"] = lesson_figures(model, template, rng=Random(f"start {given.seed} lessons"), count=given.count)
    progress(f"lessons: {figures['lessons']}")
    finish({**figures, "conditions": conditions(given.model.name, threads=1, seeds=[given.seed], repeats=1)})


if __name__ == "__main__":
    main()
