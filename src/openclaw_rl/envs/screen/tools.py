"""The actions an agent has on a screen, by element and by pixel, and the checks of their arguments."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from openclaw_rl.core.message import Json, Tool
from openclaw_rl.envs.screen.screen import ActionError, ScreenNode
from openclaw_rl.envs.task import Action

MOST_TEXT = 2_000
# The keys that `press` takes, besides single characters: none of them opens the browser's own menus.
KEYS = (
    *("Enter", "Tab", "Escape", "Backspace", "Delete", "Space", "Home", "End", "PageUp", "PageDown"),
    *("ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight"),
)
MODIFIERS = ("Control", "Shift", "Alt")
DIRECTIONS = {"up": (0, -1), "down": (0, 1), "left": (-1, 0), "right": (1, 0)}

_REF: dict[str, Json] = {
    "type": ["integer", "string"],
    "description": "The number in brackets, or the name in quotes if nothing else is called so.",
}
_TEXT: dict[str, Json] = {"type": "string"}
_NUMBER: dict[str, Json] = {"type": "number"}


def _tool(name: str, description: str, properties: dict[str, Json], *, optional: tuple[str, ...] = ()) -> Tool:
    required: list[Json] = [key for key in properties if key not in optional]
    return Tool(name, description, {"type": "object", "properties": properties, "required": required})


SUBMIT = _tool("submit", "Say that the task is done. It is judged as it is then.", {})
BY_ELEMENT = (
    _tool("click", "Click an element.", {"ref": _REF}),
    _tool("type", "Put a text into a field in place of what it holds.", {"ref": _REF, "text": _TEXT}),
    _tool("select", "Choose an option of a select, by what it is called.", {"ref": _REF, "value": _TEXT}),
    _tool("press", "Press a key: Enter, Tab, Escape, ArrowDown, a letter, Control+a.", {"key": _TEXT}),
    _tool(
        "scroll",
        "Scroll the page, or the list that an element is in.",
        {"direction": {"type": "string", "enum": list(DIRECTIONS)}, "ref": _REF},
        optional=("ref",),
    ),
    _tool("drag", "Drag an element onto another.", {"ref": _REF, "to": _REF}),
)
BY_PIXEL = (
    _tool("click_at", "Click a point of the screen.", {"x": _NUMBER, "y": _NUMBER}),
    _tool("type_text", "Type a text where the cursor is.", {"text": _TEXT}),
    _tool("drag_at", "Drag from one point to another.", {"x": _NUMBER, "y": _NUMBER, "to_x": _NUMBER, "to_y": _NUMBER}),
)
SWITCH = _tool("window", "Go to another open window, by its number.", {"number": {"type": "integer"}})


def by_number(action: Action, nodes: Sequence[ScreenNode]) -> Action:
    """The action with numbers in place of elements' names.

    ActionError if no element for actions has the name, or several do.
    """
    found = dict(action.arguments)
    for argument in ("ref", "to"):
        name = found.get(argument)
        if not isinstance(name, str) or name.strip().strip("[]").isdecimal():
            continue
        refs = [node.ref for node in nodes if node.ref and node.name == name]
        if len(refs) != 1:
            said = f"{len(refs)} things are" if refs else "nothing that can be acted on is"
            raise ActionError(f"{said} called {name[:60]!r} in what you see; give a number in brackets")
        found[argument] = refs[0]
    return replace(action, arguments=found)


def whole(action: Action, name: str) -> int:
    """An argument that is a whole number; small models sometimes write it as text."""
    value = action.arguments.get(name)
    if isinstance(value, str) and value.strip().strip("[]").isdecimal():
        value = int(value.strip().strip("[]"))
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ActionError(f"{action.tool} needs `{name}`, a number")
    return value


def number(action: Action, name: str) -> float:
    """An argument that is a number."""
    value = action.arguments.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ActionError(f"{action.tool} needs `{name}`, a number")
    return float(value)


def words(action: Action, name: str) -> str:
    """An argument that is a text."""
    value = action.arguments.get(name)
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        raise ActionError(f"{action.tool} needs `{name}`, a text")
    if len(value) > MOST_TEXT:
        raise ActionError(f"`{name}` has {len(value)} characters; at most {MOST_TEXT} are typed at once")
    return value


def key_of(action: Action) -> str:
    """A key or a combination as Playwright writes it; ActionError for others."""
    text = words(action, "key").strip()
    *held, last = text.split("+") if text not in ("+", "") else [text]
    last = {key.lower(): key for key in KEYS}.get(last.lower(), last)
    held = [{"ctrl": "Control"}.get(one.lower(), one.capitalize()) for one in held]
    if (last not in KEYS and len(last) != 1) or any(one not in MODIFIERS for one in held):
        raise ActionError(f"there is no key {text[:40]!r}; there are: {', '.join(KEYS)}, and single characters")
    return "+".join([*held, last])


def direction_of(action: Action) -> tuple[int, int]:
    """Where to scroll to."""
    text = words(action, "direction").strip().lower()
    if text not in DIRECTIONS:
        raise ActionError(f"scroll needs `direction`: one of {', '.join(DIRECTIONS)}")
    return DIRECTIONS[text]
