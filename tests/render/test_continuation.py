"""Conversations of every family go on from what was served, whatever the client made of it: exactly, or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest
from test_families import MODELS, in_letters, renderer_of

from openclaw_rl.core.completion import Completion, Finish
from openclaw_rl.core.message import Message, Role, TextPart, Tool, ToolCall, message
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.turn import Turn, TurnKind
from openclaw_rl.core.version import BASE
from openclaw_rl.render.renderer import ChatRenderer
from openclaw_rl.testing.families import STAND_INS, StandIn
from openclaw_rl.testing.rewriting import Rewriting, ThinkingTreatment, claimed, is_honest, served_form
from openclaw_rl.testing.writing import arguments, end_of, written

TOOLS = (Tool("read", "", {"type": "object", "properties": {"path": {"type": "string"}}}),)
ONE_CALL = ("llama3", "gpt_oss")


@dataclass
class Talk:
    """A conversation with a renderer, by way of a client."""

    model: StandIn
    client: Rewriting
    messages: list[Message]
    renderer: ChatRenderer = field(init=False)
    turns: list[Turn] = field(default_factory=list)
    places: dict[int, Turn] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.renderer = ChatRenderer(self.model.template())

    def answer(self, reply: Message, *, end: str | None = None) -> Turn:
        """The model says this, and the client keeps it in its own way."""
        prompt = self.renderer.prompt(self.messages, TOOLS, self.turns[-1] if self.turns else None)
        opening = self.renderer.table.text(prompt.tokens[prompt.segments[-1].start :])
        mark = end_of(self.model, reply) if end is None else end
        sampled = tuple(in_letters(self.model, written(self.model, reply, opening=opening) + mark))
        parser = self.renderer.parser(prompt, call_prefix=f"call_{len(self.turns)}x", tools=TOOLS)
        parser.feed(sampled)
        parser.finish()
        logp = tuple(-0.5 for _ in sampled)
        finish = Finish.STOP if mark else Finish.LENGTH
        done = Completion(sampled, logp, logp, BASE, finish, parser.spans())
        turn = Turn(
            "t", "s", "u", "a", TurnKind.MAIN, "test", tuple(self.messages), TOOLS, prompt, done, parser.message(), 0.0
        )
        self.turns.append(turn)
        self.places[len(self.messages)] = turn
        self.messages.append(self.client.reply(turn.reply))
        return turn

    def results(self, *texts: str) -> None:
        calls = self.messages[-1].tool_calls
        self.messages += [
            Message(Role.TOOL, (TextPart(text),), tool_call_id=call.id) for call, text in zip(calls, texts, strict=True)
        ]

    def told(self, prompt: Prompt) -> str:
        """What the template itself says of it all, with the replies in the prompt as they were served."""
        forms = {place: turn.reply for place, turn in self.places.items() if place in claimed(prompt)}
        talk = served_form(self.messages, forms)
        return self.renderer.template.text(talk, TOOLS, generation_prompt=True)

    def is_exact(self) -> bool:
        """Whether the next prompt begins with all ids of the last turn; checks that it is honest in any case."""
        last = self.turns[-1]
        prompt = self.renderer.prompt(self.messages, TOOLS, last)
        before = last.prompt.tokens + last.completion.tokens
        assert is_honest(prompt, self.told(prompt), self.places, self.renderer.table)
        assert (prompt.continued == len(before)) == (prompt.tokens[: len(before)] == before)
        return prompt.continued == len(before)


def called(*paths: str, text: str = "", thought: str | None = None) -> Message:
    calls = tuple(ToolCall("", "read", arguments(path=path, lines=2.0)) for path in paths)
    return Message(Role.ASSISTANT, (TextPart(text),) if text else (), thought, calls)


def said(text: str, thought: str | None = None) -> Message:
    return Message(Role.ASSISTANT, (TextPart(text),), thought)


def asked(text: str) -> Message:
    return message(Role.USER, text)


CLIENTS = pytest.mark.parametrize(
    "client",
    [Rewriting(thinking=thinking) for thinking in ThinkingTreatment] + [Rewriting(trims=False, writes_arguments=False)],
    ids=["kept", "dropped", "moved", "untrimmed"],
)


@MODELS
@CLIENTS
def test_a_rewritten_reply_goes_on_with_the_ids_that_were_sampled(model: StandIn, client: Rewriting) -> None:
    talk = Talk(model, client, [message(Role.SYSTEM, "You help. Ü"), asked("hello")])
    talk.answer(said("Hi there 🙂 \n"))
    talk.messages.append(asked("read it"))
    if model.name == "mistral_v3":  # system text and tools move along to the newest question
        assert not talk.is_exact() and talk.renderer.stats["spliced"] == 1
    else:
        assert talk.is_exact()
    paths = ("a.txt",) if model.name in ONE_CALL else ("a.txt", "日本.txt")
    talk.answer(called(*paths))
    talk.results(*("one", "two")[: len(paths)])
    assert talk.is_exact()
    assert talk.answer(called("b.txt")).reply.tool_calls
    talk.results("three")
    assert talk.is_exact()


@pytest.mark.parametrize("model", [model for model in STAND_INS if model.has_thinking], ids=lambda model: model.name)
@CLIENTS
def test_thinking_is_kept_to_the_letter_or_the_prompt_is_what_the_template_says(
    model: StandIn, client: Rewriting
) -> None:
    talk = Talk(model, client, [asked("hello")])
    talk.answer(called("a.txt", thought="which file?"))
    talk.results("one")
    talk.is_exact()
    talk.answer(said("It says one."))
    talk.messages.append(asked("and b?"))
    talk.is_exact()
    talk.answer(said("No.", thought="hm"))
    talk.messages.append(asked("sure?"))
    talk.is_exact()
    assert talk.renderer.stats["rewritten"] > 0  # all of these forget thinking at some point


def test_thinking_that_the_client_dropped_and_the_template_would_drop_later_does_not_stay_in_silence() -> None:
    model = next(model for model in STAND_INS if model.name == "qwen3")
    talk = Talk(model, Rewriting(thinking=ThinkingTreatment.DROPPED), [asked("hello")])
    talk.answer(called("a.txt", thought="which file?"))
    talk.results("one")
    assert talk.is_exact()  # no new question yet: thinking stays
    talk.answer(said("It says one."))
    talk.messages.append(asked("and b?"))
    assert not talk.is_exact()
    prompt = talk.renderer.prompt(talk.messages, TOOLS, talk.turns[-1])
    assert "which file?" not in talk.renderer.table.text(prompt.tokens) and prompt.continued == 0


@MODELS
def test_a_new_process_goes_on_from_stored_turns_just_as_the_old_one(model: StandIn) -> None:
    talk = Talk(model, Rewriting(), [asked("hello")])
    talk.answer(said("Hi there"))
    talk.messages.append(asked("read it"))
    talk.answer(called("a.txt"))
    talk.results("one")
    was = talk.renderer.prompt(talk.messages, TOOLS, talk.turns[-1])
    talk.renderer = ChatRenderer(model.template())
    assert talk.renderer.prompt(talk.messages, TOOLS, talk.turns[-1]) == was


@MODELS
def test_an_answer_cut_by_length_gets_the_ending_it_lacks(model: StandIn) -> None:
    talk = Talk(model, Rewriting(), [asked("hello")])
    talk.answer(said("Hi there"), end="")
    talk.messages.append(asked("go on"))
    assert talk.is_exact() or (model.name == "mistral_v3" and talk.renderer.stats["spliced"] == 1)


@MODELS
def test_a_changed_system_text_and_a_moving_insert_leave_replies_as_sampled(model: StandIn) -> None:
    insert = asked("<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>\nnow")
    talk = Talk(model, Rewriting(), [message(Role.SYSTEM, "You help.\nBOOTSTRAP.md: hello"), asked("hello"), insert])
    first = talk.answer(said("Hi there"))
    reply = talk.messages[-1]
    talk.messages = [message(Role.SYSTEM, "You help."), asked("hello"), reply, asked("more"), insert]
    talk.places = {2: first}
    assert not talk.is_exact()
    assert talk.renderer.stats["spliced"] == 1
    prompt = talk.renderer.prompt(talk.messages, TOOLS, first)
    assert any(
        prompt.tokens[at : at + len(first.completion.tokens) - 1] == first.completion.tokens[:-1]
        for at in range(len(prompt))
    )


@MODELS
def test_results_stand_under_the_ids_that_were_served(model: StandIn) -> None:
    talk = Talk(model, Rewriting(), [asked("hello")])
    turn = talk.answer(called("a.txt"))
    own = turn.reply.tool_calls[0].id
    talk.results("one")
    text = talk.renderer.table.text(talk.renderer.prompt(talk.messages, TOOLS, turn).tokens)
    if model.name == "kimi_k2":
        assert own == "functions.read:0" and text.count("Return of functions.read:0") == 1
        assert talk.messages[-1].tool_call_id == "functionsread0"
    elif model.name == "mistral_v3":
        assert len(own) == 9 and f'"call_id": "{own}"' in text


def test_foreign_ids_of_calls_are_made_such_as_mistrals_template_takes() -> None:
    renderer = ChatRenderer(next(model for model in STAND_INS if model.name == "mistral_v3").template())
    foreign = replace(called("a"), tool_calls=(ToolCall("call_1a34", "read", "{}"),))
    result = Message(Role.TOOL, (TextPart("one"),), tool_call_id="call_1a34")
    text = renderer.table.text(renderer.prompt([asked("hi"), foreign, result], TOOLS, None).tokens)
    told = text.split('"id": "')[1][:9]
    assert told.isalnum() and f'"call_id": "{told}"' in text


def test_a_template_that_takes_one_call_a_message_is_given_one_in_front_of_each_result() -> None:
    renderer = renderer_of(next(model for model in STAND_INS if model.name == "llama3"))
    calls = (ToolCall("x", "read", '{"path": "a"}'), ToolCall("y", "read", '{"path": "b"}'))
    results = [Message(Role.TOOL, (TextPart(text),), tool_call_id=name) for name, text in (("x", "one"), ("y", "two"))]
    talk = [asked("hi"), Message(Role.ASSISTANT, (), tool_calls=calls), *results]
    text = renderer.table.text(renderer.prompt(talk, TOOLS, None).tokens)
    order: Sequence[str] = ('{"path": "a"}', '"one"', '{"path": "b"}', '"two"')
    assert [text.index(part) for part in order] == sorted(text.index(part) for part in order)


def test_a_prompt_that_is_not_what_it_claims_is_told() -> None:
    talk = Talk(STAND_INS[0], Rewriting(), [asked("hello")])
    turn = talk.answer(said("Hi there"))
    talk.messages.append(asked("more"))
    prompt = talk.renderer.prompt(talk.messages, TOOLS, turn)
    table, told = talk.renderer.table, talk.told(prompt)
    assert is_honest(prompt, told, talk.places, table)
    at = len(turn.prompt) + 1
    for place in (3, at, len(prompt) - 9):  # in what was read, in what was sampled, in what is new
        tampered = (*prompt.tokens[:place], (prompt.tokens[place] + 1) % 1024, *prompt.tokens[place + 1 :])
        assert not is_honest(replace(prompt, tokens=tampered), told, talk.places, table)
    assert not is_honest(prompt, told, {}, table)
    other = replace(turn, reply=said("Bye"))
    assert not is_honest(prompt, told, {1: other}, table)


@MODELS
def test_the_mark_that_ended_a_reply_stands_once_though_the_next_block_may_begin_with_it(model: StandIn) -> None:
    talk = Talk(model, Rewriting(), [asked("hello")])
    for reply in (said("Hi there"), called("a.txt")):
        turn = talk.answer(reply)
        if reply.tool_calls:
            talk.results("one")
        else:
            talk.messages.append(asked("more"))
        prompt = talk.renderer.prompt(talk.messages, TOOLS, turn)
        found = [at for at in range(len(prompt)) if prompt.tokens[at : at + 2] == turn.completion.tokens[-1:] * 2]
        assert not found
