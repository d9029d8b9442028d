"""Exercises in a terminal: count, rename, unpack, configure, sort, delete, follow. Folders in Harbor's layout."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from random import Random

from openclaw_rl.core.message import Json
from openclaw_rl.tiny.agent.exercise import SUBMIT, Exercise, Family, Move, Setting, bash, words

KEYS = ("port", "width", "height", "limit", "depth", "speed", "level", "size", "delay", "retries")
ENDINGS = ("tmp", "log", "bak", "old", "csv")
TEST = """#!/bin/bash
cd /app
mkdir -p /logs/verifier
if {check}; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
"""


def _exercise(
    family: str,
    instruction: str,
    commands: Sequence[str | Move],
    files: Mapping[str, str],
    check: str,
    *,
    setup: str = "",
) -> Exercise:
    """An exercise that one command solves: the first of the commands is right, the others are wrong."""
    moves = [bash(item) if isinstance(item, str) else item for item in commands]
    return _of_attempts(family, instruction, [(move, SUBMIT) for move in moves], files, check, setup=setup)


def _of_attempts(
    family: str,
    instruction: str,
    attempts: list[tuple[Move, ...]],
    files: Mapping[str, str],
    check: str,
    *,
    setup: str = "",
) -> Exercise:
    solution = [str(move.arguments["command"]) for move in attempts[0] if move.tool == "bash"]
    dockerfile = ["FROM debian:bookworm-slim", "COPY files/ /app/", "WORKDIR /app"]
    material: dict[str, Json] = {
        "task.toml": f'version = "1.0"\n\n[metadata]\nfamily = "{family}"\n\n[environment]\nmemory_mb = 128\n'
        "storage_mb = 16\nallow_internet = false\n\n[agent]\ntimeout_sec = 60.0\n\n[verifier]\ntimeout_sec = 20.0\n",
        "environment/Dockerfile": "\n".join([*dockerfile, *([f"RUN {setup}"] if setup else [])]) + "\n",
        "tests/test.sh": TEST.format(check=check),
        "solution/solve.sh": "\n".join(["#!/bin/bash", "cd /app", *solution]) + "\n",
        **{f"environment/files/{path}": text for path, text in files.items()},
    }
    return Exercise(Setting.TERMINAL, family, instruction, tuple(attempts), material)


def _holds(path: str, text: str) -> str:
    """A shell test that a file contains exactly this text; line ends at its end do not count."""
    return f'[ "$(cat {path} 2>/dev/null)" = "{text}" ]'


def _lines(rng: Random, few: list[str], least: int, most: int) -> list[str]:
    return [f"{rng.choice(few)} {rng.choice(few)} {rng.randint(2, 99)}" for _ in range(rng.randint(least, most))]


def count(rng: Random) -> Exercise:
    """Count the lines that contain a word."""
    few = words(rng, 8)
    file, out, word = f"{few[0]}.txt", f"{few[1]}.txt", few[2]
    lines = [*_lines(rng, few[2:], 5, 9), f"{word} {few[3]} {rng.randint(2, 99)}", f"{few[4]} {few[5]} 7"]
    rng.shuffle(lines)
    right = sum(word in line for line in lines)
    asked = rng.choice(
        (
            f"How many lines of {file} contain {word}? Write the number to {out}.",
            f"Count the lines with {word} in {file} and write the number to {out}.",
        )
    )
    commands = [
        f"grep -c {word} {file} > {out}",
        f"grep {word} {file} > {out}",
        f"wc -l {file} > {out}",
        f"grep -n {word} {file} > {out}",
    ]
    return _exercise("count", asked, commands, {file: "\n".join(lines) + "\n"}, _holds(out, str(right)))


def rename(rng: Random) -> Exercise:
    """Rename a file."""
    few = words(rng, 4)
    old, new = f"{few[0]}.txt", f"{few[1]}.{rng.choice(('txt', 'md'))}"
    text = f"{few[2]} {rng.randint(100, 999)}"
    asked = rng.choice((f"Rename {old} to {new}.", f"Give {old} the new name {new}."))
    missing = f"mv: cannot stat '{new}': No such file or directory"
    commands: list[str | Move] = [
        f"mv {old} {new}",
        f"cp {old} {new}",
        bash(f"mv {new} {old}", missing, 1),
        f"touch {new}",
    ]
    check = f"[ ! -e {old} ] && {_holds(new, text)}"
    return _exercise("rename", asked, commands, {old: text + "\n", f"{few[3]}.txt": "keep\n"}, check)


def unpack(rng: Random) -> Exercise:
    """Extract an archive into a folder."""
    few = words(rng, 4)
    archive, folder, file = f"{few[0]}.tar", few[1], f"{few[2]}.txt"
    text = f"{few[3]} {rng.randint(100, 999)}"
    asked = rng.choice((f"Extract {archive} into the folder {folder}.", f"Unpack {archive} into {folder}."))
    commands: list[str | Move] = [
        f"tar -xf {archive} -C {folder}",
        f"tar -xf {archive}",
        bash(f"tar -tf {archive}", file),
        f"tar -cf {archive} {folder}",
    ]
    setup = f"cd /app && mkdir {folder} && tar -cf {archive} {file} && rm {file}"
    return _exercise("unpack", asked, commands, {file: text + "\n"}, _holds(f"{folder}/{file}", text), setup=setup)


def configure(rng: Random) -> Exercise:
    """Change a value in a configuration file."""
    file = f"{rng.choice(words(rng, 1))}.ini"
    keys = rng.sample(KEYS, 3)
    values = rng.sample(range(10, 99), 4)
    before = [f"{key}={value}" for key, value in zip(keys, values, strict=False)]
    place = rng.randrange(3)
    key, value = keys[place], values[3]
    wanted = [*before[:place], f"{key}={value}", *before[place + 1 :]]
    asked = rng.choice((f"In {file} set {key} to {value}.", f"Set {key} to {value} in {file}."))
    commands = [
        f"sed -i 's/^{key}=.*/{key}={value}/' {file}",
        f"echo {key}={value} >> {file}",
        f"echo {key}={value} > {file}",
        f"sed -i 's/{key}/{value}/' {file}",
    ]
    return _exercise("configure", asked, commands, {file: "\n".join(before) + "\n"}, _holds(file, "\n".join(wanted)))


def unique(rng: Random) -> Exercise:
    """Sort the lines of a file, without repetitions."""
    few = words(rng, 7)
    file, out = f"{few[0]}.txt", f"{few[1]}.txt"
    lines = [*few[2:], *few[2:5], few[2]]
    while lines == sorted(lines) or not any(one == other for one, other in itertools.pairwise(lines)):
        rng.shuffle(lines)
    asked = rng.choice(
        (
            f"Sort the lines of {file}, drop repeated ones, and write them to {out}.",
            f"Write the lines of {file} to {out}, sorted and each only once.",
        )
    )
    commands = [
        f"sort -u {file} > {out}",
        f"sort {file} > {out}",
        f"uniq {file} > {out}",
        f"sort -r {file} > {out}",
    ]
    wanted = "\n".join(sorted(set(lines)))
    return _exercise("unique", asked, commands, {file: "\n".join(lines) + "\n"}, _holds(out, wanted))


def largest(rng: Random) -> Exercise:
    """Find the largest file in a folder."""
    few = words(rng, 6)
    folder, out = few[0], f"{few[1]}.txt"
    names = sorted(f"{word}.txt" for word in few[2:])
    sizes = rng.sample(range(1, 9), len(names))
    while sizes.index(max(sizes)) in (0, len(names) - 1):
        rng.shuffle(sizes)
    best = names[sizes.index(max(sizes))]
    files = {f"{folder}/{name}": "a line of text\n" * 10 * size for name, size in zip(names, sizes, strict=True)}
    asked = rng.choice(
        (
            f"Which file in {folder} is the largest? Write its name to {out}.",
            f"Write the name of the largest file in {folder} to {out}.",
        )
    )
    commands = [
        f"ls -S {folder} | head -n 1 > {out}",
        f"ls {folder} | head -n 1 > {out}",
        f"ls -S {folder} | tail -n 1 > {out}",
        f"ls -S {folder} > {out}",
    ]
    return _exercise("largest", asked, commands, files, _holds(out, best))


def delete(rng: Random) -> Exercise:
    """Delete the files with an ending in a folder, and keep the other one."""
    few = words(rng, 5)
    folder, ending = few[0], rng.choice(ENDINGS)
    asked = rng.choice(
        (f"Delete every .{ending} file in {folder}.", f"Remove all files in {folder} that end in .{ending}.")
    )
    missing = f"rm: cannot remove '*.{ending}': No such file or directory"
    commands: list[str | Move] = [
        f"rm {folder}/*.{ending}",
        bash(f"rm *.{ending}", missing, 1),
        f"rm -r {folder}",
        f"rm {folder}/*",
    ]
    files = {f"{folder}/{word}.{ending}": "x\n" for word in few[1:4]} | {f"{folder}/{few[4]}.txt": "keep\n"}
    check = f'[ "$(ls {folder} 2>/dev/null)" = "{few[4]}.txt" ]'
    return _exercise("delete", asked, commands, files, check)


def follow(rng: Random) -> Exercise:
    """Copy a code from a file whose name is in another file."""
    few = words(rng, 4)
    start, other, out = f"{few[0]}.txt", f"{few[1]}.txt", f"{few[2]}.txt"
    code = rng.randint(1000, 9999)
    asked = rng.choice(
        (
            f"{start} names a file that holds a code. Write the code to {out}.",
            f"Find the code: {start} says in which file it is. Write it to {out}.",
        )
    )
    first, second = bash(f"cat {start}", other), bash(f"cat {other}", str(code))
    attempts: list[tuple[Move, ...]] = [
        (first, second, bash(f"echo {code} > {out}"), SUBMIT),
        (first, bash(f"echo {other} > {out}"), SUBMIT),
        (first, bash(f"cp {other} {start}"), SUBMIT),
        (first, second, bash(f"echo {other} > {out}"), SUBMIT),
        (first, second, SUBMIT),
    ]
    return _of_attempts("follow", asked, attempts, {start: other + "\n", other: f"{code}\n"}, _holds(out, str(code)))


def first_lines(rng: Random) -> Exercise:
    """Copy the first lines of a file."""
    few = words(rng, 8)
    file, out, many = f"{few[0]}.txt", f"{few[1]}.txt", rng.randint(2, 4)
    lines = _lines(rng, few[2:], 7, 9)
    asked = rng.choice(
        (f"Write the first {many} lines of {file} to {out}.", f"Copy the top {many} lines of {file} into {out}.")
    )
    commands = [
        f"head -n {many} {file} > {out}",
        f"tail -n {many} {file} > {out}",
        f"head -c {many} {file} > {out}",
        f"cp {file} {out}",
    ]
    return _exercise(
        "first_lines", asked, commands, {file: "\n".join(lines) + "\n"}, _holds(out, "\n".join(lines[:many]))
    )


FAMILIES: dict[str, Family] = {
    "count": count,
    "rename": rename,
    "unpack": unpack,
    "configure": configure,
    "unique": unique,
    "largest": largest,
    "delete": delete,
    "follow": follow,
}
HELD_BACK: dict[str, Family] = {"first_lines": first_lines}
