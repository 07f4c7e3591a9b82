"""The places of addresses, as the pods ask for them (lua/address.lua): who may ask now, who comes when, and what an
address has asked for. Times are microseconds there, and seconds here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from weft.config import PolitenessSection
from weft.frontier.contract import CrawlLimits
from weft.frontier.redis.connection import connect
from weft.frontier.redis.redis_frontier import RedisFrontier
from weft.supervise.redis_server import RedisServer

SITE = "192.0.2.1"


class Places:
    """The pod that keeps an address's places, under a clock that the test moves."""

    def __init__(self, folder: Path, server: RedisServer, **politeness: Any) -> None:
        self.time = 1000.0
        self.client: Any = connect(server.url)
        self.client.flushall()
        settings: dict[str, Any] = {"delay_s": 10.0, "places": 1, "lease_s": 60.0, "max_retry_after_s": 100.0}
        self._section = PolitenessSection(**(settings | politeness))
        self._frontier = RedisFrontier(
            connect(server.url), folder, self._section, slot="pod0-fetcher0",
            clock=lambda: self.time, wall=lambda: self.time, server_clock=lambda: self.time,
        )  # fmt: skip
        self._frontier.crawls.open_crawl("test", CrawlLimits())
        self._numbers = 0
        self.held: dict[str, list[int]] = {}

    def take(self, owner: str = "s0#1", pod: int = 0, crawl_delay_s: float = 0.0) -> float | str | None:
        """None: it has its place; else how long it must wait, or that nobody waits so long."""
        self._numbers += 1
        own = [int(self._section.delay_s * 1e6), self._section.places]
        asked: list[Any] = ["take", owner, pod, SITE, self._numbers, int(crawl_delay_s * 1e6), *own]
        (answer,) = self._frontier.pod.call_address_slots(asked)
        if answer == b"y":
            self.held.setdefault(owner, []).append(self._numbers)
            return None
        return "x" if answer == b"x" else int(answer) / 1e6

    def end(
        self, owner: str = "s0#1", *, age_s: float | None = 0.0, ok: bool = True, slow: bool = False,
        retry_after_s: float = 0.0, crawl_delay_s: float = 0.0,
    ) -> None:  # fmt: skip
        age = "-" if age_s is None else int(age_s * 1e6)
        number = self.held[owner].pop(0)
        told: list[Any] = [SITE, number, age, int(ok), int(slow), int(retry_after_s * 1e6), ""]
        told += [int(crawl_delay_s * 1e6), int(self._section.delay_s * 1e6)]
        for _ in range(2):  # it may be told again
            assert self._frontier.pod.call_address_slots(["end", owner, *told]) == []

    def release(self, owner: str, slot: str) -> None:
        assert self._frontier.pod.call_address_slots(["release", owner, slot]) == []

    def close(self) -> None:
        self._frontier.close()
        self.client.close()


@pytest.fixture
def make(tmp_path: Path, shared_server: Callable[[str], RedisServer]) -> Iterator[Callable[..., Places]]:
    made: list[Places] = []

    def build(**politeness: Any) -> Places:
        made.append(Places(tmp_path / str(len(made)), shared_server("redis"), **politeness))
        return made[-1]

    yield build
    for places in made:
        places.close()


def test_with_one_place_the_delay_counts_from_the_end(make: Callable[..., Places]) -> None:
    places = make()
    assert places.take() is None
    assert places.take() == 10.0, "what is under way ends later than now"
    places.time += 5.0
    places.end(age_s=2.0)
    assert places.take() == 8.0, "counted from when it ended, not from when that was told"
    places.time += 7.999
    assert places.take() == pytest.approx(0.001)
    places.time += 0.001
    assert places.take() is None


def test_with_several_places_the_delay_counts_from_the_start(make: Callable[..., Places]) -> None:
    places = make(places=2)
    assert places.take() is None
    assert places.take() == 10.0
    places.time += 10.0
    assert places.take() is None
    places.time += 10.0
    assert places.take() == 10.0, "both places are taken"
    places.end()
    assert places.take() is None
    places.time += 10.0
    assert isinstance(places.take(), float), "one place was given back, and is taken again"


def test_a_place_that_was_not_used_is_free_at_once(make: Callable[..., Places]) -> None:
    places = make()
    assert places.take() is None
    places.end(age_s=None)
    assert places.take() is None


def test_the_longest_delay_of_an_address_holds_for_all(make: Callable[..., Places]) -> None:
    places = make(places=3)
    assert places.take(crawl_delay_s=40.0) is None
    places.end()
    assert places.take() == 40.0
    assert places.take(crawl_delay_s=25.0) == 40.0
    places.time += 40.0
    assert places.take() is None
    assert places.take() == 40.0, "who asks for a delay gets one request at a time"
    places.end(crawl_delay_s=55.0)
    assert places.take() == 55.0


def test_an_address_that_asks_for_less_is_slowed_and_eased(make: Callable[..., Places]) -> None:
    places = make(delay_s=8.0)
    waits = []
    for _ in range(4):
        assert places.take() is None
        places.end(slow=True, ok=False)
        wait = places.take()
        assert isinstance(wait, float)
        waits.append(wait)
        places.time += wait
    assert waits == [16.0, 32.0, 60.0, 60.0]
    eased = []
    for _ in range(61):
        assert places.take() is None
        places.end()
        wait = places.take()
        assert isinstance(wait, float)
        eased.append(wait)
        places.time += wait
    # A shorter delay counts from the next request on.
    assert eased == [60.0] * 20 + [30.0] * 20 + [15.0] * 20 + [8.0]


