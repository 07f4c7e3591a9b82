"""How long a crawl takes to work again after a kill -9, as whoever runs it would see: from the kill to the first deed.

A fetcher works again when its slot's request log has a new claim, a pod's Redis when any of the pod's logs has one, a
parser when its slot's status tells of a page that its successor has parsed (told twice a second: that is counted in).
After the orchestrator's death it is the first claim of any, with the time in which somebody starts it again counted in.
A kill that hits again before that says nothing about the first one, which is left out (`overtaken`); so is one in a pod
whose Redis has just lost data, because nothing is given out there for ten seconds.
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from crawling import Crawler, Kill
from flights import claims

POLL_EVERY_S = 0.05
LOSS_S = 12.0


class ParserWatch(threading.Thread):
    """Looks at the parsers' status files while a crawl runs; `with` ends it."""

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(daemon=True)
        self._folder = crawler.data_dir / "status"
        self._over = threading.Event()
        self._stored: dict[str, int] = {}
        self.deeds: dict[str, list[float]] = defaultdict(list)  # by slot: when it was seen to have stored pages

    def __enter__(self) -> ParserWatch:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()

    def run(self) -> None:
        while not self._over.wait(POLL_EVERY_S):
            for path in self._folder.glob("*-parser*.json"):
                self._look(path)

    def _look(self, path: Path) -> None:
        try:
            pages = int(json.loads(path.read_bytes())["pages"])
        except (OSError, ValueError, KeyError):
            return
        if pages > self._stored.get(path.stem, 0):
            self.deeds[path.stem].append(time.monotonic())
        self._stored[path.stem] = pages


@dataclass
class Recoveries:
    """Seconds by what was killed: process, server, all."""

    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    overtaken: int = 0
    never: list[Kill] = field(default_factory=list)

    def p95(self, kind: str) -> float:
        """Of one kind; nothing killed took no time."""
        return _share(self.seconds[kind], 0.95)

    def __str__(self) -> str:
        told = [
            f"{kind}: {len(took)} kills, p50 {_share(took, 0.5):.1f} s, p95 {_share(took, 0.95):.1f} s, "
            f"max {max(took):.1f} s"
            for kind, took in sorted(self.seconds.items())
            if took
        ]
        return "; ".join(
            [*told, f"{self.overtaken} overtaken by another kill", f"{len(self.never)} without work after"]
        )


def recoveries(crawler: Crawler, kills: Sequence[Kill], parsers: ParserWatch | None = None) -> Recoveries:
    """What each kill's successor took to work again."""
    deeds = claims(crawler.data_dir / "frontier")
    deeds.update(parsers.deeds if parsers is not None else {})
    found = Recoveries()
    for kill in kills:
        if kill.what in ("stopped", "unknown"):
            continue
        works_at = _works_at(kill, deeds)
        if any(_overtakes(other, kill, works_at) for other in kills):
            found.overtaken += 1
        elif math.isinf(works_at):
            found.never.append(kill)
        else:
            found.seconds[kill.what].append(works_at - kill.before)
    return found


def _overtakes(other: Kill, kill: Kill, works_at: float) -> bool:
    """Whether the one may have put off what is waited for after the other; of all processes any one will do."""
    if other is kill or not kill.touches(other) or (kill.what == "all" and other.what != "all"):
        return False
    return kill.before <= other.before <= works_at or (
        other.what == "loss" and other.before <= kill.before <= other.after + LOSS_S
    )


def _works_at(kill: Kill, deeds: dict[str, list[float]]) -> float:
    """When the dead one's work was first seen to go on."""
    slots = tuple(f"{slot}fetcher" if slot.endswith("-") else slot for slot in kill.slots)
    mine = (times for slot, times in deeds.items() if slot.startswith(slots))
    return min((at for times in mine for at in times if at > kill.after), default=math.inf)


def _share(took: list[float], share: float) -> float:
    """The smallest time within which so many were back."""
    return sorted(took)[math.ceil(share * len(took)) - 1] if took else 0.0
