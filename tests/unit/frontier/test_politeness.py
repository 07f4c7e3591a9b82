"""One politeness clock: its places, how it is slowed and eased, its breaker, and what an address's sites share."""

from __future__ import annotations

from typing import Any

import pytest

from weft.config import PolitenessSection
from weft.frontier.politeness import (
    EASED_AFTER_ANSWERS,
    MOST_EXTRA_DELAY_S,
    AddressClock,
    PolitenessClock,
    Responsiveness,
)


def section(**settings: Any) -> PolitenessSection:
    return PolitenessSection(**({"delay_s": 4.0, "places": 1} | settings))


HOST = "http://a"


def good_answers(clock: PolitenessClock, count: int, rules: PolitenessSection) -> list[float]:
    """The delay after each of so many good answers."""
    delays = []
    for item in range(count):
        clock.answered(item, True, 0.0, rules, HOST)
        delays.append(clock.delay_s(rules))
    return delays


def fail(clock: PolitenessClock, items: list[int], rules: PolitenessSection, at: float = 100.0) -> None:
    for item in items:
        clock.answered(item, False, at, rules, HOST)


def test_a_new_clock_is_free_at_once() -> None:
    clock, rules = PolitenessClock(), section(places=2)
    assert (clock.due, clock.delay_s(rules), clock.places(rules), clock.has_room(rules)) == (0.0, 4.0, 2, True)
    assert not clock.is_given_up(rules, HOST) and clock.held_until() == 0.0
    address = AddressClock("192.0.2.1")
    assert (address.due, address.long_until, address.parked) == (0.0, 0.0, {})


@pytest.mark.parametrize("places", [1, 2, 3])
def test_there_is_room_for_as_many_requests_as_places_and_not_one_more(places: int) -> None:
    clock, rules = PolitenessClock(), section(places=places)
    for _ in range(places):
        assert clock.has_room(rules)
        clock.started(0.0)
    assert not clock.has_room(rules)
    clock.active -= 1
    assert clock.has_room(rules)


def test_with_one_place_the_delay_counts_from_the_end_and_with_more_from_the_start() -> None:
    one, several = PolitenessClock(), PolitenessClock()
    one.started(10.0)
    assert one.due_for(section()) == 0.0
    one.ended(15.0)
    assert one.due_for(section()) == 19.0
    rules = section(places=2)
    several.started(10.0)
    assert several.due_for(rules) == 14.0
    several.ended(15.0)
    assert several.due_for(rules) == 14.0
    assert several.due_for(section(delay_s=9.0)) == 24.0, "each asks with its own delay, from anyone's last request"


def test_a_clock_never_goes_back() -> None:
    clock, rules = PolitenessClock(1000.0), section(breaker_failures=1)
    clock.started(10.0)
    clock.ended(10.0)
    clock.slow_down(10.0, 5.0, rules)
    fail(clock, [1], rules, at=10.0)
    assert clock.due == 1000.0
    address = AddressClock("192.0.2.1", 1000.0)
    address.ended(10.0)
    address.wants(50.0)
    address.joined(PolitenessClock(500.0))
    assert address.due == 1000.0


def test_a_site_that_asks_for_less_gets_one_place_and_twice_the_delay_up_to_a_minute() -> None:
    clock, rules = PolitenessClock(), section(places=3)
    slower = []
    for _ in range(5):
        clock.slow_down(0.0, None, rules)
        slower.append(clock.delay_s(rules))
    assert slower == [8.0, 16.0, 32.0, MOST_EXTRA_DELAY_S, MOST_EXTRA_DELAY_S]
    assert clock.places(rules) == 1
    assert clock.due == MOST_EXTRA_DELAY_S


def test_a_site_without_a_delay_is_slowed_to_a_second() -> None:
    clock = PolitenessClock()
    clock.slow_down(100.0, None, section(delay_s=0.0))
    assert (clock.extra_s, clock.due) == (1.0, 101.0)


def test_retry_after_counts_where_it_is_longer_than_the_slower_delay() -> None:
    for retry_after_s, due in ((None, 108.0), (0.5, 108.0), (30.0, 130.0)):
        clock = PolitenessClock()
        clock.slow_down(100.0, retry_after_s, section())
        assert clock.due == due


