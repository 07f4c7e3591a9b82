"""Many crawls in one engine: one crawl for each URL, all on one politeness clock, their events as they come.

    python examples/engine_demo.py FOLDER EMAIL https://example.com https://example.org

Call it again with the same folder: crawls that have ended stay as they are, the others go on.
"""

from __future__ import annotations

import os
import sys

import weft
from weft.urls import host_of


def main(folder: str, email: str, seeds: list[str]) -> None:
    private = os.environ.get("WEFT_ALLOW_PRIVATE") == "true"
    with weft.Engine(folder, email=email, allow_private=private) as engine:
        for seed in seeds:
            engine.open(host_of(seed), seed, max_pages=10, delay=0.05)
        left = {host_of(seed) for seed in seeds}
        for event in engine.events():
            if event.kind == "page":
                print(f"{event.crawl} {event.number}: {event.status} {event.url}", flush=True)
            elif event.kind == "state" and event.state == "ended":
                print(f"{event.crawl} {event.number}: ended, {event.reason}", flush=True)
                left.discard(event.crawl)
            if not left:
                break
        for standing in engine.standings():
            print(f"{standing.name}: {standing.pages} pages, {standing.failed} failed, {standing.refused} refused")


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
