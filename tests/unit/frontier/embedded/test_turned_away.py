"""URLs that a robots.txt known already forbids: recorded when they are found, never queued, never claimed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from weft.config import PolitenessSection
from weft.frontier.contract import CrawlLimits, Item, PageLinks, RobotsRecord
from weft.frontier.embedded.embedded_frontier import EmbeddedFrontier
from weft.records import Found, Purpose, Reason

WALL = 1_700_000_000.0
RULE = "Disallow: /private (line 2)"


class Bench:
    """A frontier that is told what `/private` is, and can be killed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.wall = WALL
        self.crawl = 0
        self.frontier = self.open()

    def open(self, limits: CrawlLimits | None = None) -> EmbeddedFrontier:
        section = PolitenessSection(delay_s=0.0, places=1)
        frontier = EmbeddedFrontier(self.folder, section, clock=lambda: 1000.0, wall=lambda: self.wall)
        frontier.queue.forbids = lambda _crawl, _record, origin, urls: {
            url: RULE for url in urls if url.startswith(origin + "/private")
        }
        self.crawl = frontier.crawls.open_crawl("test", limits or CrawlLimits())
        frontier.recovery.recover()
        self.frontier = frontier
        return frontier

    def again(self, limits: CrawlLimits | None = None) -> EmbeddedFrontier:
        self.frontier.close()
        return self.open(limits)

    def know_robots(self, origin: str = "http://a") -> None:
        self.frontier.sites.robots_known(origin, RobotsRecord("ok", b"", WALL + 3600), None)

    def claimed(self) -> list[str]:
        return [lease.url for lease in self.frontier.leases.claim("me", 9)]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path / "f")
    yield made
    made.frontier.close()


def test_what_robots_forbids_is_rejected_with_its_rule_and_not_queued(bench: Bench) -> None:
    bench.know_robots()
    admission = bench.frontier.queue.admit(
        bench.crawl, [Found("http://a/private/1", 3, 7, 1, Purpose.PAGE, "http://a/0", 1), Found("http://a/open", 1)]
    )
    assert (admission.new, admission.duplicates) == (2, 0)
    assert bench.frontier.status.stats().queued == 1
    (rejection,) = bench.frontier.rejected.rejections()
    assert (rejection.reason, rejection.detail, rejection.crawl) == (Reason.ROBOTS, RULE, bench.crawl)
    item = rejection.item
    assert item == Item(item.item, "http://a/private/1", 3, 7, 1, Purpose.PAGE, "http://a/0", 0, 1)
    assert bench.claimed() == ["http://a/open"]


@pytest.mark.parametrize("origin", ["https://a", "https://a:8443", "http://b.test"])
def test_each_origin_is_judged_by_its_own_file(bench: Bench, origin: str) -> None:
    bench.know_robots(origin)
    bench.frontier.queue.admit(bench.crawl, [Found(f"{origin}/private/1", 1), Found("http://other/private/1", 1)])
    assert [one.item.url for one in bench.frontier.rejected.rejections()] == [f"{origin}/private/1"]


def test_it_is_known_from_then_on(bench: Bench) -> None:
    bench.know_robots()
    for _ in range(2):
        bench.frontier.queue.admit(bench.crawl, [Found("http://a/private/1", 1)])
    assert len(bench.frontier.rejected.rejections()) == 1
    assert bench.frontier.queue.unseen(bench.crawl, ["http://a/private/1"]) == []


def test_where_robots_is_not_known_or_too_old_it_is_queued(bench: Bench) -> None:
    bench.frontier.queue.admit(bench.crawl, [Found("http://b/private/1", 1)])
    bench.know_robots()
    bench.wall += 3601
    bench.frontier.queue.admit(bench.crawl, [Found("http://a/private/1", 1)])
    assert bench.frontier.rejected.rejections() == []
    assert bench.frontier.status.stats().queued == 2


def test_a_kill_before_its_row_was_stored_queues_it(bench: Bench) -> None:
    bench.know_robots()
    bench.frontier.queue.admit(bench.crawl, [Found("http://a/private/1", 1), Found("http://a/private/2", 1)])
    first, second = bench.frontier.rejected.rejections()
    bench.frontier.durability.commit()
    bench.frontier.rejected.end_stored([first.item.item], commit_batch=1)
    bench.frontier.durability.acknowledge(1)
    bench.frontier.durability.commit()
    frontier = bench.again()
    assert [item.item for item in frontier.queue.items(bench.crawl)] == [second.item.item]
    assert bench.claimed() == [second.item.url], "who claims it asks the robots.txt again"


def test_a_shorter_way_to_it_does_not_queue_it(bench: Bench) -> None:
    bench.again(CrawlLimits(max_depth=5))
    bench.know_robots()
    bench.frontier.queue.admit(bench.crawl, [Found("http://a/private/1", 4)])
    (rejection,) = bench.frontier.rejected.rejections()
    bench.frontier.queue.admit(bench.crawl, [Found("http://a/private/1", 2)])
    assert bench.frontier.rejected.rejections() == []
    assert bench.frontier.status.stats().queued == 0
    bench.frontier.rejected.end_stored([rejection.item.item])
    assert bench.frontier.status.stats().finished == bench.frontier.status.stats().admitted == 1


def test_sitemaps_are_left_to_who_claims_them(bench: Bench) -> None:
    bench.know_robots()
    bench.frontier.queue.admit(bench.crawl, [Found("http://a/private/map.xml", 0, 0, 0, Purpose.SITEMAP, "http://a")])
    assert bench.frontier.rejected.rejections() == []
    assert bench.frontier.status.stats().queued == 1


def test_of_a_pages_links_those_that_robots_forbids_are_rejected(bench: Bench) -> None:
    bench.know_robots()
    some = PageLinks("http://a", ["http://a/1", "http://a/private/2", "http://a/3"], 4, 9, 1)
    assert bench.frontier.queue.admit_links(bench.crawl, [some]).new == 3
    (rejection,) = bench.frontier.rejected.rejections()
    assert (rejection.reason, rejection.detail) == (Reason.ROBOTS, RULE)
    item = rejection.item
    assert item == Item(item.item, "http://a/private/2", 4, 9, 0, Purpose.PAGE, "", 0, 1)
    left = [(one.item, one.url, one.depth, one.parent, one.offsite) for one in bench.frontier.queue.items(bench.crawl)]
    assert left == [(item.item - 1, "http://a/1", 4, 9, 1), (item.item + 1, "http://a/3", 4, 9, 1)]
    assert bench.claimed() == ["http://a/1"]
