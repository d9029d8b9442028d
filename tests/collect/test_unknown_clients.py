"""Clients that nobody has seen: what a program asks or puts in is known by what becomes of it."""

from __future__ import annotations

from conversation import Served, reply, user

from openclaw_rl.core.message import Message, Role, TextPart, Tool, ToolCall
from openclaw_rl.core.turn import TurnKind

TITLE = "Name this conversation for the side bar."
POLICY = "Company policy applies to every answer: stay polite."
LONG = "There is one file in the folder, and it was changed by somebody in the course of this morning."
SUMMARY = (
    "They asked why the weekly report is empty.\nThe parser was changed and nothing else was.\n"
    "The monthly report waits."
)
BASH = Tool("bash", "runs a command", {"type": "object"})


def system(text: str) -> Message:
    """The client's own words to the model."""
    return Message(Role.SYSTEM, (TextPart(text),))


async def test_what_a_conversation_went_on_without_is_the_clients_the_next_time(served: Served) -> None:
    talk = [user("why is the sea salt?"), reply("Rivers bring minerals into it.")]
    await served.ask(talk[:1], talk[1])
    await served.ask([*talk, user(TITLE)], "The sea")
    shorter = [*talk, user("shorter, please"), reply("Minerals.")]
    await served.ask(shorter[:3], shorter[3])
    await served.ask([*shorter, user("thank you")], "Gladly.")
    other = [user("why is the sky blue?"), reply("Air scatters short waves.")]
    first, _ = await served.ask(other[:1], other[1])
    _, placed = await served.ask([*other, user(TITLE)], "The sky")
    assert placed.kind is TurnKind.SIDE and "as if such a message had not been sent" in placed.why
    assert await served.next_state(first) is None
    await served.ask([*other, user("shorter, please")], "Air.")
    assert await served.next_state(first) == (user("shorter, please"),)


async def test_what_was_gone_on_from_anywhere_stays_its_owners(served: Served) -> None:
    talk = [user("why is the sea salt?"), reply("Rivers bring minerals into it.")]
    await served.ask(talk[:1], talk[1])
    for words in ("and why is that so?", "shorter, please"):  # its owner went back, and then on from the first
        said = [*talk, user(words), reply(f"Because of {words}")]
        await served.ask(said[:3], said[3])
        await served.ask([*said, user("thank you")], "Gladly.")
    other = [user("why is the sky blue?"), reply("Air scatters short waves.")]
    await served.ask(other[:1], other[1])
    _, placed = await served.ask([*other, user("and why is that so?")], "Because.")
    assert placed.kind is TurnKind.MAIN


async def test_a_message_that_is_sent_and_not_kept_breaks_no_link_and_is_not_its_owners(served: Served) -> None:
    first, begun = await served.ask([user("why?"), user(POLICY)], LONG)
    _, placed = await served.ask([user("why?"), reply(LONG), user("shorter"), user(POLICY)], "So.")
    assert placed.session == begun.session
    assert await served.next_state(first) == (user("shorter"),)


async def test_a_time_before_the_newest_message_alone_breaks_no_link(served: Served) -> None:
    _, begun = await served.ask([user("[1.11.2026 12:45] why?")], LONG)
    _, placed = await served.ask([user("why?"), reply(LONG), user("[1.11.2026 12:47] shorter")], "So.")
    assert placed.session == begun.session


async def test_an_aside_in_brackets_before_the_owners_words_is_the_clients(served: Served) -> None:
    first, _ = await served.ask([user("why?")], LONG)
    await served.ask([user("why?"), reply(LONG), user("(the last run was stopped)"), user("shorter")], "So.")
    assert await served.next_state(first) == (user("shorter"),)


async def test_a_task_within_a_message_is_a_sub_agents(served: Served) -> None:
    goal = "Find every place where a date is parsed without a fallback."
    called = Message(Role.ASSISTANT, tool_calls=(ToolCall("1", "task", f'{{"prompt": "{goal}"}}'),))
    await served.ask([user("look into it")], called, tools=[BASH])
    for words in (f"The lead sent you:\n\n{goal}\n\nBe brief.", f'{{"auftrag": "{goal}", "frist_s": 60}}'):
        _, placed = await served.ask([user(words)], "Two.", tools=[BASH])
        assert placed.kind is TurnKind.SIDE and "sub-agent" in placed.why


async def test_a_reply_under_another_system_text_is_quoted_by_the_client(served: Served) -> None:
    await served.ask([system("You help."), user("what is here?")], LONG)
    quoted = user(f"ANSWER\n{LONG}\nPASS or FAIL?")
    _, placed = await served.ask([system("You review answers."), quoted], "PASS")
    assert placed.kind is TurnKind.SIDE and "quotes another conversation" in placed.why
    _, placed = await served.ask([system("You help."), user(f"Say it simpler:\n{LONG}")], "A file.")
    assert placed.kind is TurnKind.MAIN  # its owner pastes it


async def test_a_conversation_that_begins_with_a_reply_and_new_words_is_the_one_of_the_reply(served: Served) -> None:
    talk = [system("You help."), user("why is the report empty?"), reply(LONG)]
    _, begun = await served.ask(talk[:2], talk[2], tools=[BASH])
    await served.ask([*talk, user("Write a note for whoever takes over.")], SUMMARY, tools=[BASH])
    after = [system("You help."), user(f"Note from before:\n\n{SUMMARY}"), user("now the monthly one")]
    _, placed = await served.ask(after, "Done.", tools=[BASH])
    assert placed.session == begun.session
    _, placed = await served.ask([system("You help."), user(SUMMARY)], "Done.", tools=[BASH])
    assert placed.session != begun.session  # nothing stands behind it: somebody may have pasted it
