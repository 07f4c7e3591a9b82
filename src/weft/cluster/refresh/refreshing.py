"""A refresh of proxies over the workers of a cluster, as the process that wants it sees it: dispatched as a chain,
which ends in a chord, and followed to its end.

    collect → dispatch → a chunk each on any worker → publish

The process holds the lock of `live_proxies.json` meanwhile, as every refresh does, and writes down how far it is. A
message that the broker has lost is sent again once nothing has moved for `chunk_seconds`: steps and chunks do their
work once. Where proxies have logins that others could read on their way, they are tested here.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from weft.cluster.broker import is_private
from weft.cluster.chunk_progress import ChunkProgress, FollowLimits
from weft.cluster.dispatch import Cluster
from weft.cluster.following import DispatchedJob, FollowedJob, JobEnding, JobFollower
from weft.cluster.refresh.proxy_task import ChunkOrder, KeptChunks
from weft.cluster.refresh.system_task import DoneRefresh, RefreshKeys, RefreshOrder
from weft.cluster.status import cluster_status
from weft.cluster.tasks import SYSTEM
from weft.config import FetchSection
from weft.credentials import HARMLESS
from weft.engine.process.channel import ERRORS
from weft.errors import ServerAway, WeftError
from weft.fetch.proxies import live as live_file
from weft.fetch.proxies.refresh import KIND, Refresh, Refreshed, RefreshReport
from weft.telemetry import Log

STEP_S = 3600.0  # until when a step counts
LONGEST_CHUNK_S = 100.0  # a task has 120 s
BROKER_TRIES, BROKER_PAUSE_S = 20, 0.5
PARALLEL = 25  # tests at a time of one chunk: several chunks share a machine
T = TypeVar("T")
log = Log("weft.cluster.refresh.refreshing")


class ClusterRefresh:
    """The `work` of a refresh, done by a cluster."""

    def __init__(
        self, refresh: Refresh, cluster: Cluster, limits: FollowLimits, *, over: threading.Event | None = None
    ) -> None:
        """`cluster`: closed at the end of the work. `over`: this process wants to end."""
        self._refresh, self._cluster, self._limits = refresh, cluster, limits
        self._over = over

    @property
    def trouble(self) -> str:
        """Why this refresh cannot go over the cluster; empty where it can."""
        section = self._refresh.section
        if not is_private(self._cluster.broker.url) and any("@" in source for source in self._refresh.sources):
            return "its sources have logins, and others can read what goes to the broker; use rediss://"
        if section.timeout_s * (2 if section.tls_url else 1) > LONGEST_CHUNK_S:
            return f"`proxy_test_timeout` is over {LONGEST_CHUNK_S:g} s, longer than a task may run"
        return ""

    def __call__(self, report: RefreshReport) -> Refreshed:
        """Dispatches and follows it; raises what went wrong."""
        try:
            return self._done_by_workers(report)
        finally:
            self._cluster.close()

    def _slots(self) -> int:
        """How many chunks are tested at a time, over all workers that report."""
        hands = [hand for hand in cluster_status(self._cluster)["hands"] if hand["state"] == "up"]
        return sum(int(hand["concurrency"]) for hand in hands if "proxies" in hand["queues"])

    def _done_by_workers(self, report: RefreshReport) -> Refreshed:
        order = self._order(report.job.job_id)
        keys = RefreshKeys(self._cluster, order)
        job = self._dispatched(order, keys, report)
        following = JobFollower(
            self._cluster, self._limits, workers=self._slots, stalled=lambda seen: self._repeat(order, keys, seen)
        )
        ended = following.follow(job, watch=lambda seen: _report_progress(report, seen), over=self._over)
        return self._result(ended, keys, report)

    def _order(self, job_id: str) -> RefreshOrder:
        section, fetch = self._refresh.section, self._refresh.fetch
        each_s = section.timeout_s * (2 if section.tls_url else 1)
        parallel = min(PARALLEL, section.parallel)
        most = parallel * max(1, math.floor(LONGEST_CHUNK_S / each_s))
        headers = {name: value for name, value in fetch.headers.items() if name.lower() in HARMLESS}
        # A service's section is of another class, with another name for one of the settings.
        own = {name: getattr(fetch, name) for name in FetchSection.__struct_fields__}
        changed = {"auth": {}, "headers": headers, "proxies": None, "render": "never", "hands": "local"}
        return RefreshOrder(
            step="", job=job_id, sources=tuple(self._refresh.sources), live=str(self._refresh.live),
            section=msgspec.structs.replace(section, sources=(), parallel=parallel),
            fetch=FetchSection(**own | changed),
            chunk=min(section.chunk, most), is_private=is_private(self._cluster.broker.url),
        )  # fmt: skip

    def _step(self, order: RefreshOrder, step: str) -> Any:
        body = msgspec.to_builtins(msgspec.structs.replace(order, step=step))
        return self._cluster.signature(SYSTEM, body, STEP_S)

    def _dispatched(self, order: RefreshOrder, keys: RefreshKeys, report: RefreshReport) -> DispatchedJob:
        """Begins the chain."""

        def dispatch() -> DispatchedJob:
            with self._cluster.broker.asking():
                steps = [self._step(order, step) for step in ("collect", "dispatch")]
                keys.progress.begin(KIND, order.job, report.job.started_at)
                self._cluster.start(steps)
            return DispatchedJob.of(KIND, order.job, str(steps[-1].options["task_id"]), self._refresh.live)

        return self._patiently(dispatch)

    def _patiently(self, call: Callable[[], T]) -> T:
        """Does it at a broker that may be just being restarted; ServerAway if that takes long."""
        left = BROKER_TRIES
        while True:
            left -= 1
            try:
                return call()
            except ServerAway:
                if not left or (self._over is not None and self._over.is_set()):
                    raise
                time.sleep(BROKER_PAUSE_S)

    def _repeat(self, order: RefreshOrder, keys: RefreshKeys, seen: ChunkProgress | None) -> None:
        """Sends again what has not come back, outside of chain and chord."""
        collected = keys.collected()
        if collected is None or seen is None or not seen.total_chunks:
            self._cluster.start([self._step(order, step) for step in ("collect", "dispatch")])
            return
        kept = KeptChunks(self._cluster.broker, self._cluster.signer, order.job)
        missing = [number for number in range(seen.total_chunks) if kept.get(number) is None]
        log.info("chunks of proxies are sent again", job=order.job, chunks=len(missing), of=seen.total_chunks)
        for number in missing:
            proxies = tuple(collected.proxies[number * order.chunk : (number + 1) * order.chunk])
            chunk = ChunkOrder(job=order.job, number=number, proxies=proxies, section=order.section, fetch=order.fetch)
            self._cluster.start([self._cluster.signature("proxies", msgspec.to_builtins(chunk), STEP_S)])
        if not missing:
            self._cluster.start([self._step(order, "publish")])

    def _result(self, ended: FollowedJob, keys: RefreshKeys, report: RefreshReport) -> Refreshed:
        done = self._done(keys)
        report.update(**_counts(ended.progress or ChunkProgress()))
        if ended.ending is JobEnding.TIMED_OUT and done is None:
            progress = ended.progress or ChunkProgress()
            raise WeftError(
                f"the workers have not ended it in time: {progress.completed_chunks:,} of {progress.total_chunks:,} "
                "chunks are complete; see `weft logs celery`"
            )
        if done is not None and (done.error or done.done is None):
            raise ERRORS.get(done.error_kind, WeftError)(done.error)
        if ended.ending is JobEnding.FAILED and done is None:
            raise WeftError(ended.error or "the workers have given it up; see `weft logs celery`")
        refreshed = done.done if done is not None and done.done is not None else self._by_file(report)
        report.update(status="COMPLETE", result_count=refreshed.passed, completed_at=_tested_at(self._refresh))
        return refreshed

    def _done(self, keys: RefreshKeys) -> DoneRefresh | None:
        try:
            return self._patiently(keys.done)
        except WeftError:  # the broker is away
            return None

    def _by_file(self, report: RefreshReport) -> Refreshed:
        """What the result file says, where nothing else can be had."""
        file = live_file.read(self._refresh.live) or live_file.LiveFile()
        return Refreshed(
            job_id=report.job.job_id, tested=file.tested, passed=len(file.proxies), duplicates=0, rejected=0,
            problems=[], failures={}, examples={},
        )  # fmt: skip


def _counts(progress: ChunkProgress) -> dict[str, int]:
    return {name: getattr(progress, name) for name in ("total_chunks", "completed_chunks", "result_count")}


def _report_progress(report: RefreshReport, progress: ChunkProgress) -> None:
    """How far it is; its end is written by the process that follows it."""
    counts = _counts(progress)
    if not progress.has_ended and any(getattr(report.job, name) != value for name, value in counts.items()):
        report.update(status="PROCESSING", **counts)


def _tested_at(refresh: Refresh) -> str | None:
    file = live_file.read(refresh.live)
    return file.tested_at if file is not None else None
