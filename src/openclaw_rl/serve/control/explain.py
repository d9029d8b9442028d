"""How each decision about a turn came about, in plain words."""

from __future__ import annotations

from openclaw_rl.core.ledger import DropReason, State
from openclaw_rl.core.masked import marks_in
from openclaw_rl.core.masked import told as masked_words
from openclaw_rl.core.next_state import NextState, NextStateSource
from openclaw_rl.core.sample import Sample
from openclaw_rl.core.turn import Turn
from openclaw_rl.core.verdict import Verdict, VerdictSource
from openclaw_rl.store.rows import TurnRow

WHO = {
    NextStateSource.USER: "the user's next words",
    NextStateSource.TOOL: "what the tools gave back",
    NextStateSource.ENVIRONMENT: "what the environment showed",
}
DROPPED = {
    DropReason.CUT_BY_LENGTH: "the answer was cut by its length, so it is not what the model would have said",
    DropReason.CANCELLED: "the client went away before the answer ended",
    DropReason.EMPTY: "the answer was empty",
    DropReason.LOOP: "the answer says one thing over and over",
    DropReason.CONTROL_TOKEN: "the answer is a signal to the client, not an answer",
    DropReason.NO_NEXT_STATE: "nothing followed the answer before its session was over",
    DropReason.NOT_FOLLOWED: "the conversation continued from another answer to the same request",
    DropReason.NO_SIGNAL: "neither score nor hint gave anything to learn",
    DropReason.NO_SPREAD: "all steps that it was compared with earned the same, so none was better than another",
    DropReason.ENVIRONMENT_FAILED: "its episode failed because the task or its grader is broken, so it has no reward",
    DropReason.INFRASTRUCTURE_FAILED: "its episode failed because of a machine or a network, so it has no reward",
    DropReason.UNHEEDED: "with its hint the base model gives the same reply, or another result, so it cannot teach",
    DropReason.MISHEARD: "its user accepted a reply that their words explain better than its hint, or none with it",
    DropReason.MAY_NOT_TEACH: "its API key does not have the right to teach",
    DropReason.REDACTED: "it held something private, so its ids were not kept and cannot be learned from",
    DropReason.SAID_BEFORE: "its user had just said the same of a reply of the same version, and that is learned from",
    DropReason.REPEATED: "its user gave the same correction more often today than teach.same_words_a_day",
    DropReason.TOO_MANY: "its user gave more samples today than teach.user_samples_a_day",
    DropReason.IN_VAIN: "its user keeps correcting as often as before, so learning from them is paused",
    DropReason.MEMORY_ONLY: "the prompt has its hint, which the weights could not learn, or (carry = memory) need not",
    DropReason.LEARNED: "it was sampled with hints in the prompt, and the model gives it without them as well",
    DropReason.TOO_LONG: "prompt, hint and answer are longer than train.max_sample_tokens, or than the model's context",
    DropReason.TOO_DEAR: "set aside: a step over it alone would take more time (train.step_share of trainer.timeout_s) "
    "or memory than this machine has; it is considered again at the next start",
    DropReason.STALE: "it is from more versions ago than train.max_lag",
    DropReason.NOT_FINITE: "training on it gave numbers that are not finite",
    DropReason.TRAINER_FAILED: "the trainer failed on it",
    DropReason.NOT_LEARNABLE: "what was learned from it was refused each time, or no step came nearer to its hint",
    DropReason.EXCLUDED: "its owner said that it is not to be learned from",
    DropReason.FORGOTTEN: "it was forgotten on request",
    DropReason.DAMAGED: "its bytes were changed on the disk, so it cannot be read any more",
}
STANDS = {
    State.SERVED: "it waits for its next state: no request has continued from it yet",
    State.PAIRED: "it waits for the judge",
    State.JUDGED: "it waits to become a sample: for its session's end, where the score alone gives no signal",
    State.READY: "it waits for a training step",
}
STEP_STANDS = STANDS | {
    State.SERVED: "it waits for what the environment shows next, or for the end of its episode",
    State.PAIRED: "it waits for the end of its episode",
    State.JUDGED: "it waits for the other episodes of its group",
}


