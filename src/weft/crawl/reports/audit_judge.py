"""Judges the requests of some sites: each against what was in force when it was made.

Memory grows with the number of sites and of open requests, not with all requests.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from functools import lru_cache
from heapq import heappush, heapreplace
from math import inf

from msgspec import Struct

from weft.config import Config
from weft.crawl.reports.audit_report import MOST_LISTED, WORST_KEPT, AuditReport, CrawlCount, Violation, keep_earliest
from weft.crawl.reports.crawls import ReportCrawl
from weft.engine.loop.fetcher.robots import rules_of
from weft.fetch.robots import Robots, product_token
from weft.frontier.contract import RobotsRecord
from weft.frontier.requests import (
    LogEvent,
    LogOpening,
    LostLines,
    RequestEnd,
    RequestStart,
    RobotsKnown,
    SettingsInForce,
)
from weft.frontier.requests.partitions import host_filter
from weft.frontier.view import FrontierView, RobotsEvidence

# Times are logged in microseconds; a correct delay may appear shorter by that much.
ROUNDING_S = 2e-6
_MOST_HISTORY_BYTES = 48 * 1024 * 1024

_RequestKey = int | tuple[int, int]


def _request_key(item: int, pod: int) -> _RequestKey:
    """The key of an open request: the number of a robots.txt is unique within its pod while that runs."""
    return item if item > 0 else (pod, item)


class _SiteState:
    """The state of one site while the log is read."""

    __slots__ = ("last_end", "last_start", "open")

    def __init__(self) -> None:
        self.last_start = self.last_end = float("-inf")
        self.open = 0  # requests


class _Requirements:
    """The requirements of one revision of the settings. `config`: None for a crawl that was deleted."""

    __slots__ = ("agent", "delay_s", "slots")

    def __init__(self, config: Config | None, *, is_recorded: bool) -> None:
        self.agent = product_token(config.fetch.user_agent()) if config is not None else None
        self.delay_s = config.politeness.delay_s if config is not None and is_recorded else 0.0
        self.slots = config.politeness.places if config is not None and is_recorded else inf


class _RobotsHistory:
    """Every robots.txt of an origin, oldest first."""

    __slots__ = ("numbers", "robots", "size", "walls")

    def __init__(self, evidence: list[RobotsEvidence]) -> None:
        self.walls = tuple([known.wall for known in evidence])
        self.numbers = _numbered(tuple([known.digests for known in evidence]))
        self.robots = tuple([_parse_robots(known.record.status, known.record.body) for known in evidence])
        self.size = 300 + sum(100 + 4 * len(known.record.body) for known in evidence)


@lru_cache(maxsize=1024)
def _numbered(digests: tuple[tuple[str, ...], ...]) -> dict[str, int]:
    """The numbers of robots.txt files by their names in the log: the first of several that are equal. Many sites have
    the same file."""
    numbers: dict[str, int] = {}
    for number, names in enumerate(digests):
        for name in names:
            numbers.setdefault(name, number)
    return numbers


@lru_cache(maxsize=1024)
def _parse_robots(status: str, body: bytes) -> Robots:
    return rules_of(RobotsRecord(status, body, 0.0))


class AuditScope(Struct, frozen=True):
    """Which requests are reported. All others only count as predecessors of these."""

    crawl: int = 0  # number of a crawl; 0: all
    hosts: tuple[str, ...] = ()
    since: float = -inf
    until: float = inf

    @property
    def is_all(self) -> bool:
        """Whether every request is reported."""
        return self == AuditScope()


class AuditJudge:
    """Reads the events of some sites, and finds the violations among their requests."""

    def __init__(self, view: FrontierView, crawls: list[ReportCrawl], scope: AuditScope, *, has_several: bool) -> None:
        self._view = view
        self._crawls = {crawl.number: crawl for crawl in crawls}
        self._scope = scope
        self._is_wanted = host_filter(scope.hosts) if scope.hosts else None
        self._has_several = has_several
        self._settings: dict[tuple[int, int], _Requirements] = {}  # by crawl and revision
        self._revisions: dict[tuple[int, str], int] = {}  # of each pod's slots, as of the current position in the log
        # by pod, slot and crawl: as of the current position in the log
        self._logged_settings: dict[tuple[int, str, int], SettingsInForce] = {}
        self._newest_revisions: dict[
            tuple[int, int], int
        ] = {}  # by pod and crawl: the highest revision that any slot has named
        self._robots_digests: dict[
            tuple[int, str], str
        ] = {}  # by pod and origin: the robots.txt that the log named last
        self._report = AuditReport()
        self._requested_sites: set[str] = (
            set()
        )  # sites that the reported crawls have requested, if not all are reported
        self._rebuilt_at = view.rebuilt_at()
        self._sites: dict[str, _SiteState] = {}
        # Requests that have not ended yet, each with its site's previous start, to restore if the request was never
        # made, and with its violations.
        self._open: dict[_RequestKey, tuple[RequestStart, float, list[Violation]]] = {}
        self._last_waits: dict[_RequestKey, tuple[float, float]] = {}  # of open requests: seconds waited, and required
        self._pod_of: dict[_RequestKey, int] = {}
        self._histories: dict[str, _RobotsHistory] = {}
        self._histories_bytes = 0
        self._margins: list[tuple[float, float, float, str]] = []
        self.longest_delay_s = 0.0  # that a request had to wait for, of those that are reported

    def run(self, events: Iterable[tuple[int, LogEvent]]) -> AuditReport:
        """The findings of all events, each with its pod."""
        for pod, event in events:
            if isinstance(event, RequestStart):
                self._handle_start(event, pod)
            elif isinstance(event, RequestEnd):
                self._handle_finish(event, pod)
            elif isinstance(event, RobotsKnown):
                self._robots_digests[pod, event.origin] = event.digest
            elif isinstance(event, SettingsInForce):
                number = event.crawl if self._has_several else 0
                self._logged_settings[pod, event.slot, number] = event
                self._newest_revisions[pod, number] = max(event.revision, self._newest_revisions.get((pod, number), 0))
            elif isinstance(event, LostLines):
                self._handle_missing_lines(pod)
            else:
                self._handle_opening(event, pod)
        for key, (request, _, _) in list(self._open.items()):
            self._end_cut_off(key, request.at)
        report = self._report
        report.sites = len(self._sites if self._scope.is_all else self._requested_sites)
        report.closest = [(waited, needed, url) for _, waited, needed, url in sorted(self._margins, reverse=True)]
        keep_earliest(report)
        return report

    def _handle_missing_lines(self, pod: int) -> None:
        """Handles missing lines: the state of this pod's requests and sites is unknown from here on."""
        for key, (request, _, _) in list(self._open.items()):
            if self._pod_of[key] == pod:
                self._end_cut_off(key, request.at)
        self._forget_clocks()
        self._robots_digests = {known: digest for known, digest in self._robots_digests.items() if known[0] != pod}

    def _forget_clocks(self) -> None:
        for site in self._sites.values():
            site.last_start = site.last_end = float("-inf")

    def _handle_start(self, request: RequestStart, pod: int) -> None:
        site = self._sites.get(request.key)
        if site is None:
            site = self._sites[request.key] = _SiteState()
        settings = self._requirements_in_force(pod, request)
        robots = self._robots_then(request, pod)
        waited, needed = (inf, 0.0) if request.is_part else self._measure_wait(site, request, robots, settings)
        violations = [
            *(() if request.is_part else self._check_delay(site, request, waited, needed, settings)),
            *self._check_robots(request, robots, settings, pod),
        ]
        key = _request_key(request.item, pod)
        self._last_waits[key] = (waited, needed)
        replaced = self._open.get(key)  # its end could not be read
        site.open += replaced is None or replaced[0].key != request.key
        self._open[key] = (request, site.last_start, violations)
        self._pod_of[key] = pod
        site.last_start = max(site.last_start, request.at) if request.is_part else request.at

    def _handle_finish(self, end: RequestEnd, pod: int) -> None:
        key = _request_key(end.item, pod)
        if key not in self._open:
            return
        if end.status == "unasked":
            self._remove_request(key)
        elif end.status == "expired":
            self._end_cut_off(key, end.at)
        else:
            self._count_request(key, end.at)

    def _handle_opening(self, opening: LogOpening, pod: int) -> None:
        self._revisions[pod, opening.slot] = opening.revision
        self._logged_settings = {
            known: one for known, one in self._logged_settings.items() if known[:2] != (pod, opening.slot)
        }
        for key, (request, _, _) in list(self._open.items()):
            if opening.new_boot or (self._pod_of[key], request.slot) == (pod, opening.slot):
                self._end_cut_off(key, request.at + request.lasts_s)  # a hand may have sent it until its deadline
        if opening.new_boot:
            self._forget_clocks()

    def _remove_request(self, key: _RequestKey) -> None:
        """Removes a request that was not made after all."""
        request, before, _ = self._open.pop(key)
        del self._last_waits[key], self._pod_of[key]
        site = self._sites[request.key]
        site.open -= 1
        site.last_start = before

    def _end_cut_off(self, key: _RequestKey, end: float) -> None:
        """Ends a request without an end in the log: its process died, or was stopped for too long."""
        request, _, violations = self._open[key]
        if any(one.kind == "robots" for one in violations):
            self._report.cut_off += self._is_reported(request)
            self._remove_request(key)
        else:
            self._count_request(key, end)

    def _count_request(self, key: _RequestKey, end: float) -> None:
        """Counts a request that was made, and has ended at `end`, or later if it was cut off."""
        request, _, violations = self._open.pop(key)
        del self._pod_of[key]
        site = self._sites[request.key]
        site.open -= 1
        site.last_end = max(site.last_end, end)
        waited, needed = self._last_waits.pop(key)
        if not self._is_reported(request):
            return
        if needed > self.longest_delay_s:
            self.longest_delay_s = needed
        if not self._scope.is_all:
            self._requested_sites.add(request.key)
        if request.hand:
            self._report.hands[request.hand] = self._report.hands.get(request.hand, 0) + 1
        self._report.requests += not request.is_part
        self._report.parts += request.is_part
        if violations:
            self._record_violations(violations)
        if request.is_part:
            return
        if self._has_several:
            self._count_crawl(request.crawl, len(violations))
        entry = (needed - waited, waited, needed, request.url)
        if len(self._margins) < WORST_KEPT:
            heappush(self._margins, entry)
        elif entry > self._margins[0]:
            heapreplace(self._margins, entry)

    def _record_violations(self, violations: list[Violation]) -> None:
        report = self._report
        report.violations += violations
        for one in violations:
            report.kinds[one.kind] = report.kinds.get(one.kind, 0) + 1
        if len(report.violations) >= 2 * MOST_LISTED:
            keep_earliest(report)

    def _is_reported(self, request: RequestStart) -> bool:
        scope = self._scope
        return (
            (not scope.crawl or request.crawl == scope.crawl)
            and scope.since <= request.wall < scope.until
            and (self._is_wanted is None or self._is_wanted(request.url))
        )

    def _count_crawl(self, number: int, violations: int) -> None:
        crawl = self._crawls.get(number)
        if crawl is None:
            self._report.forgotten += 1
            return
        count = self._report.crawls.setdefault(crawl.name, CrawlCount())
        count.requests += 1
        count.violations += violations

    def _requirements_in_force(self, pod: int, request: RequestStart) -> _Requirements:
        """The settings that a request was made with: an engine's crawl has revisions of its own, from 1."""
        number = request.crawl if self._has_several else 0
        own = self._logged_settings.get((pod, request.slot, number))
        revision = own.revision if own is not None else self._revisions.get((pod, request.slot), 0)
        revision = revision or int(self._has_several)
        settings, newest = self._requirements_of(number, revision), self._newest_revisions.get((pod, number), 0)
        if newest <= revision:
            return settings
        # Another process of the pod has read an edit first: on Redis it is in force for all of them at once.
        return min(settings, self._requirements_of(number, newest), key=lambda one: one.delay_s)

    def _requirements_of(self, number: int, revision: int) -> _Requirements:
        if (number, revision) not in self._settings:
            crawl = self._crawls.get(number)
            is_recorded = crawl is not None and 0 < revision <= crawl.revision
            config = crawl.config(revision if is_recorded else 0) if crawl is not None else None
            self._settings[number, revision] = _Requirements(config, is_recorded=is_recorded)
        return self._settings[number, revision]

    def _measure_wait(
        self, site: _SiteState, request: RequestStart, robots: Robots | None, settings: _Requirements
    ) -> tuple[float, float]:
        """The seconds that a request has waited, and those that were required."""
        crawl_delay_s = robots.crawl_delay(settings.agent) if robots is not None and settings.agent else None
        since = site.last_end if min(request.slots, settings.slots) == 1 else site.last_start
        return request.at - since, max(request.delay_s, settings.delay_s, crawl_delay_s or 0.0)

    def _check_delay(
        self, site: _SiteState, request: RequestStart, waited: float, needed: float, settings: _Requirements
    ) -> Iterator[Violation]:
        if waited + ROUNDING_S < needed:
            detail = f"{waited:.3f} s after the last request, {needed:g} s required"
            yield self._make_violation("delay", request, detail)
        slots = min(request.slots, settings.slots)
        if site.open >= slots:
            detail = f"{site.open + 1} requests open, {slots} allowed"
            yield self._make_violation("places", request, detail)

    def _check_robots(
        self, request: RequestStart, robots: Robots | None, settings: _Requirements, pod: int
    ) -> Iterator[Violation]:
        is_robots = request.item < 0 or (request.is_part and request.url.endswith("/robots.txt"))
        if is_robots or settings.agent is None:  # a robots.txt itself, or a request of a crawl that was deleted
            return
        if robots is None and self._may_robots_be_lost(request, pod):
            self._report.unproven += self._is_reported(request)
            return
        if robots is None:
            yield self._make_violation("no-robots", request, "robots.txt had not been requested")
            return
        verdict = robots.verdict(settings.agent, request.url)
        if not verdict.allowed:
            detail = f"{verdict.rule} (line {verdict.line})"
            yield self._make_violation("robots", request, detail)

    def _make_violation(self, kind: str, request: RequestStart, detail: str) -> Violation:
        crawl = self._crawls.get(request.crawl) if self._has_several else None
        if request.hand:
            detail += f", by worker {request.hand}"
        return Violation(kind, request.url, request.key, request.wall, detail, crawl.name if crawl else "")

    def _robots_then(self, request: RequestStart, pod: int) -> Robots | None:
        """The robots.txt that was in force when the request was made."""
        origin = self._robots_key(request, pod)
        history = self._histories.get(origin) or self._robots_history(origin)
        by_wall = bisect_right(history.walls, request.wall + ROUNDING_S) - 1
        named = self._robots_digests.get((pod, origin))
        by_log = -1 if named is None else history.numbers.get(named, -1)
        # A process of an embedded pod logs every robots.txt that it uses. On Redis a process of another pod may have
        # stored a newer one, which is in that pod's log: there the wall clock counts as well.
        at = by_log if named is not None and not request.slot else max(by_wall, by_log)
        return None if at < 0 else history.robots[at]

    def _robots_history(self, origin: str) -> _RobotsHistory:
        """The robots.txt files of an origin, cached up to a number of bytes: requests of the sites of a partition are
        interleaved."""
        history = _RobotsHistory(self._view.robots_history(origin))
        self._histories_bytes += history.size
        if self._histories_bytes > _MOST_HISTORY_BYTES:
            self._histories.clear()
            self._histories_bytes = history.size
        self._histories[origin] = history
        return history

    def _may_robots_be_lost(self, request: RequestStart, pod: int) -> bool:
        """Whether a missing robots.txt may have been in the damaged frontier."""
        return request.wall < self._rebuilt_at or (pod, self._robots_key(request, pod)) in self._robots_digests

    def _robots_key(self, request: RequestStart, pod: int) -> str:
        """The key under which a request's robots.txt is stored: some crawls have their own."""
        own = self._logged_settings.get((pod, request.slot, request.crawl))
        origin = request.url[: request.url.index("/", 8)]
        return f"{own.trust} {origin}" if own is not None and own.trust else origin
