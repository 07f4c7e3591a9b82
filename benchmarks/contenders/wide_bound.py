"""The stripped bound of the wide web: a polite client that is told which hosts are dead, and keeps nothing but pages.

    python wide_bound.py SEEDS FILE --address 127.0.0.1 --ca FILE --delay 1 --seconds 60

libcurl multi on its own epoll loop, one thread, a handle for each host; links by turbohtml, pages by igzip to one file,
robots.txt as plain prefixes, seen URLs in a set. One request at a time for each host, the delay after each answer. No
durability, no records, no index, no retries, no limits, URLs joined by concatenation.
"""

from __future__ import annotations

import argparse
import json
import select
import sys
import time
from collections import deque
from heapq import heappop, heappush
from pathlib import Path
from typing import Any

import pycurl
import turbohtml
from isal import igzip


class Host:
    """A host's queue."""

    def __init__(self, seed: str) -> None:
        self.origin = seed[: seed.index("/", 8)]
        self.queue = deque(["/robots.txt", "/"])
        self.forbidden: tuple[str, ...] | None = None
        self.path = ""


class WideBound:
    """The whole client."""

    def __init__(self, seeds: list[str], out: Any, args: argparse.Namespace) -> None:
        self._out, self._delay_s = out, args.delay
        self._seen: set[str] = set()
        self._due = [(0.0, number, Host(seed)) for number, seed in enumerate(seeds)]
        self._order = len(seeds)
        self.pages = 0
        self._args = args
        self._free: list[Any] = []
        self._multi = pycurl.CurlMulti()
        self._multi.setopt(pycurl.M_MAXCONNECTS, len(seeds))
        self._multi.setopt(pycurl.M_SOCKETFUNCTION, self._on_socket)
        self._multi.setopt(pycurl.M_TIMERFUNCTION, self._on_timer)
        self._epoll = select.epoll()
        self._watched: dict[int, int] = {}
        self._timer: float | None = None

    def run(self, seconds: float) -> None:
        """Crawls for so long."""
        until = time.monotonic() + seconds
        while (now := time.monotonic()) < until:
            while self._due and self._due[0][0] <= now:
                self._begin(heappop(self._due)[2])
            self._turn(self._due[0][0] if self._due else until)
            while True:
                left, done, failed = self._multi.info_read()
                for handle in done:
                    self._end(handle)
                for handle, _, _ in failed:
                    self._end(handle)
                if not left:
                    break

    def _begin(self, host: Host) -> None:
        handle = self._free.pop() if self._free else self._handle()
        host.path = host.queue.popleft()
        handle.host, handle.body = host, []
        handle.setopt(pycurl.URL, host.origin + host.path)
        handle.setopt(pycurl.WRITEFUNCTION, handle.body.append)
        self._multi.add_handle(handle)

    def _end(self, handle: Any) -> None:
        host: Host = handle.host
        status, body = handle.getinfo(pycurl.RESPONSE_CODE), b"".join(handle.body)
        self._multi.remove_handle(handle)
        self._free.append(handle)
        self._order += 1
        if status == 503:
            host.queue.appendleft(host.path)
        elif host.forbidden is None:
            lines = body.decode().splitlines() if status == 200 else []
            host.forbidden = tuple(line[10:] for line in lines if line.startswith("Disallow: "))
        elif status == 200:
            self._keep(host, body)
        if host.queue:
            heappush(self._due, (time.monotonic() + self._delay_s, self._order, host))

    def _keep(self, host: Host, body: bytes) -> None:
        self.pages += 1
        self._out.write(igzip.compress(body, 1))
        origin, seen, forbidden = host.origin, self._seen, host.forbidden or ()
        for node in turbohtml.parse(body.decode("utf-8", "replace")).select("a[href]"):
            href = str(node.attrs["href"])
            target = origin + href
            if target not in seen and not href.startswith(forbidden):
                seen.add(target)
                host.queue.append(href)

    def _handle(self) -> Any:
        handle = pycurl.Curl()
        handle.setopt(pycurl.NOSIGNAL, 1)
        handle.setopt(pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_1_1)
        handle.setopt(pycurl.HTTPHEADER, ["User-Agent: bench", "Accept: */*"])
        handle.setopt(pycurl.ACCEPT_ENCODING, "gzip")
        handle.setopt(pycurl.CONNECT_TO, [f"::{self._args.address}:"])
        handle.setopt(pycurl.CAINFO, self._args.ca)
        return handle

    def _turn(self, until: float) -> None:
        wake = until if self._timer is None else min(until, self._timer)
        for fd, events in self._epoll.poll(max(0.0, wake - time.monotonic())):
            action = (pycurl.CSELECT_IN if events & ~select.EPOLLOUT else 0) | (
                pycurl.CSELECT_OUT if events & select.EPOLLOUT else 0
            )
            self._multi.socket_action(fd, action)
        if self._timer is not None and self._timer <= time.monotonic():
            self._timer = None
            self._multi.socket_action(pycurl.SOCKET_TIMEOUT, 0)

    def _on_timer(self, wait_ms: int) -> None:
        self._timer = None if wait_ms < 0 else time.monotonic() + wait_ms / 1000

    def _on_socket(self, what: int, fd: int, _multi: Any, _data: Any) -> None:
        if what == pycurl.POLL_REMOVE:
            if self._watched.pop(fd, None) is not None:
                self._epoll.unregister(fd)
            return
        mask = (select.EPOLLIN if what & pycurl.POLL_IN else 0) | (select.EPOLLOUT if what & pycurl.POLL_OUT else 0)
        if fd in self._watched:
            self._epoll.modify(fd, mask)
        else:
            self._epoll.register(fd, mask)
        self._watched[fd] = mask


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("seeds")
    parser.add_argument("file")
    parser.add_argument("--address", default="127.0.0.1")
    parser.add_argument("--ca", required=True)
    parser.add_argument("--delay", type=float, default=1.0)
    parser.add_argument("--seconds", type=float, default=60.0)
    args = parser.parse_args()
    with open(args.file, "wb", buffering=1 << 20) as out:  # noqa: PTH123
        bound = WideBound(Path(args.seeds).read_text().split(), out, args)
        bound.run(args.seconds)
    print(json.dumps({"pages": bound.pages}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
