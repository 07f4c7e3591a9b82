"""Zombies that a first process gets: orphans are reaped, children of its own are left to their owners."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from pace import patience

from weft.supervise import process, starter
from weft.supervise.first_process import OrphanReaper

SUBREAPER = """
import subprocess, time
from weft.supervise.first_process import OrphanReaper
from weft.supervise import process
process.adopt_orphans()
reaper = OrphanReaper(owners_s=1e9)
child = subprocess.Popen(["sh", "-c", "sleep 0.5 & echo $!; read line"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
orphan = int(child.stdout.readline())
reaper.turn()  # seen under its parent
child.stdin.close()
child.wait()
until = time.monotonic() + 60
while (reaped := reaper.turn()) == [] and time.monotonic() < until:
    time.sleep(0.02)
print(reaped == [orphan], process.state(orphan))
"""


def wait_for_zombie(pid: int) -> None:
    until = time.monotonic() + patience(20)
    while process.state(pid) != "Z":
        assert time.monotonic() < until
        time.sleep(0.01)


def test_an_orphan_is_reaped_as_soon_as_it_has_ended() -> None:
    said = subprocess.run([sys.executable, "-c", SUBREAPER], capture_output=True, text=True, check=True)
    assert said.stdout.split() == ["True", "None"], said


def test_children_of_ones_own_keep_their_exit_status() -> None:
    now = [0.0]
    reaper = OrphanReaper(owners_s=10.0, clock=lambda: now[0])
    ours = starter.start([sys.executable, "-c", "raise SystemExit(7)"])
    wait_for_zombie(ours.pid)
    for _ in range(3):
        assert ours.pid not in reaper.turn()
        now[0] += 100.0
    assert ours.wait() == 7


def test_a_zombie_that_no_owner_waits_for_is_reaped_after_a_while() -> None:
    now = [0.0]
    pid = os.posix_spawn("/bin/true", ["true"], {})
    reaper = OrphanReaper(lambda other: other != pid, owners_s=10.0, clock=lambda: now[0])
    wait_for_zombie(pid)
    assert pid not in reaper.turn()
    now[0] += 10.0
    assert pid in reaper.turn() and process.state(pid) is None
