"""Crawls through real proxies, and `weft proxies`: seen by the site, and in the proxies' own logs."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from crawling import Crawler, audited, until, weft_here
from jobs import config_for, ended, serving, submit
from pace import patience
from ports import free_port
from proxying import EchoSite, Proxies, hijacks
from served_http import service_in

from weft.errors import BadInput
from weft.scraping import TaskState
from weft.telemetry import read_snapshot

pytestmark = pytest.mark.usefixtures("proxies_here")
PAGES = 12
CERTS = Path(__file__).parents[1] / "unit" / "fetch" / "certs"


@pytest.fixture(scope="module")
def site() -> Iterator[EchoSite]:
    with EchoSite(("127.0.0.1", "127.0.0.2"), PAGES) as running:
        yield running


@pytest.fixture
def proxies(tmp_path: Path) -> Iterator[Proxies]:
    folder = tmp_path / "proxies"
    folder.mkdir()
    with Proxies(folder) as running:
        yield running


def weft(*arguments: str, exit_code: int = 0, **environment: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "weft", *arguments], capture_output=True, text=True, timeout=patience(60),
        env={**os.environ, **environment},
    )  # fmt: skip
    assert done.returncode == exit_code, done.stderr + done.stdout
    assert "Traceback" not in done.stderr
    return done


def crawl(folder: Path, site: EchoSite, listed: Path, *flags: str, hosts: int = 1, exit_code: int = 0) -> Counter[str]:
    """Crawls the site through a list; how often each source has asked it for a page."""
    before = len(site.asked)
    seeds = [f"http://{host}/page/{number}" for host in _hosts(site)[:hosts] for number in range(PAGES)]
    weft(
        "crawl", *seeds, "--data-dir", str(folder / "data"), "--proxies", str(listed), "--allow-private",
        "--delay", "0.05", "--prometheus-port", "0", "--retry-backoff-seconds", "0.05", *flags, exit_code=exit_code,
    )  # fmt: skip
    return Counter(asked.source for asked in site.asked[before:])


def test_a_crawl_goes_through_its_proxies_alone_and_leaves_out_those_that_fail_or_are_blocked(
    tmp_path: Path, site: EchoSite, proxies: Proxies
) -> None:
    http = proxies.tinyproxy("127.0.0.3", "user secret77")
    socks = proxies.microsocks("127.0.0.4", "user", "p@ss")
    unwanted = proxies.tinyproxy("127.0.0.7")
    site.blocked = {"127.0.0.7"}
    listed = tmp_path / "list.txt"
    listed.write_text(
        f"# mine\nhttp://user:secret77@127.0.0.1:{http.port}\nsocks5://user:p@ss@127.0.0.1:{socks.port}\n"
        f"127.0.0.1:{unwanted.port}\nrubbish\n" + "".join(f"127.0.0.1:{free_port()}\n" for _ in range(6))
    )
    sources = crawl(tmp_path, site, listed, "--max-retries", "0", hosts=2)
    site.blocked = set()
    assert sum(sources.values()) == 2 * PAGES, "proxies that are dead cost no page"
    assert set(sources) <= {"127.0.0.3", "127.0.0.4", "127.0.0.7"}, "nothing went out directly"
    assert min(sources["127.0.0.3"], sources["127.0.0.4"]) > 0, "all that work have their turn"
    assert sources["127.0.0.7"] <= 2, "a block at each of two sites bans it there"
    assert sum("GET http://" in line for line in http.requests()) >= sources["127.0.0.3"], "no tunnel is asked for"
    assert len(socks.requests()) > 0
    everything = b"".join(path.read_bytes() for path in (tmp_path / "data").rglob("*") if path.is_file())
    assert b"secret77" not in everything
    assert b"p@ss" not in everything


def test_a_crawl_without_a_usable_proxy_waits_asks_nobody_and_says_why(tmp_path: Path, site: EchoSite) -> None:
    listed, before = tmp_path / "list.txt", len(site.asked)
    listed.write_text(f"127.0.0.1:{free_port()}\nrubbish\n")
    seeds = [f"http://{_hosts(site)[0]}/page/{number}" for number in range(PAGES)]
    crawler = Crawler(seeds, tmp_path, "--proxies", listed, "--proxy-rest-seconds", patience(600))
    with crawler.running() as running:
        why = until(lambda: crawler.status().get("note"), 30, "a note of what it waits for")
        said = [weft(*command).stdout for command in (("stats", str(crawler.data_dir)),
                ("explain", str(crawler.data_dir), seeds[0]))]  # fmt: skip
        running.send_signal(signal.SIGINT)
        assert running.wait(patience(30)) == 130
    assert f"proxies {listed}: 1 line cannot be read: line 2 (it has no port)" in crawler.said
    assert why.startswith(f"no proxy of {listed} is usable")
    assert all(f"no proxy of {listed} is usable" in one and "--direct-fallback" in one for one in said), said
    assert len(site.asked) == before
    sources = crawl(tmp_path, site, listed, "--resume", "--direct-fallback")
    assert sources == {"127.0.0.1": PAGES}


def test_a_site_keeps_its_proxy_and_two_sites_have_two(tmp_path: Path, site: EchoSite, proxies: Proxies) -> None:
    running = [proxies.tinyproxy(f"127.0.0.{number}") for number in (11, 12, 13)]
    listed = tmp_path / "list.txt"
    listed.write_text("".join(f"127.0.0.1:{one.port}\n" for one in running))
    before = len(site.asked)
    sources = crawl(tmp_path, site, listed, "--proxy-sticky", "--proxy-apart", hosts=2)
    assert sum(sources.values()) == 2 * PAGES
    by_host = {host: {one.source for one in site.asked[before:] if one.host == host} for host in _hosts(site)}
    assert all(len(found) == 1 for found in by_host.values()), by_host
    assert len(set.union(*by_host.values())) == 2


def _hosts(site: EchoSite) -> list[str]:
    return [f"127.0.0.{number}:{site.port}" for number in (1, 2)]


def test_too_few_proxies_are_tested_while_the_crawl_runs(tmp_path: Path, site: EchoSite, proxies: Proxies) -> None:
    fine, wrong = proxies.tinyproxy("127.0.0.3"), proxies.listening(hijacks)
    listed = tmp_path / "list.txt"
    listed.write_text(f"127.0.0.1:{wrong}\n127.0.0.1:{fine.port}\n")
    test_url = f"http://127.0.0.1:{site.port}/test"
    sources = crawl(
        tmp_path, site, listed, "--proxy-test-url", test_url, "--proxy-refresh-pause-seconds", "0.2", "--delay", "0.2",
    )  # fmt: skip
    kept = json.loads((tmp_path / "data" / "live_proxies.json").read_text())
    assert [one["url"] for one in kept["proxies"]] == [f"http://127.0.0.1:{fine.port}"]
    tests = [line for line in fine.requests() if "/test" in line]
    assert len(tests) >= 2, "at first, and again because one is fewer than `min_proxies`"
    assert sources["127.0.0.3"] >= len(tests)


def test_a_crawl_through_tunnels_asks_once_for_each_page_and_politely(tmp_path: Path, proxies: Proxies) -> None:
    """By the site's own log, and by `weft audit`: a CONNECT to a proxy is no request."""
    delay_s = 0.2
    both = [proxies.tinyproxy(f"127.0.0.{number}") for number in (3, 4)]
    listed = tmp_path / "list.txt"
    listed.write_text("".join(f"127.0.0.1:{one.port}\n" for one in both))
    with EchoSite(pages=PAGES, certificate=CERTS / "self_signed.pem") as site:
        crawler = Crawler([f"{site.url}page/0"], tmp_path, "--proxies", listed, "--no-tls-verify", delay_s=delay_s)
        assert crawler.run() == 0, crawler.said
        arrivals = site.arrivals
    assert sorted(one.path for one in site.asked) == sorted(f"/page/{number}" for number in range(PAGES))
    assert all(after - before >= delay_s for before, after in pairwise(arrivals)), "one clock for all proxies"
    assert any("CONNECT" in line for one in both for line in one.requests())
    report = audited(crawler.data_dir)
    assert (report.requests, report.violations) == (len(arrivals), [])


