"""Exercises on a screen: small families of pages, and what is seen after each action. A written row names a page.

Actions refer to elements by their names. The number in front of a label would have to be looked up, which a model of
this size did not learn; a name only has to be copied.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random

from openclaw_rl.core.message import Json, json_list
from openclaw_rl.envs.screen.families import words
from openclaw_rl.envs.screen.families.catalogue import FAMILIES as PAGES
from openclaw_rl.envs.screen.families.family import PagePlan
from openclaw_rl.envs.screen.screen import ScreenNode, View
from openclaw_rl.envs.screen.tree import tree_text
from openclaw_rl.envs.task import Split
from openclaw_rl.tiny.agent.exercise import SUBMIT, Exercise, Family, Move, Setting

POOL = (*words.LABELS, *words.FIRST, *words.LAST, *words.CITIES, *words.COUNTRIES, *words.FOODS, *words.COLOURS,
        *words.ITEMS, *words.TOPICS)  # fmt: skip
TAKEN = {"Save"}  # a button of the pages themselves, so no other element may have this name
_KNOWN = re.compile(rf"\b({'|'.join(POOL)})\b")
SEEDS = 100_000  # of tasks in each split
MOST_CHARACTERS = 8_000
Nodes = Sequence[ScreenNode]
Attempts = list[tuple[Move, ...]]


def page_exercise(family: str, seed: int, split: Split) -> Exercise:
    """The exercise on the page of this family, seed and split."""
    material: dict[str, Json] = {"page": family, "seed": seed, "split": split.value}
    return _played(family, PAGES[family].plan(seed, split), material, Random(f"{family} {split.value} {seed}"))


def _played(family: str, plan: PagePlan, material: dict[str, Json], rng: Random) -> Exercise:
    opening, attempts = _PLAYED[family](plan, rng)
    return Exercise(Setting.SCREEN, family, plan.instruction, tuple(attempts), material, f"\n{_seen(opening)}")


def _reworded(family: str) -> Family:
    """Exercises on pages of the same kind with any words in any place: only for demonstrations.

    With the few words of the pages themselves a small model memorises which word is where, instead of reading it.
    """

    def made(rng: Random) -> Exercise:
        plan = PAGES[family].plan(rng.randrange(SEEDS), Split.TRAIN)
        text = json.dumps([plan.instruction, dict(plan.data), dict(plan.wanted)])
        old = sorted(set(_KNOWN.findall(text)))
        new = dict(zip(old, rng.sample(sorted({*POOL} - TAKEN), len(old)), strict=True))
        asked, data, wanted = json.loads(_KNOWN.sub(lambda found: new[found[1]], text))
        return _played(family, replace(plan, instruction=asked, data=data, wanted=wanted), {}, rng)

    return made


def _family(name: str) -> Family:
    """Exercises to learn from, all of the training split."""
    return lambda rng: page_exercise(name, rng.randrange(SEEDS), Split.TRAIN)


def _unseen(name: str) -> Family:
    return lambda rng: page_exercise(name, rng.randrange(SEEDS), Split.TEST)


def _seen(nodes: Nodes) -> str:
    return tree_text(View(tuple(nodes)), most_characters=MOST_CHARACTERS)


def _click(name: str, after: Nodes | None = None) -> Move:
    """A click on an element. It ends the task if nothing is given that is seen `after` it."""
    return Move("click", {"ref": name}, "" if after is None else _seen(after), None)


def _texts(value: Json) -> list[str]:
    return [str(one) for one in json_list(value)]


def _buttons(plan: PagePlan, rng: Random) -> tuple[Nodes, Attempts]:
    labels = _texts(plan.data["labels"])
    nodes = [ScreenNode("button", label, ref) for ref, label in enumerate(labels, 1)]
    right = str(plan.wanted["clicked"])
    wrong = [label for label in labels if label != right]
    clicked: Attempts = [(_click(label),) for label in (right, *rng.sample(wrong, min(len(wrong), 2)))]
    return nodes, [*clicked, (SUBMIT,)]


def _fields(plan: PagePlan, rng: Random) -> tuple[Nodes, Attempts]:
    names = _texts(plan.data["fields"])
    value = next(str(one) for one in plan.wanted.values() if one)
    right, other = sorted(names, key=lambda name: not plan.wanted[name])

    def nodes(filled: str = "", what: str = value) -> Nodes:
        fields = [ScreenNode("textbox", name, ref, what if name == filled else "") for ref, name in enumerate(names, 1)]
        return [*fields, ScreenNode("button", "Save", 3)]

    def typed(name: str, what: str = value) -> Move:
        return Move("type", {"ref": name, "text": what}, _seen(nodes(name, what)), None)

    return nodes(), [
        (typed(right), _click("Save")),
        (typed(other), _click("Save")),
        (_click("Save"),),
        (typed(right, right), _click("Save")),
        (typed(right), SUBMIT),
    ]


def _checks(plan: PagePlan, rng: Random) -> tuple[Nodes, Attempts]:
    names, right = _texts(plan.data["names"]), _texts(plan.wanted["saved"])

    def nodes(on: Sequence[str] = ()) -> Nodes:
        boxes = [
            ScreenNode("checkbox", name, ref, facts=("on" if name in on else "off",))
            for ref, name in enumerate(names, 1)
        ]
        return [*boxes, ScreenNode("button", "Save", len(names) + 1)]

    def ticked(wanted: Sequence[str], last: Move) -> tuple[Move, ...]:
        return (*(_click(name, nodes(wanted[: place + 1])) for place, name in enumerate(wanted)), last)

    save = _click("Save")
    wrong = rng.choice([name for name in names if name not in right])
    tried = (right, [*right[:-1], wrong], [*right, wrong], right[:-1])
    return nodes(), [*(ticked(some, save) for some in tried), ticked(right, SUBMIT)]


def _choices(plan: PagePlan, rng: Random) -> tuple[Nodes, Attempts]:
    selects = [one for one in json_list(plan.data["selects"]) if isinstance(one, dict)]
    options = {str(one["name"]): _texts(one["options"]) for one in selects}
    right, other = sorted(options, key=lambda name: plan.wanted[name] == options[name][0])

    def nodes(changed: str = "", value: str = "") -> Nodes:
        boxes = [
            ScreenNode("combobox", name, ref, value if changed == name else offered[0], options=tuple(offered))
            for ref, (name, offered) in enumerate(options.items(), 1)
        ]
        return [*boxes, ScreenNode("button", "Save", 3)]

    def chosen(name: str, value: str, last: Move) -> tuple[Move, ...]:
        return (Move("select", {"ref": name, "value": value}, _seen(nodes(name, value)), None), last)

    save, value = _click("Save"), str(plan.wanted[right])
    wrong = rng.choice([one for one in options[right][1:] if one != value])
    return nodes(), [
        chosen(right, value, save),
        chosen(right, wrong, save),
        chosen(other, rng.choice(options[other][1:]), save),
        (save,),
        chosen(right, value, SUBMIT),
    ]


def _counter(plan: PagePlan, rng: Random) -> tuple[Nodes, Attempts]:
    name, start, wanted = str(plan.data["name"]), int(str(plan.data["start"])), int(str(plan.wanted["saved"]))

    def nodes(value: int) -> Nodes:
        signs = [ScreenNode("button", sign, ref) for ref, sign in enumerate("+-", 1)]
        return [ScreenNode("text", f"{name}: {value}"), *signs, ScreenNode("button", "OK", 3)]

    def pressed(by: int) -> tuple[Move, ...]:
        sign = 1 if by > 0 else -1
        steps = (_click("+" if by > 0 else "-", nodes(start + sign * done)) for done in range(1, abs(by) + 1))
        return (*steps, _click("OK"))

    by = wanted - start
    wrong = [other for other in (-3, -2, -1, 1, 2, 3) if other != by]
    return nodes(start), [pressed(by), *(pressed(other) for other in rng.sample(wrong, 3)), (_click("OK"),)]


def _tabs(plan: PagePlan, rng: Random) -> tuple[Nodes, Attempts]:
    tabs = [one for one in json_list(plan.data["tabs"]) if isinstance(one, dict)]
    names, labels = [str(one["name"]) for one in tabs], [_texts(one["buttons"]) for one in tabs]
    tab, label = str(plan.wanted["clicked"]).split("/")

    def nodes(opened: int) -> Nodes:
        heads = [
            ScreenNode("tab", name, ref, facts=("selected",) if ref - 1 == opened else ())
            for ref, name in enumerate(names, 1)
        ]
        return [*heads, *(ScreenNode("button", one, ref) for ref, one in enumerate(labels[opened], 4))]

    def clicked(opened: int, button: int) -> tuple[Move, ...]:
        return (_click(names[opened], nodes(opened)), _click(labels[opened][button]))

    right = names.index(tab)
    button = labels[right].index(label)
    other = rng.choice([place for place in range(3) if place != right])
    opened = _click(names[right], nodes(right))
    wrong: Attempts = [
        (opened, _click(labels[right][1 - button])),
        clicked(other, rng.randrange(2)),
        (opened, SUBMIT),
        (_click(rng.choice(labels[0])),),
    ]
    first = (_click(label),) if right == 0 else ()  # the right tab is already open, so this would succeed
    return nodes(0), [(opened, _click(label)), *(attempt for attempt in wrong if attempt != first)]


_PLAYED: dict[str, Callable[[PagePlan, Random], tuple[Nodes, Attempts]]] = {
    "buttons": _buttons,
    "fields": _fields,
    "checks": _checks,
    "choices": _choices,
    "counter": _counter,
    "tabs": _tabs,
}
_HELD_BACK = "choices"
FAMILIES: dict[str, Family] = {name: _family(name) for name in _PLAYED if name != _HELD_BACK}
UNSEEN: dict[str, Family] = {name: _unseen(name) for name in FAMILIES}
REWORDED: dict[str, Family] = {name: _reworded(name) for name in _PLAYED}
HELD_BACK: dict[str, Family] = {_HELD_BACK: _family(_HELD_BACK)}
UNSEEN_HELD_BACK: dict[str, Family] = {_HELD_BACK: _unseen(_HELD_BACK)}
