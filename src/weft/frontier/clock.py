"""One politeness clock for all crawls of a user on one machine: a table in shared memory.

Every frontier has clocks of its own. Two crawls of one person on one site would be rude together, so before a request
a frontier looks here, too. A politeness key has a cell by its hash; two keys in one cell only wait longer than they
must. A cell knows when the last request was and whose, until when the site wants silence, whether something is in
flight, and who waits for it: crawls take turns. What a process has noted itself it does not wait for, since its own
clock knows better.

A process that is killed holds nobody up: the kernel frees its lock, a request in flight counts while its process
lives, a turn that is not taken lapses. The times are those of the machine's monotonic clock; a table of an earlier boot
is void.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import stat
import time
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from weft.errors import BadInput
from weft.frontier.politeness import LONG_WAIT

CELLS = 1 << 16
_WORDS = 8  # of 8 bytes, in a cell; the first cell is the header
_LAST, _SILENT_UNTIL, _BUSY_UNTIL, _TURN_AT, _INSISTS_AT, _OWNER, _WAITER, _IN_FLIGHT = range(_WORDS)
_SIZE = (CELLS + 1) * _WORDS * 8
_LAYOUT = 1  # in the file's name: another version may be running
_LOCK_WAIT_S = 0.05
TURN_S = 1.0  # how long a turn is kept for a crawl that waits, after the time at which it may ask
LOOK_AGAIN_S = 0.1  # at a site that has another crawl's request in flight
_BOOT = Path("/proc/sys/kernel/random/boot_id")
FOLDER = "WEFT_RUNTIME_DIR"  # the environment variable that names another folder
_FOLDERS = (Path("/dev/shm"), Path("/tmp"))  # noqa: S108  the same for all of a user's processes, from cron or a shell


class Unusable(BadInput):
    """The table cannot be opened, or written."""


def default_path() -> Path:
    """Where the clock of this user is. Memory first: a table on a disk would be written back now and then."""
    if named := os.environ.get(FOLDER):
        return Path(named) / f"clock-{_LAYOUT}"
    folder = next((one for one in _FOLDERS if one.is_dir() and os.access(one, os.W_OK)), _FOLDERS[-1])
    return folder / f"weft-{os.getuid()}" / f"clock-{_LAYOUT}"


class MachineClock:
    """The table, as one process sees it."""

    def __init__(self, path: Path, me: int | None = None) -> None:
        """`me` tells processes apart: by default this process's number, and a random one against its reuse."""
        self._me = me if me is not None else os.getpid() << 32 | int.from_bytes(os.urandom(4), "big")
        try:
            self._fd = _opened(path)
            self._map = _mapped(self._fd)
        except OSError as error:
            raise Unusable(f"{path}: {error.strerror}") from error
        self._is_locked = False
        self._times = memoryview(self._map).cast("d")
        self._numbers = memoryview(self._map).cast("Q")

    def close(self) -> None:
        """Ends the use of it; the table stays."""
        self._times.release()
        self._numbers.release()
        self._map.close()
        os.close(self._fd)

    @contextmanager
    def locked(self) -> Iterator[bool]:
        """For a batch of calls. False if another process has kept the lock for long (it may be suspended)."""
        if self._is_locked:
            yield True
            return
        until = time.monotonic() + _LOCK_WAIT_S
        while not self._try_lock():
            if time.monotonic() > until:
                yield False
                return
            time.sleep(0.001)
        self._is_locked = True
        try:
            yield True
        finally:
            self._is_locked = False
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    def _try_lock(self) -> bool:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def due(self, key: str, now: float, delay_s: float, *, alone: bool) -> float:
        """When this process may ask, by what others have done: `now` or earlier if it may at once.

        `alone`: nothing else may be in flight to the site. One that has to wait is put down for the next turn.
        """
        cell, times, numbers, me = _cell(key), self._times, self._numbers, self._me
        owner, waiter, turn_at = numbers[cell + _OWNER], numbers[cell + _WAITER], times[cell + _TURN_AT]
        due = 0.0
        if owner not in (0, me):
            due = max(times[cell + _SILENT_UNTIL], times[cell + _LAST] + delay_s)
            is_busy = times[cell + _BUSY_UNTIL] > now and numbers[cell + _IN_FLIGHT] and _is_alive(owner >> 32)
            if alone and delay_s and is_busy:
                due = max(due, now + LOOK_AGAIN_S)
        if waiter not in (0, me) and now < turn_at + TURN_S:
            # It goes first if that costs no more than a delay, or if it has waited for long.
            if turn_at <= now + delay_s or now >= times[cell + _INSISTS_AT]:
                due = max(due, min(turn_at + TURN_S, now + LOOK_AGAIN_S))
        elif due > now:
            if waiter != me:
                numbers[cell + _WAITER] = me
                times[cell + _INSISTS_AT] = now + LONG_WAIT * delay_s
            times[cell + _TURN_AT] = due
        return due

    def started(self, key: str, now: float, at_most_s: float) -> None:
        """A request goes out, which lasts so long at most."""
        cell, times, numbers, me = _cell(key), self._times, self._numbers, self._me
        numbers[cell + _IN_FLIGHT] = numbers[cell + _IN_FLIGHT] + 1 if numbers[cell + _OWNER] == me else 1
        numbers[cell + _OWNER] = me
        times[cell + _LAST] = now
        times[cell + _BUSY_UNTIL] = now + at_most_s
        if numbers[cell + _WAITER] == me:
            numbers[cell + _WAITER] = 0

    def ended(self, requests: Iterable[tuple[str, float, float]]) -> None:
        """Requests are over: the key, when, and until when the site wants silence, of each."""
        with self.locked():  # without it, a number may be lost, and others wait until the request would have timed out
            for key, at, silent_until in requests:
                self._end(_cell(key), at, silent_until)

    def _end(self, cell: int, at: float, silent_until: float) -> None:
        times, numbers = self._times, self._numbers
        if numbers[cell + _OWNER] == self._me and numbers[cell + _IN_FLIGHT]:
            numbers[cell + _IN_FLIGHT] -= 1
        times[cell + _LAST] = max(times[cell + _LAST], at)
        times[cell + _SILENT_UNTIL] = max(times[cell + _SILENT_UNTIL], silent_until)


