"""What is counted of proxies: by proxy and outcome, without logins, and never more series than are bounded."""

from __future__ import annotations

from pathlib import Path

from weft.fetch.proxies.counts import MOST_LABELS, OTHER, ProxyCounts
from weft.fetch.proxies.entry import parse
from weft.fetch.proxies.rotation import ProxyOutcome, Rotation
from weft.telemetry import Metrics, Slot, read_snapshot


def series(folder: Path) -> dict[tuple[str, ...], float]:
    snapshot = read_snapshot(folder / "pod0-engine0.metrics")
    assert snapshot is not None
    return {(one.name, *one.labels.values()): one.values[0] for one in snapshot.series}


def test_requests_are_counted_by_proxy_without_its_login_and_many_proxies_together() -> None:
    counts = ProxyCounts()
    for number in range(MOST_LABELS + 50):
        counts.requested(parse(f"http://user{number}:secret@10.0.{number // 250}.{number % 250}:80"), "ok")
    counts.requested(parse("http://another:secret@10.0.0.0:80"), "failed")
    assert counts.requests["http://10.0.0.0:80", "ok"] == counts.requests["http://10.0.0.0:80", "failed"] == 1
    assert counts.requests[OTHER, "ok"] == 50
    assert len({label for label, _ in counts.requests}) == MOST_LABELS + 1
    assert "secret" not in str(counts.requests) and "user" not in str(counts.requests)


def test_counters_go_on_where_the_process_before_has_stopped(tmp_path: Path) -> None:
    for _ in range(2):
        metrics, counts = Metrics(tmp_path, Slot(0, "engine")), ProxyCounts()
        counts.usable = 3
        counts.requested(parse("10.0.0.1:80"), "blocked")
        counts.refreshed("COMPLETE", 1.5, passed=3, failed=7)
        counts.copy_to(metrics)
        metrics.save()
    found = series(tmp_path)
    assert found["weft_proxies_usable",] == 3
    assert found["weft_proxy_requests_total", "http://10.0.0.1:80", "blocked"] == 2
    assert (found["weft_proxy_tests_total", "passed"], found["weft_proxy_tests_total", "failed"]) == (6, 14)
    assert (found["weft_proxy_refreshes_total", "COMPLETE"], found["weft_proxy_refresh_seconds_total",]) == (2, 3)


def test_rests_and_bans_are_counted() -> None:
    proxy = parse("10.0.0.1:80")
    rotation = Rotation([proxy])
    for outcome in (
        ProxyOutcome.FAILED,
        ProxyOutcome.BLOCKED,
        ProxyOutcome.OK,
        ProxyOutcome.FAILED,
        ProxyOutcome.UNREACHED,
    ):
        rotation.ended(proxy.name, "a.test", outcome, 0.1, 0.0)
    assert (rotation.rests, rotation.bans) == (2, 1)
