"""What a pod's frontier on Redis costs: claiming and adding at a thousand and a million domains, memory for each URL,
and the work and round trips of a page in the loop of claim, cool, admit and finish. One figure a line, as JSON; exits
with 1 when a goal is missed.

    python benchmarks/redis_frontier.py [--domains 1000,100000,1000000] [--urls 1000000] [--pages 20000] [--hot 0]
        [--rounds 25]
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from weft.config import PolitenessSection
from weft.frontier.contract import CrawlLimits, End, EndedLease, RobotsRecord, TransferEnd
from weft.frontier.redis.connection import connect
from weft.frontier.redis.redis_frontier import RedisFrontier
from weft.records import Found, Lease
from weft.supervise.redis_server import RedisServer

BATCH = 100  # leases a claim, pages a round
ROUND = 1000  # claims between two looks at the CPU
ALLOW = RobotsRecord("allow", b"", 9e12)
PATHS = ("/", "/wiki/", "/en/articles/", "/shop/item/", "/2024/05/", "/news/world/")


class Run:
    """A server, a frontier on it, and the figures so far."""

    def __init__(self, folder: Path) -> None:
        self.server = RedisServer(folder / "server")
        self.server.start()
        self.client: Any = connect(self.server.url)
        self.folder = folder
        self.failed = False
        self.fresh()

    def fresh(self, delay_s: float = 70.0) -> None:
        self.client.flushall()
        section = PolitenessSection(delay_s=delay_s, places=1)
        self.frontier = RedisFrontier(
            connect(self.server.url), self.folder / str(time.monotonic_ns()), section, slot="bench", idle_s=0.0
        )
        self.frontier.sites.robots = lambda _origin: ALLOW  # type: ignore[method-assign]  # its file is not measured
        self.crawl = self.frontier.crawls.open_crawl("bench", CrawlLimits())

    def close(self) -> None:
        self.server.kill()
        self.server.stop()

    def cpu_s(self) -> float:
        facts = self.client.info("cpu")
        return float(facts["used_cpu_user_main_thread"] + facts["used_cpu_sys_main_thread"])

    def settle(self) -> None:
        """Waits until the server has no child that rewrites its file: while it has, each page it touches is copied."""
        self.client.config_set("auto-aof-rewrite-percentage", 0)
        while self.client.info("persistence")["aof_rewrite_in_progress"]:
            time.sleep(0.1)

    def memory(self) -> int:
        return int(self.client.info("memory")["used_memory"])

    def tell(self, figure: str, value: float, unit: str, goal: float | None = None) -> None:
        met = goal is None or value <= goal
        self.failed = self.failed or not met
        print(
            json.dumps({"figure": figure, "value": round(value, 3), "unit": unit, "goal": goal, "met": met}), flush=True
        )

    def robots(self, names: list[str]) -> None:
        for start in range(0, len(names), 2000):
            arguments: list[Any] = []
            for name in names[start : start + 2000]:
                arguments += [name, b"\x01", int(9e14), 0, 1]
            self.frontier.link.call_script("robots", arguments)


def domain(number: int) -> str:
    return f"site-{number:07d}.com"


def url(rng: random.Random, site: str, number: int) -> str:
    return f"https://{site}{rng.choice(PATHS)}{rng.choice(('page', 'article', 'product-view', 'thread'))}-{number}.html"


def fill(run: Run, domains: int, each: int) -> float:
    """Admits so many URLs at each of so many domains; gives the server's seconds."""
    rng = random.Random(7)
    before = run.cpu_s()
    found: list[Found] = []
    for number in range(domains):
        site = domain(number)
        found += [Found(url(rng, site, at), 1 + at % 3, 1000 + number) for at in range(each)]
        if len(found) >= 2000:
            run.frontier.queue.admit(run.crawl, found)
            found = []
    run.frontier.queue.admit(run.crawl, found)
    return run.cpu_s() - before


