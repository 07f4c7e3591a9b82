"""Several crawls on one frontier: edits of limits while pages are out, retries beside pages, long waits."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from harnesses import Harness, claim_one, cool, done, no_robots, page, pages, polite, served

from weft.frontier.contract import CrawlLimits, End, Outcome
from weft.frontier.requests import Finish, Start, read_events

Make = Callable[..., Harness]


def test_a_budget_that_comes_while_pages_are_out_counts_them_and_loses_nothing(make: Make) -> None:
    harness = make(delay_s=0.0, places=4)
    frontier = harness.start()
    no_robots(harness, "a")
    frontier.admit(harness.crawl, pages("a", 9))
    stored, first, second = frontier.claim("me", 3)
    done(harness, stored)
    frontier.change_crawl(harness.crawl, CrawlLimits(max_pages_per_domain=4), harness.section, 1.0)
    (third,) = frontier.claim("me", 9)
    assert frontier.crawl_standing(harness.crawl).queued == 5 and not frontier.has_work(harness.crawl)
    done(harness, first)
    done(harness, second, End.OTHER)
    (fourth,) = frontier.claim("me", 9)
    for lease in (third, fourth):
        done(harness, lease)
    harness.advance(1)
    assert frontier.claim("me", 9) == [] and frontier.crawl_standing(harness.crawl).queued == 4
    frontier.change_crawl(harness.crawl, CrawlLimits(), harness.section, 1.0)
    assert len(served(harness, 5)) == 4 and frontier.crawl_standing(harness.crawl).pages == 8


def test_what_is_released_under_a_budget_that_came_meanwhile_is_still_there(make: Make) -> None:
    """A process that is resumed with another limit gives back what the one before it had out."""
    harness = make(delay_s=0.0)
    frontier = harness.start()
    no_robots(harness, "a")
    frontier.admit(harness.crawl, pages("a", 5))
    frontier.commit()
    assert len(frontier.claim("me", 9)) == 1
    harness.limits = CrawlLimits(max_pages_per_domain=3)
    frontier = harness.crash()
    assert frontier.crawl_standing(harness.crawl).queued == 5
    harness.advance(2)
    assert len(served(harness, 5)) == 3


def test_a_page_does_not_wait_for_the_retry_of_another(make: Make) -> None:
    harness = make(delay_s=0.0)
    frontier = harness.start()
    no_robots(harness, "a")
    other = frontier.open_crawl("other", CrawlLimits(), polite(0.0))
    for crawl in (harness.crawl, other):
        frontier.admit(crawl, [page("http://a/again")])
        failed = claim_one(harness)
        cool(harness, failed, ok=False)
        frontier.finish([Outcome(failed, End.RETRY, wait_s=50)])
        harness.advance(1)
        frontier.admit(crawl, [page("http://a/new")])
        lease = claim_one(harness)
        assert (lease.crawl, lease.url) == (crawl, "http://a/new")
        done(harness, lease)


def test_one_that_waits_for_its_retry_holds_nobody_up(make: Make) -> None:
    harness = make(delay_s=0.0, places=3)
    frontier = harness.start()
    no_robots(harness, "a")
    patient = frontier.open_crawl("patient", CrawlLimits(), polite(1.0))
    frontier.admit(patient, [page("http://a/again")])
    failed = claim_one(harness)
    cool(harness, failed, ok=False)
    frontier.finish([Outcome(failed, End.RETRY, wait_s=100)])
    harness.advance(20)
    frontier.admit(harness.crawl, pages("a", 3))
    assert [len(frontier.claim("me", 1)) for _ in range(3)] == [1, 1, 1]


@pytest.mark.parametrize("limits", [CrawlLimits(max_pages=1), CrawlLimits(in_flight=1)])
def test_a_limit_that_is_lifted_lets_all_sites_go_on(make: Make, limits: CrawlLimits) -> None:
    harness = make(delay_s=0.0)
    frontier = harness.start(limits)
    hosts = [f"h{number}" for number in range(5)]
    no_robots(harness, *hosts)
    frontier.admit(harness.crawl, [page(f"http://{host}/") for host in hosts])
    assert len(frontier.claim("me", 9)) == 1
    assert frontier.claim("me", 9) == []
    frontier.change_crawl(harness.crawl, CrawlLimits(), harness.section, 1.0)
    assert len(frontier.claim("me", 9)) == 4


def test_what_a_claim_leaves_is_due_at_once(make: Make) -> None:
    harness = make(delay_s=0.0)
    frontier = harness.start()
    no_robots(harness, "a", "b")
    other = frontier.open_crawl("other", CrawlLimits(), polite(0.0))
    frontier.admit(harness.crawl, pages("a", 1))
    frontier.admit(other, pages("b", 1))
    assert len(frontier.claim("me", 1)) == 1
    due = frontier.next_due()
    assert due is not None and due <= frontier.now()
    assert len(frontier.claim("me", 9)) == 1
    due = frontier.next_due()
    assert due is None or due > frontier.now()


def test_the_end_of_a_crawl_that_was_due_leaves_nothing_due(make: Make) -> None:
    harness = make(delay_s=0.0)
    frontier = harness.start()
    no_robots(harness, "a", "b", "c")
    other = frontier.open_crawl("other", CrawlLimits(), polite(0.0))
    frontier.admit(harness.crawl, pages("a", 1))
    frontier.admit(other, [page("http://b/"), page("http://c/")])
    while frontier.claim("me", 1)[0].crawl != harness.crawl:
        pass
    frontier.close_crawl(other)
    assert frontier.claim("me", 9) == []
    due = frontier.next_due()
    assert due is None or due > frontier.now()


def test_what_is_set_aside_uses_up_neither_budget_nor_permit_and_was_not_asked_for(make: Make) -> None:
    harness = make(delay_s=0.0)
    frontier = harness.start(CrawlLimits(max_pages_per_domain=1, max_pages=1))
    no_robots(harness, "a")
    frontier.admit(harness.crawl, pages("a", 2))
    out = claim_one(harness)
    assert frontier.claim("me", 9) == []
    frontier.set_aside([out])
    harness.advance(1)
    kept = claim_one(harness)
    assert kept.item != out.item and not frontier.has_work(harness.crawl)
    frontier.finish([Outcome(kept, End.OTHER)])
    assert frontier.take_back(harness.crawl, lambda _: True) == 1
    assert claim_one(harness).item == out.item
    frontier.commit()
    folder = next(iter(sorted(path.parent for path in harness.folder.rglob("requests-*.log"))))
    events = [event for event in read_events(folder) if isinstance(event, Start | Finish) and event.item == out.item]
    assert [type(event) for event in events] == [Start, Finish, Start]
    assert isinstance(events[1], Finish) and events[1].status == "unasked"


def test_of_two_that_have_waited_long_the_one_that_came_first_is_next(make: Make) -> None:
    harness = make(delay_s=0.0)
    frontier = harness.start()
    no_robots(harness, "a")
    frontier.admit(harness.crawl, pages("a", 1))
    out = claim_one(harness)
    waiting = [frontier.open_crawl(name, CrawlLimits(), polite(1.0)) for name in ("first", "second")]
    for crawl in waiting:
        frontier.admit(crawl, pages("a", 1))
        harness.advance(1)
    harness.advance(12)
    done(harness, out)
    assert [whose for _, whose in served(harness, 5)] == waiting


def test_once_one_that_waited_long_is_served_the_others_are_not_due(make: Make) -> None:
    harness = make(delay_s=0.0)
    frontier = harness.start()
    no_robots(harness, "a")
    slow = frontier.open_crawl("slow", CrawlLimits(), polite(1.0))
    frontier.admit(harness.crawl, pages("a", 50))
    frontier.admit(slow, pages("a", 2))
    for _ in range(60):
        leases = frontier.claim("me", 9)
        if any(lease.crawl == slow for lease in leases):
            break
        for lease in leases:
            done(harness, lease)
        harness.advance(0.5)
    due = frontier.next_due()
    assert due is None or due > frontier.now(), "the place is taken"
