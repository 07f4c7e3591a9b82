"""Very many hosts and very many seeds: when the first request and the first page come, in how much memory; and pauses.

    python benchmarks/hosts.py [--hosts 1000000] [--seeds 5000000] [--seconds 30] [--urls 5000000] [--tree FOLDER]

A server that answers for any host name notes what is asked for; every name leads to it (`resolve`). `hosts`: as many
seeds as hosts. `seeds`: five for each of a million hosts. Memory is that of all processes of the crawl, at the end of
the given time; the crawl is killed then. `pause`: the longest CPU time of one call (admit, claim, commit), and of one
turn with all three, while so many URLs are admitted to an embedded frontier, checkpoints among them.
`--tree` measures the Weft of another working tree.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from harness import results
from harness.measure import resident, tree

PAGE = b"<title>A page</title><p>Some words of a page that nobody reads."
_OK = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n%b" % (len(PAGE), PAGE)
_NONE = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"


class AnyHost(asyncio.Protocol):
    """Answers every request of one connection."""

    first: dict[str, float]
    counts: dict[str, int]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client came."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """A request: GETs are short, and come whole."""
        is_page = not data.startswith((b"GET /robots.txt", b"GET /sitemap.xml"))
        kind = "page" if is_page else "request"
        self.first.setdefault("request", time.monotonic())
        self.first.setdefault(kind, time.monotonic())
        self.counts[kind] = self.counts.get(kind, 0) + 1
        self._transport.write(_OK if is_page else _NONE)  # type: ignore[attr-defined]


def serve(ready: threading.Event, at: dict[str, Any]) -> None:
    """Runs the server on a thread of its own."""

    async def run() -> None:
        server = await asyncio.get_running_loop().create_server(AnyHost, "127.0.0.1", at.get("port", 0), backlog=4096)
        at["port"] = server.sockets[0].getsockname()[1]
        ready.set()
        await server.serve_forever()

    asyncio.run(run())


def crawled(name: str, hosts: int, seeds: int, seconds: float, port: int, source: Path) -> dict[str, float]:
    """One crawl of so many seeds, for some seconds."""
    folder = Path(tempfile.mkdtemp(prefix="weft-hosts-"))
    AnyHost.first, AnyHost.counts = {}, {}
    with (folder / "seeds.txt").open("w") as file:
        for number in range(seeds):
            file.write(f"http://host{number % hosts}.example{number % 97}.test:{port}/page/{number}\n")
    begin = time.monotonic()
    command = [sys.executable, "-m", "weft", "crawl", "--seed-file", str(folder / "seeds.txt"), "--quiet"]
    flags = [
        "--resolve",
        "*=127.0.0.1",
        "--allow-private",
        "--prometheus-port",
        "0",
        "--data-dir",
        str(folder / "data"),
    ]
    with (folder / "said").open("wb") as said:
        running = subprocess.Popen(
            [*command, *flags, "--delay", "1"], stderr=said, stdout=said, process_group=0,
            env=os.environ | {"PYTHONPATH": str(source / "src")},
        )  # fmt: skip
    time.sleep(seconds)
    rss_mb = max(resident(pid) for pid in tree(running.pid)) / 1e6
    os.killpg(running.pid, signal.SIGKILL)
    running.wait()
    shutil.rmtree(folder)
    found = {f"first_{kind}_s": AnyHost.first.get(kind, float("inf")) - begin for kind in ("request", "page")}
    return found | {"pages": AnyHost.counts.get("page", 0), "rss_mb": rss_mb, "seeds": seeds, "hosts": hosts}


_PAUSE = """
import sys, tempfile, time, json, gc
from pathlib import Path
from weft.config import PolitenessSection
from weft.engine.entry import GC_THRESHOLDS
from weft.frontier.contract import CrawlLimits
from weft.frontier.embedded.embedded_frontier import EmbeddedFrontier
from weft.records import Found
gc.freeze(); gc.set_threshold(*GC_THRESHOLDS)
frontier = EmbeddedFrontier(Path(sys.argv[1]), PolitenessSection(delay_s=1.0, places=1))
crawl = frontier.crawls.open_crawl("pause", CrawlLimits())
frontier.recovery.recover()
longest = dict.fromkeys(("admit", "claim", "commit", "turn"), 0.0)
def timed(name, call, *args):
    begin = time.thread_time()
    call(*args)
    longest[name] = max(longest[name], time.thread_time() - begin)
def turn(found):
    timed("admit", frontier.queue.admit, crawl, found)
    timed("claim", frontier.leases.claim, "bench", 5)
    timed("commit", frontier.durability.commit)
urls, at = int(sys.argv[2]), 0
while at < urls:
    found = [Found(f"http://host{n * 7919 % 200_000}.test/a/{n}", 1) for n in range(at, at + 500)]
    at += 500
    timed("turn", turn, found)
print(json.dumps(longest))
import os; os._exit(0)
"""


def pauses(urls: int, source: Path) -> dict[str, float]:
    """The longest call of each kind."""
    folder = tempfile.mkdtemp(prefix="weft-pause-")
    try:
        told = subprocess.run(
            [sys.executable, "-c", _PAUSE, folder, str(urls)], env=os.environ | {"PYTHONPATH": str(source / "src")},
            check=True, capture_output=True, text=True,
        )  # fmt: skip
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    longest: dict[str, float] = json.loads(told.stdout)
    return longest | {"urls": urls}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--hosts", type=int, default=1_000_000)
    parser.add_argument("--seeds", type=int, default=5_000_000)
    parser.add_argument("--urls", type=int, default=5_000_000)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--tree", type=Path, default=Path(__file__).resolve().parent.parent)
    parser.add_argument("--only", choices=["hosts", "seeds", "pause"])
    args = parser.parse_args()
    ready, at = threading.Event(), dict[str, Any]()
    threading.Thread(target=serve, args=(ready, at), daemon=True).start()
    ready.wait()
    for name, seeds in (("hosts", args.hosts), ("seeds", args.seeds)):
        if args.only in (None, name) and seeds:
            got = crawled(name, args.hosts, seeds, args.seconds, at["port"], args.tree)
            results.keep(name, got)
            print(
                f"{name}: {seeds:,} seeds of {args.hosts:,} hosts: first request after {got['first_request_s']:.1f} s, "
                f"first page after {got['first_page_s']:.1f} s, {got['pages']:,.0f} pages and {got['rss_mb']:.0f} MB "
                f"after {args.seconds:.0f} s"
            )
    if args.only in (None, "pause") and args.urls:
        longest = pauses(args.urls, args.tree)
        results.keep("pause", longest)
        print(
            f"pause: longest calls with {args.urls:,} URLs: "
            + ", ".join(f"{k} {v:.3f} s" for k, v in longest.items() if k != "urls")
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
