"""Runs a crawl's processes: starts them, watches them, starts them again, stops them, and tells how it ended.

The fetcher crawls in a process of its own, because a page may kill whoever parses it. If it dies it is started again
and goes on; if it stands still (stuck in native code, where no timer reaches it) it is killed first. A crash loop that
brings the crawl no step forward ends it with its reason. If this process is killed, the kernel kills the fetcher.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable

import msgspec

from weft.config import Config
from weft.crawl.fetcher import Order
from weft.crawl.folder import CrawlFolder
from weft.engine.progress import Status, read_status
from weft.engine.suspects import pulse
from weft.errors import WeftError
from weft.supervise.child import Child, RestartPolicy, State, Step
from weft.supervise.process import Exit
from weft.telemetry import Log

STUCK_S = 30.0  # no heartbeat for so long: it is killed
DRAIN_S = 12.0  # the fetcher drains for ten seconds; then it is killed
LOOK_EVERY_S = 0.1
FINAL = frozenset({0, 2, 3, 130})
_NOTHING, _DRAINED, _AT_ONCE = range(3)
log = Log("weft.crawl.orchestrator")


class CrashLoop(WeftError):
    """The fetcher dies again and again."""


class Orchestrator:
    """One crawl from start to end; `run` returns its exit code."""

    def __init__(self, config: Config, folder: CrawlFolder, crawl_id: str, *, stuck_s: float = STUCK_S) -> None:
        self._config = config
        self._folder = folder
        self._crawl_id = crawl_id
        self._run = uuid.uuid4().hex
        self._stuck_s = stuck_s
        duration_s = config.limits.max_duration_s
        self._until = None if duration_s is None else time.time() + duration_s
        self._child = Child("fetcher", RestartPolicy(first_delay_s=0.2, max_failures=6, stop_grace_s=DRAIN_S))
        self._process: subprocess.Popen[bytes] | None = None
        self._requests = 0  # made before this fetcher was started
        self._wanted = self._heeded = _NOTHING
        self._pulse = (0, 0)
        self._pulse_at = 0.0

    def run(self, watch: Callable[[Status], None] = lambda _: None) -> int:
        """Until the crawl has ended; `watch` is shown the status a few times a second."""
        try:
            while True:
                self._heed()
                self._act(self._child.next_step())
                code = self._look()
                if code is not None:
                    return code
                watch(self.status())
                time.sleep(LOOK_EVERY_S)
        finally:
            self._kill()

    def stop(self, *, at_once: bool = False) -> None:
        """Lets the crawl end: drained, or at once. For signal handlers and other threads: `run` does it when it can."""
        self._wanted = max(self._wanted, _AT_ONCE if at_once else _DRAINED)

    def status(self) -> Status:
        """How the crawl stands."""
        return read_status(self._folder.status) or Status()

    def _heed(self) -> None:
        """Does what `stop` was told; not there, because the fetcher may be half started in that moment."""
        if self._heeded == self._wanted:
            return
        self._heeded = self._wanted
        self._child.stop()
        if self._wanted == _AT_ONCE:
            self._kill()

    def _act(self, step: Step) -> None:
        if step is Step.START:
            self._spawn()
        elif step is Step.TERMINATE and self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            self._child.told_to_stop()
        elif step is Step.KILL:
            self._kill()

    def _spawn(self) -> None:
        order = Order(self._config, self._crawl_id, os.getpid(), self._run, self._until)
        # A terminal's Ctrl-C goes to the whole group; the fetcher is born deaf to it, and hears of it from here.
        heard = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self._process = subprocess.Popen([sys.executable, "-m", "weft.crawl.fetcher"], stdin=subprocess.PIPE)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, heard)
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(msgspec.msgpack.encode(order))
            self._process.stdin.close()
        except BrokenPipeError:
            pass  # it has died already: `_look` will see how
        self._child.spawned(self._process.pid)
        self._child.ready()
        self._pulse_at = time.monotonic()
        self._requests = self.status().requests

    def _look(self) -> int | None:
        """Sees whether the fetcher lives; gives the crawl's exit code when it has ended."""
        if self._process is None:
            return 130 if self._child.state is State.DEAD else None
        code = self._process.poll()
        if code is None:
            self._check_pulse()
            return None
        self._process = None
        stopping = self._child.state is State.STOPPING
        self._child.exited(Exit(code) if code >= 0 else Exit(None, -code), failed=False if self._was_of_use() else None)
        if code in FINAL:
            return code
        if stopping:
            return 130
        log.error("the fetcher died", how=str(self._child.last_exit), failures=self._child.failures)
        if self._child.looping:
            times = f"the fetcher died {self._child.failures} times in a row"
            raise CrashLoop(f"{times} ({self._child.last_exit}): {self._last_words()}")
        return None

    def _was_of_use(self) -> bool:
        """Whether the fetcher that died is no sign of a crash loop: it brought the crawl forward, or a page killed it.

        A page kills twice at most; then it is stored unparsed.
        """
        return pulse(self._folder.frontier)[1] > 0 or self.status().requests > self._requests

    def _last_words(self) -> str:
        status = self.status()
        return f"{status.note or 'it left no message'}; see {self._config.log.log_dir}"

    def _check_pulse(self) -> None:
        now, beat = time.monotonic(), pulse(self._folder.frontier)
        if beat != self._pulse:
            self._pulse, self._pulse_at = beat, now
        elif now - self._pulse_at > self._stuck_s:
            log.error("the fetcher stands still", seconds=now - self._pulse_at, item=beat[1])
            self._kill()

    def _kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
