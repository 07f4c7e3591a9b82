"""The stripped bound: what Python can do on this web when a crawler keeps nothing but its pages.

    python bound.py SEED FILE [--parts lexbor|weft] [--ca FILE] [--pages N]

libcurl multi on its own epoll loop, one thread; a parser in C; pages compressed to one file. No politeness, no
durability, no records, no index, no retries, no limits, URLs joined by concatenation. robots.txt is read once per host
and held as plain prefixes. `lexbor`: selectolax and zstd. `weft`: turbohtml and igzip, the parts that Weft is made of.
"""

from __future__ import annotations

import argparse
import json
import select
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import pycurl

HANDLES = 16
TICK_S = 0.05


class Bound:
    """The whole crawler."""

    def __init__(self, seed: str, out: Any, links: Callable[[bytes], Iterable[str]], pack: Callable[[bytes], bytes]):
        self._scheme = seed.partition(":")[0] + ":"
        self._out, self._links, self._pack = out, links, pack
        self._seen = {seed}
        self._queue = deque([seed])
        self._forbidden: dict[str, tuple[str, ...]] = {}
        self._waiting: dict[str, list[str]] = {}
        self.pages = 0
        self._multi = pycurl.CurlMulti()
        self._epoll = select.epoll()
        self._registered: set[int] = set()
        self._timer: float | None = None
        self._multi.setopt(pycurl.M_SOCKETFUNCTION, self._on_socket)
        self._multi.setopt(pycurl.M_TIMERFUNCTION, self._on_timer)
        self._multi.setopt(pycurl.M_MAXCONNECTS, 1000)

    def run(self, ca_file: str | None, most: int | None) -> None:
        """Crawls until nothing is left, or there are so many pages."""
        free = [self._handle(ca_file) for _ in range(HANDLES)]
        active = 0
        while self._queue or active:
            if most is not None and self.pages >= most:
                self._queue.clear()
            while self._queue and free:
                handle = free.pop()
                handle.body = []
                handle.url = self._queue.popleft()
                handle.setopt(pycurl.URL, handle.url)
                handle.setopt(pycurl.WRITEFUNCTION, handle.body.append)
                self._multi.add_handle(handle)
                active += 1
            self._turn()
            while True:
                left, done, failed = self._multi.info_read()
                for handle in [*done, *(one[0] for one in failed)]:
                    self._multi.remove_handle(handle)
                    active -= 1
                    self._ended(handle.url, handle.getinfo(pycurl.RESPONSE_CODE), b"".join(handle.body))
                    free.append(handle)
                if not left:
                    break

    def _handle(self, ca_file: str | None) -> Any:
        handle = pycurl.Curl()
        handle.setopt(pycurl.NOSIGNAL, 1)
        handle.setopt(pycurl.HTTPHEADER, ["User-Agent: bench", "Accept: */*"])
        handle.setopt(pycurl.ACCEPT_ENCODING, "gzip")
        if ca_file:
            handle.setopt(pycurl.CAINFO, ca_file)
        return handle

    def _turn(self) -> None:
        wait = TICK_S if self._timer is None else max(0.0, min(TICK_S, self._timer - time.monotonic()))
        for fd, events in self._epoll.poll(wait):
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
            if fd in self._registered:
                self._registered.discard(fd)
                try:
                    self._epoll.unregister(fd)
                except OSError:
                    pass
            return
        mask = (select.EPOLLIN if what & pycurl.POLL_IN else 0) | (select.EPOLLOUT if what & pycurl.POLL_OUT else 0)
        if fd in self._registered:
            self._epoll.modify(fd, mask)
        else:
            self._registered.add(fd)
            self._epoll.register(fd, mask)

    def _ended(self, url: str, status: int, body: bytes) -> None:
        origin_end = url.index("/", 8)
        origin = url[:origin_end]
        if url.endswith("/robots.txt"):
            lines = body.decode().splitlines() if status == 200 else []
            self._forbidden[origin] = tuple(line[10:] for line in lines if line.startswith("Disallow: "))
            self._queue.extend(one for one in self._waiting.pop(origin) if self._allowed(one))
            return
        if origin not in self._forbidden:  # the seed: asked for its robots.txt before anything is kept
            self._ask_robots(origin, url)
            return
        if status != 200:
            return
        self.pages += 1
        self._out.write(self._pack(body))
        seen = self._seen
        for href in self._links(body):
            if href.startswith("//"):
                target = self._scheme + href
            elif href.startswith("/"):
                target = origin + href
            elif href.startswith("http"):
                target = href
            else:
                continue
            if target in seen:
                continue
            seen.add(target)
            self._enqueue(target)

    def _enqueue(self, url: str) -> None:
        origin = url[: url.index("/", 8)]
        if origin not in self._forbidden:
            self._ask_robots(origin, url)
        elif self._allowed(url):
            self._queue.append(url)

    def _allowed(self, url: str) -> bool:
        origin = url[: url.index("/", 8)]
        return not url[len(origin) :].startswith(self._forbidden[origin])

    def _ask_robots(self, origin: str, url: str) -> None:
        waiting = self._waiting.get(origin)
        if waiting is not None:
            waiting.append(url)
            return
        self._waiting[origin] = [url]
        self._queue.appendleft(origin + "/robots.txt")


def lexbor_parts() -> tuple[Callable[[bytes], Iterable[str]], Callable[[bytes], bytes]]:
    """selectolax (lexbor) and zstd."""
    import zstandard
    from selectolax.lexbor import LexborHTMLParser

    def links(body: bytes) -> list[str]:
        return [href for node in LexborHTMLParser(body).css("a[href]") if (href := node.attributes["href"])]

    return links, zstandard.ZstdCompressor(level=3).compress


def weft_parts() -> tuple[Callable[[bytes], Iterable[str]], Callable[[bytes], bytes]]:
    """turbohtml and igzip."""
    import turbohtml
    from isal import igzip

    def links(body: bytes) -> list[str]:
        found = turbohtml.parse(body.decode("utf-8", "replace")).select("a[href]")
        return [href for node in found if isinstance(href := node.attrs["href"], str)]

    return links, lambda body: igzip.compress(body, 1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("seed")
    parser.add_argument("file")
    parser.add_argument("--parts", choices=["lexbor", "weft"], default="lexbor")
    parser.add_argument("--ca")
    parser.add_argument("--pages", type=int)
    args = parser.parse_args()
    links, pack = lexbor_parts() if args.parts == "lexbor" else weft_parts()
    start = time.perf_counter()
    with open(args.file, "wb", buffering=1 << 20) as out:  # noqa: PTH123
        bound = Bound(args.seed, out, links, pack)
        bound.run(args.ca, args.pages)
    print(json.dumps({"pages": bound.pages, "seconds": time.perf_counter() - start}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
