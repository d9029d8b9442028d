"""The wheel in an environment of its own, which `make test-wheel` makes: what works without torch, and with extras."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
BUILT = ROOT / "build" / "wheel"
# What each extra brings.
EXTRAS = {
    "structured": "llguidance",
    "envs": "yaml, pytest",
    "math": "math_verify",
    "parquet": "pyarrow",
    "mcp": "mcp",
    "gymnasium": "gymnasium",
    "screen": "playwright",
    "miniwob": "miniwob",
    "local": "torch, transformers, peft, safetensors, numpy, llguidance",
    "demo": "openai, matplotlib",
    "lowbits": "bitsandbytes",
    "page": "playwright",
    "notebooks": "nbclient, ipykernel",
    "ray": "ray",
    "tensorboard": "tensorboard",
    "trackio": "trackio",
    "mlflow": "mlflow, sqlalchemy, alembic",
    "wandb": "wandb",
    "otel": "opentelemetry.sdk.trace, opentelemetry.exporter.otlp.proto.http.trace_exporter",
    "bench": "trl, datasets, jsonschema",
    "fuzz": "schemathesis",
}
APART = {"dev", "docs", "oracle", "bridges", "verifiers"}  # for development, or with environments of their own
pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]
IS_FULL = os.environ.get("FULL") == "1"
FULL = pytest.mark.skipif(not IS_FULL, reason="installs torch and all extras: make test-wheel FULL=1")


def called(command: list[str], *, where: Path, timeout_s: float = 120.0) -> str:
    """What a program prints, run in another folder and without this clone in its path."""
    words = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "OPENCLAW_RL_HOME")}
    done = subprocess.run(command, cwd=where, env=words, capture_output=True, text=True, timeout=timeout_s, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def wheel() -> Path:
    found = sorted(BUILT.glob("*.whl"))
    if not found:
        pytest.skip("no wheel in build/wheel: run `make test-wheel`")
    return found[-1]


@pytest.fixture(scope="session")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of an environment that has the wheel and what it requires, no more."""
    where, bin_folder = tmp_path_factory.mktemp("clean"), BUILT / "env" / "bin"
    file = wheel()
    venv.create(BUILT / "env", clear=True, with_pip=True)
    pip = [str(bin_folder / "python"), "-m", "pip", "install", "--disable-pip-version-check", "--quiet"]
    called([*pip, str(file)], where=where, timeout_s=1200)
    return bin_folder


def test_the_program_works_without_torch(clean: Path, tmp_path: Path) -> None:
    program = str(clean / "openclaw-rl")
    assert called([program, "--version"], where=tmp_path).startswith("openclaw-rl ")
    assert "serve" in called([program, "--help"], where=tmp_path)
    assert "[engine]" in called([program, "settings"], where=tmp_path)
    called([program, "init", "--model", "bundled", "--home", str(tmp_path / "home")], where=tmp_path)
    assert "ExecStart" in called(
        [program, "service", "install", "--print", "--manager", "systemd", "--home", str(tmp_path / "home")],
        where=tmp_path,
    )
    look = "import importlib.util, openclaw_rl; print(openclaw_rl.__file__, importlib.util.find_spec('torch'))"
    file, torch = called([str(clean / "python"), "-c", look], where=tmp_path).split()
    assert Path(file).is_relative_to(BUILT)
    assert torch == "None"


def test_what_needs_torch_says_how_to_get_it(clean: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [str(clean / "openclaw-rl"), "tiny", "score", "--count", "1"],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert "pip install 'openclaw-rl[local]'" in done.stderr


def test_types_of_the_package_are_seen_by_others(clean: Path, tmp_path: Path) -> None:
    (tmp_path / "user.py").write_text("import openclaw_rl\nreveal_type(openclaw_rl.__version__)\n")
    told = called(
        [sys.executable, "-m", "mypy", "--strict", "--python-executable", str(clean / "python"), "user.py"],
        where=tmp_path,
        timeout_s=600,
    )
    assert 'Revealed type is "' in told and "str" in told and "missing" not in told


def test_every_extra_is_tried_or_stands_apart() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    assert set(EXTRAS) | APART == set(declared)


@FULL
@pytest.mark.parametrize("extra", EXTRAS)
def test_what_an_extra_brings_can_be_imported(clean: Path, tmp_path: Path, extra: str) -> None:
    pip = [str(clean / "python"), "-m", "pip", "install", "--disable-pip-version-check", "--quiet"]
    called([*pip, f"{wheel()}[{extra}]"], where=tmp_path, timeout_s=3000)
    called([str(clean / "python"), "-c", f"import {EXTRAS[extra]}"], where=tmp_path, timeout_s=300)


@FULL
def test_the_demonstration_runs(clean: Path, tmp_path: Path) -> None:
    called([str(clean / "openclaw-rl"), "demo", "--out", str(tmp_path / "demo")], where=tmp_path, timeout_s=3000)
    assert (tmp_path / "demo" / "report.html").is_file()
