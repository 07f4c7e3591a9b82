"""One politeness clock for all crawls of a user on one machine: a table in shared memory.

Every frontier has clocks of its own. Two crawls of one user could together exceed a site's limit, so a frontier also
checks this table before a request. A politeness key has a cell by its hash; two keys in one cell wait for each other's
delays, and never for each other's silence, which is kept with the key's fingerprint. The hash has a secret of its own
in each table, so that no name can be chosen for the cell of another. A cell records the time and the process of the
last request, until when the site wants silence, whether a request is in flight, and which crawl waits: crawls take
turns. A process does not wait for its own entries, since its own clock is more exact.

A killed process blocks no other: the kernel frees its lock, a request in flight and a turn count only while their
process lives, and an unused turn lapses. The times are those of the machine's monotonic clock; a table of an earlier
boot is void.

Invariant: whatever a cell holds (the times of a process whose clock is wrong, bytes of a stranger), it delays no
request for longer than `longest_s` (a silence, a turn) or `request_s` (a request in flight). Times are bounded when
they are written and when they are read.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path

from weft.errors import BadInput
from weft.frontier.politeness import LONG_WAIT_IN_DELAYS

CELL_COUNT = 1 << 16
_REMEMBERED = 4096  # keys whose cells are known: a key is looked up three times for each request
_WORDS_PER_CELL = 12  # of 8 bytes, in a cell; the first cell is the header
_LAST, _BUSY_UNTIL, _TURN_AT, _INSISTS_AT, _OWNER, _WAITER, _IN_FLIGHT, _ = range(8)
_SILENCE_WORDS = (8, 10)  # of two keys of the cell: until when, and the key's fingerprint
_TABLE_BYTES = (CELL_COUNT + 1) * _WORDS_PER_CELL * 8
_BOOT_BYTES, _SECRET_AT, _SECRET_BYTES = 48, 64, 16  # in the header
_LAYOUT_VERSION = 2  # in the file's name: another version may be running
_LOCK_WAIT_S = 0.05
RESERVED_TURN_S = 1.0  # how long a turn is reserved for a waiting crawl, after the time at which it may ask
REREAD_S = 0.1  # poll interval at a site that has another crawl's request in flight
# How far a last request may lie ahead of a caller's start time: other crawls ask meanwhile. One that lies further ahead
# comes from a wrong clock, and is ignored.
MOST_AHEAD_S = 5.0
_MOST_IN_FLIGHT = 1 << 32
_BOOT_ID_FILE = Path("/proc/sys/kernel/random/boot_id")
FOLDER_VARIABLE = "WEFT_RUNTIME_DIR"  # the environment variable that names another folder
_DEFAULT_FOLDERS = (Path("/dev/shm"), Path("/tmp"))  # noqa: S108  the same for all of a user's processes, from cron or a shell


class UnusableClock(BadInput):
    """The table cannot be opened, or written."""


def default_clock_path() -> Path:
    """The path of this user's clock. Memory is preferred: the kernel would write back a table on a disk from time to
    time.
    """
    if named := os.environ.get(FOLDER_VARIABLE):
        return Path(named) / f"clock-{_LAYOUT_VERSION}"
    folder = next((one for one in _DEFAULT_FOLDERS if one.is_dir() and os.access(one, os.W_OK)), _DEFAULT_FOLDERS[-1])
    return folder / f"weft-{os.getuid()}" / f"clock-{_LAYOUT_VERSION}"


class MachineClock:
    """The shared table, as one process uses it."""

    def __init__(self, path: Path, me: int | None = None, *, longest_s: float = 600.0, request_s: float = 90.0) -> None:
        """`me` tells processes apart: by default this process's number, and a random one against its reuse.

        `longest_s`: how long a site's silence or another's turn is waited for, `request_s`: how long a request lasts.
        """
        self._longest_s = longest_s
        self._request_s = request_s
        self._own_process = me if me is not None else os.getpid() << 32 | int.from_bytes(os.urandom(4), "big")
        try:
            self._fd = _open_table(path)
            self._map = _map_table(self._fd)
        except OSError as error:
            raise UnusableClock(f"{path}: {error.strerror}") from error
        self._is_locked = False
        self._cell_times = memoryview(self._map).cast("d")
        self._cell_numbers = memoryview(self._map).cast("Q")
        self._secret = self._map[_SECRET_AT : _SECRET_AT + _SECRET_BYTES]
        self._cell_and_fingerprint = lru_cache(maxsize=_REMEMBERED)(self._located)

    def raise_longest_times(self, longest_s: float, request_s: float) -> None:
        """Announces the settings of a crawl of this process: they raise the longest plausible times."""
        self._longest_s, self._request_s = max(self._longest_s, longest_s), max(self._request_s, request_s)

    def cell_of(self, key: str) -> int:
        """The number of a key's cell, below CELL_COUNT."""
        return self._cell_and_fingerprint(key)[0] // _WORDS_PER_CELL - 1

    def _located(self, key: str) -> tuple[int, int]:
        """The offset of a key's cell, and the key's fingerprint."""
        digest = blake2b(key.encode(), digest_size=16, key=self._secret).digest()
        cell = int.from_bytes(digest[:8], "little") & CELL_COUNT - 1
        return (1 + cell) * _WORDS_PER_CELL, int.from_bytes(digest[8:], "little") or 1

    def close(self) -> None:
        """Closes the mapping; the table remains."""
        self._cell_times.release()
        self._cell_numbers.release()
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
        """When this process may ask, considering other processes: `now` or earlier if it may at once.

        `alone`: nothing else may be in flight to the site. A crawl that must wait is registered for the next turn.
        """
        (cell, mark), times, numbers, me = (
            self._cell_and_fingerprint(key),
            self._cell_times,
            self._cell_numbers,
            self._own_process,
        )
        owner, waiter, turn_at = numbers[cell + _OWNER], numbers[cell + _WAITER], times[cell + _TURN_AT]
        due = self._read_silence(cell, mark, now)
        if owner not in (0, me):
            last = times[cell + _LAST]
            due = max(due, last + delay_s if last <= now + MOST_AHEAD_S else 0.0)
            is_busy = (
                numbers[cell + _IN_FLIGHT] and self._plausible_time(cell + _BUSY_UNTIL, now, self._request_s) > now
            )
            if alone and delay_s and is_busy and _is_process_alive(owner >> 32):
                due = max(due, now + REREAD_S)
        is_turn = waiter not in (0, me) and now < turn_at + RESERVED_TURN_S and turn_at <= now + self._longest_s
        if is_turn and _is_process_alive(waiter >> 32):
            # It is next if that costs no more than a delay, or if it has waited for long.
            if turn_at <= now + delay_s or now >= times[cell + _INSISTS_AT]:
                due = max(due, min(turn_at + RESERVED_TURN_S, now + REREAD_S))
        elif due > now:
            if waiter != me:
                numbers[cell + _WAITER] = me
                times[cell + _INSISTS_AT] = now + LONG_WAIT_IN_DELAYS * delay_s
            times[cell + _TURN_AT] = due
        return due

    def started(self, key: str, now: float, at_most_s: float) -> None:
        """Records that a request starts, which lasts at most that long."""
        (cell, _mark), times, numbers, me = (
            self._cell_and_fingerprint(key),
            self._cell_times,
            self._cell_numbers,
            self._own_process,
        )
        before = min(numbers[cell + _IN_FLIGHT], _MOST_IN_FLIGHT) if numbers[cell + _OWNER] == me else 0
        numbers[cell + _IN_FLIGHT] = before + 1
        numbers[cell + _OWNER] = me
        times[cell + _LAST] = now
        times[cell + _BUSY_UNTIL] = now + at_most_s
        if numbers[cell + _WAITER] == me:
            numbers[cell + _WAITER] = 0

    def ended(self, requests: Iterable[tuple[str, float, float]]) -> None:
        """Records that requests have ended: the key of each, its end, and until when the site wants silence."""
        with self.locked():  # without it, a number may be lost, and others wait until the request would have timed out
            for key, at, silent_until in requests:
                cell, mark = self._cell_and_fingerprint(key)
                self._record_end(cell, at)
                if silent_until > at:
                    self._store_silence(cell, mark, at, min(silent_until, at + self._longest_s))

    def asked(self, requests: Iterable[tuple[str, float]]) -> None:
        """Records requests that took no turn, for parts of a page in a browser: the key, and when."""
        with self.locked():
            for key, at in requests:
                cell, _mark = self._cell_and_fingerprint(key)
                numbers = self._cell_numbers
                if not numbers[cell + _IN_FLIGHT] or not _is_process_alive(numbers[cell + _OWNER] >> 32):
                    numbers[cell + _OWNER], numbers[cell + _IN_FLIGHT] = self._own_process, 0
                last = self._cell_times[cell + _LAST]
                self._cell_times[cell + _LAST] = last if at < last <= at + MOST_AHEAD_S else at

    def _record_end(self, cell: int, at: float) -> None:
        times, numbers = self._cell_times, self._cell_numbers
        if numbers[cell + _OWNER] == self._own_process and numbers[cell + _IN_FLIGHT]:
            numbers[cell + _IN_FLIGHT] -= 1
        last = times[cell + _LAST]
        times[cell + _LAST] = last if at < last <= at + MOST_AHEAD_S else at

    def _store_silence(self, cell: int, mark: int, at: float, until: float) -> None:
        """Stores a key's silence in its own slot, or in that of the other key whose silence ends first."""
        own = [place for place in _SILENCE_WORDS if self._cell_numbers[cell + place + 1] == mark]
        place = (
            own[0]
            if own
            else min(_SILENCE_WORDS, key=lambda one: self._plausible_time(cell + one, at, self._longest_s))
        )
        before = self._plausible_time(cell + place, at, self._longest_s)
        if not own or until > before:
            self._cell_numbers[cell + place + 1] = mark
            self._cell_times[cell + place] = until

    def _read_silence(self, cell: int, mark: int, now: float) -> float:
        """Until when a key's site wants silence."""
        for place in _SILENCE_WORDS:
            if self._cell_numbers[cell + place + 1] == mark:
                return self._plausible_time(cell + place, now, self._longest_s)
        return 0.0

    def _plausible_time(self, word: int, now: float, most_s: float) -> float:
        """A plausible time of the table. One that lies too far ahead, or is no number, is replaced by the latest
        plausible time: so it ends for every process that reads it.
        """
        at = self._cell_times[word]
        if not at <= now + most_s:
            at = self._cell_times[word] = now + most_s
        return at


