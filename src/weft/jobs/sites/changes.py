"""What a run has found against what was known of a site: new, changed, gone and moved pages. Pure.

A page is known by the digest of its body as it came. What failed, or was refused, says nothing: the page stays known
as it was. A site whose depth is limited is walked from its start each time; of others all known pages are asked for,
so that one which nothing links to any more is found to be gone, or is still there.

What was no page (404, a failure, a redirect, a refusal) is known, too, with an empty digest: behind a page that has not
changed nobody follows its link, and a later run asks for it nevertheless. What nothing links to any more is forgotten
by a run that has followed all links.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Annotated

from msgspec import Meta, Struct

from weft.jobs.model import Task, UrlOutcome, error_class, outcome
from weft.jobs.sites.site_documents import Time
from weft.records import TOO_MANY_REDIRECTS, PastVisit, Row

MOST_NAMED = 1000  # URLs of each kind in a report; the counts are of all
NAMES = ("new", "changed", "gone", "moved", "unchanged", "failed", "refused")


class Learnt(Struct, frozen=True):
    """What the memory of a site must learn of a run."""

    known: tuple[PastVisit, ...] = ()
    forgotten: tuple[str, ...] = ()


class ChangeReport(Struct, frozen=True, kw_only=True):
    """What a run has found."""

    site: str
    task: str
    at: Time
    is_first: bool = False
    why_full: Annotated[
        str, Meta(description="why every page was read; empty: those that had changed, and no others")
    ] = ""
    new: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    moved: Annotated[tuple[tuple[str, str], ...], Meta(description="from, to")] = ()
    counts: dict[str, int] = {}  # of new, changed, gone, moved, unchanged, failed, refused

    @property
    def summary(self) -> str:
        """`3 new, 12 changed, 1 gone, 2 moved, 900 unchanged, 0 failed, 0 refused`."""
        return ", ".join(f"{count:,} {name}" for name, count in self.counts.items())


class _Found(Struct, frozen=True, gc=False):
    """The last row of a URL: what it says, and what is to be known of the URL from now on."""

    what: str  # one of NAMES; empty: no page was there before, and none is
    known: PastVisit | None = None  # None: as it was
    to: str = ""  # where it redirects
    is_lost: bool = False  # its redirects went in a circle, or on for too long


class Comparison:
    """Takes the rows of a run one by one: the last one of each URL tells."""

    def __init__(self, before: Mapping[str, PastVisit], *, has_walked: bool = False) -> None:
        """`before`: what is known, by URL. `has_walked`: the run has followed every link."""
        self._before = before
        self._has_walked = has_walked
        self._seen: dict[str, _Found] = {}

    def add(self, rows: Iterable[Row], visit: Callable[[Row], PastVisit]) -> None:
        """Looks at some rows. `visit`: what is to be known of a page that was read."""
        for row in rows:
            self._seen[row.url] = self._found(row, visit)

    def _found(self, row: Row, visit: Callable[[Row], PastVisit]) -> _Found:
        before = self._before.get(row.url)
        digest = before.digest if before is not None else ""
        is_good = error_class(row.status, row.error) is None
        if is_good and 200 <= row.status < 300:
            what = "new" if not digest else "unchanged" if digest == row.digest else "changed"
            return _Found(what, visit(row))
        if row.status == 304 and is_good and digest and row.digest == digest:
            # One that came in full, and held what it held before, may be called by another name from now on.
            return _Found("unchanged", visit(row) if row.length else None)
        no_page = PastVisit(row.url, "", row.fetched_at)
        became = outcome(row.status, row.error)
        if became in (
            UrlOutcome.FAILED,
            UrlOutcome.REFUSED,
        ):  # as the task counts them, whether a page was there before or not
            is_lost = row.error == TOO_MANY_REDIRECTS
            return _Found(str(became), no_page if before is None else None, is_lost=is_lost)
        if not digest:
            return _Found("", no_page if before is None else None, row.final_url)
        if became is UrlOutcome.GONE:
            return _Found("gone", no_page)
        if 300 <= row.status < 400 and row.status != 304 and not row.error:
            return _Found("moved", no_page, row.final_url)
        return _Found("failed")

    def _settle(self) -> None:
        """Of redirects that go in a circle one row alone has the error: the others have moved nowhere, and failed."""
        for url, one in self._seen.items():
            if one.what == "moved" and self._leads_to_no_page(url):
                self._seen[url] = _Found("failed", to=one.to)

    def _leads_to_no_page(self, url: str) -> bool:
        passed = set[str]()
        while url not in passed:
            passed.add(url)
            one = self._seen.get(url)
            if one is None or not one.to or one.to == url:
                return one is not None and one.is_lost
            url = one.to
        return True

    def report(self, task: Task, at: float) -> ChangeReport:
        """All of it, in the order of the URLs."""
        self._settle()
        found: dict[str, list[str]] = {name: [] for name in NAMES}
        for url, one in sorted(self._seen.items()):
            if one.what:
                found[one.what].append(url)
        named = {name: tuple(found[name][:MOST_NAMED]) for name in ("new", "changed", "gone")}
        return ChangeReport(
            site=task.spec.extra["site"], task=task.id, at=at, **named,
            is_first=not any(known.digest for known in self._before.values()),
            why_full=task.spec.extra.get("why_full", ""),
            moved=tuple((url, self._seen[url].to) for url in found["moved"][:MOST_NAMED]),
            counts={name: len(some) for name, some in found.items()},
        )  # fmt: skip

    def learnt(self) -> Learnt:
        """What the memory of the site must learn."""
        self._settle()
        known = tuple(one.known for one in self._seen.values() if one.known is not None)
        if not self._has_walked:
            return Learnt(known)
        unlinked = (url for url, one in self._before.items() if not one.digest and url not in self._seen)
        return Learnt(known, tuple(unlinked))
