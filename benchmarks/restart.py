"""How long a crawl with millions of queued URLs takes to come back.

    python benchmarks/restart.py [--urls 5000000]

One process fills a frontier and is killed; another opens it, reads it back and claims. What is timed is all of the
second; so is one more, after a clean end.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
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
        driven.frontier.durability.commit()
        os.kill(os.getpid(), signal.SIGKILL)
    if args.open:
        start = time.monotonic()
        driven = Driven(args.open, domains)
        queued = driven.frontier.status.stats().queued
        claimed = len(driven.frontier.leases.claim("bench", 200))
        took = {"seconds": time.monotonic() - start, "queued": queued, "claimed": claimed, "rss_mb": rss() / (1 << 20)}
        driven.frontier.close()
        print(json.dumps(took))
        return 0
    with tempfile.TemporaryDirectory(prefix="weft-restart-", dir=os.environ.get("TMPDIR")) as folder:
        shared = [sys.executable, __file__, "--urls", str(args.urls)]
        subprocess.run([*shared, "--fill", folder], check=False)
        killed, ended = (
            json.loads(subprocess.run([*shared, "--open", folder], check=True, stdout=subprocess.PIPE).stdout)
            for _ in range(2)
        )
        found = {**killed, "after_clean_end_s": ended["seconds"]}
    assert found["queued"] == args.urls, found
    results.keep("restart", found)
    print(
        f"{found['queued']:,} queued URLs: {found['seconds']:.1f} s to the first claim after a kill, "
        f"{found['after_clean_end_s']:.1f} s after a clean end, {found['rss_mb']:.0f} MB"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
