"""More of the one contract that every frontier keeps (workers/harnesses.py): what small changes to the code went
through the other tests with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pytest
from harnesses import ALLOW, RECRAWL, Harness, claim_one, cool, done, no_robots, page, stored, urls_of, walked

from weft.frontier.contract import CrawlLimits, End, EndedLease, Item, RobotsRecord, SlotRequest
from weft.frontier.durability.walk import is_walk_unfinished
from weft.frontier.politeness import EASED_AFTER_ANSWERS
from weft.frontier.requests import RequestEnd, RequestStart, read_events
from weft.records import Found, Lease, Purpose, Reason


def as_found(one: Item | Lease) -> Found:
    return Found(one.url, one.depth, one.parent, one.hops, one.purpose, one.about, one.offsite)


def https_robots(harness: Harness, *hosts: str) -> None:
    for host in hosts:
        harness.frontier.sites.robots_known(f"https://{host}", ALLOW, None)


def test_https_sites_are_distinguished_and_each_asked_for_its_robots_txt(make: Callable[..., Harness]) -> None:
    harness = make()
    frontier = harness.start()
    frontier.queue.admit(harness.crawl, [page("https://a.test/1"), page("https://b.test/1"), page("http://a.test/2")])
    first = {lease.url: lease for lease in frontier.leases.claim("me", 9)}
    assert sorted(first) == ["https://a.test/robots.txt", "https://b.test/robots.txt"]
    assert sorted(lease.key for lease in first.values()) == ["a.test", "b.test"]
    for lease in first.values():
        assert lease.about == lease.url.removesuffix("/robots.txt")
        cool(harness, lease, ok=True)
        frontier.leases.finish([EndedLease(lease, End.OTHER)])
    https_robots(harness, "a.test")
    frontier.sites.robots_known("https://b.test", RobotsRecord("ok", b"x", 9e12), None)
    assert frontier.sites.robots("https://b.test") == RobotsRecord("ok", b"x", 9e12)
    harness.advance(10.1)
    pages = frontier.leases.claim("me", 9)
    assert sorted(urls_of(pages)) == ["https://a.test/1", "https://b.test/1"]
    for lease in pages:
        done(harness, lease)
    harness.advance(10.1)
    assert claim_one(harness).url == "http://a.test/robots.txt", "another origin of the same site"


def test_an_item_comes_out_as_it_went_in_also_after_a_crash(make: Callable[..., Harness]) -> None:
    harness = make(delay_s=0.0, places=9)
    frontier = harness.start()
    https_robots(harness, "a.test")
    found = [
        Found("https://a.test/1", 2, 17, offsite=1),
        Found("https://a.test/2", 3, 18, 2, about="https://a.test/x https://a.test/y", offsite=2),
        Found("https://a.test/map.xml", 0, purpose=Purpose.SITEMAP, about="https://a.test"),
    ]
    frontier.queue.admit(harness.crawl, found)
    frontier.durability.commit()
    for _ in range(2):
        leases = sorted(frontier.leases.claim("me", 9), key=lambda lease: lease.url)
        assert [as_found(lease) for lease in leases] == found
        assert {(lease.owner, lease.crawl, lease.key, lease.attempt) for lease in leases} == {
            ("me", harness.crawl, "a.test", 0)
        }
        frontier = harness.crash()
        https_robots(harness, "a.test")


def test_robots_txt_is_asked_for_once_however_many_wait_for_it(make: Callable[..., Harness]) -> None:
    harness = make(delay_s=0.0, places=5)
    frontier = harness.start()
    other = frontier.crawls.open_crawl("other", CrawlLimits())
    for crawl in (harness.crawl, other):
        frontier.queue.admit(crawl, [page(f"http://a/{number}") for number in range(4)])
    robots = claim_one(harness)
    assert (robots.purpose, frontier.leases.claim("me", 9)) == (Purpose.ROBOTS, [])
    cool(harness, robots, ok=True)
    no_robots(harness, "a")
    frontier.leases.finish([EndedLease(robots, End.OTHER)])
    assert len(frontier.leases.claim("me", 9)) == 5
    assert (frontier.status.stats().leased, frontier.status.stats().queued) == (5, 3)


def test_what_is_cooled_twice_frees_one_place(make: Callable[..., Harness]) -> None:
    harness = make(delay_s=0.0, places=1)
    frontier = harness.start()
    no_robots(harness, "a")
    frontier.queue.admit(harness.crawl, [page(f"http://a/{number}") for number in range(4)])
    first = claim_one(harness)
    cool(harness, first, ok=True)
    cool(harness, first, ok=True)
    claim_one(harness)
    assert frontier.leases.claim("me", 9) == []


def test_a_cooled_lease_that_expires_is_queued_again_and_frees_no_second_place(make: Callable[..., Harness]) -> None:
    harness = make(delay_s=0.0, places=1, lease_s=90.0)
    frontier = harness.start()
    no_robots(harness, "a")
    frontier.queue.admit(harness.crawl, [page("http://a/1"), page("http://a/2"), page("http://a/3")])
    first = claim_one(harness)
    cool(harness, first, ok=True)
    harness.advance(60)
    second = claim_one(harness)
    harness.advance(31)
    assert frontier.leases.claim("me", 9) == [], "the place is the second one's"
    assert frontier.status.stats().leased == 1
    done(harness, second)
    again = claim_one(harness)
    assert (again.url, again.attempt) == (first.url, 0)
    assert frontier.leases.finish([EndedLease(first, End.PAGE)]) == [False]


def test_a_lease_is_good_until_its_deadline(make: Callable[..., Harness]) -> None:
    harness = make(lease_s=90.0)
    frontier = harness.start()
    no_robots(harness, "a")
    frontier.queue.admit(harness.crawl, [page("http://a/1")])
    lease = claim_one(harness)
    assert lease.deadline == pytest.approx(harness.time + 90, abs=0.01)
    harness.advance(89.9)
    assert frontier.leases.claim("me", 9) == []
    done(harness, lease)
    assert frontier.status.stats().finished == 1


def test_a_redirect_or_an_error_is_no_page(make: Callable[..., Harness]) -> None:
    harness = make(delay_s=0.0, places=9)
    frontier = harness.start()
    no_robots(harness, "a")
    frontier.queue.admit(harness.crawl, [page(f"http://a/{number}") for number in range(3)])
    first, second, third = frontier.leases.claim("me", 9)
    done(harness, first)
    done(harness, second, End.OTHER)
    cool(harness, third, ok=True)
    frontier.leases.finish([EndedLease(third, End.RETRY, 5.0)])
    stats = frontier.status.stats()
    assert (stats.pages, stats.finished, stats.admitted, stats.seen, stats.queued) == (1, 2, 3, 3, 1)


def test_a_page_that_ended_after_a_retry_is_over(make: Callable[..., Harness]) -> None:
    harness = make(delay_s=0.0, places=9)
    frontier = harness.start()
    no_robots(harness, "a")
    frontier.queue.admit(harness.crawl, [page("http://a/1")])
    for attempt in range(3):
        lease = claim_one(harness)
        assert lease.attempt == attempt
        cool(harness, lease, ok=True)
        frontier.leases.finish([EndedLease(lease, End.RETRY)])
    done(harness, claim_one(harness))
    frontier.durability.commit()
    frontier = harness.crash()
    harness.advance(1000)
    assert (frontier.leases.claim("me", 9), frontier.status.stats().queued) == ([], 0)


def test_a_url_can_be_visited_once_more(make: Callable[..., Harness]) -> None:
    harness = make(delay_s=0.0, places=9)
    frontier = harness.start()
    no_robots(harness, "a")
    frontier.queue.admit(harness.crawl, [page("http://a/1")])
    first = claim_one(harness)
    done(harness, first)
    frontier.revisits.readmit(harness.crawl, page("http://a/1"))
    frontier.revisits.readmit(harness.crawl, page("http://a/new"))
    assert frontier.queue.admit(harness.crawl, [page("http://a/new")]).new == 0, "it is known from then on"
    again = frontier.leases.claim("me", 9)
    assert urls_of(again) == ["http://a/1", "http://a/new"]
    assert again[0].item > first.item
    for lease in again:
        done(harness, lease)
    assert (frontier.status.stats().admitted, frontier.status.stats().finished) == (3, 3)


def test_a_new_visit_asks_again_for_a_robots_txt_that_could_not_be_had(make: Callable[..., Harness]) -> None:
    harness = make(delay_s=0.0, places=9)
    frontier = harness.start()
    no_robots(harness, "b")
    frontier.sites.robots_known("https://a.test", RobotsRecord("unreachable", b"", 9e12), None)
    frontier.revisits.readmit(harness.crawl, page("https://a.test/1"))
    frontier.revisits.readmit(harness.crawl, page("http://b/1"))
    assert sorted(urls_of(frontier.leases.claim("me", 9))) == ["http://b/1", "https://a.test/robots.txt"]


def test_known_pages_are_queued_once_for_each_run(make: Callable[..., Harness]) -> None:
    harness = make(delay_s=0.0, places=9)
    frontier = harness.start()
    no_robots(harness, "a")
    frontier.queue.admit(harness.crawl, [page("http://a/1"), page("http://a/2")])
    first = frontier.leases.claim("me", 9)
    for lease in first:
        done(harness, lease)
    assert not frontier.notes.note(RECRAWL)
    begun: list[int] = []
    known = [page("http://a/1"), page("http://a/2")]
    for run in ("run-1", "run-1", "run-2"):
        walked(frontier.revisits.walk(harness.crawl, RECRAWL, run, stored(known), begun.append))
        assert frontier.notes.note(RECRAWL)
    assert len(begun) == 2
    assert begun[0] >= max(lease.item for lease in first)
    assert frontier.status.stats().queued == 4
    frontier = harness.crash()
    walked(frontier.revisits.walk(harness.crawl, RECRAWL, "run-2", stored(known), begun.append))
    assert (len(begun), frontier.status.stats().queued) == (2, 4)


def test_a_recrawl_that_is_cut_off_continues_behind_its_last_step(make: Callable[..., Harness]) -> None:
    """In the next run, too: what is queued is a part of it."""
    harness = make()
    frontier = harness.start()
    asked: list[int] = []
    begun: list[int] = []

    def known(upto: int, after: int) -> Iterator[tuple[int, Found]]:
        asked.append(after)
        yield from ((number, page(f"http://a/{number}")) for number in range(after + 1, upto + 1))
        if upto < 2500:
            raise OSError

    with pytest.raises(OSError):
        walked(frontier.revisits.walk(harness.crawl, RECRAWL, "run-1", partial(known, 1500), begun.append))
    frontier = harness.crash()
    assert is_walk_unfinished(frontier.notes.note(RECRAWL))
    walked(frontier.revisits.walk(harness.crawl, RECRAWL, "run-2", partial(known, 2500), begun.append))
    assert (asked, len(begun), frontier.status.stats().queued) == ([0, 1000], 1, 2500)
    assert not is_walk_unfinished(frontier.notes.note(RECRAWL))
    walked(frontier.revisits.walk(harness.crawl, RECRAWL, "run-2", partial(known, 2500), begun.append))
    assert len(asked) == 2


def test_what_was_admitted_before_a_new_run_is_safe_when_it_begins(make: Callable[..., Harness]) -> None:
    harness = make()
    frontier = harness.start()
    frontier.durability.commit()
    frontier.queue.admit(harness.crawl, [page("http://a/1")])

    def killed(_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        walked(frontier.revisits.walk(harness.crawl, RECRAWL, "run-1", stored([page("http://a/2")]), killed))
    frontier = harness.crash()
    assert (frontier.status.stats().queued, bool(frontier.notes.note(RECRAWL))) == (1, False)


def test_where_a_seeds_redirect_led_is_remembered(make: Callable[..., Harness]) -> None:
    harness = make()
    frontier = harness.start()
    frontier.durability.commit()
    for url in ("http://b/", "http://c/", "http://b/"):
        frontier.notes.scope_extended(harness.crawl, url)
    assert sorted(frontier.notes.scope_extensions(harness.crawl)) == ["http://b/", "http://c/"]
    frontier = harness.crash()
    assert sorted(frontier.notes.scope_extensions(harness.crawl)) == ["http://b/", "http://c/"]


def test_the_depth_of_a_leased_url_is_its_shortest_way(make: Callable[..., Harness]) -> None:
    harness = make(delay_s=0.0, places=9)
    frontier = harness.start(CrawlLimits(max_depth=9))
    no_robots(harness, "a")
    frontier.queue.admit(harness.crawl, [page("http://a/1", 4), page("http://a/2", 4)])
    first, second = frontier.leases.claim("me", 9)
    frontier.queue.admit(harness.crawl, [page("http://a/1", 2), page("http://a/2", 6)])
    assert (frontier.leases.depth_of(first), frontier.leases.depth_of(second)) == (2, 4)


def test_the_shortest_way_is_known_of_every_leased_url(make: Callable[..., Harness]) -> None:
    harness = make(delay_s=0.0, places=99)
    frontier = harness.start(CrawlLimits(max_depth=9))
    no_robots(harness, "a")
    frontier.queue.admit(harness.crawl, [page(f"http://a/{number}", 4) for number in range(30)])
    leases = frontier.leases.claim("me", 99)
    frontier.queue.admit(harness.crawl, [page(f"http://a/{number}", 2) for number in range(30)])
    assert [frontier.leases.depth_of(lease) for lease in leases] == [2] * 30


def test_where_depth_decides_nothing_a_lease_has_its_own(make: Callable[..., Harness]) -> None:
    harness = make(delay_s=0.0, places=9)
    frontier = harness.start()
    no_robots(harness, "a")
    frontier.queue.admit(harness.crawl, [page("http://a/1", 4)])
    lease = claim_one(harness)
    frontier.queue.admit(harness.crawl, [page("http://a/1", 2)])
    assert frontier.leases.depth_of(lease) == 4


def test_a_longer_or_equal_way_changes_nothing(make: Callable[..., Harness]) -> None:
    harness = make(delay_s=0.0, places=9)
    frontier = harness.start(CrawlLimits(max_depth=9))
    no_robots(harness, "a")
    frontier.queue.admit(harness.crawl, [page("http://a/1", 3, 7)])
    for depth in (3, 4):
        admission = frontier.queue.admit(harness.crawl, [page("http://a/1", depth, 8)])
        assert (admission.new, admission.duplicates, admission.expand) == (0, 1, ())
    lease = claim_one(harness)
    assert (lease.depth, lease.parent, frontier.leases.claim("me", 9)) == (3, 7, [])
    done(harness, lease)
    assert frontier.queue.admit(harness.crawl, [page("http://a/1", 3)]).expand == ()


def test_a_domain_queues_no_more_than_its_budget_can_use(make: Callable[..., Harness]) -> None:
    harness = make(delay_s=0.0, places=9)
    frontier = harness.start(CrawlLimits(max_pages_per_domain=2))
    no_robots(harness, "a", "b")
    found = [page(f"http://a/{number}") for number in range(1200)]
    admission = frontier.queue.admit(harness.crawl, found)
    assert admission.new == 1040
    assert frontier.status.stats().queued == 1040
    assert frontier.queue.unseen(harness.crawl, [one.url for one in found]) == [one.url for one in found[1040:]]
    assert frontier.queue.admit(harness.crawl, [page(f"http://b/{number}") for number in range(5)]).new == 5


def test_a_robots_txt_that_another_pod_waits_for_needs_no_permit(make: Callable[..., Harness]) -> None:
    harness = make(delay_s=0.0, places=9)
    frontier = harness.start(CrawlLimits(max_pages=1))
    frontier.permits.allow(harness.crawl, 0)  # another pod has the only one
    frontier.queue.admit(harness.crawl, [page("http://b/1")])
    assert not frontier.leases.claim("me", 9)
    frontier.queue.admit(harness.crawl, [Found("http://b/robots.txt", 0, 0, 1, Purpose.ROBOTS, "http://a")])
    assert urls_of(frontier.leases.claim("me", 9)) == ["http://b/robots.txt"]
    frontier.crawls.pause(harness.crawl)
    frontier.queue.admit(harness.crawl, [Found("http://c/robots.txt", 0, 0, 1, Purpose.ROBOTS, "http://d")])
    assert not frontier.leases.claim("me", 9), "of a paused crawl nothing is requested"


def test_a_crawl_may_be_given_more_pages_while_it_runs(make: Callable[..., Harness]) -> None:
    harness = make(delay_s=0.0, places=9)
    frontier = harness.start(CrawlLimits(max_pages=2))
    no_robots(harness, *"abcd")
    frontier.queue.admit(harness.crawl, [page(f"http://{host}/1") for host in "abcd"])
    assert frontier.permits.left(harness.crawl) == 2
    for lease in frontier.leases.claim("me", 9):
        done(harness, lease)
    assert (frontier.permits.left(harness.crawl), frontier.permits.exhausted(), frontier.leases.claim("me", 9)) == (
        0,
        True,
        [],
    )
    frontier.permits.allow(harness.crawl, 3)
    assert (frontier.permits.left(harness.crawl), frontier.permits.exhausted()) == (1, False)
    done(harness, claim_one(harness))
    assert (frontier.permits.exhausted(), frontier.leases.claim("me", 9)) == (True, [])


def test_a_site_that_was_given_up_is_asked_again_when_its_time_has_come(make: Callable[..., Harness]) -> None:
    harness = make(delay_s=1.0, breaker_failures=1, breaker_reset_s=10.0, breaker_max_probes=1)
    frontier = harness.start()
    no_robots(harness, "a", "b")
    frontier.queue.admit(harness.crawl, [page(f"http://a/{number}") for number in range(3)])
    for _ in range(2):
        lease = claim_one(harness)
        cool(harness, lease, ok=False)
        frontier.leases.finish([EndedLease(lease, End.OTHER)])
        harness.advance(11)
    assert [one.item.url for one in frontier.rejected.rejections()] == ["http://a/2"]
    assert frontier.rejected.rejections() == [], "each is told once"
    frontier.queue.admit(harness.crawl, [page("http://a/late"), page("http://a/later"), page("http://b/1")])
    harness.advance(11)
    leases = frontier.leases.claim("me", 9)
    assert sorted(urls_of(leases)) == ["http://a/late", "http://b/1"], "one request tries, however many have failed"
    probe = next(lease for lease in leases if lease.key == "a")
    cool(harness, probe, ok=False)
    frontier.leases.finish([EndedLease(probe, End.RETRY)])
    late = frontier.rejected.rejections()
    assert sorted((one.item.url, one.reason) for one in late) == [
        ("http://a/late", Reason.BREAKER), ("http://a/later", Reason.BREAKER),
    ]  # fmt: skip
    frontier.rejected.end_stored([one.item.item for one in late])
    assert frontier.status.stats().queued == 0
    frontier.durability.commit()
    frontier = harness.crash((probe.item, *(one.item.item for one in late)))
    frontier.queue.admit(harness.crawl, [page("http://a/after")])
    harness.advance(11)
    assert "a" in {lease.key for lease in frontier.leases.claim("me", 9)}, "after a restart, too"


def test_a_site_is_slowed_also_after_a_restart(make: Callable[..., Harness]) -> None:
    harness = make(delay_s=2.0, places=3)
    frontier = harness.start()
    no_robots(harness, "a")
    frontier.queue.admit(harness.crawl, [page(f"http://a/{number}") for number in range(5)])
    lease = claim_one(harness)
    cool(harness, lease, ok=True, slow_down=True)
    frontier.leases.finish([EndedLease(lease, End.OTHER)])
    frontier.durability.commit()
    frontier = harness.crash()
    harness.advance(30)
    lease = claim_one(harness)
    assert lease.delay_s == 4.0
    harness.advance(30)
    assert frontier.leases.claim("me", 9) == [], "one place is left to it"


def test_sites_are_counted(make: Callable[..., Harness]) -> None:
    harness = make(delay_s=0.0, places=2)
    frontier = harness.start()
    frontier.queue.admit(harness.crawl, [page(f"http://{host}.com/{number}") for host in "abc" for number in range(3)])
    frontier.queue.admit(harness.crawl, [page("http://www.a.com/1"), page("http://d.com/1")])
    assert (frontier.status.stats().sites, frontier.status.stats().queued) == (4, 11)
    frontier.durability.commit()
    assert harness.crash().status.stats().sites == 4


def test_claiming_takes_as_many_as_are_wanted(make: Callable[..., Harness]) -> None:
    harness = make(delay_s=0.0, places=2)
    frontier = harness.start()
    no_robots(harness, *"abc")
    frontier.queue.admit(harness.crawl, [page(f"http://{host}/{number}") for host in "abc" for number in range(3)])
    assert [len(frontier.leases.claim("me", wanted)) for wanted in (0, 1, 4, 9)] == [0, 1, 4, 1]


def test_an_address_that_asks_for_nothing_has_all_its_places(make: Callable[..., Harness]) -> None:
    harness = make(key_scope="ip", delay_s=0.0, places=2)
    frontier = harness.start()
    no_robots(harness, *"abc")
    frontier.queue.admit(harness.crawl, [page(f"http://{host}/1") for host in "abc"])
    leases = frontier.leases.claim("me", 9)
    assert frontier.leases.claim_slots([SlotRequest(lease, "192.0.2.1") for lease in leases]) == [True, True, False]


def test_a_slowed_site_is_eased_by_half_after_each_row_of_good_answers(make: Callable[..., Harness]) -> None:
    harness = make(delay_s=1.0)
    frontier = harness.start()
    no_robots(harness, "a")
    frontier.queue.admit(harness.crawl, [page(f"http://a/{number}") for number in range(60)])
    delays = []
    for number in range(50):
        lease = claim_one(harness)
        delays.append(lease.delay_s)
        cool(harness, lease, ok=number > 1, slow_down=number < 2)
        frontier.leases.finish([EndedLease(lease, End.OTHER)])
        harness.advance(100)
    assert delays == [1.0, 2.0] + [4.0] * EASED_AFTER_ANSWERS + [2.0] * EASED_AFTER_ANSWERS + [1.0] * (
        48 - 2 * EASED_AFTER_ANSWERS
    )


def test_a_slowed_address_is_eased_likewise(make: Callable[..., Harness]) -> None:
    harness = make(key_scope="ip", delay_s=10.0)
    frontier = harness.start()
    no_robots(harness, "a")
    frontier.queue.admit(harness.crawl, [page(f"http://a/{number}") for number in range(60)])
    waits: list[int] = []
    for number in range(EASED_AFTER_ANSWERS + 6):
        ended_at = harness.time
        granted: list[bool] = []
        while not any(granted):
            harness.advance(1)
            leases = frontier.leases.claim("me", 9)
            granted = frontier.leases.claim_slots([SlotRequest(lease, "192.0.2.1") for lease in leases])
        waits.append(round((harness.time - ended_at) / 10) * 10)
        cool(harness, leases[0], ok=number > 0, slow_down=number == 0)
        frontier.leases.finish([EndedLease(leases[0], End.PAGE)])
    assert waits[1:] == [20] * (EASED_AFTER_ANSWERS + 1) + [10] * 4, "the answer that eases it was still waited for"


def test_a_page_that_was_stored_just_before_a_crash_frees_its_place_a_delay_later(make: Callable[..., Harness]) -> None:
    harness = make()
    frontier = harness.start()
    no_robots(harness, "a")
    frontier.queue.admit(harness.crawl, [page("http://a/1"), page("http://a/2")])
    frontier.durability.commit()
    stored = claim_one(harness)
    frontier = harness.crash(done=(stored.item,), pages=1)
    assert (frontier.status.stats().leased, frontier.status.stats().finished) == (0, 1)
    harness.advance(9.9)
    assert frontier.leases.claim("me", 9) == []
    harness.advance(1.2)  # what was sent at last may have been on its way for a second
    assert claim_one(harness).url == "http://a/2"


# ── the request log ────────────────────────────────────────────────────────────────────────────────────────────────


def logged(harness: Harness) -> list[tuple[str, int]]:
    """What the files hold now, whatever the process still has in hand."""
    events = read_events(harness.folder / "requests")
    return [
        (event.status if isinstance(event, RequestEnd) else "start", event.item)
        for event in events
        if isinstance(event, RequestStart | RequestEnd)
    ]


def test_a_request_is_in_the_log_before_its_claim_returns(make: Callable[..., Harness]) -> None:
    harness = make(delay_s=3.0, places=2)
    frontier = harness.start()
    no_robots(harness, "a", "b")
    frontier.queue.admit(harness.crawl, [page("http://a/1"), page("http://b/1")])
    leases = frontier.leases.claim("me", 9)
    assert sorted(logged(harness)) == sorted(("start", lease.item) for lease in leases)
    starts = [event for event in read_events(harness.folder / "requests") if isinstance(event, RequestStart)]
    assert {(event.key, event.delay_s, event.slots, event.url) for event in starts} == {
        ("a", 3.0, 2, "http://a/1"), ("b", 3.0, 2, "http://b/1"),
    }  # fmt: skip
    assert {round(event.at, 2) for event in starts} == {harness.time}


def test_what_expires_is_in_the_log_before_anyone_else_is_asked(make: Callable[..., Harness]) -> None:
    harness = make(lease_s=90.0)
    frontier = harness.start()
    no_robots(harness, "a", "b")
    frontier.queue.admit(harness.crawl, [page("http://a/1")])
    lease = claim_one(harness)
    harness.advance(91)
    frontier.queue.admit(harness.crawl, [page("http://b/1")])
    other = claim_one(harness)
    assert sorted(logged(harness)) == sorted([("start", lease.item), ("expired", lease.item), ("start", other.item)])


def test_what_was_not_asked_after_all_is_in_the_log_at_once(make: Callable[..., Harness]) -> None:
    harness = make()
    frontier = harness.start()
    no_robots(harness, "a", "b")
    frontier.queue.admit(harness.crawl, [page("http://a/1"), page("http://b/1")])
    first, second = frontier.leases.claim("me", 9)
    frontier.leases.finish([EndedLease(first, End.OTHER), EndedLease(second, End.RELEASE)])
    assert sorted(logged(harness))[2:] == sorted([("unasked", first.item), ("unasked", second.item)])


def test_an_end_is_logged_with_what_came_of_it(make: Callable[..., Harness]) -> None:
    harness = make()
    frontier = harness.start()
    no_robots(harness, "a", "b")
    frontier.queue.admit(harness.crawl, [page("http://a/1"), page("http://b/1")])
    first, second = frontier.leases.claim("me", 9)
    harness.advance(2)
    cool(harness, first, ok=True, outcome="200")
    cool(harness, second, ok=True)
    frontier.leases.finish([EndedLease(first, End.PAGE), EndedLease(second, End.OTHER)])
    frontier.durability.commit()
    assert sorted(logged(harness))[:2] == sorted([("200", first.item), ("-", second.item)])
    ends = [event for event in read_events(harness.folder / "requests") if isinstance(event, RequestEnd)]
    assert {round(event.at, 2) for event in ends} == {harness.time}


# ── what is queued ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_everything_that_is_queued_can_be_listed(make: Callable[..., Harness]) -> None:
    harness = make(delay_s=0.0, places=9)
    frontier = harness.start()
    other = frontier.crawls.open_crawl("other", CrawlLimits())
    https_robots(harness, "a.test")
    found = [
        Found("https://a.test/1", 2, 17, offsite=1),
        Found("https://a.test/2", 3, 18, 2, about="https://a.test/x"),
        Found("https://a.test/map.xml", 0, purpose=Purpose.SITEMAP, about="https://a.test"),
        Found("https://b.test/1", 0),
    ]
    frontier.queue.admit(harness.crawl, found)
    frontier.queue.admit(other, [Found("https://a.test/other", 0)])
    listed = sorted(frontier.queue.items(harness.crawl), key=lambda item: item.url)
    assert [as_found(one) for one in listed] == sorted(found, key=lambda one: one.url)
    assert [item.url for item in frontier.queue.items(other)] == ["https://a.test/other"]
    by_url = {item.url: item.item for item in listed}
    leased = [lease for lease in frontier.leases.claim("me", 9) if lease.purpose is not Purpose.ROBOTS]
    assert all(by_url.get(lease.url, lease.item) == lease.item for lease in leased)


def test_rejected_items_are_reported_as_they_were_found(make: Callable[..., Harness]) -> None:
    harness = make(max_retry_after_s=60.0)
    frontier = harness.start()
    frontier.queue.admit(harness.crawl, [Found("https://a.test/0", 1)])
    robots = claim_one(harness)
    found = [Found("https://a.test/1", 2, 17, offsite=1), Found("https://a.test/2", 3, 18, 2, about="https://a.test/x")]
    frontier.queue.admit(harness.crawl, found)
    cool(harness, robots, slow_down=True, retry_after_s=3600.0)
    rejected = sorted(frontier.rejected.rejections(), key=lambda one: one.item.url)
    assert [as_found(one.item) for one in rejected] == [Found("https://a.test/0", 1), *found]
    assert {(one.crawl, one.reason) for one in rejected} == {(harness.crawl, Reason.RETRY_AFTER)}
    frontier.rejected.end_stored([one.item.item for one in rejected])
    frontier.leases.finish([EndedLease(robots, End.OTHER)])
    frontier.durability.commit()
    assert harness.crash().status.stats().queued == 0


def test_a_robots_txt_that_asks_for_the_same_delay_again_puts_nothing_off(make: Callable[..., Harness]) -> None:
    harness = make(delay_s=1.0)
    frontier = harness.start()
    frontier.sites.robots_known("http://a", ALLOW, 30.0)
    frontier.queue.admit(harness.crawl, [page("http://a/1")])
    harness.advance(31)
    frontier.sites.robots_known("http://a", ALLOW, 30.0)
    assert claim_one(harness).url == "http://a/1"
