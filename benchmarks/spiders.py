"""What a callback costs: CPU a page of a spider with three selectors, beside a crawl of the same pages without code.

    python benchmarks/spiders.py [PAGES]
    python benchmarks/spiders.py --scrapy [PAGES ...]

Both crawl the same synthetic web on loopback, delay 0, one process that fetches; the spider has one parser process. CPU
is that of all processes of the crawl, from the kernel; the median of three runs each, as JSON.

With `--scrapy` one unmodified Scrapy spider is run by Scrapy and by Weft, in turn, with the same delay and the same
requests in flight to a site: pages a second from start to end, start of the interpreters included, and CPU a page of
all processes, at each size. There are three webs: few hosts without a delay, many hosts with a delay that is not their
only bound, and few hosts with a delay that is: there both wait. Scrapy's delay counts from the start of a request,
Weft's from its end, so that Weft is slower there by the time that the site takes to answer.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any, NamedTuple

from weft.frontier.clock import FOLDER_VARIABLE
from weft.testing.web import synthetic_web

RUNS = 3
SPIDER = """
import os
import weft


class Three(weft.Spider):
    follow = True

    def start(self):
        for url in os.environ["SEEDS"].split():
            yield weft.Request(url)

    def parse(self, page):
        links = page.css("a[href]").attrs("href")
        yield {"title": page.css("title").text, "heading": page.css("h1").text, "links": links}
"""


SCRAPY_SPIDER = """
import os
import scrapy


class Three(scrapy.Spider):
    name = "three"
    custom_settings = {
        "DOWNLOAD_DELAY": float(os.environ["DELAY"]), "CONCURRENT_REQUESTS_PER_DOMAIN": 8, "CONCURRENT_REQUESTS": 64,
        "RANDOMIZE_DOWNLOAD_DELAY": False, "LOG_LEVEL": "ERROR", "ROBOTSTXT_OBEY": True,
    }
    start_urls = os.environ["SEEDS"].split()

    def parse(self, response):
        pages = [link for link in response.css("a[href]::attr(href)").getall() if "/p/" in link]
        yield {"title": response.css("title::text").get(), "heading": response.css("h1::text").get(), "links": pages}
        yield from response.follow_all(pages)
"""
SIZES = (400, 1200, 3000)  # pages
WEBS = {"no delay": (4, 0.0), "many hosts, delay 0.2": (100, 0.2), "4 hosts, delay 0.05": (4, 0.05)}
PORT = 8099


def page(number: int, pages: int) -> bytes:
    """A page of some 6 KB that links to two others, with its head."""
    links = "".join(f"<li><a href='/p/{2 * number + k}'>page {k}</a></li>" for k in (1, 2) if 2 * number + k < pages)
    text = "".join(f"<p class=t>Paragraph {n} of page {number} about lamps and desks.</p>" for n in range(80))
    data = f"<html><title>Page {number}</title><h1>Heading {number}</h1><ul>{links}</ul>{text}</html>".encode()
    return b"HTTP/1.1 200 OK\r\n" + _head(len(data)) + data


def _head(length: int) -> bytes:
    return f"Content-Type: text/html; charset=utf-8\r\nContent-Length: {length}\r\n\r\n".encode()


class Served(asyncio.Protocol):
    """One connection to a server that has its pages ready."""

    pages: dict[bytes, bytes]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keeps the connection."""
        self._transport: Any = transport

    def data_received(self, data: bytes) -> None:
        """Answers one request, which comes in one piece."""
        missing = b"HTTP/1.1 404 Not Found\r\n" + _head(0)
        self._transport.write(self.pages.get(data.split(b" ", 2)[1], missing))


def _serve(addresses: list[str], pages: int, is_ready: Event) -> None:
    Served.pages = {f"/p/{n}".encode(): page(n, pages) for n in range(pages)}
    Served.pages[b"/"] = Served.pages[b"/p/0"]

    async def serve() -> None:
        loop = asyncio.get_running_loop()
        await loop.create_server(Served, addresses, PORT, backlog=1000)
        is_ready.set()
        await loop.create_future()

    asyncio.run(serve())


class Cost(NamedTuple):
    """What a run has cost."""

    pages_s: float
    cpu_ms: float  # a page
    seconds: float


def run_once(command: list[str], addresses: list[str], delay: float, pages: int) -> Cost:
    """One run to its end, in a folder of its own."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "three.py").write_text(SCRAPY_SPIDER)
        (folder / "machine").mkdir()
        seeds = " ".join(f"http://{address}:{PORT}/" for address in addresses)
        own = {
            "SEEDS": seeds,
            "DELAY": str(delay),
            FOLDER_VARIABLE: str(folder / "machine"),
        }  # no other crawl is waited for
        environment = _environment() | own
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        subprocess.run(command, env=environment, cwd=folder, check=True)
        seconds, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
        made = len((folder / "items.jsonl").read_text().splitlines())
    assert made == pages, f"{made} items of {pages} pages"
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(pages / seconds, 1000 * spent / pages, seconds)


def _environment() -> dict[str, str]:
    """This process's, with the bytecode that users have."""
    return {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}


