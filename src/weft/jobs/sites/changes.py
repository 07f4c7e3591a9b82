"""What a run has found against what was known of a site: new, changed, gone and moved pages. Pure.

A page is known by the digest of its body as it came. What failed, or was refused, says nothing: the page stays known
as it was. A site whose depth is limited is walked from its start each time; of others all known pages are asked for,
so that one which nothing links to any more is found to be gone, or is still there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from weft.jobs.model import GONE_STATUSES, error_class
from weft.records import Row

MOST_NAMED = 1000  # URLs of each kind in a report; the counts are of all


class PageChange(Struct, frozen=True):
    """What becomes of a page in the memory of a site; an empty digest: it is forgotten."""

    url: str
    digest: str


class ChangeReport(Struct, frozen=True, kw_only=True):
    """What a run has found."""

    site: str
    task: str
    at: float
    is_first: bool = False
    new: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    moved: tuple[tuple[str, str], ...] = ()  # from, to
    counts: dict[str, int] = {}  # of new, changed, gone, moved, unchanged, failed

    @property
    def summary(self) -> str:
        """`3 new, 12 changed, 1 gone, 2 moved, 900 unchanged, 0 failed`."""
        return ", ".join(f"{count:,} {name}" for name, count in self.counts.items())


class Comparison:
    """Takes the rows of a run one by one: the last one of each URL tells."""

    def __init__(self, before: Mapping[str, str]) -> None:
        """`before`: the digests of the pages that are known, by URL."""
        self._before = before
        self._seen: dict[str, tuple[str, str]] = {}  # url → what, and its digest or where it has gone

    def add(self, rows: Iterable[Row]) -> None:
        """Looks at some rows."""
        for row in rows:
            if (what := self._verdict(row)) is not None:
                self._seen[row.url] = what

    def _verdict(self, row: Row) -> tuple[str, str] | None:
        known = self._before.get(row.url)
        if row.status == 304 and not row.error:
            return "unchanged", known or row.digest
        if error_class(row.status, row.error) is None and 200 <= row.status < 300:
            if known is None:
                return "new", row.digest
            return ("unchanged" if known == row.digest else "changed"), row.digest
        if known is None:
            return None
        if row.status in GONE_STATUSES and not row.error:
            return "gone", ""
        if 300 <= row.status < 400 and not row.error:
            return "moved", row.final_url
        return "failed", known

    def report(self, site: str, task: str, at: float) -> ChangeReport:
        """All of it, in the order of the URLs."""
        found: dict[str, list[str]] = {name: [] for name in ("new", "changed", "gone", "moved", "unchanged", "failed")}
        for url, (what, _) in sorted(self._seen.items()):
            found[what].append(url)
        named = {name: tuple(found[name][:MOST_NAMED]) for name in ("new", "changed", "gone")}
        return ChangeReport(
            site=site, task=task, at=at, is_first=not self._before, **named,
            moved=tuple((url, self._seen[url][1]) for url in found["moved"][:MOST_NAMED]),
            counts={name: len(some) for name, some in found.items()},
        )  # fmt: skip

    def changes(self) -> list[PageChange]:
        """What the memory of the site must learn."""
        kept = {"new", "changed"}
        return [
            PageChange(url, value if what in kept else "")
            for url, (what, value) in self._seen.items()
            if what in kept or what in ("gone", "moved")
        ]
