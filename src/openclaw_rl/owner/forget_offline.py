"""Forgets without a running server: the rows, then every byte of them, then the weights that had learned from them."""

from __future__ import annotations

import asyncio
import time
import uuid
from pathlib import Path

from openclaw_rl.config import Config
from openclaw_rl.errors import StoreError
from openclaw_rl.home.folder import address_of
from openclaw_rl.home.reach import opened
from openclaw_rl.remake.forget_finish import certified, finish_erasing, plan_text, read_plan, rebuild
from openclaw_rl.remake.forget_plan import Certificate, certificate_path, plan_of, summary, write_certificate
from openclaw_rl.runtime.installation import installed
from openclaw_rl.store.forget.book import Phase
from openclaw_rl.store.forget.selection import ForgetSelection, ForgetTarget

__all__ = ["certificate_path", "certificates", "check_alone", "finish", "forget", "preview", "summary"]


async def preview(home: Path, what: ForgetTarget) -> ForgetSelection:
    """What would be erased, counted. Raises ConfigError if nothing has that name, StoreError while a server runs."""
    check_alone(home)
    await asyncio.to_thread(finish_erasing, home)
    async with opened(home) as store:
        return await store.forgettings.preview(what)


async def certificates(home: Path) -> list[Certificate]:
    """The certificates of all forgettings, oldest first."""
    async with opened(home) as store:
        return [read_plan(item).certificate for item in await store.forgettings.all()]


async def forget(config: Config, what: ForgetTarget, *, remake: bool = True, has_records: bool = False) -> Certificate:
    """Forgets and returns the certificate, which is in the home folder too.

    If it is killed, the next call or the next start of the server finishes it. Without `remake` the versions
    are made again there. With `has_records`, files of records outside the home folder are cleaned too, if they still
    exist at their path. Raises ConfigError if nothing of that name is there, StoreError while a server runs.
    """
    check_alone(config.home)
    await finish(config)  # finishes an earlier call
    name, now = uuid.uuid4().hex[:12], time.time()
    async with opened(config.home) as store:
        await store.forgettings.begin(
            what,
            name=name,
            at_s=now,
            planned=lambda sql, found: plan_text(
                plan_of(sql, what, found, name=name, at_s=now, has_records=has_records)
            ),
        )
    await asyncio.to_thread(finish_erasing, config.home)
    if not remake:
        return await _begun(config.home)
    return (await finish(config))[-1]


async def finish(config: Config) -> list[Certificate]:
    """Finishes unfinished forgettings; versions made again go through the gate."""
    check_alone(config.home)
    await asyncio.to_thread(finish_erasing, config.home)
    async with opened(config.home) as store:
        open_ones = [read_plan(item) for item in await store.forgettings.all() if item.phase is not Phase.DONE]
        if not any(plan.past for plan in open_ones):
            return await rebuild(store, config, Path())
    async with installed(config) as parts:
        done = await rebuild(parts.store, config, parts.folder, served=parts.served)
        while await parts.publishing.once():
            pass
        return [await certified(parts.store, config.home, item) for item in done]


def check_alone(home: Path) -> None:
    """Raises StoreError while a server runs on the folder: only the server can drop what it has in memory."""
    address = address_of(home)
    if address is not None:
        raise StoreError(
            f"a server runs on {home} (process {address.pid}), and what it holds in memory cannot be "
            "erased from outside",
            fix="run `openclaw-rl forget`, which asks the server to do it",
        )


async def _begun(home: Path) -> Certificate:
    """The certificate of what is erased; its versions are not yet made again."""
    async with opened(home) as store:
        held = await store.forgettings.unfinished()
        assert held is not None
        certificate = read_plan(held).certificate
        await asyncio.to_thread(write_certificate, home, certificate)
        return certificate
