"""Real workers of a cluster, as processes: `weft worker` on a broker on this machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from pace import patience


def wait_until(condition: Callable[[], object], why: str, limit_s: float = 30.0) -> None:
    """Waits for something that other processes do."""
    end = time.monotonic() + patience(limit_s)
    while not condition():
        assert time.monotonic() < end, why
        time.sleep(0.02)


class HandProcess:
    """One `weft worker`; `output` is what it has written so far."""

    def __init__(self, folder: Path, url: str, key_file: Path, *flags: str, environment: dict[str, str] | None = None):
        folder.mkdir(parents=True, exist_ok=True)
        self._log = folder / f"hand{len(list(folder.iterdir()))}.log"
        command = [sys.executable, "-m", "weft", "worker", "--broker", url, "--key-file", str(key_file), *flags]
        with self._log.open("wb") as out:
            self.popen = subprocess.Popen(
                command, stdout=out, stderr=subprocess.STDOUT, env=dict(os.environ) | (environment or {})
            )

    @property
    def output(self) -> str:
        """What it has written so far."""
        return self._log.read_text(errors="replace")

    @property
    def name(self) -> str:
        """What it calls itself; empty before it serves."""
        return self.output.partition("weft: hand ")[2].partition(" ")[0]

    def wait_ready(self) -> HandProcess:
        """Waits until it serves its queues."""
        wait_until(lambda: " serves " in self.output or self.popen.poll() is not None, "no worker came up")
        assert self.popen.poll() is None, self.output
        return self

    def ended(self) -> int:
        """Waits for its end, and gives its exit code."""
        return self.popen.wait(patience(30))

    def kill(self) -> None:
        """Kills it as a power cut would."""
        self.popen.kill()
        self.popen.wait()

    def suspend(self) -> None:
        """Stops all its processes, as a machine that hangs."""
        for pid in self._processes():
            os.kill(pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Lets its processes run again, those that are left."""
        for pid in self._processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def _processes(self) -> list[int]:
        pids = [self.popen.pid] if self.popen.poll() is None else []
        for pid in pids:
            with suppress(OSError):
                pids += map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
        return pids

    def stop(self) -> None:
        """Has it end in good order, if it has not ended."""
        if self.popen.poll() is None:
            self.popen.send_signal(signal.SIGTERM)
            try:
                self.popen.wait(patience(20))
            except subprocess.TimeoutExpired:
                self.kill()
