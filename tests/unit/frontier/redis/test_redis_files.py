"""What a pod on Redis keeps on its own disk: robots.txt files and refusals, marks, and messages to other pods."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

import pytest

from weft.frontier.contract import RobotsRecord
from weft.frontier.redis import marks as marks_module
from weft.frontier.redis.marks import PodMarks
from weft.frontier.redis.parts import shelf as shelf_module
from weft.frontier.redis.parts.shelf import SharedRecords
from weft.frontier.redis.pods import pod_outbox
from weft.frontier.redis.pods.pod_outbox import UNSAFE_S, ArrivalState, DeliveryState, FileOutbox, MessageLost
from weft.frontier.view import FrontierView, SiteDelays
from weft.records import Found, Purpose

# ── robots.txt and refusals ────────────────────────────────────────────────────────────────────────────────────────


def record(body: bytes) -> RobotsRecord:
    return RobotsRecord("ok", body, 9e12)


def test_each_robots_txt_of_an_origin_has_the_next_version(tmp_path: Path) -> None:
    path = tmp_path / "crawl" / "pod" / "robots.db"
    one, two = SharedRecords(path), SharedRecords(path)
    assert one.robots("http://a") is None
    assert [one.save_robots("http://a", record(b"1"), 10.0), two.save_robots("http://a", record(b"2"), 20.0)] == [1, 2]
    assert one.save_robots("http://b", record(b"b"), 30.0) == 1
    assert one.robots("http://a") == (2, record(b"2"))
    one.save_scope(1, ["http://x/", "http://y/"])
    view = FrontierView([path.parent])
    assert one.save_robots("http://a", record(b"2"), 25.0) == 3
    history = [(one.wall, one.record.body) for one in view.robots_history("http://a")]
    assert history == [(10.0, b"1"), (20.0, b"2")], "once for each change"
    assert view.robots("http://b") == record(b"b")
    assert view.scope_extensions() == ["http://x/", "http://y/"]
    assert view.entries_of_url("http://a/") == []
    assert (view.site_delays("a"), view.robots_tries("http://a")) == (SiteDelays(), None)
    for opened in (view, one, two):
        opened.close()


def test_refusals_are_written_with_a_commit_and_up_to_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shelf_module, "MOST_REFUSALS", 3)
    shelf = SharedRecords(tmp_path / "robots.db")
    view = FrontierView([tmp_path])

    def refused() -> list[str | None]:
        return [view.refusal(f"http://a/{number}") for number in range(5)]

    shelf.record_refusal(1, "scope", "http://a/0", 1)
    shelf.record_refusal(1, "budget", "http://a/1", 1)
    assert refused() == [None] * 5
    shelf.commit()
    assert refused() == ["scope", "budget", None, None, None]
    for number in (2, 3, 4):
        shelf.record_refusal(1, "scope", f"http://a/{number}", 1)
    shelf.close()
    assert refused() == ["scope", "budget", "scope", None, None]
    view.close()


def test_what_was_written_is_not_written_again(tmp_path: Path) -> None:
    shelf, other = SharedRecords(tmp_path / "robots.db"), SharedRecords(tmp_path / "robots.db")
    shelf.record_refusal(1, "scope", "http://a/", 1)
    shelf.record_sitemap(1, Found("http://a/map.xml", 0, 0, 0, Purpose.SITEMAP))
    shelf.commit()
    assert len(shelf.recorded_sitemaps(1)) == 1
    for table in ("refusals", "left_sitemaps"):
        assert other._db.execute(f"DELETE FROM {table}").rowcount == 1
    shelf.commit()
    for table in ("refusals", "left_sitemaps"):
        assert other._db.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)
    other.close()
    shelf.close()


def test_a_shelf_may_be_used_by_another_thread(tmp_path: Path) -> None:
    shelf = SharedRecords(tmp_path / "robots.db")
    came: list[object] = []

    def use() -> None:
        came.append(shelf.save_robots("http://a", record(b"1"), 1.0))
        shelf.sync()
        came.append("synced")

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert came == [1, "synced"]
    shelf.close()


# ── marks ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_any_process_has_seen_is_known_to_all(tmp_path: Path) -> None:
    one, two = PodMarks(tmp_path / "marks", "one"), PodMarks(tmp_path / "marks", "two")
    assert (one.is_rebooted, one.last_seen()) == (True, (0, 0)), "there was no process before"
    one.record_seen(5, 70)
    two.record_seen(9, 30)
    two.record_seen(8)
    assert one.last_seen() == two.last_seen() == (8, 70)
    one.record_seen(10)
    assert PodMarks(tmp_path / "marks", "three").last_seen() == (10, 70), "the last item is kept"
    one.close()
    again = PodMarks(tmp_path / "marks", "one")
    assert (again.is_rebooted, again.last_seen()) == (False, (10, 70))
    again.record_seen(11, 60)
    assert again.last_seen() == (11, 70)


def test_marks_of_an_earlier_boot_tell_that_there_was_something_and_not_how_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = PodMarks(tmp_path / "marks", "one")
    old.record_seen(5, 70)
    PodMarks(tmp_path / "marks", "idle").record_seen(0, 0)
    monkeypatch.setattr(marks_module, "boot_id", lambda: "another")
    new = PodMarks(tmp_path / "marks", "two")
    assert (new.is_rebooted, new.last_seen()) == (True, (None, 70))
    new.record_seen(3, 80)
    assert new.last_seen() == (None, 80), "as long as the other has not come back"
    PodMarks(tmp_path / "marks", "one").record_seen(4)
    assert new.last_seen()[0] == 4


def test_marks_are_made_in_a_folder_that_is_not_there_yet(tmp_path: Path) -> None:
    PodMarks(tmp_path / "pod" / "marks", "one").record_seen(5, 70)
    assert PodMarks(tmp_path / "pod" / "marks", "two").last_seen() == (5, 70)


def test_an_empty_boot_before_hides_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    PodMarks(tmp_path / "marks", "one").record_seen(0, 0)
    monkeypatch.setattr(marks_module, "boot_id", lambda: "another")
    assert PodMarks(tmp_path / "marks", "two").last_seen() == (0, 0)


# ── messages ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_messages_are_numbered_and_kept_until_they_are_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "pod" / "box" / "one.db"
    box = FileOutbox(path, lambda: 7.0)
    first = box.save_messages({1: b"a", 2: b"x"})
    second = box.save_messages({1: b"b"})
    assert (first, second) == ({1: 7_000_001, 2: 7_000_001}, {1: 7_000_002})
    assert (box.message_numbers(1), len(box)) == ([7_000_001, 7_000_002], 3)
    assert list(box.all_messages(1)) == [(7_000_001, b"a"), (7_000_002, b"b")]
    assert box.next_message(1, 0) == (7_000_001, b"a")
    assert box.next_message(1, 7_000_001) == (7_000_002, b"b")
    assert (box.next_message(1, 7_000_002), box.next_message(3, 0)) == (None, None)
    box.delete_messages({1: 7_000_001})
    assert (box.message_numbers(1), box.message_numbers(2)) == ([7_000_002], [7_000_001])
    box.delete_messages({1: 7_000_002})
    box.close()
    again = FileOutbox(path, lambda: 9.0)
    assert (again.message_numbers(1), len(again)) == ([], 1)
    assert again.save_messages({1: b"c", 2: b"y", 3: b"z"}) == {1: 7_000_003, 2: 7_000_002, 3: 7_000_001}, (
        "in the same boot"
    )
    again.close()


def test_a_pod_is_brought_what_it_lacks_and_asked_what_it_has() -> None:
    sent = DeliveryState([])
    assert (
        sent.has_undelivered,
        sent.undelivered_messages,
        sent.unsafe_messages,
        sent.required_predecessor,
        sent.is_due(99.0),
    ) == (False, 0, 0, 0, False)
    for number in (3, 4, 5):
        sent.add_message(number)
    assert (sent.has_undelivered, sent.undelivered_messages, sent.unsafe_messages, sent.required_predecessor) == (
        True,
        3,
        3,
        0,
    )
    assert not sent.is_due(99.0), "nothing was brought yet"
    sent.mark_delivered(4)
    assert (
        sent.has_undelivered,
        sent.undelivered_messages,
        sent.unsafe_messages,
        sent.required_predecessor,
        sent.is_due(0.0),
    ) == (True, 1, 3, 4, True)
    sent.mark_delivered(5)
    assert (sent.has_undelivered, sent.undelivered_messages, sent.required_predecessor) == (False, 0, 5)


def test_messages_are_safe_once_they_are_written_and_forgotten_when_they_have_been_for_a_while() -> None:
    sent = DeliveryState([3, 4, 5])
    sent.mark_delivered(5)
    assert (sent.apply_arrival(ArrivalState(5, "run", 100, 20), 10.0), sent.unsafe_messages) == (0, 3), (
        "twenty bytes are not written"
    )
    assert (sent.apply_arrival(ArrivalState(5, "run", 119, 30), 11.0), sent.unsafe_messages) == (0, 3)
    assert (sent.apply_arrival(ArrivalState(5, "run", 120, 30), 12.0), sent.unsafe_messages) == (0, 0)
    assert not sent.is_due(12.0 + UNSAFE_S - 0.1)
    assert sent.is_due(12.0 + UNSAFE_S)
    assert sent.apply_arrival(ArrivalState(5, "run", 200, 0), 12.0 + UNSAFE_S - 0.1) == 0
    assert sent.apply_arrival(ArrivalState(5, "run", 200, 0), 12.0 + UNSAFE_S) == 5
    assert (sent.required_predecessor, sent.is_due(99.0)) == (0, False)


def test_what_was_safe_in_a_server_that_has_lost_it_is_kept_until_it_is_safe_again() -> None:
    sent = DeliveryState([3, 4, 5])
    sent.mark_delivered(5)
    assert (sent.apply_arrival(ArrivalState(5, "run", 100, 0), 10.0), sent.unsafe_messages) == (0, 0)
    sent.mark_all_undelivered()
    assert not sent.is_due(10.0 + UNSAFE_S)
    assert sent.apply_arrival(ArrivalState(0, "other", 100, 0), 10.0 + UNSAFE_S) == 0
    sent.mark_delivered(5)
    assert sent.apply_arrival(ArrivalState(5, "other", 100, 0), 11.0 + UNSAFE_S) == 0
    assert sent.apply_arrival(ArrivalState(5, "other", 100, 0), 11.0 + 2 * UNSAFE_S) == 5


def test_a_server_that_has_less_than_it_was_brought_has_lost_it() -> None:
    sent = DeliveryState([3, 4, 5])
    sent.mark_delivered(5)
    with pytest.raises(MessageLost):
        sent.apply_arrival(ArrivalState(4, "run", 100, 0), 10.0)
    sent.mark_all_undelivered()
    assert (sent.has_undelivered, sent.undelivered_messages, sent.unsafe_messages, sent.required_predecessor) == (
        True,
        3,
        3,
        0,
    )
    assert sent.apply_arrival(ArrivalState(0, "run", 100, 0), 10.0) == 0


def test_another_run_of_a_server_is_judged_by_its_own_file() -> None:
    sent = DeliveryState([3])
    sent.mark_delivered(3)
    sent.apply_arrival(ArrivalState(3, "old", 100, 50), 10.0)
    # What the old one had still to write is no measure.
    assert (sent.apply_arrival(ArrivalState(3, "new", 160, 50), 11.0), sent.unsafe_messages) == (0, 1)
    sent.apply_arrival(ArrivalState(3, "new", 210, 10), 12.0)
    assert sent.unsafe_messages == 0


def test_the_first_message_of_all_is_one_too() -> None:
    sent = DeliveryState([1])
    assert (sent.has_undelivered, sent.undelivered_messages, sent.required_predecessor) == (True, 1, 0)
    sent.mark_delivered(1)
    assert (sent.has_undelivered, sent.undelivered_messages, sent.required_predecessor, sent.is_due(0.0)) == (
        False,
        0,
        1,
        True,
    )
    assert sent.apply_arrival(ArrivalState(1, "run", 100, 0), 10.0) == 0
    assert sent.unsafe_messages == 0
    sent.mark_all_undelivered()
    assert (sent.has_undelivered, sent.required_predecessor) == (True, 0)


def test_messages_are_put_and_forgotten_all_or_none(tmp_path: Path) -> None:
    box = FileOutbox(tmp_path / "one.db", lambda: 7.0)
    with pytest.raises(sqlite3.Error):
        box.save_messages({1: b"a", 2: object()})  # type: ignore[dict-item]
    assert len(box) == 0
    assert box.save_messages({1: b"a"}) == {1: 7_000_001}
    with pytest.raises(KeyError):
        box.delete_messages({1: 7_000_001, 99: 5})
    assert box.message_numbers(1) == [7_000_001]
    box.close()


def test_after_another_boot_numbers_begin_beyond_all_that_were_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = FileOutbox(tmp_path / "one.db", lambda: 7.0)
    assert box.save_messages({1: b"a"}) == {1: 7_000_001}
    box.close()
    monkeypatch.setattr(pod_outbox, "boot_id", lambda: "another boot")
    again = FileOutbox(tmp_path / "one.db", lambda: 9.5)
    assert again.save_messages({1: b"b"}) == {1: 9_500_001}
    again.close()
    later = FileOutbox(tmp_path / "one.db", lambda: 11.0)
    assert later.save_messages({1: b"c", 2: b"d"}) == {1: 9_500_002, 2: 9_500_001}
    later.close()


def test_what_cannot_be_written_leaves_a_shelf_as_it_was(tmp_path: Path) -> None:
    shelf = SharedRecords(tmp_path / "robots.db")
    assert shelf.save_robots("http://a", RobotsRecord("ok", b"1", 5.0), 1.0) == 1
    with pytest.raises(sqlite3.Error):
        shelf.save_robots("http://a", RobotsRecord("ok", b"2", 5.0), object())  # type: ignore[arg-type]
    assert shelf.robots("http://a") == (1, RobotsRecord("ok", b"1", 5.0))
    shelf.record_refusal(1, "scope", "http://a/1", 1)
    shelf.record_refusal(1, "scope", "http://a/2", object())  # type: ignore[arg-type]
    with pytest.raises(sqlite3.Error):
        shelf.commit()
    other = SharedRecords(tmp_path / "robots.db")
    assert other._db.execute("SELECT count(*) FROM refusals").fetchone() == (0,)
    assert other.save_robots("http://a", RobotsRecord("ok", b"3", 5.0), 2.0) == 2, "nobody holds the file"
    other.close()
    shelf._db.close()


def test_a_mark_that_was_cut_hides_no_other(tmp_path: Path) -> None:
    slots = [f"slot{number}" for number in range(6)]
    for number, slot in enumerate(slots, 1):
        mark = PodMarks(tmp_path / "marks", slot)
        mark.record_seen(10 * number, number)
        mark.close()
    mine = PodMarks(tmp_path / "marks", "mine")
    for number, slot in enumerate(slots, 1):
        path = tmp_path / "marks" / slot
        whole = path.read_bytes()
        path.write_bytes(whole[:-1])
        assert mine.last_seen() == (None, 6 if number < 6 else 5)
        path.write_bytes(whole)
    assert mine.last_seen() == (60, 6)
    mine.close()


def test_a_mark_that_was_cut_tells_that_there_was_something(tmp_path: Path) -> None:
    one = PodMarks(tmp_path / "marks", "one")
    one.record_seen(7, 3)
    (tmp_path / "marks" / "two").write_bytes(b"short")
    three = PodMarks(tmp_path / "marks", "three")
    three.record_seen(9, 5)
    assert three.last_seen() == (None, 5)
    assert three.is_rebooted, "it had no process before"
    again = PodMarks(tmp_path / "marks", "one")
    assert not again.is_rebooted
    for mark in (one, three, again):
        mark.close()


def test_a_process_whose_own_mark_was_cut_knows_that_there_was_something(tmp_path: Path) -> None:
    """A server that has lost its last writes together with the mark, as in a power cut, must not be trusted."""
    for left in (b"", b"short"):
        mark = PodMarks(tmp_path / "marks", "one")
        mark.record_seen(7, 3)
        mark.close()
        (tmp_path / "marks" / "one").write_bytes(left)
        again = PodMarks(tmp_path / "marks", "one")
        assert (again.is_rebooted, again.last_seen()) == (True, (None, 0))
        again.record_seen(8, 4)
        assert again.last_seen() == (8, 4)
        again.close()


def test_sitemaps_are_left_up_to_the_bound_of_the_refusals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shelf_module, "MOST_REFUSALS", 2)
    shelf = SharedRecords(tmp_path / "robots.db")
    for number in range(4):
        sitemap = Found(f"http://a/{number}.xml", 2, 7, 1, Purpose.SITEMAP, "http://a")
        shelf.record_sitemap(1, sitemap)
        shelf.record_refusal(1, "budget", sitemap.url, 7)
    shelf.commit()
    assert shelf.recorded_sitemaps(1) == [
        Found(f"http://a/{n}.xml", 2, 0, 1, Purpose.SITEMAP, "http://a") for n in range(2)
    ]
    shelf.close()
