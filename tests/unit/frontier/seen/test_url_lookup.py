"""What is found of a URL in a frontier most of which is in runs: on disk, merged, damaged, also after restarts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from weft.config import PolitenessSection
from weft.frontier.contract import CrawlLimits, End, EndedLease, RobotsRecord, TransferEnd
from weft.frontier.embedded.embedded_frontier import EmbeddedFrontier
from weft.frontier.seen import seen_runs, url_lookup
from weft.frontier.view import FrontierView, JournalEntry
from weft.records import Found, Purpose, Reason

SITES = ("http://a.test", "http://b.test")
URLS = [f"{SITES[number % 2]}/page/{number}" for number in range(600)]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seen_runs, "FLUSHED_ENTRIES", 40)


class Opened:
    """A frontier that is opened again and again, and a view of its files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.frontier = self._open()

    def _open(self) -> EmbeddedFrontier:
        section = PolitenessSection(delay_s=0.0, places=9)
        frontier = EmbeddedFrontier(self.folder, section, checkpoint_every=200)
        for name in ("one", "two"):
            frontier.crawls.open_crawl(name, CrawlLimits())
        frontier.recovery.recover()
        for origin in SITES:
            frontier.sites.robots_known(origin, RobotsRecord("allow", b"", 9e12), None)
        return frontier

    def again(self) -> None:
        self.frontier.close()
        self.frontier = self._open()

    def admit(self, urls: list[str], crawl: int = 1) -> None:
        for start in range(0, len(urls), 15):
            self.frontier.queue.admit(crawl, [Found(url, 1, 7) for url in urls[start : start + 15]])
            self.frontier.durability.commit()

    def end(self, count: int) -> list[str]:
        leases = self.frontier.leases.claim("me", count)
        self.frontier.leases.cool([TransferEnd(lease, self.frontier.now(), ok=True) for lease in leases])
        self.frontier.leases.finish([EndedLease(lease, End.PAGE) for lease in leases])
        self.frontier.durability.commit()
        return [lease.url for lease in leases]

    def entries(self, url: str, crawl: int = 0) -> list[JournalEntry]:
        view = FrontierView([self.folder])
        try:
            return view.entries_of_url(url, crawl)
        finally:
            view.close()

    def ahead_of(self, url: str) -> tuple[int, bool]:
        view = FrontierView([self.folder])
        try:
            site = url[: url.index("/", 8)]
            return view.ahead_of(view.entries_of_url(url)[-1], site, lambda other: other[: other.index("/", 8)])
        finally:
            view.close()


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opened]:
    opened = Opened(tmp_path)
    yield opened
    opened.frontier.close()


def runs_of(folder: Path) -> list[Path]:
    return sorted((folder / "seen").glob("*.run"))


def test_every_url_is_found_with_its_state(opened: Opened) -> None:
    opened.admit(URLS[:300])
    over = set(opened.end(40))
    opened.admit(URLS[300:])
    over |= set(opened.end(5))
    assert runs_of(opened.folder) and len(over) > 20
    for _ in range(2):
        for url in URLS:
            (entry,) = opened.entries(url)
            assert (entry.url, entry.depth, entry.parent, entry.ended) == (url, 1, 7, url in over)
        assert opened.entries(URLS[0] + "/") == opened.entries("http://a.test/pag") == []
        opened.again()
    assert opened.frontier.status.stats().seen == len(URLS)
    assert opened.frontier.queue.unseen(1, URLS) == []


def test_each_crawl_has_its_own_and_a_closed_one_until_it_is_forgotten(opened: Opened) -> None:
    opened.admit(URLS[:200])
    opened.admit(URLS[100:300], 2)
    assert [entry.crawl for entry in opened.entries(URLS[150])] == [1, 2]
    assert [entry.crawl for entry in opened.entries(URLS[150], 2)] == [2]
    assert (opened.entries(URLS[50], 2), opened.entries(URLS[250], 1)) == ([], [])
    opened.frontier.crawls.close_crawl(2)
    opened.frontier.crawls.forget_closed_crawl(2)
    opened.frontier.durability.commit()
    assert [entry.crawl for entry in opened.entries(URLS[250])] == [2]
    while not opened.frontier.crawls.forget_crawls([2]):
        pass
    opened.admit(URLS[300:])
    assert opened.entries(URLS[250]) == []
    assert [entry.crawl for entry in opened.entries(URLS[150])] == [1]


