"""Several crawls on one frontier: edits of limits while pages are out, retries beside pages, long waits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from harnesses import (
    NO_ENDS,
    RECRAWL,
    EmbeddedHarness,
    Harness,
    claim_one,
    cool,
    done,
    no_robots,
    page,
    pages,
    polite,
    served,
    stored,
    walked,
)

from weft.frontier.contract import CrawlLimits, End, EndedLease, TransferEnd
from weft.frontier.embedded.embedded_frontier import EmbeddedFrontier
from weft.frontier.requests import RequestEnd, RequestStart, read_events
from weft.records import Found, Lease, Purpose

Make = Callable[..., Harness]
MakeEmbedded = Callable[..., EmbeddedHarness]


def logged(harness: Harness, lease: Lease) -> list[str]:
    """What the request log has of an item: its starts, and how each ended."""
    (folder,) = {path.parent for path in harness.folder.rglob("requests-*.log")}
    events = [
        one for one in read_events(folder) if isinstance(one, RequestStart | RequestEnd) and one.item == lease.item
    ]
    return [one.status if isinstance(one, RequestEnd) else "start" for one in events]


def test_a_budget_that_comes_while_pages_are_out_counts_them_and_loses_nothing(make: Make) -> None:
    harness = make(delay_s=0.0, places=4)
    frontier = harness.start()
    no_robots(harness, "a")
    frontier.queue.admit(harness.crawl, pages("a", 9))
    stored, first, second = frontier.leases.claim("me", 3)
    done(harness, stored)
    frontier.crawls.change_crawl(harness.crawl, CrawlLimits(max_pages_per_domain=4), harness.section, 1.0)
    (third,) = frontier.leases.claim("me", 9)
    assert frontier.status.crawl_counts(harness.crawl).queued == 5 and not frontier.status.has_work(harness.crawl)
    done(harness, first)
    done(harness, second, End.OTHER)
    (fourth,) = frontier.leases.claim("me", 9)
    for lease in (third, fourth):
        done(harness, lease)
    harness.advance(1)
    assert frontier.leases.claim("me", 9) == [] and frontier.status.crawl_counts(harness.crawl).queued == 4
    frontier.crawls.change_crawl(harness.crawl, CrawlLimits(), harness.section, 1.0)
    assert len(served(harness, 5)) == 4 and frontier.status.crawl_counts(harness.crawl).pages == 8


def test_what_is_released_under_a_budget_that_came_meanwhile_is_still_there(make: Make) -> None:
    """A process that is resumed with another limit gives back what the one before it had out."""
    harness = make(delay_s=0.0)
    frontier = harness.start()
    no_robots(harness, "a")
    frontier.queue.admit(harness.crawl, pages("a", 5))
    frontier.durability.commit()
    assert len(frontier.leases.claim("me", 9)) == 1
    harness.limits = CrawlLimits(max_pages_per_domain=3)
    frontier = harness.crash()
    assert frontier.status.crawl_counts(harness.crawl).queued == 5
    harness.advance(2)
    assert len(served(harness, 5)) == 3


def test_a_page_does_not_wait_for_the_retry_of_another(make: Make) -> None:
    harness = make(delay_s=0.0)
    frontier = harness.start()
    no_robots(harness, "a")
    other = frontier.crawls.open_crawl("other", CrawlLimits(), polite(0.0))
    for crawl in (harness.crawl, other):
        frontier.queue.admit(crawl, [page("http://a/again")])
        failed = claim_one(harness)
        cool(harness, failed, ok=False)
        frontier.leases.finish([EndedLease(failed, End.RETRY, wait_s=50)])
        harness.advance(1)
        frontier.queue.admit(crawl, [page("http://a/new")])
        lease = claim_one(harness)
        assert (lease.crawl, lease.url) == (crawl, "http://a/new")
        done(harness, lease)


def test_one_that_waits_for_its_retry_holds_nobody_up(make: Make) -> None:
    harness = make(delay_s=0.0, places=3)
    frontier = harness.start()
    no_robots(harness, "a")
    patient = frontier.crawls.open_crawl("patient", CrawlLimits(), polite(1.0))
    frontier.queue.admit(patient, [page("http://a/again")])
    failed = claim_one(harness)
    cool(harness, failed, ok=False)
    frontier.leases.finish([EndedLease(failed, End.RETRY, wait_s=100)])
    harness.advance(20)
    frontier.queue.admit(harness.crawl, pages("a", 3))
    assert [len(frontier.leases.claim("me", 1)) for _ in range(3)] == [1, 1, 1]


@pytest.mark.parametrize("limits", [CrawlLimits(max_pages=1), CrawlLimits(in_flight=1)])
def test_a_limit_that_is_lifted_lets_all_sites_go_on(make: Make, limits: CrawlLimits) -> None:
    harness = make(delay_s=0.0)
    frontier = harness.start(limits)
    hosts = [f"h{number}" for number in range(5)]
    no_robots(harness, *hosts)
    frontier.queue.admit(harness.crawl, [page(f"http://{host}/") for host in hosts])
    assert len(frontier.leases.claim("me", 9)) == 1
    assert frontier.leases.claim("me", 9) == []
    frontier.crawls.change_crawl(harness.crawl, CrawlLimits(), harness.section, 1.0)
    assert len(frontier.leases.claim("me", 9)) == 4


def test_what_a_claim_leaves_is_due_at_once(make: Make) -> None:
    harness = make(delay_s=0.0)
    frontier = harness.start()
    no_robots(harness, "a", "b")
    other = frontier.crawls.open_crawl("other", CrawlLimits(), polite(0.0))
    frontier.queue.admit(harness.crawl, pages("a", 1))
    frontier.queue.admit(other, pages("b", 1))
    assert len(frontier.leases.claim("me", 1)) == 1
    due = frontier.leases.next_due()
    assert due is not None and due <= frontier.now()
    assert len(frontier.leases.claim("me", 9)) == 1
    due = frontier.leases.next_due()
    assert due is None or due > frontier.now()


def test_the_end_of_a_crawl_that_was_due_leaves_nothing_due(make_embedded: MakeEmbedded) -> None:
    harness = make_embedded(delay_s=0.0)
    frontier = harness.start()
    no_robots(harness, "a", "b", "c")
    other = frontier.crawls.open_crawl("other", CrawlLimits(), polite(0.0))
    frontier.queue.admit(harness.crawl, pages("a", 1))
    frontier.queue.admit(other, [page("http://b/"), page("http://c/")])
    while frontier.leases.claim("me", 1)[0].crawl != harness.crawl:
        pass
    frontier.crawls.close_crawl(other)
    assert frontier.leases.claim("me", 9) == []
    due = frontier.leases.next_due()
    assert due is None or due > frontier.now()


def test_what_is_set_aside_uses_up_neither_budget_nor_permit_and_was_not_asked_for(make: Make) -> None:
    harness = make(delay_s=0.0)
    frontier = harness.start(CrawlLimits(max_pages_per_domain=1, max_pages=1))
    no_robots(harness, "a")
    frontier.queue.admit(harness.crawl, pages("a", 2))
    out = claim_one(harness)
    assert frontier.leases.claim("me", 9) == []
    frontier.leases.exclude([out])
    assert logged(harness, out) == ["start", "unasked"], "known before anybody else may ask"
    due = frontier.leases.next_due()
    assert due is not None and due <= frontier.now()
    harness.advance(1)
    kept = claim_one(harness)
    assert kept.item != out.item and not frontier.status.has_work(harness.crawl)
    frontier.leases.finish([EndedLease(kept, End.OTHER)])
    assert frontier.queue.restore_excluded(harness.crawl, lambda _: True) == 1
    assert claim_one(harness).item == out.item
    assert logged(harness, out) == ["start", "unasked", "start"]


def test_of_two_that_have_waited_long_the_one_that_came_first_is_next(make: Make) -> None:
    harness = make(delay_s=0.0)
    frontier = harness.start()
    no_robots(harness, "a")
    frontier.queue.admit(harness.crawl, pages("a", 1))
    out = claim_one(harness)
    waiting = [frontier.crawls.open_crawl(name, CrawlLimits(), polite(1.0)) for name in ("first", "second")]
    for crawl in waiting:
        frontier.queue.admit(crawl, pages("a", 1))
        harness.advance(1)
    harness.advance(12)
    done(harness, out)
    assert [whose for _, whose in served(harness, 5)] == waiting


def test_once_one_that_waited_long_is_served_the_others_are_not_due(make: Make) -> None:
    harness = make(delay_s=0.0)
    frontier = harness.start()
    no_robots(harness, "a")
    slow = frontier.crawls.open_crawl("slow", CrawlLimits(), polite(1.0))
    frontier.queue.admit(harness.crawl, pages("a", 50))
    frontier.queue.admit(slow, pages("a", 2))
    for _ in range(60):
        leases = frontier.leases.claim("me", 9)
        if any(lease.crawl == slow for lease in leases):
            break
        for lease in leases:
            done(harness, lease)
        harness.advance(0.5)
    due = frontier.leases.next_due()
    assert due is None or due > frontier.now(), "the place is taken"


def test_of_two_crawls_with_one_name_the_other_has_it_when_one_ends(make_embedded: MakeEmbedded) -> None:
    harness = make_embedded(delay_s=0.0)
    frontier = harness.start()
    older = frontier.crawls.open_crawl("other", CrawlLimits(), polite(0.0))
    frontier.durability.commit()
    frontier.crawls.close_crawl(older)
    newer = frontier.crawls.open_crawl("other", CrawlLimits(), polite(0.0))
    frontier.queue.admit(newer, pages("a", 2))
    frontier.durability.commit()
    harness.others = (CrawlLimits(), polite(0.0), 1.0)
    frontier = harness.crash()
    assert frontier.crawls.kept_crawls() == [harness.crawl, older, newer]
    named = frontier.crawls.open_crawl("other", CrawlLimits(), polite(0.0))
    assert named in (older, newer)
    frontier.crawls.close_crawl(named)
    frontier.crawls.forget_closed_crawl(named)
    left = older + newer - named
    assert frontier.crawls.open_crawl("other", CrawlLimits(), polite(0.0)) == left
    frontier.crawls.close_crawl(left)
    frontier.crawls.forget_closed_crawl(left)
    assert frontier.crawls.open_crawl("other", CrawlLimits(), polite(0.0)) > newer


def test_the_end_of_the_unnamed_one_of_two_leaves_the_name_to_the_other(make_embedded: MakeEmbedded) -> None:
    harness = make_embedded(delay_s=0.0)
    frontier = harness.start()
    older = frontier.crawls.open_crawl("other", CrawlLimits(), polite(0.0))
    frontier.durability.commit()
    frontier.crawls.close_crawl(older)
    newer = frontier.crawls.open_crawl("other", CrawlLimits(), polite(0.0))
    frontier.durability.commit()
    harness.others = (CrawlLimits(), polite(0.0), 1.0)
    frontier = harness.crash()
    named = frontier.crawls.open_crawl("other", CrawlLimits(), polite(0.0))
    unnamed = older + newer - named
    frontier.crawls.close_crawl(unnamed)
    frontier.crawls.forget_closed_crawl(unnamed)
    assert frontier.crawls.open_crawl("other", CrawlLimits(), polite(0.0)) == named


def test_a_depth_limit_that_is_changed_keeps_the_depths_that_are_known(make: Make) -> None:
    harness = make(delay_s=0.0)
    frontier = harness.start(CrawlLimits(max_depth=5))
    no_robots(harness, "a")
    frontier.queue.admit(harness.crawl, [page("http://a/1", 4)])
    frontier.crawls.change_crawl(harness.crawl, CrawlLimits(max_depth=6), harness.section, 1.0)
    assert frontier.queue.admit(harness.crawl, [page("http://a/1", 2)]).duplicates == 1
    lease = claim_one(harness)
    assert lease.depth == 2
    done(harness, lease)
    assert frontier.leases.claim("me", 9) == [], "it was moved, not doubled"


def test_what_is_set_aside_and_found_nearer_comes_back_there(make: Make) -> None:
    harness = make(delay_s=0.0)
    frontier = harness.start(CrawlLimits(max_depth=5))
    no_robots(harness, "a")
    frontier.queue.admit(harness.crawl, [page("http://a/1", 4)])
    frontier.leases.exclude([claim_one(harness)])
    assert frontier.queue.restore_excluded(harness.crawl, lambda _: True) == 1
    lease = claim_one(harness)
    assert (lease.url, lease.depth) == ("http://a/1", 4)
    assert frontier.queue.admit(harness.crawl, [page("http://a/1", 2)]).expand == ()
    frontier.leases.finish([EndedLease(lease, End.RELEASE)])
    assert claim_one(harness).depth == 2


@pytest.mark.parametrize("limit", [1, 9])
@pytest.mark.parametrize("kill", ["none", "before", "after", "at last"])
def test_what_is_found_nearer_while_it_is_set_aside_comes_back_there_and_once(
    make: Make, kill: str, limit: int
) -> None:
    harness = make(delay_s=0.0, places=4)
    frontier = harness.start(CrawlLimits(max_depth=5))
    no_robots(harness, "a")
    frontier.queue.admit(harness.crawl, [page("http://a/1", 4)])
    frontier.leases.exclude([claim_one(harness)])
    frontier.queue.admit(harness.crawl, [page("http://a/1", 2)])
    frontier.durability.commit()
    if kill == "before":
        frontier = harness.crash()
    assert frontier.queue.restore_excluded(harness.crawl, lambda _: True) == 1
    frontier.durability.commit()
    if kill == "after":
        frontier = harness.crash()
    harness.advance(1)
    (lease,) = frontier.leases.claim("me", limit)
    assert (lease.url, lease.depth) == ("http://a/1", 2)
    done(harness, lease)
    if kill == "at last":
        frontier.durability.commit()
        frontier = harness.crash()
        harness.advance(1)
    assert frontier.leases.claim("me", 9) == []


def test_a_page_that_was_found_nearer_is_rejected_once(make: Make) -> None:
    harness = make(delay_s=0.0, max_retry_after_s=60.0)
    frontier = harness.start(CrawlLimits(max_depth=5))
    no_robots(harness, "a")
    frontier.queue.admit(harness.crawl, [page("http://a/first")])
    first = claim_one(harness)
    for depth in (4, 3, 2):
        frontier.queue.admit(harness.crawl, [page("http://a/1", depth)])
    cool(harness, first, slow_down=True, retry_after_s=3600.0)
    (rejected,) = frontier.rejected.rejections()
    assert (rejected.item.url, rejected.item.depth) == ("http://a/1", 2)
    frontier.rejected.end_stored([rejected.item.item])
    frontier.leases.finish([EndedLease(first, End.OTHER)])
    assert frontier.status.stats().finished == 2
    frontier.queue.admit(harness.crawl, [page("http://a/1", 1)])
    harness.advance(3600)
    assert frontier.leases.claim("me", 9) == [], "it has ended, and was not fetched"


@pytest.mark.parametrize("was", ["tried", "set aside"])
def test_a_page_that_was_found_nearer_while_it_was_not_in_its_queue_is_rejected_once(make: Make, was: str) -> None:
    harness = make(delay_s=0.0, max_retry_after_s=60.0)
    frontier = harness.start(CrawlLimits(max_depth=5))
    no_robots(harness, "a")
    frontier.queue.admit(harness.crawl, [page("http://a/1", 4)])
    lease = claim_one(harness)
    if was == "tried":
        cool(harness, lease, ok=False)
        frontier.leases.finish([EndedLease(lease, End.RETRY, 60.0)])
    else:
        frontier.leases.exclude([lease])
    frontier.queue.admit(harness.crawl, [page("http://a/first")])
    first = claim_one(harness)
    frontier.queue.admit(harness.crawl, [page("http://a/1", 2)])
    frontier.queue.restore_excluded(harness.crawl, lambda _: True)
    cool(harness, first, slow_down=True, retry_after_s=3600.0)
    (rejected,) = frontier.rejected.rejections()
    assert (rejected.item.url, rejected.item.depth) == ("http://a/1", 2)
    frontier.rejected.end_stored([rejected.item.item])
    assert (frontier.status.stats().queued, frontier.status.stats().finished) == (0, 1)


def test_a_page_that_was_found_nearer_and_is_out_is_not_rejected(make: Make) -> None:
    harness = make(delay_s=0.0, places=2, max_retry_after_s=60.0)
    frontier = harness.start(CrawlLimits(max_depth=5))
    no_robots(harness, "a")
    frontier.queue.admit(harness.crawl, [page("http://a/first")])
    first = claim_one(harness)
    for depth in (4, 2):
        frontier.queue.admit(harness.crawl, [page("http://a/1", depth)])
    lease = claim_one(harness)
    cool(harness, first, slow_down=True, retry_after_s=3600.0)
    assert frontier.rejected.rejections() == []
    done(harness, lease)
    assert frontier.status.stats().finished == 1


def test_a_crawl_that_is_brought_back_late_has_what_it_had(make_embedded: MakeEmbedded) -> None:
    harness = make_embedded(delay_s=0.0)
    frontier = harness.start()
    other = frontier.crawls.open_crawl("other", CrawlLimits(), polite(0.0))
    frontier.queue.admit(other, pages("a", 3))
    no_robots(harness, "a")
    done(harness, claim_one(harness))
    frontier.durability.commit()
    frontier = harness.crash()
    assert frontier.crawls.kept_crawls() == [harness.crawl, other]
    frontier.crawls.reopen_crawl(other, CrawlLimits(), polite(0.0), 1.0)
    standing = frontier.status.crawl_counts(other)
    assert (standing.queued, standing.leased, standing.seen) == (2, 0, 3)
    assert frontier.queue.admit(other, pages("a", 4)).new == 1
    assert [whose for _, whose in served(harness, 5)] == [other] * 3


def test_a_site_is_remembered_for_as_long_as_the_slowest_crawl_may_have_to_wait(make: Make) -> None:
    harness = make(delay_s=0.0)
    frontier = harness.start()
    no_robots(harness, "a", "b")
    slow = frontier.crawls.open_crawl("slow", CrawlLimits(), polite(200.0))
    frontier.queue.admit(harness.crawl, pages("a", 1))
    done(harness, claim_one(harness))
    for _ in range(9):
        harness.advance(20)
        assert frontier.leases.claim("me", 9) == []
    frontier.queue.admit(slow, pages("a", 1))
    harness.advance(19)
    assert frontier.leases.claim("me", 9) == []
    harness.advance(2)
    assert claim_one(harness).crawl == slow


@pytest.mark.parametrize("ends", ["closed", "paused"])
def test_a_robots_txt_that_one_crawl_will_not_ask_for_again_is_asked_for_by_another(make: Make, ends: str) -> None:
    harness = make(delay_s=0.0)
    frontier = harness.start()
    other = frontier.crawls.open_crawl("other", CrawlLimits(), polite(0.0))
    frontier.queue.admit(other, pages("a", 2))
    robots = claim_one(harness)
    frontier.queue.admit(harness.crawl, pages("a", 3))
    cool(harness, robots, ok=False)
    frontier.leases.finish([EndedLease(robots, End.RETRY, wait_s=5)])
    assert frontier.leases.claim("me", 9) == [], "both wait for it"
    if ends == "closed":
        if not isinstance(frontier, EmbeddedFrontier):
            pytest.skip(NO_ENDS)
        frontier.crawls.close_crawl(other)
        frontier.crawls.forget_closed_crawl(other)
        frontier.durability.commit()
        while not frontier.crawls.forget_crawls([other]):
            pass
        assert frontier.status.stats().queued == 3
    else:
        frontier.crawls.pause(other)
        queued = [frontier.status.crawl_counts(crawl).queued for crawl in (harness.crawl, other)]
        assert queued[0] == 3 and frontier.status.stats().queued == sum(queued)
    harness.advance(6)
    again = claim_one(harness)
    assert (again.purpose, again.crawl) == (Purpose.ROBOTS, harness.crawl)
    cool(harness, again, ok=True)
    no_robots(harness, "a")
    frontier.leases.finish([EndedLease(again, End.OTHER)])
    assert [whose for _, whose in served(harness, 5)] == [harness.crawl] * 3


def test_a_robots_txt_waits_as_long_as_it_must_after_a_crash_and_no_longer(make: Make) -> None:
    harness = make(delay_s=0.0)
    frontier = harness.start()
    frontier.queue.admit(harness.crawl, pages("a", 1))
    robots = claim_one(harness)
    cool(harness, robots, ok=False)
    frontier.leases.finish([EndedLease(robots, End.RETRY, wait_s=50)])
    frontier.durability.commit()
    frontier = harness.crash()
    for wait_s in (25.0, 24.0):
        assert frontier.leases.claim("me", 9) == []
        harness.advance(wait_s)
    assert frontier.leases.claim("me", 9) == []
    harness.advance(1.0)
    again = claim_one(harness)
    assert (again.purpose, again.attempt) == (Purpose.ROBOTS, 1)


def test_leases_that_are_over_keep_no_other_from_ending(make: Make) -> None:
    harness = make(delay_s=0.0, places=2)
    frontier = harness.start()
    no_robots(harness, "a", "b")
    frontier.queue.admit(harness.crawl, [*pages("a", 2), *pages("b", 2)])
    leases = frontier.leases.claim("me", 4)
    done(harness, leases[0])
    frontier.leases.cool([TransferEnd(lease, frontier.now(), ok=True) for lease in leases])
    assert frontier.leases.finish([EndedLease(lease, End.PAGE) for lease in leases]) == [False, True, True, True]
    frontier.durability.commit()
    assert [logged(harness, lease)[1:] for lease in leases] == [["-"]] * 4
    frontier.queue.admit(
        harness.crawl, [page("http://a/x"), page("http://a/y"), page("http://b/x"), page("http://b/y")]
    )
    assert len(frontier.leases.claim("me", 9)) == 4, "all places are free"


def test_a_lease_of_a_crawl_that_is_over_expires_without_a_trace(make_embedded: MakeEmbedded) -> None:
    harness = make_embedded(delay_s=0.0)
    frontier = harness.start()
    no_robots(harness, "a")
    other = frontier.crawls.open_crawl("other", CrawlLimits(), polite(0.0))
    frontier.queue.admit(other, pages("a", 2))
    lease = claim_one(harness)
    frontier.crawls.close_crawl(other)
    frontier.crawls.forget_closed_crawl(other)
    frontier.durability.commit()
    harness.advance(lease.deadline - harness.time + 1.0)
    assert frontier.leases.claim("me", 9) == []
    harness.advance(2)
    assert frontier.leases.claim("me", 9) == []
    assert (frontier.status.stats().queued, frontier.status.stats().leased) == (0, 0)
    frontier.queue.admit(harness.crawl, pages("a", 1))
    assert claim_one(harness).crawl == harness.crawl, "its place is free"


def test_what_waits_for_the_place_of_a_lease_of_a_crawl_that_is_over_has_it_when_that_expires(
    make_embedded: MakeEmbedded,
) -> None:
    harness = make_embedded(delay_s=1.0)
    frontier = harness.start()
    no_robots(harness, "a")
    other = frontier.crawls.open_crawl("other", CrawlLimits(), polite(1.0))
    frontier.queue.admit(other, pages("a", 1))
    lease = claim_one(harness)
    frontier.queue.admit(harness.crawl, pages("a", 1))
    assert frontier.leases.claim("me", 9) == []
    frontier.crawls.close_crawl(other)
    frontier.crawls.forget_closed_crawl(other)
    harness.advance(lease.deadline - harness.time + 1.0)
    assert frontier.leases.claim("me", 9) == [], "nobody knows when it ended"
    harness.advance(1.1)
    assert claim_one(harness).crawl == harness.crawl


def test_one_that_has_waited_long_and_used_up_its_budget_holds_nobody_up(make: Make) -> None:
    harness = make(delay_s=1.0, places=2, lease_s=9000.0)
    frontier = harness.start()
    no_robots(harness, "a")
    other = frontier.crawls.open_crawl("other", CrawlLimits(max_pages_per_domain=2), polite(1.0, places=2))
    frontier.queue.admit(other, [page(f"http://a/other/{number}") for number in range(5)])
    done(harness, claim_one(harness))
    harness.advance(1.1)
    assert claim_one(harness).crawl == other
    harness.advance(30.0)
    frontier.queue.admit(harness.crawl, pages("a", 3))
    for _ in range(3):
        lease = claim_one(harness)
        assert lease.crawl == harness.crawl
        done(harness, lease)
        harness.advance(1.1)
    assert frontier.leases.claim("me", 9) == []


@pytest.mark.parametrize("waited_s", [0.0, 30.0])
def test_one_that_has_waited_long_and_has_no_permit_holds_nobody_up(make: Make, waited_s: float) -> None:
    harness = make(delay_s=1.0, lease_s=9000.0)
    frontier = harness.start()
    no_robots(harness, "a")
    no_robots(harness, "b")
    other = frontier.crawls.open_crawl("other", CrawlLimits(in_flight=1), polite(2.0))
    frontier.queue.admit(other, [page(f"http://a/other/{number}") for number in range(5)])
    done(harness, claim_one(harness))
    frontier.queue.admit(other, pages("b", 1))
    out = claim_one(harness)
    assert out.key == "b", "the other site has its delay"
    harness.advance(1.1 + waited_s)
    frontier.queue.admit(harness.crawl, pages("a", 25))
    for _ in range(25):
        lease = claim_one(harness)
        assert lease.crawl == harness.crawl
        done(harness, lease)
        harness.advance(1.1)
    assert frontier.leases.claim("me", 9) == []
    done(harness, out)
    harness.advance(2.0)
    assert claim_one(harness).crawl == other


def test_one_that_has_waited_long_for_a_robots_txt_holds_nobody_up(make: Make) -> None:
    harness = make(delay_s=1.0, places=2, lease_s=9000.0)
    frontier = harness.start()
    no_robots(harness, "a")
    other = frontier.crawls.open_crawl("other", CrawlLimits(), polite(1.0, places=2))
    frontier.queue.admit(other, [page(f"https://a/other/{number}") for number in range(3)])
    robots = claim_one(harness)
    assert (robots.url, robots.crawl) == ("https://a/robots.txt", other)
    harness.advance(30.0)
    frontier.queue.admit(harness.crawl, pages("a", 15))
    for _ in range(15):  # how long it waits for the other counts from now on
        lease = claim_one(harness)
        assert lease.crawl == harness.crawl
        done(harness, lease)
        harness.advance(1.1)
    assert frontier.leases.claim("me", 9) == []


def test_one_that_has_waited_long_for_another_try_of_a_robots_txt_holds_nobody_up(make: Make) -> None:
    harness = make(delay_s=1.0, lease_s=9000.0)
    frontier = harness.start()
    no_robots(harness, "a")
    other = frontier.crawls.open_crawl("other", CrawlLimits(), polite(1.0))
    frontier.queue.admit(other, [page(f"https://a/other/{number}") for number in range(3)])
    robots = claim_one(harness)
    frontier.queue.admit(harness.crawl, pages("a", 20))
    cool(harness, robots, ok=False)
    frontier.leases.finish([EndedLease(robots, End.RETRY, wait_s=100)])
    for _ in range(20):
        harness.advance(1.1)
        lease = claim_one(harness)
        assert lease.crawl == harness.crawl
        done(harness, lease)
    harness.advance(100)
    again = claim_one(harness)
    assert (again.url, again.crawl) == ("https://a/robots.txt", other)


def test_one_that_has_waited_long_is_served_at_the_moment_when_its_delay_is_over(make: Make) -> None:
    harness = make(delay_s=0.0)
    frontier = harness.start()
    no_robots(harness, "a")
    slow = frontier.crawls.open_crawl("slow", CrawlLimits(), polite(2.0))
    frontier.queue.admit(harness.crawl, pages("a", 200))
    done(harness, claim_one(harness))
    frontier.queue.admit(slow, pages("a", 2))
    for _ in range(21):
        for lease in frontier.leases.claim("me", 1):
            assert lease.crawl == harness.crawl
            done(harness, lease)
        harness.advance(1.0)
    third = frontier.crawls.open_crawl("third", CrawlLimits(), polite(0.0))
    frontier.queue.admit(third, pages("a", 9))
    assert frontier.leases.claim("me", 1) == [], "one that comes last does not go first"
    due = frontier.leases.next_due()
    assert due is not None and due > harness.time
    harness.advance(due - harness.time)
    assert claim_one(harness).crawl == slow


def test_one_that_has_waited_long_keeps_the_next_place_and_nobody_asks_in_vain(make: Make) -> None:
    harness = make(delay_s=1.0, places=2, lease_s=9000.0)
    frontier = harness.start()
    no_robots(harness, "a")
    frontier.queue.admit(harness.crawl, pages("a", 5))
    first = claim_one(harness)
    other = frontier.crawls.open_crawl("other", CrawlLimits(), polite(1.0, places=1))
    frontier.queue.admit(other, [page("http://a/other")])
    harness.advance(1.1)
    second = claim_one(harness)
    assert second.crawl == harness.crawl, "for the other there is no place"
    done(harness, first)
    harness.advance(30.0)
    assert frontier.leases.claim("me", 9) == [], "it is the other's turn"
    due = frontier.leases.next_due()
    assert due is None or due > harness.time, "a loop that asked again at once would never sleep"
    done(harness, second)
    harness.advance(1.1)
    assert other in {lease.crawl for lease in frontier.leases.claim("me", 9)}


def test_a_recrawl_is_told_the_last_item_before_it_and_begins_once(make: Make) -> None:
    harness = make(delay_s=0.0)
    frontier = harness.start()
    frontier.queue.admit(harness.crawl, pages("a", 3))
    begun: list[int] = []
    for run in ("one", "one", "two"):
        walked(frontier.revisits.walk(harness.crawl, RECRAWL, run, stored(pages("a", 2)), begun.append))
    assert begun == [max(item.item for item in frontier.queue.items(harness.crawl)) - back for back in (4, 2)]
    assert frontier.notes.note(RECRAWL)


def test_a_page_that_is_still_being_stored_counts_for_its_budget_however_long_that_takes(make: Make) -> None:
    harness = make(delay_s=0.0, lease_s=9000.0)
    frontier = harness.start(CrawlLimits(max_pages_per_domain=1))
    no_robots(harness, "a")
    frontier.queue.admit(harness.crawl, pages("a", 1))
    lease = claim_one(harness)
    cool(harness, lease, ok=True)
    for _ in range(5):
        harness.advance(50)
        assert frontier.leases.claim("me", 9) == []
    frontier.queue.admit(harness.crawl, [page("http://a/another")])
    assert frontier.leases.claim("me", 9) == [] and not frontier.status.has_work(harness.crawl)
    frontier.leases.finish([EndedLease(lease, End.OTHER)])
    assert claim_one(harness).url == "http://a/another"


def test_a_crawl_that_may_have_no_page_is_exhausted_at_once(make: Make) -> None:
    frontier = make().start(CrawlLimits(max_pages=0))
    assert frontier.permits.exhausted()
    frontier.crawls.open_crawl("other", CrawlLimits(max_pages=1))
    assert not frontier.permits.exhausted()


def test_what_was_not_asked_for_is_before_all_that_came_after_it(make: Make) -> None:
    harness = make(delay_s=0.0)
    frontier = harness.start()
    no_robots(harness, "a")
    frontier.queue.admit(
        harness.crawl, [Found(f"http://a/{number}", 0, 0, 1, about="http://a/from") for number in range(3)]
    )
    first = claim_one(harness)
    frontier.leases.finish([EndedLease(first, End.RELEASE)])
    assert claim_one(harness).url == first.url


def test_one_that_waits_for_a_robots_txt_holds_nobody_up(make: Make) -> None:
    harness = make(delay_s=0.0, places=3)
    frontier = harness.start()
    no_robots(harness, "y.a.test")
    patient = frontier.crawls.open_crawl("patient", CrawlLimits(), polite(1.0, places=3))
    frontier.queue.admit(patient, pages("x.a.test", 2))
    assert claim_one(harness).purpose is Purpose.ROBOTS
    harness.advance(20)
    frontier.queue.admit(harness.crawl, pages("y.a.test", 2))
    assert [len(frontier.leases.claim("me", 1)) for _ in range(2)] == [1, 1]


def test_an_edit_of_the_delay_is_in_force_at_once_also_where_others_are(make: Make) -> None:
    harness = make(delay_s=1.0)
    frontier = harness.start()
    no_robots(harness, "a")
    other = frontier.crawls.open_crawl("other", CrawlLimits(), polite(1000.0))
    frontier.queue.admit(harness.crawl, pages("a", 1))
    frontier.queue.admit(other, pages("a", 2))
    assert {whose for _, whose in served(harness, 5)} >= {harness.crawl}
    harness.advance(10)
    assert frontier.leases.claim("me", 9) == []
    frontier.crawls.change_crawl(other, CrawlLimits(), polite(5.0), 1.0)
    assert claim_one(harness).crawl == other


def test_a_host_that_is_an_address_is_queued_and_told_as_any_other(make: Make) -> None:
    harness = make(delay_s=0.0)
    frontier = harness.start()
    found = [page("http://[2001:db8::1]/x"), page("http://[2001:db8::1]:8080/y")]
    frontier.queue.admit(harness.crawl, found)
    assert sorted(item.url for item in frontier.queue.items(harness.crawl)) == sorted(one.url for one in found)


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 8])
def test_a_claim_gives_no_more_than_it_was_asked_for_however_unequal_the_crawls_are(make: Make, limit: int) -> None:
    harness = make(delay_s=0.0)
    frontier = harness.start()
    heavy = frontier.crawls.open_crawl("heavy", CrawlLimits(), polite(0.0), weight=10.0)
    for crawl in (harness.crawl, heavy):
        hosts = [f"c{crawl}-{number}" for number in range(12)]
        no_robots(harness, *hosts)
        frontier.queue.admit(crawl, [page(f"http://{host}/") for host in hosts])
    assert len(frontier.leases.claim("me", limit)) == limit
    assert len(frontier.leases.claim("me", 24)) == 24 - limit


@pytest.mark.parametrize("end", [End.RETRY, End.RELEASE])
def test_what_is_given_back_long_after_its_request_is_due_at_once(make: Make, end: End) -> None:
    harness = make(delay_s=1.0)
    frontier = harness.start()
    no_robots(harness, "a")
    frontier.queue.admit(harness.crawl, pages("a", 1))
    lease = claim_one(harness)
    cool(harness, lease, ok=False)
    harness.advance(5.0)
    assert frontier.leases.claim("me", 9) == [] and frontier.leases.next_due() is None
    frontier.leases.finish([EndedLease(lease, end)])
    due = frontier.leases.next_due()
    assert due is not None and due <= harness.time
    assert claim_one(harness).url == lease.url


@pytest.mark.parametrize("limit", [1, 2, 3, 4])
def test_a_claim_gives_no_more_than_it_was_asked_for_whatever_the_sites_have_shown(make: Make, limit: int) -> None:
    harness = make(delay_s=0.0)
    frontier = harness.start()
    known, new = [f"known{number}" for number in range(5)], [f"new{number}" for number in range(5)]
    no_robots(harness, *known, *new)
    frontier.queue.admit(harness.crawl, [page(f"http://{host}/1") for host in known])
    for lease in frontier.leases.claim("me", 9):
        cool(harness, lease, ok=True, took_s=0.1)
        frontier.leases.finish([EndedLease(lease, End.PAGE)])
    frontier.queue.admit(harness.crawl, [page(f"http://{host}/2") for host in (*known, *new)])
    assert len(frontier.leases.claim("me", limit)) == limit


def test_one_that_comes_late_begins_where_the_others_are(make: Make) -> None:
    harness = make(delay_s=0.0)
    frontier = harness.start()
    crawls = [harness.crawl, frontier.crawls.open_crawl("second", CrawlLimits(), polite(0.0))]
    for some in (20, 30):
        for crawl in crawls:
            hosts = [f"c{crawl}-{some}-{number}" for number in range(some)]
            no_robots(harness, *hosts)
            frontier.queue.admit(crawl, [page(f"http://{host}/") for host in hosts])
        if some == 20:
            assert len(frontier.leases.claim("me", 30)) == 30
            crawls.append(frontier.crawls.open_crawl("third", CrawlLimits(), polite(0.0)))
    found = Counter(lease.crawl for lease in frontier.leases.claim("me", 12))
    assert [found[crawl] for crawl in crawls] == [pytest.approx(4, abs=1)] * 3


@pytest.mark.parametrize("end", [End.PAGE, End.OTHER])
def test_a_visit_that_is_asked_for_while_another_is_under_way_is_made(make: Make, end: End) -> None:
    harness = make(delay_s=0.0)
    frontier = harness.start(CrawlLimits(max_depth=5))
    no_robots(harness, "a")
    frontier.queue.admit(harness.crawl, pages("a", 1))
    first = claim_one(harness)
    frontier.revisits.readmit(harness.crawl, page(first.url))
    done(harness, first, end)
    again = claim_one(harness)
    assert again.url == first.url and again.item > first.item


@pytest.mark.parametrize("others", [1, 2])
def test_a_site_whose_first_crawl_is_paused_is_claimed_from_for_the_others(make: Make, others: int) -> None:
    harness = make(delay_s=1.0)
    frontier = harness.start()
    no_robots(harness, "a")
    slower = [frontier.crawls.open_crawl(f"{number}", CrawlLimits(), polite(4.0)) for number in range(others)]
    frontier.queue.admit(harness.crawl, pages("a", 3))
    done(harness, claim_one(harness))
    for crawl in slower:
        frontier.queue.admit(crawl, pages("a", 1))
    frontier.crawls.pause(harness.crawl)
    harness.advance(2)
    assert frontier.leases.claim("me", 9) == [], "the paused one would be served now"
    due = frontier.leases.next_due()
    assert due is not None and due <= harness.time + 2.1
    harness.advance(2.1)
    assert claim_one(harness).crawl in slower
