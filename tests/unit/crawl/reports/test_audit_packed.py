"""The audit over packed files: the same verdicts as over the lines as they were written, whatever the division."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf
from pathlib import Path

import pytest
from logged_crawl import SETTINGS, WALL, Crawled, begin, end, start
from request_lines import with_sums

from weft.crawl.reports import audit as audit_module
from weft.crawl.reports.audit import AuditReport, AuditScope, audit
from weft.crawl.reports.audit_judge import AuditJudge
from weft.crawl.reports.audit_report import combine_reports
from weft.crawl.reports.crawls import ReportFolder
from weft.frontier.contract import RobotsRecord
from weft.frontier.requests import RequestStart, UnreadableLines, robots_digest, robots_evidence, segments
from weft.frontier.requests.log_packing import BUCKETS
from weft.frontier.requests.partitions import LogPartition, LogReader, log_files
from weft.frontier.requests.segments import pack_segment
from weft.frontier.view import FrontierView

HOSTS = [f"h{number}.test" for number in range(40)]
BODIES = b"User-agent: *\nDisallow: /private\n", b""
DIGESTS = [robots_digest(robots_evidence(RobotsRecord("ok", body, 0.0))) for body in BODIES]


@contextmanager
def opened(crawled: Crawled) -> Iterator[ReportFolder]:
    folder = ReportFolder([crawled.folder.home])
    try:
        yield folder
    finally:
        folder.close()


def by_lines(crawled: Crawled) -> AuditReport:
    """All in one piece, in the order of the lines."""
    with opened(crawled) as folder:
        view = FrontierView(folder.folder.pod_folders())
        judge = AuditJudge(view, folder.crawls(), AuditScope(), has_several=False)
        report = combine_reports([judge.run(view.requests(UnreadableLines()))])
        view.close()
    return report


def judged(crawled: Crawled, **how: object) -> AuditReport:
    with opened(crawled) as folder:
        return audit(folder, **how)  # type: ignore[arg-type]


def findings(report: AuditReport) -> tuple[object, ...]:
    figures = report.requests, report.sites, report.cut_off, report.unproven, report.forgotten
    return figures, report.kinds, report.violations, report.closest


def lines_of(rng: random.Random, slots: int, requests: int) -> list[list[str]]:
    """Logs of some processes with everything in them: early requests, robots.txt files, openings, a new boot."""
    logs: list[list[str]] = [[begin(slot / 10)] for slot in range(slots)]
    at, boot, running = 1.0, 1, dict[int, tuple[int, float]]()
    for item in range(1, requests + 1):
        at += rng.choice((0.001, 0.2, 3.0))
        slot, host = rng.randrange(slots), rng.choice(HOSTS)
        for ended in [one for one, (_, until) in running.items() if until <= at]:
            logs[running[ended][0]].append(end(ended, running.pop(ended)[1], rng.choice(("200", "unasked", "expired"))))
        number, path = (item, f"/{item}") if rng.random() < 0.8 else (-item, "/robots.txt")
        path = "/private/x" if rng.random() < 0.1 else path
        logs[slot].append(start(number, at, path, places=rng.choice((1, 2)), host=host, delay_s=rng.choice((1, 5))))
        if rng.random() < 0.9:
            running[number] = slot, at + rng.random() * 4
        if rng.random() < 0.1:
            logs[slot].append(f"R\t{at + 0.0004:.6f}\t{rng.choice(DIGESTS)}\thttps://{rng.choice(HOSTS)}\n")
        if rng.random() < 0.02:
            logs[slot].append(begin(at + 0.0005, f"boot-{boot}", revision=rng.choice((0, 1, 2))))
        if rng.random() < 0.01:
            boot += 1
            for log in logs:
                log.append(begin(at + 0.0006, f"boot-{boot}", wall=WALL + at + 100 * boot))
            running.clear()
    return logs


def cut_into_files(crawled: Crawled, log: list[str], slot: str, rng: random.Random, packed: float) -> None:
    folder = crawled.folder.pod_folder(0) / "requests" / slot
    folder.mkdir(parents=True, exist_ok=True)
    cuts = sorted(rng.sample(range(1, len(log)), min(5, len(log) - 1)))
    for serial, (first, last) in enumerate(zip([0, *cuts], [*cuts, len(log)], strict=True)):
        (folder / f"requests-{serial:05d}.log").write_bytes(with_sums("".join(log[first:last])))
    before = None
    for segment in segments.segments_of(folder)[:-1]:
        if rng.random() < packed and segments.replace_by_packed(segment, before, lambda: None):
            segment = segments.Segment(segment.serial, None, segment.path.with_suffix(".packed"))
        before = segment


def made(tmp_path: Path, seed: int, slots: int, packed: float) -> tuple[Crawled, AuditReport]:
    rng, crawled = random.Random(seed), Crawled(tmp_path / f"crawl-{seed}")
    crawled.folder.keep_settings(SETTINGS | {"politeness_delay_seconds": 3.0, "per_domain_concurrency": 2})
    for host in HOSTS[::2]:
        crawled.robots(f"https://{host}", *zip((-5.0, 150.0), BODIES, strict=True))
    logs = lines_of(rng, slots, 400)
    names = [""] if slots == 1 else [f"fetcher{slot}" for slot in range(slots)]
    for name, log in zip(names, logs, strict=True):
        crawled.log(*log, slot=name)
    plain = by_lines(crawled)
    for name, log in zip(names, logs, strict=True):
        cut_into_files(crawled, log, name, rng, packed)
    return crawled, plain


@pytest.mark.parametrize(("seed", "packed"), [(0, 0.0), (1, 0.6), (2, 1.0), (3, 0.5)])
def test_the_verdicts_are_those_over_the_lines(
    tmp_path: Path, seed: int, packed: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "PART_BYTES", 4000)
    monkeypatch.setattr(segments, "_BYTES_BETWEEN_PAUSES", 1000)
    crawled, plain = made(tmp_path, seed, 1, packed)
    assert plain.kinds.keys() >= {"delay", "places", "robots", "no-robots"}
    whole = judged(crawled)
    assert findings(whole) == findings(plain)
    assert (whole.unreadable, whole.losses) == (0, [])
    monkeypatch.setattr(audit_module, "SITES_AT_ONCE", 1)
    assert findings(judged(crawled)) == findings(plain), "in many shares"


@pytest.mark.parametrize("seed", range(2))
def test_slots_are_judged_together(tmp_path: Path, seed: int) -> None:
    crawled, plain = made(tmp_path, seed, 3, 0.7)
    assert findings(judged(crawled)) == findings(plain)


def test_several_processes_find_the_same(tmp_path: Path) -> None:
    crawled, plain = made(tmp_path, 1, 2, 0.7)
    assert findings(judged(crawled, processes=2)) == findings(plain)


def test_one_host_or_a_range_of_time_is_judged_as_in_the_whole(tmp_path: Path) -> None:
    crawled, plain = made(tmp_path, 3, 1, 1.0)
    for host in HOSTS[:6]:
        mine = [one for one in plain.violations if one.key == host]
        assert judged(crawled, hosts=[host]).violations == mine
    assert judged(crawled, hosts=["*.test"]).violations == plain.violations
    assert judged(crawled, hosts=["other.test"]).requests == 0
    times = sorted(one.wall for one in plain.violations)
    since, until = times[len(times) // 3], times[2 * len(times) // 3]
    assert judged(crawled, since=since, until=until).violations == [
        one for one in plain.violations if since <= one.wall < until
    ]
    before = judged(crawled, until=since).requests + judged(crawled, since=since, until=inf).requests
    assert before == plain.requests


@pytest.mark.parametrize(("seed", "slots"), [(3, 1), (4, 2)])
def test_any_range_of_time_is_judged_as_in_the_whole(
    tmp_path: Path, seed: int, slots: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "PART_BYTES", 2000)
    monkeypatch.setattr(segments, "_BYTES_BETWEEN_PAUSES", 500)
    crawled, plain = made(tmp_path, seed, slots, 1.0)
    rng, whole = random.Random(seed), judged(crawled)
    assert whole.covers is not None
    for _ in range(6):
        since = rng.uniform(*whole.covers)
        until = since + rng.choice((1.0, 20.0, 200.0))
        mine = [one for one in plain.violations if since <= one.wall < until]
        assert judged(crawled, since=since, until=until).violations == mine


def test_a_range_costs_the_same_however_long_the_log_before_it_is(tmp_path: Path) -> None:
    """Requests that a site's delay, or a request in flight, does not make matter to the range are not judged."""
    read = {files: requests_read_of_the_end(tmp_path / f"{files}", files) for files in (3, 30)}
    assert read[3] == read[30]


