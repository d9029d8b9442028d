"""The part of pyautogui that agents and OSWorld's tasks use, done by xdotool.

So one client drives our desktops and VMs alike. Names and arguments are pyautogui's.
"""

from __future__ import annotations

import subprocess
import time

FAILSAFE = False
PAUSE = 0.0
KEYS = {
    "enter": "Return",
    "return": "Return",
    "\n": "Return",
    "esc": "Escape",
    "escape": "Escape",
    "tab": "Tab",
    "\t": "Tab",
    "backspace": "BackSpace",
    "delete": "Delete",
    "del": "Delete",
    "space": "space",
    " ": "space",
    "home": "Home",
    "end": "End",
    "pageup": "Prior",
    "pgup": "Prior",
    "pagedown": "Next",
    "pgdn": "Next",
    "up": "Up",
    "down": "Down",
    "left": "Left",
    "right": "Right",
    "ctrl": "Control_L",
    "ctrlleft": "Control_L",
    "control": "Control_L",
    "shift": "Shift_L",
    "shiftleft": "Shift_L",
    "alt": "Alt_L",
    "altleft": "Alt_L",
    "win": "Super_L",
    "winleft": "Super_L",
    "super": "Super_L",
    "insert": "Insert",
    "capslock": "Caps_Lock",
    "+": "plus",
    "-": "minus",
    **{f"f{number}": f"F{number}" for number in range(1, 13)},
}
Point = tuple[float, float]
Keys = str | list[str] | tuple[str, ...]
BUTTONS = {"left": "1", "middle": "2", "right": "3", "primary": "1", "secondary": "3"}


def _run(*words: object) -> str:
    done = subprocess.run(["xdotool", *map(str, words)], capture_output=True, text=True, check=True)
    time.sleep(PAUSE)
    return done.stdout


def _key(name: object) -> str:
    return KEYS.get(str(name).lower(), str(name))


def size() -> tuple[int, int]:
    """Width and height of the screen."""
    width, height = _run("getdisplaygeometry").split()[:2]
    return int(width), int(height)


def position() -> tuple[int, int]:
    """Where the pointer is."""
    facts = dict(line.split("=") for line in _run("getmouselocation", "--shell").split())
    return int(facts["X"]), int(facts["Y"])


def moveTo(
    x: float | Point | None = None, y: float | None = None, duration: float = 0.0, *_: object, **__: object
) -> None:
    """Moves the pointer."""
    if isinstance(x, tuple | list):
        x, y = x
    here = position() if x is None or y is None else (x, y)
    _run("mousemove", round(here[0] if x is None else x), round(here[1] if y is None else y))


def moveRel(x: float = 0, y: float = 0, *_: object, **__: object) -> None:
    """Moves the pointer from where it is."""
    here = position()
    moveTo(here[0] + x, here[1] + y)


move = moveRel


def click(
    x: float | None = None,
    y: float | None = None,
    clicks: int = 1,
    interval: float = 0.0,
    button: str = "left",
    *_: object,
    **__: object,
) -> None:
    """Clicks, once or more often."""
    if x is not None:
        moveTo(x, y)
    for _number in range(clicks):
        _run("click", BUTTONS[button])
        time.sleep(interval)


def doubleClick(x: float | None = None, y: float | None = None, *_: object, **__: object) -> None:
    """Clicks twice."""
    click(x, y, clicks=2)


def tripleClick(x: float | None = None, y: float | None = None, *_: object, **__: object) -> None:
    """Clicks three times."""
    click(x, y, clicks=3)


def rightClick(x: float | None = None, y: float | None = None, *_: object, **__: object) -> None:
    """Clicks with the right button."""
    click(x, y, button="right")


def middleClick(x: float | None = None, y: float | None = None, *_: object, **__: object) -> None:
    """Clicks with the middle button."""
    click(x, y, button="middle")


def mouseDown(x: float | None = None, y: float | None = None, button: str = "left", *_: object, **__: object) -> None:
    """Presses a button of the mouse."""
    if x is not None:
        moveTo(x, y)
    _run("mousedown", BUTTONS[button])


def mouseUp(x: float | None = None, y: float | None = None, button: str = "left", *_: object, **__: object) -> None:
    """Lets it go."""
    if x is not None:
        moveTo(x, y)
    _run("mouseup", BUTTONS[button])


def dragTo(x: float, y: float, duration: float = 0.0, button: str = "left", *_: object, **__: object) -> None:
    """Drags from where the pointer is."""
    start = position()
    mouseDown(button=button)
    for step in range(1, 6):
        moveTo(start[0] + (x - start[0]) * step / 5, start[1] + (y - start[1]) * step / 5)
        time.sleep(0.02)
    mouseUp(button=button)


def dragRel(x: float = 0, y: float = 0, *_: object, **__: object) -> None:
    """Drags by a distance."""
    here = position()
    dragTo(here[0] + x, here[1] + y)


def scroll(clicks: float, x: float | None = None, y: float | None = None, *_: object, **__: object) -> None:
    """Scrolls up, or down if it is negative."""
    if x is not None:
        moveTo(x, y)
    for _number in range(min(abs(int(clicks)), 100)):
        _run("click", "4" if clicks > 0 else "5")


vscroll = scroll


def hscroll(clicks: float, x: float | None = None, y: float | None = None, *_: object, **__: object) -> None:
    """Scrolls to the right, or to the left if it is negative."""
    if x is not None:
        moveTo(x, y)
    for _number in range(min(abs(int(clicks)), 100)):
        _run("click", "7" if clicks > 0 else "6")


def write(text: Keys, interval: float = 0.0, *_: object, **__: object) -> None:
    """Types a text; ends of lines are keys, since some programs take no typed ones."""
    if not isinstance(text, str):
        press(text)
        return
    for number, line in enumerate(text.split("\n")):
        if number:
            press("enter")
        if line:
            _run("type", "--delay", "8", "--", line)


typewrite = write


def press(keys: Keys, presses: int = 1, interval: float = 0.0, *_: object, **__: object) -> None:
    """Presses keys one after the other."""
    for _number in range(presses):
        for key in [keys] if isinstance(keys, str) else keys:
            _run("key", _key(key))


def keyDown(key: str, *_: object, **__: object) -> None:
    """Holds a key."""
    _run("keydown", _key(key))


def keyUp(key: str, *_: object, **__: object) -> None:
    """Releases a key."""
    _run("keyup", _key(key))


def hotkey(*keys: Keys, **__: object) -> None:
    """Presses keys together."""
    names = [name for key in keys for name in ([key] if isinstance(key, str) else key)]
    _run("key", "+".join(map(_key, names)))


def sleep(seconds: float) -> None:
    """Waits."""
    time.sleep(seconds)
