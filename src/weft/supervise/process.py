"""Reads the kernel's facts about a process, and ends one with everything it started. Linux only.

Owned here: how an exit status reads, death together with the parent, adoption of orphans, and the few lines of /proc
that say a process's state, memory, children and birth. Invariant: nothing here keeps state, and a process that has gone
is an answer (None, an empty list), never an exception.
"""

from __future__ import annotations

import ctypes
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Exit:
    """How a process ended: with a code, or by a signal; neither when no one could see it."""

    code: int | None = None
    signal: int | None = None
    peak_rss_bytes: int = 0

    @classmethod
    def from_wait(cls, status: int, peak_rss_kb: int = 0) -> Exit:
        """From the status of wait4 and its ru_maxrss (kilobytes on Linux)."""
        if os.WIFSIGNALED(status):
            return cls(None, os.WTERMSIG(status), peak_rss_kb * 1024)
        return cls(os.waitstatus_to_exitcode(status), None, peak_rss_kb * 1024)

    @property
    def signal_name(self) -> str | None:
        """`SIGSEGV`; real-time signals as their number."""
        if self.signal is None:
            return None
        try:
            return signal.Signals(self.signal).name
        except ValueError:
            return f"signal {self.signal}"

    def __str__(self) -> str:
        if self.signal is not None:
            return f"killed by {self.signal_name}"
        return "ended unseen" if self.code is None else f"exited with code {self.code}"


def die_with_parent(parent_pid: int) -> None:
    """Makes the kernel send SIGKILL when the parent's thread that forked us ends; at once if it has ended already.

    A thread, not the process: the caller starts us from a thread that lasts (`starter`), or a fork of its own.
    """
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:
        os._exit(1)


def wake_with_parent() -> None:
    """Makes the kernel send SIGCONT when the parent ends, so that a stopped process runs and can detect that. It is
    also sent when only the parent's thread that forked us ends, and has no effect then.
    """
    _prctl(_PR_SET_PDEATHSIG, signal.SIGCONT)


def adopt_orphans() -> None:
    """Makes orphaned descendants our children instead of init's, also daemonised ones."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def set_name(name: str) -> None:
    """Sets the name that `ps` and `top` display, cut to 15 bytes by the kernel."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_NAME, name.encode()[:15], 0, 0, 0)


def open_standard_descriptors() -> list[int]:
    """Opens /dev/null for stdin, stdout and stderr if they are closed, as by `>&-` in a shell; returns which were.
    Otherwise the next file would get that number, and a `print` would write into it.
    """
    opened = []
    while (fd := os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)) <= 2:  # the lowest free number, each time
        os.set_inheritable(fd, True)
        opened.append(fd)
    os.close(fd)
    return opened


@contextmanager
def named(name: str) -> Iterator[None]:
    """The calling thread's name while something runs in it; of a main thread it is the process's, in `ps` and `top`."""
    before = name_of(os.getpid(), threading.get_native_id())
    set_name(name)
    try:
        yield
    finally:
        set_name(before or name)


def name_of(pid: int, thread: int | None = None) -> str | None:
    """The name that `ps -o comm` and `top` display for a process, or for one of its threads."""
    try:
        return Path(f"/proc/{pid}/task/{thread or pid}/comm").read_text(errors="replace").rstrip("\n")
    except OSError:
        return None


def is_single_threaded() -> bool:
    """Whether this process has one thread, libraries' own included: only then is a fork without exec safe."""
    return len(list(Path("/proc/self/task").iterdir())) == 1


def state(pid: int) -> str | None:
    """The kernel's letter: R, S, D, T (stopped), t (traced), Z (zombie); None if there is no such process."""
    fields = _stat_fields(pid)
    return fields[0] if fields else None


def has_ended(pid: int) -> bool:
    """Whether nothing of a process runs any more. A zombie may have threads left that end later, when a write of theirs
    is on the disk: until then its locks, ports and files are held."""
    fields = _stat_fields(pid)
    return not fields or (fields[0] in ("Z", "X") and int(fields[17]) <= 1)


def birth(pid: int) -> int | None:
    """Start time in clock ticks since boot: with the pid it identifies a process for good, even if the pid is
    reused.
    """
    fields = _stat_fields(pid)
    return int(fields[19]) if fields else None


def command_line(pid: int) -> tuple[str, ...]:
    """Its current arguments; empty if it has ended, or is a zombie."""
    try:
        data = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return ()
    return tuple(os.fsdecode(part) for part in data.rstrip(b"\0").split(b"\0")) if data else ()


def return_free_memory() -> None:
    """Makes the C library return freed memory to the system, if it can (glibc): otherwise it keeps it for reuse."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def rss_bytes(pid: int) -> int:
    """Resident memory; 0 if it has ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_bytes().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError):
        return 0


def children(pid: int) -> list[int]:
    """The direct children, zombies included."""
    try:
        tasks = Path(f"/proc/{pid}/task").iterdir()
        return [int(child) for task in tasks for child in (task / "children").read_bytes().split()]
    except FileNotFoundError:
        return [other for other in pids() if _parent(other) == pid] if Path(f"/proc/{pid}").exists() else []
    except OSError:
        return []


def pids() -> list[int]:
    """Every process there is now."""
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def boot_id() -> str:
    """Identifies the boot of this machine: births are counted from it."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def lock_holders(file: Path) -> list[int]:
    """The processes that share a lock (flock) on a file; a process that only has it open is not included."""
    try:
        facts = file.stat()
    except OSError:
        return []
    same = (facts.st_dev, facts.st_ino)
    return [pid for pid in pids() if _holds_lock(pid, same)]


def _holds_lock(pid: int, same: tuple[int, int]) -> bool:
    try:
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                facts = entry.stat()
                if (facts.st_dev, facts.st_ino) == same:
                    return "\nlock:" in Path(f"/proc/{pid}/fdinfo/{entry.name}").read_text()
    except OSError:
        pass  # it has gone, or is another user's
    return False


def with_environment(mark: str) -> list[int]:
    """The other processes that carry `NAME=value` in their environment: identifies strays."""
    return [pid for pid in pids() if pid != os.getpid() and carries(pid, mark)]


def carries(pid: int, mark: str) -> bool:
    """Whether a process has `NAME=value` in its environment."""
    return mark.encode() in _environment(pid)


def kill(pid: int, number: int = signal.SIGKILL) -> bool:
    """Sends a signal; False if the process has ended or is not ours."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def descends_from(pid: int, ancestor: int) -> bool:
    """Whether a process is a child of another, or a child's child."""
    parent: int | None = pid
    while parent is not None and parent > 1:
        parent = _parent(parent)
        if parent == ancestor:
            return True
    return False


def _parent(pid: int) -> int | None:
    fields = _stat_fields(pid)
    return int(fields[1]) if fields else None


def _stat_fields(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the name, which may itself hold spaces and brackets."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def _environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}) was refused")
