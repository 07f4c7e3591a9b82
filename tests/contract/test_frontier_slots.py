"""Slots by what sites have shown, on every frontier: those that hang cannot take those of the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from harnesses import Harness, claim_one, done, no_robots, page

from weft.frontier.contract import CrawlLimits, End, EndedLease, SlotRequest, Slots, TransferEnd
from weft.frontier.politeness import SLOW_S
from weft.records import Found, Lease, Purpose

FEW = Slots(unknown=2, slow=1)
Make = Callable[..., Harness]


def sitemap(host: str) -> Found:
    return Found(f"http://{host}/map.xml", 0, purpose=Purpose.SITEMAP, about=f"http://{host}")


class Web:
    """A frontier with hosts that have answered, quickly or slowly, or never."""

    def __init__(self, harness: Harness, crawls: int = 1) -> None:
        self.harness = harness
        harness.start()
        self.crawls = [
            harness.crawl,
            *(harness.frontier.crawls.open_crawl(f"{n}", CrawlLimits()) for n in range(1, crawls)),
        ]

    def add(self, *hosts: str, pages: int = 3) -> None:
        no_robots(self.harness, *hosts)
        for crawl in self.crawls:
            found = [page(f"http://{host}/{crawl}-{number}") for host in hosts for number in range(pages)]
            self.harness.frontier.queue.admit(crawl, found)

    def answer(self, leases: list[Lease], end: End = End.PAGE, **facts: Any) -> None:
        self.harness.frontier.leases.cool([TransferEnd(lease, self.harness.time, **facts) for lease in leases])
        self.harness.frontier.leases.finish([EndedLease(lease, end) for lease in leases])

    def claim(self, slots: Slots | None = FEW, limit: int = 99) -> list[str]:
        self.leases = self.harness.frontier.leases.claim("me", limit, slots)
        return [lease.key for lease in self.leases]


@pytest.mark.parametrize("crawls", [1, 2])
def test_sites_that_never_answered_have_their_share_and_wait_for_it_without_being_due(make: Make, crawls: int) -> None:
    web = Web(make(), crawls)
    web.add("a", "b", "c", "d")
    assert web.claim() == ["a", "b"]
    assert web.claim() == []
    web.harness.advance(0.2)
    assert web.claim() == []
    if crawls == 1:
        due = web.harness.frontier.leases.next_due()
        assert due is None or due > web.harness.time, "a loop that asked again at once would never sleep"
    assert web.harness.frontier.status.stats().leased == 2


@pytest.mark.parametrize("end", ["cooled", "released", "expired", "set aside"])
def test_a_slot_is_free_again_however_its_request_ends(make: Make, end: str) -> None:
    web = Web(make())
    web.add("a", "b", "c", "d")
    web.claim()
    out, frontier = web.leases, web.harness.frontier
    if end == "cooled":
        frontier.leases.cool([TransferEnd(lease, web.harness.time, ok=False) for lease in out])
    elif end == "released":
        frontier.leases.finish([EndedLease(lease, End.RELEASE) for lease in out])
    elif end == "expired":
        web.harness.advance(1000.0)
    else:
        frontier.leases.exclude(out)
    assert len(web.claim()) == 2
    assert web.claim(FEW, 1) == []


def test_whoever_answers_has_all_slots_and_loses_them_when_it_does_not(make: Make) -> None:
    web = Web(make())
    web.add("a", "b", "c", "d", pages=9)
    web.claim(None)
    web.answer(web.leases, ok=True, took_s=0.1)
    web.harness.advance(11.0)
    assert len(web.claim()) == 4
    web.answer(web.leases, ok=False, outcome="timeout")
    web.harness.advance(11.0)
    assert len(web.claim()) == 2, "the last time it did not answer"
    web.answer(web.leases, ok=True, took_s=SLOW_S + 5.0)
    assert len(web.claim()) == 2, "the two that are still unknown"
    web.harness.advance(11.0)
    assert len(web.claim()) == 1, "of the two that are slow now"


def test_a_site_is_slow_from_the_very_time_on_that_counts_as_slow(make: Make) -> None:
    web = Web(make())
    times = {"a": SLOW_S, "b": SLOW_S, "c": SLOW_S - 0.001, "d": SLOW_S - 0.001}
    web.add(*times)
    web.claim(None)
    for lease in web.leases:
        web.answer([lease], ok=True, took_s=times[lease.key])
    web.harness.advance(11.0)
    assert sorted(web.claim())[-2:] == ["c", "d"] and len(web.leases) == 3, "one of those that are slow"


def test_sites_that_answer_come_first_and_the_others_are_not_left_out(make: Make) -> None:
    web = Web(make())
    good = [f"good{number}" for number in range(30)]
    web.add(*good)
    web.claim(None)
    web.answer(web.leases, ok=True, took_s=0.1)
    web.harness.advance(11.0)
    web.add(*(f"new{number}" for number in range(30)))
    turns = [key for _ in range(20) for key in web.claim(Slots(unknown=99, slow=99), 1)]
    assert sum(key in good for key in turns) > 10
    assert sum(key not in good for key in turns) >= 4


@pytest.mark.parametrize("at_once", [True, False])
def test_a_site_that_is_being_asked_takes_no_turn_from_the_others(make: Make, at_once: bool) -> None:
    web = Web(make())
    web.add("one", "two", "three", pages=1)  # with these there were five turns, and the first is next
    for host, took_s in (("fine", 0.1), ("slow", SLOW_S + 5.0)):
        web.add(host)
        web.claim(None)
        web.answer(web.leases, ok=True, took_s=took_s)
    web.add("new")
    web.harness.advance(60.0)
    if at_once:
        asked = web.claim(None, 2)
    else:
        asked = web.claim(None, 1)
        no_robots(web.harness, "fine")  # the site is scheduled anew
        asked += web.claim(None, 1)
    assert asked == ["fine", "slow"], "the third turn is that of one that never answered"
    assert web.claim(None, 2) == ["new"]


def test_hosts_that_hang_leave_the_slots_to_those_that_answer(make: Make) -> None:
    """As many dead hosts as there are slots: the others are asked as often as politeness allows, all the time."""
    web, total = Web(make(delay_s=5.0)), 40
    dead, fine = [f"dead{number}" for number in range(total)], [f"fine{number}" for number in range(10)]
    web.add(*fine, pages=20)
    web.claim()
    while web.leases:
        web.answer(web.leases, ok=True, took_s=0.1)
        web.claim()
    web.add(*dead)
    out: dict[str, Lease] = {}
    asked = 0
    for _ in range(50):
        for key, lease in zip(web.claim(Slots(total // 2, total // 4), total - len(out)), web.leases, strict=True):
            if key in dead:
                out[key] = lease
            else:
                asked += 1
                web.answer([lease], ok=True, took_s=0.1)
        assert len(out) <= total // 2
        web.harness.advance(1.0)
    assert asked >= 9 * len(fine), "of ten times that each may be asked"


def test_each_class_has_a_slot_however_few_there_are(make: Make) -> None:
    web = Web(make())
    web.add("a", "b")
    assert len(web.claim(Slots(unknown=0, slow=0))) == 1


def test_a_site_of_two_crawls_waits_for_its_slot_and_both_get_their_turn(make: Make) -> None:
    web = Web(make(breaker_failures=99), crawls=2)
    web.add("a", "b", "c", "d", "e")
    served = []
    for _ in range(12):
        web.claim()
        assert len(web.leases) <= 2
        served += [lease.crawl for lease in web.leases]
        web.answer(web.leases, End.OTHER, ok=False)
        web.harness.advance(4.0)
    assert abs(served.count(web.crawls[0]) - served.count(web.crawls[1])) <= 2
    assert len(served) > 15


def test_an_edited_crawl_is_scheduled_anew_whatever_its_sites_have_shown(make: Make) -> None:
    web = Web(make(delay_s=100.0))
    web.add("fine", "slow", "mute", "new")
    for took_s in (0.1, SLOW_S + 1.0, None):
        (lease,) = web.leases if web.claim(None, 1) else []
        web.answer([lease], ok=took_s is not None, took_s=took_s)
    harness = web.harness
    harness.frontier.crawls.change_crawl(
        harness.crawl, CrawlLimits(), type(harness.section)(delay_s=2.0, places=1), 1.0
    )
    harness.advance(3.0)
    assert sorted(web.claim(None)) == ["fine", "mute", "new", "slow"]


def test_a_permit_that_a_sitemap_has_not_used_goes_on_while_others_wait_for_a_slot(make: Make) -> None:
    harness = make(delay_s=0.0)
    frontier, few = harness.start(CrawlLimits(in_flight=1)), Slots(unknown=1, slow=1)
    no_robots(harness, "held", "new", "x", "y", "z")
    frontier.queue.admit(harness.crawl, [page(f"http://{host}/known") for host in "xyz"])
    for _ in range(3):
        done(harness, claim_one(harness))
    frontier.queue.admit(harness.crawl, [sitemap("held")])
    (held,) = frontier.leases.claim("me", 9, few)
    frontier.queue.admit(harness.crawl, [page("http://z/1")])
    (out,) = frontier.leases.claim("me", 9, few)
    frontier.queue.admit(harness.crawl, [sitemap("x")])
    frontier.queue.admit(harness.crawl, [page("http://y/1"), page("http://new/1")])
    assert (held.key, out.key, frontier.leases.claim("me", 9, few)) == ("held", "z", [])
    done(harness, out)
    found = []
    for _ in range(3):
        due = frontier.leases.next_due()
        if due is not None and due <= harness.time:
            found += [lease.key for lease in frontier.leases.claim("me", 9, few)]
    assert found == ["x", "y"]


def test_a_request_that_its_address_has_no_place_for_gives_its_slot_back(make: Make) -> None:
    web = Web(make(key_scope="ip", delay_s=5.0))
    web.add("a", "b", "c", "d", pages=1)
    assert len(web.claim()) == 2 and web.harness.frontier.leases.claim("me", 9, FEW) == []
    assert web.harness.frontier.leases.claim_slots([SlotRequest(lease, "192.0.2.1") for lease in web.leases]) == [
        True,
        False,
    ]
    assert web.claim() == ["c"]


def test_a_slot_is_free_when_its_lease_has_expired_also_if_an_older_one_was_leased_again(make: Make) -> None:
    web = Web(make(delay_s=1.0))
    web.add("a", "b", pages=1)
    assert web.claim(FEW, 1) == ["a"]
    (first,) = web.leases
    web.harness.advance(50.0)
    assert web.claim(FEW, 1) == ["b"]
    (second,) = web.leases
    web.harness.advance(first.deadline - web.harness.time)
    assert web.claim() == []
    web.harness.advance(5.0)
    assert web.claim() == ["a"]
    web.add("c", pages=1)
    assert web.claim() == [], "both slots are in use"
    web.harness.advance(second.deadline - web.harness.time)
    assert web.claim() == ["c"]