def explained(row: TurnRow) -> list[str]:
    """The decisions in the order they were taken: kind, session, continuation, next state, verdict, end."""
    lines = row.turn.why.split("; ")
    if row.turn.prompt.continued:
        lines.append(
            f"{row.turn.prompt.continued} of {len(row.turn.prompt)} prompt token ids were reused from the previous turn"
        )
    step, attempt = row.turn.step, row.episode
    if step is not None and attempt is not None:
        outcome = "" if attempt.outcome is None else f", which ended with outcome {attempt.outcome:g}"
        lines.append(f"it is step {step.index} of episode {step.episode}{outcome}")
    if row.state is None:
        return [*lines, "side turns are served and counted, and never learned from"]
    if row.next_state is not None:
        masked = marks_in("\n".join(item.text for item in row.next_state.messages))
        hidden = f", with {masked_words(masked)} masked before it was stored" if masked else ""
        lines.append(f"its next state is {WHO[row.next_state.source]}{hidden}")
    if row.verdict is not None:
        is_step = row.turn.step is not None
        lines.append(
            "judged by its episode's outcome"
            if is_step
            else _unasked(row.verdict, row.next_state) or _verdict(row.verdict)
        )
    if row.reason is not None:
        lines.append(f"dropped ({row.reason.value}): {DROPPED[row.reason]}")
    elif row.state is State.TRAINED:
        made = "" if row.trained_version is None else f", which made version {row.trained_version}"
        lines.append(f"trained on in step {row.step}{made}")
    else:
        lines.append((STANDS if row.turn.step is None else STEP_STANDS)[row.state])
    return lines


def lesson_explained(sample: Sample, turn: Turn) -> str:
    """What a turn is learned from as."""
    if sample.outcome is not None:
        compared = "" if not sample.peers else f", compared with {len(sample.peers) - 1} other steps"
        return f"it is learned from by the outcome of its episode, {sample.outcome.reward:g}{compared}"
    if sample.is_rehearsal:
        aim = "to what these hints ask for" if sample.rehearses else "where the base model is"
        return f"nobody corrected it: it is a rehearsal sample, and keeps the policy {aim}"
    if sample.is_taught and not turn.carried:
        return "accepted after corrections, it answers what was asked first; the teacher reads the whole conversation"
    if sample.is_taught:
        return "it was sampled with hints in the prompt: the policy learns to give it without them"
    if sample.hints:
        many = len(sample.shown)
        shown = f", and shows {many} {'reply' if many == 1 else 'replies'} of its own" if many else ""
        return f"the teacher reads the hint after the request{shown}"
    return "it is learned from by its score alone"


def _unasked(verdict: Verdict, after: NextState | None) -> str:
    """Why the judge was not asked although nothing else gave a score."""
    if verdict.source is not VerdictSource.VOTES or verdict.votes or after is None:
        return ""
    if after.source is NextStateSource.USER:
        return "not judged: the next message is all quotation, so none of it is the user's own words"
    return "not judged: the user said nothing, and the tool results do not say whether the tools worked"


def _verdict(verdict: Verdict) -> str:
    hints = f", with {len(verdict.hints)} accepted hints" if verdict.hints else ""
    if verdict.source is VerdictSource.OWNER:
        return f"judged {verdict.score} by its owner, in the judge's place{hints}"
    if verdict.source is VerdictSource.FEEDBACK:
        return f"judged {verdict.score} by the user's feedback{hints}"
    if verdict.source is VerdictSource.ENVIRONMENT:
        return f"judged {verdict.score} by the status the tools reported{hints}"
    if any(vote.asked == "owner" for vote in verdict.votes):
        return f"judged {verdict.score}, as its owner judged the same words before{hints}"
    votes = [vote.score for vote in verdict.votes if vote.asked == "score"]
    valid = [score for score in votes if score is not None]
    if verdict.score is None:
        return f"not judged: none of the {len(votes)} votes was valid{hints}"
    cast = ", ".join(str(score) for score in valid)
    return f"judged {verdict.score} by {len(valid)} valid votes of {len(votes)} ({cast}){hints}"
