"""Messages in many tones and five languages, unknown to the bundled model, and a judge's hints from them."""

from __future__ import annotations

import re
import tomllib
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

from openclaw_rl.core.message import Json, Role, message
from openclaw_rl.errors import ConfigError
from openclaw_rl.evals.judging.cases import JudgeCase
from openclaw_rl.evals.judging.measure import JudgedCase
from openclaw_rl.wording.words import language, plain

LANGUAGES = ("en", "de", "fr", "es", "it")
NOTHING = "nothing"  # stands for messages without a wish
FORM = "benchmarks/wordings_first.toml is an example: scenes, literals, and messages by language, wish and tone"
SCENES_EACH = 2  # scenes from the file for each message
_QUOTES = (('"', '"'), ("“", "”"), ("", ""))


@dataclass(frozen=True, slots=True)
class Utterance:
    """One message after a reply, as a case, with its wish and the literal in it."""

    case: JudgeCase
    wish: str
    literal: str
    language: str
    tone: str

    def heard(self, result: JudgedCase) -> str:
        """`right` if every hint states the wish, `wrong` if one says anything else, `nothing` without any."""
        hints = [] if result.verdict is None else [hint.text for hint in result.verdict.hints]
        if not hints:
            return "nothing"
        return "right" if all(states(hint, self.wish, self.literal) for hint in hints) else "wrong"


@lru_cache
def _table(path: Path | None = None) -> dict[str, Json]:
    shipped = files("openclaw_rl.evals.judging").joinpath("wordings.toml")
    held: dict[str, Json] = tomllib.loads((path or shipped).read_text("utf-8"))
    return held


def templates(path: Path | None = None) -> list[tuple[str, str, str, str]]:
    """All messages before literals are put in: language, wish, tone and text; of the file, or the shipped ones."""
    table = _table(path)
    return [
        (code, str(wish), str(tone), str(text))
        for code in LANGUAGES
        if code in table
        for wish, tones in _items(table[code])
        for tone, texts in _items(tones)
        for text in _list(texts)
    ]


def utterances_in(path: Path) -> list[Utterance]:
    """The cases of a file that has the form of the shipped one, but needs no `called` and `means`.

    Raises ConfigError for a file that cannot be read as such.
    """
    try:
        made = utterances(path)
        strange = sorted({said.wish for said in made} - {NOTHING, *dict(_items(_table()["means"]))})
    except (OSError, ValueError, KeyError, TypeError, ZeroDivisionError, AssertionError) as problem:
        raise ConfigError(f"{path} has no wordings that can be read: {problem!r}", fix=FORM) from problem
    if strange or not made:
        raise ConfigError(f"{path} has unknown wishes: {', '.join(strange) or 'none at all'}", fix=FORM)
    return made


def utterances(path: Path | None = None) -> list[Utterance]:
    """All cases: each template after two replies, with literals in turn."""
    made = []
    for index, (code, wish, tone, text) in enumerate(templates(path)):
        scenes = _list(dict(_items(_table(path)["scenes"]))[code])
        for turn in range(SCENES_EACH):
            literal, shown = _literal(wish, code, 7 * turn + index, path)
            said = re.sub(r"\{[xnl]\}", lambda _, shown=shown: shown, text)  # type: ignore[misc]
            request, reply = (str(part) for part in _list(scenes[(index + turn) % len(scenes)]))
            case = JudgeCase(
                kind=wish,
                role="user",
                request=(message(Role.USER, request),),
                reply=message(Role.ASSISTANT, reply),
                next_state=(message(Role.USER, said),),
                score=-1 if wish != NOTHING or tone == "complaint" else 0 if tone == "small" else 1,
            )
            made.append(Utterance(case, wish, literal, code, tone))
    return made


def states(hint: str, wish: str, literal: str) -> bool:
    """Whether a hint, in any words, states the wish."""
    if wish == NOTHING:
        return False
    for expression in _list(_within("means", wish)):
        expected = not str(expression).startswith("!")
        if (re.search(str(expression).removeprefix("!"), hint, re.IGNORECASE) is not None) is not expected:
            return False
    return any(plain(name) in plain(hint) for name in _names(wish, literal)) if literal else True


def as_json(utterances: Sequence[Utterance], results: Sequence[JudgedCase]) -> dict[str, Json]:
    """The figures: shares of right hints among the wishes, of wrong ones among all, and of wishes without a hint."""
    pairs = list(zip(utterances, results, strict=True))
    wished = [pair for pair in pairs if pair[0].wish != NOTHING]
    return {
        **_shares(pairs),
        "idle_cases": len(pairs) - len(wished),
        "wish_scored_plus": _share([result.score == 1 for _, result in wished]),
        "score_right": _share([result.is_right for _, result in pairs]),
        "by_wish": _by(pairs, lambda said: said.wish),
        "by_language": _by(pairs, lambda said: said.language),
        "by_tone": _by(wished, lambda said: said.tone),
    }


def _shares(pairs: Sequence[tuple[Utterance, JudgedCase]]) -> dict[str, Json]:
    heard = [(said.wish, said.heard(result)) for said, result in pairs]
    wished = [found for wish, found in heard if wish != NOTHING]
    return {
        "cases": len(pairs),
        "right_hint": _share([found == "right" for found in wished]),
        "wrong_hint": _share([found == "wrong" for _, found in heard]),
        "nothing": _share([found == "nothing" for found in wished]),
    }


def _by(pairs: Sequence[tuple[Utterance, JudgedCase]], key: Callable[[Utterance], str]) -> dict[str, Json]:
    groups: dict[str, list[tuple[Utterance, JudgedCase]]] = defaultdict(list)
    for pair in pairs:
        groups[key(pair[0])].append(pair)
    return {name: _shares(found) for name, found in groups.items()}


def _share(found: Sequence[bool]) -> float | None:
    return round(sum(found) / len(found), 4) if found else None


def _literal(wish: str, code: str, index: int, path: Path | None) -> tuple[str, str]:
    """The literal of a wish, and the form in which the user writes it."""
    about = dict(_items(_table(path)["about"]))
    if wish in ("first", "last"):
        words = _list(about[wish])
        opens, closes = _QUOTES[index % len(_QUOTES)]
        said = str(words[index % len(words)])
        return said, f"{opens}{said}{closes}"
    if wish == "name":
        names = _list(about["names"])
        return (str(names[index % len(names)]),) * 2
    if wish == "language":
        named = [name for name in _list(about["languages"]) if name != language(code).name]
        chosen = str(named[index % len(named)])
        return chosen, str(dict(_items(_within("called", code)))[chosen])
    return "", ""


def _names(wish: str, literal: str) -> list[str]:
    """The literal; for a language, its name in each language."""
    if wish != "language":
        return [literal]
    return [literal, *(str(dict(_items(_within("called", code)))[literal]) for code in LANGUAGES)]


def _within(first: str, second: str) -> Json:
    return dict(_items(_table()[first]))[second]


def _items(value: Json) -> list[tuple[str, Json]]:
    assert isinstance(value, dict)
    return list(value.items())


def _list(value: Json) -> list[Json]:
    assert isinstance(value, list)
    return value
