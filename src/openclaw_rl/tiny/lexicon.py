"""Short messages about a reply: the words of each wish, put into patterns of five languages."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from random import Random

from openclaw_rl.tiny.wordings import Wording, parts, table, toned

SLOTS = ("more", "less", "with", "without")
_TONES = ("plain", "plain", "plain", "terse", "angry", "slang", "typos", "shouting")


def brief(rng: Random, code: str) -> Wording:
    """A short message with a wish, often within one of the language's sentence frames.

    `code` is a language of `FILES`, such as "en".
    """
    known, (wish, slot, word) = words(code), rng.choice(_entries(code))
    text = rng.choice(known["patterns"][slot]).replace("{w}", word)
    tone = rng.choice(_TONES)
    if rng.random() < 0.45:
        text = rng.choice(_frames(code)).replace("{short}", text.rstrip("?"))
    return Wording(toned(text, tone, rng), parts(code).language, tone, wish)


def idle(rng: Random, code: str) -> tuple[str, int]:
    """A message with the same words about something other than the reply, and its score.

    The score is +1 for a further question, which ends in a question mark, else 0.
    """
    entries = [word for _, slot, word in _entries(code) if slot in ("more", "less")]
    text = rng.choice(words(code)["patterns"]["things"]).replace("{w}", rng.choice(entries))
    return toned(text, "plain", rng), 1 if text.endswith("?") else 0


@lru_cache
def words(code: str) -> Mapping[str, Mapping[str, list[str]]]:
    """One language's patterns, under "patterns", and the words of each wish, under its name."""
    found = table("lexicon")[code]
    assert isinstance(found, dict)
    return found


@lru_cache
def _entries(code: str) -> list[tuple[str, str, str]]:
    return [
        (wish, slot, word)
        for wish, slots in words(code).items()
        if wish != "patterns"
        for slot, listed in slots.items()
        for word in listed
    ]


@lru_cache
def _frames(code: str) -> list[str]:
    frames = [one for tone in parts(code).frames.values() for one in tone]
    return [one for one in frames if "{short}" in one and one.count("{") == 1]
