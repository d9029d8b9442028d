"""What every renderer does, the double included: a later kind is added to RENDERERS and has to pass as it is."""

from __future__ import annotations

from dataclasses import replace

import pytest
from contract_kinds import RENDERERS, RendererKind

from openclaw_rl.core.completion import Completion, Finish
from openclaw_rl.core.hint import Hint, PlacedHint, with_hints
from openclaw_rl.core.message import Message, Role, message
from openclaw_rl.core.turn import Turn
from openclaw_rl.core.version import BASE
from openclaw_rl.testing.turns import a_turn

ASKED = (message(Role.USER, "What is 2 + 2?"),)
HINT = Hint("Write it as a sentence.")


@pytest.fixture(params=RENDERERS)
def kind(request: pytest.FixtureRequest) -> RendererKind:
    return RENDERERS[request.param]()


def served(kind: RendererKind, text: str = "It is four.") -> Turn:
    """A turn as it is served: prompt, sampled ids, and the reply that they were read as."""
    prompt = kind.renderer.prompt(ASKED, (), None)
    ids = kind.answer(text)
    nats = (-0.1,) * len(ids)
    completion = Completion(ids, nats, nats, BASE, Finish.STOP)
    turn = a_turn("t", ASKED, kind.renderer.decode(ids)[0])
    return replace(turn, prompt=prompt, completion=completion)


def test_a_prompt_is_the_same_each_time_and_grows_with_what_is_said(kind: RendererKind) -> None:
    first = kind.renderer.prompt(ASKED, (), None)
    assert kind.renderer.prompt(ASKED, (), None).tokens == first.tokens
    assert first.continued == 0
    said = (message(Role.SYSTEM, "You help."), *ASKED)
    assert len(kind.renderer.prompt(said, (), None)) > len(first)


def test_a_prompt_goes_on_from_a_served_turn_by_its_very_ids(kind: RendererKind) -> None:
    turn = served(kind)
    then = (*turn.messages, turn.reply, message(Role.USER, "And 3 + 3?"))
    prompt = kind.renderer.prompt(then, (), turn)
    held = (*turn.prompt.tokens, *turn.completion.tokens)
    assert prompt.tokens[: len(held)] == held
    assert prompt.continued >= len(held)
    assert len(prompt) > len(held)


def test_another_conversation_does_not_go_on_from_the_turn(kind: RendererKind) -> None:
    other = (message(Role.USER, "Who are you?"),)
    assert kind.renderer.prompt(other, (), served(kind)).continued == 0


def test_a_hint_stands_in_the_turns_own_prompt_and_all_else_stays(kind: RendererKind) -> None:
    turn = served(kind)
    hinted = kind.renderer.hinted(turn, HINT)
    assert len(hinted) > len(turn.prompt)
    ids = turn.prompt.tokens
    before = _alike(ids, hinted.tokens)
    after = _alike(ids[::-1], hinted.tokens[::-1])
    assert before > 0
    assert before + after >= len(ids) - 1  # the last id of what the user said may be another with a hint after it


def _alike(ours: tuple[int, ...], theirs: tuple[int, ...]) -> int:
    """How many ids both begin with."""
    return next((at for at, (one, other) in enumerate(zip(ours, theirs, strict=False)) if one != other), len(ours))


def test_a_hint_needs_a_user_message(kind: RendererKind) -> None:
    turn = replace(served(kind), messages=(message(Role.SYSTEM, "You help."),))
    with pytest.raises(ValueError, match="no user message"):
        kind.renderer.hinted(turn, HINT)


def test_the_turns_own_messages_are_read_as_they_were_served(kind: RendererKind) -> None:
    turn = served(kind)
    assert kind.renderer.reread(turn, turn.messages) == turn.prompt
    other: list[Message] = [ASKED[0].with_text("What is 5 + 5?")]
    assert kind.renderer.reread(turn, other).tokens != turn.prompt.tokens


def test_without_the_hints_it_was_served_with_a_turn_is_read_as_if_they_had_not_been(kind: RendererKind) -> None:
    bare = served(kind)
    placed = (PlacedHint(0, "hint-1", "Be brief."),)
    read = kind.renderer.prompt(with_hints(ASKED, placed), (), None)
    turn = replace(bare, prompt=read, carried=placed)
    assert kind.renderer.reread(turn, turn.read) == read
    assert kind.renderer.reread(turn, turn.messages).tokens == bare.prompt.tokens


def test_an_answer_is_read_whole_and_its_spans_cover_its_tokens(kind: RendererKind) -> None:
    ids = kind.answer("It is four.")
    said, spans = kind.renderer.decode(ids)
    assert (said.role, said.text) == (Role.ASSISTANT, "It is four.")
    assert [span.start for span in spans] == [0, *(span.stop for span in spans[:-1])]
    assert spans[-1].stop == len(ids)


def test_what_opens_a_users_words_is_ids_or_not_known(kind: RendererKind) -> None:
    found = kind.renderer.user_opening()
    assert found is None or (len(found[0]) > 0 and found[1] >= 0)
