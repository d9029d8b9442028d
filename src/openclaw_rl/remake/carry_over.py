"""The parts of an installation's samples that can teach another model: text and hints, but not ids or scores.

Another model did not sample those replies, so it has no ratio for them, and scores of them do not apply to it. A
hint remains: the new model that reads it is the teacher; its distribution given the hint is learned over the reply.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from openclaw_rl.core.hint import PlacedHint, last_user_index, with_hints
from openclaw_rl.core.sample import HintPrompt, Sample
from openclaw_rl.core.turn import Turn
from openclaw_rl.core.version import BASE
from openclaw_rl.errors import RequestError
from openclaw_rl.render.renderer import ChatRenderer

ONLY_A_SCORE = "only a score, which was for another model's reply"
NO_TURN = "the turn is not in the store"
NO_PLACE = "the model's template does not write the reply after its prompt"
REFUSED = "the model's template refuses the conversation"


@dataclass(slots=True)
class CarryOver:
    """Renders samples for another model; counts what it carried over, and why the rest was left out."""

    renderer: ChatRenderer
    carried: int = 0
    left: Counter[str] = field(default_factory=Counter)

    def sample(self, sample: Sample, turn: Turn | None) -> Sample | None:
        """The sample with the other model's ids; None if it cannot teach anything."""
        made = self._made(sample, turn)
        if isinstance(made, str):
            self.left[made] += 1
            return None
        self.carried += 1
        return made

    def _made(self, sample: Sample, turn: Turn | None) -> Sample | str:
        if turn is None:
            return NO_TURN
        asked = last_user_index(turn.messages)
        if not sample.hints or asked is None:
            return ONLY_A_SCORE
        try:
            prompt = self._prompt(turn, ())
            read = [
                HintPrompt(hint.text, self._prompt(turn, (PlacedHint(asked, "", hint.text),))) for hint in sample.hints
            ]
            response = self._reply(turn)
        except (RequestError, ValueError):
            return REFUSED
        if not response:
            return NO_PLACE
        return Sample(
            turn=sample.turn,
            session=sample.session,
            user=sample.user,
            prompt=prompt,
            response=response,
            logp=(0.0,) * len(response),  # no ratio is computed for these
            mask=(True,) * len(response),
            version=BASE,
            hints=tuple(read),
            is_taught=True,
        )

    def _prompt(self, turn: Turn, hints: Sequence[PlacedHint]) -> tuple[int, ...]:
        return self.renderer.prompt(with_hints(turn.messages, hints), turn.tools, None, options=turn.options).tokens

    def _reply(self, turn: Turn) -> tuple[int, ...]:
        """The reply's ids after the prompt, up to the end mark; none if the reply is not found there."""
        template = self.renderer.template
        before = template.text(turn.messages, turn.tools, generation_prompt=True, options=turn.options)
        whole = template.text((*turn.messages, turn.reply), turn.tools, generation_prompt=False, options=turn.options)
        if not whole.startswith(before):
            return ()
        return self.renderer.encode(whole[len(before) :].rstrip())
