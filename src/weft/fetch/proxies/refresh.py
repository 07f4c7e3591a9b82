"""A refresh: proxies are collected, tested in parallel, and those that pass become the live ones.

    live_proxies.json    what has passed; see `live`
    live_proxies.lock    held while one refresh runs: a second one, of any process, is refused
    proxy_refresh.json   how far the last one is: DISPATCHED, PROCESSING, COMPLETE or FAILED, by chunks

A refresh without a result (the test URL does not answer, no source is readable) changes nothing.
"""

from __future__ import annotations

import os
import secrets
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from weft.config import FetchSection, ProxySection
from weft.errors import BadInput, Busy, WeftError
from weft.fetch.curl.client import Client, Refusal
from weft.fetch.proxies import live as live_file
from weft.fetch.proxies.counts import ProxyCounts
from weft.fetch.proxies.live import FILE
from weft.fetch.proxies.probe import Probe, ProxyVerdict, get
from weft.fetch.proxies.sources import Collected, collect
from weft.fetch.proxies.tally import ProxyTally, publish
from weft.files import is_locked, replace_file, try_lock
from weft.records import FetchResult
from weft.telemetry import Log

KIND = "proxy_refresh"
UNDER_WAY = ("DISPATCHED", "PROCESSING")
LOCK_WAIT_S = 0.2  # `is_under_way` holds the lock for a moment
LIST_SECONDS = 30.0  # for a list that is downloaded
log = Log("weft.fetch.proxies")


