"""What pods cost: one process, two embedded pods, and a pod on Redis with its two halves in one process or in two.

    python benchmarks/pods.py [--rounds 3] [--pages 5000] [--add]

All processes of a crawl share the first core, so that pages/s are those of one core and CPU a page is the whole tree's;
nginx and Redis have the last one. Redis tells its own CPU and how often it has read from a connection, which is a round
trip. Starts and ends are taken out as in compare.py. Memory for each URL and the cost of a claim at a thousand and a
million domains: redis_frontier.py.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import results
from harness.crawlers import CRAWLERS, ROOT, SCRATCH
from harness.measure import Cost, Failed, cores, run
from harness.web import Server, Web, make, served

from weft.frontier.redis.connection import connect
from weft.supervise.redis_server import RedisServer

ONE, TWO, FUSED, SPLIT = "one process", "2 embedded pods", "Redis, 1 fetcher", "Redis, 1 fetcher + 1 parser"
FLAGS: dict[str, list[str]] = {
    ONE: [],
    TWO: ["--num-pods", "2"],
    FUSED: ["--fetchers-per-pod", "1", "--parsers-per-pod", "0"],
    SPLIT: ["--fetchers-per-pod", "1", "--parsers-per-pod", "1"],
}


@dataclass(frozen=True, slots=True)
class Redis:
    """A server, and what it has done so far."""

    url: str
    client: Any

    def figures(self) -> tuple[float, int]:
        cpu, stats = self.client.info("cpu"), self.client.info("stats")
        return float(cpu["used_cpu_user"] + cpu["used_cpu_sys"]), int(stats["total_reads_processed"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pages", type=int, default=5000)
    parser.add_argument("--port", type=int, default=8482)
    parser.add_argument("--add", action="store_true", help="these rounds join those measured before")
    args = parser.parse_args()
    folder = ROOT / ".bench" / f"web-{args.port}"
    webs = make(folder, args.pages, args.port)
    section = results.section("pods") if args.add else {}
    with tempfile.TemporaryDirectory() as place:
        server = RedisServer(Path(place))
        server.start()
        assert server.pid is not None
        os.sched_setaffinity(server.pid, {cores()[1]})
        redis = Redis(server.url, connect(server.url))
        try:
            with served(folder, "keep-alive", args.port, cores()[1]) as web_server:
                for _ in range(args.rounds):
                    for name in FLAGS:
                        one_round(section, name, webs["large"], webs["start"], web_server, redis)
        finally:
            server.kill()
            server.stop()
    summary(section)
    results.keep("pods", section)
    return 0


def one_round(section: dict[str, Any], name: str, web: Web, start: Web, server: Server, redis: Redis) -> None:
    """Adds one round of one kind."""
    kinds = section.setdefault("kinds", {})
    record = kinds.setdefault(name, {"rounds": [], "starts": [], "pages": web.pages})
    record["starts"].append(measure(name, start, server, redis))
    record["rounds"].append(measure(name, web, server, redis))
    print(f"{name:28} {results.line(record)}", flush=True)


def measure(name: str, web: Web, server: Server, redis: Redis) -> dict[str, Any]:
    """One run that has fetched every page, with what Redis did for it."""
    shutil.rmtree(SCRATCH, ignore_errors=True)
    SCRATCH.mkdir(parents=True)
    redis.client.flushall()
    on_redis = ["--pods", redis.url] if name in (FUSED, SPLIT) else []
    cpu_s, reads = redis.figures()
    command = [*CRAWLERS["weft"].command(web, server), *on_redis, *FLAGS[name], "--prometheus-port", "0"]
    cost: Cost = run(command, cores()[0], cwd=SCRATCH)
    if (pages := int(cost.said["status"]["pages"])) != web.pages:
        raise Failed(f"{name}: {pages} of {web.pages} pages")
    after_s, after = redis.figures()
    return {**cost.as_dict(), "said": {}, "redis_cpu_s": after_s - cpu_s, "round_trips": after - reads}


def summary(section: dict[str, Any]) -> None:
    """The figures that the goals are about, and a table."""
    kinds = section["kinds"]
    print("| processes | pages/s of one core | CPU a page | Redis CPU a page | round trips a page |")
    print("|---|---|---|---|---|")
    for name, record in kinds.items():
        found = results.figures(record)
        assert found is not None
        row = f"| {name} | {found['pages_per_s']:,.0f} | {found['cpu_ms']:.3f} ms |"
        if name in (FUSED, SPLIT):
            record["redis_cpu_ms"] = 1000 * of_redis(record, "redis_cpu_s")
            record["round_trips_a_page"] = of_redis(record, "round_trips")
            row += f" {record['redis_cpu_ms']:.3f} ms | {record['round_trips_a_page']:.2f} |"
        else:
            row += " | |"
        print(row)
    pairs = zip(results.per_round(kinds[TWO], "cpu_ms"), results.per_round(kinds[ONE], "cpu_ms"), strict=True)
    section["two_pods_dearer"] = results.median(two / one - 1 for two, one in pairs)
    section["redis_cpu_ms"] = kinds[FUSED]["redis_cpu_ms"]
    section["round_trips"] = kinds[FUSED]["round_trips_a_page"]
    print(f"two embedded pods: {section['two_pods_dearer']:+.1%} CPU a page")


def of_redis(record: dict[str, Any], figure: str) -> float:
    """What Redis did for a page, without what a start and an end need."""
    start = results.median(one[figure] for one in record["starts"])
    return results.median((one[figure] - start) / record["pages"] for one in record["rounds"])


if __name__ == "__main__":
    sys.exit(main())