def test_a_slowed_site_is_eased_by_half_after_each_row_of_good_answers() -> None:
    clock, rules = PolitenessClock(), section()
    clock.slow_down(0.0, None, rules)
    clock.slow_down(0.0, None, rules)
    assert good_answers(clock, EASED_AFTER_ANSWERS - 1, rules) == [16.0] * (EASED_AFTER_ANSWERS - 1)
    assert good_answers(clock, EASED_AFTER_ANSWERS, rules) == [8.0] * EASED_AFTER_ANSWERS
    assert good_answers(clock, EASED_AFTER_ANSWERS, rules) == [4.0] * EASED_AFTER_ANSWERS
    assert clock.extra_s == 0.0, "at twice the usual delay the next step is the usual one"
    assert clock.places(section(places=3)) == 1, "it has said once that it wants less"


def test_only_good_answers_since_it_was_slowed_count() -> None:
    clock, rules = PolitenessClock(), section()
    good_answers(clock, EASED_AFTER_ANSWERS - 1, rules)
    assert clock.delay_s(rules) == 4.0
    clock.slow_down(0.0, None, rules)
    assert good_answers(clock, EASED_AFTER_ANSWERS, rules) == [8.0] * (EASED_AFTER_ANSWERS - 1) + [4.0]


def test_a_site_that_was_slowed_before_a_restart_is_eased_as_late_as_any() -> None:
    clock, rules = PolitenessClock(), section()
    clock.extra_s = 8.0
    assert good_answers(clock, EASED_AFTER_ANSWERS, rules) == [8.0] * (EASED_AFTER_ANSWERS - 1) + [4.0]


def test_a_failure_does_not_ease_a_slowed_site() -> None:
    clock, rules = PolitenessClock(), section(breaker_failures=1000)
    clock.slow_down(0.0, None, rules)
    fail(clock, list(range(EASED_AFTER_ANSWERS * 2)), rules)
    assert clock.delay_s(rules) == 8.0


def probe(clock: PolitenessClock, item: int, rules: PolitenessSection, at: float, name: str = HOST) -> None:
    """A request of an open breaker fails."""
    breaker = clock.breaker(name)
    assert breaker is not None and breaker.open_until
    breaker.probe = item
    clock.answered(item, False, at, rules, name)


def test_the_breaker_opens_at_the_wanted_number_of_failures_in_a_row() -> None:
    clock, rules = PolitenessClock(), section(breaker_failures=3, breaker_reset_s=300.0, places=2)
    fail(clock, [1, 2], rules)
    clock.answered(3, True, 100.0, rules, HOST)
    fail(clock, [4, 5], rules)
    assert clock.held_until() == 0.0, "a good answer in between"
    fail(clock, [6], rules)
    assert (clock.held_until(), clock.due_for(rules), clock.places(rules)) == (400.0, 0.0, 2), "others are not held up"


def test_an_open_breaker_counts_probes_and_nothing_that_was_in_flight_when_it_opened() -> None:
    clock, rules = PolitenessClock(), section(breaker_failures=2, breaker_reset_s=300.0, breaker_max_probes=2)
    fail(clock, [1, 2, 3, 4, 5, 6], rules)
    assert clock.held_until() == 400.0 and not clock.is_given_up(rules, HOST)
    fail(clock, [7], rules, at=300.0)
    assert clock.held_until() == 400.0, "one that was sent before says nothing new"
    probe(clock, 8, rules, at=400.0)
    assert (clock.held_until(), clock.is_given_up(rules, HOST)) == (700.0, False)
    probe(clock, 9, rules, at=700.0)
    assert (clock.held_until(), clock.is_given_up(rules, HOST)) == (1000.0, True)
    probe(clock, 10, rules, at=1000.0)
    assert clock.held_until() == 1300.0, "it is tried again after each wait"


def test_a_good_probe_closes_the_breaker_and_forgets_the_bad_ones() -> None:
    clock, rules = PolitenessClock(), section(breaker_failures=2, breaker_max_probes=2)
    fail(clock, [1, 2], rules)
    probe(clock, 3, rules, at=400.0)
    clock.answered(4, True, 500.0, rules, HOST)
    assert clock.held_until() == 0.0
    fail(clock, [5], rules, at=500.0)
    assert clock.held_until() == 0.0, "one failure opens nothing"
    fail(clock, [6], rules, at=500.0)
    probe(clock, 7, rules, at=800.0)
    assert not clock.is_given_up(rules, HOST), "the next probe is the first again"


