"""A well-written loop by hand: aiohttp on uvloop, selectolax, a native URL parser, robots.txt by protego.

    python aiohttp_loop.py SEED [--ca FILE]

What somebody who knows the libraries writes in an afternoon: a fixed number of workers on one queue, one session with
its pool open wide, hrefs made unique before they are joined. Nothing is stored.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import ssl
import sys
import time
from typing import Any

import aiohttp
import uvloop
from ada_url import join_url
from protego import Protego
from selectolax.lexbor import LexborHTMLParser

WORKERS = 64


class Loop:
    """The whole crawler."""

    def __init__(self, session: aiohttp.ClientSession, seed: str) -> None:
        self._session = session
        self._seen = {seed}
        self._queue: asyncio.Queue[str] = asyncio.Queue()
        self._queue.put_nowait(seed)
        self._robots: dict[str, asyncio.Task[Protego]] = {}
        self.pages = 0

    async def run(self) -> None:
        """Crawls until nothing is left."""
        workers = [asyncio.create_task(self._work()) for _ in range(WORKERS)]
        await self._queue.join()
        for worker in workers:
            worker.cancel()

    async def _work(self) -> None:
        while True:
            url = await self._queue.get()
            try:
                await self._visit(url)
            finally:
                self._queue.task_done()

    async def _visit(self, url: str) -> None:
        origin = url[: url.index("/", 8)]
        robots = self._robots.get(origin)
        if robots is None:
            robots = self._robots[origin] = asyncio.create_task(self._fetch_robots(origin))
        if not (await robots).can_fetch(url, "bench"):
            return
        async with self._session.get(url) as answer:
            if answer.status != 200:
                return
            body = await answer.read()
        self.pages += 1
        hrefs = {node.attributes.get("href") for node in LexborHTMLParser(body).css("a[href]")}
        for href in hrefs:
            if not href:
                continue
            target = join_url(url, href).partition("#")[0]
            if target not in self._seen and target.startswith("http"):
                self._seen.add(target)
                self._queue.put_nowait(target)

    async def _fetch_robots(self, origin: str) -> Protego:
        async with self._session.get(origin + "/robots.txt") as answer:
            return Protego.parse(await answer.text() if answer.status == 200 else "")


async def crawl(seed: str, ca_file: str | None) -> dict[str, Any]:
    """One crawl."""
    context = ssl.create_default_context(cafile=ca_file) if ca_file else True
    connector = aiohttp.TCPConnector(limit=WORKERS, limit_per_host=0, ssl=context)
    async with aiohttp.ClientSession(connector=connector, headers={"User-Agent": "bench"}) as session:
        loop = Loop(session, seed)
        start = time.perf_counter()
        await loop.run()
        return {"pages": loop.pages, "seconds": time.perf_counter() - start}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("seed")
    parser.add_argument("--ca")
    args = parser.parse_args()
    print(json.dumps(uvloop.run(crawl(args.seed, args.ca))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
