"""Two more clients that do not exist, written after the signs were amended by what `captures_late.py` had shown.

Who wrote them knew the signs by then, and tried to build what a new program might do and no sign was made for. Halyard
is a help desk's chat, which hands messages on as objects; Fathom an agent that works through a list and speaks German.
"""

from __future__ import annotations

import json

from benchmarks.captures_late import Client, played, typed
from benchmarks.captures_made import CHAT, RESPONSES, Said, Talk, Tongue, chat_body, responses_body
from benchmarks.captures_replay import Labelled

POLICY = "Company policy applies to every answer: no promises about dates, no legal advice, stay polite."
AGAIN = "Deine letzte Antwort war kein gültiger Aufruf. Antworte mit genau einem Aufruf oder mit FERTIG."


def later(seed: int) -> list[Labelled]:
    """The exchanges of both clients, two conversations of each in each language."""
    return played(CLIENTS, seed, with_tools=("fathom",))


def halyard(talk: Talk, tongue: Tongue) -> None:
    """A help desk: each message as an object, a policy behind the newest, a greeting that the program wrote itself."""
    talk.history.append(Said("assistant", "Hello, this is Halyard. What can I do for you today?"))
    for number, kind in enumerate(("openings", "corrections", "pasted", "thanks", "corrections")):
        words = typed(tongue, kind)
        case = {"case": talk.draw.randint(1000, 9999), "channel": "web", "message": words, "attachments": []}
        talk.asks(words, text=json.dumps(case, ensure_ascii=False))
        talk.notes(POLICY)
        reply = tongue.one("replies")
        talk.answered(reply)
        del talk.history[-2]  # the policy goes with the newest message alone
        if number == 0:
            talk.errand("tags", [Said("user", words)], system="Classify: billing, technical, other.", reply="technical")
        if number in (1, 3):
            rated = "Rate the customer's mood in the conversation so far from 1 to 5. Only the number."
            talk.errand("errand", [*talk.history, Said("user", rated)], reply="3")
        if number == 2:  # older messages give way to a summary in the system text
            summary = tongue.one("summary")
            asked = "\n".join(f"{item.role.upper()}> {item.text}" for item in talk.history)
            talk.errand("compaction", [Said("user", asked)], system="Summarise this case in five lines.", reply=summary)
            talk.system = f"{talk.system}\n\nEarlier in this case:\n{summary}"
            talk.history = talk.history[-2:]


def fathom(talk: Talk, tongue: Tongue) -> None:
    """An agent with a list: messages in sections, a retry that is its own, reports by the clock, a helper."""

    def ask(kind: str) -> None:
        words = typed(tongue, kind)
        files = "".join(f"\n- src/{talk.draw.choice('abcdef')}.py" for _ in range(2))
        talk.asks(
            words, text=f"**Auftrag**\n\n{words}\n\n**Geöffnete Dateien**\n{files}\n\n**Regeln**\n\nArbeite ruhig."
        )

    ask("openings")
    talk.answered(tongue.one("replies"))
    talk.notes(AGAIN)
    talk.answered("", call=("bash", '{"command": "ls"}'))
    talk.gives("ls: cannot access: Permission denied (exit 2)")
    talk.answered(tongue.one("replies"))
    ask("corrections")
    goal = tongue.one("task")
    talk.answered("", call=("task", json.dumps({"prompt": goal}, ensure_ascii=False)))
    helper = json.dumps({"auftrag": goal, "frist_s": 60}, ensure_ascii=False)
    talk.errand("sub-agent", [Said("user", helper)], system="Du hilfst.", tools=True, reply=tongue.one("replies"))
    talk.gives(tongue.one("replies"))
    talk.answered(tongue.one("replies"))
    talk.notes(f"Automatischer Bericht {talk.draw.randint(10, 23)}:{talk.draw.randint(10, 59)}: Wie ist der Stand?")
    talk.answered(tongue.one("replies"))
    ask("thanks")
    talk.answered(tongue.one("replies"))
    told = [item for item in talk.history if item.text and item.role != "tool"]
    quoted = "\n".join(f"{'Mensch' if item.role == 'user' else 'Fathom'} | {item.text}" for item in told[-2:])
    talk.errand("title", [Said("user", f"Titel für dieses Gespräch:\n{quoted}")], system="Titel.", reply="Bericht")
    ask("corrections")
    talk.answered(tongue.one("replies"))
    ask("pasted")
    talk.answered(tongue.one("replies"))


CLIENTS: dict[str, Client] = {
    "halyard": (CHAT, {"user-agent": "python-httpx/0.28"}, "You answer customers of a shop. " * 10, chat_body, halyard),
    "fathom": (
        RESPONSES,
        {"user-agent": "fathom/1.0"},
        "Du bist Fathom und arbeitest Listen ab.",
        responses_body,
        fathom,
    ),
}
