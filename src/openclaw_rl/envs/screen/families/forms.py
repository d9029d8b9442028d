"""Families about filling in forms: a form, settings, a wizard, a date, a calendar, a code from another window."""

from __future__ import annotations

from random import Random

from openclaw_rl.core.message import Json
from openclaw_rl.envs.screen.families import words
from openclaw_rl.envs.screen.families.family import PageAction, PageFamily, PagePlan

PLANS = ("Free", "Basic", "Gold")
DELIVERIES = ("Post", "Courier", "Pick up")
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday")
HOURS = ("9:00", "10:00", "11:00", "13:00", "14:00", "15:00")
MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)
THEMES = ("Light", "Dark", "Auto")
LANGUAGES = ("English", "French", "Italian", "Spanish")
SWITCHES = ("Wi-Fi", "Sounds", "Location", "Updates", "Bluetooth", "Backup")


def _form(random: Random) -> PagePlan:
    first, last = random.choice(words.FIRST), random.choice(words.LAST)
    name, mail = f"{first} {last}", f"{first.lower()}.{last.lower()}@mail.test"
    country, plan, news = random.choice(words.COUNTRIES), random.choice(PLANS), random.random() < 0.5
    data: dict[str, Json] = {"countries": [*words.COUNTRIES], "plans": [*PLANS]}
    wanted: dict[str, Json] = {"name": name, "email": mail, "country": country, "plan": plan, "news": news, "note": ""}
    moves = [
        PageAction("type", "Name", "textbox", value=name),
        PageAction("type", "Email", "textbox", value=mail),
        PageAction("select", "Country", value=country),
        PageAction("click", plan, "radio"),
        *([PageAction("click", "Send me news", "checkbox")] if news else []),
        PageAction("click", "Sign up", "button"),
    ]
    said = f"Sign up as {name}, {mail}, from {country}, with the plan {plan}, {'with' if news else 'without'} news."
    return PagePlan(said, data, wanted, tuple(moves), f"{name} {country}")


def _settings(random: Random) -> PagePlan:
    switches = random.sample(SWITCHES, 4)
    now: dict[str, Json] = {name: random.random() < 0.5 for name in switches}
    now |= {"Theme": random.choice(THEMES), "Language": random.choice(LANGUAGES)}
    flipped = random.choice(switches)
    theme = random.choice([one for one in THEMES if one != now["Theme"]])
    wanted = {**now, flipped: not now[flipped], "Theme": theme}
    lines: list[Json] = [{"name": name, "kind": "switch", "options": []} for name in switches]
    looks: list[Json] = [
        {"name": "Theme", "kind": "select", "options": [*THEMES]},
        {"name": "Language", "kind": "select", "options": [*LANGUAGES]},
    ]
    data: dict[str, Json] = {
        "now": now,
        "sections": [
            {"name": "Device", "lines": lines[:2]},
            {"name": "Privacy", "lines": lines[2:]},
            {"name": "Look", "lines": looks},
        ],
    }
    moves = (
        PageAction("click", "Device" if switches.index(flipped) < 2 else "Privacy", "link"),
        PageAction("click", flipped, "switch"),
        PageAction("click", "Look", "link"),
        PageAction("select", "Theme", value=theme),
        PageAction("click", "Save settings", "button"),
    )
    state = "on" if wanted[flipped] else "off"
    return PagePlan(
        f"Turn {flipped} {state}, set the theme to {theme}, and save.",
        data,
        wanted,
        moves,
        f"{flipped} {state} {theme}",
    )


