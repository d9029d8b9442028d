"""A library that bugs are put into: its archive, the paths of its code and tests, and its licence."""

from __future__ import annotations

import gzip
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from openclaw_rl.envs.tasks.repos import unpacked
from openclaw_rl.errors import ConfigError, TaskError

ARCHIVES = (".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
REQUIREMENT = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]*(==[A-Za-z0-9.!+_-]+)?$")
TESTS = ("tests", "test")
LEFT_OUT = {".git", ".hg", ".tox", ".nox", ".venv", "venv", "build", "dist", "node_modules", "__pycache__"}
NO_CODE = {"docs", "doc", "examples", "example", "benchmarks", "scripts", "tools", "tasks", "setup", "conftest"}
NO_CODE |= {"noxfile", "fabfile", "__main__"}
FETCH_S = 600.0


@dataclass(frozen=True, slots=True)
class Library:
    """A library, unpacked."""

    name: str  # with its version if that is known
    archive: Path
    tree: Path
    code: str  # the folder for PYTHONPATH, relative to the tree
    tests: str  # a folder or a file, relative to the tree
    licence: str

    @property
    def test_cmd(self) -> str:
        """The command that runs the whole suite, without the project's own options, which may need plug-ins."""
        return f"PYTHONPATH={self.code}:$PYTHONPATH python3 -m pytest -q -p no:cacheprovider -o addopts= {self.tests}"

    def modules(self) -> list[str]:
        """The files with code, relative to the tree, in order."""
        above = self.tree / self.code
        found = []
        for path in sorted(above.rglob("*.py")):
            inside = path.relative_to(above)
            own = path.relative_to(self.tree).as_posix()
            tested = PurePosixPath(own).is_relative_to(self.tests) or path.name.startswith("test_")
            if not tested and not {*inside.parts[:-1], inside.stem} & (NO_CODE | LEFT_OUT | set(TESTS)):
                found.append(own)
        return found


def take_library(given: str, place: Path, *, tests: str = "") -> Library:
    """A library from an archive, a folder, or a name whose source pip fetches; its archive goes to `place`.

    `place` gets `archives/` with the archive and `tree/`, unpacked. TaskError if it has no tests or no code.
    """
    archives = place / "archives"
    archives.mkdir(parents=True, exist_ok=True)
    path = Path(given)
    if path.is_dir():
        archive = _packed(path.resolve(), archives)
    elif path.is_file() and path.name.endswith(ARCHIVES):
        archive = Path(shutil.copy2(path, archives))
    elif REQUIREMENT.match(given) and not path.exists():
        archive = _fetched(given, archives)
    else:
        raise ConfigError(
            f"{given} is not a library",
            fix=f"give a folder, a source archive ({', '.join(ARCHIVES)}) or a name for pip",
        )
    tree = unpacked(archive, place / "tree")
    name = next(archive.name.removesuffix(end) for end in ARCHIVES if archive.name.endswith(end))
    code = "src" if (tree / "src").is_dir() else "."
    return Library(name, archive, tree, code, _tests(tree, name, tests), _licence(tree))


def _fetched(name: str, place: Path) -> Path:
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
        done = subprocess.run(
            [*words, "--dest", folder, name], capture_output=True, text=True, timeout=FETCH_S, check=False
        )
        found = [path for path in Path(folder).iterdir() if path.name.endswith(ARCHIVES)]
        if done.returncode != 0 or not found:
            said = " ".join(done.stderr.split())[-300:]
            raise TaskError(f"pip gave no source of {name}: {said}", fix="give its folder or its source archive")
        return Path(shutil.copy2(found[0], place))


def _packed(folder: Path, place: Path) -> Path:
    """A reproducible archive of a folder."""
    archive = place / f"{folder.name}.tar.gz"

    def plain(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
        if set(PurePosixPath(info.name).parts) & LEFT_OUT or not (info.isfile() or info.isdir()):
            return None
        info.uid = info.gid = info.mtime = 0
        info.uname = info.gname = ""
        return info

    with gzip.GzipFile(archive, "wb", mtime=0) as packed, tarfile.open(fileobj=packed, mode="w") as file:
        file.add(folder, folder.name, filter=plain)
    return archive


def _tests(tree: Path, name: str, given: str) -> str:
    """The path of the tests: a folder at the top, else the one with the most tests, else a single file."""
    if given:
        if not (tree / given).exists():
            raise TaskError(f"{name} has no {given}", fix="name a folder or a file of its source")
        return PurePosixPath(given).as_posix()
    top = [found for found in TESTS if any((tree / found).rglob("test_*.py")) or any((tree / found).rglob("*_test.py"))]
    inner = Counter(path.parent.relative_to(tree).as_posix() for path in tree.glob("*/**/test_*.py"))
    ranked = sorted((-count, one) for one, count in inner.items() if PurePosixPath(one).name in TESTS)
    single = [path.name for path in sorted(tree.glob("*test*.py"))]
    candidates = [*top, *(one for _, one in ranked), *(single if len(single) == 1 else [])]
    if not candidates:
        raise TaskError(
            f"no tests were found in {name}", fix="name them with --tests, or give the project's repository"
        )
    return candidates[0]


def _licence(tree: Path) -> str:
    """The licence in the project's metadata; empty if there is none."""
    for line in _metadata(tree):
        key, _, value = line.partition(":")
        if key == "License-Expression" or (key == "License" and 0 < len(value.strip()) < 60):
            return value.strip()
        if key == "Classifier" and "License ::" in value:
            return value.rpartition("::")[2].strip()
    return ""


def _metadata(tree: Path) -> Iterator[str]:
    path = tree / "PKG-INFO"
    if path.is_file():
        for line in path.read_text("utf-8", "replace").splitlines():
            if not line.strip():
                return
            yield line
