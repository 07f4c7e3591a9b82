"""The robots.txt files of an embedded frontier: all in its journal, those used recently in memory."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from weft.frontier.contract import RobotsRecord
from weft.frontier.durability.journal import FrontierJournal, report_damage
from weft.frontier.politeness import LONGEST_SILENCE_S
from weft.frontier.requests import robots_evidence
from weft.frontier.seen.seen_set import SeenSet

_KEPT_IN_MEMORY = 20_000
FAILED_STATUSES = ("unreachable", "address")  # the status of one that could not be fetched


class RobotsFiles:
    """Robots.txt files by origin; times are of the wall clock."""

    def __init__(self, journal: FrontierJournal, wall: Callable[[], float], deleted_until: Callable[[], float]) -> None:
        """`deleted_until`: the time of the last request that no longer needs evidence."""
        self._journal = journal
        self._wall = wall
        self._deleted_until = deleted_until
        self._expiry: dict[str, float] = {}
        self._records: dict[str, RobotsRecord] = {}
        self._saved_origins = SeenSet(0)  # origins that this process has saved: spares a new frontier the look-ups
        self._had_rows = journal.has_rows("robots")
        self._failed = SeenSet(0)  # the same for origins whose last fetch has failed
        self._had_failures = journal.has_rows("robots_tries")
        self.being_fetched: set[str] = set()  # being fetched, or queued to be

    def get(self, origin: str) -> RobotsRecord | None:
        """The last known record, expired or not."""
        record = self._records.get(origin)
        if record is not None or not (self._had_rows or origin in self._saved_origins):
            return record
        if (row := self._journal.row("robots", origin)) is not None:
            with report_damage(self._journal.path):
                record = self._keep_in_memory(origin, msgspec.msgpack.decode(row[2], type=RobotsRecord))
        return record

    def in_memory(self, origin: str) -> RobotsRecord | None:
        """An unexpired record, if it is in memory."""
        record = self._records.get(origin)
        return record if record is not None and record.expires > self._wall() else None

    def is_in_force(self, origin: str) -> bool:
        """Whether there is an unexpired record."""
        expires = self._expiry.get(origin)
        if expires is None:
            row = self._journal.row("robots", origin) if self._had_rows or origin in self._saved_origins else None
            expires = self._expiry[origin] = float(row[1]) if row is not None else 0.0
        wall = self._wall()
        # No failure is valid for that long: the clock was ahead when this record was written.
        if (
            expires > wall + LONGEST_SILENCE_S
            and (record := self.get(origin)) is not None
            and record.status in FAILED_STATUSES
        ):
            return False
        return expires > wall

    def save_record(self, origin: str, record: RobotsRecord) -> None:
        """Saves a fetched robots.txt, or the record of a failure."""
        self.being_fetched.discard(origin)
        before, evidence = self.get(origin), robots_evidence(record)
        if before is None or robots_evidence(before) != evidence:
            self._journal.record_robots(origin, self._wall(), evidence, self._deleted_until())
        if self._has_failed(origin) and self._journal.row("robots_tries", origin) is not None:
            self._journal.delete("robots_tries", origin)
        self._expiry[origin] = record.expires
        self._keep_in_memory(origin, record)
        encoded = msgspec.msgpack.encode(record)
        self._journal.put("robots", origin, record.expires, encoded)
        self._saved_origins.add(origin)

    def failed_tries(self, origin: str) -> tuple[int, float]:
        """How many fetches have failed, and when the next may be tried."""
        row = self._journal.row("robots_tries", origin) if self._has_failed(origin) else None
        return (0, 0.0) if row is None else (row[1], row[2])

    def record_failure(self, origin: str, attempt: int, wall: float) -> None:
        """Records a failed fetch; the next may be tried at `wall`."""
        self._journal.put("robots_tries", origin, attempt, wall)
        self._failed.add(origin)

    def expire_failed(self, origin: str) -> None:
        """Expires the record of a failed fetch."""
        record = self.get(origin)
        if record is not None and record.status in FAILED_STATUSES:
            self._expiry[origin] = 0.0
            self._journal.put("robots", origin, 0.0, msgspec.msgpack.encode(record))  # a crash must not undo it

    def forget(self, origin: str) -> None:
        """Frees the memory for an idle origin; the journal keeps its robots.txt."""
        if self._expiry.get(origin):  # an expired one must be fetched again
            del self._expiry[origin]

    def _has_failed(self, origin: str) -> bool:
        """Whether the journal may have a failed fetch."""
        return self._had_failures or origin in self._failed

    def _keep_in_memory(self, origin: str, record: RobotsRecord) -> RobotsRecord:
        if len(self._records) > _KEPT_IN_MEMORY:
            self._records.clear()
        self._records[origin] = record
        return record
