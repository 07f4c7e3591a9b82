"""Operations on the folder of a crawl that is not running, each one `weft crawl` against a server on loopback.

Measured of each: seconds and CPU to its first request, seconds from SIGINT to its end, CPU and bytes written of all its
processes, their memory, the largest gap between two heartbeats of its fetcher, and how often a process was killed.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hosts import AnyHost

from harness.measure import PAGE, cpu_s, tree

OPERATIONS: dict[str, list[str]] = {"resume": [], "retry-failed": ["--retry-failed"], "recrawl": ["--recrawl"]}
STOPPED_AFTER_S = 5.0  # after the first request
POLL_S = 0.005
SAMPLE_S = 0.1
# A delay of a second: what is measured is the start and the end, not the crawl between them.
FLAGS = ["--resume", "--quiet", "--prometheus-port", "0", "--delay", "1"]


class Heartbeats(threading.Thread):
    """Reads the fetcher's heartbeat, as the orchestrator does: the largest gap between two changes."""

    def __init__(self, data_dir: Path) -> None:
        super().__init__(daemon=True)
        self._path = data_dir / "frontier" / "pulse"
        self._over = threading.Event()
        self.largest_s = 0.0

    def run(self) -> None:
        """Until `end`."""
        value, since = b"", 0.0
        while not self._over.wait(POLL_S):
            now = time.monotonic()
            read = self._path.read_bytes() if self._path.exists() else b""
            if read != value:
                if since:
                    self.largest_s = max(self.largest_s, now - since)
                value, since = read, now

    def end(self) -> float:
        """The gap, in seconds."""
        self._over.set()
        self.join()
        return self.largest_s


class Memory(threading.Thread):
    """Samples the memory of a process tree: the highest sums of resident and of anonymous memory."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._pid = pid
        self._over = threading.Event()
        self.resident_mb = self.anonymous_mb = 0.0

    def run(self) -> None:
        """Until `end`."""
        while not self._over.wait(SAMPLE_S):
            pages = [_statm(pid) for pid in tree(self._pid)]
            self.resident_mb = max(self.resident_mb, sum(own for own, _ in pages) * PAGE / (1 << 20))
            private = sum(own - shared for own, shared in pages)
            self.anonymous_mb = max(self.anonymous_mb, private * PAGE / (1 << 20))

    def end(self) -> None:
        """Stops sampling."""
        self._over.set()
        self.join()


def _statm(pid: int) -> tuple[int, int]:
    """Resident pages, and those of them that belong to files."""
    try:
        fields = Path(f"/proc/{pid}/statm").read_text().split()
        return int(fields[1]), int(fields[2])
    except (OSError, IndexError):
        return 0, 0


def operate(name: str, data_dir: Path, limit_s: float) -> dict[str, Any]:
    """One `weft crawl` from its start to its end. One that takes longer than the limit is killed."""
    AnyHost.first, AnyHost.counts = {}, {}
    logs = data_dir / "logs-of-this"
    command = [sys.executable, "-m", "weft", "crawl", *FLAGS, *OPERATIONS[name]]
    command += ["--data-dir", str(data_dir), "--log-dir", str(logs)]
    began = time.monotonic()
    running = subprocess.Popen(command, process_group=0, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    heartbeats, memory = Heartbeats(data_dir), Memory(running.pid)
    heartbeats.start()
    memory.start()
    asked_s, first_cpu_s = _stop_in_time(running, began, limit_s)
    written = _wait(running.pid)
    memory.end()
    _, status, usage = os.wait4(running.pid, 0)
    ended_s = time.monotonic() - began
    running.returncode = os.waitstatus_to_exitcode(status)
    lines = "".join(path.read_text(errors="replace") for path in logs.rglob("*.log"))
    shutil.rmtree(logs, ignore_errors=True)
    first = AnyHost.first.get("request")
    was_stopped = first is not None and ended_s > asked_s  # else it had nothing left to do before
    return {
        "first_request_s": None if first is None else round(first - began, 2),
        "first_request_cpu_s": None if first is None else round(first_cpu_s, 2),
        "stop_s": round(ended_s - asked_s, 2) if was_stopped else None,
        "wall_s": round(ended_s, 2),
        "cpu_s": round(usage.ru_utime + usage.ru_stime, 2),
        "peak_rss_mb": round(memory.resident_mb, 1),
        "anonymous_mb": round(memory.anonymous_mb, 1),
        "written_bytes": written,
        "largest_gap_s": round(heartbeats.end(), 2),
        "killed": lines.count("process killed"),
        "restarted": lines.count("process restarted"),
        "exit_code": running.returncode,
        "over_s": limit_s if first is None and asked_s >= limit_s else None,
    }


def _stop_in_time(running: subprocess.Popen[bytes], began: float, limit_s: float) -> tuple[float, float]:
    """Interrupts it some seconds after its first request; how many seconds after its start that was, and the CPU that
    it had used at its first request."""
    first_cpu_s = 0.0
    while time.monotonic() - began < limit_s and not _has_ended(running.pid):
        first = AnyHost.first.get("request")
        if first is not None and not first_cpu_s:
            first_cpu_s = sum(map(cpu_s, tree(running.pid)))
        if first is not None and time.monotonic() > first + STOPPED_AFTER_S:
            break
        time.sleep(0.02)
    asked_s = time.monotonic() - began
    if asked_s < limit_s:
        os.kill(running.pid, signal.SIGINT)
    else:
        os.killpg(running.pid, signal.SIGKILL)
    return asked_s, first_cpu_s


def _has_ended(pid: int) -> bool:
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None


def _wait(pid: int) -> int:
    """Waits for a process; bytes that it and the children it waited for have sent to the disk. They are counted until
    the process itself is waited for."""
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    fields = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
    return int(fields["write_bytes"]) - int(fields["cancelled_write_bytes"])


def spin() -> None:
    """A loop that is busy."""
    while True:
        pass


@contextmanager
def beside(loops: int) -> Iterator[None]:
    """Busy loops, for the length of the block."""
    busy = [multiprocessing.get_context("fork").Process(target=spin, daemon=True) for _ in range(loops)]
    for one in busy:
        one.start()
    try:
        yield
    finally:
        for one in busy:
            one.kill()
