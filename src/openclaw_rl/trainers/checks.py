"""Whether a step taught more than its examples: demonstrations that it did not learn from, read with its weights.

From a few examples a model may learn what they have in common by chance. Where that is not what the teacher says, some
token of its replies has become unlikely; elsewhere all tokens are about as likely as for the teacher.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import Parameter

from openclaw_rl.trainers.batch import read, token_logp
from openclaw_rl.trainers.lessons import Lesson
from openclaw_rl.trainers.model import Speaker
from openclaw_rl.trainers.ranks import Ranks
from openclaw_rl.trainers.settings import TrainerSettings

MISSED_NATS = 1.0  # that a token may be less likely than for the teacher who said it
PART = 0.5  # of the way from the weights before these rounds to those after them, at which the step ends
ROUNDS = 2  # times that a step goes on with those that it missed
MORE = 4  # each time it may take an n-th of its updates for them, even if it has used all
MISSED_LEFT = 0.01  # share of the distance at which learning from the missed ones ends: most of it is theirs


def missed(model: Speaker, held: Sequence[Lesson], settings: TrainerSettings, ranks: Ranks) -> list[Lesson]:
    """Those of these demonstrations that have a token which the model finds much less likely than the teacher did.

    Every rank reads all of them; the first one decides.
    """
    far: list[int] = []
    with torch.no_grad():
        for one in read(model, [lesson.reading() for lesson in held], settings.max_tokens_per_pass):
            for index, rows in one.parts:
                said = held[index].sample
                ids = torch.tensor(said.response, device=one.hidden.device)
                logp = token_logp(model, one.hidden[rows], ids, settings.logits_per_chunk)
                if bool((torch.tensor(said.logp, device=logp.device) - logp > MISSED_NATS).any()):
                    far.append(index)
    decided = ranks.shared(sorted(far))
    return [held[index] for index in decided] if isinstance(decided, list) else []


def go_back(parameters: Mapping[str, Parameter], before: Mapping[str, Tensor]) -> None:
    """Moves those weights that are in `before` toward it, until `PART` of the way from there is left.

    What a few lessons teach besides is lost sooner than what they were meant to teach: arXiv 2109.01903.
    """
    with torch.no_grad():
        for name, one in before.items():
            parameters[name].lerp_(one, 1.0 - PART)
