"""What the request log and its audit cost as a crawl grows: the writer, packing, `weft audit` in all its forms.

    python benchmarks/request_log.py [--sizes 1000000,10000000,30000000] [--hosts-every 20] [--folder DIR] [--out FILE]

A folder with a log of that many requests to a twentieth as many hosts, and one hot host with a thousandth, written
through the frontier's own `RequestLog` with the times of 800 requests a second; each host's robots.txt is in the
history of the frontier. Then each command in a process of its own: wall time, CPU and peak memory of its process tree.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import shutil
import sys
import time
from collections import deque
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from harness.grown_crawl import HOT_EVERY, ROBOTS_S, Shape, size_of
from harness.measure import machine, run

from weft.config import PolitenessSection
from weft.crawl.folder import CrawlFolder
from weft.frontier.contract import CrawlLimits, RobotsRecord
from weft.frontier.embedded.embedded_frontier import EmbeddedFrontier
from weft.frontier.requests import RequestLog
from weft.frontier.requests.segments import Segment, replace_by_packed, segments_of

WEFT = [sys.executable, "-m", "weft"]
RATE = 800.0
RANGE_S = 120.0
DELAY_S = 0.001
LIMIT_S = 3 * 3600.0
_BATCH = 200
SETTINGS = {
    "politeness_delay_seconds": DELAY_S, "per_domain_concurrency": 1, "user_agent_template": "Weft/{version}",
}  # fmt: skip


class _Clock:
    """The time of the day that the log's times belong to."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.wall = time.time() - 90 * 86_400.0


def build(home: Path, requests: int, hosts: int) -> dict[str, Any]:
    """Writes a folder; what it cost."""
    shape = Shape(requests, hosts, 8080)
    folder = CrawlFolder([home])
    home.mkdir(parents=True)
    folder.start([], 1, settings=SETTINGS, defaults=["politeness_delay_seconds"])
    clock = _Clock()
    _know_robots(folder, shape, clock)
    log_folder = folder.pod_folder(0) / "requests"
    shutil.rmtree(log_folder)
    began = time.process_time(), time.monotonic()
    _write(log_folder, shape, clock)
    written = time.process_time() - began[0], time.monotonic() - began[1]
    raw = size_of(log_folder)
    pack_s, packing = pack_rest(log_folder)
    return {
        "requests": requests, "hosts": hosts,
        "write_cpu_us": round(1e6 * written[0] / requests, 2), "write_wall_s": round(written[1], 1),
        "packed_during_writing_bytes": raw, "pack_rest_cpu_s": round(pack_s, 1), "pack_rest_files": packing,
        "log_bytes": size_of(log_folder), "bytes_a_request": round(size_of(log_folder) / requests, 2),
        "files": len(list(log_folder.iterdir())),
        "robots_bytes": (folder.pod_folder(0) / "frontier.db").stat().st_size,
        "peak_rss_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
    }  # fmt: skip


def _know_robots(folder: CrawlFolder, shape: Shape, clock: _Clock) -> None:
    frontier = EmbeddedFrontier(
        folder.pod_folder(0), PolitenessSection(delay_s=DELAY_S, places=1), wall=lambda: clock.wall
    )  # fmt: skip
    frontier.crawls.open_crawl("crawl", CrawlLimits())
    frontier.recovery.recover()
    record = RobotsRecord("allow", b"", clock.wall + ROBOTS_S)
    for number in range(shape.hosts + 1):
        origin = shape.origin(number * HOT_EVERY if number == shape.hosts else number)
        frontier.sites.robots_known(origin, record, None)
        if number % 1000 == 0:
            frontier.durability.commit()
    frontier.close()


