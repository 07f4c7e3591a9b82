"""Embedded frontiers of several processes on one machine: together they keep each crawl's delay, and take turns."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from harnesses import ALLOW, EmbeddedHarness, pages

from weft.frontier.clock import MachineClock
from weft.frontier.contract import End, EndedLease, SlotRequest, TransferEnd
from weft.frontier.embedded.embedded_frontier import EmbeddedFrontier
from weft.records import Lease

Make = Callable[..., list["Process"]]


class Process(EmbeddedHarness):
    """A process with a frontier of its own, on the machine's clock."""

    number = 0

    def __init__(self, folder: Path, number: int, **politeness: Any) -> None:
        self.number = number
        self.out: list[tuple[float, Lease]] = []
        super().__init__(folder / str(number), **politeness)

    def _make(self, **clocks: Any) -> EmbeddedFrontier:
        machine = MachineClock(self.folder.parent / "clock", me=os.getpid() << 32 | self.number + 1)
        return EmbeddedFrontier(self.folder, self.section, machine=machine, **clocks)

    def step(self, transfer_s: float, retry_after_s: float | None = None, address: str = "") -> list[float]:
        """Ends what is over, and sends what may be sent; when that was."""
        sent = []
        for one in [one for one in self.out if one[0] <= self.time]:
            self.out.remove(one)
            slow = retry_after_s is not None
            self.frontier.leases.cool(
                [TransferEnd(one[1], one[0], ok=not slow, slow_down=slow, retry_after_s=retry_after_s)]
            )
            self.frontier.leases.finish([EndedLease(one[1], End.PAGE)])
        for lease in self.frontier.leases.claim("me", 10):
            if not address or self.frontier.leases.claim_slots([SlotRequest(lease, address, 0.0)]) == [True]:
                self.out.append((self.time + transfer_s, lease))
                sent.append(self.time)
        return sent


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[Process] = []

    def build(*settings: dict[str, Any]) -> list[Process]:
        made.extend(Process(tmp_path, number, **one) for number, one in enumerate(settings))
        for process in made:
            process.start()
            for host in "ab":
                process.frontier.sites.robots_known(f"http://{host}", ALLOW, None)
        return made

    yield build
    for process in made:
        process.close()


def live(processes: list[Process], seconds: float, **how: Any) -> list[tuple[float, int]]:
    """What was sent when, and by whom, while the time goes on for all."""
    sent: list[tuple[float, int]] = []
    for _ in range(int(seconds * 20)):
        for process in processes:
            sent += [(at, process.number) for at in process.step(**how)]
            process.advance(0.05)
    return sent


def test_two_of_them_take_turns_and_keep_the_delay_from_the_end(make: Make) -> None:
    processes = make({"delay_s": 1.0}, {"delay_s": 1.0})
    for process in processes:
        process.frontier.queue.admit(process.crawl, pages("a", 40))
    sent = live(processes, 30, transfer_s=0.5)
    assert min(later - earlier for (earlier, _), (later, _) in pairwise(sent)) >= 1.5 - 0.001
    counts = Counter(whose for _, whose in sent)
    assert len(sent) >= 17 and abs(counts[0] - counts[1]) <= 2, counts


def test_the_asking_crawls_delay_counts(make: Make) -> None:
    processes = make({"delay_s": 0.5}, {"delay_s": 4.0})
    for process in processes:
        process.frontier.queue.admit(process.crawl, pages("a", 200))
    sent = live(processes, 60, transfer_s=0.1)
    for (before, _), (at, whose) in pairwise(sent):
        assert at - before >= 0.1 + (0.5, 4.0)[whose] - 0.001
    counts = Counter(whose for _, whose in sent)
    assert counts[1] >= 1 and counts[0] >= 40, counts


def test_what_is_in_flight_keeps_out_only_those_who_want_to_be_alone(make: Make) -> None:
    alone, several = make({"delay_s": 0.2}, {"delay_s": 0.2, "places": 4})
    for process in (alone, several):
        process.frontier.queue.admit(process.crawl, pages("a", 9))
    assert len(alone.step(transfer_s=30)) == 1
    for process in (alone, several):
        process.advance(1.0)
    assert len(several.step(transfer_s=0.1)) == 1, "it may be one of several"


def test_one_that_wants_to_be_alone_waits_for_anothers_request(make: Make) -> None:
    first, second = make({"delay_s": 0.2}, {"delay_s": 0.2})
    for process in (first, second):
        process.frontier.queue.admit(process.crawl, pages("a", 9))
    first.step(transfer_s=5)
    for _ in range(80):
        for process in (first, second):
            process.advance(0.05)
        assert second.step(transfer_s=0.1) == [], "the other's request is in flight"
    sent = live([first, second], 5, transfer_s=0.1)
    assert {whose for _, whose in sent} == {0, 1}


