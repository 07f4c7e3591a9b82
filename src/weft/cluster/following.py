"""Follows a job of several stages to its end, by the best signal there is.

    chain     the result of the chain that dispatches it: gives the number of its chunks and the id of its chord
    chord     the chord's result, which is waited for: nothing is polled
    progress  the keys of `chunk_progress`, polled every `progress_poll_seconds`
    file      the result file has changed since the job began

Each falls back to the next: a result that was lost, a broker whose messages do not come, keys that are gone. The
waits are those of threads of their own, and so is the display, so that nothing which hangs holds the follower up for
longer than one poll. Time limits follow the work: ceil(chunks / workers) x `chunk_seconds` x `wait_margin`, counted
from when the number of chunks is known; until then, and where it never is, `unknown_timeout_seconds`.
"""

from __future__ import annotations

import enum
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from weft.cluster.chunk_progress import COMPLETE, ChunkProgress, FollowLimits, RedisProgress
from weft.cluster.dispatch import Cluster, detach
from weft.cluster.signing import RefusedMessage
from weft.cluster.tasks import SYSTEM
from weft.errors import WeftError
from weft.telemetry import Log

if TYPE_CHECKING:
    from celery.result import AsyncResult

DISPLAY_S = 0.5
GRACE_S = 1.0  # a lesser signal waits this long for a better one, which may be on its way
LAST_STAGE_S = 3.0
LATE_S = 1.0  # a thread that is still busy after this is left behind
SLICE_S = 0.5  # the longest uninterrupted wait for a result, so that `close` is prompt
log = Log("weft.cluster.following")


class FollowSignal(enum.StrEnum):
    """The signals that can show how a job ended."""

    CHAIN = "chain"
    CHORD = "chord"
    PROGRESS = "progress"
    FILE = "file"


class JobEnding(enum.StrEnum):
    """How a job ended."""

    DONE = "done"
    TOO_FEW = "too few"
    FAILED = "failed"
    TIMED_OUT = "timed out"


@dataclass(frozen=True, slots=True)
class DispatchedJob:
    """A job as it is known to the process that dispatched it."""

    kind: str
    job_id: str
    chain_id: str
    result_file: Path | None = None
    file_was: tuple[int, int] | None = None  # `file_mark` before the job began

    @classmethod
    def of(cls, kind: str, job_id: str, chain_id: str, result_file: Path) -> DispatchedJob:
        """A job that is about to be dispatched; notes the present version of its result file."""
        return cls(kind, job_id, chain_id, result_file, file_mark(result_file))


class FollowedJob(Struct, frozen=True, kw_only=True):
    """How a job has ended, and which signal has shown it."""

    ending: JobEnding
    signal: FollowSignal | None = None  # None: the time was over
    result: dict[str, Any] = {}  # the chord's, if it came
    progress: ChunkProgress | None = None  # as last read
    error: str = ""


