"""What tells a token of a reply's form from one of its content: the form occurs in replies to many requests."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

CERTAIN = math.log(0.95)  # log-probability of a token of content without a hint, at least
FORM_SHARE = 0.2  # a token in more than this share of the replies is one of form
LEAST_REPLIES = 8  # of fewer, what is form is not known


def form_tokens(replies: Sequence[set[int]]) -> set[int] | None:
    """The ids of form, given the ids of each reply to a different request; None if there are too few replies.

    What a request names is content however often it is asked for: leave out of each reply the ids of its prompt.
    """
    if len(replies) < LEAST_REPLIES:
        return None
    counts = Counter(token for said in replies for token in said)
    return {token for token, count in counts.items() if count > FORM_SHARE * len(replies)}