class Pool:
    """A frontier with so many domains, each with one URL that is due, on a server of its own."""

    def __init__(self, folder: Path, size: int) -> None:
        self.size = size
        self.run = Run(folder)
        self._rng = random.Random(3)
        self._number = 10**6
        self._left = 0
        self.costs: dict[str, list[tuple[float, float]]] = {"claim": [], "admit": []}  # server and client, µs for each

    def round(self) -> None:
        """What claiming and adding ROUND of them costs now; a pool that is used up is filled anew before."""
        if self._left < ROUND:
            self.run.fresh()
            self.run.robots([domain(number) for number in range(self.size)])
            fill(self.run, self.size, 1)
            self._left = self.size
        self.run.settle()
        leases: list[Lease] = []
        self._measure("claim", lambda: leases.extend(self._claimed()))
        assert len(leases) == ROUND, len(leases)
        self._left -= ROUND
        for start in range(0, ROUND, BATCH):
            done(self.run, leases[start : start + BATCH])
        more = self._links()
        self._measure("admit", lambda: self._admit(more))

    def _measure(self, name: str, work: Callable[[], object]) -> None:
        server, began = self.run.cpu_s(), time.process_time()
        work()
        client_s = time.process_time() - began
        self.costs[name].append(((self.run.cpu_s() - server) / ROUND * 1e6, client_s / ROUND * 1e6))

    def _claimed(self) -> Iterator[Lease]:
        for _ in range(ROUND // BATCH):
            yield from self.run.frontier.leases.claim("bench", BATCH)

    def _admit(self, more: list[Found]) -> None:
        for start in range(0, ROUND, BATCH):
            self.run.frontier.queue.admit(self.run.crawl, more[start : start + BATCH])

    def _links(self) -> list[Found]:
        """A page's links lead to a few sites: its own above all."""
        sites = [domain(self._rng.randrange(self.size)) for _ in range(ROUND // 10)]
        self._number += ROUND
        return [
            Found(url(self._rng, site, self._number + 10 * at + part), 1, 7)
            for at, site in enumerate(sites)
            for part in range(10)
        ]


def growth(folder: Path, sizes: list[int], rounds: int) -> bool:
    """What a claim and an admission cost at each number of domains that are due; whether a goal was missed.

    One server for each number, asked in turn, and the median over all rounds: whatever else the machine does meanwhile
    hits all of them alike. Claims have a goal. Admissions have none: with more domains there are more URLs seen, here,
    so they find less in the processor's caches.
    """
    pools = [Pool(folder / str(size), size) for size in sizes]
    try:
        for _ in range(rounds):
            for pool in pools:
                pool.round()
        for name in ("claim", "admit"):
            whole = []
            servers = []
            for pool in pools:
                server = statistics.median(cost[0] for cost in pool.costs[name])
                client = statistics.median(cost[1] for cost in pool.costs[name])
                pool.run.tell(f"{name} at {pool.size} domains, server", server, "µs of CPU for each URL")
                pool.run.tell(f"{name} at {pool.size} domains, client", client, "µs of CPU for each URL")
                servers.append(server)
                whole.append(server + client)
            first = pools[0].run
            first.tell(f"{name}, server: most against least", max(servers) / min(servers), "times")
            goal = 1.25 if name == "claim" else None
            first.tell(f"{name}: most against least", max(whole) / min(whole), "times, client and server", goal)
        return pools[0].run.failed
    finally:
        for pool in pools:
            pool.run.close()


def done(run: Run, leases: list[Lease]) -> None:
    run.frontier.leases.cool([TransferEnd(lease, run.frontier.now(), ok=True) for lease in leases])
    run.frontier.leases.finish([EndedLease(lease, End.PAGE) for lease in leases])


def memory(run: Run, urls: int) -> None:
    """Bytes for each seen URL, each queued one, and each domain with nothing queued."""
    domains = urls // 50
    run.fresh()
    empty = run.memory()
    fill(run, domains, 50)
    total = run.memory() - empty
    seen = sum(run.client.memory_usage(key) for key in run.client.scan_iter("e:*", count=1000))
    run.tell("seen", seen / urls, "bytes of Redis for each URL", 12)
    run.tell("queued", (total - seen) / urls, "bytes of Redis for each URL, its domain's share included", 80)
    run.fresh()
    empty = run.memory()
    fill(run, 20_000, 1)
    run.robots([domain(number) for number in range(20_000)])
    run.tell(
        "domain", (run.memory() - empty) / 20_000 - 60, "bytes of Redis, with one URL queued that is not counted", 500
    )


def links(rng: random.Random, pages: int) -> Iterator[list[str]]:
    """Fifty links of a page: most lead where others led before, two to places that are new."""
    known: list[str] = [url(rng, domain(rng.randrange(5000)), at) for at in range(2000)]
    for page in range(pages):
        new = [url(rng, domain(rng.randrange(5000)), 10_000 + 2 * page + at) for at in range(2)]
        known += new
        yield [*new, *(known[rng.randrange(len(known))] for _ in range(48))]


def loop(run: Run, pages: int) -> None:
    """Claims, ends and links of pages in rounds, as a fused process has them."""
    run.fresh(delay_s=0.0)
    rng = random.Random(11)
    run.robots([domain(number) for number in range(5000)])
    frontier = run.frontier
    frontier.queue.admit(run.crawl, [Found(url(rng, domain(number), number), 0) for number in range(5000)])
    supply = links(rng, pages)
    trips, server, began, taken, batch = frontier.link.scripts.round_trips, run.cpu_s(), time.process_time(), 0, 0
    made = 0.0
    while taken < pages:
        leases = frontier.leases.claim("bench", min(BATCH, pages - taken))
        assert leases, "there is always something due"
        start = time.process_time()
        found_on = [(lease, next(supply)) for lease in leases]
        made += time.process_time() - start
        frontier.leases.cool([TransferEnd(lease, frontier.now(), ok=True) for lease in leases])
        found = [
            Found(link, lease.depth + 1, lease.item)
            for lease, hrefs in found_on
            for link in frontier.queue.unseen(run.crawl, dict.fromkeys(hrefs))
        ]
        frontier.queue.admit(run.crawl, found)
        batch += 1
        assert all(frontier.leases.finish([EndedLease(lease, End.PAGE) for lease in leases], batch))
        frontier.durability.acknowledge(batch)
        frontier.durability.commit()
        taken += len(leases)
    run.tell("server", (run.cpu_s() - server) / taken * 1e3, "ms of CPU for each page", 0.15)
    run.tell("client", (time.process_time() - began - made) / taken * 1e3, "ms of CPU for each page")
    run.tell("round trips", (frontier.link.scripts.round_trips - trips) / taken, "for each page", 0.5)


def hot(run: Run, urls: int) -> None:
    """One domain with very many URLs: what Redis holds of it while the lead spills."""
    run.fresh(delay_s=0.0)
    empty, most = run.memory(), 0
    for start in range(0, urls, 2000):
        run.frontier.queue.admit(
            run.crawl, [Found(f"https://hot.com/page-{at}", 1) for at in range(start, start + 2000)]
        )
        run.frontier.spiller.move_segments()
        if start % 100_000 == 0:
            seen = sum(run.client.memory_usage(key) for key in run.client.scan_iter("e:*", count=1000))
            most = max(most, run.memory() - empty - seen)
    run.tell("hot domain", most / 1e6, f"MB of Redis for {urls} queued URLs, seen set not counted", 10)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--domains", default="1000,100000,1000000")
    options.add_argument("--urls", type=int, default=1_000_000)
    options.add_argument("--pages", type=int, default=20_000)
    options.add_argument("--hot", type=int, default=0)
    options.add_argument("--rounds", type=int, default=25)
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = Run(Path(folder) / "one")
        try:
            if chosen.pages:
                loop(run, chosen.pages)
            if chosen.urls:
                memory(run, chosen.urls)
            if chosen.hot:
                hot(run, chosen.hot)
        finally:
            run.close()
        sizes = [int(size) for size in chosen.domains.split(",") if size]
        missed = growth(Path(folder), sizes, chosen.rounds) if sizes else False
    return int(run.failed or missed)


if __name__ == "__main__":
    sys.exit(main())
