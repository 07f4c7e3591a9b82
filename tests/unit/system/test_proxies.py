"""The supervisor's proxies: refreshed in the background, counted, waited for."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pace import patience
from ports import free_port
from proxying import EchoSite, Proxies

from weft.errors import BadInput
from weft.fetch.proxies.refresh import last_job
from weft.system import control
from weft.system.state import ProxyRow
from weft.system.supervisor import Supervisor

pytestmark = pytest.mark.usefixtures("proxies_here")


@pytest.fixture(scope="module")
def site() -> Iterator[EchoSite]:
    with EchoSite() as running:
        yield running


@pytest.fixture
def proxies(tmp_path: Path) -> Iterator[Proxies]:
    with Proxies(tmp_path) as running:
        yield running


def supervisor(folder: Path, site: EchoSite, *listed: int, **more: Any) -> Supervisor:
    path = folder / "list.txt"
    path.write_text("".join(f"127.0.0.1:{port}\n" for port in listed))
    settings = {"proxies": str(path), "proxy_test_url": site.url, "allow_private": True, "min_proxies": 1, **more}
    return Supervisor(data_dir=str(folder / "service"), **settings)


def held_back(proxies: Proxies) -> tuple[threading.Event, int]:
    """The port of a proxy that takes connections and says nothing until it is let go; then it hangs up."""
    let_go = threading.Event()

    def behave(_: socket.socket) -> None:
        let_go.wait()

    return let_go, proxies.listening(behave)


def test_enough_proxies_are_waited_for_and_then_there(tmp_path: Path, site: EchoSite, proxies: Proxies) -> None:
    running = supervisor(tmp_path, site, proxies.tinyproxy().port, free_port())
    assert (running.get_proxy_count(), running.get_usable_proxy_count()) == (0, 0)
    assert running.wait_for_proxies() is True
    assert (running.get_proxy_count(), running.get_usable_proxy_count()) == (2, 1)
    asked = len(site.asked)
    assert running.wait_for_proxies() is True
    assert len(site.asked) == asked, "there were enough: nobody was asked"


def test_too_few_proxies_are_false_and_a_wait_that_ends_is_none(
    tmp_path: Path, site: EchoSite, proxies: Proxies
) -> None:
    assert supervisor(tmp_path, site, free_port()).wait_for_proxies() is False
    let_go, held = held_back(proxies)
    slow = supervisor(tmp_path, site, held)
    job = slow.trigger_proxy_refresh()
    assert slow.trigger_proxy_refresh() == job, "one runs already"
    assert slow.wait_for_proxies(timeout=0.1) is None
    let_go.set()
    assert slow.wait_for_proxies() is False
    last = last_job(tmp_path / "service" / "live_proxies.json")
    assert last is not None and (last.job_id, last.kind, last.status) == (job, "proxy_refresh", "COMPLETE")
    keys = {"status", "total_chunks", "completed_chunks", "started_at", "completed_at", "result_count"}
    progress = slow.proxy_progress(job)
    assert progress == slow.proxy_progress() and set(progress) == {f"proxy_refresh:{job}:{name}" for name in keys}
    assert (progress[f"proxy_refresh:{job}:status"], progress[f"proxy_refresh:{job}:total_chunks"]) == ("COMPLETE", 1)


def test_the_refresh_of_another_process_is_followed_by_its_id(tmp_path: Path, site: EchoSite, proxies: Proxies) -> None:
    """An engine or `weft proxies refresh`: here another supervisor of the same folder."""
    let_go, held = held_back(proxies)
    another, running = (supervisor(tmp_path, site, proxies.tinyproxy().port, held) for _ in range(2))
    job = another.trigger_proxy_refresh()
    until = time.monotonic() + patience(10)
    while last_job(tmp_path / "service" / "live_proxies.json") is None:
        assert time.monotonic() < until, "it does not begin"
        time.sleep(0.01)
    assert running.trigger_proxy_refresh() == job, "nobody is tested twice"
    assert running.wait_for_proxies(timeout=0.1) is None
    let_go.set()
    assert running.wait_for_proxies() is True
    assert another.wait_for_proxies() is True
    assert running.proxy_progress(job)[f"proxy_refresh:{job}:result_count"] == 1


def test_an_open_supervisor_tests_them_by_itself(tmp_path: Path, site: EchoSite, proxies: Proxies) -> None:
    until = time.monotonic() + patience(10)
    with supervisor(tmp_path, site, proxies.tinyproxy().port, services=()) as running:
        while not running.get_usable_proxy_count():
            assert time.monotonic() < until, "nobody has tested them"
            time.sleep(0.05)


def test_without_proxies_the_settings_that_are_missing_are_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="proxy_test_url"):
        Supervisor(data_dir=str(tmp_path)).wait_for_proxies()


def proxy_row(folder: Path, is_wanted: Callable[[ProxyRow], bool]) -> ProxyRow:
    """The row of `weft status`, once it is as it should be."""
    until = time.monotonic() + patience(20)
    while True:
        state, _ = control.status(folder / "service")
        assert state is not None and state.proxies is not None
        if is_wanted(state.proxies):
            return state.proxies
        assert time.monotonic() < until, state.proxies
        time.sleep(0.02)


def test_the_status_tells_how_the_proxies_are_at_every_moment(tmp_path: Path, site: EchoSite, proxies: Proxies) -> None:
    fine, (let_go, held) = proxies.tinyproxy().port, held_back(proxies)
    with supervisor(tmp_path, site, fine, held, services=(), min_proxies=2, proxy_refresh_pause_seconds=0.1):
        row = proxy_row(tmp_path, lambda _: True)
        assert row.state == "testing" and not row.healthy and "being tested" in row.note, "from the first moment"
        proxy_row(tmp_path, lambda row: row.refresh is not None)
        let_go.set()
        row = proxy_row(tmp_path, lambda row: row.state == "too few")
        assert (row.usable, row.listed, row.min_proxies, row.healthy) == (1, 2, 2, False)
        assert "1 of 2 usable, 2 needed" in row.note and "lower `min_proxies`" in row.note
        (tmp_path / "list.txt").write_text(f"127.0.0.1:{fine}\n127.0.0.1:{proxies.tinyproxy().port}\n")
        row = proxy_row(tmp_path, lambda row: row.healthy)
        assert (row.usable, row.last_error) == (2, None) and row.since and re.search(r"tested \S+ \w+ ago$", row.note)
    row = proxy_row(tmp_path, lambda _: True)
    assert (row.state, row.healthy, row.usable) == ("stopped", False, 2) and "weft up" in row.note


def test_a_live_file_that_cannot_be_read_is_told_and_replaced(tmp_path: Path, site: EchoSite, proxies: Proxies) -> None:
    (tmp_path / "service").mkdir()
    (tmp_path / "service" / "live_proxies.json").write_text("{rubbish")
    running = supervisor(tmp_path, site, proxies.tinyproxy().port, services=(), proxy_refresh_pause_seconds=0)
    row = running.status().proxies
    assert row is not None and "weft proxies refresh" in row.note
    with running:
        proxy_row(tmp_path, lambda row: row.healthy)


def test_a_list_that_is_not_tested_counts_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("127.0.0.1:1\n127.0.0.1:2\n")
    row = Supervisor(data_dir=str(tmp_path), proxies=str(tmp_path / "list.txt")).status().proxies
    assert row is not None
    assert (row.state, row.healthy, row.usable, row.min_proxies) == ("untested", True, 2, 1)
    assert Supervisor(data_dir=str(tmp_path)).status().proxies is None, "without proxies there is no row"


def test_a_refresh_whose_process_was_killed_has_failed(tmp_path: Path) -> None:
    live = tmp_path / "live_proxies.json"
    (tmp_path / "proxy_refresh.json").write_text('{"job_id": "a", "status": "PROCESSING"}')
    found = last_job(live)
    assert found is not None and found.status == "FAILED" and "cut off" in found.error
