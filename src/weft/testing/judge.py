"""The judge: compares a crawl's requests, as the server logged them, with what the oracle expects.

It reads nothing but the arrival log and the Expectation. No tolerance is built in: the log's times bracket the
client's (see `arrivals.py`), so a polite crawl has zero violations, and one violation is one too many.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields

from weft.testing.arrivals import Arrival
from weft.testing.content.robots_txt import compile_pattern
from weft.testing.oracle import Expectation, RobotsView

Key = Callable[[Arrival], str]
KEYS: dict[str, Key] = {
    # every host of the synthetic web is a domain of its own
    "host": lambda arrival: arrival.host,
    "domain": lambda arrival: arrival.host,
    "all": lambda arrival: "all",  # noqa: ARG005
    # without host names the host is the IP address itself
    "address": lambda arrival: arrival.address or arrival.host,
}


@dataclass
class CrawlVerdict:
    """The faults of a crawl, in lists by kind. Every list is empty for a correct crawl."""

    missing: list[str] = field(default_factory=list)
    forbidden: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    duplicates: list[str] = field(default_factory=list)
    robots: list[str] = field(default_factory=list)
    delay: list[str] = field(default_factory=list)
    overlap: list[str] = field(default_factory=list)
    retry_after: list[str] = field(default_factory=list)
    over_budget: list[str] = field(default_factory=list)
    # Counts that are not faults by themselves.
    refetches: int = 0  # requests for a URL after its first, including retries
    requests: int = 0  # all of them

    @property
    def ok(self) -> bool:
        return not self.faults()

    def faults(self) -> dict[str, list[str]]:
        """The lists that are not empty."""
        lists = {one.name: getattr(self, one.name) for one in fields(self)}
        return {name: value for name, value in lists.items() if isinstance(value, list) and value}

    def __str__(self) -> str:
        if self.ok:
            return f"{self.requests} requests, no fault"
        lines = [f"{self.requests} requests"]
        for name, faults in self.faults().items():
            lines.append(f"{name}: {len(faults)}")
            lines += [f"  {one}" for one in faults[:10]]
        return "\n".join(lines)


def judge(
    arrivals: Iterable[Arrival],
    expectation: Expectation,
    delay_s: float,
    key: str | Key = "host",
    *,
    places: int = 1,
    complete: bool = True,
) -> CrawlVerdict:
    """Judges a crawl by the requests in the arrival log.

    `key`: what the politeness delay applies to; `places`: how many requests may be in flight per key (above 1 only that
    number is checked, because the delay then counts between starts, which the server cannot see exactly). With
    `complete=False` the crawl was stopped early: unrequested URLs are not faults.
    """
    log = sorted(arrivals, key=lambda arrival: arrival.t)
    verdict = CrawlVerdict(requests=len(log))
    _judge_urls(log, expectation, verdict, complete)
    _judge_robots(log, expectation, verdict)
    by_key: dict[str, list[Arrival]] = defaultdict(list)
    key_of = KEYS[key] if isinstance(key, str) else key
    for arrival in log:
        by_key[key_of(arrival)].append(arrival)
    for requests in by_key.values():
        _judge_delay(requests, expectation, delay_s, places, verdict)
    return verdict


def _judge_urls(log: list[Arrival], expectation: Expectation, verdict: CrawlVerdict, complete: bool) -> None:
    counts = Counter(arrival.url for arrival in log)
    known = {*expectation.must, *expectation.may}
    patterns = [re.compile(pattern) for pattern in expectation.may_patterns]
    excluded = set(expectation.excluded_hosts)
    if complete:
        verdict.missing = [url for url in expectation.must if url not in counts]
    hosts = {arrival.url: arrival.host for arrival in log}
    for url, count in counts.items():
        if url in expectation.never or hosts[url] in excluded:
            why = expectation.never.get(url, ["excluded"])
            verdict.forbidden.append(f"{url} ({', '.join(why)})")
        elif url not in known and not any(pattern.fullmatch(url) for pattern in patterns):
            verdict.unexpected.append(url)
        allowed = expectation.requests.get(url, 1)
        verdict.refetches += count - 1
        if count > allowed:
            verdict.duplicates.append(f"{url} requested {count} times, {allowed} allowed")
    if expectation.max_pages_per_host is not None:
        _judge_budget(log, expectation.max_pages_per_host, verdict)


def _judge_budget(log: list[Arrival], budget: int, verdict: CrawlVerdict) -> None:
    pages: dict[str, set[str]] = defaultdict(set)
    for arrival in log:
        if arrival.status == 200 and not arrival.aborted and not arrival.note.startswith(("robots", "sitemap")):
            pages[arrival.host].add(arrival.path)
    for host, paths in pages.items():
        if len(paths) > budget:
            verdict.over_budget.append(f"{host}: {len(paths)} pages, {budget} allowed")


def _judge_robots(log: list[Arrival], expectation: Expectation, verdict: CrawlVerdict) -> None:
    """No page may be requested before its origin's robots.txt was finally answered, and none that it forbids."""
    compiled = {
        host: [(allowed, pattern, compile_pattern(pattern)) for allowed, pattern in view.rules]
        for host, view in expectation.robots.items()
    }
    answered: dict[str, float] = {}
    for arrival in log:
        view = expectation.robots.get(arrival.host, RobotsView())
        if arrival.path in ("/robots.txt", view.final):
            if (
                arrival.path == view.final
                and 200 <= arrival.status < 500
                and arrival.status not in (429, *range(300, 400))
                and not arrival.abandoned
            ):
                answered.setdefault(arrival.host, arrival.end)
            continue
        if arrival.t < answered.get(arrival.host, float("inf")):
            verdict.robots.append(f"{arrival.url} requested before robots.txt was answered")
        elif view.unreachable or not _is_allowed(compiled.get(arrival.host, []), arrival.path):
            verdict.robots.append(f"{arrival.url} requested though robots.txt forbids it")


