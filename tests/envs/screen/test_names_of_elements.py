"""Elements called by their names: one thing alone must have the name, or the agent is told why it was refused."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from openclaw_rl.core.message import Json, Tool
from openclaw_rl.envs.box.sandbox import Boxes
from openclaw_rl.envs.open import EnvOptions
from openclaw_rl.envs.screen.env import ScreenEnv
from openclaw_rl.envs.screen.screen import ActionError, Judgement, ScreenNode, View
from openclaw_rl.envs.screen.tools import BY_ELEMENT, SUBMIT, by_number, whole
from openclaw_rl.envs.task import Action, Failure, Task

SEEN = (
    ScreenNode("text", "Total"),
    ScreenNode("button", "Ship", 1),
    ScreenNode("button", "Cancel", 2),
    ScreenNode("textbox", "Note", 3),
    ScreenNode("button", "Cancel", 4),
    ScreenNode("button", "7", 5),
)


class ListScreen:
    """A screen that shows one more button at each look, so that an action must go by the view that was shown."""

    def __init__(self) -> None:
        self.acted: list[int] = []
        self.looks = 0

    @property
    def tools(self) -> tuple[Tool, ...]:
        return (*BY_ELEMENT, SUBMIT)

    @property
    def instruction(self) -> str:
        return ""

    @property
    def counts(self) -> Mapping[str, Json]:
        return {}

    async def look(self) -> View:
        self.looks += 1
        return View((*(ScreenNode("button", f"old {number}", number) for number in range(1, self.looks)),
                     ScreenNode("button", "Go", self.looks)))  # fmt: skip

    async def picture(self) -> bytes:
        return b""

    async def act(self, action: Action) -> None:
        self.acted.append(whole(action, "ref"))

    async def judge(self) -> Judgement:
        return Judgement(0.0)

    async def aclose(self) -> None:
        return None


class ListSource:
    """Opens it."""

    def __init__(self, screen: ListScreen) -> None:
        self.screen = screen

    async def open(self, task: Task, boxes: Boxes | None) -> ListScreen:
        return self.screen


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"ref": "Ship"}, {"ref": 1}),
        ({"ref": "Note", "text": "Ship"}, {"ref": 3, "text": "Ship"}),  # only what names an element is looked up
        ({"ref": "Ship", "to": "Note"}, {"ref": 1, "to": 3}),
        ({"ref": 9}, {"ref": 9}),
        ({"ref": "7"}, {"ref": "7"}),  # a number, even where something has it for a name
        ({"ref": "[2]"}, {"ref": "[2]"}),
        ({}, {}),
    ],
)
def test_a_name_stands_for_the_number_of_the_one_thing_that_has_it(
    given: dict[str, Json], expected: dict[str, Json]
) -> None:
    assert by_number(Action("click", given), SEEN) == Action("click", expected)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Cancel", "2 things are called 'Cancel'"),
        ("Send", "nothing that can be acted on is called 'Send'"),
        ("Total", "nothing that can be acted on is called 'Total'"),  # a text
        ("", "nothing that can be acted on is called ''"),
    ],
)
def test_a_name_that_is_nobodys_or_of_several_is_refused_with_the_reason(name: str, said: str) -> None:
    with pytest.raises(ActionError, match=said):
        by_number(Action("click", {"ref": name}), SEEN)


async def test_names_are_looked_up_in_what_was_shown_last() -> None:
    screen = ListScreen()
    env = ScreenEnv(ListSource(screen), EnvOptions())
    await env.reset(Task("list", "Go."))
    await env.step([Action("click", {"ref": "Go"})])
    await env.step([Action("click", {"ref": "Go"})])
    refused = await env.step([Action("click", {"ref": "Gone"})])
    assert screen.acted == [1, 2]
    assert refused.info.failure is Failure.AGENT and refused.observation.text.startswith("[not done: nothing that can")