class NoMachineClock:
    """For a frontier that nobody shares a machine with."""

    @contextmanager
    def locked(self) -> Iterator[bool]:
        """Nothing is."""
        yield True

    def due(self, key: str, now: float, delay_s: float, *, alone: bool) -> float:  # noqa: ARG002
        """At once."""
        return 0.0

    def started(self, key: str, now: float, at_most_s: float) -> None:
        """Nobody asks."""

    def ended(self, requests: Iterable[tuple[str, float, float]]) -> None:
        """Nobody asks."""

    def close(self) -> None:
        """Nothing is open."""


def _cell(key: str) -> int:
    return (1 + (zlib.crc32(key.encode()) & CELLS - 1)) * _WORDS


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _opened(path: Path) -> int:
    """The file, which is this user's alone: others may write to the folder above it."""
    path.parent.mkdir(mode=0o700, exist_ok=True)
    if (found := path.parent.lstat()).st_uid != os.getuid() or not stat.S_ISDIR(found.st_mode):
        raise PermissionError(1, "its folder belongs to somebody else")
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def _mapped(fd: int) -> mmap.mmap:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        _prepare(fd)
        fcntl.flock(fd, fcntl.LOCK_UN)
        return mmap.mmap(fd, _SIZE)
    except BaseException:
        os.close(fd)
        raise


def _prepare(fd: int) -> None:
    """An empty table, if there is none, or one of an earlier boot. All of it is allocated: a full disk shows here."""
    boot = _boot()
    if os.fstat(fd).st_size != _SIZE or os.pread(fd, len(boot), 0) != boot:
        os.ftruncate(fd, 0)
        os.posix_fallocate(fd, 0, _SIZE)
        os.pwrite(fd, boot, 0)


def _boot() -> bytes:
    try:
        return _BOOT.read_bytes().strip()[: _WORDS * 8]
    except OSError:
        return b"unknown"
