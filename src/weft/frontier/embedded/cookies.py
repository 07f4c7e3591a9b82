"""Each site's cookies of a crawl, in the journal: a process that is killed has them again at its next start.

They are committed together with the links of the answer that set them. A cookie wall sends a crawler back to where it
came from; one that lost the cookie at every kill would pass it by in the end, when the redirects have become too many.
"""

from __future__ import annotations

from weft.frontier.journal import Journal
from weft.records import Lease


class KeptCookies:
    """What an earlier process kept is given out once, with the first lease of its site."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._unread = set(journal.keys("cookies"))

    def of(self, lease: Lease) -> tuple[int, bytes] | None:
        """The copy of an earlier process, if nobody has read it yet."""
        if not self._unread or (place := _place(lease.crawl, lease.key)) not in self._unread:
            return None
        self._unread.discard(place)
        row = self._journal.row("cookies", place)
        return None if row is None else (1, row[2])

    def keep(self, crawl: int, key: str, data: bytes) -> int:
        """Written with the next commit; its version."""
        place = _place(crawl, key)
        self._unread.discard(place)
        self._journal.put("cookies", place, crawl, data)
        return 1


def _place(crawl: int, key: str) -> str:
    return f"{crawl} {key}"
