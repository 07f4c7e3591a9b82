"""A service that is fed short tasks and keeps them for a minute: what lies on its disk must not grow.

    python benchmarks/retention.py [--seconds 600] [--rate 20] [--retention 60]

`weft serve` runs as it does for everybody; each task is one page of a server on loopback. Every few seconds it is
counted what there is: task records, crawl records, rows of pages, lines of the journal, folders of pages, and bytes of
all of them. Growth is the mean of the last third of the time behind the warm-up (retention and SETTLE_S), by that of
the first third. What only grows by design is shown beside it, and not judged: the request log, and the log files.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sqlite3
import statistics
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from harness import results
from harness.http_load import at_rate, request
from service import order, served, slow_site

SAMPLE_S = 5.0
SETTLE_S = 30.0  # after the retention: deletions have begun, and the first backlog is worked off
JUDGED = ("tasks", "crawls", "rows", "lines", "folders", "trash", "page_mb", "database_mb")


def rows(path: Path, table: str) -> int:
    """How many a table has; 0 while there is none."""
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=5)) as db:
            return int(db.execute(f"SELECT count(*) FROM {table}").fetchone()[0])
    except sqlite3.OperationalError:
        return 0


def size_mb(*places: Path) -> float:
    """The bytes of some files, and of all files in some folders."""
    total = 0
    for place in places:
        for folder, _, names in os.walk(place) if place.is_dir() else [(str(place.parent), [], [place.name])]:
            for name in names:
                try:
                    total += (Path(folder) / name).stat().st_blocks * 512
                except FileNotFoundError:
                    pass  # deleted meanwhile
    return total / 1e6


def entries(folder: Path) -> int:
    """How many a folder has."""
    return sum(1 for _ in folder.iterdir()) if folder.is_dir() else 0


def sample(data_dir: Path) -> dict[str, float]:
    """What there is now."""
    engine = data_dir / "engine"
    index = next(engine.glob("index-*.db"), engine / "none")
    journal, jobs = engine / "frontier" / "frontier.db", data_dir / "jobs.db"
    return {
        "tasks": rows(jobs, "tasks"),
        "crawls": rows(index, "crawls"),
        "rows": rows(index, "pages"),
        "lines": rows(journal, "journal"),
        "folders": entries(engine / "warc"),
        "trash": entries(engine / "trash"),
        "page_mb": size_mb(engine / "warc", engine / "trash"),
        "database_mb": size_mb(*(Path(f"{path}{end}") for path in (index, journal, jobs) for end in ("", "-wal"))),
        "request_log_mb": size_mb(engine / "frontier" / "requests"),
        "log_mb": size_mb(engine / "logs", data_dir / "logs"),
    }


async def fed(seconds: float, rate: float, retention_s: float) -> dict[str, Any]:
    """Feeds a service at a rate, and samples what it keeps."""
    flags = ("--task-retention-hours", retention_s / 3600, "--max-concurrent-tasks", 50)
    with slow_site(0.0) as site, served(*flags) as (_client, port, pid):
        data_dir = folder_of(pid)
        samples: list[tuple[float, dict[str, float]]] = []
        began = time.monotonic()

        async def look() -> None:
            while True:
                await asyncio.sleep(SAMPLE_S)
                one = await asyncio.to_thread(sample, data_dir)
                samples.append((time.monotonic() - began, one))
                print(f"{samples[-1][0]:6.0f} s  " + "  ".join(f"{k} {v:,.6g}" for k, v in one.items()), flush=True)

        looking = asyncio.create_task(look())
        body = {"max_pages": 1}
        _, statuses, _ = await at_rate(
            port, rate, seconds, lambda n: request(port, "POST", "/scraping/async-scrape", order(site, n, **body))
        )
        looking.cancel()
    late = [one for at, one in samples if at >= min(retention_s + SETTLE_S, seconds / 2)]
    third = max(1, len(late) // 3)
    growth = {name: grown([one[name] for one in late], third) for name in JUDGED}
    worst = max(growth, key=growth.__getitem__)
    return {
        "seconds": seconds, "rate": rate, "retention_s": retention_s, "statuses": statuses, "growth_by": growth,
        "growth": growth[worst], "worst": worst, "last": samples[-1][1],
        "samples": [{"at_s": round(at, 1), **one} for at, one in samples],
    }  # fmt: skip


def grown(values: list[float], third: int) -> float:
    """How much more the last third is than the first; of what is nearly nothing, nothing."""
    first, last = statistics.mean(values[:third]), statistics.mean(values[-third:])
    return (last - first) / max(first, 10.0)


def folder_of(pid: int) -> Path:
    """The data dir of a service, by its command line."""
    words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    return Path(words[words.index("--data-dir") + 1]).resolve()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--rate", type=float, default=20)
    parser.add_argument("--retention", type=float, default=60)
    args = parser.parse_args()
    record = asyncio.run(fed(args.seconds, args.rate, args.retention))
    results.keep("retention", record)
    print(
        f"{args.rate:g} tasks a second for {args.seconds:g} s, kept for {args.retention:g} s: {record['statuses']}; "
        f"grew by {record['growth']:.0%} at most ({record['worst']})"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
