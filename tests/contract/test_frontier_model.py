"""Many crawls on one frontier through long random lives, beside a small model of them: what is counted of each, what a
claim must not give (too early, beyond a limit, of a crawl that is paused or over), and what it must."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
from harnesses import Harness

from weft.config import PolitenessSection
from weft.frontier.contract import CrawlCounts, CrawlLimits, End, EndedLease, RobotsRecord, TransferEnd
from weft.frontier.embedded.embedded_frontier import EmbeddedFrontier
from weft.records import Found, Lease, Purpose

STEPS = 150
HOSTS = ("a", "b", "c", "d")
NEVER = -1e9


class Tenant:
    """A crawl, as the model has it."""

    def __init__(self, limits: CrawlLimits, section: PolitenessSection) -> None:
        self.limits, self.section = limits, section
        self.queued: dict[str, float] = {}  # URL: not before
        self.aside: set[str] = set()
        self.out: Counter[str] = Counter()  # pages, by host
        self.pages: Counter[str] = Counter()
        self.waits_since: dict[str, float] = {}  # by host: since it was served, or became the first that waits
        self.seen = self.leased = 0
        self.paused = False

    def may_have(self, host: str) -> bool:
        """Whether its limits allow another page of the host."""
        limits, out, pages = self.limits, self.out.total(), self.pages.total()
        cap = limits.max_pages_per_domain
        return (
            not self.paused
            and (limits.max_pages is None or pages + out < limits.max_pages)
            and (limits.in_flight is None or out < limits.in_flight)
            and (cap is None or self.pages[host] + self.out[host] < cap)
        )

    def has_work(self) -> bool:
        cap = self.limits.max_pages_per_domain
        return any(cap is None or self.pages[host_of(url)] + self.out[host_of(url)] < cap for url in self.queued)


class Site:
    """A host, as the model has it."""

    def __init__(self) -> None:
        self.active = 0
        self.started = self.ended = NEVER
        self.robots_until = 0.0  # on the wall clock
        self.robots_out = False
        self.kept_until = NEVER  # others wait for one that has waited long, also if it has gone since

    def end(self) -> None:
        self.active, self.kept_until = self.active - 1, NEVER

    def due_for(self, section: PolitenessSection) -> float:
        return (self.ended if section.places == 1 else self.started) + section.delay_s


def host_of(url: str) -> str:
    return url.split("/")[2]


class Life:
    """What happens to the frontier, and to the model."""

    def __init__(self, harness: Harness, seed: int) -> None:
        self.harness, self.frontier = harness, harness.start()
        self.chance = random.Random(seed)
        self.tenants: dict[int, Tenant] = {}
        self.sites = {host: Site() for host in HOSTS}
        self.out: list[Lease] = []
        self.cooled: list[Lease] = []
        self.names = count()
        if isinstance(self.frontier, EmbeddedFrontier):
            self.frontier.crawls.close_crawl(harness.crawl)
        for _ in range(3):
            self.open()

    def step(self) -> None:
        often = [self.admit, self.claim, self.claim, self.claim, self.cool, self.cool, self.finish, self.finish]
        rare = [
            self.open,
            self.change,
            self.pause,
            self.pause,
            self.close,
            self.set_aside,
            self.restore_excluded,
        ]
        self.chance.choice(often if self.chance.random() < 0.8 else rare)()
        self.look()

    # ── what is done ───────────────────────────────────────────────────────────────────────────────────────────────

    def settings(self) -> tuple[CrawlLimits, PolitenessSection, float]:
        limits: dict[str, Any] = self.chance.choice(
            ({}, {}, {"max_pages": 12}, {"in_flight": 2}, {"max_pages_per_domain": 5})
        )
        delay_s, places = self.chance.choice((0.0, 1.0, 3.0)), self.chance.choice((1, 1, 3))
        section = PolitenessSection(delay_s=delay_s, places=places, lease_s=9000.0)
        return CrawlLimits(**limits), section, self.chance.choice((0.5, 1.0, 3.0))

    def open(self) -> None:
        if len(self.tenants) < 5:
            limits, section, weight = self.settings()
            crawl = self.frontier.crawls.open_crawl(f"c{next(self.names)}", limits, section, weight)
            self.tenants[crawl] = Tenant(limits, section)

    def any_one(self) -> tuple[int, Tenant]:
        return self.chance.choice(list(self.tenants.items()))

    def change(self) -> None:
        crawl, tenant = self.any_one()
        tenant.limits, tenant.section, weight = self.settings()
        self.frontier.crawls.change_crawl(crawl, tenant.limits, tenant.section, weight)

    def admit(self) -> None:
        crawl, tenant = self.any_one()
        urls = [f"https://{self.chance.choice(HOSTS)}/{next(self.names)}" for _ in range(self.chance.randint(1, 6))]
        admission = self.frontier.queue.admit(crawl, [Found(url, self.chance.randrange(3)) for url in urls])
        assert (admission.new, admission.duplicates) == (len(urls), 0)
        assert self.frontier.queue.admit(crawl, [Found(urls[0], 9)]).duplicates == 1
        tenant.seen += len(urls)
        for host in {host_of(url) for url in urls} - {host_of(url) for url in tenant.queued}:
            tenant.waits_since[host] = self.harness.time
        tenant.queued |= dict.fromkeys(urls, 0.0)

    def claim(self) -> None:
        self.harness.advance(self.chance.choice((0.5, 1.0, 1.0, 3.0, 12.0)))
        limit = self.chance.choice((1, 2, 99, 99))
        for _ in range(9):  # what comes free within a claim is for the next one
            due = self.frontier.leases.next_due()
            assert not self.claimable() or (due is not None and due <= self.frontier.now()), "nobody would ask"
            self.note_kept()  # one that has waited long may use up its permits elsewhere in this claim
            leases = self.frontier.leases.claim("me", limit)
            assert len(leases) <= limit
            for lease in leases:
                self.take(lease)
            self.note_kept()
            if len(leases) == limit or not self.claimable():
                return
            self.harness.advance(0.125)
        raise AssertionError(f"never given: {self.claimable()}")

    def take(self, lease: Lease) -> None:
        tenant, now = self.tenants[lease.crawl], self.harness.time
        host = host_of(lease.url)
        site = self.sites[host]
        assert site.active < tenant.section.places and now >= site.due_for(tenant.section), "not polite"
        assert tenant.may_have(host) and any(host_of(url) == host for url in tenant.queued)
        assert lease.delay_s == tenant.section.delay_s
        site.active, site.started = site.active + 1, now
        tenant.waits_since[host] = now
        tenant.leased += 1
        self.out.append(lease)
        if lease.purpose is Purpose.ROBOTS:
            assert site.robots_until <= self.harness.wall and not site.robots_out
            site.robots_out = True
        else:
            assert site.robots_until > self.harness.wall
            assert tenant.queued.pop(lease.url) <= now
            tenant.out[host] += 1

    def claimable(self) -> list[tuple[int, str]]:
        """Crawls and hosts of which a claim must give something now."""
        return [
            (crawl, host)
            for crawl, tenant in self.tenants.items()
            for host, site in self.sites.items()
            if self.is_ready(tenant, host)
            and site.active < tenant.section.places
            and max(site.due_for(tenant.section), site.kept_until) <= self.harness.time
            and not any(self.is_kept_for(other, host) for other in self.tenants.values() if other is not tenant)
        ]

    def is_ready(self, tenant: Tenant, host: str) -> bool:
        site = self.sites[host]
        waiting = [at for url, at in tenant.queued.items() if host_of(url) == host]
        knows_robots = site.robots_until > self.harness.wall
        return (
            any(at <= self.harness.time for at in waiting)
            and tenant.may_have(host)
            and (knows_robots or not site.robots_out)
        )

    def is_kept_for(self, tenant: Tenant, host: str) -> bool:
        """Whether others may have to wait for one that has waited for ten of its own delays."""
        waits = self.harness.time - tenant.waits_since.get(host, self.harness.time)
        return self.is_ready(tenant, host) and tenant.section.delay_s > 0 and waits > 10 * tenant.section.delay_s

    def note_kept(self) -> None:
        for host, site in self.sites.items():
            for tenant in self.tenants.values():
                if self.is_kept_for(tenant, host):
                    is_full = site.active >= tenant.section.places
                    site.kept_until = math.inf if is_full else max(site.kept_until, site.due_for(tenant.section))

    def cool(self) -> None:
        if self.out:
            lease = self.out.pop(self.chance.randrange(len(self.out)))
            self.cooled.append(lease)
            self.frontier.leases.cool([TransferEnd(lease, self.frontier.now(), ok=True)])
            site = self.sites[host_of(lease.url)]
            site.end()
            site.ended = self.harness.time

    def finish(self) -> None:
        unsent = not self.cooled or self.chance.random() < 0.2
        leases = self.out if unsent else self.cooled
        if not leases:
            return
        lease = leases.pop(self.chance.randrange(len(leases)))
        host, site = host_of(lease.url), self.sites[host_of(lease.url)]
        is_robots = lease.purpose is Purpose.ROBOTS
        end = End.OTHER if is_robots else self.chance.choice(list(End))
        wait_s = self.chance.choice((0.0, 5.0)) if end is End.RETRY else 0.0
        assert self.frontier.leases.finish([EndedLease(lease, end, wait_s)]) == [True]
        assert self.frontier.leases.finish([EndedLease(lease, end, wait_s)]) == [False], "it has ended"
        if unsent:
            site.end()
        if is_robots:
            site.robots_out, site.robots_until = False, self.harness.wall + self.chance.choice((30.0, 1e6))
            self.frontier.sites.robots_known(f"https://{host}", RobotsRecord("allow", b"", site.robots_until), None)
        tenant = self.tenants.get(lease.crawl)
        if tenant is None:
            return
        tenant.leased -= 1
        if not is_robots:
            tenant.out[host] -= 1
            tenant.pages[host] += end is End.PAGE
        if end in (End.RETRY, End.RELEASE):
            tenant.queued[lease.url] = self.harness.time + wait_s

    def pause(self) -> None:
        crawl, tenant = self.any_one()
        tenant.paused = self.chance.random() < 0.5
        self.frontier.crawls.pause(crawl, tenant.paused)

    def close(self) -> None:
        if len(self.tenants) > 2 and isinstance(self.frontier, EmbeddedFrontier):
            crawl, _ = self.any_one()
            del self.tenants[crawl]
            self.frontier.crawls.close_crawl(crawl)
            if self.chance.random() < 0.7:
                self.frontier.crawls.forget_closed_crawl(crawl)
                self.frontier.durability.commit()
                while not self.frontier.crawls.forget_crawls([crawl], 50):
                    pass

    def set_aside(self) -> None:
        leases = [one for one in self.out if one.purpose is Purpose.PAGE and one.crawl in self.tenants][:2]
        self.frontier.leases.exclude(leases)
        for lease in leases:
            self.out.remove(lease)
            tenant, host = self.tenants[lease.crawl], host_of(lease.url)
            self.sites[host].end()
            tenant.leased, tenant.out[host] = tenant.leased - 1, tenant.out[host] - 1
            tenant.aside.add(lease.url)

    def restore_excluded(self) -> None:
        crawl, tenant = self.any_one()
        wanted = {url for url in sorted(tenant.aside) if self.chance.random() < 0.6}
        assert self.frontier.queue.restore_excluded(crawl, lambda item: item.url in wanted) == len(wanted)
        tenant.aside -= wanted
        tenant.queued |= dict.fromkeys(wanted, 0.0)

    # ── what is seen ───────────────────────────────────────────────────────────────────────────────────────────────

    def look(self) -> None:
        for crawl, tenant in self.tenants.items():
            assert self.frontier.status.crawl_counts(crawl) == CrawlCounts(
                len(tenant.queued), tenant.leased, tenant.pages.total(), tenant.seen, len(tenant.aside)
            )
            assert self.frontier.status.has_work(crawl) == tenant.has_work()
        stats = self.frontier.status.stats()
        assert stats.queued == sum(len(tenant.queued) for tenant in self.tenants.values())
        assert stats.leased == len(self.out) + len(self.cooled)
        assert self.frontier.rejected.rejections() == []

    def drain(self) -> None:
        """Whatever has happened, all that the limits allow is done in the end."""
        for crawl, tenant in self.tenants.items():
            self.frontier.crawls.pause(crawl, False)
            tenant.paused = False
        for _ in range(300):
            self.harness.advance(3.0)
            while self.out:
                self.cool()
            while self.cooled:
                self.finish()
            if not any(tenant.may_have(host_of(url)) for tenant in self.tenants.values() for url in tenant.queued):
                return
            for lease in self.frontier.leases.claim("me", 99):
                self.take(lease)
        raise AssertionError([tenant.queued for tenant in self.tenants.values()])

    def look_at_items(self) -> None:
        for crawl, tenant in self.tenants.items():
            assert sorted(item.url for item in self.frontier.queue.items(crawl)) == sorted(tenant.queued)


@pytest.mark.parametrize("make", ["embedded", "redis"], indirect=True)
@pytest.mark.parametrize("seed", range(4))
def test_many_crawls_are_served_as_the_model_says(make: Callable[..., Harness], seed: int) -> None:
    life = Life(make(lease_s=9000.0), seed)
    for _ in range(STEPS):
        life.step()
    life.look_at_items()
    life.drain()
    life.look()
