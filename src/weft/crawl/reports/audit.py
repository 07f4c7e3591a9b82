"""Proof of politeness: every request in the log against the robots.txt and the settings in force when it was sent.

What is checked, for each site: the delay since its last request ended (with several places: between starts, and never
more open than places); a page asked for only when its origin's robots.txt was known and allowed it. The log is written
before a request is made, so nothing that was sent can be missing from it.

A claim is logged before robots.txt is looked at, and what that forbids is logged as not asked right after. A forbidden
one that has neither that word nor an end was cut off by a kill between the two: it is no request, and is counted for
itself (`cut_off`).

Of several crawls in one folder each request is judged by its own crawl's settings, against anyone's last request to
the site. The log names the revision of the settings that requests follow (of the process, or of an engine's crawl that
was edited), and each robots.txt from which on it applies. A request is judged by what its own log named last before it:
by the order of the log, not by the wall clock. Where no settings are recorded the delay of the request's own line
counts. A crawl that was forgotten has none any more, and nobody knows the name that it asked robots.txt under: its
requests are not held against robots.txt, and are counted (`forgotten`).

A log that was damaged proves less: lines that cannot be read, and bytes that are missing at its end, are counted, and
so are requests of which the robots.txt was lost with a frontier that was made anew.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from heapq import heappush, heapreplace
from math import inf

from msgspec import Struct

from weft.config import Config
from weft.crawl.reports.crawls import ReportCrawl, ReportFolder
from weft.engine.loop.robots import rules_of
from weft.fetch.robots import Robots, product_token
from weft.frontier.contract import RobotsRecord
from weft.frontier.requests import CrawlSettings, Finish, Gaps, Opening, RobotsKnown, Start, missing_bytes
from weft.frontier.view import FrontierView

WORST = 10
# Times are logged to the microsecond; a delay that was kept may look that much shorter.
ROUNDING_S = 2e-6


class Violation(Struct, frozen=True):
    """One request that should not have been made then."""

    kind: str  # delay, places, robots, no-robots
    url: str
    key: str
    wall: float
    detail: str
    crawl: str = ""  # its name, where the folder has several


class CrawlCount(Struct):
    """What the log says of one crawl among several."""

    requests: int = 0
    violations: int = 0


class Report(Struct):
    """What the log says."""

    requests: int = 0
    sites: int = 0
    cut_off: int = 0  # forbidden claims that a kill left before they could be turned away
    unreadable: int = 0  # lines of the log that the proof does not cover
    unreadable_in: list[str] = []  # the files that they are in
    missing_bytes: int = 0  # that the log once had
    unproven: int = 0  # requests whose robots.txt was lost with a damaged frontier
    forgotten: int = 0  # requests of crawls that are not known any more: not held against robots.txt
    violations: list[Violation] = []
    closest: list[tuple[float, float, str]] = []  # smallest margins: seconds waited, seconds required, URL
    crawls: dict[str, CrawlCount] = {}  # of a folder with several, by name


_Key = int | tuple[int, int]


def _key(item: int, pod: int) -> _Key:
    """What an open request is known by: a robots.txt is numbered by its pod, for as long as that runs."""
    return item if item > 0 else (pod, item)


class _Site:
    """What is known of one site while the log is read."""

    __slots__ = ("last_end", "last_start", "open")

    def __init__(self) -> None:
        self.last_start = self.last_end = float("-inf")
        self.open: dict[_Key, Start] = {}


class _InForce:
    """What the settings of one revision require of a request. `config`: None of a crawl that was forgotten."""

    __slots__ = ("agent", "delay_s", "places")

    def __init__(self, config: Config | None, *, is_recorded: bool) -> None:
        self.agent = product_token(config.fetch.user_agent()) if config is not None else None
        self.delay_s = config.politeness.delay_s if config is not None and is_recorded else 0.0
        self.places = config.politeness.places if config is not None and is_recorded else inf


def audit(report: ReportFolder, name: str | None = None) -> Report:
    """Reads the whole request log; of one crawl alone where a name is given. Requests of the others count as those that
    its own come after."""
    only = report.crawls(name)[0].number if name is not None else 0
    view = FrontierView(report.folder.frontiers())
    try:
        return _Audit(view, report.crawls(), only, has_several=report.is_engines).run()
    finally:
        view.close()


class _Audit:
    def __init__(self, view: FrontierView, crawls: list[ReportCrawl], only: int = 0, *, has_several: bool) -> None:
        self._view = view
        self._crawls = {crawl.number: crawl for crawl in crawls}
        self._only = only
        self._has_several = has_several
        self._settings: dict[tuple[int, int], _InForce] = {}  # by crawl and revision
        self._revisions: dict[tuple[int, str], int] = {}  # of each pod's slots, as the log has it so far
        self._own: dict[tuple[int, str, int], CrawlSettings] = {}  # by pod, slot and crawl: what the log says so far
        self._newest: dict[tuple[int, int], int] = {}  # by pod and crawl: the highest revision that any slot has named
        self._known: dict[tuple[int, str], str] = {}  # by pod and origin: the robots.txt that the log named last
        self._report = Report(unreadable_in=[], violations=[], closest=[], crawls={})
        self._asked: set[str] = set()  # sites that the crawls reported about have requested
        self._rebuilt_at = view.rebuilt_at()
        self._sites: dict[str, _Site] = {}
        # Requests that have not ended yet, each with its site's last start before it, to restore where it turns out
        # that the request was never made, and with what was wrong with it.
        self._open: dict[_Key, tuple[Start, float, list[Violation]]] = {}
        self._waits: dict[_Key, tuple[float, float]] = {}  # of those: seconds waited, and required
        self._pod_of: dict[_Key, int] = {}
        self._rules: dict[int, Robots] = {}
        self._margins: list[tuple[float, float, float, str]] = []

    def run(self) -> Report:
        gaps = Gaps(files=[])
        for pod, event in self._view.requests(gaps):
            if isinstance(event, Start):
                self._start(event, pod)
            elif isinstance(event, Finish):
                self._finish(event, pod)
            elif isinstance(event, RobotsKnown):
                self._known[pod, event.origin] = event.digest
            elif isinstance(event, CrawlSettings):
                number = event.crawl if self._has_several else 0
                self._own[pod, event.slot, number] = event
                self._newest[pod, number] = max(event.revision, self._newest.get((pod, number), 0))
            else:
                self._opening(event, pod)
        for key, (request, _, _) in list(self._open.items()):
            self._cut_off(key, request.at)
        self._report.unreadable, self._report.unreadable_in = gaps.lines, gaps.files
        sizes = self._view.log_sizes().items()
        self._report.missing_bytes = sum(missing_bytes(path.parent, (path.name, size)) for path, size in sizes)
        self._report.sites = len(self._asked if self._only else self._sites)
        self._report.closest = [(waited, needed, url) for _, waited, needed, url in sorted(self._margins, reverse=True)]
        return self._report

    def _start(self, request: Start, pod: int) -> None:
        site = self._sites.setdefault(request.key, _Site())
        settings = self._in_force(pod, request)
        robots = self._robots_then(request, pod)
        waited, needed = self._wait(site, request, robots, settings)
        found = [
            *self._clock(site, request, waited, needed, settings),
            *self._allowed(request, robots, settings, pod),
        ]
        key = _key(request.item, pod)
        self._waits[key] = (waited, needed)
        self._open[key] = (request, site.last_start, found)
        self._pod_of[key] = pod
        site.open[key] = request
        site.last_start = request.at

    def _finish(self, end: Finish, pod: int) -> None:
        key = _key(end.item, pod)
        if key not in self._open:
            return
        if end.status == "unasked":
            self._take_back(key)
        elif end.status == "expired":
            self._cut_off(key, end.at)
        else:
            self._count(key, end.at)

    def _opening(self, opening: Opening, pod: int) -> None:
        self._revisions[pod, opening.slot] = opening.revision
        self._own = {known: one for known, one in self._own.items() if known[:2] != (pod, opening.slot)}
        for key, (request, _, _) in list(self._open.items()):
            if opening.new_boot or (self._pod_of[key], request.slot) == (pod, opening.slot):
                self._cut_off(key, request.at)
        if opening.new_boot:
            for site in self._sites.values():
                site.last_start = site.last_end = float("-inf")

    def _take_back(self, key: _Key) -> None:
        """It was not made after all: as if it had not been there."""
        request, before, _ = self._open.pop(key)
        del self._waits[key]
        site = self._sites[request.key]
        del site.open[key]
        site.last_start = before

    def _cut_off(self, key: _Key, end: float) -> None:
        """The log has no end for it: its process died, or stood still for too long."""
        request, _, found = self._open[key]
        if any(one.kind == "robots" for one in found):
            self._report.cut_off += self._is_reported(request)
            self._take_back(key)
        else:
            self._count(key, end)

    def _count(self, key: _Key, end: float) -> None:
        """A request that was made, and has ended then, or later if it was cut off."""
        request, _, found = self._open.pop(key)
        site = self._sites[request.key]
        del site.open[key]
        site.last_end = max(site.last_end, end)
        waited, needed = self._waits.pop(key)
        if not self._is_reported(request):
            return
        self._asked.add(request.key)
        self._report.requests += 1
        self._report.violations += found
        if self._has_several:
            self._count_crawl(request.crawl, len(found))
        entry = (needed - waited, waited, needed, request.url)
        if len(self._margins) < WORST:
            heappush(self._margins, entry)
        elif entry > self._margins[0]:
            heapreplace(self._margins, entry)

    def _is_reported(self, request: Start) -> bool:
        return not self._only or request.crawl == self._only

    def _count_crawl(self, number: int, violations: int) -> None:
        crawl = self._crawls.get(number)
        if crawl is None:
            self._report.forgotten += 1
            return
        count = self._report.crawls.setdefault(crawl.name, CrawlCount())
        count.requests += 1
        count.violations += violations

    def _in_force(self, pod: int, request: Start) -> _InForce:
        """The settings that a request was made with: an engine's crawl has revisions of its own, the first is 1."""
        number = request.crawl if self._has_several else 0
        own = self._own.get((pod, request.slot, number))
        revision = own.revision if own is not None else self._revisions.get((pod, request.slot), 0)
        revision = revision or int(self._has_several)
        settings, newest = self._settings_of(number, revision), self._newest.get((pod, number), 0)
        if newest <= revision:
            return settings
        # Another process of the pod has read an edit first: on Redis it is in force for all of them at once.
        return min(settings, self._settings_of(number, newest), key=lambda one: one.delay_s)

    def _settings_of(self, number: int, revision: int) -> _InForce:
        if (number, revision) not in self._settings:
            crawl = self._crawls.get(number)
            is_recorded = crawl is not None and 0 < revision <= crawl.revision
            config = crawl.config(revision if is_recorded else 0) if crawl is not None else None
            self._settings[number, revision] = _InForce(config, is_recorded=is_recorded)
        return self._settings[number, revision]

    def _wait(self, site: _Site, request: Start, robots: Robots | None, settings: _InForce) -> tuple[float, float]:
        """The seconds that a request has waited, and those that it had to."""
        crawl_delay_s = robots.crawl_delay(settings.agent) if robots is not None and settings.agent else None
        since = site.last_end if min(request.places, settings.places) == 1 else site.last_start
        return request.at - since, max(request.delay_s, settings.delay_s, crawl_delay_s or 0.0)

    def _clock(
        self, site: _Site, request: Start, waited: float, needed: float, settings: _InForce
    ) -> Iterator[Violation]:
        if waited + ROUNDING_S < needed:
            detail = f"{waited:.3f} s after the last request, {needed:g} s required"
            yield self._violation("delay", request, detail)
        places = min(request.places, settings.places)
        if len(site.open) >= places:
            detail = f"{len(site.open) + 1} requests open, {places} allowed"
            yield self._violation("places", request, detail)

    def _allowed(self, request: Start, robots: Robots | None, settings: _InForce, pod: int) -> Iterator[Violation]:
        if request.item < 0 or settings.agent is None:  # a robots.txt itself, or of a crawl that was forgotten
            return
        if robots is None and self._is_lost(request, pod):
            self._report.unproven += self._is_reported(request)
            return
        if robots is None:
            yield self._violation("no-robots", request, "robots.txt had not been asked for")
            return
        verdict = robots.verdict(settings.agent, request.url)
        if not verdict.allowed:
            detail = f"{verdict.rule} (line {verdict.line})"
            yield self._violation("robots", request, detail)

    def _violation(self, kind: str, request: Start, detail: str) -> Violation:
        crawl = self._crawls.get(request.crawl) if self._has_several else None
        return Violation(kind, request.url, request.key, request.wall, detail, crawl.name if crawl else "")

    def _robots_then(self, request: Start, pod: int) -> Robots | None:
        """The robots.txt that was in force when the request was made."""
        origin = self._origin(request, pod)
        history = self._view.robots_history(origin)
        by_wall = bisect_right(history, request.wall + ROUNDING_S, key=lambda known: known.wall) - 1
        named = self._known.get((pod, origin))
        by_log = next((at for at, known in enumerate(history) if known.digest == named), -1)
        # A process of an embedded pod logs every robots.txt that it uses. On Redis a process of another pod may have
        # left a newer one, which that pod's log names: there the wall clock counts as well.
        at = by_log if named is not None and not request.slot else max(by_wall, by_log)
        return None if at < 0 else self._parsed(history[at].record)

    def _is_lost(self, request: Start, pod: int) -> bool:
        """Whether a robots.txt that nobody has now may have been in the damaged frontier."""
        return request.wall < self._rebuilt_at or (pod, self._origin(request, pod)) in self._known

    def _origin(self, request: Start, pod: int) -> str:
        """The origin of a request as robots.txt files are kept: those of some crawls are apart from the others'."""
        own = self._own.get((pod, request.slot, request.crawl))
        origin = request.url[: request.url.index("/", 8)]
        return f"{own.trust} {origin}" if own is not None and own.trust else origin

    def _parsed(self, record: RobotsRecord) -> Robots:
        if id(record) not in self._rules:
            self._rules[id(record)] = rules_of(record)
        return self._rules[id(record)]
