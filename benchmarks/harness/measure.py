"""Runs one command on one core and says what it cost: wall time, CPU of its whole process tree, peak memory."""

from __future__ import annotations

import fcntl
import json
import os
import platform
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

PAGE = os.sysconf("SC_PAGE_SIZE")
SAMPLE_S = 0.2
LOCK = Path(__file__).resolve().parents[2] / ".bench" / "lock"


@dataclass(frozen=True, slots=True)
class Cost:
    """What a run cost. `said` is the JSON object that it printed last."""

    wall_s: float
    cpu_s: float
    user_s: float
    peak_rss_mb: float
    said: dict[str, Any]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Two benchmarks at once would measure each other, and share their ports and scratch folders."""
    LOCK.parent.mkdir(exist_ok=True)
    with LOCK.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("another benchmark is running here: waiting for it", file=sys.stderr, flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


class Failed(Exception):
    """A command that did not end well."""


class TooLong(Failed):
    """A command that was ended because it ran for longer than its limit."""


def cores() -> tuple[int, int]:
    """The crawler's core and the server's; the same one where there is only one."""
    usable = sorted(os.sched_getaffinity(0))
    return usable[0], usable[-1]


def run(
    command: Sequence[str],
    core: int | None,
    *,
    env: Mapping[str, str] | None = None,
    limit_s: float = 120.0,
    cwd: Path | None = None,
    good_codes: Collection[int] = (0,),
) -> Cost:
    """Runs a command to its end, on one core or on all. CPU is the tree's: what its ended children used is in it."""
    start = time.monotonic()
    process = subprocess.Popen(
        command if core is None else ["taskset", "-c", str(core), *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **(env or {})},
        cwd=cwd,
        start_new_session=True,
    )
    watch = _Watch(process.pid, start + limit_s)
    watch.start()
    errors: list[bytes] = []
    drain = threading.Thread(target=lambda: errors.append(process.stderr.read()), daemon=True)
    drain.start()
    assert process.stdout is not None
    out = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    wall_s = time.monotonic() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    watch.done.set()
    watch.join()
    drain.join(5)
    if process.returncode not in good_codes:
        what = "ran too long" if watch.late else f"exit code {process.returncode}"
        kind = TooLong if watch.late else Failed
        raise kind(f"{' '.join(command[:6])} …: {what}: {b''.join(errors)[-800:].decode(errors='replace')}")
    return Cost(
        wall_s,
        usage.ru_utime + usage.ru_stime,
        usage.ru_utime,
        max(watch.peak_mb, usage.ru_maxrss / 1024),
        json.JSONDecoder().raw_decode(out[out.index(b"{") :].decode())[0] if b"{" in out else {},
    )


class _Watch(threading.Thread):
    """Adds up the resident memory of a process and its descendants, and ends those that run too long."""

    def __init__(self, pid: int, until: float) -> None:
        super().__init__(daemon=True)
        self._pid, self._until = pid, until
        self.done = threading.Event()
        self.peak_mb = 0.0
        self.late = False

    def run(self) -> None:
        while not self.done.wait(SAMPLE_S):
            self.peak_mb = max(self.peak_mb, sum(map(resident, tree(self._pid))) / (1 << 20))
            if time.monotonic() > self._until:
                self.late = True
                for pid in tree(self._pid):
                    try:
                        os.kill(pid, 9)
                    except ProcessLookupError:
                        pass
                return


def tree(pid: int) -> list[int]:
    """A process and all its descendants."""
    found = [pid]
    for one in found:
        try:
            for task in Path(f"/proc/{one}/task").iterdir():
                found += [int(child) for child in (task / "children").read_text().split()]
        except OSError:
            continue
    return found


def resident(pid: int) -> int:
    """Bytes of resident memory; 0 for a process that is gone."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE
    except (OSError, IndexError):
        return 0


def cpu_s(pid: int) -> float:
    """CPU seconds that a living process and the children it has reaped have used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def machine() -> dict[str, Any]:
    """What the figures were measured on; no name of a host."""
    info = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    models = [line.partition(":")[2].strip() for line in info.splitlines() if line.startswith("model name")]
    memory = os.sysconf("SC_PHYS_PAGES") * PAGE
    return {
        "cores": len(os.sched_getaffinity(0)),
        "cpu": models[0] if models else platform.machine(),
        "memory_gb": round(memory / (1 << 30)),
        "kernel": f"{platform.system()} {platform.release().partition('-')[0]}",
        "python": platform.python_version(),
    }
