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
from weft.frontier.politeness import LONG_WAIT

CELLS = 1 << 16
_REMEMBERED = 4096  # keys whose cells are known: a key is looked up three times for each request
_WORDS = 12  # of 8 bytes, in a cell; the first cell is the header
_LAST, _BUSY_UNTIL, _TURN_AT, _INSISTS_AT, _OWNER, _WAITER, _IN_FLIGHT, _ = range(8)
_SILENCES = (8, 10)  # of two keys of the cell: until when, and the key's fingerprint
_SIZE = (CELLS + 1) * _WORDS * 8
_BOOT_BYTES, _SECRET_AT, _SECRET_BYTES = 48, 64, 16  # in the header
_LAYOUT = 2  # in the file's name: another version may be running
_LOCK_WAIT_S = 0.05
TURN_S = 1.0  # how long a turn is reserved for a waiting crawl, after the time at which it may ask
REREAD_S = 0.1  # poll interval at a site that has another crawl's request in flight
# How far a last request may lie ahead of a caller's start time: other crawls ask meanwhile. One that lies further ahead
# comes from a wrong clock, and is ignored.
AHEAD_S = 5.0
_MOST_IN_FLIGHT = 1 << 32
_BOOT = Path("/proc/sys/kernel/random/boot_id")
FOLDER = "WEFT_RUNTIME_DIR"  # the environment variable that names another folder
_FOLDERS = (Path("/dev/shm"), Path("/tmp"))  # noqa: S108  the same for all of a user's processes, from cron or a shell


class UnusableClock(BadInput):
    """The table cannot be opened, or written."""


def default_path() -> Path:
    """The path of this user's clock. Memory is preferred: the kernel would write back a table on a disk from time to
    time.
    """
    if named := os.environ.get(FOLDER):
        return Path(named) / f"clock-{_LAYOUT}"
    folder = next((one for one in _FOLDERS if one.is_dir() and os.access(one, os.W_OK)), _FOLDERS[-1])
    return folder / f"weft-{os.getuid()}" / f"clock-{_LAYOUT}"


