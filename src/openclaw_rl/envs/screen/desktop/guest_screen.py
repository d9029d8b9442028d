"""A guest of OSWorld's protocol as a screen: its tree with numbers to act on, and actions as pyautogui does them."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from openclaw_rl.core.message import Json, Tool
from openclaw_rl.envs.screen import tools as kit
from openclaw_rl.envs.screen.desktop.client import GuestClient
from openclaw_rl.envs.screen.screen import ActionError, BrowserError, Judgement, ScreenNode, View
from openclaw_rl.envs.task import Action

# Elements for actions, by AT-SPI's role, with our name for each.
ROLES: Mapping[str, str] = {
    **{role: "button" for role in ("push-button", "button", "toggle-button", "page-tab-button")},
    **{role: "textbox" for role in ("text", "entry", "password-text", "paragraph", "document-text", "terminal")},
    **{"check-box": "checkbox", "radio-button": "radio", "combo-box": "combobox", "spin-button": "spinbutton"},
    **{"menu": "menu", "menu-item": "menuitem", "check-menu-item": "menuitem", "radio-menu-item": "menuitem"},
    **{"page-tab": "tab", "list-item": "option", "table-cell": "cell", "link": "link", "slider": "slider"},
    **{"icon": "icon", "tree-item": "treeitem"},
}
MOST_NODES = 400
MOST_XML = 20_000_000
NUMBERS = re.compile(r"-?\d+")


@dataclass(frozen=True, slots=True)
class _Spot:
    x: int
    y: int


class GuestScreen:
    """Implements Screen. `judging` gives the verdict from the guest's files and commands."""

    instruction = ""

    def __init__(
        self,
        guest: GuestClient,
        judging: Callable[[GuestClient], Awaitable[Judgement]],
        closing: Callable[[], Awaitable[None]],
    ) -> None:
        self.guest = guest
        self._judging = judging
        self._closing = closing
        self._spots: list[_Spot] = []
        self._is_closed = False

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools of a browser; a click opens a desktop's combobox."""
        return (*(tool for tool in kit.BY_ELEMENT if tool.name != "select"), *kit.BY_PIXEL, kit.SUBMIT)

    @property
    def counts(self) -> Mapping[str, Json]:
        """Empty: nothing is counted on a desktop."""
        return {}

    async def look(self) -> View:
        """The view according to the accessibility tree."""
        nodes, spots = nodes_of(await self.guest.tree())
        self._spots = spots
        return View(nodes, is_cut=len(nodes) >= MOST_NODES)

    async def picture(self) -> bytes:
        """The screen as a PNG."""
        return await self.guest.screenshot()

    async def judge(self) -> Judgement:
        """The verdict of the task's evaluator."""
        return await self._judging(self.guest)

    async def act(self, action: Action) -> None:
        """Does the action with the guest's pyautogui, and gives its programs a moment."""
        await self.guest.python(f"{self._code(action)}; time.sleep(0.3)")

    def _code(self, action: Action) -> str:
        if action.tool == "click":
            return f"pyautogui.click({self._at(action, 'ref')})"
        if action.tool == "type":
            text = kit.words(action, "text")
            put = f"pyautogui.write({text!r})" if text else "pyautogui.press('delete')"
            return f"pyautogui.click({self._at(action, 'ref')}); pyautogui.hotkey('ctrl', 'a'); {put}"
        if action.tool == "type_text":
            return f"pyautogui.write({kit.words(action, 'text')!r})"
        if action.tool == "press":
            *held, last = _keys(kit.key_of(action))
            return f"pyautogui.hotkey({', '.join(repr(key) for key in (*held, last))})"
        if action.tool == "click_at":
            return f"pyautogui.click({kit.number(action, 'x'):.0f}, {kit.number(action, 'y'):.0f})"
        if action.tool == "drag":
            start, end = self._at(action, "ref"), self._at(action, "to")
            return f"pyautogui.moveTo({start}); pyautogui.dragTo({end}, button='left')"
        if action.tool == "drag_at":
            x, y, to_x, to_y = (round(kit.number(action, name)) for name in ("x", "y", "to_x", "to_y"))
            return f"pyautogui.moveTo({x}, {y}); pyautogui.dragTo({to_x}, {to_y}, button='left')"
        if action.tool == "scroll":
            across, down = kit.direction_of(action)
            at = f"pyautogui.moveTo({self._at(action, 'ref')}); " if action.arguments.get("ref") is not None else ""
            return f"{at}pyautogui.hscroll({across * 5})" if across else f"{at}pyautogui.scroll({-down * 5})"
        raise ActionError(f"there is no tool {action.tool[:60]!r}")

    def _at(self, action: Action, name: str) -> str:
        ref = kit.whole(action, name)
        if not 1 <= ref <= len(self._spots):
            raise ActionError(f"there is no [{ref}] in what you see")
        return f"{self._spots[ref - 1].x}, {self._spots[ref - 1].y}"

    async def aclose(self) -> None:
        """Ends the episode."""
        if not self._is_closed:
            self._is_closed = True
            await self.guest.aclose()
            await self._closing()


def nodes_of(xml: str) -> tuple[tuple[ScreenNode, ...], list[_Spot]]:
    """The visible part of a tree in OSWorld's form, and the centre of each element for actions."""
    if len(xml) > MOST_XML or "<!DOCTYPE" in xml:
        raise BrowserError("the guest's accessibility tree cannot be read: it is too large or has a DOCTYPE")
    try:
        top = ET.fromstring(xml)
    except ET.ParseError as problem:
        raise BrowserError(f"the guest's accessibility tree is broken: {problem}") from problem
    nodes: list[ScreenNode] = []
    spots: list[_Spot] = []
    for element in top.iter():
        if len(nodes) >= MOST_NODES:
            break
        facts = {key.rpartition("}")[2]: value for key, value in element.attrib.items()}
        name = " ".join((facts.get("name") or "").split())
        place = NUMBERS.findall(facts.get("screencoord", "")) + NUMBERS.findall(facts.get("size", ""))
        if element.tag in ("frame", "dialog", "window", "alert") and name:
            nodes.append(ScreenNode("heading", name))
        if facts.get("showing") != "true" or facts.get("visible") != "true" or len(place) != 4:
            continue
        x, y, width, height = map(int, place)
        if width <= 0 or height <= 0 or x + width <= 0 or y + height <= 0:
            continue
        role = ROLES.get(element.tag)
        if role is not None:
            spots.append(_Spot(x + width // 2, y + height // 2))
            value = (element.text or "") if role == "textbox" else ""
            nodes.append(ScreenNode(role, name, len(spots), value, _facts(facts, role)))
        elif element.tag in ("label", "static", "heading") and (name or element.text):
            nodes.append(ScreenNode("text", name or " ".join((element.text or "").split())))
    return tuple(nodes), spots


def _facts(facts: Mapping[str, str], role: str) -> tuple[str, ...]:
    found = ["on" if facts.get("checked") == "true" else "off"] if role in ("checkbox", "radio") else []
    found += ["selected"] if facts.get("selected") == "true" and role != "textbox" else []
    found += ["disabled"] if "true" not in (facts.get("enabled"), facts.get("sensitive")) else []
    return tuple(found)


def _keys(key: str) -> list[str]:
    names = {"Control": "ctrl", "Shift": "shift", "Alt": "alt", "ArrowUp": "up", "ArrowDown": "down"}
    names |= {"ArrowLeft": "left", "ArrowRight": "right", "Escape": "esc"}
    parts = key.split("+") if key != "+" else ["+"]
    return [names.get(part, part if len(part) == 1 else part.lower()) for part in parts]
