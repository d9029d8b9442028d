"""Lines and objects that a client puts around messages, by which its owner's words are known without any rule."""

from __future__ import annotations

from difflib import SequenceMatcher

import pytest

from openclaw_rl.collect import frames
from openclaw_rl.collect.frames import FrameMemory, from_object, unframed, without_stamp

HEAD = "=== editor ===\nOpen file: a.py\nCursor: line {}\n=== message ===\n{}"
TAIL = "{}\n\n---\nboard: {} open; editing a.py"
LABEL = "Use these excerpts if they help.\n(1) {}\nThe question: {}"


@pytest.mark.parametrize(
    ("text", "others", "words"),
    [
        (HEAD.format(12, "shorter\n\nplease"), [HEAD.format(3, "why?")], "shorter\n\nplease"),
        (TAIL.format("shorter\n\nplease", 4), [TAIL.format("why?", 3)], "shorter\n\nplease"),
        (LABEL.format("a", "shorter"), [LABEL.format("b", "why?")], "shorter"),
    ],
    ids=["before", "after", "behind a label"],
)
def test_what_messages_share_is_not_their_owners(text: str, others: list[str], words: str) -> None:
    found = unframed(text, others)
    assert found is not None and found.words == words


@pytest.mark.parametrize(
    ("text", "others"),
    [
        ("No.\nShorter, please", ["No.\nUse a table"]),  # two letters are no frame
        ("one line", ["one line, too"]),
        ("what I said\nbefore", ["what I said\nbefore"]),
        ("what I said\nbefore\nand more", ["what I said\nbefore"]),
        ("nothing\nin common", ["with\nthis one"]),
    ],
)
def test_words_of_two_messages_that_a_person_may_type_are_left_alone(text: str, others: list[str]) -> None:
    assert unframed(text, others) is None


def test_between_two_shared_parts_words_are_believed_when_two_others_say_so() -> None:
    both = "**Task for you**\n{}\n**Rules for all**\nWork calmly."
    first, second = both.format("why?"), both.format("and how?")
    once = unframed(both.format("shorter"), [first])
    twice = unframed(both.format("shorter"), [first, second])
    assert once is not None and once.words == ""  # the words may have been the same, and something else not
    assert twice is not None and twice.words == "shorter"


def test_two_places_that_are_not_shared_leave_it_open_which_are_the_words() -> None:
    both = "**Task for you**\n{}\n**Files that are open**\n{}\n**Rules for all**"
    found = unframed(both.format("shorter", "c.py"), [both.format("why?", "a.py"), both.format("how?", "b.py")])
    assert found is not None and found.words == ""


def test_an_object_gives_its_only_text_when_another_message_has_the_same_fields() -> None:
    sent = '{"case": 2, "channel": "web", "message": "no, shorter please"}'
    assert from_object(sent, ['{"case": 1, "channel": "web", "message": "why is it so?"}']) == "no, shorter please"
    assert from_object(sent, ["why is it so?"]) is None
    assert from_object('{"one": "two words", "other": "two more"}', ['{"one": "a", "other": "b"}']) == ""


@pytest.mark.parametrize("stamp", ["[1.11.2026 12:45] ", "(2026-11-21 00:22 UTC) "])
def test_a_date_and_a_time_in_brackets_is_a_stamp(stamp: str) -> None:
    assert without_stamp(f"{stamp}shorter") == "shorter"
    assert without_stamp("[see page 3] shorter") == "[see page 3] shorter"


def test_a_stamp_is_the_clients_once_another_message_has_one() -> None:
    memory = FrameMemory()
    text = "[1.11.2026 12:45] shorter"
    assert memory.words("key", "s", text, ["why?"]) == text
    assert memory.words("key", "s", text, ["[1.11.2026 12:40] why?"]) == "shorter"
    assert memory.words("key", "other", text, []) == "shorter"


def test_a_frame_is_known_in_other_conversations_of_the_key_and_of_no_other() -> None:
    memory = FrameMemory()
    text = HEAD.format(7, "shorter")
    assert memory.words("key", "s", text, [HEAD.format(3, "why?")]) == "shorter"
    assert memory.words("key", "other", HEAD.format(9, "longer"), []) == "longer"
    assert memory.words("another", "other", text, []) == text
    memory.let_go()
    assert memory.words("key", "other", text, []) == text and memory.held == 0


def test_a_message_without_what_stands_around_the_others_is_a_programs() -> None:
    memory = FrameMemory()
    for number, words in enumerate(("why?", "shorter")):
        assert not memory.lacks_frame("s", "Name this conversation.")
        memory.enter("s", HEAD.format(number, words))
    assert memory.lacks_frame("s", "Name this conversation.")
    assert not memory.lacks_frame("s", HEAD.format(8, "longer"))
    assert not memory.lacks_frame("other", "Name this conversation.")
    for words in ("and why?", "and how?", "go on"):  # the frame is there only at times
        memory.enter("s", words)
    assert not memory.lacks_frame("s", "longer")


def test_two_messages_of_a_session_are_compared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each request compares all of them, on the loop that streams: long ones took 60 ms of every request."""
    compared = 0

    def counting(*given: object, **named: object) -> SequenceMatcher[str]:
        nonlocal compared
        compared += 1
        return SequenceMatcher(*given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(frames, "SequenceMatcher", counting)
    memory, history, counts = FrameMemory(), list[str](), list[int]()
    memory.let_go()
    for number in range(12):
        text = HEAD.format(number, "\n".join(f"{chr(97 + number)} {chr(97 + line)}" for line in range(20)))
        compared = 0
        memory.lacks_frame("s", text)
        memory.words("key", "s", text, history)
        counts.append(compared)
        memory.enter("s", text)
        history.append(text)
    memory.let_go()
    assert max(counts) <= 2 * frames.MOST_SENT
