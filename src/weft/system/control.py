"""What `weft up`, `down`, `status` and `restart` do from outside: they ask the supervisor of a folder, if there is one.

The kernel says whether there is one: its socket refuses when it has died. A supervisor that is there and does not
answer (it was stopped, or hangs) is seen as such. Without one the folder is checked as a supervisor would.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from weft.engine.process.channel import Connection, EngineGone, socket_path
from weft.errors import BadInput, Busy, WeftError
from weft.supervise import leftovers
from weft.supervise.graph import group_of
from weft.supervise.held import Adopted
from weft.supervise.process import birth, boot_id, has_ended
from weft.supervise.redis_server import end_leftovers
from weft.system import state as kept
from weft.system.proxies import unattended
from weft.system.state import ServiceRow, SystemState

ANSWER_S = 2.0
POLL_S = 0.05
SILENT_S = 30.0  # a supervisor on a loaded machine answers late; one that has not answered for this long hangs
DOWN_S = 60.0  # longer than all graces together: a supervisor that has not ended then is killed
LEFTOVERS_S = 5.0


class Silent(WeftError):
    """A supervisor runs, but does not answer."""

    def __init__(self, pid: int, timeout_s: float) -> None:
        self.pid = pid
        how = " is stopped, and" if kept.is_stopped(pid) else ""
        super().__init__(f"the supervisor (process {pid}){how} has not answered in {timeout_s:g} s")


def ask(data_dir: Path, verb: str, timeout_s: float = ANSWER_S, **arguments: object) -> object:
    """The answer of the folder's supervisor; Gone if there is none, Silent if it does not answer in time."""
    connection = Connection(socket_path(data_dir, kept.SOCKET))
    try:
        return connection.call_within(timeout_s, verb, **arguments)
    except TimeoutError:
        raise Silent(connection.pid, timeout_s) from None
    finally:
        connection.close()


def status(data_dir: Path) -> tuple[SystemState | None, bool]:
    """The state of a folder's services, and whether a supervisor monitors them; None if no services are recorded."""
    try:
        return msgspec.convert(ask(data_dir, "status"), SystemState), True
    except EngineGone:
        word, why = "orphaned", "its supervisor has died: `weft up` starts it again, `weft down` ends it"
        said = ""
    except Silent as silent:
        word, why = "unwatched", str(silent)
        said = f"{silent}: `weft down` ends it with its services"
    if (recorded_state := kept.read(data_dir)) is None:
        return None, False
    rows = []
    for row in recorded_state.services:
        one = recorded_state.process_by_service.get(row.name)
        if one is not None and _is_alive(recorded_state, one):
            rows.append(msgspec.structs.replace(row, state=word, healthy=False, last_error=why, last_error_at=None))
        else:
            rows.append(_stopped_row(row))
    proxies = recorded_state.proxies and unattended(recorded_state.proxies)
    state = msgspec.structs.replace(recorded_state, is_up=False, services=tuple(rows), proxies=proxies)
    return msgspec.structs.replace(state, supervisor_error=said or _death_text(recorded_state)), False


def _stopped_row(row: ServiceRow) -> ServiceRow:
    """The row of a service without its supervisor; without failures that it survived, which did not stop it."""
    kept_error = row.last_error if row.state == "failed" else None
    return msgspec.structs.replace(
        row, state="stopped", healthy=False, pid=None, since=None, last_error=kept_error, last_error_at=None
    )


def _death_text(state: SystemState) -> str:
    """The message about a dead supervisor; empty if it has ended gracefully: it stops its services."""
    if state.supervisor is None or not (state.process_by_service or state.is_up):
        return ""
    pid = state.supervisor.pid
    return f"the supervisor (process {pid}) has died: `weft up` starts everything again, `weft down` ends what is left"


def restart(data_dir: Path, name: str, watch: Callable[[SystemState], None]) -> None:
    """Has a service restarted, and returns when it is healthy again."""
    try:
        ask(data_dir, "restart", name=name)
    except EngineGone:
        raise BadInput(f"nothing is running in {data_dir}: `weft up --data-dir {data_dir}` starts it") from None
    wait_until_up(data_dir, watch, name)


