"""What two embedded pods send each other over their sockets, and what they make of a partner that has lost it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from weft.config import PolitenessSection
from weft.crawl.pods.exchange import Exchange
from weft.errors import Damaged
from weft.frontier.contract import CrawlLimits
from weft.frontier.durability.renew import renew_frontier
from weft.frontier.embedded.embedded_frontier import EmbeddedFrontier
from weft.records import Found

THERE = "http://127.1.0.4/"  # pod 1 of two


class Pod:
    """A frontier and its exchange with the other of two pods."""

    def __init__(self, folder: Path, number: int) -> None:
        self.frontier = EmbeddedFrontier(
            folder / f"pod_{number}", PolitenessSection(delay_s=0.0, places=1), pod=number, pods=2
        )
        self.crawl = self.frontier.crawls.open_crawl("crawl", CrawlLimits())
        self.frontier.recovery.recover()
        self.exchange = Exchange(
            lambda pod: folder / f"pod_{pod}", self.frontier, number, 2, "crawl", lambda _received: None
        )

    def close(self) -> None:
        self.exchange.close()
        self.frontier.close()


@contextmanager
def pods(folder: Path) -> Iterator[tuple[Pod, Pod]]:
    both = Pod(folder, 0), Pod(folder, 1)
    try:
        yield both
    finally:
        for pod in both:
            pod.close()


def talk(both: tuple[Pod, Pod]) -> None:
    """Some turns of both, with everything on their disks in between."""
    for turn in range(10):
        for pod in both:
            pod.exchange(float(turn))
            pod.frontier.durability.commit()
            pod.frontier.durability.sync()


def told(folder: Path) -> None:
    """A link is found in one pod, and is the other's, which acknowledges it."""
    with pods(folder) as both:
        both[0].frontier.queue.admit(both[0].crawl, [Found(THERE, 1)])
        both[0].frontier.durability.commit()
        talk(both)
        assert (both[1].frontier.status.stats().queued, both[0].frontier.pods.outbox.unacknowledged_messages) == (1, 0)


def test_what_was_acknowledged_is_not_sent_again(tmp_path: Path) -> None:
    told(tmp_path)
    with pods(tmp_path) as both:
        talk(both)
        assert both[1].frontier.status.stats().queued == 1
        assert both[0].frontier.pods.outbox.next_message(1, 0) is None


def test_a_pod_that_lost_what_it_had_acknowledged_ends_the_crawl(tmp_path: Path) -> None:
    """It has no stored page that would tell; nobody else has the URL any more."""
    told(tmp_path)
    shutil.rmtree(tmp_path / "pod_1")
    with pods(tmp_path) as both, pytest.raises(Damaged, match=r"pod_1/frontier\.db: lacks URLs of pod 0"):
        talk(both)


def test_pods_that_are_made_anew_of_what_is_stored_begin_anew_with_each_other(tmp_path: Path) -> None:
    told(tmp_path)
    shutil.rmtree(tmp_path / "pod_1")
    (tmp_path / "pod_1").mkdir()
    for pod in (0, 1):
        renew_frontier(tmp_path / f"pod_{pod}", [1 - pod])
    told(tmp_path)
