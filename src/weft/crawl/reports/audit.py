"""Proof of politeness: checks every logged request against the robots.txt and the settings in force when it was sent.

For each site it checks the delay since its last request ended (with several slots: between starts, and never more open
than slots), and that a page was requested only when its origin's robots.txt was known and allowed it. The log is
written before a request is made, so no request can be missing from it.

A claim is logged before robots.txt is checked, and a forbidden one is logged as not requested right after. A forbidden
one that has neither that entry nor an end was interrupted by a kill between the two: it is not a request, and is
counted separately (`cut_off`).

Of several crawls in one folder each request is judged by its own crawl's settings, against any crawl's last request to
the site. The log names the revision of the settings that requests follow (of the process, or of an engine's crawl that
was edited), and each robots.txt from which on it applies. A request is judged by what its own log named last before it:
by the order of the log, not by the wall clock. If no settings are recorded, the delay in the request's own entry
counts. A deleted crawl has no settings any more, and the user agent that it used for robots.txt is unknown: its
requests are not checked against robots.txt, and are counted (`forgotten`).

A damaged log proves less: unreadable lines, and bytes that are missing at its end, are counted, and so are requests
whose robots.txt was lost with a frontier that was created again.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import ceil, inf
from pathlib import Path

from msgspec import Struct, msgpack, structs

from weft.crawl.reports.audit_judge import AuditJudge, AuditScope
from weft.crawl.reports.audit_report import WORST_KEPT, AuditReport, Violation, combine_reports
from weft.crawl.reports.crawls import ReportFolder
from weft.errors import WeftError
from weft.frontier.requests import LogEvent, missing_bytes
from weft.frontier.requests.log_packing import BUCKETS
from weft.frontier.requests.partitions import LogPartition, LogReader, PackedLogFile, all_deleted, log_files
from weft.frontier.view import FrontierView

__all__ = ["WORST_KEPT", "AuditReport", "AuditScope", "Violation", "audit", "judge_share"]

SITES_AT_ONCE = 40_000  # that one process judges: a KB each; each further share reads the tables of all files again
REQUESTS_A_PROCESS = 500_000  # fewer do not justify starting a process
_ON_DISK = Path("/var/tmp")  # noqa: S108 (a folder in it is made with a name of its own)
FilesByPod = list[dict[str, list[PackedLogFile]]]  # of each pod's log, by slot


class AuditWork(Struct, frozen=True):
    """The share of requests that one process judges."""

    data_dirs: list[str]
    scope: AuditScope
    files: FilesByPod
    partitions: list[LogPartition]


def audit(
    report: ReportFolder,
    name: str | None = None,
    *,
    hosts: Sequence[str] = (),
    since: float = -inf,
    until: float = inf,
    processes: int | None = None,
) -> AuditReport:
    """Judges the requests of a folder: all, or those of one crawl, of some hosts (`*.` before a name: all below it,
    too) or of a range of time. Other requests only count as predecessors of these.

    `processes`: by default as many as there are processors, if there are enough requests for them.
    """
    number = report.crawls(name)[0].number if name is not None else 0
    scope = AuditScope(number, tuple(hosts), since, until)
    view = FrontierView(report.folder.pod_folders())
    try:
        with tempfile.TemporaryDirectory(prefix="weft-audit-", dir=_scratch_folder()) as scratch:
            return _FolderAudit(report, view, scope, Path(scratch)).run(processes)
    finally:
        view.close()


def _scratch_folder() -> Path | None:
    """Where open files are packed: on a disk rather than in memory, unless TMPDIR is set."""
    is_usable = "TMPDIR" not in os.environ and os.access(_ON_DISK, os.W_OK | os.X_OK)
    return _ON_DISK if is_usable else None


class _FolderAudit:
    """One audit of the logs of a folder."""

    def __init__(self, report: ReportFolder, view: FrontierView, scope: AuditScope, scratch: Path) -> None:
        self._folder = report
        self._view = view
        self._scope = scope
        self._logs = view.log_folders()
        self._files: FilesByPod = [
            log_files(log, scratch / f"pod{pod}") if log is not None else {} for pod, log in enumerate(self._logs)
        ]
        self._open_readers = [LogReader(files) for files in self._files]

    def run(self, processes: int | None) -> AuditReport:
        """The whole report."""
        partitions = self._partitions()
        processes = processes or self._number_of_processes(partitions)
        work = AuditWork(
            [str(path) for path in self._folder.folder.data_dirs], self._scope, self._files, partitions
        )  # fmt: skip
        with _started_judges(work, processes) as others:
            own = structs.replace(work, partitions=partitions[::processes])
            parts = [_judge_partitions(self._folder, self._view, own, self._open_readers), *map(_read_answer, others)]
        return self._add_file_facts(combine_reports(parts))

    def _partitions(self) -> list[LogPartition]:
        scope = self._scope
        before_s = max((reader.longest_delay_s(scope.since, scope.until) for reader in self._open_readers), default=0.0)
        if scope.hosts:
            blocks = (reader.blocks_with(scope.hosts, scope.since, scope.until) for reader in self._open_readers)
            buckets = sorted(set[int]().union(*blocks)) or [0]
            return [LogPartition(bucket, 0, 1, scope.hosts, scope.since, scope.until, before_s) for bucket in buckets]
        some = LogPartition(0, 0, 1, (), scope.since, scope.until, before_s)
        sites = sum(reader.sites_of(some) for reader in self._open_readers)
        shares = ceil(sites / SITES_AT_ONCE) or 1
        return [
            LogPartition(bucket, share, shares, (), scope.since, scope.until, before_s)
            for bucket in range(BUCKETS)
            for share in range(shares)
        ]

    def _number_of_processes(self, partitions: list[LogPartition]) -> int:
        buckets = {partition.bucket for partition in partitions}
        requests = sum(
            part.index.blocks[bucket].requests
            for reader in self._open_readers
            for part in reader.parts_in_range(partitions[0])
            for bucket in buckets
        )
        most = len(os.sched_getaffinity(0))
        return max(1, min(most, len(partitions), requests // REQUESTS_A_PROCESS))

    def _add_file_facts(self, report: AuditReport) -> AuditReport:
        """Adds what is known of the files: retention and losses."""
        some = LogPartition(0, 0, 1, (), self._scope.since, self._scope.until)
        parts = [
            (reader.file_of(part), part.index) for reader in self._open_readers for part in reader.parts_in_range(some)
        ]
        report.unreadable = sum(index.unreadable for _, index in parts)
        report.unreadable_in = list(dict.fromkeys(name for name, index in parts if index.unreadable))
        sizes = self._view.log_sizes().items()
        report.missing_bytes = sum(missing_bytes(path.parent, (path.name, size)) for path, size in sizes)
        walls = [
            (index.first_wall, index.last_wall)
            for _, index in parts
            if index.first_wall is not None and index.last_wall is not None
        ]
        if walls:
            report.covers = min(first for first, _ in walls), max(last for _, last in walls)
        named = [crawl.name for crawl in self._folder.crawls()] if report.crawls else []
        report.crawls = {name: report.crawls[name] for name in named if name in report.crawls}
        deleted = [all_deleted(log) for log in self._logs if log is not None]
        report.deleted = sum(one.requests for one in deleted)
        report.deleted_until = max((one.until for one in deleted), default=0.0)
        return report


def judge_share(work: AuditWork) -> AuditReport:
    """Judges the share of one process."""
    report = ReportFolder(work.data_dirs)
    view = FrontierView(report.folder.pod_folders())
    try:
        return _judge_partitions(report, view, work, [LogReader(files) for files in work.files])
    finally:
        view.close()
        report.close()


def _judge_partitions(
    report: ReportFolder, view: FrontierView, work: AuditWork, readers: list[LogReader]
) -> AuditReport:
    crawls = report.crawls()

    def judged_of(partition: LogPartition) -> tuple[AuditReport, float]:
        judge = AuditJudge(view, crawls, work.scope, has_several=report.is_engines)
        return judge.run(_events_of_partition(readers, partition)), judge.longest_delay_s

    def judged() -> Iterator[AuditReport]:
        for partition in work.partitions:
            found, longest_delay_s = judged_of(partition)
            if longest_delay_s > partition.before_s and partition.since > -inf:
                # A delay that no line of the range names: of the settings, or of a robots.txt that was not followed.
                found, _ = judged_of(structs.replace(partition, before_s=longest_delay_s))
            yield found

    whole = combine_reports(judged())
    whole.losses = sorted(
        {loss for reader in readers for loss in reader.losses_in(work.scope.since, work.scope.until)}
    )  # fmt: skip
    return whole


def _events_of_partition(readers: list[LogReader], partition: LogPartition) -> Iterator[tuple[int, LogEvent]]:
    """The events of a partition, pod after pod, each in order of time."""
    for pod, reader in enumerate(readers):
        yield from ((pod, event) for event in reader.events(partition))


@contextmanager
def _started_judges(work: AuditWork, total_processes: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Starts the processes beside this one that judge the other shares of the partitions; this one counts in the
    total.
    """
    argv = [sys.executable, "-m", "weft.crawl.reports.audit_worker"]
    running: list[subprocess.Popen[bytes]] = []
    try:
        for first in range(1, total_processes):
            child = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # noqa: S603 (our own module)
            running.append(child)
            assert child.stdin is not None
            share = structs.replace(work, partitions=work.partitions[first::total_processes])
            child.stdin.write(msgpack.encode(share))
            child.stdin.close()
        yield running
    finally:
        for child in running:
            if child.poll() is None:
                child.kill()
            child.wait()


def _read_answer(child: subprocess.Popen[bytes]) -> AuditReport:
    assert child.stdout is not None
    with child.stdout:
        data = child.stdout.read()
    if child.wait() != 0:
        raise WeftError(
            f"a process that judges requests ended with {child.returncode}; try again, with `--processes 1`"
        )
    return msgpack.decode(data, type=AuditReport)
