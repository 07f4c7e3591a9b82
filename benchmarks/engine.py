"""What many crawls in one engine cost, beside one: CPU a page, memory of a waiting crawl, first pages, cancel, readers.

    python benchmarks/engine.py [--waiting 10000] [--queued 1000000] [--rounds 5]

Everything goes through `weft.Engine`, which talks to the engine's own process; that process's CPU is what is counted.
One crawl and two hundred fetch the same URLs of the same hosts, in turns, and the same with and without readers; each
ratio is the median of the pairs' ratios. CPU a page is taken from the middle of a run, when all crawls run: what it
costs to open a crawl and to end it is measured apart, with crawls of one page.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from harness import engine_readers, results

import weft
from weft.supervise.process import rss_bytes
from weft.testing.web import SyntheticWeb, synthetic_web

HOSTS, PAGES, USED_HOSTS, PER_HOST = 60, 40_000, 40, 120
RUNNING = 200
FIRST, LAST = 0.15, 0.85  # the part of a run's pages in which CPU is counted
OPENERS = 16
SMALL = 20


def cpu_s(pid: int | None) -> float:
    """What a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def held_bytes(folder: Path) -> int:
    """What pages, rows and queues take of the disk."""
    kept = [path for path in folder.rglob("*") if not {"logs", "metrics", "requests"} & set(path.parts)]
    return sum(path.stat().st_blocks * 512 for path in kept if path.is_file())


