"""Everything that `weft up` runs is killed with -9, the supervisor too, at any moment: it comes back, once.

After each kill: what was killed is healthy again, `weft status --json` was true while it came back (a process that it
names runs, and is of that service), no service has two processes, and strangers live. At the end `weft down` leaves
nothing. A few kills always, 50 on demand; only then the time is looked at.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from crawling import until
from pace import patience
from supervised import System

from weft.supervise import process

FULL = bool(os.environ.get("WEFT_TEST_CHAOS"))
KILLS = 50 if FULL else 3
BACK_S = 10.0
VICTIMS = ("redis", "engine", "api")
COMMANDS = {
    "redis": ("redis-server", "valkey-server"),
    "engine": ("weft.engine.process.host",),
    "api": ("weft.jobs.processes.worker",),
}


@pytest.fixture
def strangers() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that look like ours, and are not: their command lines name the same programs."""
    code = "import time; time.sleep(3600)"
    started = [subprocess.Popen([sys.executable, "-Sc", code, name]) for names in COMMANDS.values() for name in names]
    yield started
    for popen in started:
        assert popen.poll() is None, "a stranger was signalled"
        popen.kill()
        popen.wait()


class Campaign:
    """The system, and what is held against it."""

    def __init__(self, folder: Path, strangers: list[subprocess.Popen[bytes]]) -> None:
        self.system = System(folder, "--services", ",".join(VICTIMS))
        self._strangers = {popen.pid for popen in strangers}
        self._chance = random.Random(19)
        self.slowest_s = 0.0

    def kill(self, name: str) -> None:
        """One service; it must be back."""
        before = self._healthy()[name]["pid"]
        time.sleep(self._chance.uniform(0, 0.3))
        os.kill(before, signal.SIGKILL)
        until(lambda: process.has_ended(before), what=f"the end of {name}")  # when its last write is on the disk
        began, limit = time.time(), time.monotonic() + patience(20)
        while True:
            row = self._status()[name]
            if row["healthy"] and row["pid"] != before:
                break
            assert time.monotonic() < limit, row
            assert row["pid"] != before, "a process that was killed is told to run"
        back = datetime.fromisoformat(
            row["since"]
        ).timestamp()  # when asked; the question itself takes a process's start
        self.slowest_s = max(self.slowest_s, back - began)
        assert row["restarts"] >= 1 and "SIGKILL" in row["last_error"]
        self._nothing_doubled()

    def kill_supervisor(self) -> None:
        """At a random moment of a start, or later; then `weft up` again."""
        os.kill(self.system.supervisor, signal.SIGKILL)
        time.sleep(self._chance.uniform(0, 0.2))
        self._status()
        starting = subprocess.Popen(
            [sys.executable, "-m", "weft", "up", "--port", "0", "--services", ",".join(VICTIMS), "--data-dir",
             str(self.system.folder)],
            stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        time.sleep(self._chance.uniform(0.5, 3.0))
        for pid in self.system.processes():  # the new one, wherever it has got to
            if "weft.system.background" in process.command_line(pid):
                os.kill(pid, signal.SIGKILL)
        starting.wait(patience(30))
        self.system.up()
        self._nothing_doubled()

    def _healthy(self) -> dict[str, dict[str, Any]]:
        limit = time.monotonic() + patience(30)
        while True:
            found = self._status()
            if all(row["healthy"] for row in found.values()):
                return found
            assert time.monotonic() < limit, found

    def _status(self) -> dict[str, dict[str, Any]]:
        """What it tells must be so: a process that it names was there when it was asked."""
        lived = self._running()
        found = self.system.status()
        now = self._running()
        for name, row in found.items():
            pid = row["pid"]
            assert pid not in self._strangers
            if pid is not None:
                assert pid in lived or pid in now, (name, row)
                command = " ".join(lived.get(pid) or now.get(pid) or ())
                is_launching, is_ending = "die_with_parent" in command, not command
                is_its_own = any(word in command for word in COMMANDS[name])
                assert is_launching or is_ending or is_its_own, (name, row, command)
            assert pid is not None or not row["healthy"]
        return found

    def _running(self) -> dict[int, tuple[str, ...]]:
        return {pid: process.command_line(pid) for pid in process.pids() if not process.has_ended(pid)}

    def _nothing_doubled(self) -> None:
        self._healthy()
        for name, words in COMMANDS.items():
            found = [
                pid
                for pid in self.system.processes()
                if pid not in self._strangers and any(word in " ".join(process.command_line(pid)) for word in words)
            ]
            assert len(found) == 1, (name, {pid: process.command_line(pid) for pid in found})


def test_whatever_is_killed_comes_back_once(tmp_path: Path, strangers: list[subprocess.Popen[bytes]]) -> None:
    campaign = Campaign(tmp_path, strangers)
    campaign.system.up()
    try:
        for number in range(KILLS):
            campaign.kill(VICTIMS[number % len(VICTIMS)])
            if number % 10 == 2:
                campaign.kill_supervisor()
    finally:
        campaign.system.down()
    assert campaign.system.processes() == []
    assert {row["state"] for row in campaign.system.status().values()} == {"stopped"}
    if FULL:
        print(f"{KILLS} kills, the slowest was back after {campaign.slowest_s:.1f} s")
        assert campaign.slowest_s < BACK_S