def test_a_file_of_robots_txt_lines_alone_is_not_read_for_a_later_range(tmp_path: Path) -> None:
    lines = [
        "".join(f"R\t{at}\t0123456789abcdef\thttps://{host}" + "\n" for at, host in enumerate(HOSTS, 1)),
        *(
            "".join(start(item, 100.0 * item) + end(item, 100.0 * item + 1) for item in items)
            for items in ((1, 2), (3, 4))
        ),
    ]
    before = None
    for serial, text in enumerate(lines):
        path = tmp_path / f"requests-{serial:05d}.log"
        path.write_bytes(with_sums((begin(1.0) if serial == 1 else "") + text))
        assert segments.replace_by_packed(segments.Segment(serial, path, None), before, lambda: None)
        before = segments.Segment(serial, None, path.with_suffix(".packed"))
    reader = LogReader(log_files(tmp_path, tmp_path / "scratch"))
    for since, files in ((WALL + 390, 2), (-inf, 3)):
        assert len(reader.parts_in_range(LogPartition(0, since=since))) == files


def requests_read_of_the_end(home: Path, files: int) -> int:
    crawled = Crawled(home)
    for host in HOSTS:
        crawled.robots(f"https://{host}", (0.0, b""))
    folder = crawled.folder.pod_folder(0) / "requests"
    folder.mkdir(exist_ok=True)
    hosts = len(HOSTS)
    for serial in range(files):
        items = range(1 + serial * hosts, 1 + (serial + 1) * hosts)
        texts = [
            start(item, 20.0 * item, f"/{item}", host=HOSTS[item % hosts]) + end(item, 20.0 * item + 1)
            for item in items
        ]
        path = folder / f"requests-{serial:05d}.log"
        path.write_bytes(with_sums((begin(1.0) if not serial else "") + "".join(texts)))
        before = segments.Segment(serial - 1, None, folder / f"requests-{serial - 1:05d}.packed") if serial else None
        assert segments.replace_by_packed(segments.Segment(serial, path, None), before, lambda: None)
    last = WALL + 20.0 * files * hosts
    reader = LogReader(log_files(folder, home / "scratch"))
    partitions = [LogPartition(bucket, since=last - 30, before_s=10.0) for bucket in range(BUCKETS)]
    lines = [line for partition in partitions for line in reader.events(partition)]
    report = judged(crawled, since=last - 30)
    assert (report.requests, report.violation_count) == (2, 0)
    return sum(isinstance(line, RequestStart) for line in lines)


