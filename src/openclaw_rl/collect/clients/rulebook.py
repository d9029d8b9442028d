"""The rules for one client, as data: one TOML file for each, with the releases that its rules were read from.

A file says how a request of the client is recognised, which header or field names its session, which requests are the
client's own, which text in a user's message is the client's, and what replaces a compacted history.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

from openclaw_rl.core.message import Json
from openclaw_rl.errors import ConfigError

LONGEST = 200_000  # letters of a text that is searched for rules
ERRANDS = (
    *("compaction", "title", "tags", "suggestions", "memory", "sub-agent", "connection test", "commit message"),
    *("query", "recap", "errand"),
)
PLACES = ("newest", "first", "system")
_TOP = frozenset({"name", "releases", "source", "recognised", "session", "thread", "side", "program", "wrapper"})
_MARKS = ("is", "prefix", "contains", "suffix", "regex")


@dataclass(frozen=True, slots=True)
class Mark:
    """How a text is recognised: by any of these. Case matters, white space at the ends does not."""

    is_: tuple[str, ...] = ()
    prefix: tuple[str, ...] = ()
    contains: tuple[str, ...] = ()
    suffix: tuple[str, ...] = ()
    regex: tuple[re.Pattern[str], ...] = ()

    def fits(self, text: str) -> bool:
        """Whether the text, without white space at its ends, has this mark."""
        if not text:
            return False
        if text in self.is_ or text.startswith(self.prefix) or text.endswith(self.suffix):
            return True
        if not self.contains and not self.regex:
            return False
        held = text[:LONGEST]
        if any(each in held for each in self.contains):
            return True
        return any(each.match(held) if each.pattern.startswith(r"\A") else each.search(held) for each in self.regex)


@dataclass(frozen=True, slots=True)
class Field:
    """A header, or a field of the body that names sessions; `key` is looked up if it contains a JSON object."""

    header: str = ""
    fact: str = ""
    key: str = ""


@dataclass(frozen=True, slots=True)
class Side:
    """A request that the client makes itself: recognised by a text in one of its places, or by a header or field."""

    name: str
    errand: str
    where: str
    mark: Mark
    field: Field | None = None
    values: tuple[str, ...] = ()  # of the field; empty for any


@dataclass(frozen=True, slots=True)
class Program:
    """Text in a user's message that the client put there.

    With `mark` the whole text part, with `begin` the text from it on, up to and including `end` if one is given.
    `is_kept` leaves it in the history that is compared; `is_tool` makes it a tool's result; `is_summary` says that it
    replaces what was said before. `reply` is the reply that the client requests to it.
    """

    name: str
    mark: Mark | None = None
    begin: str = ""
    end: str = ""
    is_kept: bool = False
    is_tool: bool = False
    is_summary: bool = False
    reply: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Wrapper:
    """Text that the client puts around the owner's words: they are in between, or up to the end without `end`."""

    name: str
    begin: str
    end: str
    is_whole: bool = False  # only if the message begins and ends with it
    escaped: str = ""  # how the client writes `end` inside


@dataclass(frozen=True, slots=True)
class Rulebook:
    """All rules of one client."""

    name: str
    releases: str
    source: str
    user_agents: tuple[str, ...]
    headers: tuple[str, ...]
    system: Mark
    first: Mark  # of the first user's message
    sessions: tuple[Field, ...]
    threads: tuple[Field, ...]
    sides: tuple[Side, ...]
    programs: tuple[Program, ...]
    wrappers: tuple[Wrapper, ...]


@lru_cache(maxsize=1)
def shipped() -> tuple[Rulebook, ...]:
    """The files that come with the package, by name."""
    held = files("openclaw_rl.collect.clients")
    names = sorted(item.name for item in held.iterdir() if item.name.endswith(".toml"))
    return tuple(parsed(held.joinpath(name).read_text("utf-8"), name) for name in names)


def read_folder(folder: str) -> tuple[Rulebook, ...]:
    """The rule files of a folder, by name. Raises ConfigError for a folder or file that cannot be used."""
    path = Path(folder).expanduser()
    if not path.is_dir():
        raise ConfigError(
            f"collect.client_rules is {folder!r}: there is no such folder", fix="make it, or leave it out"
        )
    return tuple(parsed(each.read_text("utf-8"), each.name) for each in sorted(path.glob("*.toml")))


def parsed(text: str, file: str) -> Rulebook:
    """The rules of a file's text. Raises ConfigError naming what cannot be used."""
    try:
        held: dict[str, Json] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        raise ConfigError(f"{file}: {problem}", fix="write it as the shipped rule files are") from problem
    unknown = set(held) - _TOP
    if unknown:
        raise _wrong(file, f"knows no {', '.join(sorted(unknown))}", f"use {', '.join(sorted(_TOP))}")
    known = _table(held.get("recognised"), file, "recognised")
    _only(known, ("user_agent", "header", "system", "first"), file, "recognised")
    wanted, first = (_table(known.get(name), file, f"recognised.{name}") for name in ("system", "first"))
    _only(wanted, _MARKS, file, "recognised.system")
    _only(first, _MARKS, file, "recognised.first")
    return Rulebook(
        name=_word(held.get("name"), file, "name"),
        releases=_word(held.get("releases"), file, "releases"),
        source=_word(held.get("source", "its package, read"), file, "source"),
        user_agents=_words(known.get("user_agent"), file, "recognised.user_agent"),
        headers=tuple(each.lower() for each in _words(known.get("header"), file, "recognised.header")),
        system=_mark(wanted, file, "recognised.system"),
        first=_mark(first, file, "recognised.first"),
        sessions=tuple(_field(each, file, "session") for each in _tables(held, "session", file)),
        threads=tuple(_field(each, file, "thread") for each in _tables(held, "thread", file)),
        sides=tuple(_side(each, file) for each in _tables(held, "side", file)),
        programs=tuple(_program(each, file) for each in _tables(held, "program", file)),
        wrappers=tuple(_wrapper(each, file) for each in _tables(held, "wrapper", file)),
    )


