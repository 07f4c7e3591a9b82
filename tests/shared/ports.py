"""Ports for servers that must be told one, and for connections that nobody takes.

The kernel gives any free port of its range to whoever connects somewhere: a port of that range which was free a moment
ago is another test's now and then. These are outside of it, and no two workers of a run have the same.
"""

from __future__ import annotations

import os
import random
import socket
from functools import cache
from pathlib import Path

LOWEST = 10_000
WORKERS = 16
_given: set[int] = set()


def free_port() -> int:
    """A port that nobody has on any address; each once in a process."""
    for port in random.sample(_ours(), len(_ours())):
        if port not in _given and _is_free(port):
            _given.add(port)
            return port
    raise AssertionError(f"no port of {_ours()} is free")


@cache
def _ours() -> range:
    first, last = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    below, above = range(LOWEST, first), range(last + 1, 65536)
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]) % WORKERS
    return max(below, above, key=len)[worker::WORKERS]


def _is_free(port: int) -> bool:
    with socket.socket() as one:
        try:
            one.bind(("", port))
        except OSError:
            return False
    return True
