"""Looks names up by c-ares: thousands at a time, on the loop's thread.

c-ares has the /etc/hosts file, the retries, the second server, the answer over TCP where one over UDP was cut, and
the checks that an answer is one to our question from the server that was asked. Here are its sockets in an epoll of
their own, which the client's epoll watches; a look at its time limits every TICK_S while lookups run; and what an error
means.

- The search list of resolv.conf is not used: a web's host is a whole name, and a missing one would be asked for again
  under each domain of the list, and be found there if that answers for everything.
- IPv6 addresses are asked for where this machine has a route for them, and for names that have no other.
- One answer that is no DNS makes c-ares give up every lookup on its socket. Those are asked again, each over a socket
  of its own, so that a name server that sends such an answer for one name takes no other along.
- A channel is replaced after CHANNEL_LOOKUPS: its one UDP port is then another, which makes forged answers harder, its
  own cache of answers begins anew, and a resolv.conf that has changed is read.
"""

from __future__ import annotations

import select
import socket
from collections import deque
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pycares
from pycares import errno

from weft.fetch.dns.lookups import LookupResult
from weft.telemetry import Log

TICK_S = 0.05
TRIES = 3
CHANNEL_LOOKUPS = 5_000
MOST_ALONE = 32  # lookups over a socket of their own, at a time
POLL_EVERY = 200  # lookups between two looks at resolv.conf
RECEIVE_BYTES = 1 << 20  # of one socket for all answers: they come in bursts, while the loop parses pages
RESOLV_CONF = Path("/etc/resolv.conf")
NO_SERVER = "no name server: {path} names none, and `dns_servers` neither"
log = Log("weft.fetch.dns.dns_cares")

_FLAGS = pycares.ARES_FLAG_NOSEARCH | pycares.ARES_FLAG_EDNS
_AI_NOSORT = 1 << 7  # c-ares would open a socket for each address, to sort them by the route
_KINDS = {
    errno.ARES_ENOTFOUND: ("absent", "the name does not exist"),
    errno.ARES_ENODATA: ("empty", "the name has no address"),
    errno.ARES_ETIMEOUT: ("timeout", "no name server has answered"),
    errno.ARES_ECONNREFUSED: ("refused", "no name server takes questions"),
    errno.ARES_EREFUSED: ("refused", "the name server refuses the question"),
    errno.ARES_ESERVFAIL: ("failed", "the name server has failed"),
    errno.ARES_EBADRESP: ("failed", "the name server's answer is not valid"),
    errno.ARES_EFORMERR: ("failed", "the name server does not understand the question"),
    errno.ARES_EBADNAME: ("absent", "not a name that can be looked up"),
}


class _Channel:
    """A channel of c-ares, its sockets, and the number of its running lookups."""

    def __init__(self, epoll: select.epoll, servers: Sequence[str], timeout_s: float, resolv_conf: Path) -> None:
        self._epoll = epoll
        self._watched: dict[int, int] = {}
        self.is_closed = self.is_lone = False
        self.asked = self.running = 0
        self.ares = pycares.Channel(
            flags=_FLAGS,
            timeout=timeout_s,
            tries=TRIES,
            servers=list(servers) or None,
            resolvconf_path=str(resolv_conf),
            sock_state_cb=self._watch,
            socket_receive_buffer_size=RECEIVE_BYTES,
        )

    def process(self) -> None:
        """Reads and writes its ready sockets, and ends lookups that have run out of time."""
        self.ares.process_fd(pycares.ARES_SOCKET_BAD, pycares.ARES_SOCKET_BAD)

    def ready(self, fd: int, events: int) -> bool:
        """Handles the events of a socket; False if it is not one of this channel."""
        if fd not in self._watched:
            return False
        bad = pycares.ARES_SOCKET_BAD
        broken = events & (select.EPOLLERR | select.EPOLLHUP)
        reads, writes = events & select.EPOLLIN or broken, events & select.EPOLLOUT
        self.ares.process_fd(fd if reads else bad, fd if writes else bad)
        return True

    def close(self) -> None:
        """Closes it. The sockets first: c-ares ends the channel in a thread of its own, at any later time."""
        self.is_closed = True
        for fd in self._watched:
            self._epoll.unregister(fd)
        self._watched.clear()
        self.ares.close()

    def _watch(self, fd: int, reads: bool, writes: bool) -> None:
        if self.is_closed:
            return
        bits = (select.EPOLLIN if reads else 0) | (select.EPOLLOUT if writes else 0)
        before = self._watched.get(fd)
        if not bits:
            if self._watched.pop(fd, None) is not None:
                self._epoll.unregister(fd)
            return
        if before is None:
            self._epoll.register(fd, bits)
        elif before != bits:
            self._epoll.modify(fd, bits)
        self._watched[fd] = bits


