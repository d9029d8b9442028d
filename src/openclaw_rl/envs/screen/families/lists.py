"""Families about finding and changing one item among many: tables, menus, shops, mail, boards and files."""

from __future__ import annotations

from random import Random

from openclaw_rl.core.message import Json
from openclaw_rl.envs.screen.families import words
from openclaw_rl.envs.screen.families.family import PageAction, PageFamily, PagePlan

PAGE_SIZE = 5  # of the table
MENU = (
    ("File", (("New", ()), ("Open", ()), ("Export", (("PDF", ()), ("Text", ()), ("Image", ()))))),
    ("Edit", (("Undo", ()), ("Copy", ()), ("Find", (("Next", ()), ("All", ()))))),
    ("View", (("Full screen", ()), ("Zoom", (("In", ()), ("Out", ()), ("Reset", ()))))),
    ("Tools", (("Check", ()), ("Count", ()), ("Sort", (("Up", ()), ("Down", ()))))),
)
COLUMNS = ("To do", "Doing", "Done")
Below = tuple[tuple[str, "Below"], ...]


def _table(random: Random) -> PagePlan:
    customers = random.sample([f"{first} {last}" for first in words.FIRST for last in words.LAST], 9)
    numbers = random.sample(range(100, 999), 9)
    amounts = random.sample(range(5, 400), 9)
    orders = list(zip(numbers, customers, amounts, strict=True))
    verb = random.choice(("Ship", "Cancel"))
    target = random.choice(orders)
    by_amount = random.random() < 0.3
    if by_amount:
        target = min(orders, key=lambda one: one[2])
        said, moves = f"{verb} the order with the smallest amount", [PageAction("click", "Amount", "button")]
    else:
        said = f"{verb} the order of {target[1]}"
        moves = [PageAction("click", "Next", "button")] * (orders.index(target) // PAGE_SIZE)
    state: dict[str, Json] = {"cancelled": [], "shipped": []}
    state["shipped" if verb == "Ship" else "cancelled"] = [target[0]]
    data: dict[str, Json] = {"orders": [{"order": one, "customer": who, "amount": much} for one, who, much in orders]}
    moves += [PageAction("click", verb, "button", row=f"#{target[0]}"), PageAction("click", "Close", "button")]
    return PagePlan(f"{said}, then close the table.", data, state, tuple(moves), f"{verb} {target}")


def _menu(random: Random) -> PagePlan:
    tops = random.sample(MENU, 3)
    path: list[str] = []
    below: Below = tuple(tops)
    while below:
        label, below = random.choice(below)
        path.append(label)
    text = f"The text about {random.choice(words.TOPICS).lower()} by {random.choice(words.FIRST)}."
    data: dict[str, Json] = {"menu": _plain(tuple(tops)), "text": text}
    moves = tuple(PageAction("click", label, "menuitem") for label in path)
    tops_key = " ".join(label for label, _ in tops)
    return PagePlan(
        f"Choose {' > '.join(path)} in the menu.", data, {"chosen": "/".join(path)}, moves, f"{tops_key} {path}"
    )


def _plain(menu: Below) -> list[Json]:
    return [[label, _plain(below)] for label, below in menu]


def _goods(random: Random, many: int) -> list[tuple[str, str, int]]:
    names = random.sample([f"{colour} {item}" for colour in words.COLOURS for item in words.ITEMS], many)
    prices = random.sample(range(2, 99), many)
    return [(name, random.choice(words.KINDS), price) for name, price in zip(names, prices, strict=True)]


def _search(random: Random) -> PagePlan:
    goods = _goods(random, 24)
    name, _, _ = random.choice(goods)
    data: dict[str, Json] = {
        "items": [{"name": one, "kind": kind, "price": price} for one, kind, price in goods],
        "kinds": [*words.KINDS],
    }
    moves = (
        PageAction("type", "Search", "searchbox", value=name),
        PageAction("click", "Find", "button"),
        PageAction("click", name, "link"),
    )
    return PagePlan(f"Find the {name} in the shop and open it.", data, {"opened": name}, moves, name)


def _cart(random: Random) -> PagePlan:
    goods = _goods(random, 6)
    bought = {name: random.randint(1, 2) for name, _, _ in random.sample(goods, 2)}
    data: dict[str, Json] = {"products": [{"name": name, "price": price} for name, _, price in goods]}
    adds = [PageAction("click", "Add", "button", row=name) for name, many in bought.items() for _ in range(many)]
    moves = (
        *adds,
        PageAction("click", f"Cart ({sum(bought.values())})", "button"),
        PageAction("click", "Order", "button"),
    )
    said = " and ".join(f"{many} x {name}" for name, many in bought.items())
    return PagePlan(f"Order {said}, nothing else.", data, {**bought}, moves, said)


def _sorting(random: Random) -> PagePlan:
    items = random.sample(words.FOODS, 4)
    while items == sorted(items):
        random.shuffle(items)
    moves, now = [], [*items]
    for at, name in enumerate(sorted(items)):
        while now.index(name) > at:
            place = now.index(name)
            now[place - 1], now[place] = now[place], now[place - 1]
            moves.append(PageAction("click", "Up", "button", row=name))
    data: dict[str, Json] = {"title": "Shopping list", "items": [*items]}
    wanted: dict[str, Json] = {"saved": [*sorted(items)]}
    said = "Put the list in alphabetical order and save it."
    return PagePlan(said, data, wanted, (*moves, PageAction("click", "Save order", "button")), " ".join(items))


def _mail(random: Random) -> PagePlan:
    topics, people = random.sample(words.TOPICS, 5), random.sample(words.FIRST, 5)
    mails: list[Json] = [
        {"subject": topic, "from": who, "text": f"Hello, this is about {topic.lower()}."}
        for topic, who in zip(topics, people, strict=True)
    ]
    number = random.randrange(5)
    topic, who = topics[number], people[number]
    wanted: dict[str, Json] = {"archived": [], "deleted": [], "starred": [], "replies": {}}
    verb = random.choice(("Archive", "Delete", "Star", "Reply"))
    moves = [PageAction("click", topic, "link")]
    if verb == "Reply":
        text = random.choice(("Yes", "No", "Thanks", "Later"))
        wanted["replies"] = {str(number): text}
        moves += [
            PageAction("click", "Reply", "button"),
            PageAction("type", "Reply", "textbox", value=text),
            PageAction("click", "Send", "button"),
        ]
        said = f'Reply "{text}" to the mail from {who}'
    else:
        wanted[{"Archive": "archived", "Delete": "deleted", "Star": "starred"}[verb]] = [number]
        moves.append(PageAction("click", verb, "button"))
        if verb == "Star":
            moves.append(PageAction("click", "Inbox", "button"))
        said = f"{verb} the mail from {who}"
    moves.append(PageAction("click", "Log out", "button"))
    return PagePlan(f"{said}, then log out.", {"mails": mails}, wanted, tuple(moves), f"{said} {topic} {number}")


def _board(random: Random) -> PagePlan:
    cards: dict[str, Json] = {name: random.choice(COLUMNS) for name in random.sample(words.TOPICS, 4)}
    name = random.choice(sorted(cards))
    column = random.choice([one for one in COLUMNS if one != cards[name]])
    data: dict[str, Json] = {"cards": cards, "columns": [*COLUMNS]}
    moves = (PageAction("drag", name, "option", onto=f"Column {column}"), PageAction("click", "Save board", "button"))
    said = f"Drag the card {name} to the column {column} and save the board."
    return PagePlan(said, data, {**cards, name: column}, moves, f"{name} {cards[name]} {column}")


def _files(random: Random) -> PagePlan:
    folders: dict[str, list[Json]] = {one: [*random.sample(words.FILES, 3)] for one in random.sample(words.FOLDERS, 3)}
    folder = random.choice(list(folders))
    name = str(random.choice(folders[folder]))
    wanted: dict[str, Json] = {"deleted": [], "renamed": {}}
    moves = [PageAction("click", folder, "button")]
    if random.random() < 0.5:
        wanted["deleted"] = [f"{folder}/{name}"]
        moves += [PageAction("click", "Delete", "button", row=name), PageAction("click", "Yes", "button")]
        said = f"Delete {name} in the folder {folder}"
    else:
        new = f"{random.choice(words.CITIES).lower()}.{name.rpartition('.')[2]}"
        wanted["renamed"] = {f"{folder}/{name}": new}
        moves += [
            PageAction("click", "Rename", "button", row=name),
            PageAction("type", "New name", "textbox", value=new),
            PageAction("click", "OK", "button"),
        ]
        said = f"Rename {name} in the folder {folder} to {new}"
    moves.append(PageAction("click", "Close files", "button"))
    data: dict[str, Json] = {"folders": {one: [*names] for one, names in folders.items()}}
    return PagePlan(f"{said}, then close the files.", data, wanted, tuple(moves), said)


LISTS = (
    PageFamily("table", _table),
    PageFamily("menu", _menu),
    PageFamily("search", _search),
    PageFamily("cart", _cart),
    PageFamily("sorting", _sorting),
    PageFamily("mail", _mail),
    PageFamily("board", _board),
    PageFamily("files", _files),
)