WEFT = ["weft", "run", "--scrapy", "three.py", "--data-dir", "data", "--allow-private", "--prometheus-port", "0", "-q"]
COMMANDS = {
    name: [sys.executable, "-m", *words, "-o", "items.jsonl"]
    for name, words in (("scrapy", ["scrapy", "runspider", "three.py"]), ("weft", WEFT))
}


def beside_scrapy(sizes: Sequence[int]) -> None:
    """The same spider by both, in turn; a first run of each leaves the bytecode that every later one finds."""
    found: dict[str, dict[str, float]] = {}
    for title, (hosts, delay) in WEBS.items():
        addresses = [f"127.88.{number // 200}.{number % 200 + 1}" for number in range(hosts)]
        for size in sizes:
            pages = size // hosts * hosts
            with _serving(addresses, pages // hosts):
                if not found:
                    for command in COMMANDS.values():
                        run_once(command, addresses, delay, pages)
                found[f"{title}, {pages} pages"] = _beside(addresses, delay, pages)
    print(json.dumps(found, indent=1))


def _beside(addresses: list[str], delay: float, pages: int) -> dict[str, float]:
    made: dict[str, list[Cost]] = {name: [] for name in COMMANDS}
    for _ in range(RUNS):
        for name, command in COMMANDS.items():
            made[name].append(one := run_once(command, addresses, delay, pages))
            print(f"{name}, {pages} pages, delay {delay:g}: {one.pages_s:.0f}/s, {one.cpu_ms:.2f} ms", file=sys.stderr)
    scrapy, weft = (Cost(*map(statistics.median, zip(*made[name], strict=True))) for name in ("scrapy", "weft"))
    return {
        "scrapy_pages_s": round(scrapy.pages_s, 1), "weft_pages_s": round(weft.pages_s, 1),
        "scrapy_cpu_ms": round(scrapy.cpu_ms, 2), "weft_cpu_ms": round(weft.cpu_ms, 2),
        "times_as_fast": round(weft.pages_s / scrapy.pages_s, 2),
        "times_less_cpu": round(scrapy.cpu_ms / weft.cpu_ms, 2),
        "least_seconds": round(delay * pages / len(addresses), 1),
    }  # fmt: skip


@contextmanager
def _serving(addresses: list[str], pages: int) -> Iterator[None]:
    is_ready = multiprocessing.Event()
    server = multiprocessing.Process(target=_serve, args=(addresses, pages, is_ready), daemon=True)
    server.start()
    while not is_ready.wait(0.1):
        if not server.is_alive():
            raise SystemExit(f"the server has ended: is port {PORT} in use?")
    try:
        yield
    finally:
        server.terminate()
        server.join()


def cpu_ms(command: list[str], seeds: list[str]) -> tuple[float, int]:
    """CPU milliseconds a page, and the pages."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, "-m", "weft", *command, "--data-dir", str(data), "--delay", "0", "--allow-private",
             "--scope", "any", "--prometheus-port", "0", "-q"],
            env=_environment() | {"SEEDS": " ".join(seeds)}, check=True,
        )  # fmt: skip
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        pages = json.loads((data / "status.json").read_bytes())["pages"]
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return 1000 * spent / pages, pages


def main(pages: int) -> None:
    with synthetic_web(hosts=8, pages=pages // 8) as web, tempfile.TemporaryDirectory() as folder:
        spider = Path(folder) / "three.py"
        spider.write_text(SPIDER)
        commands = {
            "plain": ["crawl", *web.seeds],
            "plain_in_a_child": ["crawl", *web.seeds, "--parser-children", "1"],
            "spider": ["run", str(spider), "--spider-workers", "1"],
        }
        found: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(RUNS):
            for name, command in commands.items():
                spent, count = cpu_ms(command, web.seeds)
                found[name].append(spent)
                print(f"{name}: {spent:.2f} ms a page of {count}", file=sys.stderr)
    medians = {name: round(statistics.median(values), 3) for name, values in found.items()}
    medians["spider_to_plain"] = round(medians["spider"] / medians["plain"], 2)
    print(json.dumps({"cpu_ms_a_page": medians, "pages": pages}))


if __name__ == "__main__":
    given = [int(one) for one in sys.argv[1:] if one != "--scrapy"]
    if "--scrapy" in sys.argv:
        beside_scrapy(given or SIZES)
    else:
        main(given[0] if given else 2000)
