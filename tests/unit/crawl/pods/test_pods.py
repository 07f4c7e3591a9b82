"""What embedded pods share: how they find out that all is done, permits for pages, and messages between frontiers."""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec
import pytest

from weft import urls
from weft.config import PodsSection, PolitenessSection
from weft.crawl.pods.permits import Permits
from weft.crawl.pods.process_slots import require_cores_for_affinity, slots_and_cores
from weft.crawl.pods.termination import TerminationDetector
from weft.engine.loop.progress import CrawlStatus
from weft.engine.loop.stop import Stop
from weft.errors import BadInput
from weft.frontier.contract import CrawlLimits, RobotsRecord
from weft.frontier.embedded.embedded_frontier import EmbeddedFrontier
from weft.frontier.outbox import NUMBERS_SKIPPED, RecentlySentUrls
from weft.records import Found, Purpose
from weft.telemetry import Slot

SECTION = PolitenessSection(delay_s=0.0, places=1)
HERE = "http://127.1.0.1/"  # pod 0 of two
THERE = "http://127.1.0.4/"  # pod 1


def test_the_addresses_of_these_tests_lie_in_two_pods() -> None:
    assert [urls.pod_of(urls.domain_of(url), 2) for url in (HERE, THERE)] == [0, 1]


# ── the end ────────────────────────────────────────────────────────────────────────────────────────────────────────


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def report(clock: Clock, **more: object) -> CrawlStatus:
    status = CrawlStatus(pid=1, idle="done", reported_at=clock.now, admitted=5, finished=5)
    for name, value in more.items():
        setattr(status, name, value)
    return status


def test_two_equal_passes_are_the_end() -> None:
    clock = Clock()
    termination = TerminationDetector(clock)
    first = [report(clock, sent=2), report(clock, received=2)]
    assert termination.judge(first) is None
    assert termination.judge(first) is None, "the same reports are no second pass"
    clock.now += 1
    assert termination.judge([report(clock, sent=2), first[1]]) is None, "every pod must have told again"
    assert termination.judge([report(clock, sent=2), report(clock, received=2)]) is Stop.DONE


@pytest.mark.parametrize(
    "change", [{"admitted": 6, "finished": 6}, {"sent": 3, "received": 3}, {"pid": 2}], ids=["work", "messages", "dead"]
)
def test_what_happens_between_two_passes_begins_them_anew(change: dict[str, object]) -> None:
    clock = Clock()
    termination = TerminationDetector(clock)
    assert termination.judge([report(clock)]) is None
    clock.now += 1
    assert termination.judge([report(clock, **change)]) is None
    clock.now += 1
    assert termination.judge([report(clock, **change)]) is Stop.DONE


def test_a_busy_pod_or_a_message_under_way_is_no_end() -> None:
    clock = Clock()
    termination = TerminationDetector(clock)
    for _ in range(3):
        clock.now += 1
        assert termination.judge([report(clock, sent=1), report(clock)]) is None
        assert termination.judge([report(clock), report(clock, idle="")]) is None


def test_a_limit_that_left_work_is_the_reason() -> None:
    clock = Clock()
    termination = TerminationDetector(clock)
    for expected in (None, Stop.MAX_PAGES):
        assert termination.judge([report(clock), report(clock, idle="max_pages")]) is expected
        clock.now += 1


# ── permits ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_permits_are_never_more_than_pages_and_all_can_be_had(tmp_path: Path) -> None:
    permits = Permits(tmp_path / "permits.json")
    permits.begin_run(100, {0: 10})
    given = {0: permits.permits_of(0), 1: permits.permits_of(1)}
    assert given == {0: 10, 1: 0}
    while permits.permits_left():
        for pod in given:
            given[pod] = permits.claim(pod, 2)
            assert sum(given.values()) <= 100
    assert sum(given.values()) == 100
    assert permits.claim(1, 2) == given[1], "nothing is left"
    permits.give_back(0, 12)
    assert permits.permits_left() == given[0] - 12
    permits.begin_run(50, {0: 12, 1: 60})
    assert permits.permits_left() == 0, "a limit below what is stored gives nothing"


# ── messages ───────────────────────────────────────────────────────────────────────────────────────────────────────


def opened(folder: Path, pod: int) -> tuple[EmbeddedFrontier, int]:
    frontier = EmbeddedFrontier(folder / f"pod_{pod}", SECTION, pod=pod, pods=2)
    crawl = frontier.crawls.open_crawl("crawl", CrawlLimits())
    frontier.recovery.recover()
    return frontier, crawl