class RefreshJob(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of a refresh."""

    job_id: str
    kind: str = KIND
    status: str = "DISPATCHED"
    total_chunks: int = 0
    completed_chunks: int = 0
    result_count: int = 0
    started_at: str = ""
    completed_at: str | None = None
    error: str = ""

    @property
    def progress(self) -> dict[str, str | int | None]:
        """The progress in the form of progress keys."""
        return {
            "status": self.status, "total_chunks": self.total_chunks, "completed_chunks": self.completed_chunks,
            "started_at": self.started_at, "completed_at": self.completed_at, "result_count": self.result_count,
        }  # fmt: skip


class Refreshed(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a refresh."""

    job_id: str
    tested: int
    passed: int
    duplicates: int
    rejected: int
    problems: list[str]
    failures: dict[str, int]  # number of failures by reason
    examples: dict[str, str]  # the first proxy of each reason
    seconds: float = 0.0


Watch = Callable[[RefreshJob], None]


class Refresh:
    """A configured refresh; `run` does it once."""

    def __init__(
        self,
        sources: Sequence[str],
        section: ProxySection,
        fetch: FetchSection,
        refusal: Refusal,
        live: Path,
        counts: ProxyCounts | None = None,
    ) -> None:
        self.sources = list(sources)
        self.counts = counts or ProxyCounts()
        self.live = live
        self.section, self.fetch, self._refusal = section, fetch, refusal

    def run(self, watch: Watch = lambda _: None, job_id: str = "", work: Work | None = None) -> Refreshed:
        """Collects and tests; Busy while another refresh runs, BadInput for what the user can correct. `work`: who
        tests, this process by default.
        """
        self.probe()
        if not self.sources:
            raise BadInput("there is nowhere to take proxies from: set `proxies` or `proxy_sources`")
        with _lock(self.live):
            began = datetime.now(UTC)
            job = RefreshReport(RefreshJob(job_id=job_id or new_id(), started_at=began.isoformat()), self.live, watch)
            try:
                done = (work or self._work_here)(job)
            except WeftError as error:
                ended = datetime.now(UTC)
                job.update(status="FAILED", error=str(error), completed_at=ended.isoformat())
                self.counts.refreshed("FAILED", (ended - began).total_seconds())
                raise
            took_s = (datetime.now(UTC) - began).total_seconds()
            self.counts.refreshed("COMPLETE", took_s, done.passed, done.tested - done.passed)
            log.info("proxies tested", tested=done.tested, passed=done.passed, rejected=done.rejected)
            return msgspec.structs.replace(done, seconds=round(took_s, 3))

    def probe(self) -> Probe:
        """The prober of the settings; BadInput if they have no test URL."""
        return Probe(self.section, self.fetch, self._refusal)

    def collect(self) -> Collected:
        """All proxies of the sources; BadInput if there is none."""
        found = collect(self.sources, self._get)
        if not found.proxies:
            raise BadInput(f"no proxy was found: {'; '.join(found.problems[:3]) or 'the sources are empty'}")
        return found

    def _work_here(self, job: RefreshReport) -> Refreshed:
        found, probe = self.collect(), self.probe()
        expected = probe.expect()
        tested = self._test(probe.run(found.proxies, expected), found, job)
        tested.answers = expected.answers
        at = publish(self.live, tested, self.section.test_url)
        job.update(status="COMPLETE", result_count=len(tested.passed), completed_at=at)
        return refreshed(job.job.job_id, found, tested)

    def _test(self, verdicts: Iterator[ProxyVerdict], found: Collected, job: RefreshReport) -> ProxyTally:
        """A chunk is complete when each of its proxies has a verdict."""
        size = self.section.chunk
        chunk_of = {proxy.url: number // size for number, proxy in enumerate(found.proxies)}
        left = Counter(chunk_of.values())
        job.update(status="PROCESSING", total_chunks=len(left))
        tested = ProxyTally()
        for verdict in verdicts:
            tested.add(verdict)
            chunk = chunk_of[verdict.proxy.url]
            left[chunk] -= 1
            if not left[chunk]:
                job.update(completed_chunks=job.job.completed_chunks + 1, result_count=len(tested.passed))
        return tested

    def _get(self, urls: Sequence[str]) -> list[FetchResult]:
        limits = msgspec.structs.replace(
            self.fetch, total_timeout_s=LIST_SECONDS, max_body_bytes=live_file.LARGEST_BYTES, accept=("*/*",)
        )
        client = Client(limits, refusal=self._refusal, handles=min(16, len(urls)))
        try:
            return get(client, urls)
        finally:
            client.close()


def refreshed(job_id: str, found: Collected, tested: ProxyTally) -> Refreshed:
    """The result of a refresh."""
    reasons = tested.reasons
    return Refreshed(
        job_id=job_id, tested=tested.tested, passed=len(tested.passed), duplicates=found.duplicates,
        rejected=found.rejected, problems=found.problems,
        failures={why: failed.count for why, failed in reasons.items()},
        examples={why: failed.example for why, failed in reasons.items()},
    )  # fmt: skip


class RefreshReport:
    """A job that is saved, and reported, as it proceeds."""

    def __init__(self, job: RefreshJob, live: Path, watch: Watch) -> None:
        self.job, self._path, self._watch = job, live.with_name(f"{KIND}.json"), watch
        self.update()

    def update(self, **changes: object) -> None:
        """Saves changes."""
        self.job = msgspec.structs.replace(self.job, **changes)
        replace_file(self._path, msgspec.json.encode(self.job))
        self._watch(self.job)


Work = Callable[[RefreshReport], Refreshed]


def last_job(live: Path) -> RefreshJob | None:
    """The last refresh, however it ended; one whose process was killed has failed."""
    found = _written(live)
    if found is not None and found.status in UNDER_WAY and not is_under_way(live):
        found = _written(live)  # it may have ended in good order just now
    if found is not None and found.status in UNDER_WAY and not is_under_way(live):
        return cut_off(found)
    return found


def cut_off(job: RefreshJob) -> RefreshJob:
    """The job of a refresh whose process is gone."""
    if job.status not in UNDER_WAY:
        return job
    return msgspec.structs.replace(job, status="FAILED", error="it was cut off: its process has ended")


def is_under_way(live: Path) -> bool:
    """Whether a process refreshes these proxies now."""
    return is_locked(live.with_suffix(".lock"))


def _written(live: Path) -> RefreshJob | None:
    try:
        return msgspec.json.decode(live.with_name(f"{KIND}.json").read_bytes(), type=RefreshJob)
    except (OSError, msgspec.DecodeError):
        return None


def new_id() -> str:
    """A new id for a job."""
    return secrets.token_hex(8)


@contextmanager
def _lock(live: Path) -> Iterator[None]:
    try:
        live.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(live.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise BadInput(f"{live.parent}: {FILE} cannot be written there: {error.strerror}") from None
    try:
        if not try_lock(fd, LOCK_WAIT_S):
            raise Busy(f"{live.parent}: the proxies are being tested by another process; wait for it to end")
        yield
    finally:
        os.close(fd)
