"""Tokens of demonstrations that carry content, and of which a hint about style makes the teacher unsure.

A small model that is told how to write may copy the wrong word: "Move plan.txt into desk" was answered with
"box/plan.txt" by a third of its replies. The others would teach that share, too, since the whole distribution of the
teacher is learned. Without the hint the model is certain of such a token. So where it is certain of the very token that
the demonstration says, and with the hint less certain, that token is learned, and not the distribution.

A format also has tokens of which the model is certain without the hint, and which a wish makes less likely. They occur
in many demonstrations whose requests do not have them, and those of content in few.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from openclaw_rl.core.form import CERTAIN, form_tokens
from openclaw_rl.trainers.lessons import Lesson

DOUBTED = math.log(0.9)  # log-probability of a token of content with the hint, at most


def form_ids(taught: Sequence[Lesson]) -> Tensor | None:
    """The ids of form in the demonstrations, in order; None if there are too few of these."""
    found = form_tokens([{*one.sample.response} - {*one.sample.prompt} for one in taught if one.is_taught])
    return None if found is None else torch.tensor(sorted(found), dtype=torch.int64)


def is_content(ids: Tensor, bare: Tensor | None, hinted: Tensor | None, form: Tensor | None) -> Tensor | None:
    """For each token of a demonstration whether it is learned itself, [n]; None if none is.

    `bare` and `hinted` are its log-probabilities without the hint and with it, [n].
    """
    if bare is None or hinted is None or form is None:
        return None
    found = (bare >= CERTAIN) & (hinted <= DOUBTED) & ~torch.isin(ids, form.to(ids.device))
    return found if bool(found.any()) else None
