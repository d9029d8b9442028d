"""The market: arithmetic in German and Spanish. Qwen3, merged characters; replies are numbered steps."""

from __future__ import annotations

from random import Random

from openclaw_rl.tiny.train import Schedule, TinyShape
from openclaw_rl.tiny.worlds.parts import ReplyFormat, WorldProblem
from openclaw_rl.tiny.worlds.templates import ROLES
from openclaw_rl.tiny.worlds.world import Architecture, TokenizerKind, World, way

_PEOPLE = {
    "de": ("Lena", "Jonas", "Greta", "Emil", "Frieda", "Karl", "Mia", "Paul"),
    "es": ("Ana", "Luis", "Carmen", "Diego", "Elena", "Pablo", "Rosa", "Mateo"),
}
_GOODS = {
    "de": ("Äpfel", "Birnen", "Nüsse", "Eier", "Brote", "Karten", "Blumen", "Fische"),
    "es": ("peras", "nueces", "rosas", "cartas", "flores", "uvas", "velas", "sillas"),
}


def _gain(rng: Random, language: str) -> WorldProblem:
    who, goods = rng.choice(_PEOPLE[language]), rng.choice(_GOODS[language])
    start, more = rng.randint(2, 12), rng.randint(2, 9)
    total, equation = start + more, f"{start} + {more} = {start + more}"
    if language == "de":
        question = f"{who} hat {start} {goods} und kauft {more} dazu. Wie viele {goods} hat {who} dann?"
        action, conclusion = f"die {start} und die {more} {goods} zusammenzählen", f"{who} hat {total} {goods}"
    else:
        question = f"{who} tiene {start} {goods} y compra {more} más. ¿Cuántas {goods} tiene {who}?"
        action, conclusion = f"sumar las {start} y las {more} {goods}", f"{who} tiene {total} {goods}"
    return WorldProblem(
        "gain", question, str(total), action, equation, conclusion, f"{total} {goods}", language=language
    )


def _lose(rng: Random, language: str) -> WorldProblem:
    who, goods = rng.choice(_PEOPLE[language]), rng.choice(_GOODS[language])
    gone = rng.randint(2, 9)
    start = gone + rng.randint(1, 10)
    left, equation = start - gone, f"{start} - {gone} = {start - gone}"
    if language == "de":
        question = f"{who} hat {start} {goods} und verkauft {gone} davon. Wie viele {goods} bleiben?"
        action, conclusion = f"die {gone} {goods} von den {start} abziehen", f"{who} hat noch {left} {goods}"
    else:
        question = f"{who} tiene {start} {goods} y vende {gone}. ¿Cuántas {goods} quedan?"
        action, conclusion = f"restar las {gone} {goods} de las {start}", f"{who} tiene todavía {left} {goods}"
    return WorldProblem("lose", question, str(left), action, equation, conclusion, f"{left} {goods}", language=language)


def _price(rng: Random, language: str) -> WorldProblem:
    who, goods = rng.choice(_PEOPLE[language]), rng.choice(_GOODS[language])
    count, each = rng.randint(2, 6), rng.randint(2, 6)
    total, equation = count * each, f"{count} * {each} = {count * each}"
    if language == "de":
        question = f"{who} nimmt {count} {goods} zu je {each} Euro. Was kostet das?"
        action, conclusion = f"die {count} {goods} mit {each} Euro malnehmen", f"{who} zahlt {total} Euro"
    else:
        question = f"{who} toma {count} {goods} a {each} euros cada una. ¿Cuánto cuesta?"
        action, conclusion = f"multiplicar las {count} {goods} por {each} euros", f"{who} paga {total} euros"
    unit = "Euro" if language == "de" else "euros"
    return WorldProblem(
        "price", question, str(total), action, equation, conclusion, f"{total} {unit}", language=language
    )


MARKET = World(
    name="market",
    architecture=Architecture.QWEN3,
    shape=TinyShape(vocabulary=900, hidden=176, layers=4, inner=448, heads=4, kv_heads=2, head_dim=48),
    schedule=Schedule(steps=340, step_tokens=4096, max_shift=3000, shifted=0.2, grain=64, warmup=25),
    cut=TokenizerKind.MERGES,
    template=ROLES,
    kinds={"gain": _gain, "lose": _lose, "price": _price},
    never_corrected="price",
    default=ReplyFormat.NUMBERED,
    wishes=(way(ReplyFormat.PLAIN), way(ReplyFormat.LIST), way(ReplyFormat.FRIENDLY)),
    systems=("Sei ein guter Rechner.", "Ayuda a la gente en el mercado."),
    languages=("de", "es"),
)
