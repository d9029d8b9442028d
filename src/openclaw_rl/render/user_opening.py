"""Where a user's words begin: what a model reads in front of them, and what ends them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from openclaw_rl.core.message import Json, Message, Role, Tool, message
from openclaw_rl.errors import RequestError
from openclaw_rl.render.template import ChatTemplate

_WORDS = "Quartz feldspar granite"


@dataclass(frozen=True, slots=True)
class UserOpening:
    """The ids in front of a user's words, and the special token that the template writes behind them."""

    ids: tuple[int, ...]
    end: int


def user_opening(
    template: ChatTemplate, before: Sequence[Message], tools: Sequence[Tool], options: Mapping[str, Json] | None
) -> UserOpening | None:
    """How a user's turn opens behind these messages; None where the template does not tell, or refuses them."""
    try:
        text = template.text((*before, message(Role.USER, _WORDS)), tools, generation_prompt=False, options=options)
    except RequestError:
        return None
    front, found, behind = text.rpartition(_WORDS)
    if not found:
        return None
    special = template.tokenizer.get_added_tokens_decoder()
    for end in template.encode(behind.lstrip())[:1]:
        if end in special and special[end].special:
            return UserOpening(tuple(template.encode(front)), end)
    return None
