"""The robots.txt files that an embedded frontier knows: all in its journal, those asked for lately in memory."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from weft.frontier.contract import RobotsRecord
from weft.frontier.journal import Journal, undamaged
from weft.frontier.seen import SeenSet

_KEPT = 20_000


class RobotsFiles:
    """By origin; times are of the day."""

    def __init__(self, journal: Journal, wall: Callable[[], float]) -> None:
        self._journal = journal
        self._wall = wall
        self._expiry: dict[str, float] = {}
        self._records: dict[str, RobotsRecord] = {}
        self._saved = SeenSet(0)  # origins that the journal knows: for most it need not be asked
        self._saved.add_new(journal.keys("robots"))
        self._tries: dict[str, tuple[int, float]] = {}
        self.pending: set[str] = set()  # those that are being asked for

    def restore(self) -> None:
        """Takes over which ones could not be had before, from the journal."""
        for origin, attempt, wall in self._journal.rows("robots_tries"):
            self._tries[origin] = (attempt, wall)

    def get(self, origin: str) -> RobotsRecord | None:
        """What is known of one, in force or not."""
        record = self._records.get(origin)
        if record is None and (row := self._journal.row("robots", origin)) is not None:
            with undamaged(self._journal.path):
                record = self._remember(origin, msgspec.msgpack.decode(row[2], type=RobotsRecord))
        return record

    def at_hand(self, origin: str) -> RobotsRecord | None:
        """One that is in force and in memory."""
        record = self._records.get(origin)
        return record if record is not None and record.expires > self._wall() else None

    def is_in_force(self, origin: str) -> bool:
        """Whether one is known and not too old."""
        expires = self._expiry.get(origin)
        if expires is None:
            row = self._journal.row("robots", origin) if origin in self._saved else None
            expires = self._expiry[origin] = float(row[1]) if row is not None else 0.0
        return expires > self._wall()

    def learn(self, origin: str, record: RobotsRecord) -> None:
        """It came, or could not be had for good."""
        self.pending.discard(origin)
        if self._tries.pop(origin, None) is not None:
            self._journal.delete("robots_tries", origin)
        self._expiry[origin] = record.expires
        self._remember(origin, record)
        encoded = msgspec.msgpack.encode(record)
        self._journal.put("robots", origin, record.expires, encoded)
        self._saved.add(origin)
        self._journal.robots_told(origin, self._wall(), encoded)

    def tried(self, origin: str) -> tuple[int, float]:
        """How often it could not be had, and when it may be asked for again."""
        return self._tries.get(origin, (0, 0.0))

    def failed(self, origin: str, attempt: int, wall: float) -> None:
        """It could not be had, and may be asked for again at `wall`."""
        self._tries[origin] = (attempt, wall)
        self._journal.put("robots_tries", origin, attempt, wall)

    def ask_again(self, origin: str) -> None:
        """One that could not be had is not in force any more."""
        record = self.get(origin)
        if record is not None and record.status in ("unreachable", "address"):
            self._expiry[origin] = 0.0

    def forget(self, origin: str) -> None:
        """Frees what memory holds for an origin that nobody asks for; the journal keeps it."""
        self._expiry.pop(origin, None)

    def _remember(self, origin: str, record: RobotsRecord) -> RobotsRecord:
        if len(self._records) > _KEPT:
            self._records.clear()
        self._records[origin] = record
        return record
