"""What is rendered at once and what in a thread: only new text counts, wherever the old text stands now."""

from __future__ import annotations

import pytest

from openclaw_rl.core.message import Message, Role, message
from openclaw_rl.serve.generate import is_quick
from openclaw_rl.testing.turns import a_turn

LONG = message(Role.SYSTEM, "a" * 19_000)
ALSO = message(Role.USER, "b" * 1_000)  # just too much, together
SHORT = message(Role.USER, "c" * 999)
SERVED = a_turn("t", (LONG, SHORT))


@pytest.mark.parametrize(
    ("messages", "is_first_quick", "is_next_quick"),
    [
        ((LONG, SHORT), True, True),
        ((LONG, ALSO), False, True),
        ((LONG, SHORT, ALSO), False, True),
        ((ALSO, LONG), False, True),  # what was served stands elsewhere
        ((message(Role.SYSTEM, "d" * 20_000), SHORT), False, False),
        ((LONG, SHORT, message(Role.USER, "d" * 20_000)), False, False),
        ((SHORT,) * 200, False, True),
        ((SHORT,) * 201, False, False),  # many messages are many, however old
    ],
)
def test_only_new_text_counts(messages: tuple[Message, ...], is_first_quick: bool, is_next_quick: bool) -> None:
    assert is_quick(messages, None) is is_first_quick
    assert is_quick(messages, SERVED) is is_next_quick