def test_each_trust_origin_and_port_has_a_breaker_of_its_own_and_all_have_one_clock() -> None:
    clock, rules = PolitenessClock(), section(breaker_failures=2, breaker_reset_s=300.0, breaker_max_probes=1, places=2)
    names = ("proxy http://a", "http://a", "http://a:8080", "https://a", "http://b.a")
    for item in (1, 2):
        clock.answered(item, False, 100.0, rules, names[0])
    clock.ended(100.0)
    assert [name for name in names if clock.breaker(name) is not None] == [names[0]]
    clock.answered(3, True, 120.0, rules, "http://a")
    assert clock.held_until() == 400.0, "another's good answer closes nothing"
    probe(clock, 4, rules, 400.0, names[0])
    assert [name for name in names if clock.is_given_up(rules, name)] == [names[0]]
    clock.slow_down(400.0, 500.0, rules)
    assert (clock.due_for(rules), clock.places(rules)) == (900.0, 1), "Retry-After binds all"


def test_failures_before_the_breaker_opened_do_not_count_after_it() -> None:
    clock, rules = PolitenessClock(), section(breaker_failures=2, breaker_reset_s=300.0)
    fail(clock, [1, 2], rules)
    clock.answered(3, True, 400.0, rules, HOST)
    fail(clock, [4], rules, at=400.0)
    assert clock.held_until() == 0.0


def test_a_domain_of_very_many_hosts_that_fail_keeps_some_of_their_breakers_the_open_ones_first() -> None:
    clock, rules = PolitenessClock(), section(breaker_failures=1)
    clock.answered(1, False, 100.0, rules, "http://dead.a")
    many = section(breaker_failures=5)
    for number in range(1000):
        clock.answered(number, False, 100.0, many, f"http://h{number}.a")
    assert clock.breakers is not None and len(clock.breakers) <= 200
    assert {"http://dead.a", "http://h999.a"} <= clock.breakers.keys()


@pytest.mark.parametrize("retry_after_s", [600.0, 601.0, 9_999_999_999.0])
def test_no_retry_after_is_waited_for_longer_than_the_settings_allow(retry_after_s: float) -> None:
    clock = PolitenessClock()
    clock.slow_down(100.0, retry_after_s, section(max_retry_after_s=600.0))
    assert clock.due == 700.0


def test_an_address_remembers_the_last_end_for_a_site_that_wants_more() -> None:
    address, rules = AddressClock("192.0.2.1"), section(places=2)
    address.ended(50.0)
    address.ended(40.0)
    address.wants(30.0)
    assert (address.due, address.delay_s(rules), address.places(rules)) == (80.0, 30.0, 1)
    address.wants(20.0)
    assert address.delay_s(rules) == 30.0


def test_an_address_keeps_the_delay_from_the_end() -> None:
    address = AddressClock("192.0.2.1")
    address.started(10.0)
    address.ended(50.0)
    assert (address.due_for(section()), address.active) == (54.0, 1)


@pytest.mark.parametrize(("retry_after_s", "due", "long_until"), [(600.0, 700.0, 0.0), (601.0, 108.0, 701.0)])
def test_a_wait_that_is_too_long_is_not_waited_for_at_an_address(
    retry_after_s: float, due: float, long_until: float
) -> None:
    address = AddressClock("192.0.2.1")
    address.slow_down(100.0, retry_after_s, section(max_retry_after_s=600.0))
    assert (address.due, address.long_until) == (due, long_until)


def test_an_address_that_names_no_wait_is_only_slowed() -> None:
    address = AddressClock("192.0.2.1")
    address.slow_down(100.0, None, section(max_retry_after_s=0.0))
    assert (address.due, address.long_until) == (108.0, 0.0)


