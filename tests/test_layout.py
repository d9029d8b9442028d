"""Who may import whom: the table of the architecture, held against every import statement."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "src" / "openclaw_rl"
HEAVY = {"torch", "transformers", "peft", "llguidance"}

# package -> the packages of ours it may import, beside itself and `errors`
STAGES = ("collect", "judge", "teach", "train", "publish", "serve", "envs")
PARTS = {*STAGES, "core", "wording", "render", "store", "engines", "trainers", "telemetry", "cluster"}
ALLOWED: dict[str, set[str]] = {
    "core": set(),
    "wording": set(),
    "algo": set(),
    "telemetry": {"core"},
    "weights": set(),
    "plan": set(),
    "render": {"core"},
    "store": {"core", "wording"},
    **{stage: {"core", "wording", "render", "store"} for stage in (*STAGES, "testing")},
    "cluster": {"core"},
    "engines": {"core", "algo", "weights"},
    "trainers": {"core", "algo", "weights"},
    "tiny": {"core", "render", "envs", "judge", "wording"},  # docs/decisions/0001-import-table.md
    "evals": {"core", "render", "envs", "tiny", "wording"},
    "agents": {"core", "envs", "evals"},  # a client: it reaches the server over HTTP alone
    "ui": {"core", "serve"},
    # An installation: the lower ones know nothing of those after them.
    "config": PARTS,
    "home": {"core", "store", "serve", "tiny", "config"},
    "connect": {"core", "home"},
    "remake": PARTS | {"config", "home"},
    "doctor": PARTS | {"config", "home", "remake"},
    "runtime": PARTS | {"config", "home", "remake", "doctor", "ui"},
    "owner": PARTS | {"config", "home", "remake", "runtime"},
    "cli": PARTS
    | {"config", "home", "remake", "runtime", "owner", "doctor", "connect", "evals", "tiny", "agents", "plan"},
}
MAY_LOAD: dict[str, set[str]] = {
    "algo": {"torch"},
    "weights": {"torch"},
    "engines": HEAVY,
    "trainers": HEAVY,
    "tiny": HEAVY,
    "doctor": {"transformers"},  # whether it knows the model, asked of its configuration alone
}
ROOT = {"errors", "__init__", "__main__"}


def _imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found.add(node.module)
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def _packages() -> list[str]:
    """The rooms, and the modules next to them, that the table is about."""
    found = {path.relative_to(PACKAGE).parts[0].removesuffix(".py") for path in PACKAGE.rglob("*.py")}
    return sorted(found - ROOT)


def _forbidden(path: Path, package: str) -> Iterator[str]:
    """What a module imports that its package may not."""
    for name in sorted(_imports(path)):
        parts = name.split(".")
        is_ours = parts[0] == "openclaw_rl" and len(parts) > 1
        is_room = is_ours and (parts[1] == "config" or (PACKAGE / parts[1]).is_dir())
        if is_room and parts[1] not in {package, *ALLOWED[package]}:
            yield f"{path.relative_to(PACKAGE)} imports {name}"
        if parts[0] in HEAVY - MAY_LOAD.get(package, set()):
            yield f"{path.relative_to(PACKAGE)} loads {parts[0]}"


@pytest.mark.parametrize("package", _packages())
def test_a_module_imports_only_what_the_architecture_allows(package: str) -> None:
    folder = PACKAGE / package
    paths = sorted(folder.rglob("*.py")) if folder.is_dir() else [folder.with_suffix(".py")]
    assert [fault for path in paths for fault in _forbidden(path, package)] == []


def test_core_needs_the_standard_library_alone() -> None:
    for path in (PACKAGE / "core").rglob("*.py"):
        for name in _imports(path):
            top = name.split(".")[0]
            assert top == "openclaw_rl" or top in sys.stdlib_module_names, f"{path.name} imports {name}"


def test_importing_the_package_and_its_stages_loads_nothing_heavy() -> None:
    script = (
        "import sys, openclaw_rl, openclaw_rl.core.protocols, openclaw_rl.collect.stage, openclaw_rl.judge.stage, "
        "openclaw_rl.train.stage, openclaw_rl.publish.stage, openclaw_rl.serve.app;"
        "print([name for name in ('torch', 'transformers', 'peft', 'llguidance') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