def test_a_delay_that_no_request_names_is_looked_for_as_far_back_as_it_is_long(tmp_path: Path) -> None:
    """The settings ask for more than the requests were made with: one long before the range counts."""
    crawled = Crawled(tmp_path / "crawl")
    crawled.folder.keep_settings(SETTINGS | {"politeness_delay_seconds": 900.0})
    crawled.robots("https://a", (0.0, b""))
    folder = crawled.folder.pod_folder(0) / "requests"
    folder.mkdir(exist_ok=True)
    other = [start(item, 100.0 * item, f"/{item}", host="b") + end(item, 100.0 * item + 1) for item in range(10, 14)]
    lines = [
        begin(revision=2) + start(1, 500, delay_s=1) + end(1, 501),
        *other,
        start(2, 1390, "/2", delay_s=1) + end(2, 1391),
    ]
    before = None
    for serial, text in enumerate(lines):
        path = folder / f"requests-{serial:05d}.log"
        path.write_bytes(with_sums(text))
        assert segments.replace_by_packed(segments.Segment(serial, path, None), before, lambda: None)
        before = segments.Segment(serial, None, path.with_suffix(".packed"))
    (found,) = judged(crawled, since=WALL + 1380).violations
    assert (found.kind, found.url, found.detail) == (
        "delay",
        "https://a/2",
        "889.000 s after the last request, 900 s required",
    )


