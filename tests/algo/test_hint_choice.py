from __future__ import annotations

import torch
from torch import tensor

from openclaw_rl.algo.hint_choice import HintGranularity, chosen_hint, overlap

STUDENT_TOP = tensor([[1, 2], [3, 4]])
TEACHERS_TOP = tensor([[[1, 2], [8, 9]], [[1, 9], [3, 9]], [[7, 8], [4, 3]]])


def test_overlap_counts_tokens_both_hold_in_whatever_order() -> None:
    assert overlap(STUDENT_TOP, TEACHERS_TOP).tolist() == [[2, 0], [1, 1], [0, 2]]


def test_one_hint_is_chosen_for_the_reply_or_one_for_each_token() -> None:
    assert chosen_hint(STUDENT_TOP, TEACHERS_TOP, by=HintGranularity.SEQUENCE).tolist() == [0, 0]  # 2, 2, 2: the first
    assert chosen_hint(STUDENT_TOP, TEACHERS_TOP[1:], by=HintGranularity.SEQUENCE).tolist() == [0, 0]
    assert chosen_hint(STUDENT_TOP, TEACHERS_TOP, by=HintGranularity.TOKEN).tolist() == [0, 2]
    more = torch.cat([TEACHERS_TOP, STUDENT_TOP.unsqueeze(0)])
    assert chosen_hint(STUDENT_TOP, more, by=HintGranularity.SEQUENCE).tolist() == [3, 3]
