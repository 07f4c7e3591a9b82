"""Stores the progress of jobs that are not tasks, under keys `KIND:JOB:NAME` in the job store of a data dir, for a
limited time. If the store cannot be written, the keys are lost, and the job continues."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from weft.errors import WeftError
from weft.jobs.layout import STORE
from weft.jobs.store.contract import ProgressValue
from weft.jobs.store.sqlite import SqliteJobStore
from weft.telemetry import Log

log = Log("weft.jobs.reading.progress")


class ProgressKeys:
    """The keys of one data dir; written by one thread at a time. The store is open from the first write to `close`:
    hours may pass between two jobs."""

    def __init__(self, data_dir: Path, ttl_s: float) -> None:
        """`ttl_s`: how long keys can be read after they were last written."""
        self._path = data_dir / STORE
        self._ttl_s = ttl_s
        self._store: SqliteJobStore | None = None

    def put(self, kind: str, job_id: str, values: Mapping[str, ProgressValue]) -> None:
        """Writes the values of a job."""
        try:
            if self._store is None:
                self._store = SqliteJobStore(self._path)
            self._store.progress.put(kind, job_id, values, now=time.time(), ttl_s=self._ttl_s)
        except (WeftError, OSError) as error:
            log.warning("the progress of a job cannot be written", kind=kind, job=job_id, why=error)

    def close(self) -> None:
        """Closes the store at the end of a job."""
        if self._store is not None:
            self._store.close()
            self._store = None

    def get(self, kind: str, job_id: str) -> dict[str, ProgressValue]:
        """The values of a job, by key; empty if they are expired."""
        if not self._path.exists():
            return {}
        with closing(SqliteJobStore(self._path)) as store:
            return store.progress.get(kind, job_id, now=time.time())
