"""What waits for other pods: no number is used twice, and when a message is safe from a kill or a power cut."""

from __future__ import annotations

from pathlib import Path

import pytest

from weft.frontier.redis.pods import pod_outbox
from weft.frontier.redis.pods.pod_outbox import UNSAFE_S, ArrivalState, DeliveryState, FileOutbox, MessageLost


def sent_up_to(last: int) -> DeliveryState:
    sent = DeliveryState([1])
    for number in range(2, last + 1):
        sent.add_message(number)
    sent.mark_delivered(last)
    return sent


def test_a_message_is_safe_when_the_server_has_written_it_and_forgotten_when_it_has_synced() -> None:
    sent = sent_up_to(3)
    assert (sent.has_undelivered, sent.unsafe_messages, sent.required_predecessor, sent.is_due(0.0)) == (
        False,
        3,
        3,
        True,
    )
    assert sent.apply_arrival(ArrivalState(3, "a", 1000, 50), 10.0) == 0
    assert sent.unsafe_messages == 3, "the server keeps it back"
    sent.add_message(4)
    sent.mark_delivered(4)
    assert sent.apply_arrival(ArrivalState(4, "a", 1049, 80), 11.0) == 0
    assert sent.unsafe_messages == 4
    assert sent.apply_arrival(ArrivalState(4, "a", 1050, 99), 12.0) == 0
    assert sent.unsafe_messages == 1, "a server that always keeps something back writes in order"
    assert sent.apply_arrival(ArrivalState(4, "a", 2000, 0), 13.0) == 0
    assert (sent.unsafe_messages, sent.required_predecessor) == (0, 4)
    assert not sent.is_due(12.0 + UNSAFE_S - 1)
    assert sent.is_due(12.0 + UNSAFE_S)
    assert sent.apply_arrival(ArrivalState(4, "a", 2000, 10), 12.0 + UNSAFE_S) == 3
    assert sent.apply_arrival(ArrivalState(4, "a", 2000, 10), 13.0 + UNSAFE_S) == 4
    assert (sent.required_predecessor, sent.is_due(1e9)) == (0, False)


def test_a_server_that_was_started_anew_has_not_written_what_the_one_before_had_in_hand() -> None:
    sent = sent_up_to(3)
    sent.apply_arrival(ArrivalState(3, "a", 1000, 50), 10.0)
    assert sent.apply_arrival(ArrivalState(3, "b", 5000, 20), 11.0) == 0
    assert sent.unsafe_messages == 3
    sent.apply_arrival(ArrivalState(3, "b", 5020, 20), 12.0)
    assert sent.unsafe_messages == 0


def test_a_server_that_went_back_gets_everything_again() -> None:
    sent = sent_up_to(3)
    sent.apply_arrival(ArrivalState(3, "a", 1000, 0), 10.0)
    with pytest.raises(MessageLost):
        sent.apply_arrival(ArrivalState(2, "b", 900, 0), 10.0 + UNSAFE_S)
    sent.mark_all_undelivered()
    assert (sent.has_undelivered, sent.undelivered_messages, sent.unsafe_messages, sent.required_predecessor) == (
        True,
        3,
        3,
        0,
    )
    sent.mark_delivered(1)
    assert (sent.undelivered_messages, sent.required_predecessor) == (2, 1)


def test_numbers_go_on_after_a_restart_and_leap_after_a_power_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pod_outbox, "boot_id", lambda: "first")
    box = FileOutbox(tmp_path / "box.db", lambda: 1.0)
    numbers = [box.save_messages({1: b"a", 2: b"b"}), box.save_messages({1: b"c"})]
    assert numbers == [{1: 1_000_001, 2: 1_000_001}, {1: 1_000_002}]
    box.delete_messages({1: 1_000_002})
    box.close()
    box = FileOutbox(tmp_path / "box.db", lambda: 2.0)
    assert (len(box), box.message_numbers(1), box.message_numbers(2)) == (1, [], [1_000_001])
    assert box.save_messages({1: b"d"}) == {1: 1_000_003}
    box.close()
    monkeypatch.setattr(pod_outbox, "boot_id", lambda: "second")
    for _ in range(2):
        box = FileOutbox(tmp_path / "box.db", lambda: 3.0)
        assert box.next_message(1, 0) == (1_000_003, b"d")
        box.close()
    box = FileOutbox(tmp_path / "box.db", lambda: 4.0)
    assert box.save_messages({1: b"e", 3: b"f"}) == {1: 3_000_001, 3: 3_000_001}
    assert list(box.all_messages(1)) == [(1_000_003, b"d"), (3_000_001, b"e")]
    box.close()
