"""Looks at a desktop from inside of it, in the system's Python: its accessibility tree as XML, and a picture.

Reads one word a line from a pipe (`tree` or `picture`), writes what it saw to a file, and answers with one line.
"""

from __future__ import annotations

import os
import xml.etree.ElementTree as ET

import gi

gi.require_version("Atspi", "2.0")
gi.require_version("Gdk", "3.0")
from gi.repository import Atspi, Gdk, GLib  # noqa: E402

RUN = "/tmp/run"
MOST_NODES = 3_000
MOST_TEXT = 1_000
SPACE = "https://accessibility.ubuntu.example.org/ns/"
STATES = (
    "ENABLED",
    "FOCUSED",
    "SHOWING",
    "VISIBLE",
    "CHECKED",
    "SELECTED",
    "EXPANDED",
    "EDITABLE",
    "SENSITIVE",
    "ACTIVE",
)


def element_of(node: Atspi.Accessible) -> ET.Element:
    """One element on the screen, without its children."""
    role = (node.get_role_name() or "unknown").replace(" ", "-") or "unknown"
    found = ET.Element(role, {"name": (node.get_name() or "")[:MOST_TEXT]})
    states = node.get_state_set()
    for name in STATES:
        if states.contains(getattr(Atspi.StateType, name)):
            found.set(f"{{{SPACE}state}}{name.lower()}", "true")
    box = node.get_component_iface()
    if box is not None:
        place = box.get_extents(Atspi.CoordType.SCREEN)
        found.set(f"{{{SPACE}component}}screencoord", f"({place.x}, {place.y})")
        found.set(f"{{{SPACE}component}}size", f"({place.width}, {place.height})")
    text = node.get_text_iface()
    if text is not None:
        found.text = text.get_text(0, min(text.get_character_count(), MOST_TEXT))
    return found


def is_shown(node: Atspi.Accessible) -> bool:
    """Whether something can be seen; a program is not a thing on the screen, but its windows are."""
    return bool(node.get_role() == Atspi.Role.APPLICATION or node.get_state_set().contains(Atspi.StateType.SHOWING))


def tree() -> bytes:
    """All visible elements, window by window, up to a maximum."""
    top = ET.Element("desktop-frame", {"name": "main"})
    waiting, count = [(Atspi.get_desktop(0), top)], 0
    while waiting and count < MOST_NODES:
        node, parent = waiting.pop(0)
        for at in range(min(node.get_child_count(), MOST_NODES)):
            try:
                child = node.get_child_at_index(at)
                if child is None or (
                    node.get_role() != Atspi.Role.DESKTOP_FRAME
                    and not child.get_state_set().contains(Atspi.StateType.SHOWING)
                    and child.get_role() != Atspi.Role.APPLICATION
                ):
                    continue
                child.clear_cache()
                found = element_of(child)
            except GLib.Error:
                continue  # it disappeared while it was read
            parent.append(found)
            waiting.append((child, found))
            count += 1
            if count >= MOST_NODES:
                break
    data: bytes = ET.tostring(top)
    return data


def picture() -> bytes:
    """The screen as a PNG."""
    root = Gdk.get_default_root_window()
    image = Gdk.pixbuf_get_from_window(root, 0, 0, root.get_width(), root.get_height())
    is_saved, data = image.save_to_bufferv("png", ["compression"], ["1"])
    if not is_saved:
        raise OSError("the picture cannot be written")
    return bytes(data)


def main() -> None:
    """Answers until the desktop ends."""
    Atspi.init()
    Gdk.init([])
    with open(f"{RUN}/answer", "w", encoding="utf-8") as answer:
        answer.write("ready\n")
    while True:
        with open(f"{RUN}/ask", encoding="utf-8") as ask:
            lines = ask.read().split()
        for line in lines:
            try:
                data = {"tree": tree, "picture": picture}[line]()
                with open(f"{RUN}/seen.new", "wb") as file:
                    file.write(data)
                os.replace(f"{RUN}/seen.new", f"{RUN}/seen")
                said = "ok"
            except (GLib.Error, OSError, KeyError, AttributeError) as problem:
                said = f"failed {problem!r}".replace("\n", " ")
            with open(f"{RUN}/answer", "w", encoding="utf-8") as answer:
                answer.write(said + "\n")


main()
