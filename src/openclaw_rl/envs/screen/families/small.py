"""Small families: at most four steps, and pages of a few lines."""

from __future__ import annotations

from random import Random

from openclaw_rl.core.message import Json
from openclaw_rl.envs.screen.families import words
from openclaw_rl.envs.screen.families.family import PageAction, PageFamily, PagePlan

FIELDS = ("Name", "City", "Colour", "Food")
VALUES = {"Name": words.FIRST, "City": words.CITIES, "Colour": words.COLOURS, "Food": words.FOODS}


def _buttons(random: Random) -> PagePlan:
    labels = random.sample(words.LABELS, random.randint(2, 5))
    target = random.choice(labels)
    moves = (PageAction("click", target, "button"),)
    key = f"{target} {labels.index(target)} of {len(labels)}"
    return PagePlan(f'Click the button "{target}".', {"labels": [*labels]}, {"clicked": target}, moves, key)


def _fields(random: Random) -> PagePlan:
    names = random.sample(FIELDS, 2)
    name = random.choice(names)
    value = random.choice(VALUES[name])
    wanted: dict[str, Json] = {one: value if one == name else "" for one in names}
    moves = (PageAction("type", name, "textbox", value=value), PageAction("click", "Save", "button"))
    instruction = f'Type "{value}" into the field {name} and save.'
    return PagePlan(instruction, {"fields": [*names]}, wanted, moves, f"{name} {value}")


def _checks(random: Random) -> PagePlan:
    names = random.sample(words.FOODS, random.randint(3, 4))
    wanted = sorted(random.sample(names, random.randint(1, 2)), key=names.index)
    moves = [PageAction("click", name, "checkbox") for name in wanted]
    data: dict[str, Json] = {"names": [*names], "on": []}
    instruction = f"Tick {' and '.join(wanted)}, nothing else, and save."
    return PagePlan(
        instruction, data, {"saved": [*wanted]}, (*moves, PageAction("click", "Save", "button")), " ".join(wanted)
    )


def _choices(random: Random) -> PagePlan:
    offered = {"Colour": words.COLOURS, "City": words.CITIES, "Food": words.FOODS}
    names = random.sample(sorted(offered), 2)
    options = {name: random.sample(offered[name], 4) for name in names}
    name = random.choice(names)
    value = random.choice(options[name][1:])
    wanted: dict[str, Json] = {one: value if one == name else options[one][0] for one in names}
    data: dict[str, Json] = {"selects": [{"name": one, "options": [*options[one]]} for one in names]}
    moves = (PageAction("select", name, value=value), PageAction("click", "Save", "button"))
    return PagePlan(f"Set {name} to {value} and save.", data, wanted, moves, f"{name} {value}")


def _counter(random: Random) -> PagePlan:
    name, start = random.choice(words.ITEMS), random.randint(2, 9)
    by = random.choice((-3, -2, -1, 1, 2, 3))
    data: dict[str, Json] = {"name": name, "start": start}
    moves = (*[PageAction("click", "+" if by > 0 else "-", "button")] * abs(by), PageAction("click", "OK", "button"))
    instruction = f"Set {name} to {start + by} and press OK."
    return PagePlan(instruction, data, {"saved": start + by}, moves, f"{name} {start} {by}")


def _tabs(random: Random) -> PagePlan:
    tabs = {name: random.sample(words.LABELS, 2) for name in random.sample(words.TOPICS, 3)}
    name = random.choice(list(tabs))
    label = random.choice(tabs[name])
    moves = (PageAction("click", name, "tab"), PageAction("click", label, "button"))
    data: dict[str, Json] = {"tabs": [{"name": one, "buttons": [*labels]} for one, labels in tabs.items()]}
    instruction = f'Go to the tab {name} and click "{label}".'
    return PagePlan(instruction, data, {"clicked": f"{name}/{label}"}, moves, f"{name} {label}")


SMALL = (
    PageFamily("buttons", _buttons, is_small=True),
    PageFamily("fields", _fields, is_small=True),
    PageFamily("checks", _checks, is_small=True),
    PageFamily("choices", _choices, is_small=True),
    PageFamily("counter", _counter, is_small=True),
    PageFamily("tabs", _tabs, is_small=True),
)
