"""The judge that knows, asked by the product's own judging code over HTTP."""

from __future__ import annotations

from openclaw_rl.core.message import Role, message
from openclaw_rl.evals.scripted_judge import MODEL, scripted_judge
from openclaw_rl.judge.hint import marked_text
from openclaw_rl.judge.llm import vote_of
from openclaw_rl.judge.partners import EndpointChat
from openclaw_rl.judge.prompt import Question, question

REQUEST = (message(Role.USER, "What is 2 + 3?"),)
REPLY = message(Role.ASSISTANT, "**5**")


async def asked(chat: EndpointChat, kind: Question, role: Role, said: str) -> str:
    prompt = question(kind, REQUEST, REPLY, (message(role, said),))
    return await chat.reply(prompt, temperature=0.6, max_tokens=64)


async def test_it_answers_what_it_was_told_and_nothing_else() -> None:
    async with scripted_judge() as judge:
        judge.tell("No bold text, please.\nReally.", -1, "Write plainly.")
        judge.tell("Thanks!", 1, "")
        async with EndpointChat(judge.url, MODEL) as chat:
            corrected = await asked(chat, Question.SCORE, Role.USER, "No bold text, please.\nReally.")
            hint = await asked(chat, Question.HINT, Role.USER, "No bold text, please.\nReally.")
            thanked = await asked(chat, Question.SCORE, Role.USER, "Thanks!")
            no_hint = await asked(chat, Question.HINT, Role.USER, "Thanks!")
            unknown = await asked(chat, Question.SCORE, Role.USER, "Hm.")
            worked = await asked(chat, Question.SCORE, Role.TOOL, "Successfully wrote a.txt")
            failed = await asked(chat, Question.SCORE, Role.TOOL, "Error: no")
    assert [vote_of(text) for text in (corrected, thanked, unknown, worked, failed)] == [-1, 1, 0, 1, -1]
    assert (marked_text(hint), vote_of(hint)) == ("Write plainly.", 1)
    assert (marked_text(no_hint), vote_of(no_hint)) == (None, -1)
