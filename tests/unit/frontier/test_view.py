"""An embedded frontier seen from outside."""

from __future__ import annotations

from pathlib import Path

from weft.config import PolitenessSection
from weft.frontier.contract import CrawlLimits, End, EndedLease, RobotsRecord, TransferEnd
from weft.frontier.embedded.embedded_frontier import EmbeddedFrontier
from weft.frontier.view import FrontierView, SiteDelays
from weft.records import Found


def test_a_view_that_is_closed_has_no_file_open(tmp_path: Path) -> None:
    frontier = EmbeddedFrontier(tmp_path, PolitenessSection(delay_s=0.0, places=1))
    frontier.crawls.open_crawl("crawl", CrawlLimits())
    frontier.close()

    def held() -> int:
        opened = [one.readlink() for one in Path("/proc/self/fd").iterdir() if one.is_symlink()]
        return sum(path.is_relative_to(tmp_path) for path in opened)

    view = FrontierView([tmp_path])
    assert held() > 0
    view.close()
    assert held() == 0


def test_an_end_whose_number_begins_as_a_sealed_record_does_is_read(tmp_path: Path) -> None:
    """The journal's blobs are not sealed: one that begins with item 193 (0xc1, the seal) is no damage."""
    frontier = EmbeddedFrontier(tmp_path, PolitenessSection(delay_s=0.0, places=1))
    crawl = frontier.crawls.open_crawl("crawl", CrawlLimits())
    urls = [f"http://a{number}.com/" for number in range(200)]
    frontier.queue.admit(crawl, [Found(url, 0) for url in urls])
    frontier.durability.commit()
    frontier._base.journal.done[crawl].append(0xC1)
    frontier._base.journal.commit()
    view = FrontierView([tmp_path])
    try:
        assert {view.entries_of_url(url)[0].ended for url in urls} == {False, True}
    finally:
        view.close()
        frontier.close()


def test_what_slows_a_site_down_is_told(tmp_path: Path) -> None:
    time = [1000.0]
    section = PolitenessSection(delay_s=1.0, places=1)
    frontier = EmbeddedFrontier(tmp_path, section, clock=lambda: time[0], wall=lambda: 1e9 + time[0])
    crawl = frontier.crawls.open_crawl("crawl", CrawlLimits())
    frontier.recovery.recover()
    frontier.sites.robots_known("http://a.com", RobotsRecord("allow", b"", 9e12), 7.0)
    frontier.queue.admit(crawl, [Found(f"http://a.com/{number}", 0) for number in range(9)])
    for took_s in (0.2, 0.2, 9.0, 9.0, 9.0):
        time[0] += 100.0
        (lease,) = frontier.leases.claim("me", 1)
        frontier.leases.cool([TransferEnd(lease, time[0], ok=True, took_s=took_s)])
        frontier.leases.finish([EndedLease(lease, End.PAGE)])
    frontier.queue.admit(crawl, [Found("http://b.com/", 0)])
    (robots,) = frontier.leases.claim("me", 1)
    frontier.leases.cool([TransferEnd(robots, time[0], ok=False, outcome="503", slow_down=True, in_trouble=True)])
    frontier.leases.finish([EndedLease(robots, End.RETRY, 30.0)])
    frontier.durability.commit()
    view = FrontierView([tmp_path])
    try:
        slowed = view.site_delays("a.com")
        assert (slowed.crawl_delay, slowed.extra, slowed.breakers) == (7.0, 0.0, {})
        assert slowed.lag > 2.0 > slowed.usual > 0.2
        assert (view.site_delays("b.com").recent, view.site_delays("b.com").usual) == (0.0, 0.0), (
            "it has not answered yet"
        )
        assert (view.site_delays("b.com").extra, view.site_delays("b.com").lag) == (2.0, 0.0)
        nothing = SiteDelays(0.0, extra=0.0, lag=0.0, recent=0.0, usual=0.0, breakers={})
        assert view.site_delays("nobody.com") == nothing
        assert view.robots_tries("http://b.com") == (1, 1e9 + time[0] + 30.0)
        assert view.robots_tries("http://a.com") is None
    finally:
        view.close()
        frontier.close()