def _write(folder: Path, shape: Shape, clock: _Clock) -> None:
    """Starts in batches, ends as they come; without the time that packing takes beside it."""
    from weft.frontier.requests import writing

    rng, record = random.Random(3), RobotsRecord("allow", b"", 0.0)
    offset = clock.wall - clock.now
    writing.time = _LogTime(clock, offset)  # type: ignore[assignment]
    log = RequestLog(folder, clock.now, 1)
    running: deque[tuple[float, int]] = deque()
    known = set[str]()
    for first in range(0, shape.pages, _BATCH):
        clock.now += _BATCH / RATE
        while running and running[0][0] <= clock.now:
            at, item = running.popleft()
            log.log_end(item, at, "200")
        for number in range(first, min(first + _BATCH, shape.pages)):
            url, host = shape.page(number), shape.host(number)
            if host not in known:
                known.add(host)
                log.log_robots(clock.now, shape.origin(number), record)
            log.log_start(number + 1, clock.now, host, DELAY_S, 1, url, 1)
            running.append((clock.now + 0.02 + rng.random() * 0.2, number + 1))
        log.flush()
    log.close()


class _LogTime:
    """Stands for the module `time` in the writer: the log's own times."""

    def __init__(self, clock: _Clock, offset: float) -> None:
        self._clock, self._offset = clock, offset
        self.monotonic = time.monotonic

    def time(self) -> float:
        """The time of the day."""
        return self._clock.now + self._offset + random.random() * 2e-5


def pack_rest(folder: Path) -> tuple[float, int]:
    """Packs what the writer's thread has not come to: CPU seconds, and files."""
    before: Segment | None = None
    began, count = time.process_time(), 0
    for segment in segments_of(folder)[:-1]:
        if segment.plain is not None:
            replace_by_packed(segment, before, lambda: None)
            segment = Segment(segment.serial, None, segment.plain.with_suffix(".packed"))
            count += 1
        before = segment
    return time.process_time() - began, count


def measure(home: Path, shape: Shape) -> dict[str, dict[str, Any]]:
    """Every form of the audit."""
    audit = [*WEFT, "audit", str(home), "--json"]
    said = run([*audit, "--host", shape.host(1)], None, limit_s=LIMIT_S).said
    end = datetime.fromisoformat(said["covers"]["until"])
    late = (end - timedelta(seconds=RANGE_S)).strftime("%Y-%m-%dT%H:%M:%SZ")
    forms = {
        "audit": audit, "audit-one-process": [*audit, "--processes", "1"],
        "audit-host": [*audit, "--host", shape.host(1)],
        "audit-hot-host": [*audit, "--host", shape.host(0)], "audit-since": [*audit, "--since", late],
    }  # fmt: skip
    found = {}
    for name, argv in forms.items():
        cost = run(argv, None, limit_s=LIMIT_S)
        facts = cost.said
        found[name] = {
            "wall_s": round(cost.wall_s, 2), "cpu_s": round(cost.cpu_s, 2), "peak_rss_mb": round(cost.peak_rss_mb, 1),
            "requests": facts["requests"], "sites": facts["sites"], "violations": facts["violations_found"],
            "unjudged": len(facts["unjudged"]),
        }  # fmt: skip
        print(name, found[name], flush=True)
    return found


def main() -> None:
    """Builds and measures each size."""
    options = argparse.ArgumentParser()
    options.add_argument("--sizes", default="1000000,10000000,30000000")
    options.add_argument("--hosts-every", type=int, default=20)
    options.add_argument("--folder", type=Path, default=Path("/var/tmp/weft-request-log"))
    options.add_argument("--keep", action="store_true")
    options.add_argument("--out", type=Path)
    chosen = options.parse_args()
    points = []
    for size in map(int, chosen.sizes.split(",")):
        home = chosen.folder / f"{size}"
        shape = Shape(size, max(10, size // chosen.hosts_every), 8080)
        shutil.rmtree(home, ignore_errors=True)
        built = build(home, size, shape.hosts)
        print(built, flush=True)
        points.append({"size": size, "built": built, "commands": measure(home, shape)})
        if not chosen.keep:
            shutil.rmtree(home)
    if chosen.out is not None:
        chosen.out.write_text(json.dumps({"machine": machine(), "points": points}, indent=1) + "\n")


if __name__ == "__main__":
    main()