def test_a_sitemap_and_a_second_visit_are_found(opened: Opened) -> None:
    opened.frontier.queue.admit(1, [Found("http://a.test/map.xml", 0, purpose=Purpose.SITEMAP, about="http://a.test")])
    opened.admit(URLS[:100])
    opened.frontier.revisits.readmit(1, Found(URLS[0], 0))
    opened.admit(URLS[100:])
    assert [entry.sitemap for entry in opened.entries("http://a.test/map.xml")] == [True]
    last = opened.entries(URLS[0])[-1]
    assert (last.depth, last.ended, last.item) == (0, False, 102)


def test_what_waits_before_a_url_is_counted_up_to_a_bound(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    opened.admit(URLS)
    assert [opened.ahead_of(URLS[at]) for at in (0, 1, 100, 599)] == [(0, True), (0, True), (50, True), (299, True)]
    ended = opened.end(20)
    assert opened.ahead_of(URLS[599]) == (299 - sum(url.startswith(SITES[1]) for url in ended), True)
    monkeypatch.setattr(url_lookup, "MOST_COUNTED", 100)
    count, is_all = opened.ahead_of(URLS[599])
    assert not is_all and 30 <= count <= 50


@pytest.mark.parametrize("page", range(5))
def test_a_damaged_run_is_read_from_the_journal_instead(opened: Opened, page: int) -> None:
    opened.admit(URLS)
    over = set(opened.end(30))
    opened.admit([url + "/more" for url in URLS[:60]])
    for path in runs_of(opened.folder):
        data = bytearray(path.read_bytes())
        data[4096 * page + 8 : 4096 * page + 200] = bytes(192)
        path.write_bytes(data)
    for url in (*sorted(over)[:5], *URLS[::60]):
        assert [(entry.url, entry.ended) for entry in opened.entries(url)] == [(url, url in over)]


def test_a_crawl_that_is_opened_late_knows_and_counts_what_it_had(opened: Opened) -> None:
    opened.admit(URLS[:250], 2)
    opened.admit(URLS[250:])
    opened.frontier.close()
    section = PolitenessSection(delay_s=0.0, places=9)
    opened.frontier = EmbeddedFrontier(opened.folder, section, checkpoint_every=200)
    opened.frontier.crawls.open_crawl("one", CrawlLimits())
    opened.frontier.recovery.recover()
    opened.frontier.crawls.open_crawl("two", CrawlLimits())
    assert opened.frontier.status.crawl_counts(2).seen == 250
    assert opened.frontier.queue.unseen(2, URLS) == URLS[250:]
    opened.again()
    assert opened.frontier.status.stats().seen == 600
    assert opened.frontier.queue.unseen(2, URLS) == URLS[250:]


def test_a_url_that_is_refused_for_its_budget_is_new_again(tmp_path: Path) -> None:
    section = PolitenessSection(delay_s=0.0, places=9)
    frontier = EmbeddedFrontier(tmp_path, section)
    frontier.crawls.open_crawl("one", CrawlLimits(max_pages_per_domain=1))
    frontier.recovery.recover()
    urls = [f"http://a.test/{number}" for number in range(1500)]
    for start in range(0, len(urls), 10):
        frontier.queue.admit(1, [Found(url, 1) for url in urls[start : start + 10]])
        frontier.durability.commit()
    refused = frontier.queue.unseen(1, urls)
    assert 0 < len(refused) < len(urls)
    assert frontier.status.stats().seen == len(urls) - len(refused)
    frontier.close()
    view = FrontierView([tmp_path])
    try:
        assert [len(view.entries_of_url(url)) for url in (urls[0], refused[0])] == [1, 0]
        assert view.refusal(refused[0]) == Reason.BUDGET
    finally:
        view.close()