def test_a_request_that_was_open_where_a_range_begins_counts(tmp_path: Path) -> None:
    crawled = Crawled(tmp_path / "crawl")
    for host in "ab":
        crawled.robots(f"https://{host}", (0.0, b""))
    folder = crawled.folder.pod_folder(0) / "requests"
    folder.mkdir(exist_ok=True)
    other = [start(item, 100.0 * item, f"/{item}", host="b") + end(item, 100.0 * item + 1) for item in range(10, 14)]
    lines = [begin() + start(1, 500), *other, end(1, 1388) + start(2, 1390, "/2") + end(2, 1391)]
    before = None
    for serial, text in enumerate(lines):
        path = folder / f"requests-{serial:05d}.log"
        path.write_bytes(with_sums(text))
        assert segments.replace_by_packed(segments.Segment(serial, path, None), before, lambda: None)
        before = segments.Segment(serial, None, path.with_suffix(".packed"))
    (found,) = judged(crawled, since=WALL + 1389).violations
    assert (found.kind, found.detail) == ("delay", "2.000 s after the last request, 10 s required")


def test_a_delay_that_is_too_short_across_two_files_is_found(tmp_path: Path) -> None:
    crawled = Crawled(tmp_path / "crawl")
    crawled.robots("https://a", (0.0, b""))
    folder = crawled.folder.pod_folder(0) / "requests"
    folder.mkdir(exist_ok=True)
    (folder / "requests-00000.log").write_bytes(with_sums(begin() + start(1, 5)))
    (folder / "requests-00001.log").write_bytes(with_sums(end(1, 9) + start(2, 12, "/2") + end(2, 13)))
    (folder / "requests-00002.log").write_bytes(with_sums(start(3, 14, "/3")))
    for _ in range(2):
        report = judged(crawled)
        assert [(one.kind, one.url) for one in report.violations] == [
            ("delay", "https://a/2"), ("delay", "https://a/3"),
        ]  # fmt: skip
        before = None
        for segment in segments.segments_of(folder):
            if segment.plain is not None:
                assert segments.replace_by_packed(segment, before, lambda: None)
            before = segments.Segment(segment.serial, None, segment.path.with_suffix(".packed"))
        assert {path.suffix for path in folder.iterdir()} == {".packed"}


@pytest.fixture
def packed_crawl(tmp_path: Path) -> tuple[Crawled, Path]:
    """Three packed files and an open one, polite throughout."""
    crawled = Crawled(tmp_path / "crawl")
    folder = crawled.folder.pod_folder(0) / "requests"
    folder.mkdir(exist_ok=True, parents=True)
    item = 0
    for host in HOSTS:
        crawled.robots(f"https://{host}", (0.0, b""))
    for serial in range(4):
        lines = [begin(1.0)] if not serial else []
        for host in HOSTS:
            item += 1
            at = 100.0 * serial + 10 + item * 0.1
            lines += [start(item, at, f"/{item}", host=host), end(item, at + 1)]
        (folder / f"requests-{serial:05d}.log").write_bytes(with_sums("".join(lines)))
    before = None
    for segment in segments.segments_of(folder)[:-1]:
        assert segments.replace_by_packed(segment, before, lambda: None)
        before = segments.Segment(segment.serial, None, segment.path.with_suffix(".packed"))
    return crawled, folder


