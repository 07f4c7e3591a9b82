"""`weft up`, `down`, `status`, `restart`, `logs` with real processes: nothing doubled, nothing left."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
from crawling import environment, until, weft
from pace import patience
from supervised import System

from weft.supervise import process
from weft.supervise.held import ProcessIdentity
from weft.system import control
from weft.system import state as kept
from weft.system.supervisor import Stopping, Supervisor

SLEEPS = [sys.executable, "-Sc", "import time; time.sleep(600)"]


@pytest.fixture
def system(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[System]:
    system = System(tmp_path / "data", *getattr(request, "param", ()))
    yield system
    system.down()
    system.is_gone()


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    popen = subprocess.Popen(SLEEPS)
    yield popen
    assert popen.poll() is None, "a stranger was signalled"
    popen.kill()
    popen.wait()


def test_two_at_once_double_nothing_and_down_leaves_nothing(system: System) -> None:
    with ThreadPoolExecutor(2) as threads:
        first, second = (future.result() for future in [threads.submit(system.up) for _ in range(2)])
    assert sorted([first["started"], second["started"]]) == [False, True]
    assert first["urls"] == second["urls"]
    pids = system.pids()
    assert set(pids) == {"engine", "api"} and all(row["healthy"] for row in system.status().values())
    assert system.up()["started"] is False and system.pids() == pids
    found = set(system.processes())
    of_engine = set(process.children(pids["engine"]))  # its parsers
    assert found - of_engine == {system.supervisor, *pids.values()}

    refused = weft("serve", "--port", "0", "--data-dir", system.folder)
    assert refused.returncode == 2 and "`weft down` stops it" in refused.stderr
    done = weft("restart", "api", "--data-dir", system.folder)
    assert done.returncode == 0 and "healthy again" in done.stderr
    after = system.pids()
    assert after["api"] != pids["api"] and after["engine"] == pids["engine"]
    other = weft("up", "--data-dir", system.folder, "--port", "0", "--redis-url", "redis://127.0.0.1:1")
    assert other.returncode == 0 and "they run with other settings" in other.stderr and system.pids() == after
    assert "redis_url is not used: add --cluster, or `redis` to `services`" in other.stderr
    wrong = weft("restart", "enginee", "--data-dir", system.folder)
    assert wrong.returncode == 2 and "did you mean 'engine'?" in wrong.stderr

    for name in ("engine", "api", "supervisor"):
        said = weft("logs", name, "-n", "1", "--data-dir", system.folder)
        assert said.returncode == 0 and len(said.stdout.splitlines()) == 1
    logs = {path.name for path in (system.folder / "logs").iterdir()}
    assert "api.log" in logs and "redis_0.log" not in logs
    found = json.loads(weft("logs", "api", "--json", "--data-dir", system.folder).stdout)
    assert found["service"] == "api" and "process started" in found["files"][0]["lines"][0]

    assert system.down()["stopped"] == ["api", "engine"]
    assert system.processes() == []
    assert {row["state"] for row in system.status().values()} == {"stopped"}
    assert system.down()["stopped"] == []
    late = weft("restart", "api", "--data-dir", system.folder)
    assert late.returncode == 2 and "weft up" in late.stderr


@pytest.mark.parametrize("system", [("--services", "redis,engine,api")], indirect=True)
def test_what_a_killed_supervisor_leaves_is_found_and_no_stranger_is(
    system: System, stranger: subprocess.Popen[bytes]
) -> None:
    logs = system.folder / "logs"
    logs.mkdir(parents=True)
    for name in ("api.log", "redis_0.log", "supervisor.log"):
        (logs / name).symlink_to("/dev/full")  # a full disk under a log ends nobody
    system.up()
    pids = system.pids()
    os.kill(pids["api"], signal.SIGSTOP)  # one that does not see its supervisor's end
    os.kill(system.supervisor, signal.SIGKILL)
    until(lambda: process.has_ended(pids["redis"]), 10, "the end of Redis with its supervisor")
    row = system.status()["api"]
    assert (row["state"], row["healthy"], row["pid"]) == ("orphaned", False, pids["api"])
    unrecorded = subprocess.Popen(SLEEPS, env=system.mark())  # started, and the supervisor died before it wrote it down
    whose = ProcessIdentity.of(stranger.pid)
    assert whose is not None
    before = kept.read(system.folder)
    assert before is not None
    before.process_by_service["redis"] = kept.RecordedProcess(
        whose.pid, whose.birth - 1, before.process_by_service["redis"].argv
    )
    kept.write(system.folder, before)

    system.up()
    assert unrecorded.wait(patience(5)) == -signal.SIGTERM
    again = system.pids()
    assert not set(again.values()) & set(pids.values()) and stranger.poll() is None
    os.kill(again["api"], signal.SIGSTOP)
    supervisor = system.supervisor
    os.kill(supervisor, signal.SIGKILL)
    until(lambda: process.has_ended(supervisor), 10, "the end of the supervisor")
    (system.folder / kept.FILE).write_bytes(b"\0 not what was written")
    assert system.status() == {}
    assert len(system.down()["stopped"]) >= 1
    system.is_gone()


def test_a_supervisor_that_hangs_is_named_and_stopped(tmp_path: Path) -> None:
    system = System(tmp_path, "--services", "redis")
    system.up()
    try:
        pid = system.supervisor
        os.kill(pid, signal.SIGSTOP)
        row = system.status()["redis"]
        second = weft("up", "--services", "redis", "--data-dir", system.folder)
    finally:
        system.down()
    assert (row["state"], row["healthy"]) == ("unwatched", False) and "has not answered" in row["last_error"]
    assert second.returncode == 2 and f"the supervisor (process {pid}) is stopped" in second.stderr
    assert f"`kill -CONT {pid}` continues it; `weft down --data-dir {system.folder}` ends it" in second.stderr
    system.is_gone()


def test_down_ends_a_start_that_cannot_be_asked_yet(tmp_path: Path) -> None:
    popen = subprocess.Popen(
        [sys.executable, "-m", "weft", "up", "--port", "0", "--data-dir", str(tmp_path)], stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL, env=environment(), text=True,
    )  # fmt: skip
    until(lambda: bool(process.lock_holders(tmp_path / kept.LOCK)), 20, "the start")
    assert control.down(tmp_path)
    _, said = popen.communicate(timeout=patience(20))
    assert popen.returncode == 1 and "stopped while they were starting, by `weft down` or a signal" in said
    System(tmp_path).is_gone()


def test_what_is_in_the_way_is_told_before_anything_is_started(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    taken = socket.create_server(("127.0.0.1", 0))
    for flags, said in (
        (["--services", "redis,foo"], "no service 'foo'"),
        (["--data-dir", str(tmp_path / "file")], "there is a file of that name"),
        (["--host", "0.0.0.0"], "API keys"),
        (["--services", "redis", "--redis-url", "http://127.0.0.1"], "redis_url: must begin with redis://"),
        (["--port", str(taken.getsockname()[1])], "Address already in use; choose another --port"),
    ):
        done = weft("up", "--port", "0", "--data-dir", tmp_path / "data", *flags)
        assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr
        assert said in done.stderr.replace("--redis-url", "redis_url")
    taken.close()
    System(tmp_path / "data").is_gone()
    assert "server started" not in (tmp_path / "data" / "logs" / "supervisor.log").read_text()


SCRIPT = """
import os, signal, sys, time
from weft.system.supervisor import Orchestrator, Supervisor
assert Orchestrator is Supervisor
with Supervisor(data_dir=sys.argv[1], services=["redis"]) as supervisor:
    supervisor.start("redis")
    supervisor.start_redis()
    print(supervisor.status().services[0].pid, flush=True)
    if sys.argv[2] == "exception":
        raise ValueError("of the block")
    if sys.argv[2] == "exit":
        sys.exit(7)
    time.sleep(600)
