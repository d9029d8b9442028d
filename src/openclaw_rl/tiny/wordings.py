"""A grammar of messages that follow a reply: parts combined by tone, construction and wish, in five languages.

It makes many thousands of messages. The parts are data, one file for each language in `wordings/`. The messages that
measure the judge are written separately and share no template with these.
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
_LITERAL, _SAID_NAME = "\x01", "\x02"  # placeholders for what no tone may change
_MOST_CHARS = 34  # of a phrase: a longer quotation is somebody else's text
_QUOTES = (
    *((('"', '"'),) * 6), ("'", "'"), ("“", "”"), ("“", "”"), ("„", "“"), ("«", "»"), *((("", ""),) * 4),
)  # fmt: skip
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


_TITLES = """
    Mr. Mr Mrs. Mrs Ms Miss Dr. Dr Doctor Prof. Sir Lady Lord Captain Chief Master Uncle Aunt Herr Frau Doktor Monsieur
    Madame M. Mme Señor Señora Don Doña Sr. Sra. Signor Signora Dottor Dottoressa Queen King Big Little Agent Coach
    """.split()  # noqa: SIM905
_PHRASES = (
    "In a word", "To sum it up", "Your turn", "Nice to see you", "There you go", "Back to you", "As you wish",
    "No problem at all", "Let us see", "I have looked it up", "Here it is", "With kind regards",
    "Have a nice evening", "Sleep well", "What do you think", "Was that of help", "Hope that helps",
    "Ready when you are", "One moment please", "It's a pleasure", "That's it for today", "Don't panic", "Keep calm",
    "Class dismissed", "Dear reader", "Ladies and gentlemen", "Once upon a time", "Good question",
    "At your service", "Yours, the machine", "Well, well", "So, here we go", "Q.E.D", "P.S. I like you", "TTYL",
    "FYI", "N.B", "Na dann", "Also gut", "Wie gewünscht", "Schönen Tag noch", "Viele Grüße", "Mit besten Grüßen",
    "Bis bald", "Das wär's", "Auf geht's", "Kurz und gut", "Alles klar", "Sehr gerne", "Gern geschehen", "Mahlzeit",
    "Alors voilà", "Bien à vous", "À bientôt", "Bonne journée", "C'est parti", "Avec plaisir", "Cher ami",
    "Chère amie", "En bref", "D'accord", "Ça marche", "Vale pues", "Un saludo", "Hasta pronto",
    "Que tengas buen día", "Aquí tienes", "Con mucho gusto", "Querido amigo", "Venga, vamos", "Muy bien",
    "Eso es todo", "Ecco qui", "A presto", "Buona giornata", "Cordiali saluti", "Caro amico", "Va bene",
    "Con piacere", "Ci sentiamo", "È tutto", "Allora, vediamo",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Wording:
    """A message: its language, its tone, its wish (None for none), and the literal that it contains.

    A literal is the words to begin or end with, a name, or a language. The text contains it as `written`, which differs
    for a language: there it is the name in the user's own language.
    """

    text: str
    language: str
    tone: str
    wish: str | None
    literal: str = ""
    at: int = -1  # the index of `written` in the text; -1 if there is no literal
    written: str = ""


@dataclass(frozen=True, slots=True)
class WordingParts:
    """One language's file: frames by tone, fillers by slot, parts by wish, and messages without a wish by kind."""

    language: str
    frames: Mapping[str, list[str]]
    slots: Mapping[str, list[str]]
    wishes: Mapping[str, Mapping[str, list[str]]]
    nothing: Mapping[str, list[str]]


@lru_cache
def table(name: str) -> dict[str, object]:
    """The content of one of the data files."""
    return tomllib.loads(files("openclaw_rl.tiny").joinpath("wordings", f"{name}.toml").read_text("utf-8"))


@lru_cache
def parts(code: str) -> WordingParts:
    """The parts of a language of `FILES`."""
    return WordingParts(**table(code))  # type: ignore[arg-type]