def test_a_flipped_bit_is_named_with_its_file_and_times_and_nothing_is_called_clean(
    packed_crawl: tuple[Crawled, Path],
) -> None:
    crawled, folder = packed_crawl
    whole = judged(crawled)
    assert whole.is_proof and whole.requests == 4 * len(HOSTS)
    path = folder / "requests-00001.packed"
    data = path.read_bytes()
    rng = random.Random(5)
    silent = 0
    for at in sorted(rng.sample(range(len(data)), 60)):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :])
        report = judged(crawled)
        assert report.violation_count == 0, "what is lost is not held against the crawl"
        if report.is_proof:
            assert report.requests == whole.requests, "a copy of the index, or requests that are not there"
            silent += 1
            continue
        assert {loss.file for loss in report.losses} == {str(path)}
        assert all(loss.since >= WALL + 10 and loss.until <= WALL + 400 for loss in report.losses)
        lost = sum(loss.requests or 0 for loss in report.losses)
        assert report.requests + lost >= whole.requests
    assert silent < 60


@pytest.mark.parametrize("harm", ["gone", "cut", "empty", "garbage"])
def test_a_file_that_is_lost_is_named(packed_crawl: tuple[Crawled, Path], harm: str) -> None:
    crawled, folder = packed_crawl
    path = folder / "requests-00001.packed"
    data = path.read_bytes()
    if harm == "gone":
        path.unlink()
    else:
        path.write_bytes({"cut": data[: len(data) // 2], "empty": b"", "garbage": bytes(len(data))}[harm])
    report = judged(crawled)
    assert report.losses and not report.is_proof and report.violation_count == 0
    assert 2 * len(HOSTS) <= report.requests < 4 * len(HOSTS)
    assert all(WALL < loss.since < loss.until < WALL + 500 for loss in report.losses)
    assert judged(crawled, since=WALL + 300).is_proof, "what is not asked about is not missing"


def test_what_retention_has_deleted_is_no_loss_and_is_named(packed_crawl: tuple[Crawled, Path]) -> None:
    crawled, folder = packed_crawl
    (folder / "requests-00000.packed").unlink()
    segments.record_deleted(folder, segments.DeletedRequests(0, WALL + 20.0, len(HOSTS)))
    report = judged(crawled)
    assert report.is_proof and report.requests == 3 * len(HOSTS)
    assert (report.deleted, report.deleted_until) == (len(HOSTS), WALL + 20.0)
    assert report.covers is not None and report.covers[0] > WALL + 100
    (folder / "deleted.json").write_bytes(b'{"through": 7}')
    assert not judged(crawled).is_proof, "nobody knows what was deleted"


def test_the_copy_that_is_audited_says_how_many_lines_of_an_open_file_are_damaged(
    packed_crawl: tuple[Crawled, Path],
) -> None:
    crawled, folder = packed_crawl
    with (folder / "requests-00003.log").open("ab") as file:
        file.write(b"S\t1\t2")
    report = judged(crawled)
    assert (report.unreadable, report.unreadable_in) == (1, [str(folder / "requests-00003.log")])


def test_a_packed_file_gives_back_every_line(tmp_path: Path) -> None:
    from weft.frontier.requests.packed_log import PackedSegment
    from weft.frontier.requests.request_lines import parse_log_line, without_checksum

    rng = random.Random(9)
    (log,) = lines_of(rng, 1, 500)
    log.insert(50, "R\t3.000000\tdigest\tother:1 https://h1.test\n")
    log.insert(60, "C\t3.000000\t7\t2\tx\n")
    log.insert(90, "S\t5\t3.25\t4e9\tkey é\t0.1\t3\thttp://ü.test:8080/a?b=c\t7\n")
    plain = tmp_path / "requests-00000.log"
    plain.write_bytes(with_sums("".join(log)))
    assert pack_segment(plain, tmp_path / "out", {}) == 0
    lines = [parse_log_line(text) for line in plain.open("rb") if (text := without_checksum(line)) is not None]
    (part,) = PackedSegment(tmp_path / "out").parts
    read = list(part.lines_in_order(""))
    order: Callable[[object], str] = repr
    assert sorted(set(map(repr, lines))) == sorted(set(map(order, read)))
    assert len([one for one in lines if type(one).__name__ in ("RequestStart", "RequestEnd", "BootLine")]) == len(
        [one for one in read if type(one).__name__ in ("RequestStart", "RequestEnd", "BootLine")]
    )
