"""A judged turn as training data: ids as served, and every signal there is."""

from __future__ import annotations

from collections.abc import Sequence

from openclaw_rl.core.completion import Completion
from openclaw_rl.core.hint import PlacedHint, last_user_index, with_hints
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.protocols import Renderer
from openclaw_rl.core.sample import HintPrompt, Sample
from openclaw_rl.core.turn import Turn
from openclaw_rl.core.verdict import Verdict
from openclaw_rl.errors import RequestError
from openclaw_rl.wording.likeness import is_about


def sample_of(
    turn: Turn,
    verdict: Verdict,
    renderer: Renderer,
    *,
    baseline: float | None,
    max_tokens: int,
    reward: float | None = None,
    known: Sequence[PlacedHint] = (),
) -> Sample:
    """The sample of a turn. A `reward` marks it as promoted and replaces the score.

    If there are both score and hints, both are kept: the method's weights combine them. A hint is left out if its
    prompt would be longer than `max_tokens` with the answer. All are left out if there is no user message.

    `known` are the hints that the teacher should follow in addition to those of the verdict: hints that were in the
    prompt, and what else the user has asked for (`others`). So learning one wish does not undo another.

    A turn that was sampled with hints is the teacher's sample: its prompt is the one without them. If the user said
    nothing about the reply, the teacher reads only the known hints.
    """
    is_promoted = reward is not None
    score = reward if is_promoted else verdict.score
    return Sample(
        turn=turn.id,
        session=turn.session,
        user=turn.user,
        prompt=bare_prompt(turn, renderer).tokens,
        response=turn.completion.tokens,
        logp=turn.completion.logp,
        mask=free(turn.completion),
        version=turn.completion.version,
        score=None if score is None else float(score),
        # A zero is neither praise nor blame: measured against a baseline it would become one of them.
        baseline=baseline if score else None,
        hints=_hint_prompts(turn, verdict, renderer, max_tokens, known),
        group=turn.group,
        is_promoted=is_promoted,
        is_taught=bool(turn.carried),
        kept=_kept(turn.completion),
    )


def _kept(completion: Completion) -> tuple[float, ...]:
    """Log of the probability that the grammar left of the model's own distribution: log p(a) - log p(a | allowed)."""
    if not completion.forced:
        return ()
    pairs = zip(completion.logp, completion.logp_masked, strict=True)
    return tuple(min(0.0, logp - masked) for logp, masked in pairs)


def free(completion: Completion) -> tuple[bool, ...]:
    """Which tokens the model chose. One that its grammar forced says nothing of the model, and teaches nothing."""
    forced = completion.forced or (False,) * len(completion.tokens)
    return tuple(not is_forced for is_forced in forced)


def bare_prompt(turn: Turn, renderer: Renderer) -> Prompt:
    """The turn's prompt as its client wrote it, all ids that were served kept."""
    return renderer.reread(turn, turn.messages) if turn.carried else turn.prompt


def ema_baseline(rewards: Sequence[float], own: float, decay: float) -> float:
    """The moving average of the user's recent scores: b <- decay * b + (1 - decay) * r, from 0, oldest first.

    `rewards` come newest first and contain the turn's `own` score, which is not a part of its baseline: otherwise
    every first score would cancel itself.
    """
    others = list(rewards)
    if own in others:
        others.remove(own)
    average = 0.0
    for reward in reversed(others):
        average = decay * average + (1.0 - decay) * reward
    return average


def others(turn: Turn, verdict: Verdict, known: Sequence[PlacedHint]) -> list[PlacedHint]:
    """The known hints on other subjects than those in the prompt and those given to the turn.

    A wish that changes is worded differently: a hint that may be the old wish is not given to a teacher with the new.
    """
    return not_about(known, [item.text for item in turn.carried] + [hint.text for hint in verdict.hints])


def not_about(hints: Sequence[PlacedHint], said: Sequence[str]) -> list[PlacedHint]:
    """Those that say something else than what was said, and not its opposite."""
    return [item for item in hints if not any(is_about(item.text, text) for text in said)]


def _hint_prompts(
    turn: Turn, verdict: Verdict, renderer: Renderer, max_tokens: int, known: Sequence[PlacedHint]
) -> tuple[HintPrompt, ...]:
    found: list[HintPrompt] = []
    asked = last_user_index(turn.messages)
    told = [PlacedHint(asked, "", hint.text) for hint in verdict.hints] if asked is not None else []
    ways = [(*known, hint) for hint in told] or ([tuple(known)] if turn.carried and known else [])
    for way in ways:
        try:
            prompt = renderer.reread(turn, with_hints(turn.messages, way))
        except (RequestError, ValueError):  # a template that refuses
            continue
        if len(prompt) + len(turn.completion.tokens) <= max_tokens:
            found.append(HintPrompt(" ".join(item.text for item in way), prompt.tokens))
    return tuple(found)