class CaresLookups:
    """Queries name servers: `servers` (an address, or ADDRESS:PORT), or those of resolv.conf."""

    def __init__(self, servers: Sequence[str], timeout_s: float, *, resolv_conf: Path = RESOLV_CONF) -> None:
        """`timeout_s`: for the first attempt; each further one has longer."""
        self._servers = tuple(servers)
        self._timeout_s = timeout_s
        self._resolv_conf = resolv_conf
        self._epoll = select.epoll()
        self._ended: deque[LookupResult] = deque()
        self._others: list[_Channel] = []  # replaced ones and those for one lookup, closed when nothing runs on them
        self._suspects: deque[tuple[str, socket.AddressFamily]] = (
            deque()
        )  # names and families that wait for a channel of their own
        self._family = socket.AF_UNSPEC if has_ipv6_route() else socket.AF_INET
        self._configured: object = None
        self._no_server = ""
        self._channel = self._make_channel()

    def fileno(self) -> int:
        """Readable when answers have arrived."""
        return self._epoll.fileno()

    def tick_s(self) -> float | None:
        """The interval of the checks of time limits, while lookups run."""
        return TICK_S

    def ask(self, host: str) -> None:
        """Starts a lookup."""
        channel = self._channel
        if channel.asked >= CHANNEL_LOOKUPS or (channel.asked % POLL_EVERY == 0 and self._is_outdated()):
            channel = self._replace_channel()
        self._start(channel, host, self._family)

    def completed(self) -> list[LookupResult]:
        """The lookups that have ended."""
        for fd, events in self._epoll.poll(0):
            if not self._channel.ready(fd, events):
                any(other.ready(fd, events) for other in self._others)
        for channel in (self._channel, *self._others):
            channel.process()
        for other in [other for other in self._others if not other.running]:
            self._others.remove(other)
            other.close()
        self._ask_alone()
        ended = []
        while self._ended:
            ended.append(self._ended.popleft())
        return ended

    def close(self) -> None:
        """Drops all running lookups."""
        for channel in (self._channel, *self._others):
            channel.close()
        self._epoll.close()

    def _start(self, channel: _Channel, host: str, family: socket.AddressFamily) -> None:
        channel.asked += 1
        channel.running += 1
        come = partial(self._came, channel, host, family)
        try:
            channel.ares.getaddrinfo(
                host, None, family=family, type=socket.SOCK_STREAM, flags=_AI_NOSORT, callback=come
            )
        except (UnicodeError, ValueError) as error:  # no valid DNS name
            self._end(
                channel, LookupResult(host, (), error=f"not a name that can be looked up: {error}", kind="absent")
            )

    def _came(self, channel: _Channel, host: str, family: socket.AddressFamily, result: Any, error: int | None) -> None:
        """Called by c-ares, once for each lookup; also when its channel is closed, then from another thread."""
        if channel.is_closed:
            return
        addresses = _addresses(result) if error is None else ()
        if addresses:
            ttl_s = min(found.ttl for found in (*result.nodes, *result.cnames))
            self._end(channel, LookupResult(host, addresses, float(ttl_s)))
        elif error == errno.ARES_EBADRESP and not channel.is_lone:
            channel.running -= 1
            self._suspects.append((host, family))
        elif family == socket.AF_INET and error in (None, errno.ARES_ENODATA):
            channel.running -= 1
            self._start(channel, host, socket.AF_INET6)
        else:
            kind, says = _KINDS.get(error or errno.ARES_ENODATA, ("failed", str(errno.strerror(error or 0))))
            if self._no_server and kind != "absent":
                says = self._no_server
            self._end(channel, LookupResult(host, (), error=says, kind=kind))

    def _ask_alone(self) -> None:
        while self._suspects and sum(other.is_lone for other in self._others) < MOST_ALONE:
            channel = _Channel(self._epoll, self._servers, self._timeout_s, self._resolv_conf)
            channel.is_lone = True
            self._others.append(channel)
            self._start(channel, *self._suspects.popleft())

    def _end(self, channel: _Channel, found: LookupResult) -> None:
        channel.running -= 1
        self._ended.append(found)

    def _make_channel(self) -> _Channel:
        self._configured, self._no_server = self._configuration(), ""
        if not self._servers and not servers_in(self._resolv_conf):
            self._no_server = NO_SERVER.format(path=self._resolv_conf)
            log.warning("only /etc/hosts and pinned names can be resolved", why=self._no_server)
        return _Channel(self._epoll, self._servers, self._timeout_s, self._resolv_conf)

    def _replace_channel(self) -> _Channel:
        before, self._channel = self._channel, self._make_channel()
        if before.running:
            self._others.append(before)
        else:
            before.close()
        return self._channel

    def _is_outdated(self) -> bool:
        return self._configuration() != self._configured

    def _configuration(self) -> object:
        """An object that differs when resolv.conf has changed."""
        if self._servers:
            return None
        try:
            stat = self._resolv_conf.stat()
        except OSError:
            return None
        return stat.st_mtime_ns, stat.st_ino, stat.st_size


def _addresses(result: Any) -> tuple[str, ...]:
    """Every address once, IPv4 first: they are tried one after the other, and IPv6 is broken more often."""
    found = dict.fromkeys(node.addr[0].decode() for node in result.nodes)
    return tuple(sorted(found, key=lambda address: ":" in address))


def servers_in(resolv_conf: Path) -> list[str]:
    """The name servers that a resolv.conf names."""
    try:
        lines = resolv_conf.read_text(errors="replace").splitlines()
    except OSError:
        return []
    words = (line.split() for line in lines)
    return [found[1] for found in words if len(found) > 1 and found[0] == "nameserver"]


def has_ipv6_route() -> bool:
    """Whether this machine would send to the IPv6 internet; no packet is sent."""
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as probe:
            probe.connect(("2001:4860:4860::8888", 53))
            return not str(probe.getsockname()[0]).startswith(("::1", "fe80"))
    except OSError:
        return False
