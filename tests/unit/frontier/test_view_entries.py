"""What can be told of a crawl's frontiers from outside: each URL's entries, what is before it, and what was refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from weft.config import PolitenessSection
from weft.errors import BadInput
from weft.frontier.contract import CrawlLimits, End, EndedLease, RobotsRecord, TransferEnd
from weft.frontier.embedded.embedded_frontier import EmbeddedFrontier
from weft.frontier.requests import RequestStart, UnreadableLines
from weft.frontier.view import FrontierView
from weft.records import POD_SHIFT, Found, Purpose, Reason

ALLOW = RobotsRecord("allow", b"", 9e12)


class Pods:
    """Two frontiers, as two pods have them, and whoever looks at their files."""

    def __init__(self, folder: Path) -> None:
        self.time = 1000.0
        section = PolitenessSection(delay_s=0.0, places=9)
        self.folders = [folder / f"pod_{pod}" for pod in range(2)]
        self.pods = [
            EmbeddedFrontier(path, section, pod=pod, clock=lambda: self.time, wall=lambda: self.time)
            for pod, path in enumerate(self.folders)
        ]
        for pod in self.pods:
            pod.crawls.open_crawl("test", CrawlLimits())
            pod.recovery.recover()
        self._views: list[FrontierView] = []

    def look(self) -> FrontierView:
        for pod in self.pods:
            pod.durability.commit()
        self._views.append(FrontierView(self.folders))
        return self._views[-1]

    def close(self) -> None:
        for view in self._views:
            view.close()
        for pod in self.pods:
            pod.close()


@pytest.fixture
def pods(tmp_path: Path) -> Iterator[Pods]:
    made = Pods(tmp_path)
    yield made
    made.close()


def test_a_url_is_reported_as_it_was_found_and_how_it_stands(pods: Pods) -> None:
    frontier = pods.pods[1]
    frontier.sites.robots_known("https://a.test", ALLOW, None)
    frontier.queue.admit(1, [
        Found("https://a.test/page", 2, 7), Found("https://a.test/hop", 3, 8, 2, about="https://a.test/x"),
        Found("https://a.test/map.xml", 0, purpose=Purpose.SITEMAP, about="https://a.test"),
        Found("https://a.test/page2", 2, 7), Found("https://a.test/done", 1),
    ])  # fmt: skip
    leases = {lease.url: lease for lease in frontier.leases.claim("me", 9)}
    for url, end in (("https://a.test/page", End.RETRY), ("https://a.test/done", End.OTHER)):
        frontier.leases.cool([TransferEnd(leases[url], frontier.now(), ok=True)])
        frontier.leases.finish([EndedLease(leases[url], end)])
    view = pods.look()
    (page,) = view.entries_of_url("https://a.test/page")
    first = (1 << POD_SHIFT) + 1
    assert (page.item, page.url, page.depth, page.parent, page.hops) == (first, "https://a.test/page", 2, 7, 0)
    assert (page.ended, page.attempt, page.sitemap) == (False, 1, False)
    (hop,) = view.entries_of_url("https://a.test/hop")
    assert (hop.item, hop.depth, hop.parent, hop.hops, hop.attempt) == (first + 1, 3, 8, 2, 0)
    (sitemap,) = view.entries_of_url("https://a.test/map.xml")
    assert (sitemap.sitemap, sitemap.ended) == (True, False)
    (done,) = view.entries_of_url("https://a.test/done")
    assert (done.ended, done.attempt) == (True, 0)
    assert view.entries_of_url("https://a.test/pag") == []
    assert view.entries_of_url("https://a.test/x") == [], "a way to a URL is none of its entries"


def test_a_url_that_was_visited_again_has_an_entry_for_each_visit(pods: Pods) -> None:
    frontier = pods.pods[0]
    frontier.queue.admit(1, [Found("http://a/1", 1)])
    frontier.durability.commit()
    frontier.revisits.readmit(1, Found("http://a/1", 0))
    assert [(entry.item, entry.depth) for entry in pods.look().entries_of_url("http://a/1")] == [(1, 1), (2, 0)]


def test_before_an_entry_come_those_of_its_site_that_are_nearer_or_older_and_not_done(pods: Pods) -> None:
    frontier = pods.pods[0]
    frontier.sites.robots_known("http://a", ALLOW, None)
    frontier.queue.admit(
        1, [Found("http://a/0", 0), Found("http://a/1", 1), Found("http://b/1", 0), Found("http://a/2", 2)]
    )
    frontier.queue.admit(1, [Found("http://a/3", 1), Found("http://a/4", 0)])
    frontier.queue.admit(1, [Found("http://b/hop", 0, 1, 1, about="http://a/x http://a/y")])
    view = pods.look()

    def ahead(url: str) -> int:
        (entry,) = view.entries_of_url(url)
        count, is_all = view.ahead_of(entry, "a", lambda other: other.split("/")[2])
        assert is_all
        return count

    assert [ahead(f"http://a/{number}") for number in range(5)] == [0, 2, 4, 3, 1]
    (lease,) = frontier.leases.claim("me", 1)
    frontier.leases.cool([TransferEnd(lease, frontier.now(), ok=True)])
    frontier.leases.finish([EndedLease(lease, End.PAGE)])
    view = pods.look()
    assert [ahead(f"http://a/{number}") for number in (1, 2, 3, 4)] == [1, 3, 2, 0]


def test_what_each_pod_remembers_is_reported_together(pods: Pods) -> None:
    one, two = pods.pods
    one.rejected.refused(1, Reason.BUDGET, "http://a/refused", 1)
    two.rejected.refused(1, Reason.SCOPE, "http://b/refused", 1)
    for pod, url in ((one, "http://c/"), (two, "http://d/"), (two, "http://c/")):
        pod.notes.scope_extended(1, url)
    two.sites.robots_known("http://b", RobotsRecord("ok", b"old", 9e12), None)
    pods.time += 50
    two.sites.robots_known("http://b", RobotsRecord("ok", b"new", 9e12), None)
    view = pods.look()
    assert [view.refusal(f"http://{host}/refused") for host in "abc"] == [Reason.BUDGET, Reason.SCOPE, None]
    assert view.scope_extensions() == ["http://c/", "http://d/"]
    record = view.robots("http://b")
    assert record is not None and record.body == b"new"
    assert view.robots("http://a") is None
    assert [(one.wall, one.record.body) for one in view.robots_history("http://b")] == [
        (1000.0, b"old"),
        (1050.0, b"new"),
    ]
    assert view.robots_history("http://a") == []


def test_requests_are_reported_with_their_pods(pods: Pods) -> None:
    for number, pod in enumerate(pods.pods):
        pod.sites.robots_known(f"http://h{number}", ALLOW, None)
        pod.queue.admit(1, [Found(f"http://h{number}/", 0)])
        pod.leases.claim("me", 9)
    starts = [
        (pod, event.url) for pod, event in pods.look().requests(UnreadableLines()) if isinstance(event, RequestStart)
    ]
    assert starts == [(0, "http://h0/"), (1, "http://h1/")]


def test_a_folder_without_a_frontier_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="there is no frontier in it"):
        FrontierView([tmp_path / "nothing"])
