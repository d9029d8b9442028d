"""Models without LoRA: one of which every weight trains, and fixed ones that never train."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel

from openclaw_rl.core.message import Json
from openclaw_rl.errors import AdapterError
from openclaw_rl.trainers.head import check_same, head_of, longest_of, read_text
from openclaw_rl.trainers.model import Speaker, device_of, load_frozen
from openclaw_rl.trainers.prompt_caches import PromptCaches
from openclaw_rl.trainers.ranks import ALONE, Ranks, divided, like, wants_shards
from openclaw_rl.trainers.recompute import Recompute
from openclaw_rl.trainers.settings import TrainerSettings
from openclaw_rl.trainers.trees import Trees
from openclaw_rl.trainers.vocabulary import check_same_vocabulary
from openclaw_rl.weights.lending import Loans

NEVER = -1e4  # the logit of an id that a smaller vocabulary lacks


class FullModel:
    """The interface of `CausalModel` for a model without LoRA.

    In float32: weights, gradient, two moments and the base model are 20 bytes for each weight.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        base: PreTrainedModel,
        settings: TrainerSettings,
        *,
        name: str,
        ranks: Ranks = ALONE,
    ) -> None:
        self.name = name
        self.vocabulary: int = model.config.get_text_config().vocab_size
        self.longest: int = longest_of(model)
        self.parameters: int = model.num_parameters()
        self.device = device_of(settings)
        text = read_text(model, name)
        self._body = model.requires_grad_(True)
        self.shared_by = (
            divided(model, ranks, self.device) if wants_shards(model, settings, ranks, self.device) else None
        )
        self._trunk: nn.Module = model.base_model
        self._head = head_of(model)
        self._base = FixedModel(base, settings, vocabulary=self.vocabulary, ranks=ranks)
        self._base_weights = dict(base.named_parameters())
        self._recompute = Recompute(model, always=settings.recompute_layers)
        self.trees = Trees.of(model, self._recompute)
        self.caches: PromptCaches | None = None  # here prompts are never constant
        check_same(self, text, name)

    def hidden(self, ids: Tensor) -> Tensor:
        """The last layer's output. [B, T] ids, padded on the right, in; [B, T, H] out."""
        with self._recompute.over(ids.numel()):
            hidden: Tensor = self._trunk(input_ids=ids, use_cache=False).last_hidden_state
        return hidden

    def logits(self, rows: Tensor) -> Tensor:
        """[n, H] to [n, V] in float32."""
        logits: Tensor = self._head(inputs_embeds=rows.unsqueeze(0), use_cache=False).logits
        return logits.squeeze(0).float()

    @contextmanager
    def base(self) -> Iterator[Speaker]:
        """The base model."""
        yield self._base

    @property
    def teacher(self) -> Speaker:
        """The model whose head turns a base teacher's hidden states into logits."""
        return self._base

    @contextmanager
    def speaking_as(self, weights: Mapping[str, Tensor]) -> Iterator[None]:
        """Uses these weights within the context."""
        own = self.weights()
        self.set_weights(weights)
        try:
            yield
        finally:
            self.set_weights(own)

    @contextmanager
    def speaking_through(self, weights: Mapping[str, Tensor]) -> Iterator[None]:
        """As `speaking_as`, since these weights have no base."""
        with self.speaking_as(weights):
            yield

    def weights(self) -> dict[str, Tensor]:
        """A copy of all weights, by the names in the model's file; of divided ones, this rank's part."""
        return {name: parameter.detach().clone() for name, parameter in self.named()}

    def set_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Sets weights of the same names and shapes."""
        with torch.no_grad():
            for name, parameter in self.named():
                parameter.copy_(like(parameter, weights[name]))

    def named(self) -> Iterator[tuple[str, nn.Parameter]]:
        """The trained parameters; tied ones appear once."""
        yield from self._body.named_parameters()

    def start_anew(self, seed: int) -> None:
        """Restores the base model's weights; nothing is random."""
        self.set_weights(self._base_weights)

    def stand_on(self, weights: Mapping[str, Tensor]) -> None:
        """A fully trained model cannot be based on an adapter. Raises AdapterError for weights."""
        if weights:
            raise AdapterError(
                "with trainer.parameters = full a version cannot be based on a shared one",
                fix="set train.scopes to shared",
            )

    def config(self, rank: int, alpha: float) -> dict[str, Json]:
        """The model's own config.json."""
        found: dict[str, Json] = self._body.config.to_dict()
        return found | {"architectures": [type(self._body).__name__]}


def open_full(folder: Path, settings: TrainerSettings, ranks: Ranks = ALONE) -> FullModel:
    """The model of a folder, twice: one to train, and one fixed. Raises ModelError, ConfigError."""
    model, base = (load_frozen(folder, settings, ranks) for _ in range(2))
    return FullModel(model, base, settings, name=folder.name, ranks=ranks)


class FixedModel:
    """A model that never trains: another model as the teacher, or the base model of full training.

    Its hidden states and logits are over the ids of the policy's vocabulary.
    """

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
        self.caches = PromptCaches.of(model) if self.trees is None and self.shared_by is None else None

    def hidden(self, ids: Tensor) -> Tensor:
        """The last layer's output: [B, T] ids in, [B, T, H] out."""
        with torch.no_grad():
            hidden: Tensor = self._trunk(input_ids=ids, use_cache=False).last_hidden_state
        return hidden

    def logits(self, rows: Tensor) -> Tensor:
        """[n, H] to [n, V] in float32. Ids beyond either vocabulary are padding, which is never sampled."""
        with torch.no_grad():
            logits: Tensor = self._head(inputs_embeds=rows.unsqueeze(0), use_cache=False).logits
        own = logits.squeeze(0).float()[:, : self.vocabulary]
        return functional.pad(own, (0, self.vocabulary - own.shape[1]), value=NEVER)


def load_teacher(
    folder: Path,
    settings: TrainerSettings,
    *,
    student: Path,
    vocabulary: int,
    ranks: Ranks = ALONE,
    loans: Loans | None = None,
) -> FixedModel:
    """The model of a folder as a teacher. Raises ModelError, ConfigError if its tokenizer differs."""
    check_same_vocabulary(student, folder)
    model = load_frozen(folder, settings, ranks, loans=loans)
    return FixedModel(model, settings, vocabulary=vocabulary, ranks=ranks)
