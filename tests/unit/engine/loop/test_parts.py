"""The engine's small parts: what results mean, suspects, progress, crash points."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from weft.config import PolitenessSection
from weft.engine.loop.fetcher.robots import MOST_ATTEMPTS, ROBOTS_ATTEMPTS, is_worth_another_attempt, record_of
from weft.engine.loop.fetcher.verdict import VerdictKind, backoff_s, failure_of, kind_of, site_health
from weft.engine.loop.parser.suspects import Heartbeat, Suspects, read_heartbeat
from weft.engine.loop.progress import CrawlProgress, read_status
from weft.engine.loop.steps import STEPS, crash_point
from weft.records import FetchResult


def result(status: int = 0, error: str | None = None, body: bytes = b"", head: bytes = b"") -> FetchResult:
    return FetchResult("http://a/", status, head, body, error, "", 0.0, 1.0, "127.0.0.1", b"")


@pytest.mark.parametrize(
    ("status", "error", "kind"),
    [
        (200, None, VerdictKind.PAGE),
        (204, None, VerdictKind.PAGE),
        (301, None, VerdictKind.REDIRECT),
        (308, None, VerdictKind.REDIRECT),
        (300, None, VerdictKind.ANSWER),
        (304, None, VerdictKind.ANSWER),
        (404, None, VerdictKind.ANSWER),
        (416, None, VerdictKind.ANSWER),
        (408, None, VerdictKind.RETRY),
        (429, None, VerdictKind.SLOW_DOWN),
        (503, None, VerdictKind.SLOW_DOWN),
        (500, None, VerdictKind.RETRY),
        (504, None, VerdictKind.RETRY),
        (0, "timeout", VerdictKind.RETRY),
        (200, "truncated", VerdictKind.RETRY),
        (0, "stale", VerdictKind.AGAIN),
        (0, "tls", VerdictKind.FAILED),
        (0, "address", VerdictKind.FAILED),
        (200, "too_large", VerdictKind.FAILED),
    ],
)
def test_what_a_result_means(status: int, error: str | None, kind: VerdictKind) -> None:
    assert kind_of(result(status, error)) is kind


def tries(answer: FetchResult, *, known: bool = False, backoff_s: float = 1.0, patience_s: float = 120.0) -> int:
    """How often a robots.txt is asked for that always answers so."""
    section = PolitenessSection(delay_s=1.0, places=1, retry_backoff_s=backoff_s, robots_patience_s=patience_s)
    attempt = 0
    while is_worth_another_attempt(answer, attempt, section, known=known):
        attempt += 1
    return attempt + 1


def test_a_robots_txt_is_waited_for_where_somebody_answers() -> None:
    ill, dead = result(503), result(0, "timeout")
    assert tries(ill) == 8, "after waits of 1 + 2 + 4 + 8 + 16 + 32 + 60 seconds"
    assert tries(result(500)) == tries(result(429)) == 8
    assert tries(ill, patience_s=0.0) == ROBOTS_ATTEMPTS
    assert tries(ill, patience_s=20.0) == 6
    assert tries(ill, patience_s=600.0) > tries(ill)
    assert tries(dead) == ROBOTS_ATTEMPTS, "it is more likely dead than ill"
    assert tries(dead, known=True) == 8, "it was read before"
    assert tries(ill, backoff_s=0.0) == MOST_ATTEMPTS + 1


def test_what_a_result_says_of_its_site() -> None:
    assert site_health(result(200)) is True
    assert site_health(result(404)) is True
    assert site_health(result(500)) is True, "one broken page is not a broken site"
    assert site_health(result(503)) is False
    assert site_health(result(0, "timeout")) is False
    assert site_health(result(429)) is None
    assert site_health(result(0, "stale")) is None
    assert (failure_of(503, ""), failure_of(0, "dns"), failure_of(200, "")) == ("http_5xx", "dns", "")


def test_the_wait_doubles_is_jittered_and_bounded() -> None:
    assert [backoff_s(1.0, n, 1.0) for n in range(4)] == [1.0, 2.0, 4.0, 8.0]
    assert backoff_s(1.0, 2, 0.0) == 2.0
    assert backoff_s(1.0, 50, 1.0) == 60.0
    assert backoff_s(1.0, 5000, 1.0) == 60.0, "more tries than a double has exponents"


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (result(200, body=b"User-agent: *"), "ok"),
        (result(200, "too_large", b"User-agent: *"), "ok"),
        (result(404), "allow"),
        (result(301), "allow"),
        (result(500), None),
        (result(429), None),
        (result(0, "timeout"), None),
        (result(200, "truncated", b"User-agent: *"), None),
    ],
)
def test_what_an_answer_for_robots_txt_means(answer: FetchResult, status: str | None) -> None:
    record = record_of(answer, 1000.0, 60.0)
    assert (record.status if record else None) == status
    assert record is None or record.expires == 1060.0


DIE = """
import os, sys
from pathlib import Path
from weft.engine.loop.parser.suspects import Heartbeat, Suspects
suspects = Suspects(Heartbeat(Path(sys.argv[1])))
suspects.send_heartbeat()
suspects.mark_parsing(42)
os.abort()
"""


def test_a_page_that_kills_its_parser_twice_is_poison(tmp_path: Path) -> None:
    for deaths in (1, 2):
        died = subprocess.run([sys.executable, "-c", DIE, str(tmp_path)], capture_output=True, check=False)
        assert died.returncode == -signal.SIGABRT
        assert read_heartbeat(tmp_path)[1] == 42
        suspects = Suspects(Heartbeat(tmp_path))
        assert suspects.died_on == 42
        assert suspects.is_poison(42) is (deaths == 2)
        assert not suspects.is_poison(41)
        suspects.close()
    again = Suspects(Heartbeat(tmp_path))
    assert (again.died_on, again.is_poison(42)) == (0, True), "it is remembered, and not counted twice"
    again.mark_parsing(7)
    again.clear_mark()
    before = read_heartbeat(tmp_path)
    again.send_heartbeat()
    assert read_heartbeat(tmp_path) == (before[0] + 1, 0)
    again.close()


def test_a_death_with_whoever_started_it_counts_half(tmp_path: Path) -> None:
    """A page that is under way when everything is killed, twice, is no poison; one that always brings all down is."""
    for deaths in range(1, 5):
        subprocess.run([sys.executable, "-c", DIE, str(tmp_path)], capture_output=True, check=False)
        suspects = Suspects(Heartbeat(tmp_path), died_with_its_starter=True)
        assert suspects.is_poison(42) is (deaths == 4)
        suspects.close()


def test_a_torn_pulse_file_is_as_none(tmp_path: Path) -> None:
    assert read_heartbeat(tmp_path) == (0, 0)
    (tmp_path / "pulse").write_bytes(b"xx")
    (tmp_path / "deaths.json").write_text("{torn")
    suspects = Suspects(Heartbeat(tmp_path))
    assert suspects.died_on == 0
    suspects.close()


def test_progress_goes_on_from_an_earlier_run(tmp_path: Path) -> None:
    path = tmp_path / "status.json"
    progress = CrawlProgress(path, 1)
    progress.count_page("http://a/1", 100)
    progress.refused["scope"] += 3
    progress.errors["timeout"] += 1
    progress.write("running")
    status = read_status(path)
    assert status is not None
    assert (status.state, status.pages, status.recent, status.refused) == ("running", 1, ["http://a/1"], {"scope": 3})
    later = CrawlProgress(path, 2)
    later.refused["scope"] += 1
    later.write("finished", "done")
    status = read_status(path)
    assert status is not None
    assert (status.pages, status.refused, status.errors, status.pid) == (1, {"scope": 4}, {"timeout": 1}, 2)
    assert not path.with_suffix(".tmp").exists()
    path.write_bytes(b"{torn")
    assert read_status(path) is None


def test_a_crash_point_kills_at_the_wanted_time_and_nowhere_else() -> None:
    program = """
from weft.engine.loop.steps import crash_point
reach = crash_point()
for n in range(5):
    print(n, flush=True)
    reach("after-rows")
    reach("claimed")
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "WEFT_TEST_CRASH_AT": "after-rows:3"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, "0\n1\n2\n")
    for step in STEPS:
        crash_point("")(step)
