"""Requests that workers on other machines were to make: the log names them and their deadline, packed or not."""

from __future__ import annotations

from pathlib import Path

import pytest
from hands import wait_until

from weft.frontier.requests import RequestLog, RequestStart, last_requests, read_events, writing

NOW = 1000.0


def written(folder: Path, *, packed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """One request that has ended, one that is out to a hand, one that this process had in flight."""
    if packed:
        monkeypatch.setattr(writing, "SEGMENT_BYTES", 1)
    log = RequestLog(folder, NOW)
    log.log_start(1, NOW, "ended", 1.0, 1, "http://ended/", 0, hand="hand-1", lasts_s=60.0)
    log.log_start(2, NOW, "out", 1.0, 1, "http://out/", 0, hand="hand-1", lasts_s=60.0)
    log.log_start(3, NOW, "mine", 1.0, 1, "http://mine/", 0)
    log.log_end(1, NOW + 2.0, "200")
    log.log_start(4, NOW, "given up", 1.0, 1, "http://up/", 0, hand="hand-1", lasts_s=60.0)
    log.log_end(4, NOW + 60.0, "aborted")
    log.flush()
    if packed:
        wait_until(lambda: list(folder.glob("*.packed")), "no file was packed")
    log.close()


@pytest.mark.parametrize("packed", [False, True])
def test_a_site_is_due_a_delay_after_the_deadline_of_what_a_hand_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packed: bool
) -> None:
    written(tmp_path, packed=packed, monkeypatch=monkeypatch)
    assert bool(list(tmp_path.glob("*.packed"))) == packed
    recent = last_requests(tmp_path, 0.0, NOW + 10.0)
    assert recent.ended == {"ended": NOW + 2.0, "out": NOW + 60.0, "mine": None, "given up": NOW + 60.0}
    assert (recent.unreadable, recent.unsure_at) == (0, None)


@pytest.mark.parametrize("packed", [False, True])
def test_the_log_names_the_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packed: bool) -> None:
    written(tmp_path, packed=packed, monkeypatch=monkeypatch)
    starts = [event for event in read_events(tmp_path) if isinstance(event, RequestStart)]
    assert {(event.key, event.hand, event.lasts_s) for event in starts} == {
        ("ended", "hand-1", 60.0), ("out", "hand-1", 60.0), ("given up", "hand-1", 60.0), ("mine", "", 0.0),
    }  # fmt: skip


def test_an_end_before_its_time_is_damage_where_no_hand_was_asked(tmp_path: Path) -> None:
    log = RequestLog(tmp_path, NOW)
    log.log_start(1, NOW, "mine", 1.0, 1, "http://mine/")
    log.log_end(1, NOW + 60.0, "200")
    log.close()
    assert last_requests(tmp_path, 0.0, NOW + 10.0).unreadable == 1
