"""The proxies of a data dir, as the supervisor looks after them: refreshed in the background, counted, waited for."""

from __future__ import annotations

import math
import threading
import time
from pathlib import Path

from weft.config import ServiceConfig
from weft.engine.ways import refresh_of
from weft.errors import BadInput, Busy, WeftError
from weft.fetch.proxies import live
from weft.fetch.proxies.refresh import RefreshJob, last_job, new_id
from weft.telemetry import Log

LOOK_S = 0.05
TURN_S = 1.0
log = Log("weft.system.proxies")


class ProxyKeeping:
    """Its methods may be called from any thread."""

    def __init__(self, config: ServiceConfig) -> None:
        self._section, self._least = config.proxy, config.proxy.least
        self._can_test = config.proxy.test_url is not None
        self._refresh = refresh_of(config.fetch, config.proxy, Path(config.server.data_dir))
        self._mutex = threading.Lock()
        self._thread: threading.Thread | None = None
        self._job_id = ""
        self._next_turn = 0.0

    def trigger(self) -> str:
        """Begins a refresh; gives the id of its job, or that of the one that runs already."""
        if not self._can_test or not self._refresh.sources:
            raise BadInput("there are no proxies to refresh: set `proxies` or `proxy_sources`, and `proxy_test_url`")
        with self._mutex:
            if self._is_running():
                return self._job_id
            self._job_id = new_id()
            self._thread = threading.Thread(target=self._run, args=(self._job_id,), name="proxy refresh", daemon=True)
            self._thread.start()
            return self._job_id

    def count(self) -> int:
        """How many were tested the last time."""
        found = self._live()
        return found.tested if found is not None else 0

    def usable(self) -> int:
        """How many have passed."""
        found = self._live()
        return len(found.proxies) if found is not None else 0

    def job(self) -> RefreshJob | None:
        """The last refresh, by whomever."""
        return last_job(self._refresh.live)

    def wait(self, timeout_s: float | None) -> bool | None:
        """Whether there are enough; a refresh is begun first if there are not. None: the time was over."""
        if self.usable() >= self._least:
            return True
        until = None if timeout_s is None else time.monotonic() + timeout_s
        self.trigger()
        while self.usable() < self._least:
            with self._mutex:
                is_over = not self._is_running()
            if is_over:
                return self.usable() >= self._least
            if until is not None and time.monotonic() >= until:
                return None
            time.sleep(LOOK_S)
        return True

    def turn(self) -> None:
        """To be called now and then: begins a refresh if too few are usable, or their test is old."""
        now = time.monotonic()
        if now < self._next_turn or not self._can_test or not self._refresh.sources:
            return
        self._next_turn = now + TURN_S
        try:
            age_s = time.time() - self._refresh.live.stat().st_mtime
        except FileNotFoundError:
            age_s = math.inf
        if age_s >= self._section.refresh_s or (age_s >= self._section.pause_s and self.usable() < self._least):
            self._next_turn = now + max(TURN_S, self._section.pause_s)
            self.trigger()

    def _live(self) -> live.LiveFile | None:
        return live.read(self._refresh.live)

    def _is_running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _run(self, job_id: str) -> None:
        while True:
            try:
                self._refresh.run(job_id=job_id)
            except Busy:  # another process tests them: its result is as good
                before = self.job()
                if before is None or before.status in ("DISPATCHED", "PROCESSING"):
                    time.sleep(10 * LOOK_S)
                    continue
            except WeftError as error:
                log.warning("proxies could not be tested", why=error)
            return