def wording(rng: Random, *, wish: str | None = None, code: str | None = None) -> Wording:
    """A message with a wish, a random one by default. Without a language `code`, half of the messages are English."""
    held = parts(code or (FILES[0] if rng.random() < 0.5 else rng.choice(FILES[1:])))
    chosen, tone = wish or rng.choice(WISHES), rng.choice(TONES)
    frames = {"shouting": ("plain", "terse", "angry"), "typos": ("plain", "polite", "terse", "indirect")}
    frame = rng.choice(held.frames[rng.choice(frames.get(tone, (tone,)))])
    text = _filled(_filled(frame, held, held.wishes[chosen], rng), held, held.wishes[chosen], rng)
    literal = named = ""
    if "{x}" in text:
        literal = phrase(rng)
        text = text.replace("{x}", _LITERAL)
    elif "{n}" in text:
        literal = name(rng)
        text = text.replace("{n}", _SAID_NAME)
    elif "{l}" in text:
        literal, named = language_named(held.language, rng)
        text = text.replace("{l}", _SAID_NAME)
    text = toned(text, tone, rng)
    opens, closes = rng.choice(_QUOTES)
    if not opens:
        literal = literal.rstrip("!?.") if _LITERAL in text else literal
    if named:
        named = named.upper() if tone == "shouting" else named.lower() if rng.random() < 0.25 else named
    written = named or literal
    at = text.find(_LITERAL) + len(opens) if _LITERAL in text else text.find(_SAID_NAME)
    text = text.replace(_LITERAL, f"{opens}{literal}{closes}").replace(_SAID_NAME, written)
    return Wording(text, held.language, tone, chosen, literal, at, written)


def remark(rng: Random, about: str, *, code: str | None = None, **given: str) -> Wording:
    """A message without a wish; `about` is one of the kinds in the files, and `given` fills further slots."""
    held = parts(code or (FILES[0] if rng.random() < 0.5 else rng.choice(FILES[1:])))
    text = rng.choice(held.nothing[about])
    filled = {
        "topic": rng.choice(held.nothing["topics"]),
        "fact": rng.choice(held.nothing["facts"]),
        "q": '"' + (rng.choice(held.nothing["quoted"]) if rng.random() < 0.6 else phrase(rng)) + '"',
        **given,
    }
    tone = rng.choice(("plain", "plain", "plain", "shouting", "typos"))
    text = toned(text.format_map(filled), tone, rng)
    return Wording(text, held.language, tone, None)


def phrase(rng: Random) -> str:
    """Words to begin or to end a reply with: listed ones, made-up ones, or both."""
    if rng.random() < 0.3:
        return rng.choice(_PHRASES) + rng.choice(("", "", "", "!", ".", "...", ":"))
    said = rng.choice(_WORDS) if rng.random() < 0.7 else _made_up(rng)
    for _ in range(rng.choice((0, 0, 1, 1, 2, 3, 4))):
        gap = rng.choice((" ", " ", " ", " ", " ", ", ", ", ", "-", ". ", "! ", " - ", " & "))
        longer = said + gap + (rng.choice(_WORDS) if rng.random() < 0.7 else _made_up(rng))
        said = longer if len(longer) <= _MOST_CHARS else said
    form = rng.random()
    if form < 0.6:
        said = said[:1].upper() + said[1:]
    elif form < 0.7:
        said = said.title()
    elif form < 0.75:
        said = said.upper()
    return said + rng.choice(("", "", "", "", "!", ".", "?", "...", "!!", ":", " :)", " ★", " 7"))


def name(rng: Random) -> str:
    """What a user wants to be called: one name or two, a title with a name, or a nickname."""
    form = rng.random()
    first = rng.choice(_NAMES) if rng.random() < 0.6 else _made_up(rng).capitalize()
    if form < 0.32:
        return first
    second = rng.choice(_NAMES) if rng.random() < 0.5 else _made_up(rng).capitalize()
    if form < 0.52:
        return f"{rng.choice(_TITLES)} {first}" + (f" {second}" if rng.random() < 0.2 else "")
    if form < 0.76:
        return f"{first} {second}"
    if form < 0.82:
        return f"{first}-{second}"
    if form < 0.95:
        return rng.choice(("my ", "the ", "", "", "your ")) + " ".join(
            rng.choice((str.capitalize, str))(rng.choice(_WORDS)) for _ in range(rng.choice((1, 1, 2)))
        )
    return rng.choice(
        (f"{first} {second[0]}.", f"{first[0]}.{second[0]}.", f"O'{second}", first.lower(), first.upper())
    )


