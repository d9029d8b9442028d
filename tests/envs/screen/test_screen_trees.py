"""What is seen as text: short, and bounded whatever there is."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from openclaw_rl.envs.screen.screen import ScreenNode, View
from openclaw_rl.envs.screen.tree import tree_text


def test_a_view_is_a_line_for_each_thing_and_for_each_row() -> None:
    nodes = (
        ScreenNode("heading", "Orders"),
        ScreenNode("text", "Two are"),
        ScreenNode("text", "open."),
        ScreenNode("text", "Ann", row=1),
        ScreenNode("text", "$12", row=1),
        ScreenNode("button", "Ship", 1, row=1),
        ScreenNode("text", "Ben", row=2),
        ScreenNode("button", "Ship", 2, row=2, facts=("disabled",)),
        ScreenNode("textbox", "Note", 3),
        ScreenNode("combobox", "Kind", 4, value="Toys", options=("Toys", "Home")),
        ScreenNode("checkbox", "Gift", 5, facts=("on",)),
    )
    assert tree_text(View(nodes, title="Shop"), most_characters=1000) == "\n".join(
        [
            "page: Shop",
            "# Orders",
            "Two are open.",
            'Ann | $12 | [1] button "Ship"',
            'Ben | [2] button "Ship" disabled',
            '[3] textbox "Note" = ""',
            '[4] combobox "Kind" = "Toys" (Toys, Home)',
            '[5] checkbox "Gift" on',
        ]
    )


def test_notes_come_first_and_what_is_out_of_sight_is_said() -> None:
    view = View((ScreenNode("button", "Go", 1),), notes=("a dialog",), has_above=True, has_below=True)
    assert tree_text(view, most_characters=200).splitlines() == [
        "note: a dialog",
        "(more above: scroll up)",
        '[1] button "Go"',
        "(more below: scroll down)",
    ]


def test_lines_that_do_not_fit_are_left_out_whole_and_it_is_said() -> None:
    view = View(tuple(ScreenNode("button", f"Button {number}", number) for number in range(1, 100)))
    shown = tree_text(view, most_characters=90).splitlines()
    assert shown == ['[1] button "Button 1"', '[2] button "Button 2"', '[3] button "Button 3"', "(more is not shown)"]


@settings(deadline=None)
@given(
    st.lists(
        st.builds(ScreenNode, st.sampled_from(["text", "button", "heading"]), st.text(max_size=300), st.integers(0, 3))
    ),
    st.integers(30, 400),
)
def test_no_view_is_longer_than_its_budget(nodes: list[ScreenNode], most: int) -> None:
    assert len(tree_text(View(tuple(nodes), title="x" * 100, is_cut=True), most_characters=most)) <= most