def test_a_task_that_asks_for_proxies_goes_through_them_and_another_does_not(
    tmp_path: Path, site: EchoSite, proxies: Proxies
) -> None:
    listed = tmp_path / "list.txt"
    listed.write_text(f"127.0.0.1:{proxies.tinyproxy('127.0.0.3').port}\n127.0.0.1:{free_port()}\n")
    config = config_for(tmp_path / "service", proxies=str(listed), proxy_test_url=f"{site.url}test", min_proxies=1)

    async def sources(**spec: bool) -> set[str]:
        before = len(site.asked)
        async with serving(config) as (service, _):
            task = await submit(service, f"{site.url}page/10", max_depth=5, proxies=spec.get("proxies", False))
            assert (await ended(service, task)).state is TaskState.COMPLETED
        return {one.source for one in site.asked[before:] if one.path.startswith("/page")}

    assert asyncio.run(sources()) == {"127.0.0.1"}
    assert asyncio.run(sources(proxies=True)) == {"127.0.0.3"}
    assert (tmp_path / "service" / "live_proxies.json").exists()


def test_a_task_cannot_ask_for_proxies_where_there_are_none(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(config_for(tmp_path)) as (service, _):
            with pytest.raises(BadInput, match="proxies: this service has none"):
                await submit(service, "http://127.0.0.1:1/", proxies=True)

    asyncio.run(work())


def test_proxies_are_refreshed_listed_and_tried_without_their_passwords(
    tmp_path: Path, site: EchoSite, proxies: Proxies
) -> None:
    running, port = proxies.tinyproxy("127.0.0.3", "user secret77"), free_port()
    listed, folder = tmp_path / "list.txt", ("--data-dir", str(tmp_path / "service"))
    listed.write_text(f"user:secret77@127.0.0.1:{running.port}\nother:secret88@127.0.0.1:{port}\n")
    settings = (*folder, "--allow-private", "--proxies", str(listed), "--proxy-test-url", site.url)
    few = weft("proxies", "refresh", *settings, exit_code=3)
    enough = weft("proxies", "refresh", "--json", *settings, MIN_PROXIES_FOR_SCRAPING="1")
    told = json.loads(enough.stdout)
    assert (told["tested"], told["passed"], told["enough"]) == (2, 1, True)
    assert told["progress"][f"proxy_refresh:{told['job_id']}:status"] == "COMPLETE"
    shown = weft("proxies", "list", "--json", *folder)
    (one,) = json.loads(shown.stdout)["proxies"]
    assert one["proxy"] == f"http://user@127.0.0.1:{running.port}"
    plain = weft("proxies", "list", *folder)
    tried = weft("proxies", "test", site.url, "--allow-private", "--proxies", str(listed))
    works, failed = tried.stdout.splitlines()
    assert f"http://user@127.0.0.1:{running.port}" in works and "HTTP 200" in works and "anonymity: " in works
    assert f"http://other@127.0.0.1:{port}" in failed and failed.endswith("it accepts no connection")
    assert f"1 failed: it accepts no connection (http://other@127.0.0.1:{port})" in few.stdout
    refused = weft("proxies", "test", site.url, "--proxies", str(listed), exit_code=2)
    assert refused.stderr.startswith(f"weft: argument URL {site.url} cannot be requested directly")
    assert "address: 127.0.0.1: loopback; --allow-private " in refused.stderr
    for said in (few, enough, shown, plain, tried):
        assert "secret" not in said.stdout + said.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("crawl", "http://127.0.0.1:1/", "--proxies", "no-such-file.txt"), "no-such-file.txt"),
        (("crawl", "http://127.0.0.1:1/", "--direct-fallback"), "--proxies"),
        (("proxies", "refresh", "--proxies", __file__), "--proxy-test-url"),
        (("proxies", "refresh", "--proxy-test-url", "ftp://x/"), "--proxy-test-url"),
        (("proxies", "refresh", "--proxy-test-url", "http://a:secret@x/"), "would be sent through every proxy"),
        (("proxies", "refresh", "--proxy-test-url", "http://127.0.0.1:1/"), "--proxy-sources"),
        (("proxies", "test", "http://127.0.0.1:1/"), "weft proxies refresh"),
        (("proxies", "test", "nonsense"), "argument URL: 'nonsense'"),
    ],
)
def test_bad_input_is_one_message(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    done = weft_here(*arguments, "--data-dir", tmp_path / "none")
    assert done.returncode == 2, done.stderr + done.stdout
    assert said in done.stderr and "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) <= 3


def test_a_task_of_the_command_line_goes_through_proxies_whose_passwords_nobody_is_shown(
    tmp_path: Path, site: EchoSite, proxies: Proxies
) -> None:
    """Answers of the API, pages of the dashboard, metrics, logs and what the command prints."""
    fine, locked = proxies.tinyproxy("127.0.0.3", "user secret77"), proxies.microsocks("127.0.0.4", "user", "p@ss")
    listed = tmp_path / "list.txt"
    listed.write_text(
        f"user:secret77@127.0.0.1:{fine.port}\nsocks5://user:secret88@127.0.0.1:{locked.port}\n"
        f"other:secret99@127.0.0.1:{free_port()}\n"
    )
    before = len(site.asked)
    test = ("--proxy-test-url", f"{site.url}test", "--min-proxies", "1")
    with service_in(tmp_path / "service", "--proxies", listed, *test) as service:
        done = weft("jobs", "submit", f"{site.url}page/0", "--proxies", "--watch", "--json", "--server", service.url)
        task = json.loads(done.stdout)["task_id"]
        assert json.loads(done.stdout)["status"] == "COMPLETED"
        saved = tmp_path / "pages.yaml"
        saved.write_text(f"name: pages\nstart_urls: [{site.url}page/9]\nproxies: true\n")
        weft("sites", "add", str(saved), "--data-dir", str(service.folder))
        weft("sites", "run", "pages", "--watch", "--data-dir", str(service.folder))
        paths = [f"/scraping/tasks/{task}/{what}" for what in ("status", "results?include_errors=true")]
        paths += [f"/tasks/{task}", f"/tasks/{task}/pages?kind=error", "/service", "/new", "/metrics", "/healthz"]
        answers = [service.ask("GET", path) for path in paths]
    assert [status for status, *_ in answers] == [200] * len(paths)
    assert f"http://user@127.0.0.1:{fine.port}" in answers[paths.index("/service")][2].decode()
    pages = [one for one in site.asked[before:] if one.path.startswith("/page")]
    assert {one.source for one in pages} == {"127.0.0.3"}, "nothing went out directly"
    asked = [line for line in fine.requests() if "GET" in line and "/test" not in line]
    assert len(asked) >= len(pages) == 3 + 3, "two links from the first, and of the site all that come after"
    assert any(line.endswith("/page/11 HTTP/1.1") for line in asked), "the site's run"
    logs = [path.read_text() for path in (tmp_path / "service").rglob("*.log")]
    figures = _figures(tmp_path / "service" / "engine" / "metrics")
    assert figures["weft_proxies_usable engine0"] == 1
    assert figures[f"weft_proxy_requests_total engine0 http://127.0.0.1:{fine.port} ok"] == len(asked)
    assert figures["weft_proxy_tests_total supervisor0 passed"] == 1
    assert figures["weft_proxy_tests_total supervisor0 failed"] == 2
    assert figures["weft_proxy_refresh_seconds_total supervisor0"] > 0
    assert "secret" not in str(figures)
    assert any(" proxies count=1 " in text for text in logs), "the engine uses the one that has passed"
    for text in (done.stdout, done.stderr, *(body.decode() for *_, body in answers), *logs):
        assert "secret" not in text


def _figures(folder: Path) -> dict[str, float]:
    """All that the processes have counted: series, process and labels."""
    found = {}
    for path in folder.glob("*.metrics"):
        snapshot = read_snapshot(path)
        assert snapshot is not None
        for one in snapshot.series:
            found[" ".join((one.name, snapshot.process, *one.labels.values()))] = one.values[0]
    return found
