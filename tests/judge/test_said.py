"""A hint may only say what the user said."""

from __future__ import annotations

import pytest

from openclaw_rl.judge.hint import is_said


@pytest.mark.parametrize(
    ("hint", "said", "expected"),
    [
        ('Begin the reply with "Ahoy there!"', "START WITH “AHOY  THERE”", True),
        ('Begin the reply with "Dear me!".', 'Begin with "Ahoy!"', False),
        ("Begin the reply with Good morning.", "say good morning first", True),
        ("Begin the reply with Good morning.", "be friendlier", False),
        ("Begin with a short summary.", "tell me the main point first", True),  # it describes
        ("Beginne die Antwort mit „Moin“.", "fang mit Moin an", True),
        ("Beginne die Antwort mit „Moin“.", "sei netter", False),
        ("Commence par «Salut».", "commence par salut", True),
        ("以「你好」开头。", "请以你好开头", True),
        ("以「你好」开头。", "短一点", False),
        ("「はい」で始めてください。", "「はい」から書いて", True),
        ("Avoid the word 'certainly'.", "never say certainly", True),
        ("Don't use the user's mother's name.", "leave her name out", True),  # apostrophes quote nothing
        ('Call the user "Sam".', "I'm Sam", True),
        ('Call the user "Tom".', "I'm Sam", False),
        ("Address her as Nora.", "I'm Sam", False),
        ("The user asked about Nora and her garden.", "nora, not Tom", True),
        ("The user asked for a mail to Nora.", "a mail to her", False),
        ("Use at most 3 sentences.", "three sentences at most", True),
        ("Use at most 3 sentences.", "höchstens drei Sätze", True),
        ("Use at most 3 sentences.", "shorter please", False),
        ("Use at most 3 sentences.", "enintään kolme lausetta", True),  # no file knows, so the judge is believed
        ("Write the reply in French.", "auf Französisch bitte", True),
        ("Write the reply in French.", "in Spanish please", False),
        ("Write the reply in French.", "make it shorter", False),
        ("Write the reply in German.", "Kannst du das auch in meiner Sprache sagen?", True),  # it is written in it
        ("Write the reply in Finnish.", "suomeksi kiitos", True),
        ("Use Markdown and LaTeX, as in Python.", "with formatting please", True),  # words that name no person
    ],
)
def test_what_a_hint_quotes_counts_or_names_stands_in_the_users_words(hint: str, said: str, expected: bool) -> None:
    assert is_said(hint, said) is expected


def test_names_and_numbers_may_stand_in_the_request_but_quoted_words_may_not() -> None:
    asked = 'Tell Mia that "Ahoy" has 4 letters.'
    assert is_said("Count what Mia has, it is 4.", "wrong", asked=asked)
    assert not is_said('Begin the reply with "Ahoy".', "wrong", asked=asked)
