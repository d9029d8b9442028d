"""Protects an installation from others: listening address, TLS, and permissions of files."""

from __future__ import annotations

import ipaddress
import logging
import os
import ssl
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from openclaw_rl.core import protocols
from openclaw_rl.core.masked import Private
from openclaw_rl.core.rights import Limits
from openclaw_rl.core.turn import Arrival, Placement, Turn
from openclaw_rl.errors import ConfigError
from openclaw_rl.serve.door.limits import Meter
from openclaw_rl.serve.settings import ServeSettings

log = logging.getLogger(__name__)
MANY = 20_000  # files checked; a folder with more is not ours
_NAMED = 5


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the address. A name that is not `localhost` may be reached by anybody."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_exposure(settings: ServeSettings) -> None:
    """Raises ConfigError if others could reach the server and read its traffic."""
    if is_loopback(settings.host) or settings.tls_cert or settings.plain_public:
        return
    raise ConfigError(
        f"{settings.host} can be reached from other machines, and without TLS others could read keys "
        "and conversations in transit",
        fix="give --tls-cert and --tls-key, listen on 127.0.0.1 and put a proxy that does TLS "
        "in front, or give --plain-public if the network itself is trusted",
    )


def tls_of(settings: ServeSettings) -> ssl.SSLContext | None:
    """The TLS context with the certificate in the settings; None without one. Raises ConfigError."""
    if not settings.tls_cert:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(Path(settings.tls_cert).expanduser(), Path(settings.tls_key).expanduser())
    except (OSError, ssl.SSLError) as problem:
        raise ConfigError(
            f"the certificate {settings.tls_cert} with the key {settings.tls_key} cannot be used: {problem}",
            fix="give PEM files that belong together and that this user can read",
        ) from problem
    return context


def close_folder(home: Path) -> list[str]:
    """Removes others' permissions in the folder; returns the files for which that failed, as messages.

    Runs before anything is served: a folder may have been copied, unpacked or made by hand.
    """
    mended, left = 0, list[str]()
    for path in _inside(home):
        try:
            facts = path.lstat()
            if stat.S_ISLNK(facts.st_mode) or not facts.st_mode & 0o077:
                continue
            path.chmod(stat.S_IMODE(facts.st_mode) & 0o700)
            mended += 1
        except OSError as problem:
            left.append(f"{path} can be read by others and that cannot be changed: {problem.strerror}")
    if mended:
        log.warning("%d files or folders of %s could be read by others; now they cannot", mended, home)
    for line in left[:_NAMED]:
        log.warning("%s", line)
    return left


def _inside(home: Path) -> list[Path]:
    found = [home] if home.is_dir() else []
    for folder, folders, files in os.walk(home):
        found += [Path(folder, name) for name in (*folders, *files)]
        if len(found) > MANY:
            break
    return found[:MANY]


@dataclass(frozen=True, slots=True)
class MeteredCollector:
    """A collector that counts each answer's tokens for its key."""

    collector: protocols.Collector
    meter: Meter

    async def place(self, arrival: Arrival) -> Placement:
        """As the collector places it."""
        return await self.collector.place(arrival)

    async def commit(self, turn: Turn) -> None:
        """As the collector enters it."""
        self.meter.spend(key_of(turn.session), len(turn.prompt) + len(turn.completion.tokens))
        await self.collector.commit(turn)


class GuardGauges(Collector):
    """Requests refused by limits and masked text, read at each scrape."""

    def __init__(self, meter: Meter, masked: Mapping[Private, int]) -> None:
        self._meter = meter
        self._masked = masked

    def collect(self) -> Iterator[Metric]:
        """The present counters."""
        refused = CounterMetricFamily("openclaw_rl_limited", "Requests refused by a key's limits.", labels=["limit"])
        for name, count in self._meter.refused.items():
            refused.add_metric([name], count)
        yield refused
        masked = CounterMetricFamily("openclaw_rl_masked", "Private pieces masked before storing.", labels=["kind"])
        for kind in Private:
            masked.add_metric([kind.value], self._masked.get(kind, 0))
        yield masked


def key_of(session: str) -> str:
    """The name of a session's key, which is a prefix of the session's name."""
    return unquote(session.partition(":")[0])


def meter_of(settings: ServeSettings) -> Meter:
    """The limits of keys that have none of their own."""
    usual = Limits(settings.requests_a_minute, settings.tokens_a_minute, settings.max_body_bytes)
    return Meter(usual, settings.feedback_a_minute)
