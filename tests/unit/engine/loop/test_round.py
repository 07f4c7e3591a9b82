"""What a round tells the frontier, in which order, and what becomes of an end that comes too late."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from weft.config import FetchSection, PolitenessSection, ScopeSection
from weft.engine.admission.rules import AdmissionRules
from weft.engine.crawls.running_crawl import RunningCrawl
from weft.engine.loop.fetcher.answer import EndedTransfer
from weft.engine.loop.parser.discovered_links import DiscoveredLinks
from weft.engine.loop.progress import CrawlProgress
from weft.engine.loop.round import Round
from weft.engine.loop.rows import RowMaker
from weft.frontier.contract import Admission, CrawlLimits, EndedLease, PageLinks, RobotsRecord, TransferEnd
from weft.frontier.embedded.embedded_frontier import EmbeddedFrontier
from weft.records import FetchResult, Found, Lease
from weft.store.pages import PageStore

SITES = [f"http://h{n}.test/" for n in range(3)]


class Watched(EmbeddedFrontier):
    """Writes down what it is told."""

    def __init__(self, folder: Path) -> None:
        self.time = 1000.0
        self.told: list[str] = []
        super().__init__(folder, PolitenessSection(delay_s=1.0, places=1), clock=lambda: self.time)
        self._admit, self._admit_links = self.queue.admit, self.queue.admit_links
        self._cool, self._finish = self.leases.cool, self.leases.finish
        watched: Any = self.queue
        watched.admit, watched.admit_links = self.admit, self.admit_links
        watched = self.leases
        watched.cool, watched.finish = self.cool, self.finish

    def admit(self, crawl: int, found: Sequence[Found]) -> Admission:
        self.told.append(f"admit {len(found)}")
        return self._admit(crawl, found)

    def admit_links(self, crawl: int, links: Sequence[PageLinks]) -> Admission:
        self.told.append(f"links {sum(len(some.urls) for some in links)}")
        return self._admit_links(crawl, links)

    def cool(self, ended: Iterable[TransferEnd]) -> None:
        ended = list(ended)
        self.told.append(f"cool {len(ended)}")
        self._cool(ended)

    def finish(self, outcomes: Iterable[EndedLease], batch: int = 0) -> list[bool]:
        outcomes = list(outcomes)
        self.told.append(f"finish {len(outcomes)} {batch}")
        return self._finish(outcomes, batch)


class Parts:
    """A round over a real frontier and a real store, with three pages that are leased."""

    def __init__(self, folder: Path, max_depth: int | None = None, scope: Any = "any") -> None:
        self.frontier = Watched(folder / "frontier")
        self.store = PageStore.open([folder], crawl_id="test")
        number = self.frontier.crawls.open_crawl("test", CrawlLimits(max_depth=max_depth))
        self.frontier.recovery.recover()
        section, fetch = ScopeSection(scope=scope, max_depth=max_depth), FetchSection()
        self.progress = CrawlProgress(folder / "status.json", 1)
        self.crawl = RunningCrawl(
            number, AdmissionRules(section, SITES, this_year=2026), section, fetch, self.frontier, self.progress,
            politeness=PolitenessSection(delay_s=1.0, places=1),
        )  # fmt: skip
        self.discovered_links = DiscoveredLinks(self.frontier, self.store)
        self.round = Round(self.frontier, self.store, {number: self.crawl}, self.discovered_links)
        self.rows = RowMaker(self.store, self.round)
        for site in SITES:
            self.frontier.sites.robots_known(site[:-1], RobotsRecord("allow", b"", 9e12), None)

    def claimed(self, found: list[Found]) -> list[Lease]:
        self.frontier.queue.admit(self.crawl.number, found)
        leases = sorted(self.frontier.leases.claim("test", 10), key=lambda lease: lease.url)
        self.frontier.told.clear()
        return leases

    def answer(self, lease: Lease) -> EndedTransfer:
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n"
        result = FetchResult(
            lease.url, 200, head, b"<p>page", None, "", 1.0, 2.0, "127.0.0.1", b"GET / HTTP/1.1\r\n\r\n"
        )
        return EndedTransfer(self.crawl, lease, result, 1_700_000_000.0)

    def committed(self) -> list[str]:
        self.store.write()
        self.frontier.durability.commit()
        self.store.commit()
        self.round.note_commit()
        return [row.url for row in self.store.rows()]

    def close(self) -> None:
        self.store.close()
        self.frontier.close()


@pytest.fixture
def parts(tmp_path: Path) -> Iterable[Parts]:
    made = Parts(tmp_path)
    yield made
    made.close()


def test_a_round_is_one_call_of_each_kind_and_links_come_before_ends(parts: Parts) -> None:
    leases = parts.claimed([Found(site, 0) for site in SITES])
    for lease in leases:
        parts.round.add_cooled(TransferEnd(lease, parts.frontier.now()))
        parts.round.add_links(parts.crawl, lease, [f"{lease.url}own", "http://shared.test/"])
        parts.rows.make_row(parts.answer(lease), error="")
    assert parts.frontier.told == [], "nothing is told before the round is over"
    parts.round.flush()
    assert parts.frontier.told == ["cool 3", "links 4", "finish 3 1"]
    queued = {item.url: item.parent for item in parts.frontier.queue.items(parts.crawl.number)}
    assert queued["http://shared.test/"] == leases[0].item, "the first of several that link to a URL is its parent"
    assert parts.progress.refused["duplicate"] == 2
    parts.round.flush()
    assert len(parts.frontier.told) == 3, "a round that brought nothing costs nothing"


def test_the_row_of_an_item_that_was_leased_again_stays_when_both_answers_come_in_one_round(parts: Parts) -> None:
    (late,) = parts.claimed([Found(SITES[0], 0)])
    parts.frontier.time += 1000.0
    assert parts.frontier.leases.claim("other", 10) == []
    parts.frontier.time += 1.0
    (again,) = parts.frontier.leases.claim("other", 10)
    assert again.item == late.item
    for lease in (late, again):
        parts.rows.make_row(parts.answer(lease), error="")
    parts.round.flush()
    assert parts.committed() == [late.url]


def test_an_end_that_comes_too_late_leaves_no_row(parts: Parts) -> None:
    leases = parts.claimed([Found(SITES[0], 0), Found(SITES[1], 0)])
    parts.rows.make_row(parts.answer(leases[0]), error="")
    parts.round.flush()
    parts.frontier.time += 1000.0
    assert parts.frontier.leases.claim("other", 10) == [], "given back, its site waits the full delay"
    parts.frontier.time += 1.0
    assert [lease.item for lease in parts.frontier.leases.claim("other", 10)] == [leases[1].item]
    parts.rows.make_row(parts.answer(leases[1]), error="")
    parts.round.flush()
    assert parts.progress.status.pages == 1
    assert parts.committed() == [SITES[0]]
    records = [path.read_bytes() for path in (parts.store._shards[0].folder).glob("*/*")]
    assert b"".join(records).count(b"\x1f\x8b\x08") == 3, "warcinfo, and request and response of the one page"


def test_pages_of_one_round_that_bring_each_other_nearer_are_expanded(tmp_path: Path) -> None:
    parts = Parts(tmp_path, max_depth=2)
    deep, shallow = parts.claimed([Found(SITES[0], 2), Found(SITES[1], 0)])
    for lease, link in ((deep, "http://below.test/"), (shallow, deep.url)):
        near = parts.discovered_links.record_links(lease, [link])
        parts.round.add_links(parts.crawl, near, [link])
        parts.rows.make_row(parts.answer(lease), error="")
    parts.round.flush()
    queued = {item.url: item.depth for item in parts.frontier.queue.items(parts.crawl.number)}
    assert queued == {"http://below.test/": 2}, "its page was fetched at depth 2, and lies at depth 1"
    parts.close()


def test_what_another_process_has_not_committed_yet_is_expanded_when_it_has(tmp_path: Path) -> None:
    parts = Parts(tmp_path, max_depth=2)
    (deep,) = parts.claimed([Found(SITES[0], 2)])
    parts.round.expand(parts.crawl, [(deep.item, deep.url, 1)])
    parts.round.note_commit()
    assert list(parts.frontier.queue.items(parts.crawl.number)) == []
    body = b'<a href="http://below.test/">'
    answer = parts.answer(deep)
    answer.result = msgspec.structs.replace(answer.result, body=body)
    parts.rows.make_row(answer, error="")
    parts.committed()
    assert [(item.url, item.depth) for item in parts.frontier.queue.items(parts.crawl.number)] == [
        ("http://below.test/", 2)
    ]
    parts.close()


def test_a_scope_that_another_process_has_extended_is_learnt(tmp_path: Path) -> None:
    parts = Parts(tmp_path, scope="host")
    assert not parts.crawl.rules.in_scope("http://elsewhere.test/a")
    parts.frontier.notes.scope_extended(parts.crawl.number, "http://elsewhere.test/")
    parts.crawl.learn_scope()
    assert parts.crawl.rules.in_scope("http://elsewhere.test/a")
    parts.close()
