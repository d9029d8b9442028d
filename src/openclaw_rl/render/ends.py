"""Which ids end a reply: every one that the model's files name, and the one its template writes after a reply."""

from __future__ import annotations

from collections.abc import Sequence

from openclaw_rl.core.message import Message, Role, TextPart, message
from openclaw_rl.errors import ModelError, RequestError
from openclaw_rl.render.template import ChatTemplate

_ASKED, _SAID, _THOUGHT = "Quartz?", "Feldspar.", "Granite."


def ends_of_replies(template: ChatTemplate, named: Sequence[int]) -> tuple[int, ...]:
    """The ids at which sampling stops: those `named` by the model's configurations first, then the tokenizer's own.

    The id that the template writes after a reply is added if neither names it. Next to special tokens, an id of plain
    text is left out: it is an architecture's default, not the model's own setting. Raises
    ModelError if there is none at all: replies would never end.
    """
    found = dict.fromkeys((*named, *template.eos_ids()))
    written = written_end(template)
    if written is not None:
        found.setdefault(written)
    special = template.tokenizer.get_added_tokens_decoder()
    if any(one in special for one in found):
        found = {one: None for one in found if one in special}
    if not found:
        raise ModelError(
            "no file in the model's folder names an end-of-reply token, so replies would never end",
            fix="name it: `eos_token` in tokenizer_config.json, or `eos_token_id` in generation_config.json",
        )
    return tuple(found)


def written_end(template: ChatTemplate) -> int | None:
    """The special token that the template writes after a reply; None if it writes none.

    A token that also occurs within a reply, between thinking and text, does not end it.
    """
    user = message(Role.USER, _ASKED)
    try:
        asked = template.text((user,), generation_prompt=True)
        said = template.text((user, message(Role.ASSISTANT, _SAID)), generation_prompt=False)
        thought = template.text(
            (user, Message(Role.ASSISTANT, (TextPart(_SAID),), reasoning=_THOUGHT)), generation_prompt=False
        )
    except RequestError:
        return None
    after = said.rpartition(_SAID)[2].lstrip()
    special = template.tokenizer.get_added_tokens_decoder()
    for found in template.encode(after)[:1]:
        token = special.get(found)
        if token is None or not token.special:
            return None
        within = (text.rpartition(_ASKED)[2].count(token.content) for text in (asked, said, thought))
        before, *whole = within
        return found if all(count - before == 1 for count in whole) else None
    return None