def _side(held: Mapping[str, Json], file: str) -> Side:
    _only(held, ("name", "errand", "where", "header", "fact", "key", "values", *_MARKS), file, "side")
    errand, where = _word(held.get("errand"), file, "side.errand"), str(held.get("where", "newest"))
    if errand not in ERRANDS:
        raise _wrong(file, f"side.errand is {errand!r}", f"use one of {', '.join(ERRANDS)}")
    if where not in PLACES:
        raise _wrong(file, f"side.where is {where!r}", f"use one of {', '.join(PLACES)}")
    has_field = "header" in held or "fact" in held
    field = Field(str(held.get("header", "")).lower(), str(held.get("fact", "")), str(held.get("key", "")))
    mark = _mark(held, file, "side")
    if not has_field and mark == Mark():
        raise _wrong(file, "a side rule knows a request by nothing", f"give it {', '.join(_MARKS)}, header or fact")
    name = _word(held.get("name"), file, "side.name")
    return Side(
        name, errand, where, mark, field if has_field else None, _words(held.get("values"), file, "side.values")
    )


def _program(held: Mapping[str, Json], file: str) -> Program:
    allowed = ("name", "begin", "end", "is_kept", "is_tool", "is_summary", "reply", *_MARKS)
    _only(held, allowed, file, "program")
    mark, begin = _mark(held, file, "program"), str(held.get("begin", ""))
    if (mark == Mark()) == (not begin):
        raise _wrong(file, "a program rule has a mark or a begin, and not both", f"give {', '.join(_MARKS)} or begin")
    return Program(
        name=_word(held.get("name"), file, "program.name"),
        mark=None if begin else mark,
        begin=begin,
        end=str(held.get("end", "")),
        is_kept=held.get("is_kept") is True,
        is_tool=held.get("is_tool") is True,
        is_summary=held.get("is_summary") is True,
        reply=_words(held.get("reply"), file, "program.reply"),
    )


def _wrapper(held: Mapping[str, Json], file: str) -> Wrapper:
    _only(held, ("name", "begin", "end", "is_whole", "escaped"), file, "wrapper")
    begin, is_open = (
        _word(held.get("begin"), file, "wrapper.begin"),
        held.get("is_whole") is not True and "end" not in held,
    )
    end = "" if is_open else _word(held.get("end"), file, "wrapper.end")
    name = _word(held.get("name"), file, "wrapper.name")
    return Wrapper(name, begin, end, held.get("is_whole") is True, str(held.get("escaped", "")))


def _field(held: Mapping[str, Json], file: str, what: str) -> Field:
    _only(held, ("header", "fact", "key"), file, what)
    if ("header" in held) == ("fact" in held):
        raise _wrong(file, f"{what} names a header or a fact, one of them", "give one of them")
    return Field(str(held.get("header", "")).lower(), str(held.get("fact", "")), str(held.get("key", "")))


def _mark(held: Mapping[str, Json], file: str, what: str) -> Mark:
    found = {name: _words(held.get(name), file, f"{what}.{name}") for name in _MARKS}
    try:
        regex = tuple(re.compile(each, re.DOTALL) for each in found["regex"])
    except re.error as problem:
        raise _wrong(file, f"{what}.regex is not a regular expression ({problem})", "see Python's re") from problem
    return Mark(found["is"], found["prefix"], found["contains"], found["suffix"], regex)


def _tables(held: Mapping[str, Json], name: str, file: str) -> Sequence[Mapping[str, Json]]:
    found = held.get(name, [])
    if not isinstance(found, list):
        raise _wrong(file, f"{name} is not a list of tables", f"write [[{name}]]")
    return [_table(each, file, name) for each in found]


def _table(held: Json, file: str, what: str) -> Mapping[str, Json]:
    if held is None:
        return {}
    if not isinstance(held, dict):
        raise _wrong(file, f"{what} is not a table", f"write [{what}]")
    return held


def _only(held: Mapping[str, Json], allowed: Sequence[str], file: str, what: str) -> None:
    unknown = set(held) - set(allowed)
    if unknown:
        raise _wrong(file, f"{what} knows no {', '.join(sorted(unknown))}", f"use {', '.join(allowed)}")


def _word(held: Json, file: str, what: str) -> str:
    if not isinstance(held, str) or not held:
        raise _wrong(file, f"{what} is {held!r}", "give a text")
    return held


def _words(held: Json, file: str, what: str) -> tuple[str, ...]:
    """One text or several."""
    listed = [] if held is None else held if isinstance(held, list) else [held]
    return tuple(_word(each, file, what) for each in listed)


def _wrong(file: str, what: str, fix: str) -> ConfigError:
    return ConfigError(f"{file}: {what}", fix=fix)