@pytest.mark.parametrize("address_first", [True, False])
def test_an_address_takes_over_what_its_site_was_held_to(address_first: bool) -> None:
    rules = section(places=3)
    slowed, plain = (
        (AddressClock("192.0.2.1"), PolitenessClock())
        if address_first
        else (PolitenessClock(), AddressClock("192.0.2.1"))
    )
    slowed.slow_down(100.0, None, rules)
    address, site = (slowed, plain) if address_first else (plain, slowed)
    assert isinstance(address, AddressClock)
    address.joined(site)
    assert (address.places(rules), address.delay_s(rules), address.due) == (1, 8.0, 108.0)


def test_an_address_takes_over_a_sites_crawl_delay() -> None:
    address, site, rules = AddressClock("192.0.2.1"), PolitenessClock(90.0), section(places=3)
    site.crawl_delay_s = 25.0
    address.joined(site)
    assert (address.places(rules), address.delay_s(rules), address.due) == (1, 25.0, 90.0)


def test_sites_that_asked_for_nothing_leave_an_address_its_places() -> None:
    address, rules = AddressClock("192.0.2.1"), section(places=3)
    address.joined(PolitenessClock())
    assert (address.places(rules), address.delay_s(rules), address.due) == (3, 4.0, 0.0)


# ── what a site has shown ──────────────────────────────────────────────────────────────────────────────────────────


def test_a_fault_that_has_passed_is_forgotten_sooner_than_a_limit() -> None:
    rules = section(delay_s=1.0)
    ill, limited = PolitenessClock(), PolitenessClock()
    for clock in (ill, limited):
        for at in range(5):
            clock.slow_down(float(at), None, rules, in_trouble=clock is ill)
        assert clock.delay_s(rules) == 32.0
    assert good_answers(ill, 3, rules) == [8.0, 2.0, 1.0]
    assert good_answers(limited, EASED_AFTER_ANSWERS, rules) == [32.0] * (EASED_AFTER_ANSWERS - 1) + [16.0]
    ill.slow_down(9.0, None, rules, in_trouble=True)
    ill.slow_down(9.0, None, rules)
    assert good_answers(ill, 3, rules) == [4.0] * 3, "what it said last counts"


def test_a_site_is_what_its_last_answers_were() -> None:
    clock, rules = PolitenessClock(), section()
    seen = [clock.shown]
    for seconds in (0.2, *[9.0] * 20, None, 0.1):
        clock.took(seconds, rules)
        seen.append(clock.shown)
    assert (seen[0], seen[1], seen[21], seen[22]) == (
        Responsiveness.UNKNOWN,
        Responsiveness.FINE,
        Responsiveness.SLOW,
        Responsiveness.UNKNOWN,
    )
    assert seen[23] is Responsiveness.FINE, "it begins anew"


def test_a_site_that_slows_down_is_asked_no_more_often_than_it_answers() -> None:
    clock, rules = PolitenessClock(), section(delay_s=1.0)
    for _ in range(50):
        clock.took(0.2, rules)
    assert clock.delay_s(rules) == 1.0
    delays = []
    for _ in range(12):
        clock.took(6.0, rules)
        delays.append(clock.delay_s(rules))
    assert delays[0] == pytest.approx(1.65) and delays == sorted(delays) and 5.5 < delays[-1] < 6.0
    clock.ended(500.0)
    due = clock.due_for(rules)
    for _ in range(20):
        clock.took(0.2, rules)
        assert clock.due_for(rules) >= due, "a time that was set is never taken back"
    assert clock.delay_s(rules) == 1.0


def test_a_site_that_was_always_slow_has_not_slowed_down_and_small_times_do_not_count() -> None:
    rules = section(delay_s=1.0)
    steady, quick = PolitenessClock(), PolitenessClock()
    for _ in range(9):
        steady.took(8.0, rules)
    steady.took(14.0, rules)
    quick.took(0.01, rules)
    for _ in range(9):
        quick.took(0.9, rules)
    assert (steady.delay_s(rules), quick.delay_s(rules)) == (1.0, 1.0)


def test_what_lasts_becomes_usual_and_no_delay_is_longer_than_the_longest() -> None:
    clock, rules = PolitenessClock(), section(delay_s=1.0)
    clock.took(0.1, rules)
    for _ in range(30):
        clock.took(500.0, rules)
    assert clock.delay_s(rules) <= MOST_EXTRA_DELAY_S
    for _ in range(200):
        clock.took(500.0, rules)
    assert clock.delay_s(rules) == 1.0


