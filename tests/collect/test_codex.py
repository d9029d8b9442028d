"""A session of Codex after its compaction: the owner's earlier words, the summary, and what they type next."""

from __future__ import annotations

from pathlib import Path

import pytest
from conversation import serving
from wire import TOOLS, chat, send

from openclaw_rl.collect.clients.rules import AnyClient, known_clients
from openclaw_rl.core.turn import TurnKind

CODEX = "You are Codex, based on GPT-5. You are running as a coding agent in the Codex CLI on a user's computer."
CHECKPOINT = (
    "You are performing a CONTEXT CHECKPOINT COMPACTION. Create a handoff summary for another LLM that will resume "
    "the task.\n\nInclude:\n- Current progress\n- Important context\n- What remains to be done\n- Critical data"
)
SUMMARY = "Nothing has been done yet but a greeting."
GOES_ON = (
    "Another language model started to solve this problem and produced a summary of its thinking process. Here is the "
    f"summary produced by the other language model:\n{SUMMARY}"
)


@pytest.mark.parametrize("session", ["c0de", ""])
@pytest.mark.parametrize("clients", [known_clients(), (AnyClient(),)], ids=["rules", "signs alone"])
async def test_a_session_that_codex_compacted_goes_on_as_main_with_its_owners_words(
    tmp_path: Path, clients: tuple[AnyClient, ...], session: str
) -> None:
    headers = {"session_id": session} if session else {}
    async with serving(tmp_path, clients=clients) as served:
        one, begun = await send(served, chat(("user", "hi"), system=CODEX, tools=TOOLS, headers=headers), "Hello, Ann.")
        said = (("user", "hi"), ("assistant", "Hello, Ann."), ("user", CHECKPOINT))
        _, compaction = await send(served, chat(*said, system=CODEX, headers=headers), SUMMARY)
        assert (compaction.kind, compaction.session) == (TurnKind.SIDE, begun.session)
        said = (("user", "hi"), ("user", GOES_ON), ("user", "now the docs"))
        two, after = await send(served, chat(*said, system=CODEX, tools=TOOLS, headers=headers), "They are written.")
        assert (after.kind, after.session) == (TurnKind.MAIN, begun.session)
        onward = chat(
            *said,
            ("assistant", "They are written."),
            ("user", "no, in German"),
            system=CODEX,
            tools=TOOLS,
            headers=headers,
        )
        _, placed = await send(served, onward, "Auf Deutsch.")
        assert (placed.kind, placed.session, placed.parent) == (TurnKind.MAIN, begun.session, two)
        heard = await served.next_state(two)
        assert heard is not None and [item.text for item in heard] == ["no, in German"]
        assert await served.next_state(one) is None
