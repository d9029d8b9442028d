"""Runs an installation: its stages beside the server, until a signal comes."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial

from openclaw_rl.config import Config, unused_names
from openclaw_rl.core.version import SHARED
from openclaw_rl.home.address import taken
from openclaw_rl.home.folder import KEY
from openclaw_rl.home.models import served_name
from openclaw_rl.runtime.forgetting import Forgetter
from openclaw_rl.runtime.installation import Installation, OpenedHome, grounded, loaded
from openclaw_rl.runtime.listening import listening
from openclaw_rl.runtime.upkeep import giving_back, prune, retaining, set_aside

log = logging.getLogger(__name__)
SWITCH_S = 0.001  # threads that work beside the loop must give the interpreter back at once: streams wait for it


async def run(config: Config, *, learn: bool = True, announce: Callable[[str], None], is_private: bool = False) -> None:
    """Serves until a signal comes. The first one ends it in order; a second one at once.

    A key that is made at this start is announced where that `is_private`, a person's terminal rather than a log.
    """
    os.umask(0o077)  # whatever this process and its children write is the owner's alone
    sys.setswitchinterval(SWITCH_S)
    stop = _stop_signal(announce)
    log.info("starting home=%s", config.home)
    for line in unused_names(has_cluster=bool(config.cluster.address)):
        log.warning("%s", line)
    async with AsyncExitStack() as stack:
        ground = await stack.enter_async_context(grounded(config))  # what may be refused comes before what takes long
        place = await stack.enter_async_context(taken(config.serve))
        parts = await stack.enter_async_context(loaded(ground))
        forgetter = Forgetter(parts, learns=learn)
        url = await stack.enter_async_context(listening(parts, place, learns=learn, forgetter=forgetter))
        group = await stack.enter_async_context(asyncio.TaskGroup())
        keep = parts.upkeep.keep
        behind = [group.create_task(keep("memory", giving_back)), group.create_task(keep("collect", parts.collect.run))]
        kept = partial(retaining, parts.store, config.store.keep_days)
        behind.append(group.create_task(keep("store", kept)))
        behind.append(group.create_task(keep("forgetting", forgetter.run)))
        behind.append(group.create_task(keep("versions", partial(prune, parts.pruning))))
        if learn:
            behind.append(group.create_task(parts.learning.run()))
        log.info("set aside objects=%d", set_aside())
        _introduce(parts, url, announce)
        announce(_about_key(ground, is_private=is_private))
        await stop.wait()
        parts.activity.stop()
        for task in behind:  # learning stops first; what is being answered is finished after it
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
    """Where the key is; the key itself once, to whoever started the server."""
    if ground.config.serve.api_key:
        return "the API key is the one given"
    place = ground.config.home / KEY
    if ground.is_key_new and is_private:
        return f"API key, shown this once: {ground.key} (kept in {place})"
    return f"the API key is in {place}"
