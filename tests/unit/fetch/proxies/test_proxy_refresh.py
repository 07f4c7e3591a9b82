"""Proxies collected and tested: a verdict for each, what is kept of it, and a pool that is kept up by it."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from pace import patience
from ports import free_port
from proxying import EchoSite, Proxies, hangs, hijacks

from weft.config import FetchSection, ProxySection
from weft.errors import BadInput, Busy, WeftError
from weft.fetch.proxies import live
from weft.fetch.proxies.entry import parse, parse_list
from weft.fetch.proxies.pool import ProxyPool, check
from weft.fetch.proxies.probe import Probe
from weft.fetch.proxies.refresh import Refresh, RefreshJob, _lock, last_job
from weft.fetch.proxies.rotation import FAILS_TO_DIE, ProxyOutcome
from weft.fetch.proxies.sources import collect, source_of

FETCH = FetchSection(email="a@b.test", resolve={"localhost": "127.0.0.1"})


def fine(_address: str) -> None:
    return None


@pytest.fixture(scope="module")
def site() -> Iterator[EchoSite]:
    with EchoSite() as running:
        yield running


@pytest.fixture(scope="module")
def proxies(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxies]:
    with Proxies(tmp_path_factory.mktemp("proxies")) as running:
        yield running


@pytest.fixture
def section(site: EchoSite) -> ProxySection:
    return ProxySection(test_url=f"http://localhost:{site.port}/", timeout_s=patience(0.5), chunk=4, least=2)


# -- sources


def test_lines_may_say_more_about_their_proxy() -> None:
    listed = parse_list(["10.0.0.1:80 country=de tier=2", "10.0.0.2:80 country=Germany", "10.0.0.3:80 speed=9"])
    assert [(one.country, one.tier) for one in listed.proxies] == [("DE", 2)]
    assert [line for line, _ in listed.rejected] == [2, 3]


def test_sources_are_files_urls_and_proxies_and_each_proxy_counts_once(tmp_path: Path, site: EchoSite) -> None:
    (tmp_path / "list.txt").write_text("10.0.0.1:80\n10.0.0.1:80\nrubbish\n10.0.0.2:80 tier=3\n")
    listed = f"{tmp_path / 'list.txt'}#tier=1&country=FR"
    found = collect([listed, "socks5://u:p@10.0.0.3:1080", "10.0.0.2:80", "no/such/file"], lambda _: [])
    assert [(one.name, one.tier, one.country) for one in found.proxies] == [
        ("http://10.0.0.1:80", 1, "FR"), ("http://10.0.0.2:80", 3, "FR"), ("socks5://u@10.0.0.3:1080", 0, ""),
    ]  # fmt: skip
    assert (found.duplicates, found.rejected) == (2, 1)
    first, second = found.problems
    assert first.endswith("list.txt: 1 line cannot be read: line 3 (it has no port)") and "no/such/file" in second


@pytest.mark.parametrize("text", ["list.txt#tier=x", "list.txt#scheme=ftp"])
def test_what_is_wrong_with_a_source_is_named(text: str) -> None:
    with pytest.raises(BadInput, match="proxy_sources"):
        source_of(text)


def test_a_list_is_asked_for_behind_the_guard(tmp_path: Path, site: EchoSite, section: ProxySection) -> None:
    before = len(site.asked)
    inside = Refresh([f"{site.url}list"], section, FETCH, lambda _: "inside", tmp_path / live.FILE)
    with pytest.raises(BadInput, match="address"):
        inside.run()
    assert len(site.asked) == before


# -- verdicts


@pytest.mark.usefixtures("proxies_here")
def test_each_kind_of_proxy_gets_the_right_verdict(proxies: Proxies, section: ProxySection) -> None:
    telling, silent = proxies.tinyproxy("127.0.0.3", tells=True), proxies.tinyproxy("127.0.0.5", "user right")
    socks = proxies.microsocks("127.0.0.4", "user", "p@ss")
    expected = {
        f"http://127.0.0.1:{telling.port}": "transparent",
        f"http://user:right@127.0.0.1:{silent.port}": "anonymous",
        f"socks5://user:p@ss@127.0.0.1:{socks.port}": "elite",
        f"http://127.0.0.1:{silent.port}": "it asks for a login (407)",
        f"socks5://user:wrong@127.0.0.1:{socks.port}": "refuses the login",
        f"http://127.0.0.1:{free_port()}": "connect",
        f"http://127.0.0.1:{proxies.listening(hangs)}": "not done in",
        f"http://127.0.0.1:{proxies.listening(hijacks)}": "it answers with something else than the page",
    }
    probe = Probe(section, FETCH, fine)
    found = {one.proxy.url: one.why or one.anonymity for one in probe.run(map(parse, expected), probe.expect())}
    assert len(found) == len(expected)
    for url, what in expected.items():
        assert what in found[parse(url).url], url


def test_a_test_url_that_may_not_be_asked_is_named(section: ProxySection) -> None:
    with pytest.raises(BadInput, match="proxy_test_url"):
        Probe(section, FETCH, lambda _: "inside").expect()
    with pytest.raises(BadInput, match="proxy_test_url"):
        Probe(replace(section, test_url=None), FETCH, fine)


# -- a refresh


@pytest.mark.usefixtures("proxies_here")
def test_a_refresh_keeps_what_passes_for_its_owner_alone(
    tmp_path: Path, proxies: Proxies, section: ProxySection
) -> None:
    running = proxies.tinyproxy("127.0.0.3", "user secret77")
    listed = tmp_path / "list.txt"
    listed.write_text(
        f"user:secret77@127.0.0.1:{running.port} country=de\n" + "".join(f"127.0.0.1:{free_port()}\n" for _ in range(5))
    )
    file, jobs = tmp_path / live.FILE, list[RefreshJob]()
    done = Refresh([str(listed)], section, FETCH, fine, file).run(jobs.append)
    assert (done.tested, done.passed) == (6, 1)
    (one,) = (live.read(file) or live.LiveFile()).proxies
    assert (one.proxy.password, one.proxy.country, one.anonymity) == ("secret77", "DE", "anonymous")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [job.status for job in jobs[:2]] == ["DISPATCHED", "PROCESSING"]
    last = last_job(file)
    assert last == jobs[-1]
    assert (last.status, last.total_chunks, last.completed_chunks, last.result_count) == ("COMPLETE", 2, 2, 1)
    assert "secret77" not in (tmp_path / "proxy_refresh.json").read_text()


def test_a_second_refresh_is_refused_while_one_runs(tmp_path: Path, section: ProxySection) -> None:
    file = tmp_path / live.FILE
    with _lock(file), pytest.raises(Busy):
        Refresh(["127.0.0.1:1"], section, FETCH, fine, file).run()


def test_a_test_url_that_answers_nobody_changes_nothing(tmp_path: Path, section: ProxySection) -> None:
    file = tmp_path / live.FILE
    live.write(file, live.LiveFile(proxies=(live.Live(url="http://127.0.0.1:1", latency_s=1.0),)))
    dead = replace(section, test_url=f"http://127.0.0.1:{free_port()}/")
    with pytest.raises(WeftError, match="gives no answer"):
        Refresh([f"127.0.0.1:{free_port()}"], dead, FETCH, fine, file).run()
    assert len((live.read(file) or live.LiveFile()).proxies) == 1
    job = last_job(file)
    assert job is not None and job.status == "FAILED"


@pytest.mark.parametrize("content", ["{", '{"proxies": [{"url": "x", "latency_s": 1}]}', '{"proxies": 3}'])
def test_a_damaged_live_file_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / live.FILE).write_text(content)
    with pytest.raises(BadInput, match=r"live_proxies\.json"):
        live.read(tmp_path / live.FILE)


# -- the pool


def list_of(path: Path, *entries: str) -> Path:
    path.write_text("\n".join(entries))
    return path


@pytest.mark.parametrize("content", ["", "# none\n", "rubbish\n"])
def test_a_list_without_a_proxy_is_refused(tmp_path: Path, content: str) -> None:
    with pytest.raises(BadInput, match="no proxy in it"):
        check(list_of(tmp_path / "list.txt", content))
    with pytest.raises(BadInput, match="No such file"):
        check(tmp_path / "other.txt")


def test_a_list_that_changes_is_read_again(tmp_path: Path, section: ProxySection) -> None:
    path = list_of(tmp_path / "list.txt", "10.0.0.1:80")
    pool = ProxyPool(path, section, None)
    assert pool.choose("site.test", 10.0, sticky=False, apart=False) == parse("10.0.0.1:80")
    list_of(path, "10.0.0.2:80")
    os.utime(path, (2e9, 2e9))
    assert pool.choose("site.test", 12.0, sticky=False, apart=False) == parse("10.0.0.2:80")


def test_what_nobody_tests_is_tried_again_when_it_has_rested(tmp_path: Path, section: ProxySection) -> None:
    pool = ProxyPool(list_of(tmp_path / "list.txt", "10.0.0.1:80"), section, None)
    assert pool.held_up(10.0) == "", "nothing is known of them yet"
    proxy = pool.choose("site.test", 10.0, sticky=False, apart=False)
    assert proxy is not None and pool.held_up(10.0) == ""
    for _ in range(FAILS_TO_DIE):
        pool.ended(proxy, "site.test", ProxyOutcome.FAILED, 0.1, 10.0)
    assert pool.choose("site.test", 20.0, sticky=False, apart=False) is None
    assert "list.txt is usable" in pool.held_up(20.0)
    pool.choose("site.test", 5000.0, sticky=False, apart=False)
    assert pool.choose("site.test", 5001.0, sticky=False, apart=False) == proxy


@pytest.mark.usefixtures("proxies_here")
def test_too_few_usable_proxies_are_tested_anew(tmp_path: Path, proxies: Proxies, section: ProxySection) -> None:
    running = proxies.tinyproxy("127.0.0.3")
    path = list_of(tmp_path / "list.txt", f"127.0.0.1:{running.port}", f"127.0.0.1:{free_port()}")
    keen = replace(section, least=2, pause_s=0.0)
    file = tmp_path / live.FILE
    pool = ProxyPool(path, keen, Refresh([str(path)], keen, FETCH, fine, file))
    until, now = time.monotonic() + patience(10), 0.0
    tested = set[float]()
    while len(tested) < 3 or len(pool.rotation) != 1:  # at first, and each time that one of two is not enough
        assert time.monotonic() < until, (tested, len(pool.rotation))
        now += 1.0
        pool.choose("site.test", now, sticky=False, apart=False)
        if file.exists():
            tested.add(file.stat().st_mtime)
        time.sleep(0.02)