class Bench:
    """One web, and engines on it."""

    def __init__(self, web: SyntheticWeb, folder: Path) -> None:
        self._folder = folder
        self.shared: dict[str, Any] = {"allow_private": True, "resolve": web.resolve, "delay": 0, "scope": "host"}
        never = set(web.expect().never)
        slow = {host for host, view in web.expect().robots.items() if view.crawl_delay_s}
        fit = [site for site in web.world.ordinary if site.role == "ordinary" and site.host not in slow]
        urls = [[url for path in site.paths if (url := site.origin + path) not in never] for site in fit]
        self.urls = [found[:PER_HOST] for found in urls if len(found) >= PER_HOST][:USED_HOSTS]
        self.roots = [found[0] for found in self.urls]

    def engine(self, name: str) -> weft.Engine:
        """An engine of its own."""
        return weft.Engine(self._folder / name, **self.shared)

    def shares(self, crawls: int) -> list[list[str]]:
        """The URLs, dealt out to so many crawls: each has some of one host's, one alone has all."""
        if crawls == 1:
            return [[url for found in self.urls for url in found]]
        each = crawls // len(self.urls)
        return [found[place::each] for found in self.urls for place in range(each)]

    def cost_ms(self, engine: weft.Engine, run: str, shares: Sequence[Sequence[str]]) -> dict[str, float]:
        """CPU-ms of a page while all crawls run, and of opening and forgetting one."""
        names = [f"{run} {number}" for number in range(len(shares))]
        began = cpu_s(engine.pid)

        def put(handle: weft.Engine, number: int) -> None:
            handle.open(names[number], seeded_urls_only=True)
            handle.pause(names[number])
            handle.seed(names[number], shares[number])

        _at_once(engine, put, len(names))
        opened = cpu_s(engine.pid)
        middle = _Middle(engine, sum(map(len, shares)))
        _at_once(engine, lambda handle, number: handle.resume(names[number]), len(names))
        pages = sum(engine.wait(name).pages for name in names)
        ended = cpu_s(engine.pid)
        page_ms = middle.page_ms()
        for name in names:
            engine.forget(name)
        while any((engine.data_dir / "warc").iterdir()):
            time.sleep(0.05)
        return {
            "page": page_ms,
            "whole_page": 1000 * (ended - opened) / pages,
            "open": 1000 * (opened - began) / len(names),
            "forget": 1000 * (cpu_s(engine.pid) - ended) / len(names),
        }

    def wait(self, engine: weft.Engine, waiting: int) -> float:
        """Opens crawls that wait: each has a URL, and is paused. The KB of memory that one takes."""
        before = rss_bytes(engine.pid or 0)

        def put(handle: weft.Engine, number: int) -> None:
            handle.open(f"waiting {number}")
            handle.pause(f"waiting {number}")
            handle.seed(f"waiting {number}", [self.roots[number % len(self.roots)]])

        _at_once(engine, put, waiting)
        return (rss_bytes(engine.pid or 0) - before) / 1024 / max(1, waiting)

    def read_ms(self, engine: weft.Engine, run: str) -> tuple[float, bool]:
        """CPU-ms of a page of one crawl that fifty read along with; and whether all have read the same, and all."""
        after = max((event.cursor for event in engine.events(follow=False)), default=0)
        engine.open(f"{run} 0", seeded_urls_only=True)
        arguments = [sys.executable, engine_readers.__file__, str(engine.data_dir), str(after), f"{run} 0"]
        with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as readers:
            assert readers.stdout is not None
            readers.stdout.readline()
            engine.pause(f"{run} 0")
            (share,) = self.shares(1)
            engine.seed(f"{run} 0", share)
            middle = _Middle(engine, len(share))
            engine.resume(f"{run} 0")
            engine.wait(f"{run} 0")
            page_ms = middle.page_ms()
            found = json.loads(readers.stdout.read())
        everything = engine_readers.digest(engine.events(after=after, follow=False))
        return page_ms, {tuple(one) for one in found} == {everything}

    def beside_many(self, queued: int) -> dict[str, Any]:
        """First pages of small crawls, and the end of a large one, while that one runs at full speed."""
        half = len(self.roots) // 2
        with self.engine("large") as engine:
            engine.open("small", seeds=[self.roots[-1]], max_pages=3)
            engine.wait("small")
            memory, disk = [rss_bytes(engine.pid or 0)], [held_bytes(engine.data_dir)]
            urls = [f"{root}big/{number}" for number in range(queued // half) for root in self.roots[:half]]
            engine.open("big", seeds=urls, seeded_urls_only=True)
            waits = []
            for number, root in enumerate(itertools.islice(itertools.cycle(self.roots[half:]), SMALL)):
                began = time.monotonic()
                engine.open(f"small {number}", seeds=[root], max_pages=3)
                next(engine.pages(f"small {number}"))
                waits.append(time.monotonic() - began)
            left = engine.standing("big").queued
            memory.append(rss_bytes(engine.pid or 0))
            disk.append(held_bytes(engine.data_dir))
            began = time.monotonic()
            number = engine.cancel("big").id
            cancel_s = time.monotonic() - began
            engine.forget("big")
            while (engine.data_dir / "warc" / str(number)).exists():
                time.sleep(0.05)
            forget_s = time.monotonic() - began
            time.sleep(3)  # the databases' logs are written back now and then
            memory.append(rss_bytes(engine.pid or 0))
        disk.append(held_bytes(self._folder / "large"))
        return {
            "first_page_p95_s": sorted(waits)[-2],
            "first_page_median_s": statistics.median(waits),
            "queued_at_cancel": left,
            "cancel_s": cancel_s,
            "forget_s": forget_s,
            "memory_mb": [size / 1e6 for size in memory],
            "disk_mb": [size / 1e6 for size in disk],
        }


class _Middle:
    """The engine's CPU in the middle of a run, by its own figures, which are read from the file that it writes."""

    def __init__(self, engine: weft.Engine, pages: int) -> None:
        self._engine = engine
        self._pages = pages
        self._status = engine.data_dir / "status.json"
        self._before = self._read()
        self._samples: list[tuple[int, float]] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def page_ms(self) -> float:
        """CPU-ms of a page; the run is over."""
        self._over.set()
        self._thread.join()
        some = [one for one in self._samples if FIRST <= one[0] / self._pages <= LAST]
        if len(some) < 2:
            raise SystemExit("a run was too short to be measured: use more pages")
        return 1000 * (some[-1][1] - some[0][1]) / (some[-1][0] - some[0][0])

    def _watch(self) -> None:
        last = 0
        while not self._over.wait(0.01):
            pages = self._read() - self._before
            if pages != last:
                last = pages
                self._samples.append((pages, cpu_s(self._engine.pid)))

    def _read(self) -> int:
        try:
            return int(json.loads(self._status.read_bytes())["pages"])
        except (OSError, ValueError, KeyError):
            return 0


def _at_once(engine: weft.Engine, do: Callable[[weft.Engine, int], object], count: int) -> None:
    """Does something so many times, by several handles: their commands share commits."""

    def some(first: int) -> None:
        with weft.Engine(engine.data_dir) as handle:
            for number in range(first, count, OPENERS):
                do(handle, number)

    threads = [threading.Thread(target=some, args=(first,)) for first in range(min(OPENERS, count))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def measured(bench: Bench, waiting: int, rounds: int) -> dict[str, Any]:
    """One crawl, many, and one that is read along with, in turns."""
    one: list[dict[str, float]] = []
    many: list[dict[str, float]] = []
    read: list[float] = []
    all_agree = True
    with ExitStack() as stack:
        alone, crowd, told = (stack.enter_context(bench.engine(name)) for name in ("alone", "crowd", "told"))
        kilobytes = bench.wait(crowd, waiting)
        for number in range(rounds):
            one.append(bench.cost_ms(alone, f"one {number}", bench.shares(1)))
            many.append(bench.cost_ms(crowd, f"many {number}", bench.shares(RUNNING)))
            page_ms, agree = bench.read_ms(told, f"read {number}")
            read.append(page_ms)
            all_agree = all_agree and agree
            print(
                f"  {one[-1]['page']:.3f} CPU-ms a page; {RUNNING} crawls {many[-1]['page']:.3f} (with their begin and "
                f"end {many[-1]['whole_page']:.3f}); read along {page_ms:.3f}; load {os.getloadavg()[0]:.1f}",
                flush=True,
            )
    pages_each = PER_HOST * len(bench.urls) / RUNNING
    dearer = [
        (late["page"] / early["page"], more / early["page"]) for early, late, more in zip(one, many, read, strict=True)
    ]
    return {
        "one_ms": statistics.median(cost["page"] for cost in one),
        "many_ratio": statistics.median(ratio for ratio, _ in dearer),
        "readers_ratio": statistics.median(ratio for _, ratio in dearer),
        "readers_agree": all_agree,
        "crawl_open_ms": statistics.median(cost["open"] for cost in many),
        "crawl_end_ms": pages_each * statistics.median(cost["whole_page"] - cost["page"] for cost in many),
        "crawl_forget_ms": statistics.median(cost["forget"] for cost in many),
        "waiting_kb": kilobytes,
        "waiting": waiting,
        "rounds": rounds,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--waiting", type=int, default=10_000)
    parser.add_argument("--queued", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    with (
        synthetic_web(hosts=HOSTS, pages=PAGES, seed=9, profile="calm") as web,
        tempfile.TemporaryDirectory(prefix="weft-engine-", dir=os.environ.get("TMPDIR")) as folder,
    ):
        bench = Bench(web, Path(folder))
        found = measured(bench, args.waiting, args.rounds) | {"load": os.getloadavg()[0]}
        found |= bench.beside_many(args.queued)
    results.keep("engine", found)
    memory, disk = found["memory_mb"], found["disk_mb"]
    print(
        f"one crawl {found['one_ms']:.3f} CPU-ms a page; {RUNNING} and {args.waiting:,} waiting ×"
        f"{found['many_ratio']:.3f}; {engine_readers.READERS} readers ×{found['readers_ratio']:.3f}, "
        f"{'no gap, no repeat' if found['readers_agree'] else 'THEY DIFFER'}\n"
        f"a waiting crawl {found['waiting_kb']:.1f} KB; CPU of one: open {found['crawl_open_ms']:.1f} ms, run and end "
        f"{found['crawl_end_ms']:.1f} ms, forget {found['crawl_forget_ms']:.1f} ms\n"
        f"beside {found['queued_at_cancel']:,} queued URLs: first page {found['first_page_median_s']:.2f} s, p95 "
        f"{found['first_page_p95_s']:.2f} s; cancel {found['cancel_s']:.2f} s; forgotten in {found['forget_s']:.1f} s: "
        f"memory {memory[0]:.0f} → {memory[1]:.0f} → {memory[2]:.0f} MB, disk {disk[0]:.1f} → {disk[1]:.1f} → "
        f"{disk[2]:.1f} MB"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
