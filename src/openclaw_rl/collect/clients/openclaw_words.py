"""Whose words stand in a user's message of OpenClaw's: the user's, the client's, or both in one."""

from __future__ import annotations

import re

# `[Tue 2031-02-04 09:15 Europe/Rome] `; a channel may name its sender in front, and weekdays have names in any language
STAMP = re.compile(
    r"\[(?:[^\]\n]{1,80} )?[^\W\d_]{1,12}\.? \d{4}-\d\d-\d\d \d\d:\d\d(?::\d\d)?(?: ?[AaPp][Mm])?(?: [^\]\n]{1,40})?\] "
)
SUMMARY = "The conversation history before this point was compacted into the following summary:"
QUEUED = re.compile(r"(?:\A|\n\n)\[Queued user message[^\]\n]*\]\n")
QUEUED_BEGIN = "[Queued user message"
CONTINUE = "Continue the current task from the existing transcript"
BACKGROUND = "A background task completed"

# The client's own words in a user's message. These continue what a user asked for:
NUDGES = (CONTINUE, "<turn_aborted>", "The previous attempt did not produce", "This turn ended before a reply")
# These begin an errand; the first ones may also come after a time stamp:
MARKED_ERRANDS = ("[OpenClaw heartbeat poll]", "[Subagent Context]", "[cron:")
TOLD_ERRANDS = (
    "Follow the heartbeat monitor",
    "A scheduled reminder has been triggered",
    "Pre-compaction memory flush",
)


def is_stamped(text: str) -> bool:
    """Whether the client put the time in front."""
    return STAMP.match(text) is not None


def without_stamp(text: str) -> str:
    """The text without the client's time stamp; one typed after it stays."""
    return STAMP.sub("", text, count=1) if is_stamped(text) else text


def users_words(text: str) -> str | None:
    """What the user said in this message, without time stamp and retry; None if only the client speaks.

    A retry contains the user's words after a mark of the client's, and ends with a paragraph of the client's.
    """
    words = without_stamp(text)
    if words.startswith(QUEUED_BEGIN):
        return _queued(words)
    if not is_stamped(text) and words.startswith((*TOLD_ERRANDS, SUMMARY)):
        return None
    return None if words.startswith((*NUDGES, BACKGROUND, *MARKED_ERRANDS)) else words


def is_nudge(text: str) -> bool:
    """Whether only the client speaks here, to have the model continue what was asked before."""
    words = without_stamp(text)
    if words.startswith(QUEUED_BEGIN):
        return _queued(words) is None and not is_errand(text)
    return words.startswith(NUDGES)


def is_errand(text: str) -> bool:
    """Whether this is a request of the client itself."""
    words = without_stamp(text)
    if words.startswith(QUEUED_BEGIN):
        return any(_is_errand(piece) for piece in _pieces(words)) and _queued(words) is None
    return words.startswith(MARKED_ERRANDS) or (not is_stamped(text) and words.startswith(TOLD_ERRANDS))


def _queued(words: str) -> str | None:
    """The users' part of a message that was tried again."""
    said = [piece for piece in _pieces(words) if not _is_errand(piece)]
    return "\n\n".join(said) or None


def _pieces(words: str) -> list[str]:
    """What was queued, one piece for each mark; the client's closing paragraph is left out."""
    pieces = QUEUED.split(words)[1:]
    if pieces:
        before, gap, last = pieces[-1].rpartition("\n\n")
        if last.startswith(CONTINUE):
            pieces[-1] = before if gap else ""
    plain = [without_stamp(piece.strip("\n")) for piece in pieces]
    return [piece for piece in plain if piece.strip() and not piece.startswith((*NUDGES, BACKGROUND))]


def _is_errand(piece: str) -> bool:
    return piece.startswith((*MARKED_ERRANDS, *TOLD_ERRANDS))