def test_good_answers_of_an_address_that_was_never_slowed_change_nothing(make: Callable[..., Places]) -> None:
    places = make(places=2)
    for _ in range(20):
        assert places.take() is None
        places.time += 4.0
        places.end()
        assert places.take() == 6.0, "from the start of the last one"
        places.time += 6.0


def test_an_address_without_a_delay_is_slowed_to_a_second(make: Callable[..., Places]) -> None:
    places = make(delay_s=0.0)
    assert places.take() is None
    places.end(slow=True, ok=False)
    assert places.take() == 1.0


@pytest.mark.parametrize(("retry_after_s", "answer"), [(90.0, 90.0), (100.0, 100.0), (101.0, "x"), (5.0, 20.0)])
def test_a_retry_after_is_waited_for_unless_it_is_too_long(
    make: Callable[..., Places], retry_after_s: float, answer: float | str
) -> None:
    places = make()
    assert places.take() is None
    places.time += 4.0
    places.end(age_s=4.0, slow=True, ok=False, retry_after_s=retry_after_s)
    assert places.take() == (answer if isinstance(answer, str) else answer - 4.0)
    places.time += 97.0
    assert places.take() is None


def test_answers_that_are_no_good_ease_nothing(make: Callable[..., Places]) -> None:
    places = make(delay_s=8.0)
    assert places.take() is None
    places.end(slow=True, ok=False)
    for _ in range(25):
        places.time += 16.0
        assert places.take() is None
        places.end(ok=False)
    assert places.take() == 16.0


def test_pods_take_turns_and_each_is_told_when_to_come(make: Callable[..., Places]) -> None:
    places = make()
    assert places.take("a#1", pod=0) is None
    assert [places.take("b#1", pod=1), places.take("c#1", pod=2), places.take("b#1", pod=1)] == [10.0, 20.0, 10.0]
    places.end("a#1")
    places.time += 10.0
    assert places.take("c#1", pod=2) == 10.0, "the first that waits comes first"
    assert places.take("a#1", pod=0) == 20.0
    assert places.take("b#1", pod=1) is None
    places.end("b#1")
    assert places.take("b#1", pod=1) == 30.0, "behind the two that wait"
    places.time += 10.0
    assert places.take("c#1", pod=2) is None


def test_a_pod_that_does_not_come_has_lost_its_turn(make: Callable[..., Places]) -> None:
    places = make()
    assert places.take("a#1", pod=0) is None
    assert places.take("b#1", pod=1) == 10.0
    places.end("a#1")
    places.time += 10.5
    wait = places.take("a#1", pod=0)
    assert isinstance(wait, float) and wait > 0, "a moment longer"
    places.time += 0.001
    assert places.take("a#1", pod=0) is None


def test_a_free_place_is_not_kept_for_a_pod_that_is_to_come_later(make: Callable[..., Places]) -> None:
    places = make(delay_s=0.0)
    assert places.take("a#1", pod=0) is None
    wait = places.take("b#1", pod=1)
    assert wait == 0.02, "asked again no sooner, while nobody knows when"
    places.end("a#1")
    assert places.take("a#1", pod=0) is None, "the other one was to come later"
    places.time += 0.02
    places.end("a#1")
    wait = places.take("a#1", pod=0)
    assert isinstance(wait, float) and wait > 0, "now it is its turn"
    assert places.take("b#1", pod=1) is None


def test_what_a_dead_process_held_is_free_a_delay_and_a_moment_later(make: Callable[..., Places]) -> None:
    places = make(places=3, delay_s=0.0)
    assert [places.take(owner) for owner in ("s0#1", "s1#1", "s0#2")] == [None] * 3
    assert isinstance(places.take("s1#1"), float)
    places.release("s0#2", "s0#")
    assert places.take("s1#1") is None, "one place is back"
    assert isinstance(places.take("s1#1"), float), "and one alone"
    quick = make(delay_s=0.0)
    assert quick.take("s0#1") is None
    quick.release("s0#2", "s0#")
    assert quick.take("s1#1") is None, "nobody waits where there is no delay"
    slow = make(delay_s=10.0)
    assert slow.take("s0#1") is None
    slow.release("s0#2", "s0#")
    assert slow.take("s1#1") == 11.0, "what it sent last may still be on its way"
    slow.release("s0#2", "s0#")
    assert slow.take("s1#1") == 11.0


def test_a_place_that_nobody_gives_back_is_taken_back(make: Callable[..., Places]) -> None:
    places = make(places=2, delay_s=1.0)
    assert places.take("a#1") is None
    places.time += 30.0
    assert places.take("b#1") is None
    places.time += 29.999
    assert isinstance(places.take("c#1"), float)
    places.time += 1.5
    assert places.take("c#1") is None, "the first is over"
    assert isinstance(places.take("c#1"), float), "and the second is not"
    assert places.client.zcard("held") == 2
    places.end("a#1")
    places.time += 5.0
    assert isinstance(places.take("c#1"), float), "given back twice counts once"


def test_after_a_loss_an_address_waits_until_no_lease_of_that_time_can_be_left(make: Callable[..., Places]) -> None:
    places = make()
    places.client.hset("n", "lost", int(990.0 * 1e6))
    assert places.take() == 60.0, "a lease, and a delay, from then on"
    places.time += 60.0
    assert places.take() is None


def test_what_an_address_asked_for_is_forgotten_when_it_has_long_been_idle(make: Callable[..., Places]) -> None:
    places = make()
    assert places.take(crawl_delay_s=40.0) is None
    places.end()
    assert places.client.pttl(f"a:{SITE}") == pytest.approx((40.0 + 60.0 + 60.0) * 1000, abs=1500)