def test_a_link_of_another_pod_waits_in_the_outbox_through_a_crash_and_arrives_once(tmp_path: Path) -> None:
    sender, crawl = opened(tmp_path, 0)
    assert sender.queue.admit(crawl, [Found(HERE, 0), Found(THERE, 1, 7), Found(THERE, 1, 7)]).new == 2
    assert sender.queue.unseen(crawl, [HERE, THERE, THERE + "more"]) == [THERE + "more"]
    assert sender.pods.outbox.next_message(1, 0) is None, "what is not committed is not sent"
    sender.durability.commit()
    sender.close()
    sender, crawl = opened(tmp_path, 0)
    message = sender.pods.outbox.next_message(1, 0)
    assert message is not None
    receiver, _ = opened(tmp_path, 1)
    assert receiver.inbox.receive(0, *message) is not None
    assert (receiver.status.stats().queued, receiver.status.stats().received, sender.status.stats().sent) == (1, 1, 1)
    assert receiver.inbox.receive(0, *message) is None, "the number was there before"
    receiver.durability.commit()
    assert receiver.pods.durable_numbers == {}
    receiver.durability.sync()
    assert receiver.pods.durable_numbers == {0: 1}
    receiver.close()
    receiver, _ = opened(tmp_path, 1)
    assert (receiver.pods.last_message_from(0), receiver.status.stats().queued) == (1, 1)
    sender.pods.outbox.acknowledge_message(1, message[0])
    sender.durability.commit()
    assert sender.pods.outbox.next_message(1, 0) is None
    for frontier in (sender, receiver):
        frontier.close()


def test_after_a_reboot_numbers_go_on_beyond_what_may_have_been_lost(tmp_path: Path, monkeypatch: object) -> None:
    assert isinstance(monkeypatch, pytest.MonkeyPatch)
    sender, crawl = opened(tmp_path, 0)
    sender.queue.admit(crawl, [Found(THERE, 1)])
    sender.durability.commit()
    sender.close()
    monkeypatch.setattr("weft.frontier.embedded.restoring.boot_id", lambda: "another")
    sender, _ = opened(tmp_path, 0)
    sender.durability.commit()
    assert sender.status.stats().sent == 1 + NUMBERS_SKIPPED + 1
    last = sender.pods.outbox.next_message(1, 1)
    assert last is not None
    assert last[0] == NUMBERS_SKIPPED + 2, "an empty message tells of the jump"
    sender.close()


def test_a_redirected_robots_txt_is_asked_for_there_and_told_here(tmp_path: Path) -> None:
    here, crawl = opened(tmp_path, 0)
    there, _ = opened(tmp_path, 1)
    here.queue.admit(crawl, [Found(HERE, 0), Found(THERE + "robots.txt", 0, 0, 1, Purpose.ROBOTS, HERE[:-1])])
    here.durability.commit()
    there.inbox.receive(0, *_next(here, 1))
    there.durability.commit()
    there.close()
    there, _ = opened(tmp_path, 1)
    assert there.status.stats().queued == 1, "an errand outlives its process"
    there.sites.robots_known(HERE[:-1], RobotsRecord("ok", b"User-agent: *", 2e9), 3.0)
    there.durability.commit()
    here.inbox.receive(1, *_next(there, 0))
    record = here.sites.robots(HERE[:-1])
    assert record is not None
    assert record.body == b"User-agent: *"
    for frontier in (here, there):
        frontier.close()


def _next(frontier: EmbeddedFrontier, pod: int) -> tuple[int, bytes]:
    message = frontier.pods.outbox.next_message(pod, 0)
    assert message is not None
    return message


def test_a_scope_that_grew_is_told_to_all(tmp_path: Path) -> None:
    here, crawl = opened(tmp_path, 0)
    there, _ = opened(tmp_path, 1)
    here.notes.scope_extended(crawl, "http://127.9.9.9/")
    here.durability.commit()
    received = there.inbox.receive(0, *_next(here, 1))
    assert received is not None
    assert received.scopes == [(crawl, "http://127.9.9.9/")]
    assert there.notes.scope_extensions(crawl) == ["http://127.9.9.9/"]
    for frontier in (here, there):
        frontier.close()


def test_a_url_in_the_wrong_pod_is_logged_where_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("WEFT_DEBUG_POD_ASSIGNMENT", "true")
    monkeypatch.setattr(logging.getLogger("weft"), "propagate", True)
    there, crawl = opened(tmp_path, 1)
    here, _ = opened(tmp_path, 0)
    here.pods.outbox.add_url(1, crawl, Found(HERE, 1))
    here.durability.commit()
    there.inbox.receive(0, *_next(here, 1))
    assert any(record.getMessage() == "a URL went to the wrong pod" for record in caplog.records)
    for frontier in (here, there):
        frontier.close()


def test_what_was_sent_lately_is_known_and_what_was_sent_long_ago_is_not() -> None:
    recent = RecentlySentUrls(limit=100)
    assert recent.add("a")
    assert not recent.add("a")
    for number in range(99):
        recent.add(str(number))
    assert recent.unknown(["a", "b"]) == ["b"], "half of it is kept"
    for number in range(100, 200):
        recent.add(str(number))
    assert recent.unknown(["a"]) == ["a"]


# ── processes ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_cores_follow_one_another_over_this_nodes_pods() -> None:
    section = PodsSection(num_pods=4, only_pods="1,3", fetchers_per_pod=2, parsers_per_pod=1, affinity=True)
    assert slots_and_cores(section) == [
        (Slot(1, "fetcher", 0), 0),
        (Slot(1, "fetcher", 1), 1),
        (Slot(1, "parser", 0), 2),
        (Slot(3, "fetcher", 0), 3),
        (Slot(3, "fetcher", 1), 4),
        (Slot(3, "parser", 0), 5),
    ]
    with pytest.raises(BadInput, match="6000 cores are needed"):
        require_cores_for_affinity(msgspec.structs.replace(section, fetchers_per_pod=2999))
