"""Jobs of several stages, followed to their end by each of the four signals: the earlier ones are blocked."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from celery_parts import CeleryPart
from pace import patience
from ports import free_port
from proxying import EchoSite

from weft.cluster.chunk_progress import COMPLETE, FAILED, ChunkProgress, FollowLimits, RedisProgress
from weft.cluster.dispatch import Cluster
from weft.cluster.following import DispatchedJob, FollowedJob, FollowSignal, JobEnding, JobFollower
from weft.cluster.key import ClusterKey
from weft.cluster.refresh.system_task import RefreshOrder
from weft.cluster.signing import new_id
from weft.cluster.tasks import SYSTEM
from weft.config import FetchSection, ProxySection
from weft.fetch.proxies import live
from weft.supervise.redis_server import RedisServer

KIND, ENTRIES = "proxy_refresh", 7
LIMITS = FollowLimits(chunk_s=30.0, poll_s=0.3, unknown_s=60.0)
KEY = ClusterKey(bytes(range(32)))


class Brain:
    """A broker, a worker, and lists of proxies none of which works."""

    def __init__(self, folder: Path, url: str) -> None:
        self.url, self._folder = url, folder
        self.cluster = Cluster(url, KEY)
        self.worker = CeleryPart.worker(folder, url, KEY).wait_ready()
        self.site = EchoSite().__enter__()

    def close(self) -> None:
        self.worker.stop()
        self.cluster.close()
        self.site.__exit__()

    def dispatch(self, sources: tuple[str, ...] | None = None) -> DispatchedJob:
        """A refresh of its own file."""
        job = new_id()
        path = self._folder / job / live.FILE
        path.parent.mkdir()
        port = free_port()
        section = ProxySection(test_url=self.site.url, timeout_s=2.0)
        order = RefreshOrder(
            step="", job=job, sources=sources or tuple(f"127.0.0.{n}:{port}" for n in range(1, ENTRIES + 1)),
            section=section, fetch=FetchSection(allow_private=True), live=str(path), chunk=2, is_private=True,
        )  # fmt: skip
        steps = [
            self.cluster.signature(SYSTEM, msgspec.to_builtins(msgspec.structs.replace(order, step=step)), 60.0)
            for step in ("collect", "dispatch")
        ]
        RedisProgress(self.cluster.broker).begin(KIND, job)
        dispatched = DispatchedJob.of(KIND, job, steps[-1].options["task_id"], path)
        self.cluster.start(steps)
        return dispatched


@pytest.fixture(scope="module")
def brain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brain]:
    folder = tmp_path_factory.mktemp("brain")
    server = RedisServer(folder / "redis")
    server.start()
    one = Brain(folder, server.url)
    yield one
    one.close()
    server.stop()


def follow(cluster: Cluster, job: DispatchedJob, limits: FollowLimits = LIMITS, **more: object) -> FollowedJob:
    return JobFollower(cluster, limits).follow(job, **more)  # type: ignore[arg-type]


def test_the_chords_result_ends_it_and_its_progress_is_displayed(brain: Brain) -> None:
    displayed: list[ChunkProgress] = []
    job = brain.dispatch()
    ended = follow(brain.cluster, job, watch=displayed.append)
    assert (ended.ending, ended.signal) == (JobEnding.DONE, FollowSignal.CHORD)
    assert ended.result["job_id"] == job.job_id and ended.progress is not None
    assert (ended.progress.status, ended.progress.total_chunks, ended.progress.completed_chunks) == (COMPLETE, 4, 4)
    assert live.read(job.result_file or Path()) is not None
    keys = list(brain.cluster.broker.client.scan_iter(f"{KIND}:{job.job_id}:*"))
    assert len(keys) == 6 and all(brain.cluster.broker.client.ttl(key) > 0 for key in keys)


def test_too_few_results_are_named(brain: Brain) -> None:
    assert follow(brain.cluster, brain.dispatch(), least=1).ending is JobEnding.TOO_FEW


def test_a_chain_that_fails_ends_it(brain: Brain) -> None:
    ended = follow(brain.cluster, brain.dispatch(("/no/such/file",)))
    assert (ended.ending, ended.signal) == (JobEnding.FAILED, FollowSignal.CHAIN)
    assert "no proxy was found" in ended.error
    assert ended.progress is None or ended.progress.status == FAILED


def test_without_results_the_progress_keys_end_it(brain: Brain) -> None:
    """Results that are signed with another key are none."""
    with_another_key = Cluster(brain.url, ClusterKey(bytes(32)))
    ended = follow(with_another_key, brain.dispatch())
    assert (ended.ending, ended.signal) == (JobEnding.DONE, FollowSignal.PROGRESS)
    ended = follow(brain.cluster, _with_a_lost_chain(brain.dispatch()))
    assert (ended.ending, ended.signal) == (JobEnding.DONE, FollowSignal.PROGRESS)
    with_another_key.close()


def test_without_results_and_keys_the_file_ends_it(brain: Brain) -> None:
    """Another key, so that results are refused; another database, where no keys are."""
    elsewhere = Cluster(f"{brain.url}?db=3", ClusterKey(bytes(32)))
    ended = follow(elsewhere, brain.dispatch())
    assert (ended.ending, ended.signal) == (JobEnding.DONE, FollowSignal.FILE)
    elsewhere.close()


def test_a_job_without_any_sign_ends_with_its_time_and_is_helped_before(brain: Brain, tmp_path: Path) -> None:
    """A display that hangs holds up nothing."""
    stalls: list[object] = []
    job = DispatchedJob.of(KIND, new_id(), new_id(), tmp_path / "none")
    RedisProgress(brain.cluster.broker).begin(KIND, job.job_id)
    limits = FollowLimits(chunk_s=0.2, poll_s=0.1, unknown_s=1.5)
    hanging = threading.Event()
    ended = JobFollower(brain.cluster, limits, stalled=stalls.append).follow(job, watch=lambda _: void(hanging.wait()))
    hanging.set()
    assert ended.ending is JobEnding.TIMED_OUT and ended.signal is None and stalls


def void(_: object) -> None:
    pass


def test_the_time_limit_follows_the_work() -> None:
    limits = FollowLimits(chunk_s=10.0, margin=1.5)
    assert [limits.seconds(chunks, 8) for chunks in (1, 8, 9, 30)] == [15.0, 15.0, 30.0, 60.0]
    assert limits.seconds(4, 0) == 60.0, "no hand reports yet: as if there was one"


def test_many_jobs_are_followed_at_once(brain: Brain) -> None:
    ended: list[FollowedJob] = []
    threads = [threading.Thread(target=lambda: ended.append(follow(brain.cluster, brain.dispatch()))) for _ in range(4)]
    for thread in threads:
        thread.start()
    until = time.monotonic() + patience(60)
    for thread in threads:
        thread.join(max(0.1, until - time.monotonic()))
    assert [one.ending for one in ended] == [JobEnding.DONE] * 4


def _with_a_lost_chain(job: DispatchedJob) -> DispatchedJob:
    return DispatchedJob(job.kind, job.job_id, new_id(), job.result_file, job.file_was)
