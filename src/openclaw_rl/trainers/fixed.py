"""A model that never trains: another one as the teacher, or the base model beside a policy whose every weight moves."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel

from openclaw_rl.trainers.model import device_of, head_of, load_frozen
from openclaw_rl.trainers.ranks import ALONE, Ranks
from openclaw_rl.trainers.settings import TrainerSettings
from openclaw_rl.trainers.shards import divided, wants_shards
from openclaw_rl.trainers.trees import Trees
from openclaw_rl.trainers.vocabulary import check_same_vocabulary

NEVER = -1e4  # the logit of an id that a smaller vocabulary lacks


class FixedModel:
    """Hidden states and logits of a frozen model, over the ids of a policy's vocabulary."""

    def __init__(
        self, model: PreTrainedModel, settings: TrainerSettings, *, vocabulary: int, ranks: Ranks = ALONE
    ) -> None:
        self.vocabulary = vocabulary
        self.device = device_of(settings)
        self.shared_by = (
            divided(model, ranks, self.device) if wants_shards(model, settings, ranks, self.device) else None
        )
        self._trunk: nn.Module = model.base_model
        self._head = head_of(model)
        self.trees = Trees.of(model)

    def hidden(self, ids: Tensor) -> Tensor:
        """The last layer's output: [B, T] ids in, [B, T, H] out."""
        with torch.no_grad():
            hidden: Tensor = self._trunk(input_ids=ids, use_cache=False).last_hidden_state
        return hidden

    def logits(self, rows: Tensor) -> Tensor:
        """[n, H] to [n, V] in float32. Ids beyond either vocabulary are padding, which nobody samples."""
        with torch.no_grad():
            logits: Tensor = self._head(inputs_embeds=rows.unsqueeze(0), use_cache=False).logits
        own = logits.squeeze(0).float()[:, : self.vocabulary]
        return functional.pad(own, (0, self.vocabulary - own.shape[1]), value=NEVER)


def load_teacher(
    folder: Path, settings: TrainerSettings, *, student: Path, vocabulary: int, ranks: Ranks = ALONE
) -> FixedModel:
    """The model of a folder as a teacher. Raises ModelError, ConfigError where its tokenizer is another one."""
    check_same_vocabulary(student, folder)
    return FixedModel(load_frozen(folder, settings, ranks), settings, vocabulary=vocabulary, ranks=ranks)
