"""Plays a scripted solution on a screen: each move finds its element in the view, as an agent must."""

from __future__ import annotations

from collections.abc import Iterable

from openclaw_rl.core.message import Json
from openclaw_rl.envs.screen.families.family import PageAction
from openclaw_rl.envs.screen.screen import ActionError, Screen, ScreenNode, View
from openclaw_rl.envs.screen.tree import node_text
from openclaw_rl.envs.task import Action
from openclaw_rl.errors import TaskError

MOST_SCROLLS = 8


async def solved(screen: Screen, moves: Iterable[PageAction]) -> list[Action]:
    """Plays the moves and returns them as actions. TaskError if one cannot be done."""
    done: list[Action] = []

    async def act(action: Action) -> None:
        try:
            await screen.act(action)
        except ActionError as problem:
            raise TaskError(
                f"the solution's {action.tool} of {dict(action.arguments)} is refused: {problem}"
            ) from problem
        done.append(action)

    for move in moves:
        view = await screen.look()
        for direction in ("down",) * MOST_SCROLLS + ("up",) * MOST_SCROLLS:
            if move.tool in ("press", "window") or find(view, move.name, role=move.role, row=move.row):
                break
            await act(Action("scroll", {"direction": direction}))
            view = await screen.look()
        await act(action_of(view, move))
    return done


def action_of(view: View, move: PageAction) -> Action:
    """The action for a move in the present view. TaskError if its element is missing."""
    if move.tool == "press":
        return Action("press", {"key": move.value})
    if move.tool == "window":
        return Action("window", {"number": int(move.value)})
    node = _found(view, move.name, role=move.role, row=move.row)
    arguments: dict[str, Json] = {"ref": node.ref}
    if move.tool == "type":
        arguments["text"] = move.value
    elif move.tool == "select":
        arguments["value"] = move.value
    elif move.tool == "drag":
        arguments["to"] = _found(view, move.onto).ref
    return Action(move.tool, arguments)


def find(view: View, name: str, *, role: str = "", row: str = "") -> ScreenNode | None:
    """The first element for actions with this name, in a row that contains the text `row`."""
    for node in view.nodes:
        if node.ref and node.name == name and (not role or node.role == role):
            beside = " | ".join(node_text(other) for other in view.nodes if other.row == node.row)
            if not row or (node.row and row in beside):
                return node
    return None


def _found(view: View, name: str, *, role: str = "", row: str = "") -> ScreenNode:
    node = find(view, name, role=role, row=row)
    if node is None:
        seen = "; ".join(node_text(one) for one in view.nodes)[:300]
        raise TaskError(f"the solution needs {role} {name!r} {row!r}, which is not among: {seen}")
    return node