class _Result:
    """A result of Celery's that is waited for on a thread: the backend's own retries block no other thread."""

    def __init__(self, cluster: Cluster, task_id: str, came: threading.Event) -> None:
        self._cluster, self._id, self._came = cluster, task_id, came
        self._over = threading.Event()
        self.body: dict[str, Any] | None = None
        self._thread = threading.Thread(target=self._wait, name="awaited result", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stops waiting for the result."""
        self._over.set()
        self._thread.join(LATE_S)

    @property
    def error(self) -> str:
        """The error in the result; empty if there is none."""
        return error_of(self.body or {})

    def _wait(self) -> None:
        result = self._cluster.application.AsyncResult(self._id)
        try:
            while not self._over.is_set() and not self._came_in(result):
                self._over.wait(SLICE_S)
        finally:
            detach(result)

    def _came_in(self, result: AsyncResult) -> bool:
        """Waits for at most SLICE_S; True if the result has come or was refused."""
        try:
            text = result.get(timeout=SLICE_S, propagate=False)
            self.body = self._cluster.opened(text, SYSTEM, self._id).body
        except RefusedMessage as error:  # it is not ours: another signal will do
            log.warning("a result was refused", task=self._id, why=error)
        except Exception as error:  # a timeout, or whatever the client library raises
            log.debug("no result yet", task=self._id, error=type(error).__name__)
            return False
        else:
            self._came.set()
        return True


def error_of(body: Mapping[str, Any]) -> str:
    """The error in a task's result; empty if there is none."""
    error = body.get("error", "")
    return str(error.get("message", "") if isinstance(error, Mapping) else error)


@dataclass(slots=True)
class _State:
    """What is known of a job that is followed."""

    job: DispatchedJob
    until_s: float
    came: threading.Event = field(default_factory=threading.Event)
    chain: _Result | None = None
    chord: _Result | None = None
    chunks: int = 0
    progress: ChunkProgress | None = None
    lesser_s: float | None = None  # when a lesser signal was first seen
    moved: tuple[object, ...] = ()  # the job's progress when it last changed
    moved_s: float = 0.0  # when the progress last changed


class JobFollower:
    """Follows jobs, each in a call of its own; many at once from as many threads."""

    def __init__(
        self,
        cluster: Cluster,
        limits: FollowLimits | None = None,
        *,
        workers: Callable[[], int] = lambda: 1,
        stalled: Callable[[ChunkProgress | None], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`workers`: how many chunks are worked on at a time. `stalled` is called when nothing has moved for
        `chunk_seconds`, and each time that passes again: a message of the broker may be lost."""
        self._cluster, self._progress = cluster, RedisProgress(cluster.broker)
        self._stalled = stalled
        self._limits = limits or FollowLimits()
        self._workers, self._clock = workers, clock

    def follow(
        self, job: DispatchedJob, *, least: int = 0, watch: Callable[[ChunkProgress], None] | None = None,
        over: threading.Event | None = None,
    ) -> FollowedJob:  # fmt: skip
        """Returns when it has ended, or its time is over. `least`: with fewer results it is TOO_FEW. `watch` is given
        its progress now and then, on another thread. `over`: somebody wants this to end; then it has timed out."""
        state = _State(job, self._clock() + self._limits.unknown_s, moved_s=self._clock())
        state.chain = _Result(self._cluster, job.chain_id, state.came)
        try:
            with self._displayed(job, watch):
                ended = self._until_the_end(state, over or threading.Event())
        finally:
            for result in (state.chain, state.chord):
                if result is not None:
                    result.close()
        if ended.ending is JobEnding.DONE and ended.progress is not None and ended.progress.result_count < least:
            return msgspec.structs.replace(ended, ending=JobEnding.TOO_FEW)
        log.info("a job was followed", kind=job.kind, job=job.job_id, ending=ended.ending, signal=ended.signal)
        return ended

    def _until_the_end(self, state: _State, over: threading.Event) -> FollowedJob:
        while True:
            if (ended := self._by_results(state) or self._by_lesser(state)) is not None:
                return ended
            left_s = state.until_s - self._clock()
            if left_s <= 0 or over.is_set():
                return FollowedJob(ending=JobEnding.TIMED_OUT, progress=state.progress, error="its time is over")
            self._notice_stall(state)
            state.came.wait(max(0.01, min(self._wait_s(state), left_s)))
            state.came.clear()

    def _by_results(self, state: _State) -> FollowedJob | None:
        """The chain's result gives the chord's id; that of the chord is the end."""
        chain, chord = state.chain, state.chord
        if chain is not None and chain.body is not None and chord is None:
            if chain.error:
                return FollowedJob(ending=JobEnding.FAILED, signal=FollowSignal.CHAIN, error=chain.error)
            if chord_id := str(chain.body.get("chord_id", "")):
                state.chord = chord = _Result(self._cluster, chord_id, state.came)
            self._know_chunks(state, chain.body.get("total_chunks"))
        if chord is None or chord.body is None:
            return None
        self._read(state)
        ending = JobEnding.FAILED if chord.error else JobEnding.DONE
        progress = state.progress or ChunkProgress(status=COMPLETE, result_count=int(chord.body.get("passed", 0)))
        return FollowedJob(
            ending=ending, signal=FollowSignal.CHORD, result=chord.body, progress=progress, error=chord.error
        )

    def _by_lesser(self, state: _State) -> FollowedJob | None:
        """Keys and file; a moment after they were first seen to say so."""
        if (ended := self._by_progress(state) or self._by_file(state)) is None:
            state.lesser_s = None
            return None
        if state.lesser_s is None:
            state.lesser_s = self._clock()
        return ended if self._clock() - state.lesser_s >= min(GRACE_S, self._limits.poll_s) else None

    def _by_progress(self, state: _State) -> FollowedJob | None:
        """Read once a poll, and whenever a result has come."""
        if (progress := self._read(state)) is None:
            return None
        self._know_chunks(state, progress.total_chunks)
        if not progress.has_ended:
            return None
        ending = JobEnding.DONE if progress.status == COMPLETE else JobEnding.FAILED
        return FollowedJob(ending=ending, signal=FollowSignal.PROGRESS, progress=progress)

    def _by_file(self, state: _State) -> FollowedJob | None:
        """Its result is replaced as a whole, as the last thing that it does."""
        path = state.job.result_file
        if path is None or file_mark(path) in (None, state.job.file_was):
            return None
        return FollowedJob(ending=JobEnding.DONE, signal=FollowSignal.FILE)

    def _notice_stall(self, state: _State) -> None:
        progress = state.progress
        seen = (state.chunks, progress and (progress.status, progress.completed_chunks), state.chord is None)
        if seen != state.moved:
            state.moved, state.moved_s = seen, self._clock()
        elif self._clock() - state.moved_s >= self._patience_s(progress):
            state.moved_s = self._clock()
            log.info("a job makes no progress", kind=state.job.kind, job=state.job.job_id, progress=progress)
            try:
                self._stalled(progress)
            except WeftError as error:
                log.warning("a job without progress could not be helped", job=state.job.job_id, why=error)

    def _patience_s(self, progress: ChunkProgress | None) -> float:
        """How long a job may make no progress: less where all chunks are complete, and only the end is missing."""
        is_whole = progress is not None and 0 < progress.total_chunks == progress.completed_chunks
        return min(LAST_STAGE_S, self._limits.chunk_s) if is_whole else self._limits.chunk_s

    def _wait_s(self, state: _State) -> float:
        """Until things are looked at again; a result that comes is seen at once."""
        if state.lesser_s is not None:
            return min(GRACE_S, self._limits.poll_s)
        return min(self._limits.poll_s, self._patience_s(state.progress))

    def _read(self, state: _State) -> ChunkProgress | None:
        """None: they cannot be read, or are gone."""
        try:
            progress = self._progress.read(state.job.kind, state.job.job_id)
        except WeftError as error:
            log.debug("how far a job is cannot be read", job=state.job.job_id, why=error)
            return None
        if progress is not None:
            state.progress = progress
        return progress

    def _know_chunks(self, state: _State, total: object) -> None:
        """The time limit of the work, from when its size is known."""
        if state.chunks or not isinstance(total, int) or total < 1:
            return
        state.chunks = total
        state.until_s = self._clock() + self._limits.seconds(total, self._workers())

    @contextmanager
    def _displayed(self, job: DispatchedJob, watch: Callable[[ChunkProgress], None] | None) -> Iterator[None]:
        """Reports progress beside the wait; a display that hangs is left behind."""
        if watch is None:
            yield
            return
        over = threading.Event()

        def display() -> None:
            while not over.wait(DISPLAY_S):
                with suppress(WeftError):
                    if (progress := self._progress.read(job.kind, job.job_id)) is not None:
                        watch(progress)

        thread = threading.Thread(target=display, name="progress display", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join(LATE_S)


def file_mark(path: Path) -> tuple[int, int] | None:
    """Distinguishes one version of a file from the next: replaced files have other inodes."""
    try:
        facts = os.stat(path)  # noqa: PTH116
    except OSError:
        return None
    return facts.st_ino, facts.st_mtime_ns
