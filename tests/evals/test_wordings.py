"""The wordings kept from the bundled model: enough of them, none that it is taught, and what counts as heard."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from openclaw_rl.core.hint import Hint
from openclaw_rl.core.verdict import Verdict, VerdictSource
from openclaw_rl.errors import ConfigError
from openclaw_rl.evals.judging.measure import JudgedCase
from openclaw_rl.evals.judging.wordings import LANGUAGES, NOTHING, as_json, states, templates, utterances, utterances_in
from openclaw_rl.tiny.listening import hint_of
from openclaw_rl.tiny.wordings import FILES, TONES, WISHES, WordingParts, parts, phrases_taught, remark, wording


def _normal(text: str) -> str:
    """A text without what tells no two apart: case, points, marks, and which literal stands in it."""
    return " ".join(re.findall(r"\w+", re.sub(r"\{[xnl]\}", " qqq ", text).casefold()))


def test_there_are_a_thousand_cases_of_twelve_wishes_in_every_tone_and_five_languages() -> None:
    made = utterances()
    assert len(made) >= 1000
    assert len({(said.case.next_state, said.case.request) for said in made}) == len(made)
    wishes = Counter(said.wish for said in made)
    assert len(wishes) == 13 and min(wishes.values()) >= 80 and wishes[NOTHING] >= 150
    assert set(wishes) - {NOTHING} <= set(WISHES)
    tones = Counter(said.tone for said in made if said.wish != NOTHING)
    assert set(tones) | {"plain"} == set(TONES)
    assert {said.language for said in made} == set(LANGUAGES)
    english = Counter((said.wish, said.tone) for said in made if said.language == "en" and said.wish != NOTHING)
    assert len(english) == 12 * 10


@pytest.mark.parametrize("code", FILES)
def test_no_wording_that_is_kept_can_be_made_by_the_grammar_that_teaches(code: str) -> None:
    """Every frame with every part in its place, as one expression: none of the kept wordings is such a sentence."""
    kept = [(wish, _normal(text)) for _, wish, _, text in templates()]
    held = parts(code)
    for wish in WISHES:
        for frame in {frame for frames in held.frames.values() for frame in frames}:
            taught = re.compile(_expression(frame, held, wish))
            assert not [text for _, text in kept if taught.fullmatch(text)], frame
    said = {_normal(text) for texts in held.nothing.values() for text in texts}
    assert {text for _, text in kept} & said == set()


def _expression(frame: str, held: WordingParts, wish: str) -> str:
    def part(found: re.Match[str]) -> str:
        choices = held.wishes[wish].get(found[1]) or held.slots[found[1]]
        return " (?:" + "|".join(re.escape(_normal(choice)) for choice in choices) + ") "

    pieces = re.split(r"(\{(?!x|n\}|l\})\w+\})", frame)
    made = [
        re.sub(r"\{(\w+)\}", part, piece) if piece.startswith("{") else re.escape(_normal(piece)) for piece in pieces
    ]
    return re.sub(r"(\\ | )+", "(?: )", " ".join(made).strip())


def test_the_check_finds_a_wording_that_is_taught() -> None:
    held = parts("en")
    taught = re.compile(_expression("{blame}. please {do}", held, "short"))
    assert taught.fullmatch(_normal("So many words! Please keep it short."))


def test_no_wording_that_is_kept_is_ever_drawn() -> None:
    rng = Random(0)
    drawn = {_normal(wording(rng).text) for _ in range(20_000)}
    drawn |= {
        _normal(remark(rng, about, asked="x").text) for about in ("thanks", "praise", "small") for _ in range(500)
    }
    assert {_normal(said.case.next_state[0].text) for said in utterances()} & drawn == set()


def test_no_literal_that_is_kept_is_among_those_taught() -> None:
    kept = {said.literal.casefold() for said in utterances() if said.wish in ("first", "last", "name")}
    assert not kept & {word.casefold() for word in phrases_taught()}


@pytest.mark.parametrize("wish", sorted(set(WISHES) - {"markdown", "example"}))
def test_what_the_judge_is_taught_to_say_states_the_wish_and_no_other(wish: str) -> None:
    literal = {"first": "Ahoy", "last": "Ahoy", "name": "Mimi", "language": "German"}.get(wish, "")
    hint = hint_of(wish, literal, None, Random(0))
    assert states(hint, wish, literal), hint
    others = set(WISHES) - {wish, "example", "markdown", "language"}
    assert not [
        other for other in others if states(hint, other, "Yee-haw!" if other in ("first", "last", "name") else "")
    ]


@pytest.mark.parametrize(
    ("hint", "wish", "literal", "expected"),
    [
        ("The user prefers brief answers.", "short", "", True),
        ("Be more thorough.", "short", "", False),
        ("Use bullet points.", "list", "", True),
        ("Avoid bullet points and lists.", "list", "", False),
        ("Use structured markdown with headers.", "natural", "", False),
        ("Start every reply with “Top of the day!”", "first", "Top of the day!", True),
        ('Start every reply with "Dear me!"', "first", "Top of the day!", False),
        ('End every reply with "Fin."', "first", "Fin.", False),
        ("Antworte auf Deutsch.", "language", "German", True),
        ("Write in French.", "language", "German", False),
        ("Anything at all.", NOTHING, "", False),
    ],
)
def test_a_hint_in_any_words_is_right_where_it_states_the_wish(
    hint: str, wish: str, literal: str, expected: bool
) -> None:
    assert states(hint, wish, literal) is expected


def test_figures_tell_right_wrong_and_silence_apart() -> None:
    made = utterances()
    short = [said for said in made if said.wish == "short"][:3]
    idle = [said for said in made if said.wish == NOTHING][:1]
    hints = ("Be brief.", "Use emoji.", "", "Be brief.")
    results = [
        JudgedCase(said.case, Verdict("t", -1, VerdictSource.VOTES, hints=(Hint(hint),) if hint else ()))
        for said, hint in zip((*short, *idle), hints, strict=True)
    ]
    found = as_json((*short, *idle), results)
    assert (found["cases"], found["idle_cases"]) == (4, 1)
    assert (found["right_hint"], found["nothing"]) == (0.3333, 0.3333)  # of three wishes
    assert found["wrong_hint"] == 0.5  # of all four: a wish misheard, and one heard where there was none
    assert found["wish_scored_plus"] == 0.0


FURTHER = [Path(__file__).parents[2] / "benchmarks" / f"wordings_{name}.toml" for name in ("first", "second")]


@pytest.mark.parametrize("path", FURTHER, ids=lambda path: path.stem)
def test_sets_of_others_have_every_wish_and_language(path: Path) -> None:
    made = utterances_in(path)
    assert len(made) > 1_100
    assert {said.wish for said in made} == {said.wish for said in utterances()}
    assert {said.language for said in made} == set(LANGUAGES)
    assert all(said.literal in said.case.next_state[0].text for said in made if said.wish in {"first", "last", "name"})


def test_a_set_of_ones_own_may_be_small(tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text('[scenes]\nen = [["Why?", "Because."]]\n[about]\n[en.short]\nterse = ["in a word"]\n', "utf-8")
    found = utterances_in(own)
    assert {(said.wish, said.tone, said.case.next_state[0].text) for said in found} == {("short", "terse", "in a word")}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "no wordings that can be read"),
        ("[en.short", "no wordings that can be read"),
        ('[en.short]\nterse = ["in a word"]\n', "no wordings that can be read"),  # no scenes
        ('[scenes]\nen = []\n[about]\n[en.short]\nterse = ["in a word"]\n', "no wordings that can be read"),
        ('[scenes]\nen = [["Why?", "Because."]]\n[about]\n[en.louder]\nterse = ["shout"]\n', "unknown wishes: louder"),
        ("", "unknown wishes: none at all"),
    ],
)
def test_a_file_that_is_no_set_is_named_and_what_one_looks_like(tmp_path: Path, text: str | None, says: str) -> None:
    own = tmp_path / "own.toml"
    if text is not None:
        own.write_text(text, "utf-8")
    with pytest.raises(ConfigError, match=says) as raised:
        utterances_in(own)
    assert "wordings_first.toml" in (raised.value.fix or "")
