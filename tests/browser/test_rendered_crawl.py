"""Crawls that render: which pages, at what cost to their sites, and what is left after kills."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from browsing import missing as tool_missing
from built_site import NEEDS_BROWSER, built_site
from crawling import WEFT, environment, weft, weft_here
from drawn_site import LEAKS, SITE, THIRD_PARTY, DrawnSite, drawn_site
from fence import OWN, fence
from pace import patience
from rendering import belongs_to


@pytest.fixture(autouse=True)
def _needs_chromium() -> None:
    if shutil.which("chromium") is None:
        tool_missing("chromium")


@pytest.fixture
def site() -> Iterator[DrawnSite]:
    with drawn_site(links=3) as one:
        yield one


def flags(site: DrawnSite, folder: Path, **more: object) -> list[str]:
    named = [text for name, value in more.items() for text in (f"--{name.replace('_', '-')}", str(value))]
    return [
        "crawl", f"{site.url}/", "--data-dir", str(folder), "--allow-private", "--quiet", "--prometheus-port", "0",
        "--delay", "0.2", *named,
    ]  # fmt: skip


def test_a_recrawl_that_renders_replaces_pages_that_were_stored_unrendered(site: DrawnSite, tmp_path: Path) -> None:
    folder, page = tmp_path / "crawl", f"{site.url}/drawn0"
    plain = weft(*flags(site, folder), timeout_s=60)
    assert plain.returncode == 0, plain.stderr
    assert weft_here("get", folder, page, "--rendered").returncode
    again = ("crawl", "--resume", "--recrawl", "--render", "auto", "--data-dir", folder, "--quiet")
    done = weft(*again, timeout_s=90)
    assert done.returncode == 0, done.stderr
    assert "hello /drawn0" in weft_here("get", folder, page, "--rendered").stdout
    before = len([path for path in site.paths() if path == "/drawn0"])
    done = weft(*again, timeout_s=90)  # once more: it is compared with the rendered copy
    assert done.returncode == 0, done.stderr
    assert len([path for path in site.paths() if path == "/drawn0"]) == before + 1


def test_auto_renders_what_scripts_must_draw_and_nothing_else(site: DrawnSite, tmp_path: Path) -> None:
    folder = tmp_path / "crawl"
    secrets = ["--header", "Authorization=Bearer user-token", "--header", "X-Key=user-key", "--cookies", "jar"]
    ended = weft(*flags(site, folder, render="auto"), *secrets, timeout_s=90)
    assert ended.returncode == 0, ended.stderr
    pages = {row["url"].rpartition(f":{site.port}")[2]: row for row in exported(folder)}
    drawn = {path for path in pages if not weft_here("get", folder, f"{site.url}{path}", "--rendered").returncode}
    assert drawn == {"/drawn0", "/drawn1", "/drawn2"}
    assert all("hello" in pages[path]["text"] and pages[path]["title"] == f"drawn {path}" for path in drawn)
    assert {f"{path}/next" for path in drawn} <= pages.keys(), "links that scripts have drawn are followed"
    asked = Counter(site.paths())
    assert all(asked[path] == 1 for path in pages), "a rendered page costs its site no second request for itself"
    assert "/private/picture.png" not in asked and "/forbidden/picture.png" not in site.paths(THIRD_PARTY)
    assert site.paths(THIRD_PARTY)[0] == "/robots.txt", "a third party's robots.txt comes first"
    away = [one.headers for one in site.arrived if one.host == THIRD_PARTY]
    assert away and not any(
        secret in headers for headers in away for secret in ("user-token", "user-key", "user-cookie")
    )
    starts = [one.at for one in site.arrived if one.host == SITE and one.path.partition("?")[0] in pages]
    assert all(later - earlier >= 0.19 for earlier, later in pairwise(starts))
    assert weft("audit", folder).returncode == 0
    shown = weft("get", folder, f"{site.url}/drawn1", "--rendered")
    assert shown.returncode == 0 and "hello /drawn1" in shown.stdout
    assert "hello" not in weft("get", folder, f"{site.url}/drawn1").stdout, "without it, what the server sent"


def test_auto_renders_exactly_the_pages_of_frameworks_and_scripts(tmp_path: Path) -> None:
    folder = tmp_path / "crawl"
    with built_site() as url:
        ended = weft("crawl", f"{url}/", "--data-dir", folder, "--allow-private", "--quiet", "--prometheus-port", "0",
                     "--delay", "0.05", "--render", "auto", timeout_s=90)  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    texts = {row["url"].removeprefix(url): row["text"] for row in exported(folder)}
    missing = [path for path, (text, _) in NEEDS_BROWSER.items() if text not in texts.get(path, "")]
    drawn = {path for path in texts if not weft_here("get", folder, url + path, "--rendered").returncode}
    assert missing == [] and drawn == {path for path, (_, is_drawn) in NEEDS_BROWSER.items() if is_drawn}


KINDS = ("type=renderer", "weft.fetch.browser.host", "remote-debugging-pipe", "engine")
CAMPAIGN = [int(number) for number in os.environ.get("WEFT_TEST_RENDER_KILLS", "100,30").split(",")]
BARRED = ("169.254.169.254", "10.77.0.9", "8.8.8.8:3478")
NEVER_ASKED = ("fetched-early.test", "www.google-analytics.com")


@pytest.mark.parametrize(
    ("links", "kills", "kinds"),
    [
        (3, 3, KINDS[:3]),
        pytest.param(
            *CAMPAIGN, KINDS, marks=pytest.mark.skipif(not os.environ.get("WEFT_TEST_CHAOS"), reason="make chaos")
        ),
    ],
)
def test_kills_of_anything_leave_each_page_once_no_browser_and_nothing_beyond_the_guard(
    links: int, kills: int, kinds: tuple[str, ...], tmp_path: Path
) -> None:
    """A process of the browsers' is killed after every few pages; the site's pages try to get out all the while."""
    folder, done, seen = tmp_path / "crawl", Counter[str](), set[int]()
    with fence() as net, drawn_site(links=links) as site:
        targets = [*BARRED, f"{OWN}:{net.port}"]
        site.leaks = LEAKS.replace("TARGETS", json.dumps(targets)).replace("NAMES", json.dumps(NEVER_ASKED))
        net.names.clear()  # a server asks for its own
        process = started([*WEFT, *flags(site, folder, render="always")])
        every, requests, starts = max(1, links * 3 // kills), 0, [0]  # starts: what had arrived when a crawl started
        end = time.monotonic() + patience(60 + 4 * links)
        while process.poll() is None and time.monotonic() < end:
            mine = {pid: text for pid, text in browsers().items() if belongs_to(pid, process.pid)}
            seen |= mine.keys()
            kind = kinds[done.total() % len(kinds)]
            pids = [process.pid] if kind == "engine" else [pid for pid, command in mine.items() if kind in command]
            pages = sum("/drawn" in path or "/plain" in path for path in site.paths())
            if pids and done.total() < kills and pages >= requests:
                os.kill(pids[0], signal.SIGKILL)
                done[kind], requests = done[kind] + 1, pages + every
                if kind == "engine":
                    process.wait()
                    assert_no_orphan(seen, 0)
                    starts.append(len(site.arrived))
                    process = started([*WEFT, "crawl", "--resume", "--data-dir", str(folder), "--quiet"])
                else:
                    assert_no_orphan(seen, process.pid)
            time.sleep(0.1)
        assert process.wait(patience(60)) == 0, process.communicate()[1]
        assert done.total() == kills
        stored = Counter(row["url"] for row in exported(folder))
        assert set(stored.values()) == {1} and len(stored) == 3 * links + 1
        assert_no_orphan(seen, 0)
        arrived = [site.arrived[begin:end] for begin, end in pairwise([*starts, len(site.arrived)])]
        asked = [[one.path for one in run if f"http://{one.host}:{site.port}{one.path}" in stored] for run in arrived]
        repeated = sum(map(len, asked)) - len(stored)
        print(f"{len(stored)} pages, kills {dict(done)}, {repeated} requests repeated, {len(seen)} processes seen")
        assert asked_again(asked) == []
        assert "/data?tried" in site.paths() and site.canary_calls == 0
        assert (net.calls, net.names, net.sent) == ([], [], 0)  # without a fence of its own: none were counted
        times = [one.at for one in site.arrived if one.path.startswith(("/drawn", "/plain"))]
        assert all(later - earlier >= 0.19 for earlier, later in pairwise(times))
        assert weft("audit", folder).returncode == 0


def asked_again(runs: list[list[str]]) -> list[str]:
    """Pages that were requested again though no kill of the crawl explains it. `runs`: what each crawl process has
    requested, in order.

    A kill explains the page that was in flight, and the one before it: a rendered page ends half a second after its
    last part, so its site is due at once, and the next request leaves before the row of this page is committed.
    """
    kept, wrong = set[str](), []
    for run in runs:
        wrong += [path for index, path in enumerate(run) if path in kept or path in run[:index]]
        kept |= set(run[:-2])
    return wrong


@pytest.mark.parametrize(
    ("runs", "wrong"),
    [
        ([["/", "/a", "/b"], ["/a", "/b", "/c"]], []),
        ([["/a"], ["/b", "/c"], ["/a", "/c", "/d"]], []),
        ([["/", "/a", "/b"], ["/", "/b", "/c"]], ["/"]),
        ([["/", "/a", "/b", "/b"]], ["/b"]),
        ([["/a", "/b"], ["/b", "/c", "/d"], ["/b"]], ["/b"]),
    ],
)
def test_a_repeated_request_is_explained_by_a_kill_of_the_crawl_alone(runs: list[list[str]], wrong: list[str]) -> None:
    assert asked_again(runs) == wrong


def started(argv: list[str]) -> subprocess.Popen[bytes]:
    """A crawl that runs."""
    return subprocess.Popen(argv, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def assert_no_orphan(seen: set[int], crawl: int) -> None:
    """What browsers were seen has ended, or belongs to the crawl."""
    until = time.monotonic() + patience(10)
    while orphans := [pid for pid in seen & browsers().keys() if not (crawl and belongs_to(pid, crawl))]:
        assert time.monotonic() < until, [browsers().get(pid) for pid in orphans]
        time.sleep(0.05)


def test_a_stop_while_pages_render_loses_nothing_and_leaves_no_browser(site: DrawnSite, tmp_path: Path) -> None:
    folder = tmp_path / "crawl"
    argv = [*WEFT, *flags(site, folder, render="always")]
    process = subprocess.Popen(argv, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    end = time.monotonic() + patience(60)
    while "/app.js" not in site.paths() and time.monotonic() < end:
        time.sleep(0.02)
    mine = [pid for pid in browsers() if belongs_to(pid, process.pid)]
    process.send_signal(signal.SIGINT)
    assert process.wait(patience(60)) in (0, 130), process.communicate()[1]
    assert mine and not any(pid in browsers() for pid in mine)
    ended = weft("crawl", "--resume", "--data-dir", folder, "--quiet", timeout_s=90)
    assert ended.returncode == 0, ended.stderr
    stored = Counter(row["url"] for row in exported(folder))
    assert set(stored.values()) == {1} and len(stored) == 10
    assert weft("audit", folder).returncode == 0


def test_a_crawl_that_needs_a_browser_says_so_where_there_is_none(site: DrawnSite, tmp_path: Path) -> None:
    ended = weft(*flags(site, tmp_path / "crawl", render="always"), CHROMIUM_PATH="/nowhere/chromium")
    assert ended.returncode == 2 and "CHROMIUM_PATH" in ended.stderr and "Traceback" not in ended.stderr
    for wrong in (["--render-scrolls", "3"], ["--render", "always", "--politeness-scope", "ip"]):
        ended = weft(*flags(site, tmp_path / "other"), *wrong)
        assert ended.returncode == 2 and "render" in ended.stderr


def exported(folder: Path) -> list[dict[str, Any]]:
    """The rows of a crawl, with the text of each."""
    ended = weft("export", folder, "--format", "jsonl", "--content", "text", "--out", "-")
    assert ended.returncode == 0, ended.stderr
    return [json.loads(line) for line in ended.stdout.splitlines()]


def browsers() -> dict[int, str]:
    """Processes of browsers, and their command lines."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if "--type=" in command or "remote-debugging-pipe" in command or "weft.fetch.browser" in command:
                found[int(entry.name)] = command
    return found


assert sys.platform == "linux"
