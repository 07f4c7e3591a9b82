"""The engine's numbers: saved when it is time, going on after a restart, and added up by kind."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from weft.bodies import Spool
from weft.engine.loop.metrics import EngineMetrics
from weft.engine.loop.progress import CrawlProgress
from weft.fetch.dns.resolver import NameCounts
from weft.frontier.contract import FrontierStats
from weft.records import FetchResult, Purpose
from weft.telemetry import Metrics, Slot, read_snapshot

SLOT = Slot(1, "parser", 0)
STATS = FrontierStats(7, 3, 90, 5, 100, 90, 80, due=2, to_parse=4)


def result(status: int, body_bytes: int, seconds: float) -> FetchResult:
    return FetchResult("http://a/", status, b"", b"x" * body_bytes, None, "", 1.0, 1.0 + seconds, "", b"", False)


def saved(folder: Path) -> dict[tuple[str, ...], list[float]]:
    snapshot = read_snapshot(folder / f"{SLOT.name}.metrics")
    return {(series.name, *series.labels.values()): series.values for series in snapshot.series} if snapshot else {}


def test_counts_of_pods_and_pressure_go_on_after_a_restart(tmp_path: Path) -> None:
    progress = CrawlProgress(tmp_path / "status.json", 1)
    for _ in range(2):
        metrics = EngineMetrics(Metrics(tmp_path, SLOT), 10)
        metrics.count_received_links(30, 0.004)
        metrics.count_received_links(20, 0.2)
        events = {"soft": 2, "hard": 1}
        metrics.before_save.append(partial(metrics.record_back_pressure, events))
        metrics.record_outbox(6)
        metrics.save_if_due(progress, STATS, 9)
        events["soft"] = 3
        metrics.save_if_due(progress, STATS, 9, now=True)
    figures = saved(tmp_path)
    assert figures["weft_cross_pod_writes_total",] == [4]
    assert figures["weft_cross_pod_links_total",] == [100]
    assert figures["weft_cross_pod_write_seconds",][-1] == pytest.approx(0.408)
    assert figures["weft_backpressure_events_total", "soft"] == [6]
    assert figures["weft_backpressure_events_total", "hard"] == [2]
    assert figures["weft_outbox_batches",] == [6]
    assert figures["weft_due_sites",] == [2]
    assert figures["weft_parse_queue_pages",] == [4]
    assert figures["weft_queue_urls",] == [7]


def test_counts_of_names_and_bodies_go_on_after_a_restart(tmp_path: Path) -> None:
    progress = CrawlProgress(tmp_path / "status.json", 1)
    for _ in range(2):
        metrics, counts, spool = EngineMetrics(Metrics(tmp_path, SLOT), 10), NameCounts(), Spool(1 << 20)
        metrics.before_save += [partial(metrics.record_lookups, counts), partial(metrics.record_body_memory, spool)]
        metrics.save_if_due(progress, None, 0)
        counts.outcomes["timeout"] += 3
        counts.known, counts.seconds, counts.running, spool.files, spool.held = 5, 1.5, 2, 4, 77
        metrics.save_if_due(progress, None, 0, now=True)
        metrics.save_if_due(progress, None, 0, now=True)
    figures = saved(tmp_path)
    assert figures["weft_dns_lookups_total", "timeout"] == [6] and figures["weft_dns_lookups_total", "found"] == [0]
    assert (figures["weft_dns_cached_total",], figures["weft_dns_seconds_total",]) == ([10], [3.0])
    assert (figures["weft_dns_running",], figures["weft_body_memory_bytes",]) == ([2], [77])
    assert figures["weft_bodies_spooled_total",] == [8]


def test_errors_of_one_kind_add_up_whatever_their_particulars(tmp_path: Path) -> None:
    progress = CrawlProgress(tmp_path / "status.json", 1)
    progress.errors.update({"robots: Disallow: /a (line 3)": 2, "robots: Disallow: /b (line 4)": 5, "timeout": 1})
    EngineMetrics(Metrics(tmp_path, SLOT), 10).save_if_due(progress, None, 0)
    figures = saved(tmp_path)
    assert figures["weft_errors_total", "robots"] == [7]
    assert figures["weft_errors_total", "timeout"] == [1]
    assert ("weft_queue_urls",) not in figures, "a process that knows no queue tells none"


def test_nothing_is_saved_before_it_is_time(tmp_path: Path) -> None:
    progress, now = CrawlProgress(tmp_path / "status.json", 1), [0.0]
    metrics = EngineMetrics(Metrics(tmp_path, SLOT), 10, clock=lambda: now[0])
    for at, pages in ((0.0, 1), (9.9, 2), (10.0, 3)):
        now[0], progress.status.pages = at, pages
        metrics.save_if_due(progress, STATS, 0)
        assert saved(tmp_path)["weft_pages_total",] == [1 if at < 10 else 3]


def test_transfers_are_timed_by_kind_and_pages_sized(tmp_path: Path) -> None:
    metrics = EngineMetrics(Metrics(tmp_path, SLOT), 10)
    metrics.count_transfer(Purpose.PAGE, result(200, 5000, 0.2))
    metrics.count_transfer(Purpose.PAGE, result(0, 0, 3.0))  # no answer has no size
    metrics.count_transfer(Purpose.ROBOTS, result(200, 70, 0.5))
    metrics.count_transfer(Purpose.SITEMAP, result(200, 900, 0.25))
    metrics.save_if_due(CrawlProgress(tmp_path / "status.json", 1), STATS, 0)
    figures = saved(tmp_path)
    times = {kind: figures["weft_fetch_seconds", kind] for kind in ("page", "robots", "sitemap")}
    assert {kind: (sum(values[:-1]), round(values[-1], 3)) for kind, values in times.items()} == {
        "page": (2, 3.2), "robots": (1, 0.5), "sitemap": (1, 0.25),
    }  # fmt: skip
    sizes = figures["weft_body_size_bytes",]
    assert (sum(sizes[:-1]), sizes[-1], sizes[2]) == (1, 5000, 1), "in the bucket up to 16,000 bytes"
    assert figures["weft_urls_added_total",] == [100]


def test_a_flipped_bit_in_the_saved_numbers_costs_them_alone(tmp_path: Path) -> None:
    EngineMetrics(Metrics(tmp_path, SLOT), 10).save_if_due(CrawlProgress(None, 1), STATS, 9, now=True)
    path = tmp_path / f"{SLOT.name}.metrics"
    whole = path.read_bytes()
    lost = 0
    for at in range(0, len(whole), 7):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x80]) + whole[at + 1 :])
        lost += read_snapshot(path) is None
        Metrics(tmp_path, SLOT)
    assert lost, "some make it unreadable"
