"""What admitting and claiming cost as a frontier grows, and what a URL takes in memory.

    python benchmarks/growth.py [--quick]

Processes one after the other: URLs from 10 k to 10 M on 10 k domains, domains from 1 k to 1 M with 1 M URLs, and
memory: bytes of resident memory for each seen URL (the seen set alone) and for each queued one (the frontier's growth
less the seen set's). Times are CPU microseconds a URL, in batches as the engine has them, commits included.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from harness import results
from harness.frontiers import Driven, rss, url

WINDOW = 3_000
WINDOWS = 15


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of everything")
    parser.add_argument("--part", choices=list(PARTS), help="one part, in this process")
    args = parser.parse_args()
    scale = 10 if args.quick else 1
    if args.part:
        with tempfile.TemporaryDirectory(prefix="weft-growth-", dir=os.environ.get("TMPDIR")) as folder:
            print(json.dumps(PARTS[args.part](Path(folder), scale)))
        return 0
    found = {part: in_process(part, args.quick) for part in PARTS}
    found["quick"] = args.quick
    results.keep("growth", found)
    print(table(found))
    return 0


def in_process(part: str, quick: bool) -> Any:
    """A part in a process of its own: memory that one has given back is not taken for another's."""
    command = [sys.executable, __file__, "--part", part, *(["--quick"] if quick else [])]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def urls_grow(folder: Path, scale: int) -> list[dict[str, float]]:
    """The same number of domains, ever more URLs."""
    return grown(folder, [(size, 10_000) for size in (10_000, 100_000, 1_000_000, 10_000_000 // scale)])


def domains_grow(folder: Path, scale: int) -> list[dict[str, float]]:
    """The same number of URLs, ever more domains."""
    return grown(folder, [(1_000_000, domains) for domains in (1_000, 10_000, 100_000, 1_000_000 // scale)])


def grown(folder: Path, sizes: list[tuple[int, int]]) -> list[dict[str, float]]:
    """Frontiers of all sizes beside each other: what they cost is measured in turn, since machines have moods."""
    all_driven, rows = [], []
    for place, (urls, domains) in enumerate(sizes):
        gc.collect()
        before = rss()
        driven = Driven(folder / str(place), domains)
        driven.know_robots()
        driven.admit(urls)
        all_driven.append(driven)
        rows.append({"urls": urls, "domains": domains, "rss_mb": round((rss() - before) / (1 << 20), 1)})
    windows = [[window(driven) for driven in all_driven] for _ in range(WINDOWS)]
    for place, row in enumerate(rows):
        for at, name in enumerate(("admit_us", "claim_us", "end_us")):
            row[name] = round(1e6 * median(round_[place][at] for round_ in windows), 2)
    return rows


def window(driven: Driven) -> tuple[float, float, float]:
    """The cost of the next URLs, at this size: admitting, claiming, ending one."""
    admitting = driven.admit(WINDOW) / WINDOW
    claiming, ending, done = driven.work(WINDOW)
    return admitting, claiming / done, ending / done


def seen_memory(folder: Path, scale: int) -> dict[str, float]:
    """Bytes for each URL that is known and nothing else."""
    from weft.frontier.seen.seen_set import SeenSet

    count = 5_000_000 // scale
    seen = SeenSet(7)
    before = rss()
    for start in range(0, count, 1000):
        seen.add_new([url(n * 7919 % 50_000, n) for n in range(start, start + 1000)])
    return {"urls": count, "bytes": round((rss() - before) / count, 2)}


def queued_memory(folder: Path, scale: int) -> dict[str, float]:
    """Bytes for each URL that is known and queued, on 100 URLs a domain."""
    count = 5_000_000 // scale
    driven = Driven(folder / "f", count // 100)
    driven.admit(driven.domains)  # the domains themselves
    gc.collect()
    before = rss()
    driven.admit(count)
    return {"urls": count, "bytes": round((rss() - before) / count, 2), "domains": driven.domains}


PARTS: dict[str, Callable[[Path, int], Any]] = {
    "urls": urls_grow,
    "domains": domains_grow,
    "seen": seen_memory,
    "queued": queued_memory,
}


def table(found: dict[str, Any]) -> str:
    """The Markdown table."""
    rows = ["| URLs | domains | admit | claim | cool and finish | memory |", "|---|---|---|---|---|---|"]
    for row in [*found["urls"], *found["domains"]]:
        rows.append(
            f"| {row['urls']:,} | {row['domains']:,} | {row['admit_us']:.1f} µs | {row['claim_us']:.1f} µs | "
            f"{row['end_us']:.1f} µs | {row['rss_mb']:,.0f} MB |"
        )
    seen, queued = found["seen"]["bytes"], found["queued"]["bytes"]
    rows.append("")
    rows.append(f"Memory: {seen:.1f} B a seen URL, {queued - seen:.1f} B more a queued one.")
    return "\n".join(rows)


if __name__ == "__main__":
    sys.exit(main())
