"""What the process that follows grammars answers to a step: by entry, those it cannot follow among the others."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

import openclaw_rl
from openclaw_rl.core.sampling import Grammar
from openclaw_rl.engines.local.grammars import Grammars
from openclaw_rl.engines.local.guide_host import Following
from openclaw_rl.engines.local.guide_wire import Ask, Open

BUNDLED = Path(openclaw_rl.__file__).parent / "tiny" / "weights"
VOCAB = json.loads((BUNDLED / "config.json").read_text("utf-8"))["vocab_size"]
WORDS = -(-VOCAB // 32)
END = 2
NOUGHT = Grammar('start: "0"', (END,))


def _following() -> Following:
    following = Following(Grammars(BUNDLED / "tokenizer.json", VOCAB, END), WORDS)
    following.open(Open(1, NOUGHT, ()))
    following.open(Open(2, Grammar("start: (", (END,)), ()))
    return following


def test_answers_that_cannot_be_followed_are_named_and_may_say_anything_while_the_others_are_followed() -> None:
    answer = _following().answer(Ask(((7, ()), (1, ()), (2, ())), (), True))
    left = np.frombuffer(answer.bits, dtype=np.uint32).reshape(3, WORDS)
    assert [int(np.bitwise_count(row).sum()) for row in left] == [WORDS * 32, 1, WORDS * 32]
    assert answer.forced == (False, True, False)
    assert answer.problems.keys() == {0, 2}
    assert answer.problems[0] == "the grammar is not known any more"
    assert "cannot be constrained" in answer.problems[2]
    assert answer.complete == answer.over == (False, False, False)


def test_without_what_comes_next_only_the_ends_are_answered_and_what_is_gone_is_forgotten() -> None:
    following = _following()
    (nought,) = np.flatnonzero(
        np.unpackbits(
            np.frombuffer(following.answer(Ask(((1, ()),), (2,), True)).bits, dtype=np.uint8), bitorder="little"
        )
    )
    said = following.answer(Ask(((1, (int(nought),)),), (), True))
    assert said.complete == (True,)
    answer = following.answer(Ask(((1, ()), (2, ())), (), False))
    assert (answer.bits, answer.forced) == (b"", ())
    assert answer.complete == (True, False)
    assert answer.problems == {1: "the grammar is not known any more"}
