"""Processes that a killed supervisor has left: those of a record or with the mark, and never anybody else's."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from pace import patience

from weft.supervise import leftovers, process
from weft.supervise.held import ProcessIdentity
from weft.supervise.leftovers import MARK

SLEEPS = [sys.executable, "-Sc", "import time; print('up', flush=True); time.sleep(600)"]
DEAF = [
    sys.executable,
    "-Sc",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)",
]
# On SIGUSR1 its main thread ends alone, as after a SIGKILL while another one waits for the disk.
EXIT_CALL = {"x86_64": 60}.get(os.uname().machine, 93)
HALF_ENDED = [
    sys.executable,
    "-Sc",
    f"""import ctypes, signal, threading, time
exit_thread = ctypes.CDLL(None).syscall
signal.signal(signal.SIGUSR1, lambda *_: exit_thread({EXIT_CALL}, 0))
threading.Thread(target=time.sleep, args=[600]).start()
print('up', flush=True)
while True: signal.pause()""",
]


class Started:
    """Processes of a test."""

    def __init__(self) -> None:
        self.all: list[subprocess.Popen[bytes]] = []

    def __call__(self, mark: str | None = None, argv: list[str] = SLEEPS) -> subprocess.Popen[bytes]:
        more = {} if mark is None else {MARK: mark}
        popen = subprocess.Popen(argv, stdout=subprocess.PIPE, env={**os.environ, **more})
        assert popen.stdout is not None
        assert popen.stdout.readline() == b"up\n"
        self.all.append(popen)
        return popen


@pytest.fixture
def started() -> Iterator[Started]:
    started = Started()
    yield started
    for popen in started.all:
        popen.kill()
        popen.wait()
        assert popen.stdout is not None
        popen.stdout.close()


def identity(popen: subprocess.Popen[bytes]) -> ProcessIdentity:
    found = ProcessIdentity.of(popen.pid)
    assert found is not None
    return found


def test_recorded_and_marked_ones_are_found_and_strangers_are_not(started: Started) -> None:
    mine = f"test-{os.getpid()}-{time.monotonic_ns()}"
    recorded, marked, both, stranger, others = (
        started(),
        started(mine),
        started(mine),
        started(),
        started(f"{mine}0"),  # of another folder, whose mark begins alike
    )
    reused = dataclasses.replace(identity(stranger), birth=identity(stranger).birth - 1)
    renamed = dataclasses.replace(identity(stranger), argv=("redis-server",))
    gone = ProcessIdentity(2**22 + 1, 1, ("weft",))
    nonsense = ProcessIdentity(-5, 1, ("weft",))
    found = leftovers.find([identity(recorded), identity(both), reused, renamed, gone, nonsense], f"{MARK}={mine}")
    assert sorted(one.pid for one in found) == sorted([recorded.pid, marked.pid, both.pid])
    leftovers.end(found, patience(5))
    for popen in (recorded, marked, both):
        assert popen.wait(patience(5)) == -signal.SIGTERM
    assert stranger.poll() is None and others.poll() is None


def test_one_that_has_changed_its_command_line_is_known_by_birth_and_mark(started: Started) -> None:
    mine = f"test-{os.getpid()}-{time.monotonic_ns()}"
    popen = started(mine)
    before = dataclasses.replace(identity(popen), argv=("launcher",))
    found = leftovers.find([before], f"{MARK}={mine}")
    assert [one.pid for one in found] == [popen.pid]
    leftovers.end(found, patience(5))


def test_stopped_and_deaf_ones_are_ended_too(started: Started) -> None:
    mine = f"test-{os.getpid()}-{time.monotonic_ns()}"
    stopped, deaf = started(mine), started(mine, DEAF)
    os.kill(stopped.pid, signal.SIGSTOP)
    leftovers.end(leftovers.find([], f"{MARK}={mine}"), 0.2)
    assert deaf.wait(patience(5)) == -signal.SIGKILL
    assert stopped.wait(patience(5)) in (-signal.SIGTERM, -signal.SIGKILL)
    assert leftovers.find([], f"{MARK}={mine}") == []


def test_one_whose_last_threads_are_ending_is_waited_for(started: Started) -> None:
    popen = started(argv=HALF_ENDED)
    record, until = identity(popen), time.monotonic() + patience(5)
    popen.send_signal(signal.SIGUSR1)
    while process.state(popen.pid) != "Z":
        assert time.monotonic() < until
    assert not process.has_ended(popen.pid)
    found = leftovers.find([record], "X=nobody")
    assert [one.pid for one in found] == [popen.pid]
    leftovers.end(found, patience(5))
    assert process.has_ended(popen.pid)
    assert leftovers.find([record], "X=nobody") == []


@pytest.mark.parametrize("mark", ["", "=", f"{MARK}=", "=x"])
def test_a_mark_that_every_process_would_carry_is_refused(mark: str) -> None:
    with pytest.raises(ValueError):
        leftovers.find([], mark)


def test_descent(started: Started) -> None:
    popen = started()
    assert process.descends_from(popen.pid, os.getpid())
    assert not process.descends_from(os.getpid(), popen.pid)
    assert not process.descends_from(os.getpid(), os.getpid())
    assert not process.descends_from(2**22 + 1, os.getpid())
