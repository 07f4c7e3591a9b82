"""The supervisor's proxies: refreshed in the background, counted, waited for."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pace import patience
from proxying import EchoSite, Proxies, free_port, hangs

from weft.errors import BadInput
from weft.fetch.proxies.refresh import last_job
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
    slow = supervisor(tmp_path, site, proxies.listening(hangs), proxy_test_timeout=patience(3))
    job = slow.trigger_proxy_refresh()
    assert slow.trigger_proxy_refresh() == job, "one runs already"
    assert slow.wait_for_proxies(timeout=0.1) is None
    assert slow.wait_for_proxies() is False
    last = last_job(tmp_path / "service" / "live_proxies.json")
    assert last is not None and (last.job_id, last.kind, last.status) == (job, "proxy_refresh", "COMPLETE")


def test_an_open_supervisor_tests_them_by_itself(tmp_path: Path, site: EchoSite, proxies: Proxies) -> None:
    until = time.monotonic() + patience(10)
    with supervisor(tmp_path, site, proxies.tinyproxy().port, services=()) as running:
        while not running.get_usable_proxy_count():
            assert time.monotonic() < until, "nobody has tested them"
            time.sleep(0.05)


def test_without_proxies_the_settings_that_are_missing_are_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="proxy_test_url"):
        Supervisor(data_dir=str(tmp_path)).wait_for_proxies()
