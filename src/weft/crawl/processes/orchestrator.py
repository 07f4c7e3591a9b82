"""Runs a crawl's processes: starts, monitors, restarts and stops them, and reports how the crawl ended.

Pages are fetched and parsed in separate processes, because a page may crash its parser. A process that dies is
restarted and continues; one without progress (stuck in native code, where no timer reaches it) is killed first. A crash
loop without progress ends the crawl with its reason. If this process is killed, the kernel kills the others.

Commands (`commands`) arrive over the folder's socket. Their changes are written to the folder, and the processes are
notified to read it; one that ends before it has done so is restarted.

A single process ends by itself. With several, none does, because the others may send it work: the end of all work is
detected here (`termination`), and all are stopped. If one dies while they stop, all are restarted, and the end is
detected again.
"""

from __future__ import annotations

import os
import select
import time
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from weft.config import Config
from weft.crawl.commands import CrawlCommands
from weft.crawl.folder import CrawlFolder
from weft.crawl.pods.permits import Permits
from weft.crawl.pods.process_slots import slots_and_cores
from weft.crawl.pods.termination import TerminationDetector
from weft.crawl.processes.ends import EXIT_BAD_USE, EXIT_CODES, EXIT_SERVER_AWAY, FINAL_EXIT_CODES, state_of
from weft.crawl.processes.following import apply_recorded_edit
from weft.crawl.processes.logs import orchestrator_slot
from weft.crawl.processes.process import CrawlProcess
from weft.crawl.processes.process_spec import ProcessSpec
from weft.crawl.reports.combined_status import CombinedStatus, begin_alone, end_alone
from weft.engine.loop.progress import CrawlStatus, ProgressLines, read_status
from weft.engine.loop.stop import CALLBACK_ERROR, NOT_IN_LOG_STOPS, PAUSED, Stop
from weft.engine.process.channel import ChannelServer, Peer, socket_path
from weft.errors import BadInput, LoginFailed, WeftError
from weft.supervise.process import Exit, named
from weft.telemetry import Log

if TYPE_CHECKING:
    from weft.crawl.pods.redis_pods import RedisPods

STUCK_S = 30.0  # a process without a heartbeat for this long is killed
POLL_EVERY_S = 0.1
_NOTHING, _DRAINED, _AT_ONCE = range(3)
log = Log("weft.crawl.processes.orchestrator")


class CrashLoop(WeftError):
    """A process dies again and again."""


