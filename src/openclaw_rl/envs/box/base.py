"""The base of a box made from this machine: a small separate tree, /usr bound in, and only chosen files of /etc."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import stat
import subprocess
import tempfile
from pathlib import Path

from openclaw_rl.errors import BoxError

PYTHON_FOLDER = "/.python"  # at the top: a box could rename the parent of a deeper folder
PYTHON_PACKAGES = ("pytest", "_pytest", "pluggy", "iniconfig", "packaging", "pygments", "py")
FOLDERS = (
    *("app", "dev", "etc", "home", "logs", "mnt", "opt", "proc", "root", "run", "srv", "usr", "var/cache"),
    *("var/lib", "var/log", "var/spool", "media", PYTHON_FOLDER.lstrip("/")),
)
OPEN_FOLDERS = ("tmp", "var/tmp")
LINKED = ("bin", "sbin", "lib", "lib64", "lib32", "libx32")
# Of /etc only these files are in a box: no accounts, keys, hosts or settings of this machine.
ETC = (
    *(
        "ld.so.cache",
        "ld.so.conf",
        "ld.so.conf.d",
        "alternatives",
        "ssl/certs/ca-certificates.crt",
        "ssl/openssl.cnf",
        "mime.types",
    ),
    *("services", "protocols", "localtime", "timezone", "debian_version", "os-release", "lsb-release", "magic"),
    *("python3", "python3.9", "python3.10", "python3.11", "python3.12", "python3.13", "python3.14", "perl"),
)
WRITTEN = {
    "passwd": "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
    "group": "root:x:0:\ntty:x:5:\nnogroup:x:65534:\n",
    "hosts": "127.0.0.1 localhost box\n",
    "hostname": "box\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
    "resolv.conf": "",
    "shells": "/bin/sh\n/bin/bash\n",
}
ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "USER": "root",
    "LANG": "C.UTF-8",
    "TERM": "dumb",
    "PYTHONDONTWRITEBYTECODE": "1",
}


def cached_base(above: Path, owner: int) -> tuple[Path, Path | None]:
    """The tree, and the folder with pytest (None if this interpreter has none); both are made once and shared.

    They belong to `owner`, nobody may write them, and they are rebuilt when this machine's libraries change.
    """
    place = above / f"openclaw-rl-base-{owner}-{_key()}"
    if not place.exists():
        new = Path(tempfile.mkdtemp(prefix=".openclaw-rl-base-", dir=above))
        make_host_base(new / "base")
        make_python_folder(new / "python")
        _compile(new / "python")
        give(new, owner)
        try:
            new.rename(place)
        except OSError:  # another process was faster
            shutil.rmtree(new)
    facts = place.lstat()
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != owner or facts.st_mode & 0o077:
        raise BoxError(f"{place} was changed since this program made it", fix="remove it")
    return place / "base", place / "python" if (place / "python" / "pytest").exists() else None


def give(folder: Path, owner: int) -> None:
    """Makes a user the owner of a folder and its content."""
    if owner == os.geteuid():
        return
    for root, folders, files in os.walk(folder):
        for name in (*folders, *files):
            os.lchown(os.path.join(root, name), owner, owner)
    os.lchown(folder, owner, owner)


def _key() -> str:
    """What the base depends on."""
    pytest = importlib.util.find_spec("pytest")
    paths = [Path(__file__), Path("/etc/ld.so.cache"), Path("/etc/alternatives")]
    paths += [Path(pytest.origin)] if pytest is not None and pytest.origin is not None else []
    facts = [f"{path} {path.stat().st_mtime_ns}" for path in paths if path.exists()]
    return hashlib.blake2b("\n".join(facts).encode(), digest_size=8).hexdigest()


def make_host_base(folder: Path) -> None:
    """Lays out the tree. /usr is bound over its empty folder when a box is made."""
    for name in (*FOLDERS, *OPEN_FOLDERS):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for name in OPEN_FOLDERS:
        (folder / name).chmod(0o1777)
    for name in LINKED:
        if Path("/", name).is_symlink():
            (folder / name).symlink_to(os.readlink(f"/{name}"))
        elif Path("/", name).is_dir():
            (folder / name).mkdir()
    for name in ETC:
        _copy_public(Path("/etc", name), folder / "etc" / name)
    for name, text in WRITTEN.items():
        (folder / "etc" / name).write_text(text)


def host_folders() -> list[str]:
    """The folders of this machine that are bound into the tree, read-only."""
    return ["/usr", *(f"/{name}" for name in LINKED if Path("/", name).is_dir() and not Path("/", name).is_symlink())]


def make_python_folder(folder: Path) -> None:
    """Lays out pytest and its dependencies, if this interpreter has it, for the tests of tasks."""
    folder.mkdir()
    for name in PYTHON_PACKAGES:
        found = importlib.util.find_spec(name)
        if found is None or found.origin is None:
            continue
        if found.submodule_search_locations:
            source = Path(found.submodule_search_locations[0])
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copyfile(found.origin, folder / Path(found.origin).name)


def _compile(folder: Path) -> None:
    """Compiles for this machine's own Python, which runs in boxes: tests of tasks then start ten times sooner."""
    python = shutil.which("python3", path=ENVIRONMENT["PATH"])
    if python is not None:
        words = [python, "-I", "-m", "compileall", "-q", str(folder)]
        subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)


def _copy_public(source: Path, target: Path) -> None:
    """Copies world-readable files; links are copied as links."""
    if not source.is_symlink() and not source.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_symlink():
        target.symlink_to(os.readlink(source))
    elif source.is_dir():
        target.mkdir(exist_ok=True)
        for inner in source.iterdir():
            _copy_public(inner, target / inner.name)
    elif source.is_file() and source.stat().st_mode & 0o004:
        shutil.copyfile(source, target)
        target.chmod(source.stat().st_mode & 0o755)
