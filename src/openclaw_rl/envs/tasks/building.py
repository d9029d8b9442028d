"""A task's environment built in a box from its Dockerfile."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

from openclaw_rl.envs.box.sandbox import Boxes, BoxSpec, Sandbox
from openclaw_rl.envs.tasks.dockerfile import BuildPlan, BuildStep, recipe_of
from openclaw_rl.envs.tasks.prepared import PreparedState
from openclaw_rl.envs.tasks.source import UnsupportedTaskError, in_a_box
from openclaw_rl.errors import TaskError

# A package's command or module, if Debian names the package otherwise
MODULE_OF = {"python3-pytest": "pytest", "python3-pip": "pip", "pyyaml": "yaml", "python3-yaml": "yaml"}
ALWAYS_THERE = {"bash", "coreutils", "python3-venv", "ca-certificates", "findutils", "procps", "util-linux", "gawk"}
COMMAND_OF = {"gnupg": "gpg", "git-core": "git", "build-essential": "gcc", "python3-minimal": "python3"}


async def build(folder: Path, spec: BoxSpec, boxes: Boxes, *, timeout_s: float) -> PreparedState:
    """The environment of a folder with a Dockerfile: built by the engine if there is one, else interpreted."""
    image = await boxes.build_image(folder, timeout_s=timeout_s)
    if image is not None:
        return PreparedState(replace(spec, base=image), None)
    if not boxes.has_root:
        raise UnsupportedTaskError(
            "the task needs a box with its own root file system", fix="install bubblewrap, or use docker or podman"
        )
    recipe = recipe_of(folder)
    box = await boxes.create(replace(spec, workdir="/", env={}))
    try:
        await _check_packages(box, recipe)
        for step in recipe.steps:
            await _do(box, step, timeout_s=timeout_s)
        snapshot = await box.snapshot()
    finally:
        await box.aclose()
    return PreparedState(replace(spec, workdir=recipe.workdir, env={**recipe.env, **spec.env}), snapshot)


async def _do(box: Sandbox, step: BuildStep, *, timeout_s: float) -> None:
    if step.source is not None:
        await box.upload(step.source, step.target)
        if step.mode:
            await box.exec(["chmod", "-R", step.mode, step.target], timeout_s=timeout_s, cwd="/")
        return
    done = in_a_box(await box.exec(step.command, timeout_s=timeout_s, cwd=step.workdir, env=step.env))
    if not done.is_ok:
        how = done.killed_by or f"status {done.exit_status}"
        said = (done.stderr.text or done.stdout.text).strip()[-300:]
        raise TaskError(f"the environment cannot be built: `{step.command[:200]}` ended with {how}: {said}")


async def _check_packages(box: Sandbox, recipe: BuildPlan) -> None:
    """Checks that what the Dockerfile installs is present: nothing can be installed without an engine."""
    tests = [_has_package(name) for name in recipe.packages] + [_has_module(name) for name in recipe.modules]
    names = [*recipe.packages, *recipe.modules]
    if not names:
        return
    script = "\n".join(
        f"{{ {test}; }} >/dev/null 2>&1 || echo {shlex.quote(name)}" for name, test in zip(names, tests, strict=True)
    )
    missing = (await box.exec(script, timeout_s=60.0, cwd="/")).stdout.text.split()
    if missing:
        raise UnsupportedTaskError(
            f"the environment needs {', '.join(missing)}, which this machine does not have",
            fix=f"install {'it' if len(missing) == 1 else 'them'} here, or use docker or podman",
        )


def _has_package(name: str) -> str:
    if name in ALWAYS_THERE:
        return "true"
    if name in MODULE_OF or name.startswith("python3-"):
        return _has_module(MODULE_OF.get(name, name.removeprefix("python3-")))
    documented = f"test -e /usr/share/doc/{shlex.quote(name)}"  # Debian puts a folder there for each package
    return f"command -v {shlex.quote(COMMAND_OF.get(name, name))} || {documented}"


def _has_module(name: str) -> str:
    module = MODULE_OF.get(name.lower(), name.replace("-", "_"))
    return f"python3 -c {shlex.quote(f'import {module}')}"
