"""What a supervisor writes down: one holder of a folder, a mark of its own, records that can be trusted or are none."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import msgspec
import pytest

from weft.config import load_service
from weft.errors import BadInput, Busy
from weft.supervise import process
from weft.supervise.graph import Graph
from weft.supervise.held import ProcessIdentity
from weft.system import control
from weft.system import state as kept
from weft.system.recorder import Recorder, digest
from weft.system.state import RecordedProcess, ServiceRow, SystemState


def written(**changed: object) -> SystemState:
    me = RecordedProcess.of(ProcessIdentity.of(os.getpid()))
    assert me is not None
    rows = (ServiceRow(name="redis", state="running", healthy=True, pid=me.pid),)
    state = SystemState(boot=process.boot_id(), supervisor=me, services=rows, process_by_service={"redis": me})
    return msgspec.structs.replace(state, **changed)


def test_a_folder_has_one_holder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "LOCK_WAIT_S", 0.05)
    lock = kept.acquire_lock(tmp_path)
    kept.write(tmp_path, written())
    with pytest.raises(Busy, match=rf"is running there \(process {os.getpid()}\): `weft down` stops it"):
        kept.acquire_lock(tmp_path)
    os.close(lock)
    os.close(kept.acquire_lock(tmp_path))


def test_a_holder_that_is_stopped_is_named_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "LOCK_WAIT_S", 0.05)
    lock = kept.acquire_lock(tmp_path)
    holder = subprocess.Popen(["sleep", "600"], pass_fds=(lock,))
    os.close(lock)
    holder.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, holder.pid, os.WSTOPPED | os.WNOWAIT)
    try:
        with pytest.raises(Busy, match=rf"\(process {holder.pid}\): it is stopped: `kill -CONT {holder.pid}`"):
            kept.acquire_lock(tmp_path)
    finally:
        holder.kill()
        holder.wait()


def test_a_folder_keeps_its_mark_and_a_copy_has_another(tmp_path: Path) -> None:
    def mark(folder: Path) -> str:
        lock = kept.acquire_lock(folder)
        try:
            return kept.mark_of(lock)
        finally:
            os.close(lock)

    mine = mark(tmp_path / "one")
    assert mark(tmp_path / "one") == mine and mine.partition("=")[2]
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    (tmp_path / "one").rename(tmp_path / "moved")
    assert mark(tmp_path / "moved") == mine
    assert mark(tmp_path / "two") != mine
    (tmp_path / "moved" / kept.LOCK).write_bytes(b"\0\n" * 40)  # what is no mark is replaced
    assert mark(tmp_path / "moved") == mark(tmp_path / "moved") != mine


def test_a_folder_that_cannot_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="there is a file of that name"):
        kept.acquire_lock(tmp_path / "file")


def test_records_are_read_again_and_only_in_the_same_run_of_the_machine(tmp_path: Path) -> None:
    assert kept.read(tmp_path) is None and kept.recorded(None) == []
    state = written()
    kept.write(tmp_path, state)
    assert kept.read(tmp_path) == state
    assert kept.recorded(state) == [ProcessIdentity.of(os.getpid())]
    assert kept.recorded(written(boot="another")) == []
    assert (tmp_path / kept.FILE).stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b'{"pid": 1}', b'{"schema": 1, "boot": 5}', b"[]"])
def test_a_record_that_cannot_be_read_names_nobody(tmp_path: Path, content: bytes) -> None:
    (tmp_path / kept.FILE).write_bytes(content)
    assert kept.read(tmp_path) is None


def test_what_cannot_be_written_now_is_written_later(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, load_service(environment={}), in_background=False)
    (tmp_path / kept.FILE).mkdir()
    state = recorder.state(Graph(), {}, ["redis"], None, is_up=False)
    recorder.write(state)
    (tmp_path / kept.FILE).rmdir()
    recorder.write(state)
    assert kept.read(tmp_path) == state


def test_settings_are_told_apart_and_not_told() -> None:
    def told(**settings: str) -> str:
        return digest(load_service(environment={}, flags=settings))

    assert told(redis_password="a") == told(redis_password="a", data_dir="./x") != told(redis_password="b")


def test_the_cause_of_a_restart_is_shown_with_its_time_once_it_is_over() -> None:
    row = ServiceRow(name="api", state="running", healthy=True, restarts=1, last_error="killed by SIGKILL")
    survived = msgspec.structs.replace(row, last_error_at="2026-02-04T10:30:45.123Z")
    assert re.fullmatch(r"last error, \d+ h \d\d min ago: killed by SIGKILL", survived.note)
    assert msgspec.structs.replace(survived, healthy=False).note == "killed by SIGKILL"


def test_a_supervisor_that_has_died_is_said_and_no_service_has_an_old_cause(tmp_path: Path) -> None:
    gone = RecordedProcess(pid=os.getpid(), birth=1, argv=())
    row = ServiceRow(
        name="redis", state="running", healthy=True, pid=gone.pid, last_error="killed by SIGKILL", restarts=1
    )
    failed = ServiceRow(name="api", state="failed", last_error="exited with code 1")
    died = written(supervisor=gone, services=(row, failed), process_by_service={"redis": gone}, is_up=True)
    kept.write(tmp_path, died)
    state, is_watched = control.status(tmp_path)
    assert state is not None and not is_watched
    assert state.supervisor_error.startswith(f"the supervisor (process {gone.pid}) has died")
    assert "`weft up`" in state.supervisor_error
    assert [(one.state, one.last_error) for one in state.rows] == [("stopped", None), ("stopped", "exited with code 1")]

    # as it is after a clean stop
    kept.write(tmp_path, msgspec.structs.replace(died, process_by_service={}, is_up=False))
    stopped, _ = control.status(tmp_path)
    assert stopped is not None and not stopped.supervisor_error
