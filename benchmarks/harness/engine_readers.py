"""Readers of an engine's events, in a process of their own: what they read costs the engine only what it tells them.

    python benchmarks/harness/engine_readers.py DATA_DIR AFTER UNTIL

Fifty read the events of all crawls behind the cursor AFTER, until the crawl UNTIL has ended. Five of them are stuck:
they have begun, and read nothing more. Three go away every 500 events, and come back with the number of the last. At
the end it says for each of the others how many events it had and a digest of their numbers: equal where nobody has
missed or repeated one.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterable, Iterator
from hashlib import sha256
from itertools import islice
from typing import Any

import weft
from weft.engine.model import CrawlEvent, CrawlState

READERS, STUCK, RECONNECTING = 50, 5, 3
RECONNECT_AFTER = 500


def digest(events: Iterable[CrawlEvent]) -> tuple[int, str]:
    """How many there are, and a digest of which."""
    count, found = 0, sha256()
    for event in events:
        count += 1
        found.update(f"{event.crawl} {event.number} {event.cursor}\n".encode())
    return count, found.hexdigest()[:16]


def read(engine: weft.Engine, after: int, until: str, at_a_time: int | None) -> Iterator[CrawlEvent]:
    """The events up to the end of a crawl; `at_a_time`: so many for each connection."""
    while True:
        for event in islice(engine.events(after=after), at_a_time):
            after = event.cursor
            yield event
            if event.crawl == until and event.state is CrawlState.ENDED:
                return


def main() -> None:
    folder, after, until = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    found: list[tuple[int, str]] = []
    with weft.Engine(folder) as engine:
        stuck: list[Any] = [engine.events(after=after) for _ in range(STUCK)]
        threads = []
        for number in range(READERS - STUCK):
            at_a_time = RECONNECT_AFTER if number < RECONNECTING else None
            events = read(engine, after, until, at_a_time)
            threads.append(threading.Thread(target=lambda events=events: found.append(digest(events))))
        for thread in threads:
            thread.start()
        print("ready", flush=True)
        for events in stuck:
            next(events)
        for thread in threads:
            thread.join()
        print(json.dumps(found), flush=True)
        for events in stuck:
            events.close()


if __name__ == "__main__":
    main()
