"""What a client's script says to the stage: which conversation begins, what its owner types, what is noted.

Standard library only: it runs in each client's own environment.
"""

from __future__ import annotations

import base64
import json
import os
import struct
import time
import traceback
import urllib.request
import zlib
from collections.abc import Callable
from contextlib import contextmanager

BASE_URL, API_KEY = os.environ.get("BASE_URL", ""), os.environ.get("API_KEY", "")
_STAGE = os.environ.get("STAGE", "")
BUNDLED = bool(os.environ.get("BUNDLED"))  # a model of its own answers: a plain conversation, whatever it says
PLAIN_TALK = (("ask", "It is **seven**!"), ("correction", "It is seven."), ("more", "Thirteen."))
LONG = "The lighthouse keeper wrote down the weather of every single day in his book. "


def direct(what: str, /, **said: object) -> dict:
    """One direction; gives what the stage answers."""
    request = urllib.request.Request(
        f"{_STAGE}/{what}", json.dumps(said).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def say(kind: str, *replies: object, more: str = "", typed: str | None = None) -> str:
    """The words the owner types now; the model will give these replies."""
    said = {"kind": kind, "replies": list(replies), "more": more}
    return direct("say", **said, **({} if typed is None else {"typed": typed}))["typed"]


def call(name: str, /, **arguments: object) -> dict:
    """A reply that calls one tool."""
    return {"calls": [[name, arguments]]}


def calls(*made: tuple[str, dict]) -> dict:
    """A reply that calls several tools at once."""
    return {"calls": [list(each) for each in made]}


def note(what: str, good: bool, detail: object = "") -> None:
    """Whether the client can do this here, and how that shows."""
    if not BUNDLED:
        direct("note", what=what, good=bool(good), detail=str(detail)[:600])


def small_room(more: int) -> None:
    """From now on the model has room for this many tokens more than the last prompt had; 0 for all the room again."""
    direct("context", tokens=direct("state")["prompt_tokens"] + more if more else 0)


def wait_quiet(timeout_s: float = 20.0) -> None:
    """Returns once no request is being answered."""
    until = time.monotonic() + timeout_s
    while direct("state")["running"] and time.monotonic() < until:
        time.sleep(0.1)


@contextmanager
def slow():
    """Within it replies come slowly."""
    direct("slow", is_slow=True)
    try:
        yield
    finally:
        wait_quiet()
        direct("slow", is_slow=False)


def play(*acts: Callable[[], object]) -> None:
    """Each act is a conversation of its own; one that breaks is noted, and the next begins."""
    for act in acts:
        if BUNDLED and act.__name__ not in ("plain", "plain_chat", "plain_code"):
            continue
        direct("talk", name=act.__name__)
        try:
            act()
        except Exception as problem:
            traceback.print_exc()
            shown = {"structured": "structured", "plain": "runs", "streamed": "streams", "tools": "tools"}
            column = next((each for word, each in shown.items() if word in act.__name__), act.__name__)
            direct("note", what=column, good=False, detail=f"{act.__name__}: {type(problem).__name__}: {problem}"[:600])
        finally:
            if not BUNDLED:
                direct("context", tokens=0)
                direct("slow", is_slow=False)


def note_image(show: Callable[[], object], *, refusal: type[Exception] = Exception) -> None:
    """Notes whether a picture is answered, or refused in words that say why."""
    try:
        note("image", True, show())
    except refusal as problem:
        note("image", "image" in str(problem), problem)


def too_long(ask: Callable[[str], object], reply: str = "Too long.") -> None:
    """Says something for which there is no room, and notes whether the client tells of that; then there is again."""
    small_room(200)
    try:
        ask(say("long", reply, more=LONG * 40))
        note("overflow", False, "nothing was said")
    except Exception as problem:
        note("overflow", "context" in str(problem), problem)
    small_room(0)


def red_square() -> bytes:
    """A PNG of 8 by 8 red points."""
    rows = b"".join(b"\0" + b"\xff\0\0" * 8 for _ in range(8))

    def chunk(kind: bytes, held: bytes) -> bytes:
        return struct.pack(">I", len(held)) + kind + held + struct.pack(">I", zlib.crc32(kind + held))

    head = struct.pack(">IIBBBBB", 8, 8, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def picture() -> str:
    """The same as a data URL."""
    return "data:image/png;base64," + base64.b64encode(red_square()).decode()


WEATHER = {
    "oslo": "4 degrees, rain",
    "bergen": "6 degrees, fog",
    "turku": "-1 degrees, snow",
    "porto": "17 degrees, sun",
}


# What is said of it: of one city, of one that there is not, of two at once, and a correction.
BOTH_CITIES = calls(("get_weather", {"city": "Bergen"}), ("get_weather", {"city": "Turku"}))
WEATHER_TALK = (
    ("ask", call("get_weather", city="Oslo"), "Rain in Oslo."),
    ("more", call("get_weather", city="Atlantis"), "There is no such place."),
    ("more", BOTH_CITIES, "Fog and snow."),
    ("correction", "Six and minus one."),
)

_ASKED: list[str] = []


def were_asked(*cities: str) -> bool:
    """Whether the weather of exactly these was asked for since the last time this was."""
    asked, _ASKED[:] = sorted(_ASKED), []
    return asked == sorted(cities)


def note_weather(texts: list) -> None:
    """Notes whether the cities of that talk were asked for, and whether its last two answers came."""
    is_told = texts[-2:] == ["Fog and snow.", "Six and minus one."]
    note("tools", were_asked("Oslo", "Atlantis", "Bergen", "Turku") and is_told, texts)


def weather(city: str) -> str:
    """What the weather is; a place that is not known is an error."""
    _ASKED.append(city)
    if city.lower() not in WEATHER:
        raise ValueError(f"no weather station in {city}")
    return f"{city}: {WEATHER[city.lower()]}"
