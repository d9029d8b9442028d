"""Our box as an environment of Harbor: tasks run without docker, wherever bubblewrap runs.

`harbor run --path TASKS --agent oracle --environment-import-path openclaw_rl.envs.bridges.harbor_box:HarborBox`, with
this package installed in Harbor's own environment (Python 3.12 or newer).
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from harbor.environments.base import BaseEnvironment, ExecResult
from harbor.environments.capabilities import EnvironmentCapabilities, EnvironmentResourceCapabilities

from openclaw_rl.envs.box.probe import open_boxes
from openclaw_rl.envs.box.sandbox import Boxes, BoxLimits, BoxSpec, KilledBy, Sandbox
from openclaw_rl.envs.tasks.building import build

MOST_DISK_MB = 4096  # a box's files are in memory: a task that asks for more gets this much
KEPT_BYTES = 4 << 20  # of each stream: Harbor's agents send files through it
NO_LIMIT_S = 86_400.0
BUILD_S = 600.0
ROOT = (None, "root", "0", 0)


class HarborBox(BaseEnvironment):  # type: ignore[misc]
    """One task's environment: an overlay built from the subset of Dockerfiles that docs/environments.md names."""

    _boxes: Boxes | None = None
    _box: Sandbox | None = None

    @staticmethod
    def type() -> str:
        """Its name in Harbor."""
        return "openclaw-rl"

    @property
    def capabilities(self) -> EnvironmentCapabilities:
        """It can isolate from the network; it has no GPUs, no services and no mounts."""
        return EnvironmentCapabilities(disable_internet=True)

    @classmethod
    def resource_capabilities(cls) -> EnvironmentResourceCapabilities:
        """It limits memory and cores."""
        return EnvironmentResourceCapabilities(cpu_limit=True, memory_limit=True)

    def _validate_definition(self) -> None:
        if not (self.environment_dir / "Dockerfile").is_file():
            raise FileNotFoundError(f"{self.environment_dir / 'Dockerfile'}: without an engine, only this can be built")

    async def start(self, force_build: bool) -> None:
        """Builds the environment and makes a box of it. Forcing changes nothing: nothing is cached."""
        config = self.task_env_config
        limits = BoxLimits(
            memory_mb=config.memory_mb or 2048,
            disk_mb=min(config.storage_mb or MOST_DISK_MB, MOST_DISK_MB),
            cpus=config.cpus or None,
            kept_bytes=KEPT_BYTES,
        )
        spec = BoxSpec(env=self._startup_env(), network=not self._network_disabled, limits=limits)
        self._boxes = await open_boxes()
        built = await build(self.environment_dir, spec, self._boxes, timeout_s=config.build_timeout_sec or BUILD_S)
        self._box = await self._boxes.create(built.spec, at=built.at)
        await self.ensure_dirs(self._mount_targets(writable_only=True))

    async def stop(self, delete: bool) -> None:
        """Removes the box; stopping always deletes."""
        boxes, self._boxes, self._box = self._boxes, None, None
        if boxes is not None:
            await boxes.aclose()

    @property
    def _running(self) -> Sandbox:
        if self._box is None:
            raise RuntimeError("the environment was not started")
        return self._box

    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        """The result of a command. A box has one user; a task that wants another is refused."""
        wanted = self._resolve_user(user)
        if wanted not in ROOT:
            raise ValueError(f"user {wanted!r}: there is only root in a box")
        done = await self._running.exec(
            command,
            timeout_s=NO_LIMIT_S if timeout_sec is None else timeout_sec,
            cwd=cwd or self.task_env_config.workdir,
            env=self._merge_env(env),
        )
        if done.killed_by is KilledBy.TIMEOUT:
            raise RuntimeError(f"the command took longer than {timeout_sec} s")
        return ExecResult(stdout=done.stdout.text, stderr=done.stderr.text, return_code=done.exit_status)

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        """Copies a file into the box."""
        await self._running.upload(Path(source_path), target_path)

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        """Copies a folder's content into the box."""
        await self._running.upload(Path(source_dir), target_dir)

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        """Copies a file out of the box."""
        data = await self._running.read(source_path)
        target = Path(target_path)
        target.parent.mkdir(parents=True, exist_ok=True)
        await asyncio.to_thread(target.write_bytes, data)

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        """Copies a folder's content out of the box. Links and devices are not copied."""
        await self._running.download(source_dir, Path(target_dir))
