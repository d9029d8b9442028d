"""A model that reads trees of sequences: shared prefixes are computed once, forwards and backwards.

With constant prompts their keys and values are computed once, with the weights at that time, and later passes compute
only the rest of each sequence. A small trial when the model is opened shows whether its attention can do this; if not,
it reads sequences separately.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import nullcontext

import numpy as np
import torch
from torch import Tensor, nn
from transformers import AttentionInterface, PreTrainedModel

from openclaw_rl.trainers.attention import NAME, PLAIN, attend, is_separate_on
from openclaw_rl.trainers.attention_plan import AttentionPlan, plan_behind, plan_of
from openclaw_rl.trainers.forest import Bank, Forest, Ids, SequenceTail, planted
from openclaw_rl.trainers.head import CLOSE, CLOSE_HALF, STRANGE
from openclaw_rl.trainers.recompute import Recompute

log = logging.getLogger(__name__)

TRIED = ((5, 6, 7, 8, 9), (5, 6, 7, 10), (5, 6, 7, 10, 8, 6), (9, 8))


class Trees:
    """Reads forests with the layers of one model."""

    def __init__(self, model: PreTrainedModel, recompute: Recompute | None = None) -> None:
        self._model = model
        self._trunk: nn.Module = model.base_model
        self._recompute = recompute
        self._is_separate = is_separate_on(model.device)

    @classmethod
    def of(cls, model: PreTrainedModel, recompute: Recompute | None = None) -> Trees | None:
        """For a model that computes the same for sequences read as trees; None for any other, which stays as it was.

        The model attends by a plan from then on, also when its layers are computed again in the backward pass.
        """
        own = model.config.get_text_config()._attn_implementation
        if own != PLAIN:
            log.info("sequences are read separately: this model's attention is %s", own)
            return None
        trees = cls(model, recompute)
        try:
            worst = trees._worst()
        except STRANGE as problem:
            log.info("sequences are read separately, since this model cannot read them as trees: %s", problem)
        else:
            if worst <= (CLOSE if model.dtype == torch.float32 else CLOSE_HALF):
                return trees
            log.info("sequences are read separately, since results as trees differ by %.2g", worst)
        model.set_attn_implementation(own)
        return None

    def hidden(self, forest: Forest) -> Tensor:
        """The last layer's output of every token of a forest, [T, H]."""
        return self._read(forest.tokens, plan_of(forest, is_separate=self._is_separate))

    def bank(self, forest: Forest) -> Bank:
        """The keys and values of a forest with the weights as they are now; nothing is kept for a gradient."""
        plan = plan_of(forest, is_separate=self._is_separate)
        plan.kept = {}
        if len(forest.tokens):
            with torch.no_grad():
                self._read(forest.tokens, plan)
        return Bank(forest, plan.kept)

    def behind(self, bank: Bank, twigs: Sequence[SequenceTail]) -> Tensor:
        """The last layer's output of the twigs' tokens, one twig after the other, [Q, H]."""
        tokens = np.concatenate([np.asarray(twig.tokens, dtype=np.int64) for twig in twigs])
        return self._read(tokens, plan_behind(bank, twigs, is_separate=self._is_separate))

    def _read(self, tokens: Ids, plan: AttentionPlan) -> Tensor:
        device = self._model.device
        ids = torch.from_numpy(tokens).to(device)[None]
        positions = torch.from_numpy(plan.positions).to(device)[None]
        held = len(plan.key_positions) - len(plan.positions)
        with nullcontext() if self._recompute is None else self._recompute.over(ids.numel(), held):
            found = self._trunk(input_ids=ids, position_ids=positions, use_cache=False, openclaw_plan=plan)
        hidden: Tensor = found.last_hidden_state
        return hidden[0]

    def _worst(self) -> float:
        """The error of the trial, as a share of the largest value."""
        device, worst, largest = self._model.device, 0.0, 1e-9
        with torch.no_grad():
            apart = [
                self._trunk(input_ids=torch.tensor([one], device=device), use_cache=False).last_hidden_state[0]
                for one in TRIED
            ]
        AttentionInterface.register(NAME, attend)
        self._model.set_attn_implementation(NAME)
        forest = planted(TRIED)
        bank = self.bank(planted([one[:2] for one in TRIED]))
        twigs = [
            SequenceTail(one[2:], 2, path) for one, path in zip(TRIED, bank.forest.paths, strict=True) if len(one) > 2
        ]
        with torch.no_grad():
            whole, behind = self.hidden(forest), self.behind(bank, twigs)
            at = 0
            for index, one in enumerate(TRIED):
                pairs = [(apart[index], whole[torch.from_numpy(forest.places(index))])]
                if len(one) > 2:
                    pairs.append((apart[index][2:], behind[at : at + len(one) - 2]))
                    at += len(one) - 2
                worst = max(worst, *(float((a - b).abs().max()) for a, b in pairs))
                largest = max(largest, float(apart[index].abs().max()))
        return worst / largest
