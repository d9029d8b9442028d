"""Constant prompts of a model that cannot read trees: what transformers' cache holds of a prompt, read once.

Layers of linear attention, convolutions, capped scores and sinks know nothing of branches, but each family can go on
from a cache: that of a prompt is filled without a gradient, and replies are read behind it as often as wanted. A small
trial when the model is opened shows whether that computes the same; if not, each reading reads its whole prompt.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn
from transformers import Cache, DynamicCache, PreTrainedModel
from transformers.cache_utils import LinearAttentionCacheLayerMixin

from openclaw_rl.trainers.forest import planted
from openclaw_rl.trainers.head import CLOSE, CLOSE_HALF, STRANGE
from openclaw_rl.trainers.recompute import Recompute

log = logging.getLogger(__name__)

PIECE = 2048  # tokens of a prompt that are read at once: each is compared with all before it
TRIED = (5, 6, 7, 8, 9, 6, 7, 10, 8, 5, 9, 7)
CUT = 7  # where the trial's prompt ends


class PromptCaches:
    """Reads prompts once, and replies behind them, with the layers of one model."""

    def __init__(self, model: PreTrainedModel, recompute: Recompute | None = None) -> None:
        self._model = model
        self._trunk: nn.Module = model.base_model
        self._recompute = recompute

    @classmethod
    def of(cls, model: PreTrainedModel, recompute: Recompute | None = None) -> PromptCaches | None:
        """For a model that computes the same behind a cache; None for any other."""
        caches = cls(model, recompute)
        try:
            worst = caches._worst()
        except STRANGE as problem:
            log.info("prompts are read again for each update, since this model cannot go on from a cache: %s", problem)
            return None
        if worst <= (CLOSE if model.dtype == torch.float32 else CLOSE_HALF):
            return caches
        log.info("prompts are read again for each update, since results behind a cache differ by %.2g", worst)
        return None

    def kept(self, prompts: Sequence[Sequence[int]], heard: Callable[[int], None]) -> list[Cache | None]:
        """What is kept of each prompt, None of an empty one; a beginning that several share is read once.

        `heard` receives the number of tokens of each piece that was read.
        """
        read = [index for index, prompt in enumerate(prompts) if len(prompt)]
        forest = planted([prompts[index] for index in read])
        ends = {path[-1] for path in forest.paths}
        last = {node.parent: number for number, node in enumerate(forest.nodes)}  # the last child of each
        held: dict[int, Cache] = {}
        for number, node in enumerate(forest.nodes):
            if node.parent < 0:
                cache: Cache = DynamicCache(config=self._model.config.get_text_config())
            elif number == last[node.parent] and node.parent not in ends:
                cache = held.pop(node.parent)  # nobody needs it any more
            else:
                cache = copy.deepcopy(held[node.parent])
            self._fill(cache, forest.tokens[node.offset : node.offset + node.size].tolist(), heard)
            held[number] = cache
        found: list[Cache | None] = [None] * len(prompts)
        for index, path in zip(read, forest.paths, strict=True):
            found[index] = held[path[-1]]
        return found

    def behind(self, cache: Cache | None, tokens: Sequence[int]) -> Tensor:
        """The last layer's output of tokens behind what is kept, [n, H]. Nothing that is kept changes."""
        more = [*tokens, tokens[-1]] if len(tokens) == 1 else tokens  # one token takes another way, which changes it
        ids = torch.tensor([more], device=self._model.device)
        if self._recompute is not None:
            self._recompute.off()  # a layer that is computed again takes no cache
        if cache is None:
            out = self._trunk(input_ids=ids, use_cache=False)
        else:
            out = self._trunk(input_ids=ids, past_key_values=_unchanged(cache), use_cache=True)
        hidden: Tensor = out.last_hidden_state[0, : len(tokens)]
        return hidden

    @torch.no_grad()
    def _fill(self, cache: Cache, tokens: Sequence[int], heard: Callable[[int], None]) -> None:
        if self._recompute is not None:
            self._recompute.off()
        for first in range(0, len(tokens), PIECE):
            ids = torch.tensor([tokens[first : first + PIECE]], device=self._model.device)
            self._trunk(input_ids=ids, past_key_values=cache, use_cache=True)
            heard(ids.shape[1])

    def _worst(self) -> float:
        """The error of the trial, as a share of the largest value: in two pieces, twice behind them, and a gradient."""
        ids = torch.tensor([TRIED], device=self._model.device)
        with torch.no_grad():
            want = self._trunk(input_ids=ids, use_cache=False).last_hidden_state[0, CUT:]
        cache = self.kept([TRIED[: CUT - 3], TRIED[:CUT]], lambda _: None)[1]
        found = [self.behind(cache, TRIED[CUT:]) for _ in range(2)]
        trained = [one for one in self._trunk.parameters() if one.requires_grad]
        if trained:
            torch.autograd.grad(found[1].sum(), trained, allow_unused=True)
        return max(float((one.detach() - want).abs().max()) for one in found) / max(float(want.abs().max()), 1e-9)


def _unchanged(cache: Cache) -> Cache:
    """A cache that begins as this one and leaves it as it is, even where layers write into what they hold."""
    found = copy.copy(cache)
    found.layers = [copy.copy(layer) for layer in cache.layers]
    for layer in found.layers:
        if isinstance(layer, LinearAttentionCacheLayerMixin):
            layer.update_conv_state = partial(_with_before, layer)
            layer.update_recurrent_state = _passed_on
    return found


def _with_before(layer: LinearAttentionCacheLayerMixin, states: Tensor, state_idx: int = 0, **_: object) -> Tensor:
    return torch.cat([layer.conv_states[state_idx], states], dim=-1)


def _passed_on(states: Tensor, *_: object, **__: object) -> Tensor:
    return states
