"""Numbers as people and models write them, compared exactly."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import pytest

from openclaw_rl.envs.answers.exact import Quantity, final_answer, final_quantity, is_same_text, quantity_of

GSM8K = Path(__file__).parents[4] / "shared" / "data" / "gsm8k"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1,200", Fraction(1200)),
        ("007", Fraction(7)),
        ("-0.50", Fraction(-1, 2)),
        ("−3", Fraction(-3)),
        ("+3", Fraction(3)),
        ("$3.50", Fraction(7, 2)),
        ("-$5", Fraction(-5)),
        (r"\$12,000.00", Fraction(12000)),
        ("$42$", Fraction(42)),
        ("$-42$", Fraction(-42)),
        (r"\(42\)", Fraction(42)),
        ("5.", Fraction(5)),
        (".5", Fraction(1, 2)),
        ("7 / 8", Fraction(7, 8)),
        ("2 1/2", Fraction(5, 2)),
        ("-2 1/2", Fraction(-5, 2)),
        (r"\frac{3}{4}", Fraction(3, 4)),
        (r"-\dfrac{3}{4}", Fraction(-3, 4)),
        (r"\frac{-3}{4}", Fraction(-3, 4)),
        (r"\frac12", Fraction(1, 2)),
        (r"2\tfrac{1}{2}", Fraction(5, 2)),
        ("1{,}000", Fraction(1000)),
        (r"10\,000", None),  # "10 000": two numbers to us
        ("1.5e3", Fraction(1500)),
        (r"3 \times 10^{5}", Fraction(300000)),
        ("2e-2", Fraction(1, 50)),
        ("x = 4", Fraction(4)),
        (r"540 \text{ meters}", Fraction(540)),
        (r"90^\circ", Fraction(90)),
        ("٤٢", Fraction(42)),  # digits of another script
        ("４２", Fraction(42)),
        ("1" + "0" * 3000, Fraction(10**3000)),
        ("1e999999999", None),
        ("1/0", None),
        (r"\frac{1}{0}", None),
        ("1,2345", None),
        ("5²", None),
        ("4 apples", None),
        ("1 2", None),
        ("", None),
        ("-", None),
        ("9" * 50_000, None),
    ],
)
def test_a_text_that_is_a_number_has_its_value(text: str, value: Fraction | None) -> None:
    found = quantity_of(text)
    assert (None if found is None else found.value) == value


def test_a_percentage_is_its_number_or_its_hundredth_when_only_one_of_the_two_is_written_so() -> None:
    half, fifty, written = Quantity(Fraction(1, 2)), Quantity(Fraction(50)), quantity_of(r"50\%")
    assert written == Quantity(Fraction(50), is_percent=True)
    assert written.is_same(half) and written.is_same(fifty) and half.is_same(written) and fifty.is_same(written)
    assert not half.is_same(fifty)
    assert not written.is_same(Quantity(Fraction(5000))) and not written.is_same(Quantity(Fraction(1, 200)))
    assert not written.is_same(Quantity(Fraction(1, 2), is_percent=True))


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"so \boxed{5}", "5"),
        (r"\boxed{\frac{1}{2}} and more", r"\frac{1}{2}"),
        (r"\boxed{1} no, \boxed{2}", "2"),
        (r"\boxed{1} and then #### 3", "3"),
        (r"#### 3 no \boxed{1}", "1"),
        (r"The answer is \boxed{7}.", "7"),
        ("Answer: 8 m", "8 m"),
        (r"\boxed{not closed", None),
        ("none", None),
        ("####", None),
    ],
)
def test_the_answer_that_a_text_marks_is_the_last_one(text: str, answer: str | None) -> None:
    assert final_answer(text) == answer


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("so 3 and then #### 1,200", Fraction(1200)),
        ("The answer is $3.50, not 4.", Fraction(7, 2)),
        (r"\boxed{7/8} of 9", Fraction(7, 8)),
        ("it takes 5 days and 12 hours", Fraction(12)),
        ("it takes 3-4 days", Fraction(4)),
        ("10-3=7", Fraction(7)),
        ("-0.50", Fraction(-1, 2)),
        ("none at all", None),
        ("1/0", None),
        ("x" * 200_000 + " 5", Fraction(5)),
    ],
)
def test_prose_comes_to_its_last_number(text: str, number: Fraction | None) -> None:
    found = final_quantity(text)
    assert (None if found is None else found.value) == number


def test_texts_made_to_be_slow_are_read_at_once() -> None:
    """Most of them take minutes where a pattern or a loop goes wrong, and the test then ends at its limit."""
    for text in (
        r"\boxed{" * 14_000,
        r"\text{" * 16_000,
        "1," * 50_000,
        "9" * 100_000,
        "1e999 " * 16_000,
        "answer is " * 10_000,
        "$" * 100_000,
        "1/" * 50_000,
        " " * 100_000 + "x",
    ):
        final_quantity(text)


def test_texts_are_compared_without_their_decoration() -> None:
    assert is_same_text(r"$\left( 1, 2 \right)$", "(1,2)")
    assert is_same_text(r"\dfrac{\pi}{2}", r"\frac{\pi}{2}.")
    assert not is_same_text("(1,2)", "(2,1)") and not is_same_text("", "")


@pytest.mark.skipif(not GSM8K.is_dir(), reason="the shared data is not here")
@pytest.mark.parametrize("name", ["test", "train"])
def test_every_published_solution_comes_to_its_answer(name: str) -> None:
    rows = [json.loads(line) for line in (GSM8K / f"{name}.jsonl").read_text().splitlines()]
    assert rows and all(final_quantity(row["solution"]).value == quantity_of(row["answer"]).value for row in rows)  # type: ignore[union-attr]
