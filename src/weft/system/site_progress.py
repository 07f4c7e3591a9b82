"""Writes the progress of the runs of sites to Redis, if there is one: `scrape_{site}:{task}:status` and the other keys
of `cluster.chunk_progress`, for those who follow them there. The job store stays the truth about them.

On a thread of its own: the store, the engine and the broker are asked, and each may take its time.
"""

from __future__ import annotations

import threading
from pathlib import Path

from weft.cluster.broker import Broker
from weft.cluster.chunk_progress import RedisProgress
from weft.errors import WeftError
from weft.jobs.layout import STORE
from weft.jobs.sites.registry import SiteRegistry
from weft.telemetry import Log

EVERY_S = 2.0
log = Log("weft.system.site_progress")


class SiteProgressKeys:
    """Writes the progress of the sites of one data dir, until it is closed."""

    def __init__(
        self, data_dir: Path, broker_url: str, cluster_id: str, ttl_s: float, every_s: float = EVERY_S
    ) -> None:
        """`ttl_s`: how long keys are there after they were last written."""
        self._data_dir, self._every_s = data_dir, every_s
        self._broker = Broker(broker_url, cluster_id)
        self._progress = RedisProgress(self._broker, ttl_s)
        self._written: dict[str, dict[str, object]] = {}  # by site
        self._is_closing = threading.Event()
        self._thread = threading.Thread(target=self._keep_writing, name="site progress", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stops the thread that writes."""
        self._is_closing.set()
        self._thread.join(10.0)

    def _keep_writing(self) -> None:
        trouble = ""
        while not self._is_closing.wait(EVERY_S):
            try:
                self._write()
                trouble = ""
            except Exception as error:  # nothing depends on these keys
                if trouble != (trouble := f"{type(error).__name__}: {error}"):
                    log.warning("how far sites are could not be written", why=trouble)
        self._broker.close()

    def _write(self) -> None:
        if not (self._data_dir / STORE).exists():
            return
        with SiteRegistry(self._data_dir) as sites:
            for name in sites.names():
                try:
                    keys = sites.progress(name)
                except WeftError:  # it was removed just now
                    continue
                if keys and keys != self._written.get(name):
                    kind, job_id, _ = next(iter(keys)).split(":", 2)
                    self._progress.put(kind, job_id, {key.rpartition(":")[2]: value for key, value in keys.items()})
                    self._written[name] = keys
