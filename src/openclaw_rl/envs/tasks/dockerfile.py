"""Reads Dockerfiles, and turns the part that needs no image into steps for a box."""

from __future__ import annotations

import json
import posixpath
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from openclaw_rl.envs.tasks.source import UnsupportedTaskError
from openclaw_rl.errors import TaskError

BASES = ("debian", "ubuntu", "python", "buildpack-deps")  # a Debian-like system: this machine's own is used instead
WITHOUT_EFFECT = {"CMD", "ENTRYPOINT", "EXPOSE", "LABEL", "MAINTAINER", "STOPSIGNAL", "HEALTHCHECK", "VOLUME"}
SHELLS = ('["/bin/sh", "-c"]', '["/bin/bash", "-c"]', '["bash", "-c"]', '["/bin/bash", "-o", "pipefail", "-c"]')
INSTALLING = re.compile(
    r"^(?:sudo )?(?:apt-get|apt)(?: -\S+)* (update|upgrade|install|clean|autoremove|autoclean)\b(.*)$"
)
PIP = re.compile(r"^(?:python3? -m )?pip3? install\b(.*)$")
LISTS = re.compile(r"^rm -rf? /var/(?:lib/apt/lists|cache/apt)\S*(?: \S*/var/\S+)*$")
HEREDOC = re.compile(r"<<-?\s*['\"]?([A-Za-z_][A-Za-z0-9_]*)['\"]?")
VARIABLE = re.compile(r"\$(?:\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}|([A-Za-z_][A-Za-z0-9_]*))")


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction and the line it starts on."""

    keyword: str
    text: str
    line: int


@dataclass(slots=True)
class BuildStep:
    """A step in the box: a command to run, or a file of the build folder to copy."""

    command: str = ""
    source: Path | None = None
    target: str = ""
    mode: str = ""
    workdir: str = "/"
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class BuildPlan:
    """A Dockerfile as steps, with the packages it needs and its final settings."""

    image: str = ""
    steps: list[BuildStep] = field(default_factory=list)
    packages: list[str] = field(default_factory=list)  # of Debian
    modules: list[str] = field(default_factory=list)  # of Python
    env: dict[str, str] = field(default_factory=dict)
    workdir: str = "/"


def parse(text: str) -> list[Instruction]:
    """The instructions of a Dockerfile: lines joined, comments left out, here-documents kept whole."""
    found: list[Instruction] = []
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        start, line = at, lines[at].strip()
        at += 1
        if not line or line.startswith("#"):
            continue
        while line.endswith("\\") and at < len(lines):
            more = lines[at].strip()
            at += 1
            line = line if more.startswith("#") else f"{line[:-1].rstrip()} {more}"
        keyword, _, rest = line.partition(" ")
        if keyword.upper() in ("RUN", "COPY") and (mark := HEREDOC.search(rest)):
            body = []
            while at < len(lines) and lines[at].strip() != mark.group(1):
                body.append(lines[at])
                at += 1
            if at == len(lines):
                raise TaskError(f"line {start + 1} of the Dockerfile begins a here-document that never ends")
            at += 1
            rest = "\n".join([rest, *body, mark.group(1)])
        found.append(Instruction(keyword.upper(), rest.strip(), start + 1))
    return found


def recipe_of(folder: Path) -> BuildPlan:
    """The recipe for a folder's Dockerfile. UnsupportedTaskError names what is not supported."""
    try:
        instructions = parse((folder / "Dockerfile").read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as problem:
        raise TaskError(f"the Dockerfile cannot be read: {problem}") from problem
    if not instructions or "FROM" not in [one.keyword for one in instructions]:
        raise TaskError("the Dockerfile has no FROM")
    recipe = BuildPlan()
    known: dict[str, str] = {}  # ARG
    for one in instructions:
        _take(recipe, one, folder, known)
    return recipe


def _take(recipe: BuildPlan, one: Instruction, folder: Path, known: dict[str, str]) -> None:
    text = one.text if one.keyword == "RUN" else _filled(one.text, {**known, **recipe.env})
    if one.keyword in WITHOUT_EFFECT:
        return
    if one.keyword == "FROM":
        _from(recipe, one, text)
    elif one.keyword == "RUN":
        _run(recipe, one, known)
    elif one.keyword in ("COPY", "ADD"):
        _copy(recipe, one, text, folder)
    elif one.keyword == "ENV":
        recipe.env |= _pairs(text)
    elif one.keyword == "ARG":
        name, _, value = text.partition("=")
        known[name] = value.strip("'\"")
    elif one.keyword == "WORKDIR":
        recipe.workdir = posixpath.normpath(posixpath.join(recipe.workdir, text.strip("'\"")))
        recipe.steps.append(BuildStep(f"mkdir -p {shlex.quote(recipe.workdir)}"))
    elif (one.keyword == "USER" and text.split(":")[0] in ("root", "0")) or (one.keyword == "SHELL" and text in SHELLS):
        return
    else:
        raise _unsupported(one)


def _from(recipe: BuildPlan, one: Instruction, text: str) -> None:
    words = [word for word in text.split() if not word.startswith("--")]
    if recipe.image or len(words) != 1:
        raise _unsupported(one, "several stages")
    recipe.image = words[0]
    name = words[0].split("@")[0].rpartition("/")[2].split(":")[0]
    if name not in BASES:
        raise _unsupported(one, "an image whose content is not here")


def _run(recipe: BuildPlan, one: Instruction, known: Mapping[str, str]) -> None:
    text = re.sub(r"^(--\S+\s+)+", "", one.text)
    if "<<" not in text and text.startswith("["):
        try:
            text = shlex.join(json.loads(text))
        except (json.JSONDecodeError, TypeError) as problem:
            raise TaskError(f"line {one.line} of the Dockerfile: {problem}") from problem
    if (mark := HEREDOC.match(text)) and text.startswith("<<"):
        text = "\n".join(text.splitlines()[1:-1]) if mark else text
    elif "<<" not in text:
        text = _without_installing(recipe, text)
    if text.strip():
        recipe.steps.append(BuildStep(text, workdir=recipe.workdir, env={**known, **recipe.env}))


def _without_installing(recipe: BuildPlan, text: str) -> str:
    """The command without its parts that install packages; these are recorded as needed."""
    if not re.search(r"\b(apt-get|apt|pip3?) ", text):
        return text
    rest = []
    for part in re.split(r"\s*(?:&&|;)\s*", text):
        words = " ".join(part.split())
        if match := INSTALLING.match(words.removeprefix("DEBIAN_FRONTEND=noninteractive ")):
            if match.group(1) == "install":
                recipe.packages += [_bare(word) for word in match.group(2).split() if not word.startswith("-")]
        elif match := PIP.match(words):
            recipe.modules += [_bare(word) for word in match.group(1).split() if not word.startswith("-")]
        elif not LISTS.match(words):
            rest.append(part)
    return " && ".join(part for part in rest if part)


def _bare(package: str) -> str:
    return re.split(r"[=<>~!\[;]", package.strip("'\""))[0]


def _copy(recipe: BuildPlan, one: Instruction, text: str, folder: Path) -> None:
    options = [word for word in text.split() if word.startswith("--")]
    mode = ""
    for option in options:
        name, _, value = option.partition("=")
        if name == "--chmod":
            mode = value
        elif not (name == "--chown" and value in ("root", "root:root", "0:0", "0")) and name != "--link":
            raise _unsupported(one, option)
    rest = text.split(maxsplit=len(options))[-1] if options else text
    words = json.loads(rest) if rest.startswith("[") else shlex.split(rest)
    if "<<" in rest or len(words) < 2:
        raise _unsupported(one, "a here-document" if "<<" in rest else "")
    *sources, target = words
    into = target.endswith("/") or len(sources) > 1
    at = posixpath.normpath(posixpath.join(recipe.workdir, target))
    for source in sources:
        if "://" in source or (
            source.endswith((".tar", ".tgz", ".tar.gz", ".tar.xz", ".tar.bz2")) and one.keyword == "ADD"
        ):
            raise _unsupported(one, "ADD of an archive or an address")
        for found in _matches(folder, source, one):
            inside = posixpath.join(at, found.name) if (into or at == recipe.workdir) and found.is_file() else at
            recipe.steps.append(BuildStep(source=found, target=inside, mode=mode))


def _matches(folder: Path, source: str, one: Instruction) -> list[Path]:
    pattern = source.lstrip("/")
    found = [folder] if pattern in ("", ".", "./") else sorted(folder.glob(pattern.removeprefix("./").rstrip("/")))
    if not found or any(not path.resolve().is_relative_to(folder.resolve()) for path in found):
        raise TaskError(f"line {one.line} of the Dockerfile copies {source}, which is not in its folder")
    return found


def _pairs(text: str) -> dict[str, str]:
    words = shlex.split(text)
    if words and "=" not in words[0]:
        name, _, value = text.partition(" ")
        return {name: value.strip()}
    return {name: value for name, _, value in (word.partition("=") for word in words)}


def _filled(text: str, values: Mapping[str, str]) -> str:
    return VARIABLE.sub(lambda found: values.get(found[1] or found[3], found[2] or ""), text)


def _unsupported(one: Instruction, why: str = "") -> UnsupportedTaskError:
    what = f"{one.keyword} {one.text.splitlines()[0] if one.text else ''}".strip()
    because = f" ({why})" if why else ""
    return UnsupportedTaskError(
        f"line {one.line} of the Dockerfile is not supported without a container engine: {what[:120]}{because}",
        fix="use docker or podman",
    )
