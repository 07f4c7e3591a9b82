"""Start and end of every process of a crawl, whatever its role.

The orchestrator starts it with a `ProcessSpec` on its standard input, and it ends when the orchestrator does. It may be
killed at any moment: restarted with the same spec, it continues.
"""

from __future__ import annotations

import gc
import os
import signal
import sqlite3
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from weft.crawl.folder import CrawlFolder
from weft.crawl.processes.ends import EXIT_BAD_USE, EXIT_CODES, EXIT_SERVER_AWAY, state_of
from weft.crawl.processes.process_spec import ControlInput, ProcessSpec, read_spec
from weft.engine.entry import begin_process, collect_rarely
from weft.engine.loop.progress import CrawlProgress
from weft.errors import Damaged, ServerAway, ServerFull, WeftError, is_damage
from weft.supervise.process import die_with_parent
from weft.telemetry import Log

EXIT_CRASHED = 70
START_POLL_S = 0.25
START_GRACE_S = 3.0  # a start that is nearly complete leaves results for the next one: admitted seeds
_REMEDY = "make it again from the WARC files with `weft rebuild CRAWL_DIR`, and resume"
log = Log("weft.crawl.processes.child")


def run_child(work: Callable[[ProcessSpec, ControlInput], int]) -> int:
    """Reads the spec and runs the process; returns the exit code."""
    fd = sys.stdin.fileno()
    spec = read_spec(fd)
    die_with_parent(spec.parent_pid)
    if spec.core is not None:
        os.sched_setaffinity(0, {spec.core})
    core = "any" if spec.core is None else spec.core
    section = spec.config.log
    begin_process(
        spec.slot, Path(section.log_dir), section.log_level, section.log_format,
        core=core, incarnation=spec.incarnation, crawl=spec.crawl_id,
    )  # fmt: skip
    collect_rarely()
    try:
        return work(spec, ControlInput(fd, spec.changes))
    except (ServerAway, ServerFull) as away:
        log.error("stopped", error=away)
        progress_of(spec).write("paused", str(away))
        return EXIT_SERVER_AWAY
    except WeftError as error:
        log.error("stopped", error=error)
        is_damage_to_index = _is_damage(error) and not isinstance(error, Damaged)
        progress_of(spec).write("failed", f"{error}; {_REMEDY}" if is_damage_to_index else str(error))
        return EXIT_BAD_USE if is_damage_to_index else error.exit_code
    except sqlite3.DatabaseError as error:
        if not is_damage(error):
            raise
        log.error("stopped: a database is damaged", exc_info=True)
        progress_of(spec).write("failed", f"a database of the crawl is damaged: {error}; see {spec.config.log.log_dir}")
        return EXIT_BAD_USE
    except Exception as error:
        log.error("crashed", exc_info=True)
        progress_of(spec).write("failed", f"{type(error).__name__}: {error}")
        return EXIT_CRASHED
    finally:
        # A failed start leaves its timer running: at exit its signal would kill the interpreter, which has removed its
        # handlers by then.
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        gc.freeze()  # at exit the interpreter would search everything for cycles, several times


class GuardedStart:
    """Watches a process that opens its part of a crawl, which may take long. If the crawl ends meanwhile and the start
    does not complete soon, the process exits without closing anything: a kill undoes none of the steps of a start."""

    def __init__(self, spec: ProcessSpec, control: ControlInput) -> None:
        self._spec = spec
        self._control = control
        self._asked_at: float | None = None  # monotonic: since then it should end
        signal.signal(signal.SIGALRM, self._check_control)
        signal.siginterrupt(signal.SIGALRM, False)
        signal.setitimer(signal.ITIMER_REAL, START_POLL_S, START_POLL_S)

    def end_guard(self) -> None:
        """The start is complete; the loop checks for the end itself from now on."""
        signal.setitimer(signal.ITIMER_REAL, 0.0)

    def _check_control(self, _number: int, _frame: FrameType | None) -> None:
        now = time.monotonic()
        self._control.read_lines()
        reason = self._control.reason
        if reason is None:
            return
        if self._asked_at is None:
            self._asked_at = now
        if now >= self._asked_at + START_GRACE_S:
            code = EXIT_CODES[reason]
            log.info("ended while it started", reason=reason)
            progress_of(self._spec).write(state_of(reason), str(reason))
            os._exit(code)


def _is_damage(error: BaseException | None) -> bool:
    """Whether an error comes from a damaged file: a restarted process would fail in the same way."""
    return error is not None and (
        (isinstance(error, sqlite3.Error) and is_damage(error)) or _is_damage(error.__cause__)
    )


def progress_of(spec: ProcessSpec) -> CrawlProgress:
    """The status file of this process."""
    path = CrawlFolder(spec.config.store.data_dirs).status_path(spec.slot)
    path.parent.mkdir(exist_ok=True)
    progress = CrawlProgress(path, os.getpid(), spec.run, spec.parent_pid)
    progress.status.changes = spec.changes
    return progress
