"""The report of an audit of a request log."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from weft.frontier.requests.partitions import LogLoss

WORST_KEPT = 10
MOST_LISTED = 10_000  # the earliest violations are listed; the others are counted


class Violation(Struct, frozen=True):
    """One request that was not allowed at its time."""

    kind: str  # delay, places, robots, no-robots
    url: str
    key: str
    wall: float
    detail: str
    crawl: str = ""  # its name, if the folder has several


class CrawlCount(Struct):
    """The findings for one crawl of several."""

    requests: int = 0
    violations: int = 0


class AuditReport(Struct):
    """The findings of an audit."""

    requests: int = 0
    parts: int = 0  # requests for resources of rendered pages, which are not delayed
    sites: int = 0
    cut_off: int = 0  # forbidden claims that a kill interrupted before they were rejected
    unreadable: int = 0  # lines of the log that the proof does not cover
    unreadable_in: list[str] = []  # the files with such lines
    missing_bytes: int = 0  # that the log once had
    unproven: int = 0  # requests whose robots.txt was lost with a damaged frontier
    forgotten: int = 0  # requests of deleted crawls: not checked against robots.txt
    kinds: dict[str, int] = {}  # of all violations
    violations: list[Violation] = []  # the first MOST_LISTED
    closest: list[tuple[float, float, str]] = []  # smallest margins: seconds waited, seconds required, URL
    hands: dict[str, int] = {}  # requests that workers on other machines were to make, by worker
    crawls: dict[str, CrawlCount] = {}  # of a folder with several, by name
    covers: tuple[float, float] | None = None  # times of the first and the last request that were read
    deleted: int = 0  # requests that retention has deleted
    deleted_until: float = 0.0  # time of the last of them
    losses: list[LogLoss] = []  # what cannot be judged

    @property
    def violation_count(self) -> int:
        """The number of all violations, listed or not."""
        return sum(self.kinds.values())

    @property
    def is_proof(self) -> bool:
        """Whether there are no violations, and every expected request could be judged."""
        return not self.kinds and not self.losses


def keep_earliest(report: AuditReport) -> None:
    """Keeps only the first MOST_LISTED violations."""
    report.violations.sort(key=_sort_key)
    del report.violations[MOST_LISTED:]


def _sort_key(violation: Violation) -> tuple[float, str, str]:
    return violation.wall, violation.url, violation.kind


def combine_reports(reports: Iterable[AuditReport]) -> AuditReport:
    """Combines the reports of several partitions; the result does not depend on their order."""
    whole = AuditReport()
    losses = set[LogLoss]()
    for one in reports:
        for name in ("requests", "parts", "sites", "cut_off", "unproven", "forgotten"):
            setattr(whole, name, getattr(whole, name) + getattr(one, name))
        for kind, count in one.kinds.items():
            whole.kinds[kind] = whole.kinds.get(kind, 0) + count
        whole.violations += one.violations
        keep_earliest(whole)
        whole.closest += one.closest
        losses |= set(one.losses)
        for hand, count in one.hands.items():
            whole.hands[hand] = whole.hands.get(hand, 0) + count
        for crawl, counts in one.crawls.items():
            of_crawl = whole.crawls.setdefault(crawl, CrawlCount())
            of_crawl.requests += counts.requests
            of_crawl.violations += counts.violations
    whole.kinds = dict(sorted(whole.kinds.items()))
    whole.hands = dict(sorted(whole.hands.items()))
    whole.crawls = dict(sorted(whole.crawls.items()))
    whole.closest = sorted(whole.closest, key=_margin_key)[:WORST_KEPT]
    whole.losses = sorted(losses, key=lambda loss: (loss.file, loss.since, loss.why))
    return whole


def _margin_key(entry: tuple[float, float, str]) -> tuple[float, float, float, str]:
    waited, needed, url = entry
    return waited - needed, -waited, -needed, url