class MachineClock:
    """The shared table, as one process uses it."""

    def __init__(self, path: Path, me: int | None = None, *, longest_s: float = 600.0, request_s: float = 90.0) -> None:
        """`me` tells processes apart: by default this process's number, and a random one against its reuse.

        `longest_s`: how long a site's silence or another's turn is waited for, `request_s`: how long a request lasts.
        """
        self._longest_s = longest_s
        self._request_s = request_s
        self._me = me if me is not None else os.getpid() << 32 | int.from_bytes(os.urandom(4), "big")
        try:
            self._fd = _opened(path)
            self._map = _mapped(self._fd)
        except OSError as error:
            raise UnusableClock(f"{path}: {error.strerror}") from error
        self._is_locked = False
        self._times = memoryview(self._map).cast("d")
        self._numbers = memoryview(self._map).cast("Q")
        self._secret = self._map[_SECRET_AT : _SECRET_AT + _SECRET_BYTES]
        self._place = lru_cache(maxsize=_REMEMBERED)(self._located)

    def expect(self, longest_s: float, request_s: float) -> None:
        """Announces the settings of a crawl of this process: they raise the longest plausible times."""
        self._longest_s, self._request_s = max(self._longest_s, longest_s), max(self._request_s, request_s)

    def cell_of(self, key: str) -> int:
        """The number of a key's cell, below CELLS."""
        return self._place(key)[0] // _WORDS - 1

    def _located(self, key: str) -> tuple[int, int]:
        """The offset of a key's cell, and the key's fingerprint."""
        digest = blake2b(key.encode(), digest_size=16, key=self._secret).digest()
        cell = int.from_bytes(digest[:8], "little") & CELLS - 1
        return (1 + cell) * _WORDS, int.from_bytes(digest[8:], "little") or 1

    def close(self) -> None:
        """Closes the mapping; the table remains."""
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
        """When this process may ask, considering other processes: `now` or earlier if it may at once.

        `alone`: nothing else may be in flight to the site. A crawl that must wait is registered for the next turn.
        """
        (cell, mark), times, numbers, me = self._place(key), self._times, self._numbers, self._me
        owner, waiter, turn_at = numbers[cell + _OWNER], numbers[cell + _WAITER], times[cell + _TURN_AT]
        due = self._silence(cell, mark, now)
        if owner not in (0, me):
            last = times[cell + _LAST]
            due = max(due, last + delay_s if last <= now + AHEAD_S else 0.0)
            is_busy = numbers[cell + _IN_FLIGHT] and self._believed(cell + _BUSY_UNTIL, now, self._request_s) > now
            if alone and delay_s and is_busy and _is_alive(owner >> 32):
                due = max(due, now + REREAD_S)
        is_turn = waiter not in (0, me) and now < turn_at + TURN_S and turn_at <= now + self._longest_s
        if is_turn and _is_alive(waiter >> 32):
            # It is next if that costs no more than a delay, or if it has waited for long.
            if turn_at <= now + delay_s or now >= times[cell + _INSISTS_AT]:
                due = max(due, min(turn_at + TURN_S, now + REREAD_S))
        elif due > now:
            if waiter != me:
                numbers[cell + _WAITER] = me
                times[cell + _INSISTS_AT] = now + LONG_WAIT * delay_s
            times[cell + _TURN_AT] = due
        return due

    def started(self, key: str, now: float, at_most_s: float) -> None:
        """Records that a request starts, which lasts at most that long."""
        (cell, _mark), times, numbers, me = self._place(key), self._times, self._numbers, self._me
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
                cell, mark = self._place(key)
                self._end(cell, at)
                if silent_until > at:
                    self._silence_until(cell, mark, at, min(silent_until, at + self._longest_s))

    def asked(self, requests: Iterable[tuple[str, float]]) -> None:
        """Records requests that took no turn, for parts of a page in a browser: the key, and when."""
        with self.locked():
            for key, at in requests:
                cell, _mark = self._place(key)
                numbers = self._numbers
                if not numbers[cell + _IN_FLIGHT] or not _is_alive(numbers[cell + _OWNER] >> 32):
                    numbers[cell + _OWNER], numbers[cell + _IN_FLIGHT] = self._me, 0
                last = self._times[cell + _LAST]
                self._times[cell + _LAST] = last if at < last <= at + AHEAD_S else at

    def _end(self, cell: int, at: float) -> None:
        times, numbers = self._times, self._numbers
        if numbers[cell + _OWNER] == self._me and numbers[cell + _IN_FLIGHT]:
            numbers[cell + _IN_FLIGHT] -= 1
        last = times[cell + _LAST]
        times[cell + _LAST] = last if at < last <= at + AHEAD_S else at

    def _silence_until(self, cell: int, mark: int, at: float, until: float) -> None:
        """Stores a key's silence in its own slot, or in that of the other key whose silence ends first."""
        own = [place for place in _SILENCES if self._numbers[cell + place + 1] == mark]
        place = own[0] if own else min(_SILENCES, key=lambda one: self._believed(cell + one, at, self._longest_s))
        before = self._believed(cell + place, at, self._longest_s)
        if not own or until > before:
            self._numbers[cell + place + 1] = mark
            self._times[cell + place] = until

    def _silence(self, cell: int, mark: int, now: float) -> float:
        """Until when a key's site wants silence."""
        for place in _SILENCES:
            if self._numbers[cell + place + 1] == mark:
                return self._believed(cell + place, now, self._longest_s)
        return 0.0

    def _believed(self, word: int, now: float, most_s: float) -> float:
        """A plausible time of the table. One that lies too far ahead, or is no number, is replaced by the latest
        plausible time: so it ends for every process that reads it.
        """
        at = self._times[word]
        if not at <= now + most_s:
            at = self._times[word] = now + most_s
        return at


class NoMachineClock:
    """A clock without effect, for a frontier that shares the machine with no other."""

    @contextmanager
    def locked(self) -> Iterator[bool]:
        """Locks nothing."""
        yield True

    def expect(self, longest_s: float, request_s: float) -> None:
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


def _is_alive(pid: int) -> bool:
    if not 0 < pid < 1 << 31:  # no process has such an id: 0 would be this process's group
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _opened(path: Path) -> int:
    """Opens the file, which only this user may write: others may write to the folder above it."""
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
    """Creates an empty table, if there is none or it is of an earlier boot. All of it is allocated now, so that a full
    disk is noticed here.
    """
    boot = _boot()
    if os.fstat(fd).st_size != _SIZE or os.pread(fd, len(boot), 0) != boot:
        os.ftruncate(fd, 0)
        os.posix_fallocate(fd, 0, _SIZE)
        os.pwrite(fd, boot, 0)
        os.pwrite(fd, os.urandom(_SECRET_BYTES), _SECRET_AT)


def _boot() -> bytes:
    try:
        return _BOOT.read_bytes().strip()[:_BOOT_BYTES]
    except OSError:
        return b"unknown"