def _wizard(random: Random) -> PagePlan:
    name, city = random.choice(words.FIRST), random.choice(words.CITIES)
    delivery, gift = random.choice(DELIVERIES), random.random() < 0.5
    wanted: dict[str, Json] = {"name": name, "city": city, "delivery": delivery, "gift": gift}
    go_on = PageAction("click", "Next", "button")
    moves = (
        PageAction("type", "Name", "textbox", value=name),
        PageAction("type", "City", "textbox", value=city),
        go_on,
        PageAction("click", delivery, "radio"),
        go_on,
        *((PageAction("click", "Wrap as a gift", "checkbox"),) if gift else ()),
        go_on,
        PageAction("click", "Finish", "button"),
    )
    wrapped = "wrapped" if gift else "not wrapped"
    said = f"Send it to {name} in {city} by {delivery.lower()}, {wrapped} as a gift, and finish."
    return PagePlan(said, {"deliveries": [*DELIVERIES]}, wanted, moves, f"{name} {city} {delivery}")


def _dates(random: Random) -> PagePlan:
    year, month, day = random.randint(2025, 2027), random.randint(0, 11), random.randint(1, 28)
    steps = random.choice((-3, -2, -1, 0, 1, 2, 3))
    shown = year * 12 + month - steps
    title = f"Trip to {random.choice(words.CITIES)}"
    data: dict[str, Json] = {"title": title, "year": shown // 12, "month": shown % 12}
    moves = (
        PageAction("click", "Choose date", "button"),
        *[PageAction("click", "Month after" if steps > 0 else "Month before", "button")] * abs(steps),
        PageAction("click", str(day), "button"),
        PageAction("click", "Book", "button"),
    )
    date = f"{year}-{month + 1:02}-{day:02}"
    return PagePlan(f"Book the trip for {day} {MONTHS[month]} {year}.", data, {"saved": date}, moves, date)


def _calendar(random: Random) -> PagePlan:
    titles = random.sample(words.TOPICS, 4)
    slots = random.sample([(day, hour) for day in DAYS for hour in HOURS], 5)
    events = [(title, day, hour) for title, (day, hour) in zip(titles[:3], slots[:3], strict=True)]
    day, hour = slots[4]
    moved = random.random() < 0.5
    title, _, old_hour = events[0]
    if moved:
        said, after = f"Move {title} to {day} at {hour}", [(title, day, hour), *events[1:]]
        first = [PageAction("click", f"{old_hour} {title}", "button")]
    else:
        said, after = f"Add the event {titles[3]} on {day} at {hour}", [*events, (titles[3], day, hour)]
        first = [PageAction("click", "New event", "button"), PageAction("type", "Title", "textbox", value=titles[3])]
    data: dict[str, Json] = {"events": [{"title": one, "day": on, "hour": at} for one, on, at in events]}
    wanted: dict[str, Json] = {"events": sorted(f"{on} {at} {one}" for one, on, at in after), "closed": True}  # type: ignore[dict-item]
    moves = (
        *first,
        PageAction("select", "Day", value=day),
        PageAction("select", "Time", value=hour),
        PageAction("click", "Save event", "button"),
        PageAction("click", "Close calendar", "button"),
    )
    return PagePlan(f"{said}, then close the calendar.", data, wanted, moves, said)


def _windows(random: Random) -> PagePlan:
    names = random.sample(("Blue door", "Red door", "Green door", "White door", "Black door"), 2)
    codes = [str(random.randint(1000, 9999)) for _ in names]
    pages: dict[str, Json] = {one: f"The code is {code}." for one, code in zip(names, codes, strict=True)}
    moves = (
        PageAction("click", names[0], "button"),
        PageAction("window", value="1"),
        PageAction("type", "Code", "textbox", value=codes[0]),
        PageAction("click", "Unlock", "button"),
    )
    said = f"Look up the code of the {names[0].lower()}, type it into Code, and unlock."
    return PagePlan(said, {"pages": pages}, {"sent": codes[0]}, moves, f"{names[0]} {codes[0]}")


FORMS = (
    PageFamily("form", _form),
    PageFamily("settings", _settings),
    PageFamily("wizard", _wizard),
    PageFamily("dates", _dates),
    PageFamily("calendar", _calendar),
    PageFamily("windows", _windows),
)
