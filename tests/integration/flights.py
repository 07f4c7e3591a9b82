"""Reads the request logs of a crawl's processes: which requests each of them made, and which of those it ended.

A request that was in flight at a kill has a start in its process's log and no end: an end that another process logged
for it (`expired`) does not count.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from weft.testing.arrivals import Arrival

_SERVER = re.compile(rb"/pod_([0-9]+)/redis/redis\.sock")
_NOT_ENDED = float("inf")


@dataclass(slots=True)
class Flight:
    """One request, in the log of one slot."""

    slot: str
    url: str
    start: float
    end: float = _NOT_ENDED
    status: str = ""

    @property
    def failed(self) -> bool:
        """It brought no answer, so its URL is asked for again."""
        return not self.status.isdigit()


def read_flights(frontier: Path) -> list[Flight]:
    """Every request that was made, of all slots."""
    return [flight for slot, logs in _logs(frontier).items() for flight in _of_slot(slot, logs)]


def claims(frontier: Path) -> dict[str, list[float]]:
    """When each slot has claimed something, made or not."""
    return {
        slot: [
            float(line.split("\t")[2])
            for log in logs
            for line in log.read_text(errors="replace").splitlines()
            if line.startswith("S")
        ]
        for slot, logs in _logs(frontier).items()
    }


def _logs(frontier: Path) -> dict[str, list[Path]]:
    """The request logs by slot; an embedded pod has one fetcher."""
    found: dict[str, list[Path]] = {}
    for folder in {path.parent for path in frontier.rglob("requests-*.log")}:
        slot = folder.name if folder.name != "requests" else folder.parent.name.replace("_", "") + "-fetcher0"
        if not slot.endswith("-orchestrator"):
            found[slot] = sorted(folder.glob("requests-*.log"))
    return found


def _of_slot(slot: str, logs: Iterable[Path]) -> list[Flight]:
    found: list[Flight] = []
    open_: dict[str, Flight] = {}
    for log in logs:
        for line in log.read_text(errors="replace").splitlines():
            kind, *fields = line.split("\t")
            if kind == "B":
                open_.clear()
            elif kind == "S":
                open_[fields[0]] = Flight(slot, fields[6], float(fields[1]))
                found.append(open_[fields[0]])
            elif kind == "E" and fields[2] != "expired" and (flight := open_.pop(fields[0], None)) is not None:
                flight.end, flight.status = float(fields[1]), fields[2]
    return [flight for flight in found if flight.status != "unasked"]


class Flights:
    """The requests by URL, to find the one that arrived at a server."""

    def __init__(self, flights: Iterable[Flight]) -> None:
        self.all = sorted(flights, key=lambda flight: flight.start)
        self._by_url: dict[str, list[Flight]] = defaultdict(list)
        for flight in self.all:
            self._by_url[flight.url].append(flight)

    def of(self, arrival: Arrival) -> Flight | None:
        """The last one that was begun before it arrived."""
        flights = self._by_url.get(arrival.url, [])
        at = bisect_right(flights, arrival.t, key=lambda flight: flight.start)
        return flights[at - 1] if at else None

    def in_order(self, arrival: Arrival, of_its_url: list[Arrival]) -> Flight | None:
        """The one that has the place which the arrival has among those of its URL; None where their numbers differ."""
        flights = self._by_url.get(arrival.url, [])
        return flights[of_its_url.index(arrival)] if len(flights) == len(of_its_url) else None


def slots_of(data_dir: Path, pid: int) -> tuple[str, ...]:
    """How the names of the slots begin that a process's death may cost something; every name where it is not known."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        command = b""
    if found := _SERVER.search(command):
        return (f"pod{int(found[1])}-",)
    for path in (data_dir / "status").glob("*.json"):
        try:
            status = msgspec.json.decode(path.read_bytes())
        except (OSError, msgspec.DecodeError):
            continue
        if status.get("pid") == pid:
            return (path.stem,)
    return ("",)
