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
    """The sample of a turn. A `reward` marks it as promoted and stands in for the score.

    Score and hints are both kept where both are there: the method's weights combine them. A hint whose prompt would be
    longer than `max_tokens` with the answer is left out, and so are all where nobody asked anything.

    `known` are the hints that the teacher is to heed beside those of the verdict: of what stood in the prompt and of
    what else the user has asked for (`others`), so that learning one wish does not undo another.

    A turn that was sampled behind hints is the teacher's sample: its prompt is the one without them, and where nobody
    said anything to it the teacher reads the known ones alone.
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
        # A zero is nobody's praise or blame: measured against a baseline it would become one.
        baseline=baseline if score else None,
        hints=_hint_prompts(turn, verdict, renderer, max_tokens, known),
        group=turn.group,
        is_promoted=is_promoted,
        is_taught=bool(turn.carried),
        kept=_kept(turn.completion),
    )


def _kept(completion: Completion) -> tuple[float, ...]:
    """Log of what the grammar kept of the model's own distribution: log p(a) - log p(a | allowed)."""
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


def others(turn: Turn, verdict: Verdict, known: Sequence[PlacedHint]) -> list[PlacedHint]:
    """The known hints that say something beside what stood in the prompt or was said to the turn, and not its opposite.

    A wish that changes is worded anew: what may be the old one is not read to a teacher beside it.
    """
    return not_about(known, [item.text for item in turn.carried] + [hint.text for hint in verdict.hints])


def not_about(hints: Sequence[PlacedHint], said: Sequence[str]) -> list[PlacedHint]:
    """Those that say something beside what was said, and not its opposite."""
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