def phrases_taught() -> list[str]:
    """The literals listed in this module; the others are combined from these and from made-up words."""
    return [*_WORDS, *_NAMES, *_PHRASES]


def _made_up(rng: Random) -> str:
    return "".join(rng.choice(_SYLLABLES) for _ in range(rng.choice((1, 2, 2, 3))))


def language_named(own: str, rng: Random) -> tuple[str, str]:
    """A language's English name, and its name in `own`, the user's language."""
    languages = table("scenes")["languages"]
    assert isinstance(languages, dict)
    name = rng.choice([other for other in languages if other != own] if rng.random() < 0.7 else list(languages))
    return name, languages[name][own]


def _filled(frame: str, held: WordingParts, wish: Mapping[str, list[str]], rng: Random) -> str:
    """The frame with a part in each slot; the slots of literals stay as they are."""

    def part(found: re.Match[str]) -> str:
        slot = found[1]
        if slot in ("x", "n", "l"):
            return found[0]
        return rng.choice(wish.get(slot) or held.slots[slot])

    return re.sub(r"\{(\w+)\}", part, frame)


def toned(text: str, tone: str, rng: Random) -> str:
    """The text as it is typed in a tone: in capitals, mistyped, or with capitals and a full stop not always set."""
    if tone == "shouting":
        text = text.upper().rstrip(".")
        return text if text.endswith(("!", "?")) and rng.random() < 0.5 else text + rng.choice(("!", "!!", "!!!", ""))
    if tone == "typos":
        for _ in range(rng.randint(1, max(2, len(text) // 14))):
            text = _mistyped(text, rng)
    elif rng.random() < 0.1:
        text = _mistyped(text, rng)
    if rng.random() < 0.6:
        text = re.sub(r"(^\W*|[.!?] )(\w)", lambda found: found[1] + found[2].upper(), text)
    if rng.random() < 0.5 and text[-1].isalnum():
        text += rng.choice((".", ".", "!", "..."))
    return text


def _mistyped(text: str, rng: Random) -> str:
    """The text with at most one typing error, or without apostrophes. Placeholders of literals are not changed."""
    places = [at for at in range(1, len(text) - 1) if text[at].isalpha() and text[at + 1].isalpha()]
    if not places:
        return text
    at, how = rng.choice(places), rng.random()
    if how < 0.3:  # two letters are swapped
        return text[:at] + text[at + 1] + text[at] + text[at + 2 :]
    if how < 0.55:  # a letter is missing, often a vowel
        vowels = [place for place in places if text[place] in "aeiou"]
        at = rng.choice(vowels) if vowels and rng.random() < 0.5 else at
        return text[:at] + text[at + 1 :]
    if how < 0.68:  # a letter is doubled
        return text[:at] + text[at] + text[at:]
    if how < 0.9:  # a neighbouring key
        near = _BESIDE.get(text[at].lower())
        return text[:at] + rng.choice(near) + text[at + 1 :] if near else text
    spaces = [place for place in range(1, len(text) - 1) if text[place] == " " and text[place - 1].isalpha()]
    spaces = [place for place in spaces if text[place + 1].isalpha()]
    if how < 0.95 and spaces:  # the blank between two words is missing
        at = rng.choice(spaces)
        return text[:at] + text[at + 1 :]
    return text.replace("'", "").replace("’", "")


_ROWS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")
_BESIDE = {key: row[max(0, at - 1) : at] + row[at + 1 : at + 2] for row in _ROWS for at, key in enumerate(row)}