class NoMachineClock:
    """A clock without effect, for a frontier that shares the machine with no other."""

    @contextmanager
    def locked(self) -> Iterator[bool]:
        """Locks nothing."""
        yield True

    def raise_longest_times(self, longest_s: float, request_s: float) -> None:
        """Does nothing: no other process asks."""

    def due(self, key: str, now: float, delay_s: float, *, alone: bool) -> float:  # noqa: ARG002
        """Returns `now`: no other process asks."""
        return 0.0

    def started(self, key: str, now: float, at_most_s: float) -> None:
        """Does nothing: no other process asks."""

    def ended(self, requests: Iterable[tuple[str, float, float]]) -> None:
        """Does nothing: no other process asks."""

    def asked(self, requests: Iterable[tuple[str, float]]) -> None:
        """Does nothing: no other process asks."""

    def close(self) -> None:
        """Nothing is open."""


def _is_process_alive(pid: int) -> bool:
    if not 0 < pid < 1 << 31:  # no process has such an id: 0 would be this process's group
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _open_table(path: Path) -> int:
    """Opens the file, which only this user may write: others may write to the folder above it."""
    path.parent.mkdir(mode=0o700, exist_ok=True)
    if (folder_status := path.parent.lstat()).st_uid != os.getuid() or not stat.S_ISDIR(folder_status.st_mode):
        raise PermissionError(1, "its folder belongs to somebody else")
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def _map_table(fd: int) -> mmap.mmap:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        _prepare_table(fd)
        fcntl.flock(fd, fcntl.LOCK_UN)
        return mmap.mmap(fd, _TABLE_BYTES)
    except BaseException:
        os.close(fd)
        raise


def _prepare_table(fd: int) -> None:
    """Creates an empty table, if there is none or it is of an earlier boot. All of it is allocated now, so that a full
    disk is noticed here.
    """
    boot = _read_boot_id()
    if os.fstat(fd).st_size != _TABLE_BYTES or os.pread(fd, len(boot), 0) != boot:
        os.ftruncate(fd, 0)
        os.posix_fallocate(fd, 0, _TABLE_BYTES)
        os.pwrite(fd, boot, 0)
        os.pwrite(fd, os.urandom(_SECRET_BYTES), _SECRET_AT)


def _read_boot_id() -> bytes:
    try:
        return _BOOT_ID_FILE.read_bytes().strip()[:_BOOT_BYTES]
    except OSError:
        return b"unknown"
