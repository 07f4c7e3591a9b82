"""Notifies systemd, or another manager that has set NOTIFY_SOCKET, that the process is ready, alive, or stopping.

One datagram for each message (sd_notify(3)); without a socket nothing is sent. Its owner calls `turn` in its loop,
which sends the watchdog's heartbeat as often as systemd wants it: a loop that hangs sends none, and is restarted. A
start or stop that takes longer than systemd allows is extended as long as that loop turns.

Invariant: children do not inherit the socket, so that none of them can speak for the service.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, MutableMapping
from contextlib import suppress

EXTEND_EVERY_S = 5.0
EXTENDED_S = 30.0
_VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")


class ServiceManager:
    """The manager that started this process and wants to be notified."""

    def __init__(self, address: str = "", watchdog_s: float = 0.0, clock: Callable[[], float] = time.monotonic) -> None:
        """`address`: a path, or `@name` in the abstract namespace; empty: none. `watchdog_s`: how long the manager
        waits for a heartbeat.
        """
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._every_s = watchdog_s / 3
        self._clock = clock
        self._alive_at = self._extended_at = -1e9
        self._is_ready = self._is_stopping = False

    @classmethod
    def from_environment(cls, environment: MutableMapping[str, str] | None = None) -> ServiceManager:
        """Reads and removes the environment's variables."""
        found = os.environ if environment is None else environment
        address, watchdog, pid = (found.pop(name, "") for name in _VARIABLES)
        is_ours = pid in ("", str(os.getpid()))
        return cls(address, int(watchdog) / 1e6 if watchdog.isdecimal() and is_ours else 0.0)

    def ready(self, status: str = "") -> None:
        """Reports that all services run."""
        if not self._is_ready:
            self._is_ready = True
            self._send("READY=1", f"STATUS={status}")

    def status(self, text: str) -> None:
        """Sends the status line of `systemctl status`."""
        self._send(f"STATUS={text}")

    def stopping(self) -> None:
        """Reports that it ends, with everything that it has started."""
        if not self._is_stopping:
            self._is_stopping = True
            self._send("STOPPING=1")

    def turn(self) -> None:
        """Called in the loop whose progress proves that the process is alive."""
        if not self._address:
            return
        now = self._clock()
        if self._every_s and now - self._alive_at >= self._every_s:
            self._alive_at = now
            self._send("WATCHDOG=1")
        if (self._is_stopping or not self._is_ready) and now - self._extended_at >= EXTEND_EVERY_S:
            self._extended_at = now
            self._send(f"EXTEND_TIMEOUT_USEC={int(EXTENDED_S * 1e6)}")

    def _send(self, *lines: str) -> None:
        if not self._address:
            return
        text = "\n".join(line.replace("\n", " ") for line in lines)
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)  # never wait for a manager that does not read
            sender.sendto(text.encode(), self._address)
