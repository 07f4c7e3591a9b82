"""A network of a test's own: what leaves this machine is counted, and every name that is asked for is known.

The calling thread, and what it starts, moves to a network namespace: loopback, and one link with a default route,
behind which nobody is. Whatever leaves for another address adds to the link's counters in /proc/net/dev; listeners on
the link's own address are canaries; a name server of the test's answers at the address that this machine has for its
own, and notes what it is asked. Where the kernel permits none of this there is no fence, and `is_up` says so.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

OWN, BEYOND = "10.77.0.1", "10.77.0.2"
_NEW_NETWORK = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)
_LINK = (
    "link set lo up",
    "link add canary0 type veth peer name canary1",
    f"addr add {OWN}/24 dev canary0",
    "link set canary0 up",
    "link set canary1 up",
    f"neigh add {BEYOND} lladdr 02:00:00:00:00:02 dev canary0",
    f"route add default via {BEYOND}",
)


class Fence:
    """What has been seen at it."""

    def __init__(self) -> None:
        self.is_up = False
        self.names: list[str] = []  # that were asked for
        self.calls: list[str] = []  # of the canaries
        self.port = 0  # of the canaries, TCP and UDP
        self._sockets: list[socket.socket] = []
        self._sent_at_first = 0

    @property
    def sent(self) -> int:
        """Packets that have left for other machines."""
        return _packets_sent() - self._sent_at_first if self.is_up else 0

    def listen(self) -> None:
        """Begins to count. The name servers of this machine are this thread's now."""
        for address in {
            OWN,
            *re.findall(r"^nameserver\s+([\d.]+)", Path("/etc/resolv.conf").read_text(), re.MULTILINE),
        }:
            if not address.startswith("127.") and address != OWN:
                _ip(f"addr add {address}/32 dev lo")
            if address != OWN:
                self._serve(self._bound(socket.SOCK_DGRAM, address, 53), self._answer_name)
        stream = self._bound(socket.SOCK_STREAM, OWN, 0)
        stream.listen(50)
        self.port = stream.getsockname()[1]
        self._serve(stream, lambda one: self.calls.append(f"TCP {one.accept()[1]}"))
        self._serve(
            self._bound(socket.SOCK_DGRAM, OWN, self.port), lambda one: self.calls.append(f"UDP {one.recvfrom(99)[1]}")
        )
        self.is_up, self._sent_at_first = True, _packets_sent()

    def close(self) -> None:
        """Ends its servers."""
        for one in self._sockets:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _bound(self, kind: int, address: str, port: int) -> socket.socket:
        one = socket.socket(socket.AF_INET, kind)
        one.bind((address, port))
        self._sockets.append(one)
        return one

    def _serve(self, one: socket.socket, handle: Callable[[socket.socket], None]) -> None:
        def run() -> None:
            with suppress(OSError, IndexError):  # the socket was closed
                while True:
                    handle(one)

        threading.Thread(target=run, daemon=True).start()

    def _answer_name(self, one: socket.socket) -> None:
        query, asker = one.recvfrom(4096)
        labels, at = [], 12
        while query[at]:
            labels.append(query[at + 1 : at + 1 + query[at]].decode("latin-1"))
            at += query[at] + 1
        self.names.append(".".join(labels))
        # The query itself as an answer: there is no such name.
        one.sendto(query[:2] + b"\x81\x83" + query[4:6] + bytes(6) + query[12 : at + 5], asker)


@contextmanager
def fence() -> Iterator[Fence]:
    """The fence, around whatever this thread starts now."""
    one = Fence()
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    has_moved = shutil.which("ip") is not None and _libc.unshare(_NEW_NETWORK) == 0
    try:
        if has_moved:
            for line in _LINK:
                _ip(line)
            one.listen()
        yield one
    finally:
        one.close()
        assert not has_moved or _libc.setns(home, _NEW_NETWORK) == 0
        os.close(home)


def _ip(arguments: str) -> None:
    # A link asks for routers by IPv6 on its own: that is no request of a crawl.
    for switch in Path("/proc/sys/net/ipv6/conf").glob("*/disable_ipv6"):
        with suppress(OSError):
            switch.write_text("1")
    subprocess.run(["ip", *arguments.split()], check=True, capture_output=True)


def _packets_sent() -> int:
    lines = Path("/proc/thread-self/net/dev").read_text().splitlines()
    return next(int(line.split()[10]) for line in lines if line.strip().startswith("canary0:"))
