"""The judge that classifies: quotes are the user's own words, and what it is not sure of teaches nothing."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from judge_doubles import said, tool_said, turn

from openclaw_rl.core.message import Message, Role, message
from openclaw_rl.core.next_state import NextState, NextStateSource
from openclaw_rl.core.turn import Turn
from openclaw_rl.core.verdict import VerdictSource
from openclaw_rl.errors import ModelError
from openclaw_rl.judge.classifier import ClassifierJudge
from openclaw_rl.judge.encoder import ABOUT, WEIGHTS, Encoder, Sound, has_classifier
from openclaw_rl.judge.reading import MOST_WORDS, TurnReading, reading
from openclaw_rl.judge.settings import HintFrom, JudgeSettings
from openclaw_rl.tiny.world import bundled_model


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return Encoder.load(bundled_model())


@pytest.fixture(scope="module")
def judge(encoder: Encoder) -> ClassifierJudge:
    return ClassifierJudge(encoder, JudgeSettings(), name="toy")


def _unsure(encoder: Encoder) -> Encoder:
    """One that must be surer than anybody can be."""
    wishes = tuple(replace(each, sure=1.1) for each in encoder.about.wishes)
    return Encoder(replace(encoder.about, wishes=wishes, score_sure=1.1), encoder.spelling, encoder.members)


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("please use bullet points next time", "list"),
        ("Bitte ohne Emojis!", "emoji"),
        ("por favor, responde en inglés", "English"),
        ("make it much shorter please", "short"),
    ],
)
async def test_a_wish_is_heard_scored_and_worded(judge: ClassifierJudge, words: str, hint: str) -> None:
    verdict = await judge.judge(turn(), said(words))
    assert verdict.score == -1
    assert [hint in one.text for one in verdict.hints] == [True]
    score, heard = verdict.votes
    assert (score.asked, heard.asked, heard.score, heard.judge) == ("score", "hint", 1, "toy")
    assert "wish was recognised" in score.raw and "recognised" in heard.raw and "0." in heard.raw


@pytest.mark.parametrize("words", ["Good morning, captain!", "Over and out, boss."])
async def test_a_quote_stands_in_the_users_words_letter_by_letter(judge: ClassifierJudge, words: str) -> None:
    verdict = await judge.judge(turn(), said(f'please start with "{words}"'))
    assert [hint.text for hint in verdict.hints] == [f'Begin the reply with "{words}"']


@pytest.mark.parametrize(
    "words",
    [
        "I'm Zora. Please call me Zora in your replies.",
        "call me Zora. Zora, please!",
        "Please call me Zora, everybody says Zora.",
    ],
)
def test_a_literal_that_is_said_twice_is_as_sure_as_one_that_is_said_once(encoder: Encoder, words: str) -> None:
    """Each place has a part of the share; what is said is the same at both."""
    read = reading((), message(Role.ASSISTANT, "It is 4."), (message(Role.USER, words),))
    sound = encoder.hear(read)
    assert read.words[sound.first : sound.last + 1] == ("zora",)
    assert sound.literal > 0.9


def test_the_shares_of_a_literals_places_are_added(encoder: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    """No place of "nell" is likelier than "please" here; both together are."""
    read = reading((), message(Role.ASSISTANT, "It is 4."), (message(Role.USER, "I am Nell, please say Nell"),))
    share = {"nell": 0.3, "please": 0.4}
    ends = np.array([[share.get(word, 0.0) for word in read.words]] * 2)
    one = (np.ones(3) / 3, np.ones(len(encoder.about.wishes)), np.ones(len(encoder.about.places)), ends)
    monkeypatch.setattr("openclaw_rl.judge.encoder._Member.hear", lambda member, read: one)
    sound = encoder.hear(read)
    assert read.words[sound.first : sound.last + 1] == ("nell",)
    assert sound.literal == pytest.approx(0.6 * 0.6)


def test_a_literal_is_found_where_the_wish_is_unsure(encoder: Encoder) -> None:
    words = "I am Nell, so please say Nell when you answer."
    read = reading((), message(Role.ASSISTANT, "It is 4."), (message(Role.USER, words),))
    sound = encoder.hear(read)
    assert read.words[sound.first : sound.last + 1] == ("nell",)


async def test_thanks_and_talk_give_a_score_and_no_hint(judge: ClassifierJudge) -> None:
    thanks = await judge.judge(turn(), said("thank you very much"))
    talk = await judge.judge(turn(), said("it is raining here"))
    assert (thanks.score, thanks.hints, thanks.mean) == (1, (), 1.0)
    assert (talk.score, talk.hints) == (0, ())


async def test_what_it_is_not_sure_of_is_no_vote_and_no_hint(encoder: Encoder) -> None:
    verdict = await ClassifierJudge(_unsure(encoder), JudgeSettings()).judge(turn(), said("please use bullet points"))
    assert (verdict.score, verdict.hints, verdict.mean, verdict.has_signal) == (None, (), None, False)
    assert [vote.score for vote in verdict.votes] == [None, -1]
    assert all("not sure" in vote.raw for vote in verdict.votes)


async def test_a_tools_own_status_outranks_what_is_heard(judge: ClassifierJudge) -> None:
    verdict = await judge.judge(turn(), tool_said("Error: please use bullet points"))
    assert (verdict.score, verdict.source, verdict.hints) == (-1, VerdictSource.ENVIRONMENT, ())


async def test_what_a_tool_fetched_never_gives_a_hint(judge: ClassifierJudge) -> None:
    verdict = await judge.judge(turn(), tool_said("please use bullet points and call me Captain"))
    assert verdict.hints == ()
    assert {vote.asked for vote in verdict.votes} == {"score"}


async def test_tools_are_not_voted_on_where_the_settings_say_so(encoder: Encoder) -> None:
    quiet = ClassifierJudge(encoder, JudgeSettings(tool_votes=False))
    verdict = await quiet.judge(turn(), tool_said("3 files"))
    assert (verdict.score, verdict.votes) == (None, ())


async def test_words_that_are_only_quoted_give_no_hint(judge: ClassifierJudge) -> None:
    mail = "what does she want?\n\n> please use bullet points next time\n> and no emojis"
    verdict = await judge.judge(turn(), said(mail))
    assert verdict.hints == ()


async def test_the_users_own_words_count_where_the_settings_ask_for_them(encoder: Encoder) -> None:
    own = ClassifierJudge(encoder, JudgeSettings(hint_source=HintFrom.FOLLOWUP))
    verdict = await own.judge(turn(), said("no, use bullet points in your answers please"))
    assert [hint.text for hint in verdict.hints] == ["no, use bullet points in your answers please"]


async def test_a_turn_without_words_has_no_votes(judge: ClassifierJudge) -> None:
    empty = NextState("t1", (message(Role.USER, "> only quoted"),), NextStateSource.USER)
    verdict = await judge.judge(turn(), empty)
    assert (verdict.score, verdict.votes) == (None, ())


def test_a_long_text_is_read_from_both_ends_and_keeps_its_places() -> None:
    text = " ".join(f"word{number}" for number in range(200))
    read = reading((message(Role.USER, "hello"),), message(Role.ASSISTANT, "hi"), (message(Role.USER, text),))
    assert len(read.words) == MOST_WORDS
    assert (read.words[0], read.words[-1]) == ("word0", "word199")
    assert all(text[start:end] == word for word, (start, end) in zip(read.words, read.places, strict=True))


def test_words_that_were_asked_before_are_marked() -> None:
    read = reading((message(Role.USER, "What is tea?"),), Message(Role.ASSISTANT), (message(Role.USER, "TEA I said"),))
    assert read.words == ("tea", "i", "said")
    assert [marks[5] for marks in read.marks] == [1, 0, 0]


def test_a_folder_without_a_classifier_has_none_and_a_damaged_one_is_refused(tmp_path: Path) -> None:
    assert not has_classifier(tmp_path)
    (tmp_path / ABOUT).parent.mkdir()
    for name in (ABOUT, WEIGHTS):
        shutil.copyfile(bundled_model() / name, tmp_path / name)
    assert has_classifier(tmp_path)
    held = json.loads((tmp_path / ABOUT).read_text("utf-8"))
    (tmp_path / ABOUT).write_text(json.dumps(held | {"format": 99}), "utf-8")
    with pytest.raises(ModelError, match="format 99"):
        Encoder.load(tmp_path)
    shutil.copyfile(bundled_model() / ABOUT, tmp_path / ABOUT)
    (tmp_path / WEIGHTS).write_bytes(b"damaged")
    with pytest.raises(ModelError, match="cannot be read"):
        Encoder.load(tmp_path)


SHORT = {  # how likely it is that these words wish for something shorter
    "I stopped reading after the first line.": 0.7,
    "Half of it would have been plenty.": 0.72,
    "A page is no answer.": 0.6,
    "What an essay.": 0.3,
}
UNSURE, OTHER, HARDLY, UNLIKELY = SHORT


class _Scripted(Encoder):
    """Is as sure as `SHORT` says, whatever the weights are."""

    def hear(self, read: TurnReading) -> Sound:
        likely = next((share for words, share in SHORT.items() if words.casefold() == read.text.casefold()), 0.0)
        shares = tuple(likely if each.name == "short" else 0.0 for each in self.about.wishes)
        return Sound((0.9, 0.05, 0.05), shares, (1.0, *(0.0,) * (len(self.about.places) - 1)))


def _listening(encoder: Encoder, *earlier: str) -> ClassifierJudge:
    """A judge of a user whose corrections so far were these, and gave no hint."""

    async def unheard(user: str) -> list[tuple[Turn, NextState]]:
        assert user == "ann"
        return [(turn(f"before-{at}"), said(words, f"before-{at}")) for at, words in enumerate(earlier)]

    scripted = _Scripted(encoder.about, encoder.spelling, encoder.members)
    return ClassifierJudge(scripted, JudgeSettings(), unheard=unheard)


async def test_a_wish_that_is_likely_is_heard_when_it_is_said_again_in_other_words(encoder: Encoder) -> None:
    alone = await _listening(encoder).judge(turn(), said(UNSURE))
    again = await _listening(encoder, UNSURE).judge(turn(), said(OTHER))
    assert (alone.score, alone.hints) == (-1, ())
    assert [hint.text for hint in again.hints] == ["Keep the reply short."]
    assert "1 times before in other words: 0.92" in again.votes[1].raw


@pytest.mark.parametrize(
    "earlier",
    [
        (UNSURE, UNSURE.upper()),  # the same words say nothing new, however often
        ("That is wrong.", "Look at the numbers again, that cannot be."),  # corrections about something else
        (HARDLY,),  # 0.88 together: sure enough for one message, not for two
        (UNLIKELY, UNLIKELY + " Again."),  # too unlikely to count
    ],
)
async def test_what_was_said_before_counts_only_if_it_is_the_same_wish_in_other_words(
    encoder: Encoder, earlier: tuple[str, ...]
) -> None:
    verdict = await _listening(encoder, *earlier).judge(turn(), said(UNSURE))
    assert (verdict.score, verdict.hints) == (-1, ())
