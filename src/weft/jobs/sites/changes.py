"""The changes that a run has detected in a site: new, changed, gone and moved pages. Pure functions.

A page is compared by the digest of its body as received. A URL that failed or was refused says nothing: its page stays
known as it was. A site whose depth is limited is crawled from its start each time; for others all known pages are
requested, so that one without links to it is found to be gone, or still there.

URLs that were not a page (404, a failure, a redirect, a refusal) are known, too, with an empty digest: links on an
unchanged page are not followed, and yet a later run must request their targets. A URL without links to it is forgotten
by a run that has followed all links.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Annotated

from msgspec import Meta, Struct

from weft.jobs.model import Task, UrlOutcome, error_class, outcome
from weft.jobs.sites.site_documents import Time
from weft.records import TOO_MANY_REDIRECTS, PastVisit, Row

MOST_NAMED = 1000  # URLs of each kind that a report lists; the counts include all
NAMES = ("new", "changed", "gone", "moved", "unchanged", "failed", "refused")


class Learnt(Struct, frozen=True):
    """The updates to what is known of a site's pages after a run."""

    known: tuple[PastVisit, ...] = ()
    forgotten: tuple[str, ...] = ()


class ChangeReport(Struct, frozen=True, kw_only=True):
    """The changes that a run has detected."""

    site: str
    task: str
    at: Time
    is_first: bool = False
    why_full: Annotated[
        str, Meta(description="why every page was read; empty: only pages that had changed were read")
    ] = ""
    new: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    moved: Annotated[tuple[tuple[str, str], ...], Meta(description="from, to")] = ()
    counts: dict[str, int] = {}  # by new, changed, gone, moved, unchanged, failed, refused

    @property
    def summary(self) -> str:
        """A summary: `3 new, 12 changed, 1 gone, 2 moved, 900 unchanged, 0 failed, 0 refused`."""
        return ", ".join(f"{count:,} {name}" for name, count in self.counts.items())


class _UrlChange(Struct, frozen=True, gc=False):
    """The last row of a URL: its kind of change, and what is known of the URL from now on."""

    what: str  # one of NAMES; empty: no page was there before, and none is there now
    known: PastVisit | None = None  # None: unchanged
    to: str = ""  # target of a redirect
    is_lost: bool = False  # it redirects in a circle, or too often


class Comparison:
    """Compares the rows of a run with what was known; the last row of each URL decides."""

    def __init__(self, before: Mapping[str, PastVisit], *, has_walked: bool = False) -> None:
        """`before`: the known pages, by URL. `has_walked`: the run has followed every link."""
        self._known_before = before
        self._has_walked = has_walked
        self._last_rows: dict[str, _UrlChange] = {}

    def add(self, rows: Iterable[Row], visit: Callable[[Row], PastVisit]) -> None:
        """Adds rows. `visit`: returns what is to be known of a page that was read."""
        for row in rows:
            self._last_rows[row.url] = self._change_of_row(row, visit)

    def _change_of_row(self, row: Row, visit: Callable[[Row], PastVisit]) -> _UrlChange:
        before = self._known_before.get(row.url)
        digest = before.digest if before is not None else ""
        is_good = error_class(row.status, row.error) is None
        if is_good and 200 <= row.status < 300:
            what = "new" if not digest else "unchanged" if digest == row.digest else "changed"
            return _UrlChange(what, visit(row))
        if row.status == 304 and is_good and digest and row.digest == digest:
            # A page that came in full with the same content may have moved to another URL.
            return _UrlChange("unchanged", visit(row) if row.length else None)
        no_page = PastVisit(row.url, "", row.fetched_at)
        became = outcome(row.status, row.error)
        if became in (
            UrlOutcome.FAILED,
            UrlOutcome.REFUSED,
        ):  # as the task counts them, whether a page was there before or not
            is_lost = row.error == TOO_MANY_REDIRECTS
            return _UrlChange(str(became), no_page if before is None else None, is_lost=is_lost)
        if not digest:
            return _UrlChange("", no_page if before is None else None, row.final_url)
        if became is UrlOutcome.GONE:
            return _UrlChange("gone", no_page)
        if 300 <= row.status < 400 and row.status != 304 and not row.error:
            return _UrlChange("moved", no_page, row.final_url)
        return _UrlChange("failed")

    def _resolve_loops(self) -> None:
        """Resolves circular redirects: only one of their rows has the error; the others have not moved, but failed."""
        for url, one in self._last_rows.items():
            if one.what == "moved" and self._leads_to_no_page(url):
                self._last_rows[url] = _UrlChange("failed", to=one.to)

    def _leads_to_no_page(self, url: str) -> bool:
        passed = set[str]()
        while url not in passed:
            passed.add(url)
            one = self._last_rows.get(url)
            if one is None or not one.to or one.to == url:
                return one is not None and one.is_lost
            url = one.to
        return True

    def report(self, task: Task, at: float) -> ChangeReport:
        """The report, with URLs in sorted order."""
        self._resolve_loops()
        urls: dict[str, list[str]] = {name: [] for name in NAMES}
        for url, one in sorted(self._last_rows.items()):
            if one.what:
                urls[one.what].append(url)
        named = {name: tuple(urls[name][:MOST_NAMED]) for name in ("new", "changed", "gone")}
        return ChangeReport(
            site=task.spec.extra["site"], task=task.id, at=at, **named,
            is_first=not any(known.digest for known in self._known_before.values()),
            why_full=task.spec.extra.get("why_full", ""),
            moved=tuple((url, self._last_rows[url].to) for url in urls["moved"][:MOST_NAMED]),
            counts={name: len(some) for name, some in urls.items()},
        )  # fmt: skip

    def learnt(self) -> Learnt:
        """The updates for the site's memory."""
        self._resolve_loops()
        known = tuple(one.known for one in self._last_rows.values() if one.known is not None)
        if not self._has_walked:
            return Learnt(known)
        unlinked = (url for url, one in self._known_before.items() if not one.digest and url not in self._last_rows)
        return Learnt(known, tuple(unlinked))