def _is_allowed(rules: list[tuple[bool, str, re.Pattern[str]]], path: str) -> bool:
    matching = [(len(pattern), allowed) for allowed, pattern, regex in rules if regex.match(path)]
    return max(matching)[1] if matching else True


def _judge_delay(
    requests: list[Arrival], expectation: Expectation, delay_s: float, places: int, verdict: CrawlVerdict
) -> None:
    """Checks one key: the gap after the previous request, its Retry-After, and the number of open requests.

    A request that was read after its client had disconnected is ignored: it was over, and its answer was not received.
    """
    last: Arrival | None = None  # the request that ended last
    blocked_until, blocker = 0.0, ""
    delays: dict[str, float] = {}
    for index, arrival in enumerate(requests):
        if last is not None and places == 1:
            gap = arrival.t - last.end
            required = max(delay_s, max(delays.values(), default=0.0))
            if gap < 0 or arrival.overlaps:
                verdict.overlap.append(f"{arrival.url} while {last.url} was open")
            elif gap < required:
                verdict.delay.append(f"{arrival.url} {gap:.4f} s after {last.url}, {required:g} required")
        elif places > 1 and _count_open_at(requests[:index], arrival.t) >= places:
            verdict.overlap.append(f"{arrival.url} with {places} others open")
        if arrival.t < blocked_until:
            verdict.retry_after.append(f"{arrival.url} inside the Retry-After of {blocker}")
        if arrival.abandoned:
            continue
        if arrival.retry_after_s is not None and arrival.end + arrival.retry_after_s > blocked_until:
            blocked_until, blocker = arrival.end + arrival.retry_after_s, arrival.url
        view = expectation.robots.get(arrival.host)
        # A client that hung up does not know what the file says.
        is_known = arrival.status == 200 and not arrival.aborted
        if view and view.crawl_delay_s and arrival.path == view.final and is_known:
            delays[arrival.host] = view.crawl_delay_s
        if last is None or arrival.end > last.end:
            last = arrival


def _count_open_at(earlier: list[Arrival], moment: float) -> int:
    return sum(1 for arrival in earlier if arrival.end > moment)