@pytest.mark.parametrize(("usual_s", "late"), [(0.08, 25), (0.11, 24)])
def test_a_slower_pace_is_the_usual_one_after_so_many_answers(usual_s: float, late: int) -> None:
    """Each answer counts for a 64th of what is usual, as in the frontier on Redis."""
    clock, rules, lags = PolitenessClock(), section(delay_s=1.0), 0
    clock.took(usual_s, rules)
    for _ in range(60):
        clock.took(8.0, rules)
        lags += clock.lag_s > 0.0
    assert lags == late


def test_a_crawl_without_a_delay_is_not_slowed_by_late_answers() -> None:
    clock, rules = PolitenessClock(), section(delay_s=0.0)
    clock.took(0.1, rules)
    for _ in range(5):
        clock.took(9.0, rules)
    assert clock.delay_s(rules) == 0.0


@pytest.mark.parametrize("site_last", [True, False])
def test_an_address_counts_from_the_last_request_of_its_own_and_of_its_site(site_last: bool) -> None:
    address, site = AddressClock("192.0.2.1"), PolitenessClock()
    for clock, at in ((address, 100.0), (site, 130.0 if site_last else 70.0)):
        clock.started(at)
        clock.ended(at + 5.0)
    address.joined(site)
    assert (address.due_for(section(places=2)), address.due_for(section())) == (
        (134.0, 139.0) if site_last else (104.0, 109.0)
    )


def test_a_clock_is_held_until_the_last_of_its_breakers_lets_a_request_through() -> None:
    clock, rules = PolitenessClock(), section(breaker_failures=1, breaker_reset_s=300.0)
    for name, at in (("http://a", 100.0), ("proxy http://a", 150.0), ("http://a:81", 120.0)):
        clock.answered(1, False, at, rules, name)
        assert clock.held_until() == 450.0 - 50.0 * (name == "http://a")


@pytest.mark.parametrize(("recent_s", "lag_s"), [(11.0, 0.0), (11.5, 9.375)])
def test_a_site_lags_from_more_than_three_times_the_usual_on(recent_s: float, lag_s: float) -> None:
    clock = PolitenessClock()
    clock.usual_s, clock.recent_s = 3.0, recent_s
    clock.took(3.0, section())
    assert clock.lag_s == lag_s


def test_a_site_that_answers_in_no_time_has_answered_and_may_slow_down() -> None:
    clock, rules = PolitenessClock(), section()
    clock.took(0.0, rules)
    assert (clock.shown, clock.lag_s) == (Responsiveness.FINE, 0.0)
    clock.took(8.0, rules)
    assert (clock.recent_s, clock.usual_s, clock.lag_s) == (2.0, 0.125, 2.0)


def test_an_answer_of_a_second_is_not_held_against_a_site() -> None:
    clock = PolitenessClock()
    clock.usual_s, clock.recent_s = 0.1, 1.0
    clock.took(1.0, section())
    assert (clock.recent_s, clock.lag_s) == (1.0, 0.0)


def test_each_crawl_waits_by_its_own_delay_at_a_site_that_answers_as_ever() -> None:
    clock, slow, quick = PolitenessClock(), section(delay_s=9.0), section(delay_s=1.0)
    clock.ended(10.0)
    for item in range(EASED_AFTER_ANSWERS):
        clock.took(0.5, slow)
        clock.answered(item, True, 10.0, slow, HOST)
    assert (clock.due_for(quick), clock.due_for(slow)) == (11.0, 19.0)


@pytest.mark.parametrize("in_trouble", [True, False])
def test_the_shorter_delay_of_a_site_that_is_eased_counts_from_the_next_request_on(in_trouble: bool) -> None:
    clock, rules = PolitenessClock(), section()
    for _ in range(3):
        clock.slow_down(0.0, None, rules, in_trouble=in_trouble)
    clock.ended(500.0)
    good_answers(clock, EASED_AFTER_ANSWERS, rules)
    assert clock.delay_s(rules) < 32.0 and clock.due_for(rules) == 532.0, "a time that was set is never taken back"
