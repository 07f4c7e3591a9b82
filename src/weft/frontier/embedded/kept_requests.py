"""The parts of items' requests beyond their URLs (method, body, callback), kept from admission to end.

The bytes lie in `payloads/`, and are on the disk before the journal's table `requests` has their places, and which of
them may have been sent and must not be sent again. Its rows are committed with the lines of their items, and deleted
with their ends.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from weft.frontier.durability.journal import FrontierJournal, report_damage
from weft.frontier.payloads import LostPayload, PayloadFiles, PayloadPosition

_REQUESTS_TABLE = "requests"


class KeptRequest(NamedTuple):
    """The stored request of an item; None if it cannot be read any more."""

    data: bytes | None
    may_have_been_sent: bool  # and must not be sent again


NO_REQUEST = KeptRequest(b"", False)


class KeptRequests:
    """The stored requests of one frontier."""

    def __init__(self, folder: Path, journal: FrontierJournal) -> None:
        self._journal = journal
        with report_damage(journal.path):
            counts = journal.counts(_REQUESTS_TABLE, "segment")
        self._payloads = PayloadFiles(folder, counts)
        self._is_used = bool(counts)
        journal.before_commit, journal.after_commit = self._payloads.sync, self._payloads.delete_unused

    def keep(self, item: int, crawl: int, data: bytes) -> None:
        """Stores an item's request; durable from the next commit on."""
        self._is_used = True
        place = self._payloads.append(data)
        self._journal.put(_REQUESTS_TABLE, item, crawl, place.segment, place.offset, 0)

    def request_of(self, item: int) -> KeptRequest:
        """The stored request of an item."""
        if not self._is_used or (row := self._journal.row(_REQUESTS_TABLE, item)) is None:
            return NO_REQUEST
        _, _, segment, offset, sent = row
        try:
            return KeptRequest(self._payloads.read(PayloadPosition(segment, offset)), bool(sent))
        except LostPayload:
            return KeptRequest(None, bool(sent))

    def mark_sent(self, items: Iterable[int], *, sent: bool = True) -> None:
        """From the next commit on these requests may have been sent; with `sent` False, they were not after all."""
        for item in items:
            if (row := self._journal.row(_REQUESTS_TABLE, item)) is not None:
                self._journal.put(_REQUESTS_TABLE, item, *row[1:4], int(sent))

    def ended(self, item: int) -> None:
        """Deletes the request of an ended item."""
        if self._is_used and (row := self._journal.row(_REQUESTS_TABLE, item)) is not None:
            self._journal.delete(_REQUESTS_TABLE, item)
            self._payloads.release(PayloadPosition(row[2], row[3]))

    def close(self) -> None:
        """Closes the files, once the journal is closed."""
        self._payloads.close()
