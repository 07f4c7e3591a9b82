"""Commands to a crawl from another terminal: pause, edit, resume, seed, cancel, on every kind of pods.

Judged by the server's own log: what is requested while the crawl is paused, and of what was excluded.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from crawling import MANAGED, Crawler, audited, kill_fetcher, processes, until, weft_here
from pace import patience

from weft import Engine
from weft.testing.web import SyntheticWeb, synthetic_web

pytestmark = pytest.mark.timeout(300)

WORLD: dict[str, Any] = {"hosts": 6, "pages": 60, "seed": 5, "profile": "calm", "stocked": 1}
KINDS = {
    "one": (),
    "pods": ("--num-pods", 3),
    "redis": (*MANAGED, "--fetchers-per-pod", 1, "--parsers-per-pod", 1),
}
IN_FORCE_S = 2.0  # the promise; `patience` makes it longer on a slow machine


def command(verb: str, crawler: Crawler, *arguments: object) -> dict[str, Any]:
    """What a command says; it returns when the command is in force."""
    began = time.monotonic()
    ended = weft_here(verb, crawler.data_dir, *arguments, "--json")
    assert ended.returncode == 0, ended.stderr
    document: dict[str, Any] = json.loads(ended.stdout)
    assert document["is_in_force"] and time.monotonic() - began < patience(IN_FORCE_S)
    return document


def requested(web: SyntheticWeb) -> list[str]:
    """The paths of all requests so far."""
    return [arrival.path for arrival in web.arrivals()]


def settled(web: SyntheticWeb, still_s: float = 0.5) -> int:
    """How many requests there were when none had come for a while: what was in flight has been finished."""
    last, since = -1, time.monotonic()

    def still() -> bool:
        nonlocal last, since
        if (now := len(requested(web))) != last:
            last, since = now, time.monotonic()
        return time.monotonic() - since > still_s

    until(still, what="a pause without requests")
    return last


@pytest.mark.parametrize("kind", KINDS)
def test_pause_edit_resume_and_seed_while_a_crawl_runs(kind: str, tmp_path: Path) -> None:
    with synthetic_web(**WORLD) as web:
        crawler = Crawler(web.seeds, tmp_path, *KINDS[kind], "--scope", "host", delay_s=0.1)
        with crawler.running() as running:
            crawler.pages_at_least(5)
            command("pause", crawler)
            until(lambda: crawler.status()["state"] == "paused", what="the state")
            before = settled(web)
            kill_fetcher(processes(crawler, running.pid, "fetcher")[0])
            until(lambda: crawler.status()["state"] == "paused", what="the restarted process in its pause")
            command("edit", crawler, "--exclude", "/docs/*,/shop/*")
            assert settled(web) == before, "a process that was killed is paused again, and so is the crawl"
            command("resume", crawler)
            until(lambda: len(requested(web)) > before + 10, what="requests of the resumed crawl")
            later = requested(web)[before:]
            assert not [path for path in later if path.startswith(("/docs/", "/shop/"))]
            asked = requested(web)
            command("edit", crawler, "--exclude", "", "--delay", "0.02")
            added = command("seed", crawler, f"{web.seeds[0].rstrip('/')}/a-seed-of-its-own", "nourl:")
            assert added["new"] == 1 and list(added["refused_urls"]) == ["nourl:"]
            assert running.wait(patience(120)) == 0, crawler.said
        verdict = web.judge(delay_s=0.02, scope="host")
        assert not verdict.missing, verdict
        assert any(path.startswith(("/docs/", "/shop/")) for path in requested(web)[len(asked) :]), "they came back"
        assert "/a-seed-of-its-own" in requested(web)
        assert not audited(crawler.data_dir).violations, "each request was in accord with the delay of its time"


def test_a_cancelled_crawl_ends_at_once_and_for_good(tmp_path: Path) -> None:
    with synthetic_web(**WORLD, latency_s=0.3) as web:
        crawler = Crawler(web.seeds, tmp_path, "--num-pods", 2)
        with crawler.running() as running:
            crawler.pages_at_least(3)
            command("cancel", crawler)
            assert running.wait(patience(5)) == 130
    assert "Cancelled: " in crawler.said and "--resume" not in crawler.said
    assert crawler.status()["state"] == "cancelled" and crawler.pages()
    again = weft_here("crawl", "--resume", "--data-dir", crawler.data_dir)
    assert again.returncode == 2 and "was cancelled, which cannot be undone" in again.stderr
    assert weft_here("seed", crawler.data_dir, web.seeds[0]).returncode == 2


def test_a_crawl_of_an_engine_is_paused_and_edited_by_its_name(tmp_path: Path) -> None:
    with synthetic_web(**WORLD) as web, Engine(tmp_path, allow_private=True, delay=0.5) as engine:
        engine.open("a", web.seeds)
        assert weft_here("pause", tmp_path, "--crawl", "a").returncode == 0
        assert engine.standing("a").state == "paused"
        edited = weft_here("edit", tmp_path, "--crawl", "a", "--max-pages", 4, "--delay", 0)
        assert "max_pages: 4" in edited.stdout, edited.stderr
        assert weft_here("resume", tmp_path, "--crawl", "a", "-q").returncode == 0
        assert engine.wait("a", patience(60)).pages == 4
        for arguments, message in ((("--crawl", "b"), "no crawl 'b'"), ((), "say which one with --crawl")):
            refused = weft_here("cancel", tmp_path, *arguments)
            assert refused.returncode == 2 and message in refused.stderr, refused.stderr
    assert "no process runs this engine" in weft_here("cancel", tmp_path, "--crawl", "a").stderr


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Crawler:
    """A crawl that no process runs, with URLs in its queue."""
    folder = tmp_path_factory.mktemp("stopped")
    with synthetic_web(**WORLD) as web:
        crawler = Crawler(web.seeds, folder, "--max-pages", 3)
        assert crawler.run() == 3, crawler.said
    return crawler


def test_a_command_to_a_crawl_that_does_not_run_is_followed_by_its_next_run(stopped: Crawler) -> None:
    assert command("pause", stopped)["is_running"] is False
    changed = command("edit", stopped, "--max-pages", 5)["changed"]
    assert changed == {"max_pages": [3, 5]}
    said = weft_here("edit", stopped.data_dir, "--delay", 1).stdout
    assert "politeness_delay_seconds: 0.05 -> 1.0" in said and "weft crawl --resume" in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("edit", "--max-depth", 2), "max_depth"),
        (("edit", "--max-duration", 5), "max-duration"),
        (("edit",), "nothing to change"),
        (("edit", "--email", "a@b.c"), "cannot be changed while a crawl runs"),
        (("edit", "--exclude", "re:("), "exclude"),
        (("seed", "https://example.com/"), "--email"),
    ],
)
def test_what_cannot_be_changed_is_refused_and_nothing_is_written(
    stopped: Crawler, arguments: tuple[object, ...], message: str
) -> None:
    folder = stopped.data_dir
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != "lock"}
    verb, *more = arguments
    ended = weft_here(verb, folder, *more)
    assert ended.returncode == 2 and message in ended.stderr, ended.stderr
    after = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != "lock"}
    assert after == before


def ran_for(crawler: Crawler, act: Callable[[], object]) -> float:
    """Seconds that a run took in which something was done."""
    began = time.monotonic()
    with crawler.running() as running:
        crawler.pages_at_least(1)
        act()
        assert running.wait(patience(60)) == 3, crawler.said
    return time.monotonic() - began


def test_paused_time_does_not_count_for_max_duration(tmp_path: Path) -> None:
    most_s = min(patience(1), 10)  # a page must come in it, also on a machine that starts slowly
    with synthetic_web(**WORLD | {"pages": 300}) as web:
        crawler = Crawler(web.seeds, tmp_path, "--max-duration", most_s, delay_s=1)

        def act() -> None:
            command("pause", crawler)
            time.sleep(4)
            assert crawler.status()["state"] == "paused", "its time is not over"
            command("resume", crawler)

        assert ran_for(crawler, act) > most_s + 3
