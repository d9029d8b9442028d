"""The files at the root that other programs read: workflow, citation, site, and what containers are built from."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

from openclaw_rl import __version__
from openclaw_rl.config import ENVIRONMENT, Config
from openclaw_rl.serve.app import ROUTES
from openclaw_rl.serve.settings import ServeSettings

ROOT = Path(__file__).parent.parent.parent


def read(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


def test_the_workflow_runs_what_a_fresh_clone_must_pass() -> None:
    workflow = yaml.safe_load(read(".github/workflows/ci.yml"))
    runs = [step["run"] for job in workflow["jobs"].values() for step in job["steps"] if "run" in step]
    assert runs[0] == ".ci/run"
    assert os.access(ROOT / runs[0], os.X_OK)
    targets = {run.removeprefix("make ") for run in runs[1:]}
    assert targets <= set(re.findall(r"^([a-z][a-z-]*):", read("Makefile"), re.MULTILINE))
    assert workflow["permissions"] == {"contents": "read"}


def test_versions_are_the_packages_everywhere() -> None:
    assert yaml.safe_load(read("CITATION.cff"))["version"] == __version__
    assert f"\n## {__version__} " in read("CHANGELOG.md")
    assert f"openclaw_rl-{__version__}-py3-none-any.whl" in read("docs/install.md")


def test_what_containers_are_built_from_gives_the_wheel(tmp_path: Path) -> None:
    lines = [line for line in read(".dockerignore").splitlines() if line and not line.startswith("#")]
    assert lines[0] == "*" and lines[-1] == "**/__pycache__"
    (source := tmp_path / "source").mkdir()
    for line in lines[1:-1]:
        assert line.startswith("!")
        path = ROOT / line[1:]
        if path.is_dir():
            shutil.copytree(path, source / path.name, ignore=shutil.ignore_patterns("__pycache__", "*.safetensors"))
        else:
            shutil.copy(path, source)
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)]
    subprocess.run(build, cwd=source, check=True, capture_output=True, timeout=200)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {"openclaw_rl/recipes/agent.toml", "openclaw_rl/extensions/openclaw/index.js"} <= set(names)


@pytest.mark.parametrize("name", ["Dockerfile", "Dockerfile.cuda"])
def test_a_container_serves_as_an_ordinary_user_with_the_torch_of_the_package(name: str) -> None:
    text = read(name)
    assert text.index("USER rl") < text.index("ENTRYPOINT")
    assert "make test-image" in text
    for pinned in re.findall(r'"(torch==[^"]+)"', text):
        assert f'"{pinned}"' in read("pyproject.toml")
    copied = re.findall(r"^COPY (?:--from=\S+ )?(\S+)", text, re.MULTILINE)
    assert copied == [".", "/wheels"]


@pytest.mark.parametrize("name", ["Dockerfile", "Dockerfile.cuda"])
def test_what_a_container_starts_is_there(name: str) -> None:
    steps = instructions(read(name))
    entry, command = (json.loads(steps[kind][-1]) for kind in ("ENTRYPOINT", "CMD"))
    assert entry[0] in tomllib.loads(read("pyproject.toml"))["project"]["scripts"]
    started = [sys.executable, "-m", "openclaw_rl", *entry[1:], *command, "--help"]
    subprocess.run(started, check=True, capture_output=True, timeout=120)
    (port,) = steps["EXPOSE"]
    assert int(port) == ServeSettings().port
    check = steps["HEALTHCHECK"][0]
    program, flag, code = json.loads(check[check.index("[") :])
    compile(code, name, "exec")
    assert (program, flag) == ("python", "-c") and f"127.0.0.1:{port}/healthz" in code
    assert ("GET", "/healthz", None) in {(method, path, right) for method, path, _, right in ROUTES}
    (volume,) = steps["VOLUME"]
    assert volume == f"{steps['WORKDIR'][-1]}/{Config().home.name}" and steps["USER"] == ["rl"]
    assert f"mkdir -m 700 {Config().home.name}" in steps["RUN"]
    for variable in re.findall(r"-e (\w+)=", read("docs/install.md")):
        assert variable in ENVIRONMENT


@pytest.mark.parametrize(
    ("name", "index"), [("Dockerfile", ""), ("Dockerfile", "https://cpu"), ("Dockerfile.cuda", "")]
)
def test_the_lines_that_a_container_runs_say_to_a_shell_what_they_mean(tmp_path: Path, name: str, index: str) -> None:
    wheel = tmp_path / "wheels" / f"openclaw_rl-{__version__}-py3-none-any.whl"
    wheel.parent.mkdir()
    wheel.touch()
    for program in ("pip", "apt-get", "useradd", "rm", "mkdir"):  # each says how it was called, and does nothing
        (tmp_path / program).write_text('#!/bin/sh\nprintf "%s" "${0##*/}"; printf " <%s>" "$@"; echo\n')
        (tmp_path / program).chmod(0o755)
    said = []
    for line in instructions(read(name))["RUN"]:
        done = subprocess.run(
            ["/bin/sh", "-c", line.replace("/wheels", str(wheel.parent))],
            env={"PATH": f"{tmp_path}:/usr/bin:/bin", "TORCH_INDEX": index},
            capture_output=True, text=True, timeout=30, check=True,
        )  # fmt: skip
        assert done.stderr == ""
        said += done.stdout.splitlines()
    installed = [line for line in said if line.startswith("pip <install>")]
    (package,) = [re.findall(r"<([^>]+)>", line)[-1] for line in installed if ".whl" in line]
    path, extra = package.removesuffix("]").rsplit("[", 1)
    assert path == str(wheel) and extra in tomllib.loads(read("pyproject.toml"))["project"]["optional-dependencies"]
    assert ("<--index-url> <https://cpu>" in installed[0]) is bool(index)


def instructions(text: str) -> dict[str, list[str]]:
    """What follows each instruction of a Dockerfile, in order; lines that go on are joined, as an engine does."""
    found: dict[str, list[str]] = {}
    for line in re.sub(r"\\\n\s*", "", text).splitlines():
        kind, _, rest = line.partition(" ")
        if line and not line.startswith("#"):
            found.setdefault(kind, []).append(rest)
    known = "FROM WORKDIR COPY RUN ARG ENV USER VOLUME EXPOSE ENTRYPOINT CMD STOPSIGNAL HEALTHCHECK"
    assert set(found) <= set(known.split())
    return found


def test_the_extra_docs_is_what_the_target_installs() -> None:
    (extra,) = re.findall(r"^docs = \[(.+)\]$", read("pyproject.toml"), re.MULTILINE)
    assert extra.replace(", ", " ") in read("Makefile")
