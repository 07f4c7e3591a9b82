"""A service through its life, with real processes: started, asked, replaced, given up, stopped, adopted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest
from pace import patience

from weft.supervise import process
from weft.supervise.child import RestartPolicy
from weft.supervise.graph import state_of
from weft.supervise.held import Adopted, ProcessIdentity
from weft.supervise.process import Exit
from weft.supervise.service import (
    HEALTHY,
    Command,
    ExitMeaning,
    HealthReport,
    Moving,
    Service,
    ServiceHealth,
    StopMethod,
)

QUICK = RestartPolicy(first_delay_s=0.01, max_failures=3, stop_grace_s=60.0)
LISTENS = "import sys; sys.stdin.read()"  # ends when its standard input does
SLEEPS = "import time; time.sleep(600)"
DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)"


def python(code: str, *arguments: str, **options: object) -> Callable[[], Command]:
    return lambda: Command([sys.executable, "-c", code, *arguments], **options)  # type: ignore[arg-type]


@pytest.fixture
def keep() -> Iterator[Callable[[Service], Service]]:
    kept: list[Service] = []

    def note(service: Service) -> Service:
        kept.append(service)
        return service

    yield note
    for service in kept:
        service.kill()
        service.check()


def until(service: Service, condition: Callable[[], object], limit_s: float = 30) -> None:
    end = time.monotonic() + patience(limit_s)
    while not condition():
        assert time.monotonic() < end, (service.child.state, service.report, service.failure)
        service.check()
        service.act()
        time.sleep(0.005)


def line_of(fd: int, line: bytes) -> None:
    heard = b""
    while len(heard) < len(line):
        heard += os.read(fd, 1)
    assert heard == line


def has_gone(pid: int) -> bool:
    return process.has_ended(pid)


Keep = Callable[[Service], Service]


def test_it_is_started_and_healthy_when_its_check_says_so(keep: Keep, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    service = keep(
        Service(
            "one",
            python(SLEEPS),
            health=lambda _: HEALTHY if ready.exists() else HealthReport(ServiceHealth.STARTING, "no file yet"),
        )
    )
    assert not service.healthy and service.identity is None
    until(service, lambda: service.report.reason == "no file yet")
    assert service.child.state.value == "starting" and not service.healthy
    ready.touch()
    until(service, lambda: service.healthy)
    assert service.child.state.value == "running"
    assert service.pid is not None and not has_gone(service.pid)
    assert service.child.starts == 1


def test_one_that_dies_is_started_again(keep: Keep) -> None:
    service = keep(Service("one", python(SLEEPS), policy=QUICK))
    until(service, lambda: service.healthy)
    first = service.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    until(service, lambda: service.healthy and service.pid != first)
    assert service.child.last_exit == Exit(None, signal.SIGKILL)


def test_one_that_is_not_ready_in_time_is_replaced(keep: Keep) -> None:
    policy = RestartPolicy(first_delay_s=0.01, start_timeout_s=0.05, max_failures=1000)
    service = keep(Service("one", python(SLEEPS), policy=policy, health=lambda _: HealthReport(ServiceHealth.STARTING)))
    until(service, lambda: service.child.starts >= 3)
    assert service.child.last_exit == Exit(None, signal.SIGKILL)


def test_one_that_answers_but_still_loads_is_given_its_time(keep: Keep) -> None:
    policy = RestartPolicy(first_delay_s=0.01, start_timeout_s=0.05)
    answers = iter([HealthReport(ServiceHealth.LOADING)] * 40)
    service = keep(Service("one", python(SLEEPS), policy=policy, health=lambda _: next(answers, HEALTHY)))
    until(service, lambda: service.report.health is ServiceHealth.LOADING)
    assert not service.healthy
    until(service, lambda: service.healthy)
    assert service.child.starts == 1


def test_an_unhealthy_one_is_replaced(keep: Keep) -> None:
    sick: set[int] = set()
    service = keep(
        Service(
            "one",
            python(SLEEPS),
            policy=QUICK,
            health=lambda pid: HealthReport(ServiceHealth.UNHEALTHY, "says no") if pid in sick else HEALTHY,
        )
    )
    until(service, lambda: service.healthy)
    first = service.pid
    assert first is not None
    sick.add(first)
    until(service, lambda: service.healthy and service.pid != first)
    assert has_gone(first)
    assert service.child.last_exit == Exit(None, signal.SIGKILL)


def test_one_whose_counts_stand_still_is_replaced_and_one_that_moves_is_not(keep: Keep) -> None:
    counts, moves = count(), True
    last = 0

    def read() -> int:
        nonlocal last
        last = next(counts) if moves else last
        return last

    service = keep(Service("one", python(SLEEPS), policy=QUICK, health=Moving(read, limit_s=0.05)))
    until(service, lambda: service.healthy)
    first, end = service.pid, time.monotonic() + 0.2
    while time.monotonic() < end:
        service.check()
        service.act()
    assert service.pid == first
    moves = False
    until(service, lambda: service.healthy and service.pid != first)


def test_a_process_that_has_not_moved_yet_may_have_much_to_read() -> None:
    now_s, value = 0.0, 7935
    check = Moving(lambda: value, 30.0, start_s=120.0, clock=lambda: now_s)
    assert check(1) == HEALTHY
    now_s = 119.0
    assert check(1) == HEALTHY, "it is still reading"
    value = 7936
    assert check(1) == HEALTHY
    now_s = 149.5
    assert check(1).health is ServiceHealth.UNHEALTHY, "it had begun"
    assert check(2) == HEALTHY, "another process begins anew"
    now_s = 269.0
    assert check(2) == HEALTHY
    now_s = 270.0
    assert check(2).health is ServiceHealth.UNHEALTHY


def test_a_process_that_makes_progress_with_its_end_is_not_killed_and_one_that_does_not_is(keep: Keep) -> None:
    now_s, steps = 0.0, 0
    read, told = os.pipe()
    argv = [sys.executable, "-c", f"import os; os.dup2({told}, 1)\n{DEAF}"]
    service = keep(
        Service(
            "slow", lambda: Command(argv, inherits=(told,)), policy=QUICK, ending=lambda: steps, clock=lambda: now_s
        )
    )
    until(service, lambda: service.healthy)
    line_of(read, b"deaf\n")
    os.close(read)
    pid = service.pid
    service.stop(b"")
    for _ in range(5):
        now_s += QUICK.stop_grace_s * 0.9
        steps += 1
        service.check()
        service.act()
        assert service.pid == pid, "it is at work"
    now_s += QUICK.stop_grace_s * 1.1
    service.act()
    until(service, lambda: service.has_ended)
    assert str(service.child.last_exit) == "killed by SIGKILL"


def test_a_crash_loop_is_given_up_with_the_last_words(keep: Keep) -> None:
    code = "import sys; print('x' * 200_000, file=sys.stderr); sys.exit('no such table: pages')"
    service = keep(Service("store", python(code, keeps_words=True), policy=QUICK))
    until(service, lambda: service.has_ended)
    assert service.child.looping and service.child.starts == 3
    assert service.failure.startswith("store exited with code 1, 3 times in a row: ")
    assert service.failure.endswith("no such table: pages")
    assert len(service.stderr_tail) < 10_000, "only the end is kept"
    service.act()
    assert service.pid is None, "it is not started again"


def test_a_program_that_is_not_there_is_given_up_by_name(keep: Keep) -> None:
    service = keep(Service("one", lambda: Command(["/no/such/program"]), policy=QUICK))
    until(service, lambda: service.has_ended)
    assert service.failure == "one ended unseen, 3 times in a row: /no/such/program: No such file or directory"


def test_an_end_that_is_final_is_not_tried_again_and_a_harmless_one_is_no_failure(keep: Keep) -> None:
    final = keep(Service("one", python("raise SystemExit(2)"), judge=lambda _: ExitMeaning.FINAL))
    until(final, lambda: final.has_ended)
    assert final.child.starts == 1
    harmless = keep(Service("one", python("raise SystemExit(2)"), policy=QUICK, judge=lambda _: ExitMeaning.HARMLESS))
    until(harmless, lambda: harmless.child.starts > QUICK.max_failures + 2)
    assert harmless.child.failures == 0


def test_one_that_is_done_is_healthy_and_not_started_again_unless_it_is_told_to(keep: Keep) -> None:
    service = keep(Service("one", python("pass"), judge=lambda _: ExitMeaning.DONE))
    until(service, lambda: service.has_ended)
    assert service.healthy and state_of(service) == "done" and not service.last_error and service.child.starts == 1
    service.restart()
    until(service, lambda: service.starts == 2 and service.has_ended)
    early = keep(Service("two", python("pass")))
    early.be_done()
    early.act()
    assert early.healthy and early.has_ended and not early.starts


def test_begun_anew_it_is_started_again(keep: Keep) -> None:
    service = keep(Service("one", python("raise SystemExit(2)"), judge=lambda _: ExitMeaning.FINAL))
    until(service, lambda: service.has_ended)
    service.allow_restart()
    until(service, lambda: service.has_ended)
    assert service.child.starts == 1 and service.child.last_exit == Exit(2)


@pytest.mark.parametrize(
    ("code", "ask", "how"),
    [
        (SLEEPS, StopMethod.TERMINATE, Exit(None, signal.SIGTERM)),
        (LISTENS, StopMethod.CLOSE_INPUT, Exit(0)),
    ],
)
def test_it_ends_by_itself_when_it_is_asked(keep: Keep, code: str, ask: StopMethod, how: Exit) -> None:
    service = keep(Service("one", python(code, stdin=b"order"), ask=ask, policy=QUICK))
    until(service, lambda: service.healthy)
    assert service.stop_and_wait() == how
    assert service.has_ended and not service.child.failures
    assert service.stop_and_wait() == how, "safe to call twice"


def test_a_message_takes_the_place_of_a_signal(keep: Keep) -> None:
    code = "import sys; sys.exit(3 if sys.stdin.readline() == 'enough\\n' else 4)"
    service = keep(Service("one", python(code, stdin=b""), policy=QUICK))
    until(service, lambda: service.healthy)
    service.stop(b"enough\n")
    until(service, lambda: service.has_ended)
    assert service.child.last_exit == Exit(3)


def test_one_that_does_not_hear_is_killed_when_its_grace_is_over(keep: Keep) -> None:
    said, told = os.pipe()
    service = keep(
        Service(
            "one", lambda: Command([sys.executable, "-c", f"import os; os.dup2({told}, 1)\n{DEAF}"], inherits=(told,))
        )
    )
    until(service, lambda: service.healthy)
    line_of(said, b"deaf\n")
    service.stop(grace_s=0.1)
    until(service, lambda: service.has_ended)
    assert service.child.last_exit == Exit(None, signal.SIGKILL)
    assert os.read(said, 10) == b"", "our own copy of what it inherited is closed"
    os.close(said)


def test_it_waits_for_what_it_needs(keep: Keep, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    below = keep(
        Service(
            "redis",
            python(SLEEPS),
            health=lambda _: HEALTHY if ready.exists() else HealthReport(ServiceHealth.STARTING),
        )
    )
    above = keep(Service("worker", python(SLEEPS), needs=[below]))
    until(below, lambda: below.pid is not None)
    for _ in range(20):
        below.check()
        above.act()
    assert above.pid is None
    ready.touch()
    until(below, lambda: below.healthy)
    until(above, lambda: above.healthy)


# ── adoption ───────────────────────────────────────────────────────────────────────────────────────────────────────

LEAVES = """
import subprocess, sys
from weft.supervise.held import ProcessIdentity
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]], start_new_session=True, stdout=subprocess.DEVNULL)
while not (found := ProcessIdentity.of(child.pid)) or found.argv[1:2] != ("-c",): pass
print(found.pid, found.birth, flush=True)
"""


def left_behind(code: str) -> ProcessIdentity:
    """A process whose parent has gone."""
    told = subprocess.run([sys.executable, "-c", LEAVES, code], stdout=subprocess.PIPE, check=True, text=True).stdout
    pid, birth = map(int, told.split())
    return ProcessIdentity(pid, birth, (sys.executable, "-c", code))


def test_a_process_that_was_left_is_taken_over_watched_and_replaced(keep: Keep) -> None:
    identity = left_behind(SLEEPS)
    service = keep(Service("one", python(SLEEPS), policy=QUICK))
    assert service.adopt(identity)
    assert service.pid == identity.pid and service.identity == identity
    until(service, lambda: service.healthy)
    assert service.child.starts == 1
    assert not service.adopt(identity), "it is there already"
    os.kill(identity.pid, signal.SIGKILL)
    until(service, lambda: service.healthy and service.pid != identity.pid)
    assert service.child.last_exit == Exit(), "nobody could see how"


def test_an_adopted_one_is_stopped_by_a_signal_as_it_has_no_pipe_to_us(keep: Keep) -> None:
    identity = left_behind(SLEEPS)
    service = keep(Service("one", python(SLEEPS), ask=StopMethod.CLOSE_INPUT, policy=QUICK))
    assert service.adopt(identity)
    service.check()
    service.stop(b"message\n")
    until(service, lambda: service.has_ended)
    assert has_gone(identity.pid)


def test_a_pid_that_is_someone_elses_is_never_signalled(keep: Keep) -> None:
    stranger = subprocess.Popen([sys.executable, "-c", SLEEPS])
    try:
        true = None
        while true is None or true.argv[1:2] != ("-c",):
            true = ProcessIdentity.of(stranger.pid)
        service = keep(Service("one", python(SLEEPS), policy=QUICK))
        for wrong in (
            ProcessIdentity(true.pid, true.birth - 1, true.argv),
            ProcessIdentity(true.pid, true.birth, (sys.executable, "-c", "another program")),
        ):
            assert not service.adopt(wrong)
            assert service.pid is None
            service.kill()
            service.stop_and_wait()
            service.allow_restart()
        assert stranger.poll() is None
        assert Adopted.adopt(true) is not None
    finally:
        stranger.kill()
        stranger.wait()


def test_a_zombie_and_one_that_has_gone_are_not_adopted() -> None:
    child = subprocess.Popen([sys.executable, "-c", SLEEPS])
    identity = None
    while identity is None or identity.argv[1:2] != ("-c",):
        identity = ProcessIdentity.of(child.pid)
    child.kill()
    end = time.monotonic() + patience(10)
    while process.state(child.pid) != "Z":
        assert time.monotonic() < end
    assert Adopted.adopt(identity) is None
    child.wait()
    assert Adopted.adopt(identity) is None


def test_a_signal_to_a_process_that_has_ended_goes_nowhere(keep: Keep) -> None:
    identity = left_behind(SLEEPS)
    held = Adopted.adopt(identity)
    assert held is not None
    os.kill(identity.pid, signal.SIGKILL)
    assert held.wait(patience(10))
    held.send(signal.SIGTERM)
    assert held.poll() == Exit()
    held.close()


# ── whose child it is ──────────────────────────────────────────────────────────────────────────────────────────────

TIED = """
import sys, time
from weft.supervise.process import die_with_parent
die_with_parent(int(sys.argv[1]))
print("tied", flush=True)
time.sleep(600)
"""


def test_it_outlives_the_thread_that_started_it(keep: Keep) -> None:
    said, told = os.pipe()
    code = f"import os; os.dup2({told}, 1)\n{TIED}"
    service = keep(
        Service("one", lambda: Command([sys.executable, "-c", code, str(os.getpid())], inherits=(told,)), policy=QUICK)
    )
    thread = threading.Thread(target=service.act)
    thread.start()
    thread.join()
    line_of(said, b"tied\n")
    os.close(said)
    time.sleep(0.05)  # the kernel kills at once: this is for a failure to show, not for the test to pass
    service.check()
    assert service.pid is not None and not has_gone(service.pid)


OWNER = """
import os, sys, threading, time
from weft.supervise.service import Command, Service
service = Service("one", lambda: Command([sys.executable, "-c", sys.argv[1], str(os.getpid())]))
threading.Thread(target=service.act).start()
while service.pid is None: time.sleep(0.01)
print(service.pid, flush=True)
time.sleep(600)
"""


def test_it_dies_with_the_process_that_started_it() -> None:
    owner = subprocess.Popen([sys.executable, "-c", OWNER, TIED], stdout=subprocess.PIPE)
    assert owner.stdout is not None
    pid = int(owner.stdout.readline())
    assert owner.stdout.readline() == b"tied\n"
    owner.kill()
    owner.communicate()
    end = time.monotonic() + patience(10)
    while not has_gone(pid):
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_fork_starts_its_own_from_a_thread_of_its_own(keep: Keep) -> None:
    keep(first := Service("one", python(SLEEPS)))
    first.act()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            second = Service("two", python(SLEEPS))
            second.act()
            second.stop_and_wait()
            code = 0 if second.child.last_exit is not None else 1
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_it_does_not_hear_the_terminals_interrupt_unless_it_shall(keep: Keep) -> None:
    def blocked(hears: bool) -> bool:
        service = keep(Service("one", python(SLEEPS, hears_interrupts=hears)))
        service.act()
        mask = next(
            line.split()[1] for line in Path(f"/proc/{service.pid}/status").read_text().splitlines() if "SigBlk" in line
        )
        return bool(int(mask, 16) >> (signal.SIGINT - 1) & 1)

    assert blocked(hears=False)
    assert not blocked(hears=True)