"""


@pytest.mark.parametrize(
    ("how", "code"), [("exception", 1), ("exit", 7), ("SIGINT", -signal.SIGINT), ("SIGTERM", 143), ("down", 143)]
)
def test_every_way_out_of_the_block_is_a_clean_stop(tmp_path: Path, how: str, code: int) -> None:
    popen = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(tmp_path), how], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=environment(), text=True,
    )  # fmt: skip
    assert popen.stdout is not None
    redis = int(popen.stdout.readline())
    assert not process.has_ended(redis)
    if how.startswith("SIG"):
        popen.send_signal(getattr(signal, how))
    elif how == "down":
        assert System(tmp_path).down()["stopped"] == ["redis"]
    _, said = popen.communicate(timeout=patience(20))
    assert popen.returncode == code, said
    assert process.state(redis) is None
    assert System(tmp_path).status()["redis"]["state"] == "stopped"
    System(tmp_path).is_gone()


@pytest.mark.parametrize("begin", ["start", "restart", "restart_if_dead"])
def test_nothing_begins_anew_while_all_are_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begin: str) -> None:
    looks = threading.Event()
    with Supervisor(data_dir=str(tmp_path), services=["redis"]) as supervisor, ThreadPoolExecutor(1) as threads:
        supervisor.start("redis")
        # Whoever stops them sees that they have ended only when it has slept.
        sleepy = SimpleNamespace(sleep=lambda _s: looks.wait(), monotonic=time.monotonic)
        monkeypatch.setattr("weft.system.supervisor.time", sleepy)
        stopping = threads.submit(supervisor.stop_all)
        try:
            until(lambda: supervisor.status().services[0].state == "stopped", 60, "the end of Redis")
            with pytest.raises(Stopping):
                getattr(supervisor, begin)("redis")
        finally:
            looks.set()
            monkeypatch.undo()
        stopping.result(patience(60))
        assert System(tmp_path).processes() == []
        supervisor.start("redis")
    System(tmp_path).is_gone()


def test_threads_may_start_stop_and_ask_as_they_like(tmp_path: Path) -> None:
    before = {thread.name for thread in threading.enumerate()}

    def hammer(number: int) -> None:
        for step in range(6):
            try:
                if (number + step) % 3 == 0:
                    supervisor.stop_all()
                elif (number + step) % 3 == 1:
                    supervisor.start("redis")
                else:
                    supervisor.restart_if_dead("redis")
            except Stopping:
                pass  # by another thread
            assert {row.name for row in supervisor.status().services} == {"redis"}

    with Supervisor(data_dir=str(tmp_path), services=["redis"]) as supervisor, ThreadPoolExecutor(3) as threads:
        for done in [threads.submit(hammer, number) for number in range(3)]:
            done.result(patience(60))
        supervisor.start("redis")
        assert len(System(tmp_path).processes()) == 1
    System(tmp_path).is_gone()
    until(lambda: {thread.name for thread in threading.enumerate()} - before <= {"starter"}, 10, "the threads' end")
