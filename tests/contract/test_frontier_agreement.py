"""Two frontiers that are told the same give the same: an embedded one and one on Redis, side by side under one clock,
through long random lives. What one of them does at another moment or not at all is a mistake in it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from harnesses import EmbeddedHarness, Harness, RedisHarness

from weft.frontier.contract import CrawlLimits, End, EndedLease, RobotsRecord, TransferEnd
from weft.records import Found, Lease, Purpose, Reason
from weft.supervise.redis_server import RedisServer

STEPS = 120
LIVES: dict[str, dict[str, Any]] = {
    "many sites": {"sites": 4},
    "several places": {"sites": 3, "places": 2},
    "no delay": {"sites": 3, "delay_s": 0.0},
    "depth decides": {"sites": 2, "limits": {"max_depth": 6}},
    "few pages": {"sites": 1, "places": 3, "limits": {"max_pages": 25}},
    "few in flight": {"sites": 1, "places": 5, "limits": {"in_flight": 2, "max_depth": 6}},
    "few of a site": {"sites": 2, "places": 2, "limits": {"max_pages_per_domain": 6, "max_sitemaps": 3}},
    "soon given up": {"sites": 3, "breaker_failures": 2, "breaker_max_probes": 2, "breaker_reset_s": 20.0},
    "soon given up where depth decides": {
        "sites": 2,
        "limits": {"max_depth": 6},
        "breaker_failures": 1,
        "breaker_max_probes": 1,
        "breaker_reset_s": 10.0,
    },
    "few of a site where depth decides": {
        "sites": 2,
        "places": 2,
        "limits": {"max_depth": 6, "max_pages_per_domain": 5, "max_sitemaps": 2},
    },
    "short leases": {"sites": 3, "lease_s": 15.0, "places": 2},
}


class Life:
    """What happens to both."""

    def __init__(self, folder: Path, server: Any, seed: str, sites: int, limits: dict[str, Any], **politeness: Any):
        settings = {"delay_s": 4.0, "max_retry_after_s": 50.0} | politeness
        self.both: tuple[Harness, Harness] = (
            EmbeddedHarness(folder / "embedded", **settings),
            RedisHarness(folder / "redis", server, 9, **settings),
        )
        for harness in self.both:
            harness.start(CrawlLimits(**limits))
        self.chance = random.Random(seed)
        self.hosts = [f"{('https', 'http')[number % 2]}://h{number}.test" for number in range(sites)]
        self.out: dict[str, tuple[Lease, Lease]] = {}  # by URL, what is leased and not cooled
        self.cooled: dict[str, tuple[Lease, Lease]] = {}
        self.rejected: list[tuple[int, int]] = []
        self.names = count()
        self.known: list[str] = []
        self.batch = self.acknowledged = 0
        self.paused = False
        self.told: list[str] = []

    def same(self, *values: Any) -> None:
        assert values[0] == values[1], "\n".join(self.told[-30:])

    def step(self) -> None:
        what = self.chance.choice(
            [self.admit, self.admit, self.claim, self.claim, self.claim, self.cool, self.cool, self.finish, self.finish,
             self.rare]
        )  # fmt: skip
        self.told.append(what.__name__)
        what()
        self.look()

    # ── what is told ───────────────────────────────────────────────────────────────────────────────────────────────

    def found(self) -> Found:
        host = self.chance.choice(self.hosts)
        if self.known and self.chance.random() < 0.4:
            url = self.chance.choice(self.known)
        else:
            url = f"{host}/{next(self.names)}"
            self.known.append(url)
        depth, parent = self.chance.randrange(6), self.chance.randrange(1000)
        kind = self.chance.random()
        if kind < 0.08:
            return Found(url, depth, parent, 1, about=f"{host}/from", offsite=1)
        if kind < 0.12:
            return Found(url, depth, parent, 2, about=f"{host}/from {url}")
        if kind < 0.2:
            return Found(url + ".xml", 0, parent, purpose=Purpose.SITEMAP, about=host)
        return Found(url, depth, parent, offsite=self.chance.choice((0, 0, 2)))

    def admit(self) -> None:
        # Where depth decides, the order within one call does too, and that is the frontier's own.
        most = 1 if self.both[0].limits.max_depth is not None else 5
        found = list({one.url: one for one in (self.found() for _ in range(self.chance.randint(1, most)))}.values())
        self.told.append(repr(found))
        made = [harness.frontier.queue.admit(harness.crawl, found) for harness in self.both]
        self.same(*((one.new, one.duplicates, sorted((url, depth) for _, url, depth in one.expand)) for one in made))

    def claim(self) -> None:
        seconds = float(self.chance.choice((1, 2, 4, 5, 9)))
        for harness in self.both:
            harness.advance(seconds)
        self.forget_expired()
        first, second = ({lease.url: lease for lease in one.frontier.leases.claim("me", 99)} for one in self.both)
        self.told.append(repr(sorted(first)) + repr(sorted(second)))
        self.same(*(sorted(map(_facts, leases.values())) for leases in (first, second)))
        self.same(*(
            {name: one.frontier.leases.depth_of(lease) for name, lease in some.items() if lease.purpose is Purpose.PAGE}
            for one, some in zip(self.both, (first, second), strict=True)
        ))  # fmt: skip
        self.out |= {name: (first[name], second[name]) for name in first}

    def forget_expired(self) -> None:
        now = self.both[0].time
        for leases in (self.out, self.cooled):
            for url in [url for url, (lease, _) in leases.items() if lease.deadline <= now]:
                del leases[url]

    def cool(self) -> None:
        if not self.out:
            return
        url = self.chance.choice(sorted(self.out))
        leases = self.cooled[url] = self.out.pop(url)
        facts: dict[str, Any] = self.chance.choice(
            ({"ok": True}, {"ok": True}, {"ok": True}, {"ok": False}, {"ok": None}, {"slow_down": True, "ok": None},
             {"slow_down": True, "retry_after_s": self.chance.choice((3.0, 20.0, 50.0, 51.0))})
        )  # fmt: skip
        ago, took_s = self.chance.choice((0.0, 1.0)), self.chance.choice((None, 0.2, 0.3, 2.5, 9.0))
        if took_s is not None and facts.get("ok") is not False:
            facts = {**facts, "took_s": took_s}
        self.told.append(f"{url} {facts} {ago}")
        for harness, lease in zip(self.both, leases, strict=True):
            harness.frontier.leases.cool([TransferEnd(lease, harness.time - ago, **facts)])

    def finish(self) -> None:
        leased = self.cooled or self.out
        if not leased:
            return
        url = self.chance.choice(sorted(leased))
        leases = leased.pop(url)
        end = self.chance.choice((End.PAGE, End.PAGE, End.OTHER, End.RETRY, End.RELEASE))
        if leases[0].purpose is not Purpose.PAGE and end is End.PAGE:
            end = End.OTHER
        wait_s, batch = self.chance.choice((0.0, 7.0)), self.batch + 1 if self.chance.random() < 0.3 else 0
        self.told.append(f"{url} {end} {wait_s} {batch}")
        self.same(*(
            harness.frontier.leases.finish([EndedLease(lease, end, wait_s)], batch)
            for harness, lease in zip(self.both, leases, strict=True)
        ))  # fmt: skip
        if leases[0].purpose is Purpose.ROBOTS and end is End.OTHER:
            delay_s = self.chance.choice((None, None, 6.0))
            expires = self.both[0].wall + self.chance.choice((30.0, 1e6))
            for harness in self.both:
                harness.frontier.sites.robots_known(leases[0].about, RobotsRecord("allow", b"", expires), delay_s)
        self.batch = max(self.batch, batch)

    def rare(self) -> None:
        what = self.chance.randrange(7)
        self.told.append(f"rare {what}")
        for harness in self.both:
            frontier, crawl = harness.frontier, harness.crawl
            if what == 0:
                self.acknowledged = self.batch
                frontier.durability.acknowledge(self.batch)
            elif what in (1, 2, 3):
                self.paused = what == 1
                frontier.crawls.pause(crawl, self.paused)
            elif what == 4:
                frontier.durability.commit()
            elif what == 5 and harness.limits.max_pages is not None:
                frontier.permits.allow(crawl, harness.limits.max_pages + 5)
        if what == 6:
            url = f"{self.chance.choice(self.hosts)}/{next(self.names)}"
            for harness in self.both:
                harness.frontier.revisits.readmit(harness.crawl, Found(url, 1))

    # ── what is seen ───────────────────────────────────────────────────────────────────────────────────────────────

    def look(self) -> None:
        """Both say the same of themselves."""
        both = [harness.frontier.status.stats() for harness in self.both]
        # Not what is queued: when a robots.txt that must wait is asked for again is each frontier's own matter.
        names = ["leased", "seen", "admitted", "pages"]
        if self.batch == self.acknowledged:
            names.append("finished")  # one of them counts only what is acknowledged
        self.same(*({name: getattr(stats, name) for name in names} for stats in both))
        if not self.paused and self.both[0].limits.max_pages is not None:
            self.same(*(harness.frontier.permits.left(harness.crawl) for harness in self.both))
        self.same(*(harness.frontier.permits.exhausted() for harness in self.both))
        rejected = [harness.frontier.rejected.rejections() for harness in self.both]
        self.same(*(sorted((one.item.url, one.item.depth, one.reason) for one in some) for some in rejected))
        for harness, some in zip(self.both, rejected, strict=True):
            harness.frontier.rejected.end_stored([one.item.item for one in some])
        if rejected[0]:
            assert {one.reason for one in rejected[0]} <= {Reason.BREAKER, Reason.RETRY_AFTER}

    def queued(self) -> None:
        """What waits, item by item."""
        self.same(*(
            sorted((one.url, one.depth, one.parent, one.hops, one.purpose, one.about, one.offsite, one.attempt)
                   for one in harness.frontier.queue.items(harness.crawl) if one.item > 0)
            for harness in self.both
        ))  # fmt: skip

    def close(self) -> None:
        for harness in self.both:
            harness.close()


def _facts(lease: Lease) -> tuple[Any, ...]:
    facts = (lease.url, lease.key, lease.hops, lease.purpose, lease.offsite, lease.attempt, lease.about)
    # For which of the pages that wait for it a robots.txt is asked is each frontier's own matter.
    found = (lease.depth, lease.parent) if lease.item > 0 else (0, 0)
    return (*facts, *found, round(lease.delay_s, 3), lease.deadline)


@pytest.fixture
def make_life(tmp_path: Path, shared_server: Callable[[str], RedisServer]) -> Iterator[Any]:
    lives: list[Life] = []

    def make(seed: str, sites: int, limits: dict[str, Any] | None = None, **politeness: Any) -> Life:
        folder = tmp_path / str(len(lives))
        lives.append(Life(folder, shared_server("redis"), seed, sites, limits or {}, **politeness))
        return lives[-1]

    yield make
    for life in lives:
        life.close()


@pytest.mark.parametrize("number", range(2))
@pytest.mark.parametrize("name", LIVES)
def test_two_frontiers_that_are_told_the_same_give_the_same(name: str, number: int, make_life: Any) -> None:
    life = make_life(f"{name} {number}", **LIVES[name])
    for _ in range(STEPS):
        life.step()
    if "max_depth" not in LIVES[name].get("limits", {}):
        life.queued()
