"""The limits of a request, checked before anything is queued."""

from __future__ import annotations

from collections.abc import Collection

from openclaw_rl.core.engine import EngineInfo
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.errors import EngineError, RequestError


def check_prompt(prompt: Prompt, info: EngineInfo) -> None:
    """Raises RequestError if the prompt leaves no room for a token, or is not for this model."""
    if len(prompt) >= info.context_length:
        raise RequestError(
            f"the prompt has {len(prompt)} tokens, the context of {info.name} is {info.context_length}",
            fix="shorten the conversation",
            code="context_length_exceeded",
            param="messages",
        )
    _check_ids(prompt, info)


def check_version(
    version: PolicyVersion, loaded: Collection[PolicyVersion], leaving: Collection[PolicyVersion]
) -> None:
    """Raises EngineError if a version other than the base model is not loaded, or is being unloaded."""
    if not version.is_base and (version not in loaded or version in leaving):
        raise EngineError(f"version {version} is not loaded", fix="load its adapter, or ask for another version")


def check_score(prompt: Prompt, start: int, info: EngineInfo) -> None:
    """Raises RequestError if there is nothing to score, or it does not fit."""
    if not 1 <= start < len(prompt):
        raise RequestError(f"cannot score from token {start} of {len(prompt)}", fix="start at 1 or later")
    if len(prompt) > info.context_length:
        raise RequestError(
            f"{len(prompt)} tokens to score, the context of {info.name} is {info.context_length}",
            fix="score a shorter text",
            code="context_length_exceeded",
        )
    _check_ids(prompt, info)


def _check_ids(prompt: Prompt, info: EngineInfo) -> None:
    if prompt.images:
        raise RequestError(f"{info.name} reads text only", fix="leave the images out", code="images_not_supported")
    if not prompt.tokens:
        raise RequestError("the prompt contains no token", fix="send some text")
    if min(prompt.tokens) < 0 or max(prompt.tokens) >= info.vocab_size:
        raise RequestError(
            f"a token id is outside 0 to {info.vocab_size - 1}", fix="use the tokenizer of the model that is served"
        )
