"""Messages to other pods: what they carry, which number each has, and which are still to be sent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from weft.frontier.contract import RobotsRecord
from weft.frontier.durability.journal import FrontierJournal
from weft.frontier.outbox import (
    NUMBERS_SKIPPED,
    PodMessage,
    PodOutbox,
    RecentlySentUrls,
    RobotsNotice,
    encode_message,
    read_message,
)
from weft.records import Found, Purpose


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[FrontierJournal]:
    made = FrontierJournal(tmp_path / "frontier.db")
    yield made
    made.close()


def send(outbox: PodOutbox, journal: FrontierJournal) -> None:
    outbox.flush_messages()
    journal.commit()
    outbox.note_commit()


LINKS = [
    Found("http://a/1", 1, 5), Found("http://a/2", 1, 5), Found("http://a/3", 2, 5), Found("http://a/4", 2, 6),
    Found("http://a/4b", 2, 6),
    Found("http://a/5", 2, 6, offsite=1),
]  # fmt: skip
ERRANDS = [
    Found("http://a/hop", 1, 5, 2, about="http://b/x"),
    Found("http://a/map.xml", 0, purpose=Purpose.SITEMAP, about="http://a"),
    Found("http://a/about", 1, 5, about="http://b/y"),
]


def test_a_message_carries_links_by_what_they_share_and_the_rest_one_by_one() -> None:
    message = PodMessage([], [], [], [])
    for one in (*LINKS, *ERRANDS):
        message.add(3, one)
    message.add(4, LINKS[0])
    again = read_message(encode_message(message))
    assert [(links.crawl, len(links.urls)) for links in again.links] == [(3, 2), (3, 1), (3, 2), (3, 1), (4, 1)]
    assert again.found_urls() == [*ERRANDS, *LINKS, LINKS[0]]


def test_messages_are_numbered_for_each_pod_and_sent_once_they_are_committed(journal: FrontierJournal) -> None:
    outbox = PodOutbox(journal, (1, 2), str)
    outbox.add_url(1, 3, LINKS[0])
    outbox.add_url(1, 3, ERRANDS[0])
    outbox.flush_messages()
    assert outbox.next_message(1, 0) is None, "it is not in the journal"
    journal.commit()
    outbox.note_commit()
    first = outbox.next_message(1, 0)
    assert first is not None
    assert (first[0], read_message(first[1]).found_urls()) == (1, [ERRANDS[0], LINKS[0]])
    assert (outbox.next_message(1, 1), outbox.next_message(2, 0)) == (None, None)
    assert (outbox.links_in(1, 1), outbox.links_in(1, 1)) == (2, 0), "asked once"
    assert (outbox.sent_messages, outbox.unacknowledged_messages) == (1, 1)
    outbox.add_scope(3, "http://c/")
    outbox.add_robots(2, RobotsNotice("http://d", RobotsRecord("allow", b"", 1.0), 2.5))
    send(outbox, journal)
    assert (outbox.sent_messages, outbox.unacknowledged_messages) == (3, 3)
    second = outbox.next_message(1, 1)
    third = outbox.next_message(2, 0)
    assert second is not None and third is not None
    assert (second[0], read_message(second[1]).scopes, read_message(second[1]).robots) == (2, [(3, "http://c/")], [])
    assert (third[0], read_message(third[1]).robots[0].crawl_delay_s) == (1, 2.5)
    assert outbox.links_in(1, 2) == 0


def test_what_a_pod_has_is_forgotten_and_the_rest_waits_for_the_next_process(journal: FrontierJournal) -> None:
    outbox = PodOutbox(journal, (1, 2), str)
    for number in range(4):
        outbox.add_url(1, 3, Found(f"http://a/{number}", 0))
        send(outbox, journal)
    for number in (2, 1):
        outbox.acknowledge_message(1, number)
        journal.commit()
    assert outbox.unacknowledged_messages == 2
    again = PodOutbox(journal, (1, 2), str)
    assert (again.unacknowledged_messages, again.sent_messages) == (2, 4)
    left = again.next_message(1, 0)
    assert left is not None
    assert (left[0], again.links_in(1, 3)) == (3, 0), "made by an earlier process"
    again.acknowledge_message(1, 4)
    journal.commit()
    last = PodOutbox(journal, (1, 2), str)
    assert (last.unacknowledged_messages, last.sent_messages, last.next_message(1, 0)) == (0, 4, None)
    last.add_url(1, 3, LINKS[0])
    send(last, journal)
    following = last.next_message(1, 0)
    assert following is not None
    assert following[0] == 5


def test_after_a_power_cut_numbers_leap_and_an_empty_message_tells_so(journal: FrontierJournal) -> None:
    outbox = PodOutbox(journal, (1, 2), str)
    outbox.add_url(1, 3, LINKS[0])
    send(outbox, journal)
    outbox.skip_used_numbers()
    send(outbox, journal)
    told = outbox.next_message(2, 0)
    assert told is not None
    assert (told[0], read_message(told[1]).found_urls()) == (NUMBERS_SKIPPED + 1, [])
    assert (outbox.unacknowledged_messages, outbox.sent_messages) == (3, 2 * NUMBERS_SKIPPED + 3)


def test_what_was_sent_lately_is_not_sent_again() -> None:
    recent = RecentlySentUrls(limit=3)
    assert [recent.add(url) for url in ("a", "b", "a", "b", "c")] == [True, True, False, False, True]
    assert recent.unknown(["a", "x", "c"]) == ["x"]
    assert [recent.add(url) for url in ("a", "d", "e")] == [False, True, True]
    assert recent.unknown(["a", "b", "c", "d", "e"]) == [], "three at least, and six at most"
    assert recent.add("f")
    assert recent.unknown(["a", "b", "c", "d", "e", "f"]) == ["a", "b", "c"]
    assert recent.add("a")


@pytest.mark.parametrize("sent", [0, 1, 2])
def test_the_next_process_waits_for_every_message_from_the_first_on(journal: FrontierJournal, sent: int) -> None:
    outbox = PodOutbox(journal, (1,), str)
    for _ in range(sent):
        outbox.add_url(1, 3, LINKS[0])
        send(outbox, journal)
    assert PodOutbox(journal, (1,), str).unacknowledged_messages == outbox.unacknowledged_messages == sent