def test_a_retry_after_binds_all(make: Make) -> None:
    processes = make({"delay_s": 0.5}, {"delay_s": 0.5})
    for process in processes:
        process.frontier.queue.admit(process.crawl, pages("a", 9))
    first = live(processes, 1, transfer_s=0.2, retry_after_s=60.0)
    assert len(first) == 1
    assert live(processes, 55, transfer_s=0.2) == []
    assert len(live(processes, 10, transfer_s=0.2)) > 3


def test_what_was_given_back_unasked_holds_nobody_up(make: Make) -> None:
    first, second = make({"delay_s": 0.2}, {"delay_s": 0.2})
    for process in (first, second):
        process.frontier.queue.admit(process.crawl, pages("a", 3))
    (lease,) = first.frontier.leases.claim("me", 1)
    first.frontier.leases.finish([EndedLease(lease, End.RELEASE)])
    first.frontier.crawls.pause(first.crawl)
    assert [whose for _, whose in live([first, second], 3, transfer_s=0.1)] == [1, 1, 1]


def test_an_address_is_asked_by_one_of_them_at_a_time(make: Make) -> None:
    processes = make(*[{"delay_s": 1.0, "key_scope": "ip"}] * 2)
    for process, host in zip(processes, "ab", strict=True):
        process.frontier.queue.admit(process.crawl, pages(host, 20))
    sent = live(processes, 20, transfer_s=0.3, address="192.0.2.1")
    assert min(later - earlier for (earlier, _), (later, _) in pairwise(sent)) >= 1.3 - 0.001
    assert len(sent) >= 12 and set(Counter(whose for _, whose in sent)) == {0, 1}


def test_who_has_a_place_at_an_address_keeps_it_at_the_very_end_of_too_long_a_wait(make: Make) -> None:
    """Another process waits for the address: a place that was given back would be its own."""
    settings = {"key_scope": "ip", "max_retry_after_s": 60.0}
    first, second = make(settings, settings)
    first.frontier.queue.admit(first.crawl, pages("a", 1))
    (lease,) = first.frontier.leases.claim("me", 9)
    assert first.frontier.leases.claim_slots([SlotRequest(lease, "192.0.2.1", 0.0)]) == [True]
    first.frontier.leases.cool([TransferEnd(lease, first.time, slow_down=True, retry_after_s=100.0)])
    first.frontier.leases.finish([EndedLease(lease, End.OTHER)])
    for process in (first, second):
        process.advance(100.0)
    first.frontier.queue.admit(first.crawl, pages("a", 2))
    (mine,) = first.frontier.leases.claim("me", 9)
    second.frontier.queue.admit(second.crawl, pages("b", 1))
    (theirs,) = second.frontier.leases.claim("me", 9)
    assert second.frontier.leases.claim_slots([SlotRequest(theirs, "192.0.2.1", 0.0)]) == [False]
    assert first.frontier.leases.claim_slots([SlotRequest(mine, "192.0.2.1", 0.0)]) == [True]


def test_a_crawl_that_waits_for_another_on_the_machine_says_so(make: Make) -> None:
    first, second = make({"delay_s": 30.0}, {"delay_s": 30.0})
    for process in (first, second):
        process.frontier.queue.admit(process.crawl, pages("a", 2))
    assert first.step(transfer_s=0.5) and not second.step(transfer_s=0.5)
    assert first.frontier.status.waits_for(first.crawl) is None, "its request is in flight"
    for process in (first, second):
        process.advance(3.0)
    assert not second.step(transfer_s=0.5)
    waiting = second.frontier.status.waits_for(second.crawl)
    assert waiting is not None and waiting.cause == "another crawl on this machine is asking a"
    live([first, second], 40.0, transfer_s=0.5)
    assert not second.out and second.frontier.status.stats().queued == 1, "it has had its turn"
    waiting = second.frontier.status.waits_for(second.crawl)
    assert waiting is not None and "delay" in waiting.cause


def test_a_site_that_asks_for_silence_for_centuries_silences_no_other_crawl_for_good(make: Make) -> None:
    first, second = make({"delay_s": 1.0}, {"delay_s": 1.0})
    for process in (first, second):
        process.frontier.queue.admit(process.crawl, pages("a", 2))
    assert first.step(transfer_s=0.0)
    first.step(transfer_s=0.0, retry_after_s=9_999_999_999.0)
    for process in (first, second):
        process.advance(599.0)
    assert not second.step(transfer_s=0.0)
    second.advance(1.1)
    assert second.step(transfer_s=0.0)
