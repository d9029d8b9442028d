"""What people say after a reply, in the thousands: a grammar of parts, tone x construction x wish, in five languages.

The parts are data, one file a language in `wordings/`. What is said to measure the judge with is written elsewhere and
shares no template with these.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from random import Random

FILES = ("en", "de", "fr", "es", "it")
TONES = (
    "plain", "terse", "angry", "shouting", "polite", "typos", "indirect", "question", "thanks", "praise", "slang",
)  # fmt: skip
WISHES = (
    "natural", "friendly", "detailed", "markdown", "short", "first", "last", "list", "emoji", "language", "name",
    "direct", "simple", "example",
)  # fmt: skip
_LITERAL, _SAID_NAME = "\x01", "\x02"  # stand for what no tone may change
_QUOTES = (('"', '"'),) * 8 + (("'", "'"), ("“", "”"), ("„", "“"), ("«", "»"), ("", ""), ("", ""))
_SYLLABLES = "ba ko mi ru ta ze lo fin gar pel dus wem ona tri cha vel shu nar kip oll ist qua bro sen dra".split()  # noqa: SIM905
_WORDS = """
    ahoy bonjour servus friend captain moon apple river okay ready steady go listen morning evening sunshine tea dragon
    garden stars hello hi dear hey folks team boss bro ciao hola salut welcome back right then well now so attention
    here comes the answer note fact truth peace out over amen cheers bye later best regards yours love hugs end done
    that is all full stop forever and ever your servant robot owl bear fox penguin happy sad tiny big red blue green
    liebe grüße guten tag los geht es voilà merci et gracias amigo hasta luego adiós buenas noches grazie mille prego
    per sempre roger copy mission start finish hurray hooray yes no maybe always never seven ten hundred
    """.split()  # noqa: SIM905
_NAMES = """
    Sam Kim Lea Max Nora Otto Pia Ravi Sofia Tom Uma Vera Walt Xenia Yusuf Zoe Ada Ben Carla Dario Emil Fay Gus Hana Ivo
    Jule Karl Luz Milo Nick Olga Paul Rosa Sven Tina Ugo Vito Wanda Yara Zeno Captain Doc Chief Professor Champ Sunny
    """.split()  # noqa: SIM905


@dataclass(frozen=True, slots=True)
class Wording:
    """What somebody said: in which language and tone, for which wish (None for none), and the literal in it."""

    text: str
    language: str
    tone: str
    wish: str | None
    literal: str = ""


@dataclass(frozen=True, slots=True)
class Parts:
    """One language's file: frames by tone, fillers by slot, parts by wish, and what is said without a wish."""

    language: str
    frames: Mapping[str, list[str]]
    slots: Mapping[str, list[str]]
    wishes: Mapping[str, Mapping[str, list[str]]]
    nothing: Mapping[str, list[str]]


@lru_cache
def table(name: str) -> dict[str, object]:
    """One of the data files."""
    return tomllib.loads(files("openclaw_rl.tiny").joinpath("wordings", f"{name}.toml").read_text("utf-8"))


@lru_cache
def parts(code: str) -> Parts:
    """The parts of a language."""
    return Parts(**table(code))  # type: ignore[arg-type]


def wording(rng: Random, *, wish: str | None = None, code: str | None = None) -> Wording:
    """Something said with a wish: English half of the time."""
    held = parts(code or (FILES[0] if rng.random() < 0.5 else rng.choice(FILES[1:])))
    chosen, tone = wish or rng.choice(WISHES), rng.choice(TONES)
    frames = {"shouting": ("plain", "terse", "angry"), "typos": ("plain", "polite", "terse", "indirect")}
    frame = rng.choice(held.frames[rng.choice(frames.get(tone, (tone,)))])
    text = _filled(_filled(frame, held, held.wishes[chosen], rng), held, held.wishes[chosen], rng)
    literal = ""
    if "{x}" in text:
        literal = phrase(rng)
        text = text.replace("{x}", _LITERAL)
    elif "{n}" in text:
        literal = rng.choice(_NAMES) if rng.random() < 0.6 else _made_up(rng).capitalize()
        text = text.replace("{n}", _SAID_NAME)
    elif "{l}" in text:
        literal, named = _language(held.language, rng)
        text = text.replace("{l}", named)
    text = _toned(text, tone, rng)
    opens, closes = rng.choice(_QUOTES)
    if not opens:
        literal = literal.rstrip("!?.") if _LITERAL in text else literal
    text = text.replace(_LITERAL, f"{opens}{literal}{closes}").replace(_SAID_NAME, literal)
    return Wording(text, held.language, tone, chosen, literal)


