"""What waits for other pods: no number is used twice, and when a message is safe from a kill or a power cut."""

from __future__ import annotations

from pathlib import Path

import pytest

from weft.frontier.redis.pods import pod_outbox
from weft.frontier.redis.pods.pod_outbox import KEEP_S, Arrived, Behind, FileOutbox, Sent


def sent_up_to(last: int) -> Sent:
    sent = Sent([1])
    for number in range(2, last + 1):
        sent.put(number)
    sent.delivered(last)
    return sent


def test_a_message_is_safe_when_the_server_has_written_it_and_forgotten_when_it_has_synced() -> None:
    sent = sent_up_to(3)
    assert (sent.waits, sent.unsafe, sent.after, sent.is_due(0.0)) == (False, 3, 3, True)
    assert sent.update(Arrived(3, "a", 1000, 50), 10.0) == 0
    assert sent.unsafe == 3, "the server keeps it back"
    sent.put(4)
    sent.delivered(4)
    assert sent.update(Arrived(4, "a", 1049, 80), 11.0) == 0
    assert sent.unsafe == 4
    assert sent.update(Arrived(4, "a", 1050, 99), 12.0) == 0
    assert sent.unsafe == 1, "a server that always keeps something back writes in order"
    assert sent.update(Arrived(4, "a", 2000, 0), 13.0) == 0
    assert (sent.unsafe, sent.after) == (0, 4)
    assert not sent.is_due(12.0 + KEEP_S - 1)
    assert sent.is_due(12.0 + KEEP_S)
    assert sent.update(Arrived(4, "a", 2000, 10), 12.0 + KEEP_S) == 3
    assert sent.update(Arrived(4, "a", 2000, 10), 13.0 + KEEP_S) == 4
    assert (sent.after, sent.is_due(1e9)) == (0, False)


def test_a_server_that_was_started_anew_has_not_written_what_the_one_before_had_in_hand() -> None:
    sent = sent_up_to(3)
    sent.update(Arrived(3, "a", 1000, 50), 10.0)
    assert sent.update(Arrived(3, "b", 5000, 20), 11.0) == 0
    assert sent.unsafe == 3
    sent.update(Arrived(3, "b", 5020, 20), 12.0)
    assert sent.unsafe == 0


def test_a_server_that_went_back_gets_everything_again() -> None:
    sent = sent_up_to(3)
    sent.update(Arrived(3, "a", 1000, 0), 10.0)
    with pytest.raises(Behind):
        sent.update(Arrived(2, "b", 900, 0), 10.0 + KEEP_S)
    sent.rewind()
    assert (sent.waits, sent.waiting, sent.unsafe, sent.after) == (True, 3, 3, 0)
    sent.delivered(1)
    assert (sent.waiting, sent.after) == (2, 1)


def test_numbers_go_on_after_a_restart_and_leap_after_a_power_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pod_outbox, "boot_id", lambda: "first")
    box = FileOutbox(tmp_path / "box.db", lambda: 1.0)
    numbers = [box.put({1: b"a", 2: b"b"}), box.put({1: b"c"})]
    assert numbers == [{1: 1_000_001, 2: 1_000_001}, {1: 1_000_002}]
    box.forget({1: 1_000_002})
    box.close()
    box = FileOutbox(tmp_path / "box.db", lambda: 2.0)
    assert (len(box), box.numbers(1), box.numbers(2)) == (1, [], [1_000_001])
    assert box.put({1: b"d"}) == {1: 1_000_003}
    box.close()
    monkeypatch.setattr(pod_outbox, "boot_id", lambda: "second")
    for _ in range(2):
        box = FileOutbox(tmp_path / "box.db", lambda: 3.0)
        assert box.next(1, 0) == (1_000_003, b"d")
        box.close()
    box = FileOutbox(tmp_path / "box.db", lambda: 4.0)
    assert box.put({1: b"e", 3: b"f"}) == {1: 3_000_001, 3: 3_000_001}
    assert list(box.all(1)) == [(1_000_003, b"d"), (3_000_001, b"e")]
    box.close()