class Orchestrator:
    """One crawl from start to end; `run` returns its exit code."""

    def __init__(
        self,
        config: Config,
        folder: CrawlFolder,
        crawl_id: str,
        *,
        pods: RedisPods | None = None,
        stuck_s: float = STUCK_S,
    ) -> None:
        self._config = config
        self._folder = folder
        self._pods = pods
        self._commands = CrawlCommands(folder)
        self._server: ChannelServer | None = None
        self._changes = 0  # how often commands have changed the folder
        self._self_paused_at = 0.0  # when a process last paused itself
        self._ends_without_login = False
        self._login_failure = ""  # why the login has failed
        self._duration = _RunTime(config.limits.max_duration_s, is_paused=folder.settings_record().is_paused)
        self._is_alone = folder.is_one_process
        if pods is not None:
            # A call to a server may take this long, without a heartbeat.
            stuck_s += config.redis.socket_timeout_s + config.redis.connect_timeout_s
        run = uuid.uuid4().hex
        servers = tuple(pods.urls) if pods is not None else ()
        self._processes = [
            CrawlProcess(
                ProcessSpec(
                    config, crawl_id, os.getpid(), run, slot.pod, slot.role, slot.index, config.pods.num_pods,
                    servers, core=core, started_at=time.time(),
                ),
                folder.heartbeat_folder(slot), folder.status_path(slot), stuck_s=stuck_s,
            )
            for slot, core in slots_and_cores(config.pods)
        ]  # fmt: skip
        self._combined_status = None if self._is_alone else CombinedStatus(folder.status, self._processes)
        self._termination = TerminationDetector()
        self._permits = None
        if config.limits.max_pages is not None and not self._is_alone and pods is None:
            self._permits = Permits.of(folder)
        self._reason: Stop | None = None  # why it is ending
        self._run_again = False  # a process died while all were stopping: the crawl has not ended yet
        self._wanted_stop = self._stop_handled = _NOTHING

    def run(self, watch: Callable[[CrawlStatus], None] = lambda _: None, *, is_watched: bool = True) -> int:
        """Runs until the crawl has ended; `watch` is called with the status several times a second.

        `is_watched`: whether somebody sees a pause, and may continue the crawl. LoginFailed otherwise.
        """
        self._ends_without_login = self._config.login.login_failure == "end" or (
            self._config.login.login_failure is None and not is_watched
        )
        code: int | None = None
        lines = ProgressLines()
        try:
            if self._permits is not None:
                self._permits.begin_run(self._config.limits.max_pages or 0, self._folder.pages_by_pod())
            if self._config.pods.affinity:
                os.sched_setaffinity(0, {0})
            if self._is_alone:
                begin_alone(self._folder.status)
            self._server = _open_command_socket(self._folder, self._execute_command)
            with named(orchestrator_slot(self._config.pods.here).name):
                while True:
                    self._handle_stop()
                    if self._pods is not None:
                        self._pods.check()
                    for process in self._processes:
                        process.do_what_is_due()
                    code = self._check_processes()
                    if code is not None:
                        if self._reason is Stop.LOGIN_FAILED:
                            raise LoginFailed(self._login_failure)
                        return code
                    status = self.status()
                    lines(status)
                    watch(status)
                    self._wait_for_event()
        except WeftError as error:
            log.error("crawl failed", error=error)
            raise
        finally:
            if self._server is not None:
                self._server.close()
            for process in self._processes:
                process.kill()
            self._close_status(code)

    def _wait_for_event(self) -> None:
        """Waits until the next check, or until a command arrives."""
        if self._server is None:
            time.sleep(POLL_EVERY_S)
        elif select.select([self._server], [], [], POLL_EVERY_S)[0]:
            self._server.turn()
            self._server.seal_replies()
            self._server.send_sealed_replies()

    def _execute_command(self, _peer: Peer, verb: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Executes a command; returns its outcome and the crawl's status."""
        commands, result = self._commands, dict[str, Any]()
        if verb != "standing" and self._reason is not None:
            raise BadInput(f"the crawl is about to end ({self._reason}): nothing can be changed any more")
        if verb == "pause":
            commands.pause()
        elif verb == "resume":
            commands.resume()
        elif verb == "edit":
            change = commands.edit(**arguments)
            result["changed"] = change.changed
            if change.max_duration_s is not None:
                limits = msgspec.structs.replace(self._config.limits, max_duration_s=change.max_duration_s)
                self._config = msgspec.structs.replace(self._config, limits=limits)
                result["changed"]["max_duration"] = (None, change.max_duration_s)
        elif verb == "seed":
            result["new"], result["refused_urls"] = commands.seed(**arguments)
        elif verb == "extract":
            result["number"] = commands.extract(**arguments)
        elif verb == "cancel":
            commands.cancel()
            self._end_crawl(Stop.CANCELLED)
        elif verb != "standing":
            raise BadInput(f"a crawl has no verb {verb!r}")
        if verb not in ("standing", "cancel"):
            self._spread_changes()
        status = self.status()
        progress = {name: getattr(status, name) for name in ("state", "note", "pages", "queued", "in_flight")}
        in_force = min((process.changes for process in self._processes), default=0)
        return {**result, **progress, "changes": self._changes, "in_force": in_force}

    def _spread_changes(self) -> None:
        """Makes the processes read what a command has changed; this process applies it, too."""
        record = self._folder.settings_record()
        self._config = apply_recorded_edit(self._config, self._folder.config())
        self._changes += 1
        self._duration.change_limit(self._config.limits.max_duration_s, is_paused=record.is_paused)
        if self._permits is not None and self._config.limits.max_pages is not None:
            self._permits.raise_to(self._config.limits.max_pages)
        if self._pods is not None:
            self._pods.edit(self._config)
        for process in self._processes:
            process.follow(self._config, self._changes)

    @property
    def _have_all_followed(self) -> bool:
        """Whether every process has read what commands have changed."""
        return all(process.changes >= self._changes for process in self._processes)

    def _close_status(self, code: int | None) -> None:
        """Writes how the crawl ended to its status and the log."""
        reason = self._reason or next((stop for stop, given in EXIT_CODES.items() if given == code), None)
        state = "failed" if code is None or reason is None or code not in EXIT_CODES.values() else state_of(reason)
        note = "" if code is None else self._login_failure or str(self._reason or self._stderr_tail())
        if self._combined_status is not None:
            self._combined_status.end(state, note, self._folder, self._pods.stats() if self._pods is not None else {})
        else:
            end_alone(self._folder.status, state, note, self._folder)
        status = self.status()
        log.info(
            "crawl ended",
            state=state,
            reason=status.note,
            pages=status.pages,
            seconds=round(status.elapsed_s, 3),
            queued=status.queued,
            errors=sum(status.errors.values()),
        )

    def stop(self, *, at_once: bool = False) -> None:
        """Requests the end of the crawl: drained, or at once. For signal handlers and other threads; `run` acts on
        it."""
        self._wanted_stop = max(self._wanted_stop, _AT_ONCE if at_once else _DRAINED)

    def status(self) -> CrawlStatus:
        """The crawl's status."""
        if self._combined_status is not None:
            return self._combined_status.update()
        return read_status(self._folder.status) or CrawlStatus()

    def _handle_stop(self) -> None:
        """Acts on a request of `stop`. Not done in `stop` itself, which may interrupt the start of a process."""
        if self._stop_handled == self._wanted_stop:
            return
        self._stop_handled = self._wanted_stop
        self._run_again = False
        self._end_crawl(Stop.INTERRUPTED)
        if self._wanted_stop == _AT_ONCE:
            for process in self._processes:
                process.kill()

    def _end_crawl(self, reason: Stop) -> None:
        """Ends the crawl: drains all processes, first the fetchers, then the parsers."""
        message = "limit reached" if EXIT_CODES[reason] == EXIT_CODES[Stop.MAX_PAGES] else "stopping"
        log.info(message, reason=reason)
        self._reason = reason
        self._stop_role("fetcher")

    def _stop_role(self, role: str) -> None:
        for process in self._processes:
            if process.slot.role == role:
                process.stop(None if self._reason is Stop.INTERRUPTED else str(self._reason))

    def _have_ended(self, role: str) -> bool:
        return all(process.has_ended for process in self._processes if process.slot.role == role)

    def _check_processes(self) -> int | None:
        """Checks the processes; returns the crawl's exit code when it has ended."""
        code: int | None = None
        for process in self._processes:
            how = process.check_exit()
            if how is not None:
                code = self._handle_exit(process, how)
                if code is not None and (self._is_alone or code == EXIT_BAD_USE):
                    return code
        if self._reason is not None and self._have_ended("fetcher"):
            if self._have_ended("parser"):
                return self._exit_code_when_all_ended()
            self._stop_role("parser")
        if self._reason is None:
            self._pause_with_them()
            self._detect_end()
        return None

    def _pause_with_them(self) -> None:
        """Pauses the crawl if one process has paused itself because a login failed, until a command resumes it; ends
        it where nobody sees the pause."""
        for process in self._processes:
            status = process.status()
            if status.pid == process.pid and status.self_paused_at > self._self_paused_at and status.state == PAUSED:
                self._self_paused_at = status.self_paused_at
                if self._ends_without_login:
                    self._login_failure = status.note
                    self._end_crawl(Stop.LOGIN_FAILED)
                    return
                self._commands.pause(status.note)
                self._spread_changes()

    def _handle_exit(self, process: CrawlProcess, how: Exit) -> int | None:
        """The consequence of one process's end for the crawl: its exit code, or None if the process is restarted."""
        if how.code in FINAL_EXIT_CODES and (self._is_alone or self._reason is not None or how.code == EXIT_BAD_USE):
            if self._reason is None and how.code != EXIT_BAD_USE and process.status().changes < self._changes:
                process.allow_restart()  # it has ended before it has read what a command has changed
                return None
            return how.code
        if self._pods is not None:
            self._pods.on_process_death(process)
        if how.code == EXIT_SERVER_AWAY and self._reason is None:
            return None
        message = "the parser died" if process.slot.role == "parser" else "the fetcher died"
        log.error(message, process=process.slot.name, how=str(how), failures=process.child.failures)
        if self._reason is not None:
            self._run_again = self._reason not in NOT_IN_LOG_STOPS
            return None
        if process.child.looping:
            times = f"{message} {process.child.failures} times in a row"
            raise CrashLoop(
                f"{times} ({how}): {process.status().note or 'it left no message'}; see {self._log_files_text}"
            )
        return None

    def _exit_code_when_all_ended(self) -> int | None:
        if self._run_again:
            self._run_again, self._reason, self._termination = False, None, TerminationDetector()
            for process in self._processes:
                process.allow_restart()
            return None
        return EXIT_CODES[self._reason or Stop.INTERRUPTED]

    def _detect_end(self) -> None:
        """Ends the crawl if all work is done, or a limit is reached."""
        if (reason := self._reached_limit()) is not None:
            self._end_crawl(reason)
        if self._is_alone or self._duration.is_paused or self._reason is not None or not self._have_all_followed:
            return
        if self._pods is not None:
            if (reason := self._pods.verdict()) is not None:
                self._end_crawl(reason)
            return
        reports = [process.status() for process in self._processes]
        if any(report.pid != process.pid for report, process in zip(reports, self._processes, strict=True)):
            return
        reason = self._termination.judge(reports)
        if reason is Stop.MAX_PAGES and self._permits is not None and self._permits.permits_left():
            return  # one pod has returned permits, and another will request them
        if reason is not None:
            self._end_crawl(reason)

    def _reached_limit(self) -> Stop | None:
        """The limit that is reached, of those that count over all processes."""
        section = self._config.spider
        status = self.status() if section.is_given else CrawlStatus()
        errors = status.errors.get(CALLBACK_ERROR, 0)
        if section.max_callback_errors is not None and errors >= section.max_callback_errors:
            return Stop.CALLBACK_ERRORS
        if section.max_items is not None and status.items >= section.max_items:
            return Stop.MAX_ITEMS
        if status.stop:
            return Stop.CLOSED
        return Stop.MAX_DURATION if self._duration.is_over else None

    @property
    def _log_files_text(self) -> str:
        return self._config.log.log_dir

    def _stderr_tail(self) -> str:
        """Why the crawl cannot continue: the note of a process that failed, or one left by an earlier run."""
        reports = sorted((process.status() for process in self._processes), key=lambda status: status.state != "failed")
        return next((status.note for status in reports if status.note), "")


class _RunTime:
    """The remaining run time of the crawl, without pauses."""

    def __init__(self, most_s: float | None, *, is_paused: bool) -> None:
        self._most_s = most_s
        self._ran_s = 0.0
        self._since = time.monotonic()
        self.is_paused = is_paused

    @property
    def is_over(self) -> bool:
        """Whether its time is over."""
        return self._most_s is not None and self._running_s() >= self._most_s

    def change_limit(self, most_s: float | None, *, is_paused: bool) -> None:
        """Applies another limit, the begin of a pause, or its end."""
        self._ran_s, self._since = self._running_s(), time.monotonic()
        self._most_s, self.is_paused = most_s, is_paused

    def _running_s(self) -> float:
        return self._ran_s + (0.0 if self.is_paused else time.monotonic() - self._since)


def _open_command_socket(
    folder: CrawlFolder, carry_out: Callable[[Peer, str, dict[str, Any]], Any]
) -> ChannelServer | None:
    """The socket for commands; a crawl whose folder cannot have one runs without."""
    try:
        return ChannelServer(socket_path(folder.home), carry_out)
    except (OSError, WeftError) as error:
        log.warning("no commands can be given to this crawl: its socket cannot be made", error=error)
        return None
