"""A model's head without its layers, and how a model of any family reads text: the reference for what is made of it."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.modeling_outputs import MoeModelOutputWithPast

from openclaw_rl.errors import ModelError
from openclaw_rl.weights.shared import is_linear

if TYPE_CHECKING:
    from openclaw_rl.trainers.model import Speaker

TRIED = (5, 6, 7, 8, 6)  # ids of a text
UNKNOWN_LENGTH = 2048  # tokens that a model takes which names no limit: what the engine serves then
CLOSE = 1e-3  # of the largest logit, in float32; rounding in half precision is a hundred times coarser
CLOSE_HALF = 5e-2
# What a model may raise that is not built as others are.
STRANGE = (AttributeError, IndexError, KeyError, NotImplementedError, RuntimeError, TypeError, ValueError)


class _Passed(MoeModelOutputWithPast):  # type: ignore[misc]  # transformers' classes have no types
    """Hidden states as the output of a model's layers. What else a family's layers return is None here."""

    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):
            raise AttributeError(name)


class _Given(nn.Module):
    """Replaces layers, and passes the given hidden states through. Else it is like them: some heads use a scale or a
    table that the layers hold, and some models call a part of their layers."""

    def __init__(self, layers: nn.Module) -> None:
        super().__init__()
        self.__dict__["layers"] = layers  # not as a part, or they would be moved and counted with the head

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.__dict__["layers"], name)
        return _Given(found) if isinstance(found, nn.Module) else found

    def forward(self, *_: object, inputs_embeds: Tensor, **__: object) -> _Passed:
        """The hidden states as the layers' output."""
        return _Passed(last_hidden_state=inputs_embeds)


def head_of(model: PreTrainedModel) -> nn.Module:
    """The model without its layers: it turns hidden states into logits, in any family."""
    head: nn.Module = copy.copy(model)
    head._modules = {**model._modules, model.base_model_prefix: _Given(model.base_model)}
    return head


def longest_of(model: PreTrainedModel) -> int:
    """The most tokens that a model takes."""
    return getattr(model.config.get_text_config(), "max_position_embeddings", None) or UNKNOWN_LENGTH


@dataclass(frozen=True, slots=True)
class ReadText:
    """How a model as it was loaded reads a short text."""

    logits: Tensor  # [T, V], float32
    reached: frozenset[str]  # the linear layers that the text goes through, by path; not those for pictures or sounds
    is_half: bool


@torch.no_grad()
def read_text(model: PreTrainedModel, name: str) -> ReadText:
    """Reads a few ids. Call it before anything is done to the model, and on each rank alike. Raises ModelError."""
    reached: set[str] = set()
    hooks = [
        module.register_forward_pre_hook(lambda *_, path=path: reached.add(path))
        for path, module in model.named_modules()
        if is_linear(module)
    ]
    device = model.get_input_embeddings().weight.device
    try:
        logits = model(input_ids=torch.tensor([TRIED], device=device), use_cache=False).logits[0].float()
    except STRANGE as problem:
        raise _refusal(name, problem) from problem
    finally:
        for hook in hooks:
            hook.remove()
    return ReadText(logits, frozenset(reached), is_half=model.dtype != torch.float32)


@torch.no_grad()
def check_same(speaker: Speaker, text: ReadText, name: str) -> None:
    """Raises ModelError unless it computes the logits that the model itself computes."""
    try:
        logits = speaker.logits(speaker.hidden(torch.tensor([TRIED], device=speaker.device))[0])
        want = text.logits.to(logits.device)
        worst = float((logits - want).abs().max()) / max(float(want.abs().max()), 1e-9)
    except STRANGE as problem:
        raise _refusal(name, problem) from problem
    if not worst <= (CLOSE_HALF if text.is_half else CLOSE):
        raise _refusal(name, f"its logits differ by {worst:.2g}")


def _refusal(name: str, why: object) -> ModelError:
    """Raises what it is about instead if that is a lack of memory, which says nothing of the model."""
    if isinstance(why, RuntimeError) and "memory" in str(why):
        raise why
    return ModelError(
        f"{name} cannot be trained here: layers and head apart do not compute what the model computes ({why})",
        fix="choose another model, or another trainer (trainer.kind = external)",
    )
