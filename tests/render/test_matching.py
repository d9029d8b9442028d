"""Messages are matched as a comparison of all their digests would match them, whichever way is taken."""

from __future__ import annotations

import random
from difflib import SequenceMatcher

import pytest

from openclaw_rl.core.message import Message, Role, ToolCall, message
from openclaw_rl.render.continuation import key_of, matching


def by_digests(old: list[Message], new: list[Message]) -> dict[int, int]:
    """What is matched where every message is digested; of conversations without replies."""
    matcher = SequenceMatcher(None, [key_of(item) for item in old], [key_of(item) for item in new], autojunk=False)
    return {
        match.b + offset: match.a + offset for match in matcher.get_matching_blocks() for offset in range(match.size)
    }


@pytest.mark.parametrize("seed", range(40))
def test_lists_of_few_words_are_matched_as_by_their_digests(seed: int) -> None:
    chance = random.Random(seed)
    old, new = ([message(Role.USER, chance.choice("abc")) for _ in range(chance.randint(0, 6))] for _ in range(2))
    if seed % 2:
        new = [*old[: chance.randint(0, 6)], *new[: seed % 3]]  # one begins as the other does
    assert matching(old, new) == by_digests(old, new)


def test_a_reply_that_was_written_otherwise_is_the_same_reply() -> None:
    said = Message(Role.ASSISTANT, (), tool_calls=(ToolCall("one", "read", '{"path":  "a", "at": 1.0}'),))
    back = Message(Role.ASSISTANT, (), tool_calls=(ToolCall("two", "read", '{"at": 1, "path": "a"}'),))
    other = Message(Role.ASSISTANT, (), tool_calls=(ToolCall("two", "read", '{"at": 2, "path": "a"}'),))
    asked = message(Role.USER, "read it")
    assert matching([asked, said], [asked, back, asked]) == {0: 0, 1: 1}
    assert matching([asked, said], [asked, other, asked]) == {0: 0}


def test_a_name_is_no_word_of_a_text() -> None:
    named = Message(Role.USER, message(Role.USER, "b").content, name="a")
    assert matching([named], [message(Role.USER, "b")]) == {}
