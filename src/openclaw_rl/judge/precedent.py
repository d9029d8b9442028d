"""What an owner said in the judge's place holds for the same words said again, so that nobody has to say it twice.

Only where the same user says the same words and the judge decides as it did when it was overruled: then the owner's
score takes its place once more. Other words are judged as before; what looks alike to a judge is often not meant alike
(docs/decisions/0034-what-an-owner-overruled.md). Nothing is kept but the rows in the store, so what is forgotten no
longer decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from openclaw_rl.core.next_state import NextState, NextStateSource
from openclaw_rl.core.verdict import Verdict, VerdictSource, Vote
from openclaw_rl.judge.reading import plain_words
from openclaw_rl.judge.signals import owner_messages
from openclaw_rl.store.tables.overrules import Overrule

ASKED = "owner"  # of the vote that says so
RAW = "as its owner judged the same words before"


def by_precedent(verdict: Verdict, after: NextState, overruled: Sequence[tuple[Overrule, NextState]]) -> Verdict:
    """The verdict, or the owner's score in place of the judge's where `overruled` holds the same words.

    `overruled` is what was said of turns of the same user, newest first. Of the judge's hints those stay that the owner
    let stand then. Where owners said different things of the same words, the judge's verdict stays.
    """
    words = _said(after)
    if verdict.source is not VerdictSource.VOTES or not words:
        return verdict
    newest: dict[str, Overrule] = {}
    for said, heard in overruled:
        if said.turn != verdict.turn and _said(heard) == words:
            newest.setdefault(said.turn, said)
    same = [said for said in newest.values() if said.judged is not None and said.judged[0] == verdict.score]
    if len({said.score for said in newest.values()}) != 1 or not same:
        return verdict
    score, let_stand = same[0].score, same[0].hints
    hints = tuple(hint for hint in verdict.hints if hint.text in let_stand)
    if score == verdict.score and hints == verdict.hints:
        return verdict
    return replace(verdict, score=score, hints=hints, votes=(*verdict.votes, Vote(ASKED, RAW, score, judge=ASKED)))


def _said(after: NextState) -> tuple[str, ...]:
    if after.source is not NextStateSource.USER:
        return ()
    return tuple(word for item in owner_messages(after) for word in plain_words(item.text))
