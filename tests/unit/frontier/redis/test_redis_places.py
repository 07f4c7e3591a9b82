"""What a process asks the pods for that keep its addresses: each place once, given back once, and owed while they are
away. The pods here are a function that the test answers for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft import urls
from weft.errors import ServerAway
from weft.frontier.contract import SlotRequest, TransferEnd
from weft.frontier.redis.parts.address_slots import AWAY_WAIT_US, TOO_LONG, AddressSlots, answer_time_argument
from weft.records import Lease, Purpose

ADDRESS = {pod: next(f"192.0.2.{n}" for n in range(99) if urls.pod_of(f"192.0.2.{n}", 2) == pod) for pod in (0, 1)}
OTHER = next(f"198.51.100.{n}" for n in range(99) if urls.pod_of(f"198.51.100.{n}", 2) == 1)
TAKE = (2_000_000, 3)  # delay and places of the crawl that asks
END = TAKE[:1]


class Pods:
    """What was asked, and what is answered."""

    def __init__(self) -> None:
        self.time = 100.0
        self.asked: list[tuple[int, list[Any]]] = []
        self.away: set[int] = set()
        self.answers: dict[str, bytes] = {}
        self.places = AddressSlots("slot", "slot#3", 1, 2, self._ask, lambda: self.time, lambda _lease: 3)

    def _ask(self, pod: int, arguments: Sequence[Any]) -> list[bytes]:
        if pod in self.away:
            raise ServerAway("away")
        self.asked.append((pod, list(arguments)))
        if arguments[0] != "take":
            return []
        return [self.answers.get(address, b"y") for address in arguments[3::5]]

    def told(self) -> list[tuple[int, list[Any]]]:
        asked, self.asked = self.asked, []
        return asked


def lease(item: int, purpose: Purpose = Purpose.PAGE) -> Lease:
    about = "http://a" if purpose is Purpose.ROBOTS else ""
    return Lease(item, 1, f"http://a/{item}", "a", 0, 0, 0, purpose, about, 0, 0, "me", 1, 0.0, 2.0)


def wanted(item: int, address: str, crawl_delay_s: float = 0.0, purpose: Purpose = Purpose.PAGE) -> SlotRequest:
    return SlotRequest(lease(item, purpose), address, crawl_delay_s)


def test_each_address_is_asked_for_where_it_is_kept() -> None:
    pods = Pods()
    pods.answers = {ADDRESS[1]: b"2500000", OTHER: b"x"}
    some = [wanted(1, ADDRESS[0], 1.5), wanted(2, ADDRESS[1]), wanted(3, OTHER), wanted(4, ADDRESS[0])]
    assert pods.places.claim(some) == [None, 2_500_000, TOO_LONG, None]
    assert pods.told() == [
        (0, ["take", "slot#3", 1, ADDRESS[0], 1, 1_500_000, *TAKE, ADDRESS[0], 2, 0, *TAKE]),
        (1, ["take", "slot#3", 1, ADDRESS[1], 3, 0, *TAKE, OTHER, 4, 0, *TAKE]),
    ]
    pods.places.release_finished([2, 3])
    assert pods.told() == [], "they have no places"


def test_a_place_is_given_back_once_with_how_long_ago_it_ended() -> None:
    pods = Pods()
    pods.places.claim([wanted(1, ADDRESS[0]), wanted(2, ADDRESS[0]), wanted(3, ADDRESS[1]), wanted(4, ADDRESS[1])])
    pods.told()
    pods.time = 110.0
    pods.places.end_transfers([
        TransferEnd(lease(1), 107.25, ok=True),
        TransferEnd(lease(2), 110.0, slow_down=True, retry_after_s=7.5),
        TransferEnd(lease(3), 112.0, ok=False),
        TransferEnd(lease(9), 110.0, ok=True),
    ])  # fmt: skip
    assert pods.told() == [
        (
            0,
            [
                "end",
                "slot#3",
                ADDRESS[0],
                1,
                2_750_000,
                1,
                0,
                0,
                0,
                0,
                *END,
                ADDRESS[0],
                2,
                0,
                0,
                1,
                7_500_000,
                "",
                0,
                *END,
            ],
        ),
        (1, ["end", "slot#3", ADDRESS[1], 3, 0, 0, 0, 0, "-", 0, *END]),
    ]
    pods.places.end_transfers([TransferEnd(lease(1), 108.0, ok=True)])
    pods.places.release_finished([1, 2, 3])
    assert pods.told() == []
    pods.places.release_finished([4])
    assert pods.told() == [(1, ["end", "slot#3", ADDRESS[1], 4, "-", 0, 0, 0, "", 0, *END])], "it was never sent"


def test_a_robots_txt_keeps_its_place_until_it_was_read() -> None:
    pods = Pods()
    pods.places.claim([wanted(-1, ADDRESS[0], purpose=Purpose.ROBOTS), wanted(5, ADDRESS[1])])
    pods.told()
    pods.places.end_transfers([TransferEnd(lease(-1, Purpose.ROBOTS), 100.0, ok=True)])
    pods.places.end_transfers([TransferEnd(lease(-1, Purpose.ROBOTS), 60.0, ok=False)])
    assert pods.told() == []
    pods.places.record_crawl_delay("http://other", 99.0)
    pods.places.record_crawl_delay("http://a", 30.25)
    pods.places.record_crawl_delay("http://a", 0.0)
    pods.time = 104.0
    pods.places.release_finished([-1])
    assert pods.told() == [(0, ["end", "slot#3", ADDRESS[0], 1, 4_000_000, 1, 0, 0, 0, 30_250_000, *END])]
    pods.places.release_finished([5])
    assert pods.told() == [(1, ["end", "slot#3", ADDRESS[1], 2, "-", 0, 0, 0, "", 0, *END])]


def test_a_pod_that_is_away_gives_no_place_and_is_owed_what_it_may_have_given() -> None:
    pods = Pods()
    pods.away = {1}
    some = [wanted(1, ADDRESS[0]), wanted(2, ADDRESS[1]), wanted(3, OTHER)]
    assert pods.places.claim(some) == [None, AWAY_WAIT_US, AWAY_WAIT_US]
    assert [pod for pod, _ in pods.told()] == [0]
    pods.away = set()
    pods.places.release_finished([])
    assert pods.told() == [
        (1, ["end", "slot#3", ADDRESS[1], 2, "-", 0, 0, 0, "", 0, *END, OTHER, 3, "-", 0, 0, 0, "", 0, *END])
    ]
    pods.places.release_finished([2, 3])
    assert pods.told() == [], "told once"


def test_a_pod_that_could_not_be_told_is_not_asked_for_more() -> None:
    pods = Pods()
    pods.places.claim([wanted(1, ADDRESS[1])])
    pods.away = {1}
    pods.places.end_transfers([TransferEnd(lease(1), 100.0, ok=True)])
    pods.told()
    assert pods.places.claim([wanted(2, OTHER), wanted(3, ADDRESS[0])]) == [AWAY_WAIT_US, None]
    assert pods.told() == [(0, ["take", "slot#3", 1, ADDRESS[0], 2, 0, *TAKE])]
    pods.away, pods.time = set(), 105.0
    assert pods.places.claim([wanted(2, OTHER)]) == [None]
    assert pods.told() == [
        (1, ["end", "slot#3", ADDRESS[1], 1, 5_000_000, 1, 0, 0, 0, 0, *END]),
        (1, ["take", "slot#3", 1, OTHER, 3, 0, *TAKE]),
    ], "a place that is given back late is due later"


def test_what_earlier_processes_held_is_given_back_in_every_pod() -> None:
    pods = Pods()
    pods.away = {0}
    pods.places.release_earlier_slots()
    assert pods.told() == [(1, ["release", "slot#3", "slot#"])]
    assert pods.places.claim([wanted(1, ADDRESS[0]), wanted(2, ADDRESS[1])]) == [AWAY_WAIT_US, None]
    pods.told()
    pods.away = set()
    assert pods.places.claim([wanted(1, ADDRESS[0])]) == [None]
    assert [(pod, arguments[0]) for pod, arguments in pods.told()] == [(0, "release"), (0, "take")]
    pods.places.release_finished([])
    assert pods.told() == []


def test_what_an_answer_took_is_told_to_the_microsecond() -> None:
    ended = TransferEnd(lease(1), 100.0, ok=True, took_s=123.25)
    assert answer_time_argument(ended) == 123_250_000
    pods = Pods()
    pods.places.claim([wanted(1, ADDRESS[0])])
    pods.told()
    pods.time = 350.5
    pods.places.end_transfers(
        [TransferEnd(lease(1), 100.0, ok=True, slow_down=True, retry_after_s=200.75, took_s=123.25)]
    )
    ((_, asked),) = pods.told()
    assert asked[-7:-2] == [250_500_000, 1, 1, 200_750_000, 123_250_000]
