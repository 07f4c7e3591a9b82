"""Slots by what sites have shown: those that hang cannot take those of the others, and nobody is left out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from weft.config import PolitenessSection
from weft.frontier.contract import CrawlLimits, End, Ended, Outcome, RobotsRecord, Slots
from weft.frontier.embedded.frontier import EmbeddedFrontier
from weft.frontier.embedded.turns import Turns
from weft.frontier.politeness import SLOW_S, Shown
from weft.records import Found, Lease

FEW = Slots(unknown=2, slow=1)


class Web:
    """A frontier with hosts that have answered, quickly or slowly, or never."""

    def __init__(self, folder: Path) -> None:
        self.time = 1000.0
        self.frontier = EmbeddedFrontier(
            folder, PolitenessSection(delay_s=10.0, places=1), clock=lambda: self.time, wall=lambda: 1e9 + self.time
        )
        self.crawls = [self.frontier.open_crawl(name, CrawlLimits()) for name in ("one", "two")]
        self.frontier.recover()

    def alone(self) -> None:
        self.frontier.close_crawl(self.crawls[1])

    def add(self, *hosts: str, pages: int = 3, crawl: int = 0) -> None:
        for host in hosts:
            self.frontier.robots_known(f"http://{host}", RobotsRecord("allow", b"", 9e12), None)
            found = [Found(f"http://{host}/{crawl}-{number}", 0) for number in range(pages)]
            self.frontier.admit(self.crawls[crawl], found)

    def answer(self, leases: list[Lease], **facts: Any) -> None:
        self.frontier.cool([Ended(lease, self.time, **facts) for lease in leases])
        self.frontier.finish([Outcome(lease, End.PAGE) for lease in leases])

    def claim(self, slots: Slots | None = FEW, limit: int = 99) -> list[str]:
        self.leases = self.frontier.claim("me", limit, slots)
        return [lease.key for lease in self.leases]


@pytest.fixture
def web(tmp_path: Path) -> Iterator[Web]:
    made = Web(tmp_path / "f")
    yield made
    made.frontier.close()


@pytest.mark.parametrize("crawls", [1, 2])
def test_sites_that_never_answered_have_their_share_and_wait_for_it_without_being_due(web: Web, crawls: int) -> None:
    if crawls == 1:
        web.alone()
    for crawl in range(crawls):
        web.add("a", "b", "c", "d", crawl=crawl)
    assert web.claim() == ["a", "b"]
    assert web.claim() == []
    if crawls == 1:
        due = web.frontier.next_due()
        assert due is None or due > web.time, "a loop that asked again at once would never sleep"
    web.answer(web.leases or [], ok=False)
    assert web.frontier.stats().leased == 2


@pytest.mark.parametrize("end", ["cooled", "released", "expired", "given up"])
def test_a_slot_is_free_again_however_its_request_ends(web: Web, end: str) -> None:
    web.alone()
    web.add("a", "b", "c", "d")
    web.claim()
    out = web.leases
    if end == "cooled":
        web.frontier.cool([Ended(lease, web.time, ok=False) for lease in out])
    elif end == "released":
        web.frontier.finish([Outcome(lease, End.RELEASE) for lease in out])
    elif end == "expired":
        web.time += 1000.0
    else:
        web.frontier.set_aside(out)
    assert len(web.claim()) == 2
    assert web.claim(FEW, 1) == []


def test_whoever_answers_has_all_slots_and_loses_them_when_it_does_not(web: Web) -> None:
    web.alone()
    web.add("a", "b", "c", "d", pages=9)
    web.claim(None)
    web.answer(web.leases, ok=True, took_s=0.1)
    web.time += 11.0
    assert len(web.claim()) == 4
    web.answer(web.leases, ok=False, outcome="timeout")
    web.time += 11.0
    assert len(web.claim()) == 2, "the last time it did not answer"
    web.answer(web.leases, ok=True, took_s=SLOW_S + 5.0)
    assert len(web.claim()) == 2, "the two that are still unknown"
    web.time += 11.0
    assert len(web.claim()) == 1, "of the two that are slow now"


def test_sites_that_answer_come_first_and_the_others_are_not_left_out(web: Web) -> None:
    web.alone()
    good = [f"good{number}" for number in range(30)]
    web.add(*good)
    web.claim(None)
    web.answer(web.leases, ok=True, took_s=0.1)
    web.time += 11.0
    web.add(*(f"new{number}" for number in range(30)))
    turns = web.claim(Slots(unknown=99, slow=99), 20)
    assert sum(key in good for key in turns) > 10
    assert sum(key not in good for key in turns) >= 4


def test_each_class_has_a_slot_however_few_there_are(web: Web) -> None:
    web.alone()
    web.add("a", "b")
    assert len(web.claim(Slots(unknown=0, slow=0))) == 1


def test_a_site_of_two_crawls_waits_for_its_slot_and_both_get_their_turn(web: Web) -> None:
    for crawl in range(2):
        web.add("a", "b", "c", "d", "e", crawl=crawl)
    served = []
    for _ in range(12):
        web.claim()
        assert len(web.leases) <= 2
        served += [lease.crawl for lease in web.leases]
        web.frontier.cool([Ended(lease, web.time, ok=False) for lease in web.leases])
        web.frontier.finish([Outcome(lease, End.OTHER) for lease in web.leases])
        web.time += 4.0
    assert abs(served.count(web.crawls[0]) - served.count(web.crawls[1])) <= 2
    assert len(served) > 15


@pytest.mark.parametrize(("slots", "most"), [((3, 2), (3, 2)), ((0, 0), (1, 1)), ((5, 0), (5, 1))])
def test_a_class_has_its_slots_and_never_none(slots: tuple[int, int], most: tuple[int, int]) -> None:
    turns = Turns()
    turns.limit(Slots(unknown=slots[0], slow=slots[1]))
    for rank, count in zip((Shown.UNKNOWN, Shown.SLOW), most, strict=True):
        for _ in range(count):
            assert turns.has_room(rank) and rank in turns.with_room()
            turns.out[rank] += 1
        assert not turns.has_room(rank) and rank not in turns.with_room()
    turns.limit(None)
    assert set(turns.with_room()) == set(Shown)