def wait_until_up(data_dir: Path, watch: Callable[[SystemState], None], name: str | None = None) -> SystemState:
    """Returns when all services, or those of a name, are healthy; raises why they will not be."""
    answered_at = time.monotonic()
    while True:
        try:
            state = msgspec.convert(ask(data_dir, "status"), SystemState)
        except Silent as silent:
            if kept.is_stopped(silent.pid) or time.monotonic() - answered_at > SILENT_S:
                raise _hanging_error(data_dir, silent) from None
            continue
        answered_at = time.monotonic()
        watch(state)
        exact = [row for row in state.services if name in (None, row.name)]
        wanted = exact or [row for row in state.services if group_of(row.name) == name]
        for row in wanted:
            if row.state == "failed" and (name is not None or state.is_up):  # else its supervisor ends, and says why
                raise WeftError(f"{row.name} was given up: {row.last_error}; `weft logs {row.name}` has more")
        if wanted and all(row.healthy for row in wanted) and (name is not None or state.is_up):
            return state
        time.sleep(POLL_S)


def _hanging_error(data_dir: Path, silent: Silent) -> WeftError:
    stopped = f"`kill -CONT {silent.pid}` continues it; " if kept.is_stopped(silent.pid) else ""
    return Busy(f"{silent}: {stopped}`weft down --data-dir {data_dir}` ends it with its services")


def down(data_dir: Path) -> list[str]:
    """Stops everything of a folder, whichever supervisor started it; returns what was ended. No process is left when
    this returns.
    """
    ended: list[str] = []
    while True:
        ended += _stop_supervisor(data_dir)
        if not (data_dir / kept.LOCK).exists():
            return ended
        try:
            lock = kept.acquire_lock(data_dir)
            break
        except Busy:
            if not kept.has_supervisor(data_dir):  # else it was starting, and can be asked now
                raise
    try:
        left = leftovers.find(kept.recorded(kept.read(data_dir)), kept.mark_of(lock))
        ended += [f"a process that was left behind ({one.pid})" for one in left]
        leftovers.end(left, LEFTOVERS_S)
        end_leftovers(data_dir / "redis")
        if (state := kept.read(data_dir)) is not None:
            rows = tuple(map(_stopped_row, state.services))
            with suppress(OSError):  # a full disk: the file names processes that have ended
                proxies = state.proxies and unattended(state.proxies)
                ended_state = msgspec.structs.replace(
                    state, supervisor=None, is_up=False, services=rows, process_by_service={}, proxies=proxies
                )
                kept.write(data_dir, ended_state)
    finally:
        os.close(lock)
    return ended


def _stop_supervisor(data_dir: Path) -> list[str]:
    """Asks the supervisor to stop, and waits for its end; one that does not answer gets SIGTERM, and then SIGKILL."""
    try:
        connection = Connection(socket_path(data_dir, kept.SOCKET))
    except EngineGone:
        return []
    pid = connection.pid
    # As long as the connection is not cut, the number is the supervisor's.
    held = Adopted.adopt_if(pid, lambda _: connection.is_open)
    state = kept.read(data_dir)
    running = [] if state is None else [row.name for row in reversed(state.services) if row.pid is not None]
    services = running or ["the supervisor"]
    try:
        connection.call_within(ANSWER_S, "stop")
    except TimeoutError:
        if held is not None:
            held.send(signal.SIGTERM)
            held.send(signal.SIGCONT)  # if it was stopped it hears nothing before
    except EngineGone:
        pass
    finally:
        connection.close()
    if held is None:
        return services
    try:
        if held.wait(DOWN_S):
            return services
        if state is None or not state.in_background:
            raise Busy(f"process {pid} runs the services of {data_dir}, and does not end: end it, then call this again")
        held.send(signal.SIGKILL)
        held.wait(LEFTOVERS_S)
        return services
    finally:
        held.close()


def _is_alive(state: SystemState, one: kept.RecordedProcess) -> bool:
    """Whether a recorded process still runs. Compares its birth: some programs change their command line."""
    return state.boot == boot_id() and birth(one.pid) == one.birth and not has_ended(one.pid)
