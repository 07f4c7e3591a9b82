"""What a callback costs: CPU a page of a spider with three selectors, beside a crawl of the same pages without code.

    python benchmarks/spiders.py [PAGES]
    python benchmarks/spiders.py --scrapy [PAGES]

Both crawl the same synthetic web on loopback, delay 0, one process that fetches; the spider has one parser process. CPU
is that of all processes of the crawl, from the kernel; the median of three runs each, as JSON.

With `--scrapy` one unmodified Scrapy spider is run by Scrapy and by Weft, in turn, with the same delay and the same
requests in flight to a site: pages a second, and CPU a page, of all processes.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

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
DELAYS = (0.0, 0.02)


class Served(BaseHTTPRequestHandler):
    """Pages of some 6 KB that link to each other, in a process of its own."""

    protocol_version = "HTTP/1.1"
    pages = 0

    def log_message(self, *_: object) -> None:
        """Nothing."""

    def do_GET(self) -> None:
        """A page, or that there is none."""
        name = self.path.rpartition("/")[2]
        number = int(name) if name.isdigit() else 0
        is_page = self.path == "/" or (self.path.startswith("/p/") and number < self.pages)
        data = _page(number, self.pages) if is_page else b""
        head = f"Content-Type: text/html; charset=utf-8\r\nContent-Length: {len(data)}\r\n\r\n".encode()
        self.wfile.write((b"HTTP/1.1 200 OK\r\n" if is_page else b"HTTP/1.1 404 Not Found\r\n") + head + data)


def _page(number: int, pages: int) -> bytes:
    links = "".join(f"<li><a href='/p/{2 * number + k}'>page {k}</a></li>" for k in (1, 2) if 2 * number + k < pages)
    text = "".join(f"<p class=t>Paragraph {n} of page {number} about lamps and desks.</p>" for n in range(80))
    return f"<html><title>Page {number}</title><h1>Heading {number}</h1><ul>{links}</ul>{text}</html>".encode()


def _serve(address: str, pages: int) -> None:
    Served.pages = pages
    ThreadingHTTPServer((address, 8099), Served).serve_forever()


def run_once(command: list[str], delay: float, folder: str) -> tuple[float, float]:
    """Pages a second, and CPU milliseconds a page."""
    out, before = Path(folder) / "items.jsonl", resource.getrusage(resource.RUSAGE_CHILDREN)
    seeds = " ".join(f"http://{address}:8099/" for address in ADDRESSES)
    began = time.monotonic()
    (Path(folder) / "machine").mkdir()
    own = {
        "SEEDS": seeds,
        "DELAY": str(delay),
        FOLDER_VARIABLE: str(Path(folder) / "machine"),
    }  # no other crawl is waited for
    subprocess.run(command, env=os.environ | own, cwd=folder, check=True)
    seconds, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    pages = len(out.read_text().splitlines())
    return pages / seconds, 1000 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / pages


ADDRESSES = [f"127.88.0.{number}" for number in range(1, 5)]


def beside_scrapy(pages: int) -> None:
    """The same spider by both, in turn."""
    servers = [
        multiprocessing.Process(target=_serve, args=(one, pages // len(ADDRESSES)), daemon=True) for one in ADDRESSES
    ]
    for server in servers:
        server.start()
    found: dict[str, dict[str, float]] = {}
    for delay in DELAYS:
        made: dict[str, list[tuple[float, float]]] = {"scrapy": [], "weft": []}
        for _ in range(RUNS):
            for name, runs in made.items():
                with tempfile.TemporaryDirectory() as folder:
                    (Path(folder) / "three.py").write_text(SCRAPY_SPIDER)
                    own = [
                        "weft",
                        "run",
                        "--scrapy",
                        "three.py",
                        "--data-dir",
                        "data",
                        "--allow-private",
                        "--prometheus-port",
                        "0",
                        "-q",
                    ]
                    scrapy = ["scrapy", "runspider", "three.py"]
                    command = [sys.executable, "-m", *(own if name == "weft" else scrapy), "-o", "items.jsonl"]
                    runs.append(run_once(command, delay, folder))
                print(f"{name}, delay {delay:g}: {runs[-1][0]:.0f} pages/s, {runs[-1][1]:.2f} ms", file=sys.stderr)
        medians = {
            name: [statistics.median(values) for values in zip(*runs, strict=True)] for name, runs in made.items()
        }
        found[f"delay {delay:g}"] = {
            "scrapy_pages_s": round(medians["scrapy"][0], 1), "weft_pages_s": round(medians["weft"][0], 1),
            "scrapy_cpu_ms": round(medians["scrapy"][1], 2), "weft_cpu_ms": round(medians["weft"][1], 2),
            "times_as_fast": round(medians["weft"][0] / medians["scrapy"][0], 2),
        }  # fmt: skip
    for server in servers:
        server.terminate()
    print(json.dumps(found | {"pages": pages}))


def cpu_ms(command: list[str], seeds: list[str]) -> tuple[float, int]:
    """CPU milliseconds a page, and the pages."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, "-m", "weft", *command, "--data-dir", str(data), "--delay", "0", "--allow-private",
             "--scope", "any", "--prometheus-port", "0", "-q"],
            env=os.environ | {"SEEDS": " ".join(seeds)}, check=True,
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
    given = [one for one in sys.argv[1:] if one != "--scrapy"]
    (beside_scrapy if "--scrapy" in sys.argv else main)(int(given[0]) if given else 2000)
