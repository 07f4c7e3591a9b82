"""What /proc says, asked of real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
from pace import patience

from weft.supervise import process
from weft.supervise.process import Exit


@pytest.mark.parametrize(
    ("how", "text"),
    [
        (Exit(code=3), "exited with code 3"),
        (Exit(signal=11), "killed by SIGSEGV"),
        (Exit(signal=40), "killed by signal 40"),
        (Exit(), "ended unseen"),
    ],
)
def test_exit_reads_well(how: Exit, text: str) -> None:
    assert str(how) == text


def test_exit_from_a_wait_status() -> None:
    child = subprocess.Popen([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"])
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = -9
    how = Exit.from_wait(status, usage.ru_maxrss)
    assert (how.code, how.signal_name) == (None, "SIGKILL")
    assert how.peak_rss_bytes > 1_000_000


def test_state_memory_birth_and_children_of_a_live_process() -> None:
    child = subprocess.Popen(["sleep", "30"], env=os.environ | {"WEFT_TEST_MARK": str(os.getpid())})
    try:
        assert child.pid in process.children(os.getpid())
        assert child.pid in process.pids()
        assert process.rss_bytes(child.pid) > 0
        assert (process.birth(child.pid) or 0) >= (process.birth(os.getpid()) or 0) > 0
        child.send_signal(signal.SIGSTOP)
        until_s = time.monotonic() + patience(5)
        while process.state(child.pid) != "T" and time.monotonic() < until_s:
            time.sleep(0.01)
        assert process.state(child.pid) == "T"
        assert process.with_environment(f"WEFT_TEST_MARK={os.getpid()}") == [child.pid]
    finally:
        child.kill()
        child.wait()


def test_a_process_that_has_gone_is_an_answer() -> None:
    child = subprocess.Popen(["true"])
    child.wait()
    assert process.state(child.pid) is None
    assert process.birth(child.pid) is None
    assert process.rss_bytes(child.pid) == 0
    assert process.children(child.pid) == []
    assert not process.kill(child.pid)


def test_child_dies_with_its_parent() -> None:
    code = (
        "import os, time; from weft.supervise import process\n"
        "parent = os.getpid(); pid = os.fork()\n"
        "if pid == 0: process.die_with_parent(parent); os.write(1, b'x'); time.sleep(60)\n"
        "os.write(1, f'{pid} '.encode()); time.sleep(60)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    told = b""
    while b"x" not in told or b" " not in told:
        told += os.read(parent.stdout.fileno(), 100)
    child = int(told.replace(b"x", b"").split()[0])
    parent.kill()
    parent.wait()
    until_s = time.monotonic() + patience(5)
    while not process.has_ended(child) and time.monotonic() < until_s:
        time.sleep(0.01)
    assert process.has_ended(child)
    parent.stdout.close()


def test_closed_standard_descriptors_are_opened() -> None:
    code = (
        "import os; from weft.supervise import process\n"
        "os.close(0); os.close(2)\n"
        "opened = process.open_standard_descriptors()\n"
        "print(opened, [os.readlink(f'/proc/self/fd/{fd}') for fd in (0, 2)], process.open_standard_descriptors())"
    )
    told = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True).stdout
    assert told == "[0, 2] ['/dev/null', '/dev/null'] []\n"