def remark(rng: Random, about: str, *, code: str | None = None, **given: str) -> Wording:
    """Something said without a wish; `about` is one of the kinds in the files."""
    held = parts(code or (FILES[0] if rng.random() < 0.5 else rng.choice(FILES[1:])))
    text = rng.choice(held.nothing[about])
    filled = {
        "topic": rng.choice(held.nothing["topics"]),
        "fact": rng.choice(held.nothing["facts"]),
        "q": '"' + (rng.choice(held.nothing["quoted"]) if rng.random() < 0.6 else phrase(rng)) + '"',
        **given,
    }
    tone = rng.choice(("plain", "plain", "plain", "shouting", "typos"))
    text = _toned(text.format_map(filled), tone, rng)
    return Wording(text, held.language, tone, None)


def phrase(rng: Random) -> str:
    """Words to begin or to end with: known ones, made-up ones, or both."""
    words = [rng.choice(_WORDS) if rng.random() < 0.7 else _made_up(rng) for _ in range(rng.choice((1, 1, 2, 2, 3, 4)))]
    said = " ".join(words)
    form = rng.random()
    if form < 0.6:
        said = said[:1].upper() + said[1:]
    elif form < 0.7:
        said = said.title()
    elif form < 0.75:
        said = said.upper()
    return said + rng.choice(("", "", "", "", "!", ".", "?", "...", "!!"))


def phrases_taught() -> list[str]:
    """The literals that are written out here; the others are put together of them and of made-up words."""
    return [*_WORDS, *_NAMES]


def _made_up(rng: Random) -> str:
    return "".join(rng.choice(_SYLLABLES) for _ in range(rng.choice((1, 2, 2, 3))))


def _language(own: str, rng: Random) -> tuple[str, str]:
    """A language's English name, and what it is called in the speaker's own language."""
    held = table("scenes")["languages"]
    assert isinstance(held, dict)
    name = rng.choice([other for other in held if other != own] if rng.random() < 0.7 else list(held))
    return name, held[name][own]


def _filled(frame: str, held: Parts, wish: Mapping[str, list[str]], rng: Random) -> str:
    """The frame with a part in each slot; a literal's place stays."""

    def part(found: re.Match[str]) -> str:
        slot = found[1]
        if slot in ("x", "n", "l"):
            return found[0]
        return rng.choice(wish.get(slot) or held.slots[slot])

    return re.sub(r"\{(\w+)\}", part, frame)


def _toned(text: str, tone: str, rng: Random) -> str:
    if tone == "shouting":
        text = text.upper().rstrip(".")
        return text if text.endswith(("!", "?")) and rng.random() < 0.5 else text + rng.choice(("!", "!!", "!!!", ""))
    if tone == "typos":
        for _ in range(rng.choice((1, 2, 2, 3))):
            text = _mistyped(text, rng)
    if rng.random() < 0.6:
        text = re.sub(r"(^\W*|[.!?] )(\w)", lambda found: found[1] + found[2].upper(), text)
    if rng.random() < 0.5 and text[-1].isalnum():
        text += rng.choice((".", ".", "!", "..."))
    return text


def _mistyped(text: str, rng: Random) -> str:
    """The text with one slip: letters swapped, lost or doubled; never in a literal."""
    places = [at for at in range(1, len(text) - 1) if text[at].isalpha() and text[at + 1].isalpha()]
    if not places:
        return text
    at, how = rng.choice(places), rng.random()
    if how < 0.4:
        return text[:at] + text[at + 1] + text[at] + text[at + 2 :]
    return text[:at] + text[at + 1 :] if how < 0.75 else text[:at] + text[at] + text[at:]
