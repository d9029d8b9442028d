"""Runs an installation: its stages and the server, until a signal comes.

Now and then old turns are erased, unneeded weights removed, and freed memory returned.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from functools import partial

from openclaw_rl.config import Config, unused_names
from openclaw_rl.core.memory import give_back
from openclaw_rl.core.version import SHARED
from openclaw_rl.errors import StoreError
from openclaw_rl.home.address import taken
from openclaw_rl.home.folder import KEY
from openclaw_rl.home.models import served_name
from openclaw_rl.publish.pruning import Pruning
from openclaw_rl.runtime.forgetting import Forgetter
from openclaw_rl.runtime.installation import Installation, OpenedHome, grounded, loaded
from openclaw_rl.runtime.listening import listening
from openclaw_rl.store.db import Store

log = logging.getLogger(__name__)

SWITCH_S = 0.001  # other threads must release the interpreter quickly, since streams wait for it
DAY_S = 86_400.0
LOOK_EVERY_S = 3600.0
# The C library keeps freed memory per thread. After some requests of ten thousand messages or a megabyte
# that is hundreds of megabytes, unavailable to others.
GIVE_BACK_EVERY_S = 10.0


async def run(config: Config, *, learn: bool = True, announce: Callable[[str], None], is_private: bool = False) -> None:
    """Serves until a signal comes. The first one ends it cleanly, a second one at once.

    A new key is shown if the output `is_private`: a person's terminal rather than a log.
    """
    os.umask(0o077)  # only the owner can read what this process and its children write
    sys.setswitchinterval(SWITCH_S)
    stop = _stop_signal(announce)
    log.info("starting home=%s", config.home)
    for line in unused_names(has_cluster=bool(config.cluster.address)):
        log.warning("%s", line)
    async with AsyncExitStack() as stack:
        ground = await stack.enter_async_context(grounded(config))  # quick checks come before slow loading
        place = await stack.enter_async_context(taken(config.serve))
        parts = await stack.enter_async_context(loaded(ground))
        forgetter = Forgetter(parts, learns=learn)
        url = await stack.enter_async_context(listening(parts, place, learns=learn, forgetter=forgetter))
        group = await stack.enter_async_context(asyncio.TaskGroup())
        keep = parts.upkeep.keep
        background = [
            group.create_task(keep("memory", giving_back)),
            group.create_task(keep("collect", parts.collect.run)),
        ]
        kept = partial(retaining, parts.store, config.store.keep_days)
        background.append(group.create_task(keep("store", kept)))
        background.append(group.create_task(keep("forgetting", forgetter.run)))
        background.append(group.create_task(keep("versions", partial(prune, parts.pruning))))
        if learn:
            background.append(group.create_task(parts.learning.run()))
        log.info("set aside objects=%d", set_aside())
        _introduce(parts, url, announce)
        announce(_about_key(ground, is_private=is_private))
        await stop.wait()
        parts.activity.stop()
        for task in background:  # learning stops first; present requests are finished after it
            task.cancel()
    announce("stopped; nothing is lost")


def _stop_signal(announce: Callable[[str], None]) -> asyncio.Event:
    """Set by the first SIGINT or SIGTERM. The second leaves at once: what was acknowledged is in the store."""
    stop = asyncio.Event()

    def on_signal() -> None:
        if stop.is_set():
            os._exit(130)
        announce("finishing what is being answered; press Ctrl-C again to leave at once")
        stop.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal)
    return stop


def _introduce(parts: Installation, url: str, announce: Callable[[str], None]) -> None:
    info = parts.engine.info
    size = f"{info.parameters / 1e6:.1f} M parameters, {info.device}, {info.dtype}"
    announce(f"serving {served_name(parts.config.model)} ({size}) at {url}/v1")
    announce(f"is it learning? {url}/ in a browser shows it, signed in with the API key")
    announce(f"version {parts.served.current(SHARED)}; home {parts.config.home}")


def _about_key(ground: OpenedHome, *, is_private: bool) -> str:
    """Where the key is; the key itself once, to the person who started the server."""
    if ground.config.serve.api_key:
        return "the API key is the one given"
    place = ground.config.home / KEY
    if ground.is_key_new and is_private:
        return f"API key, shown this once: {ground.key} (kept in {place})"
    return f"the API key is in {place}"


async def retain(store: Store, keep_days: float, *, now_s: Callable[[], float] = time.time) -> int:
    """One pass; returns how many turns were erased. 0 days keep everything."""
    if not keep_days:
        return 0
    erased = 0
    while count := await store.erase_older(now_s() - keep_days * DAY_S):
        erased += count
    went = await store.pictures.sweep()
    if erased:
        log.info("erased turns=%d pictures=%d older_than_days=%g", erased, went, keep_days)
    return erased


async def prune(pruning: Pruning) -> None:
    """Prunes weights at once, after each version that leaves the gate, and every hour.

    Runs until cancelled. Failures are tried again at the next pass.
    """
    while True:
        pruning.due.clear()
        try:
            await pruning.once()
        except (StoreError, OSError) as problem:
            log.warning("versions that are not needed could not be pruned: %s", problem)
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_EVERY_S):
                await pruning.due.wait()


async def retaining(store: Store, keep_days: float) -> None:
    """Runs a pass at once and then every hour. Runs until cancelled."""
    while True:
        try:
            await retain(store, keep_days)
        except StoreError as problem:  # the disk may have room again at the next pass
            log.warning("what is too old could not be erased: %s", problem)
        await asyncio.sleep(LOOK_EVERY_S)


def set_aside() -> int:
    """Excludes all present objects from garbage collection; returns their number."""
    gc.collect()
    gc.freeze()
    return gc.get_freeze_count()


async def giving_back(every_s: float = GIVE_BACK_EVERY_S) -> None:
    """Returns freed memory now and then, until cancelled."""
    can = True
    while can:
        await asyncio.sleep(every_s)
        can = await asyncio.to_thread(give_back)
