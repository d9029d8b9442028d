"""The results that replies state, in several languages and forms."""

from __future__ import annotations

import pytest

from openclaw_rl.teach.results import last_number, loses_number, results, shared, states

OTHERS = [
    ["**Step 1:** 2 + 5 = 7. **Step 2:** 7 - 4 = 3. The answer is **3**."],
    ["**Step 1:** 8 + 9 = 17. **Step 2:** 17 - 5 = 12. The answer is **12**."],
    ["**Step 1:** 4 + 6 = 10. **Step 2:** 10 - 9 = 1. The answer is **1**."],
]
ASKED = "Mia has 6 cards, buys 3 more and gives 2 away. How many has she?"


def test_the_last_word_that_depends_on_the_numbers_is_the_result() -> None:
    said = "**Step 1:** 6 + 3 = 9. **Step 2:** 9 - 2 = 7. The answer is **7**."
    assert shared(results([said, said.replace("Step", "Part")], ASKED, OTHERS)) == "7"


def test_replies_that_end_in_different_results_have_none() -> None:
    found = results(["6 + 3 = 9, so 7.", "6 + 3 = 9, so 9."], ASKED, OTHERS)
    assert len(found) == 2 and shared(found) is None


def test_words_of_the_request_and_of_other_replies_are_no_result() -> None:
    found = results(["Mia has cards. The answer is Step 2."], ASKED, OTHERS)
    assert found == {None} and shared(found) is None


def test_a_number_that_other_replies_mention_on_the_way_is_a_result_all_the_same() -> None:
    asked = "Mia has 6 cards, buys 5 more and gives 1 away. How many has she?"
    on_the_way = [["First 10 are taken. " + "Then we go on with the next one slowly. " * 2 + own[0]] for own in OTHERS]
    said = "**Step 1:** 6 + 5 = 11. **Step 2:** 11 - 1 = 10. The answer is **10**."
    assert shared(results([said], asked, on_the_way)) == "10"


def test_a_result_may_be_equal_to_a_number_of_the_request() -> None:
    said = "**Step 1:** 6 + 3 = 9. **Step 2:** 9 - 3 = 6. The answer is **6**."
    assert shared(results([said], ASKED.replace("2", "3"), OTHERS)) == "6"


@pytest.mark.parametrize(
    ("replies", "asked", "elsewhere", "found"),
    [
        (
            ["Das macht 41 Euro.", "Zusammen 41 Euro."],
            "Was kosten 3 Hefte und 2 Stifte?",
            [["Das macht 17 Euro."]],
            "41",
        ),
        (["It falls on a Tuesday."], "Which day is 14 May?", [["It falls on a Friday."]], "tuesday"),
        (["\u7b54\u6848\u662f\u4e5d\u3002"], "3 + 6 ?", [["\u7b54\u6848\u662f\u4e8c\u3002"]], "\u4e5d"),
    ],
)
def test_neither_the_language_nor_digits_are_assumed(
    replies: list[str], asked: str, elsewhere: list[list[str]], found: str
) -> None:
    assert shared(results(replies, asked, elsewhere)) == found


def test_a_reply_that_ends_a_step_early_does_not_state_it() -> None:
    assert not states("We add the 3 cards, which is 6 + 3 = 9. So Mia has 9 cards now.", "7")
    assert states("7.", "7") and states("anything", None)


def test_a_small_number_is_a_result_though_it_is_in_many_other_replies_by_chance() -> None:
    others = [["You go up 3, so 2 + 3 = 5."], ["Go down 3: 9 - 3 = 6."], ["It is 1 + 1 = 2."], ["We get 4 + 4 = 8."]]
    assert shared(results(["You go down 4, so 7 - 4 = 3."], "Down 4 from 7?", others)) == "3"


@pytest.mark.parametrize(
    ("reply", "request_", "number"),
    [
        ("5 + 6 = 11. So Hugo is on floor 11.", "From floor 5 up 6?", "11"),
        ("6 - 3 = 3. So it stops at 3.", "Down 3 from 6?", None),  # cannot be told from a number of the request
        ("1. Buy milk.\n2. Go home.", "What should I do?", None),  # these count the items
        ("So there are 11." + " This is how it is done, as you can see." * 2, "How many?", None),  # not in the end
        ("Das macht 12,50 Euro.", "Was kosten 3 Hefte?", "1250"),
        ("3.5 kilos", "How heavy are both?", "35"),  # no item
        ("No number.", "How many?", None),
    ],
)
def test_the_number_with_which_a_reply_ends(reply: str, request_: str, number: str | None) -> None:
    assert last_number(reply, request_) == number
    assert loses_number("Compare the 5 kilos with 6.", reply, request_) is (number is not None)
    assert not loses_number(f"## Result\n\n**{number}**", reply, request_)


def test_a_number_may_be_written_in_another_way() -> None:
    assert not loses_number("That is 1250.5 euros.", "Das macht 1.250,5 Euro.", "Was kosten 3 Hefte?")
