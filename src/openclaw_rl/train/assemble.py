"""A judged turn as training data: ids as served, and every signal there is."""

from __future__ import annotations

from collections.abc import Sequence

from openclaw_rl.core.protocols import Renderer
from openclaw_rl.core.sample import HintPrompt, Sample
from openclaw_rl.core.turn import Turn
from openclaw_rl.core.verdict import Verdict
from openclaw_rl.errors import RequestError


def sample_of(
    turn: Turn,
    verdict: Verdict,
    renderer: Renderer,
    *,
    baseline: float | None,
    max_tokens: int,
    reward: float | None = None,
) -> Sample:
    """The sample of a turn. A `reward` marks it as promoted and stands in for the score.

    Score and hints are both kept where both are there: the method's weights combine them. A hint whose prompt would be
    longer than `max_tokens` with the answer is left out, and so are all where nobody asked anything.
    """
    is_promoted = reward is not None
    score = reward if is_promoted else verdict.score
    return Sample(
        turn=turn.id,
        session=turn.session,
        user=turn.user,
        prompt=turn.prompt.tokens,
        response=turn.completion.tokens,
        logp=turn.completion.logp,
        mask=(True,) * len(turn.completion.tokens),
        version=turn.completion.version,
        score=None if score is None else float(score),
        # A zero is nobody's praise or blame: measured against a baseline it would become one.
        baseline=baseline if score else None,
        hints=_hint_prompts(turn, verdict, renderer, max_tokens),
        group=turn.group,
        is_promoted=is_promoted,
    )


def ema_baseline(rewards: Sequence[float], own: float, decay: float) -> float:
    """What the user's scores have been lately: b <- decay * b + (1 - decay) * r, from 0, oldest first.

    `rewards` come newest first and hold the turn's `own` score, which is no part of its baseline: one that had it
    would take from every first score exactly itself.
    """
    others = list(rewards)
    if own in others:
        others.remove(own)
    average = 0.0
    for reward in reversed(others):
        average = decay * average + (1.0 - decay) * reward
    return average


def _hint_prompts(turn: Turn, verdict: Verdict, renderer: Renderer, max_tokens: int) -> tuple[HintPrompt, ...]:
    found: list[HintPrompt] = []
    for hint in verdict.hints:
        try:
            prompt = renderer.hinted(turn, hint)
        except (RequestError, ValueError):  # no user message to put it behind, or a template that refuses
            continue
        if len(prompt) + len(turn.completion.tokens) <= max_tokens:
            found.append(HintPrompt(hint.text, prompt.tokens))
    return tuple(found)
