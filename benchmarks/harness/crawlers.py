"""The crawlers that are measured: how each is started on a web, and what must be said about how it is set."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.web import Server, Web

ROOT = Path(__file__).resolve().parents[2]
HERE = ROOT / "benchmarks" / "contenders"
PEERS = ROOT / ".bench" / "peers" / "bin" / "python"
NODE = ROOT / ".bench" / "node"
SCRATCH = ROOT / ".bench" / "scratch"


@dataclass(frozen=True, slots=True)
class Crawler:
    """One crawler. `web` names the web it gets: slow ones get a smaller one of the same make."""

    name: str
    web: str
    note: str
    command: Callable[[Web, Server], Sequence[str]]
    pages: Callable[[Mapping[str, Any]], int] = lambda said: int(said["pages"])
    env: Mapping[str, str] = field(default_factory=dict)

    def missing(self) -> str | None:
        """Why it cannot run here."""
        if self.name == "spider-rs" and not (shutil.which("node") and (NODE / "node_modules").is_dir()):
            return "node or its package is not here"
        return None if PEERS.exists() or self.name == "weft" else "the peers' environment is not here"


def _peer(
    script: str, *, ca: bool = False, out: bool = False, extra: Sequence[str] = ()
) -> Callable[[Web, Server], list[str]]:
    def command(web: Web, server: Server) -> list[str]:
        said = [str(PEERS), str(HERE / script), web.seed(server.port, server.scheme)]
        if out:
            said.append(str(SCRATCH / "bound.bin"))
        if ca and server.ca_file:
            said += ["--ca", server.ca_file]
        if web.is_endless:
            said += ["--pages", str(web.pages)]
        return [*said, *extra]

    return command


def _weft(web: Web, server: Server) -> list[str]:
    folder = SCRATCH / "weft"
    shutil.rmtree(folder, ignore_errors=True)
    flags = ["--scope", "any", "--delay", "0", "--allow-private", "--data-dir", str(folder), "--json", "--quiet"]
    if web.is_endless:
        flags += ["--max-pages", str(web.pages)]
    return [sys.executable, "-m", "weft", "crawl", web.seed(server.port, server.scheme), *flags]


def _spider(web: Web, server: Server) -> list[str]:
    others = [f"{server.scheme}://{host}:{server.port}" for host in web.addresses]
    limit = [f"--pages={web.pages}"] if web.is_endless else []
    return ["node", str(HERE / "spider.js"), *limit, web.seed(server.port, server.scheme), *others]


CRAWLERS = {
    crawler.name: crawler
    for crawler in (
        Crawler(
            "weft",
            "large",
            "`weft crawl --scope any --delay 0`, the rest as it comes: robots.txt, exact dedup, durable frontier, "
            "request log, WARC, index",
            _weft,
            pages=lambda said: int(said["status"]["pages"]),
        ),
        Crawler(
            "bound",
            "large",
            "libcurl multi on epoll, selectolax (lexbor), zstd-3 into one file; no politeness, durability, records",
            _peer("bound.py", ca=True, out=True),
        ),
        Crawler(
            "bound, Weft's parts",
            "large",
            "the same loop with turbohtml and igzip, the parser and the compressor that Weft uses",
            _peer("bound.py", ca=True, out=True, extra=("--parts", "weft")),
        ),
        Crawler(
            "aiohttp loop",
            "medium",
            "aiohttp on uvloop, selectolax, ada, protego, 64 workers; stores nothing",
            _peer("aiohttp_loop.py", ca=True),
        ),
        Crawler(
            "spider-rs",
            "medium",
            "npm package, robots.txt on, no delay, no callback a page; stores nothing",
            _spider,
            env={"NODE_PATH": str(NODE / "node_modules")},
        ),
        Crawler(
            "crawlee",
            "small",
            "ParselCrawler, storage in memory, 32 to 64 requests at once, no retries, no logs; stores nothing",
            _peer("crawlee_crawl.py"),
        ),
        Crawler(
            "scrapy",
            "small",
            "as its documentation advises for broad crawls: 100 requests at once, no logs, cookies or retries; "
            "stores nothing",
            _peer("scrapy_crawl.py"),
        ),
    )
}
