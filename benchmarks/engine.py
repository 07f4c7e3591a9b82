"""What many crawls in one engine cost, beside one: CPU a page, memory of a waiting crawl, first pages, cancel, readers.

    python benchmarks/engine.py [--waiting 10000] [--queued 1000000] [--rounds 3]

The web is one of hosts without a Crawl-delay, so that the engine is what is measured. Shares of CPU are taken in turns
and their medians compared; everything goes through `weft.Engine`, which talks to the engine's own process.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness import results

import weft
from weft.supervise.process import rss_bytes
from weft.testing.web import SyntheticWeb, synthetic_web

HOSTS, PAGES = 40, 4000
RUNNING = 200
READERS, STUCK = 50, 5


def cpu_s(pid: int | None) -> float:
    """What a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Bench:
    """One web, and engines on it."""

    def __init__(self, web: SyntheticWeb, folder: Path) -> None:
        self._folder = folder
        self._numbers = itertools.count()
        every = [f"http://127.1.0.{number + 1}:{web.port}/" for number in range(HOSTS)]
        slow = {host for host, view in web.expect().robots.items() if view.crawl_delay_s}
        self.roots = [root for root in every if root.split("/")[2].partition(":")[0] not in slow]
        self._shared = {"allow_private": True, "resolve": web.resolve, "delay": 0, "scope": "host"}

    @contextmanager
    def engine(self) -> Iterator[weft.Engine]:
        """An engine of its own."""
        with weft.Engine(self._folder / str(next(self._numbers)), **self._shared) as engine:
            yield engine

    def cost_ms(self, crawls: int, waiting: int = 0, readers: int = 0) -> tuple[float, float]:
        """CPU-ms a page of so many crawls at once, beside others that wait; and the KB that a waiting one takes."""
        with self.engine() as engine:
            before = rss_bytes(engine.pid or 0)
            for number in range(waiting):
                engine.open(f"waiting {number}")
            kilobytes = (rss_bytes(engine.pid or 0) - before) / 1024 / max(1, waiting)
            names = [f"crawl {number}" for number in range(crawls)]
            began = cpu_s(engine.pid)
            for number, name in enumerate(names):
                seeds = [root for place, root in enumerate(self.roots) if place % crawls == number % len(self.roots)]
                engine.open(name, seeds=seeds, max_pages=PAGES if crawls == 1 else PAGES // HOSTS)
            stop = _read_along(engine, readers)
            pages = sum(engine.wait(name).pages for name in names)
            spent = cpu_s(engine.pid) - began
            stop()
            return 1000 * spent / pages, kilobytes

    def beside_a_million(self, queued: int) -> dict[str, float]:
        """First pages of small crawls, and the end of a large one, while that one runs at full speed."""
        half = len(self.roots) // 2
        with self.engine() as engine:
            urls = [f"{root}big/{number}" for number in range(queued // half) for root in self.roots[:half]]
            engine.open("big", seeds=urls)
            waits = []
            for number, root in enumerate(itertools.islice(itertools.cycle(self.roots[half:]), 20)):
                began = time.monotonic()
                engine.open(f"small {number}", seeds=[root], max_pages=3)
                next(engine.pages(f"small {number}"))
                waits.append(time.monotonic() - began)
            left = engine.standing("big").queued
            began = time.monotonic()
            engine.cancel("big")
            cancel_s = time.monotonic() - began
            began = time.monotonic()
            engine.forget("big")
            while any((engine.data_dir / "warc" / "1").glob("*")):
                time.sleep(0.05)
            return {
                "first_page_p95_s": sorted(waits)[18],
                "first_page_median_s": statistics.median(waits),
                "queued_at_cancel": left,
                "cancel_s": cancel_s,
                "forget_s": time.monotonic() - began,
            }


def _read_along(engine: weft.Engine, readers: int) -> Any:
    """Readers of all events, of whom some never read; gives what ends them."""
    over, threads = threading.Event(), []
    for number in range(readers):
        events = engine.events()
        if number < STUCK:
            next(events, None)
            threads.append((None, events))
            continue

        def read(events: Any = events) -> None:
            for _ in events:
                if over.is_set():
                    return

        thread = threading.Thread(target=read, daemon=True)
        thread.start()
        threads.append((thread, events))
    return over.set


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--waiting", type=int, default=10_000)
    parser.add_argument("--queued", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    with (
        synthetic_web(hosts=HOSTS, pages=PAGES + 200, seed=9, profile="calm") as web,
        tempfile.TemporaryDirectory(prefix="weft-engine-", dir=os.environ.get("TMPDIR")) as folder,
    ):
        bench = Bench(web, Path(folder))
        costs: dict[str, list[float]] = {"one": [], "many": [], "read": []}
        kilobytes = 0.0
        for number in range(args.rounds):
            costs["one"].append(bench.cost_ms(1)[0])
            many, size = bench.cost_ms(RUNNING, args.waiting if number == 0 else args.waiting // 10)
            costs["many"].append(many)
            kilobytes = max(kilobytes, size)
            costs["read"].append(bench.cost_ms(1, readers=READERS)[0])
        found: dict[str, Any] = {name: statistics.median(values) for name, values in costs.items()}
        found |= {"many_dearer": found["many"] / found["one"] - 1, "readers_dearer": found["read"] / found["one"] - 1}
        found |= {"waiting_kb": kilobytes, "waiting": args.waiting} | bench.beside_a_million(args.queued)
    results.keep("engine", found)
    print(
        f"one crawl {found['one']:.3f} CPU-ms a page; "
        f"{RUNNING} and {args.waiting:,} waiting {found['many_dearer']:+.1%}; "
        f"{READERS} readers {found['readers_dearer']:+.1%}; a waiting crawl {kilobytes:.1f} KB\n"
        f"beside {found['queued_at_cancel']:,} queued URLs: first page {found['first_page_median_s']:.2f} s, p95 "
        f"{found['first_page_p95_s']:.2f} s; cancel {found['cancel_s']:.2f} s; forgotten in {found['forget_s']:.1f} s"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
