"""How long a crawl with millions of queued URLs takes to come back.

    python benchmarks/restart.py [--urls 5000000]

One process fills a frontier and ends; another opens it, reads it back and claims. What is timed is all of the second.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from harness import results
from harness.frontiers import Driven, rss


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--urls", type=int, default=5_000_000)
    parser.add_argument("--fill", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--open", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    domains = max(1, args.urls // 100)
    if args.fill:
        driven = Driven(args.fill, domains)
        driven.admit(args.urls)
        driven.frontier.close()
        return 0
    if args.open:
        start = time.monotonic()
        driven = Driven(args.open, domains)
        queued = driven.frontier.stats().queued
        claimed = len(driven.frontier.claim("bench", 200))
        took = {"seconds": time.monotonic() - start, "queued": queued, "claimed": claimed, "rss_mb": rss() / (1 << 20)}
        print(json.dumps(took))
        return 0
    with tempfile.TemporaryDirectory(prefix="weft-restart-", dir=os.environ.get("TMPDIR")) as folder:
        shared = [sys.executable, __file__, "--urls", str(args.urls)]
        subprocess.run([*shared, "--fill", folder], check=True)
        start = time.monotonic()
        done = subprocess.run([*shared, "--open", folder], check=True, stdout=subprocess.PIPE)
        found = {**json.loads(done.stdout), "process_s": time.monotonic() - start}
    assert found["queued"] == args.urls, found
    results.keep("restart", found)
    print(f"{found['queued']:,} queued URLs: {found['seconds']:.1f} s to the first claim, {found['rss_mb']:.0f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
