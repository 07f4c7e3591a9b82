"""Messages to other pods: what they carry, which number each has, and which are still to be sent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from weft.frontier.contract import RobotsRecord
from weft.frontier.durability.journal import Journal
from weft.frontier.outbox import JUMP, Outbox, PodMessage, RecentlySent, RobotsNotice, encoded, read_message
from weft.records import Found, Purpose


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    made = Journal(tmp_path / "frontier.db")
    yield made
    made.close()


def send(outbox: Outbox, journal: Journal) -> None:
    outbox.flush()
    journal.commit()
    outbox.committed()


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
    again = read_message(encoded(message))
    assert [(links.crawl, len(links.urls)) for links in again.links] == [(3, 2), (3, 1), (3, 2), (3, 1), (4, 1)]
    assert again.found() == [*ERRANDS, *LINKS, LINKS[0]]


def test_messages_are_numbered_for_each_pod_and_sent_once_they_are_committed(journal: Journal) -> None:
    outbox = Outbox(journal, (1, 2), str)
    outbox.add(1, 3, LINKS[0])
    outbox.add(1, 3, ERRANDS[0])
    outbox.flush()
    assert outbox.next(1, 0) is None, "it is not in the journal"
    journal.commit()
    outbox.committed()
    first = outbox.next(1, 0)
    assert first is not None
    assert (first[0], read_message(first[1]).found()) == (1, [ERRANDS[0], LINKS[0]])
    assert (outbox.next(1, 1), outbox.next(2, 0)) == (None, None)
    assert (outbox.links_in(1, 1), outbox.links_in(1, 1)) == (2, 0), "asked once"
    assert (outbox.sent, outbox.waiting) == (1, 1)
    outbox.add_scope(3, "http://c/")
    outbox.add_robots(2, RobotsNotice("http://d", RobotsRecord("allow", b"", 1.0), 2.5))
    send(outbox, journal)
    assert (outbox.sent, outbox.waiting) == (3, 3)
    second = outbox.next(1, 1)
    third = outbox.next(2, 0)
    assert second is not None and third is not None
    assert (second[0], read_message(second[1]).scopes, read_message(second[1]).robots) == (2, [(3, "http://c/")], [])
    assert (third[0], read_message(third[1]).robots[0].crawl_delay_s) == (1, 2.5)
    assert outbox.links_in(1, 2) == 0


def test_what_a_pod_has_is_forgotten_and_the_rest_waits_for_the_next_process(journal: Journal) -> None:
    outbox = Outbox(journal, (1, 2), str)
    for number in range(4):
        outbox.add(1, 3, Found(f"http://a/{number}", 0))
        send(outbox, journal)
    for number in (2, 1):
        outbox.acknowledged(1, number)
        journal.commit()
    assert outbox.waiting == 2
    again = Outbox(journal, (1, 2), str)
    assert (again.waiting, again.sent) == (2, 4)
    left = again.next(1, 0)
    assert left is not None
    assert (left[0], again.links_in(1, 3)) == (3, 0), "made by an earlier process"
    again.acknowledged(1, 4)
    journal.commit()
    last = Outbox(journal, (1, 2), str)
    assert (last.waiting, last.sent, last.next(1, 0)) == (0, 4, None)
    last.add(1, 3, LINKS[0])
    send(last, journal)
    following = last.next(1, 0)
    assert following is not None
    assert following[0] == 5


def test_after_a_power_cut_numbers_leap_and_an_empty_message_tells_so(journal: Journal) -> None:
    outbox = Outbox(journal, (1, 2), str)
    outbox.add(1, 3, LINKS[0])
    send(outbox, journal)
    outbox.jump()
    send(outbox, journal)
    told = outbox.next(2, 0)
    assert told is not None
    assert (told[0], read_message(told[1]).found()) == (JUMP + 1, [])
    assert (outbox.waiting, outbox.sent) == (3, 2 * JUMP + 3)


def test_what_was_sent_lately_is_not_sent_again() -> None:
    recent = RecentlySent(limit=3)
    assert [recent.add(url) for url in ("a", "b", "a", "b", "c")] == [True, True, False, False, True]
    assert recent.unknown(["a", "x", "c"]) == ["x"]
    assert [recent.add(url) for url in ("a", "d", "e")] == [False, True, True]
    assert recent.unknown(["a", "b", "c", "d", "e"]) == [], "three at least, and six at most"
    assert recent.add("f")
    assert recent.unknown(["a", "b", "c", "d", "e", "f"]) == ["a", "b", "c"]
    assert recent.add("a")


@pytest.mark.parametrize("sent", [0, 1, 2])
def test_the_next_process_waits_for_every_message_from_the_first_on(journal: Journal, sent: int) -> None:
    outbox = Outbox(journal, (1,), str)
    for _ in range(sent):
        outbox.add(1, 3, LINKS[0])
        send(outbox, journal)
    assert Outbox(journal, (1,), str).waiting == outbox.waiting == sent
