"""A server of endless sites, for what nginx cannot do: answers come after a set latency, and no site ever runs out.

    python -m harness.endless '{"hosts": 2000, "port": 8490, "latency_s": 0.1, "delay_s": 4, "chains": 8, …}'

Each home page opens a number of chains; page n of a chain links to page n + 1 and back to 49 others, so that a crawl's
queue neither grows nor dries up. It counts arrivals by the second and how often a host was asked within the delay, and
says so on its standard output, as JSON, when its standard input ends.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections import Counter
from random import Random
from typing import Any

from weft.testing.content.sites import address
from weft.testing.content.texts import SyntheticTexts
from weft.testing.server import listen

FIRST = 40_000
"""The number of the first address: none that another benchmark listens on."""
LINKS = 50


def seeds(hosts: int, port: int) -> list[str]:
    """The home pages of all hosts."""
    return [f"http://{address(FIRST + number)}:{port}/" for number in range(hosts)]


class Sites:
    """What all connections share."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self.latency_s: float = spec["latency_s"]
        self.delay_s: float = spec["delay_s"]
        self.chains: int = spec["chains"]
        pool = SyntheticTexts(0).pool("en", "utf-8")
        self.paragraphs = pool.paragraphs
        self.count = max(1, round((spec["page_bytes"] - 25 * LINKS) / pool.mean_paragraph_bytes))
        self.by_second: Counter[int] = Counter()
        self.waited: Counter[int] = Counter()  # by the second: how long ago its host was asked before, for all arrivals
        self.last_start: dict[str, float] = {}
        self.violations = 0
        self.last_end: dict[str, float] = {}

    def arrived(self, host: str) -> None:
        """Counts a request, and whether it is early."""
        now = time.monotonic()
        second = int(now)
        self.by_second[second] += 1
        if host in self.last_start:
            self.waited[second] += now - self.last_start[host]
        self.last_start[host] = now
        if now - self.last_end.get(host, -1e9) < self.delay_s:
            self.violations += 1

    def answer(self, path: str) -> bytes:
        """The whole response."""
        if path == "/robots.txt":
            return _response(b"User-agent: *\nDisallow: /private/\n", "text/plain")
        parts = path.split("/")
        if path == "/":
            hrefs = [f"/c/{chain}/0" for chain in range(self.chains)]
        elif len(parts) == 4 and parts[1] == "c" and parts[3].isdigit():
            at = int(parts[3])
            hrefs = [f"/c/{parts[2]}/{number}" for number in range(max(0, at - LINKS + 2), at + 2)]
        else:
            return b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
        links = "".join([f'<a href="{href}">more</a>\n' for href in hrefs]).encode()
        return _response(
            b"<!DOCTYPE html><title>%b</title>\n%b%b" % (path.encode(), links, self._text(path)), "text/html"
        )

    def _text(self, path: str) -> bytes:
        """Other paragraphs on every page: pages that are all the same are a trap, and Weft leaves traps."""
        draws = Random(path).choices(self.paragraphs, k=self.count)
        return b"".join(draws)


def _response(body: bytes, kind: str) -> bytes:
    return (
        f"HTTP/1.1 200 OK\r\nContent-Type: {kind}; charset=utf-8\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
    )


class Connection(asyncio.Protocol):
    """One connection: one request at a time."""

    def __init__(self, sites: Sites) -> None:
        self._sites = sites
        self._data = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._host = transport.get_extra_info("sockname")[0]

    def data_received(self, data: bytes) -> None:
        self._data += data
        while (end := self._data.find(b"\r\n\r\n")) >= 0:
            path = self._data[: self._data.index(b"\r\n")].split(b" ")[1].decode()
            self._data = self._data[end + 4 :]
            self._sites.arrived(self._host)
            if self._sites.latency_s:
                asyncio.get_running_loop().call_later(self._sites.latency_s, self._send, path)
            else:
                self._send(path)

    def _send(self, path: str) -> None:
        if self._sites.delay_s:
            self._sites.last_end[self._host] = time.monotonic()
        self._transport.write(self._sites.answer(path))


async def serve(spec: dict[str, Any]) -> Sites:
    """Serves until standard input ends."""
    sites = Sites(spec)
    sockets, _ = listen([address(FIRST + number) for number in range(spec["hosts"])], spec["port"])
    loop = asyncio.get_running_loop()
    for one in sockets:
        await loop.create_server(lambda: Connection(sites), sock=one, backlog=512)
    ended = asyncio.Event()
    loop.add_reader(0, lambda: None if os.read(0, 1024) else ended.set())
    print("ready", flush=True)
    await ended.wait()
    return sites


def main() -> None:
    sites = asyncio.run(serve(json.loads(sys.argv[1])))
    print(json.dumps({"by_second": sites.by_second, "waited": sites.waited, "violations": sites.violations}))


if __name__ == "__main__":
    main()
