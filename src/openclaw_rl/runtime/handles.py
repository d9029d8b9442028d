"""How many files and connections this process may have open."""

from __future__ import annotations

import logging
import sys

log = logging.getLogger(__name__)
OWN = 128  # for the store, children's pipes, adapters being read, and what else is no connection


def room_for(connections: int) -> int:
    """How many connections there are handles for, at most those asked for; the process's bound is raised for them."""
    if sys.platform == "win32":
        return connections
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + OWN
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    if most < wanted:
        told = "connections=%d instead of %d: the system allows this process %d open files"
        log.warning(told, most - OWN, connections, most)
    return max(1, most - OWN)
