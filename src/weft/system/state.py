"""What a supervisor writes down about itself and its services, for the supervisor after it.

    DATA_DIR/service.lock    held by the one supervisor of the folder, as long as it lives; `weft up` takes it and hands
                             it to the supervisor that it starts; what is in it marks its processes (see
                             `supervise/leftovers.py`), and is never changed
    DATA_DIR/services.json   replaced after every change: who supervises, and of each service its process and its state
    DATA_DIR/control.sock    where the supervisor answers (see `control`)

Invariants: two supervisors never hold one folder; a record that cannot be read, or is of an earlier run of the machine,
names no process; a full disk delays a record and nothing else.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import time
from datetime import datetime
from pathlib import Path

import msgspec

from weft.engine.process.channel import Connection, EngineGone, socket_path
from weft.errors import BadInput, Busy
from weft.fetch.proxies.refresh import RefreshJob
from weft.files import replace_file
from weft.supervise import process
from weft.supervise.held import ProcessIdentity
from weft.supervise.leftovers import MARK
from weft.telemetry import Log

LOCK, FILE, SOCKET = "service.lock", "services.json", "control.sock"
LOCK_WAIT_S = 30.0  # for a supervisor that starts or is being killed, or a `weft down` that is at work
_ID_BYTES = 16
log = Log("weft.system.state")


class RecordedProcess(msgspec.Struct, frozen=True):
    """A process's identity, as it is written down, so that a later supervisor recognises the process."""

    pid: int
    birth: int
    argv: tuple[str, ...]

    @classmethod
    def of(cls, identity: ProcessIdentity | None) -> RecordedProcess | None:
        """The identity in the form in which it is written down."""
        return None if identity is None else cls(identity.pid, identity.birth, identity.argv)

    @property
    def identity(self) -> ProcessIdentity:
        """The identity as it is compared with a live process."""
        return ProcessIdentity(self.pid, self.birth, self.argv)


class ServiceRow(msgspec.Struct, frozen=True, kw_only=True):
    """The status of a service: a row of `weft status --json`."""

    name: str
    state: str
    healthy: bool = False
    pid: int | None = None
    since: str | None = None
    restarts: int = 0
    last_error: str | None = None
    last_error_at: str | None = None  # None: it lasts, or nothing went wrong

    @property
    def note(self) -> str:
        """The note for people: what is wrong with the service, or was."""
        if not self.healthy or self.last_error is None or self.last_error_at is None:
            return "" if self.healthy else self.last_error or ""
        return f"last error, {_time_ago(self.last_error_at)}: {self.last_error}"


def _time_ago(moment: str) -> str:
    from weft.jobs.dashboard.text import duration

    return f"{duration(max(0.0, time.time() - datetime.fromisoformat(moment).timestamp()))} ago"


class ProxyRow(ServiceRow, frozen=True, kw_only=True):
    """The status of the proxies, displayed as a row among the services although they are no process."""

    usable: int  # have passed their last test; of a list that is not tested, all
    min_proxies: int
    listed: int  # how many there were at the last test
    tested_at: str | None = None
    refresh: RefreshJob | None = None  # the running refresh, or the last one

    @property
    def note(self) -> str:
        """The note, with the number of proxies."""
        if not self.healthy:
            return super().note
        when = f"tested {_time_ago(self.tested_at)}" if self.tested_at else "not tested"
        return f"{self.usable:,} of {self.listed:,} usable, {self.min_proxies:,} needed, {when}"


class SystemState(msgspec.Struct, frozen=True, kw_only=True):
    """The content of `services.json`."""

    schema: int = 1
    boot: str
    supervisor: RecordedProcess | None
    in_background: bool = False
    is_up: bool = False  # all services have been healthy at the same time
    settings: str = ""  # digest of the settings (`recorder.digest`)
    urls: dict[str, str] = {}
    services: tuple[ServiceRow, ...] = ()
    process_by_service: dict[str, RecordedProcess] = msgspec.field(default_factory=dict, name="processes")
    proxies: ProxyRow | None = None  # None: no proxies are configured
    supervisor_error: str = ""  # set by `weft status`: the supervisor has died, or does not answer

    @property
    def rows(self) -> tuple[ServiceRow, ...]:
        """All that is displayed to people: the services, and the proxies."""
        return self.services if self.proxies is None else (*self.services, self.proxies)


def open_lock(data_dir: Path) -> int:
    """Opens the lock file; creates the folder if needed, and raises BadInput with the reason if it cannot."""
    try:
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        return os.open(data_dir / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except (FileExistsError, NotADirectoryError):
        raise BadInput(f"data dir {data_dir}: there is a file of that name; choose another folder") from None
    except OSError as error:
        raise BadInput(f"data dir {data_dir}: {error.strerror}; choose another `data_dir`") from None


def acquire_lock(data_dir: Path) -> int:
    """The folder's lock, for this process; Busy when a supervisor listens there, or another process keeps it."""
    lock = open_lock(data_dir)
    until = time.monotonic() + LOCK_WAIT_S
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until or has_supervisor(data_dir):
                os.close(lock)
                raise Busy(_occupied_text(data_dir)) from None
            time.sleep(0.02)
        else:
            return lock


def has_supervisor(data_dir: Path) -> bool:
    """Whether a supervisor listens on the folder's socket: the kernel refuses connections to one that has died."""
    try:
        Connection(socket_path(data_dir, SOCKET)).close()
    except EngineGone:
        return False
    return True


def is_stopped(pid: int) -> bool:
    """Whether a process was stopped (SIGSTOP, Ctrl-Z), or is held by a debugger: it answers no one."""
    return process.state(pid) in ("T", "t")


def _occupied_text(data_dir: Path) -> str:
    holders = process.lock_holders(data_dir / LOCK)
    who = f" (process {', '.join(map(str, holders))})" if holders else ""
    stopped = [pid for pid in holders if is_stopped(pid)]
    how = f"it is stopped: `kill -CONT {stopped[0]}` continues it, `kill -9 {stopped[0]}` ends it" if stopped else ""
    return (
        f"data dir {data_dir}: another `weft up` or `weft serve` is running there{who}: "
        f"{how or '`weft down` stops it; or choose another `data_dir`'}"
    )


def mark_of(lock: int) -> str:
    """What the processes of a folder carry in their environment, `NAME=value`.

    The lock file's own number is part of it, so that a folder that was copied marks other processes.
    """
    facts, mark = os.fstat(lock), os.pread(lock, 2 * _ID_BYTES, 0)
    if len(mark) != 2 * _ID_BYTES or not mark.isalnum():
        mark = secrets.token_hex(_ID_BYTES).encode()
        os.ftruncate(lock, 0)
        os.pwrite(lock, mark, 0)
    return f"{MARK}={facts.st_dev:x}-{facts.st_ino:x}-{mark.decode()}"


def read(data_dir: Path) -> SystemState | None:
    """The last written state; None if there is none, or it cannot be read."""
    path = data_dir / FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=SystemState)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        log.warning("what an earlier supervisor has written cannot be read", path=path, error=error)
        return None


def write(data_dir: Path, state: SystemState) -> None:
    """Replaces the recorded state atomically."""
    replace_file(data_dir / FILE, msgspec.json.encode(state), durable=False)


def recorded(state: SystemState | None) -> list[ProcessIdentity]:
    """The processes of services that a record names, if it is of this run of the machine."""
    if state is None or state.boot != process.boot_id():
        return []
    return [recorded_process.identity for recorded_process in state.process_by_service.values()]
