"""A judged turn as a sample: token ids as served, and all its signals."""

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

    If there are both score and hints, both are kept: the method's weights combine them. Each hint of the verdict has a
    prompt of its own. A hint is left out if its prompt and the reply together have more than `max_tokens` tokens, or if
    the template refuses. All hints of the verdict are left out if there is no user message.

    `known` are the hints that the teacher should follow in addition to those of the verdict: hints that were in the
    prompt, and what else the user has asked for (`others`). So learning one wish does not undo another.

    A turn that was sampled with hints is the teacher's sample: its prompt is the one without them. If the verdict has
    no hints, the teacher then reads only the known hints.
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
        # A score of 0 is neither praise nor blame: minus a baseline, it would become one of them.
        baseline=baseline if score else None,
        hints=_hint_prompts(turn, verdict, renderer, max_tokens, known),
        group=turn.group,
        is_promoted=is_promoted,
        is_taught=bool(turn.carried),
        kept=_kept(turn.completion),
    )


def _kept(completion: Completion) -> tuple[float, ...]:
    """Log of the share of the model's own distribution that the grammar allowed: log p(a) - log p(a | allowed).

    Nats, one per token, at most 0; empty if no grammar constrained the reply.
    """
    if not completion.forced:
        return ()
    pairs = zip(completion.logp, completion.logp_masked, strict=True)
    return tuple(min(0.0, logp - masked) for logp, masked in pairs)


def free(completion: Completion) -> tuple[bool, ...]:
    """For each token, whether the model chose it. Nothing is learned from a token that the grammar forced."""
    forced = completion.forced or (False,) * len(completion.tokens)
    return tuple(not is_forced for is_forced in forced)


def bare_prompt(turn: Turn, renderer: Renderer) -> Prompt:
    """The turn's prompt without hints, as its client wrote it; all other ids stay as served."""
    return renderer.reread(turn, turn.messages) if turn.carried else turn.prompt


def ema_baseline(rewards: Sequence[float], own: float, decay: float) -> float:
    """The moving average of the user's recent scores: b <- decay * b + (1 - decay) * r, from 0, oldest first.

    `rewards` come newest first. The turn's `own` score is left out of them once, because it is not a part of its
    baseline: otherwise it would in part cancel itself.
    """
    others = list(rewards)
    if own in others:
        others.remove(own)
    average = 0.0
    for reward in reversed(others):
        average = decay * average + (1.0 - decay) * reward
    return average


def others(turn: Turn, verdict: Verdict, known: Sequence[PlacedHint]) -> list[PlacedHint]:
    """The known hints on other subjects than the hints in the turn's prompt and the hints of its verdict.

    A user who changes a wish words it differently. So a hint that may be the old wish is not given to a teacher
    together with the new one.
    """
    return not_about(known, [item.text for item in turn.carried] + [hint.text for hint in verdict.hints])


def not_about(hints: Sequence[PlacedHint], said: Sequence[str]) -> list[PlacedHint]:
    """The hints that neither say the same as one of these texts nor may say its opposite."""
    return [item for item in hints if not any(is_about(item.text, text) for text in said)]


def _hint_prompts(
    turn: Turn, verdict: Verdict, renderer: Renderer, max_tokens: int, known: Sequence[PlacedHint]
) -> tuple[HintPrompt, ...]:
    found: list[HintPrompt] = []
    asked = last_user_index(turn.messages)
    new = [PlacedHint(asked, "", hint.text) for hint in verdict.hints] if asked is not None else []
    readings = [(*known, hint) for hint in new] or ([tuple(known)] if turn.carried and known else [])
    for hints in readings:
        try:
            prompt = renderer.reread(turn, with_hints(turn.messages, hints))
        except (RequestError, ValueError):  # the template refuses
            continue
        if len(prompt) + len(turn.completion.tokens) <= max_tokens:
            found.append(HintPrompt(" ".join(item.text for item in hints), prompt.tokens))
    return tuple(found)
