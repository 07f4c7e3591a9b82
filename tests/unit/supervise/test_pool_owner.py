"""Who has a run: alive or gone, by number and birth; and what of a dead one is ended, and what is not."""

from __future__ import annotations

import fcntl
import os
import subprocess
from pathlib import Path

import msgspec
import pytest
from pace import patience

from weft.errors import Busy
from weft.pipelines.pool.durability.runs import RunDirectory
from weft.supervise import process
from weft.supervise.pool.owner import MARK, Owner, owner_of, sweep


def dead() -> Owner:
    child = subprocess.Popen(["true"])
    owner = Owner(child.pid, process.birth(child.pid) or 0, f"{child.pid}.test")
    child.wait()
    return owner


def test_an_owner_is_a_number_and_a_birth() -> None:
    this = Owner.this_process()
    assert this.alive
    assert not msgspec.structs.replace(this, birth=this.birth + 1).alive
    assert not dead().alive
    assert Owner.this_process().mark != this.mark


def test_a_zombie_is_not_alive() -> None:
    child = subprocess.Popen(["sleep", "60"])
    owner = Owner(child.pid, process.birth(child.pid) or 0, "")
    alive = [owner.alive]
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    alive.append(owner.alive)
    child.wait()
    assert alive == [True, False]


@pytest.mark.parametrize("garbage", [b"", b"{", b"[1]", b'{"pid": "x"}', b"\xff" * 2000])
def test_a_lock_that_nobody_signed_tells_nothing(tmp_path: Path, garbage: bytes) -> None:
    (tmp_path / "lock").write_bytes(garbage)
    fd = os.open(tmp_path / "lock", os.O_RDONLY)
    assert owner_of(fd) is None
    os.close(fd)


def test_a_signature_replaces_a_longer_one(tmp_path: Path) -> None:
    fd = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    for owner in (Owner(123456, 987654321, "long" * 20), Owner(1, 2, "3")):
        owner.sign(fd)
        assert owner_of(fd) == owner
    os.close(fd)


def test_only_what_carries_the_mark_is_ended() -> None:
    marks = {mark: subprocess.Popen(["sleep", "60"], env=os.environ | {MARK: mark}) for mark in ("4.5", "4.55")}
    try:
        assert sweep("4.5") == 1
        assert marks["4.5"].wait(patience(60)) == -9
        assert marks["4.55"].poll() is None
        assert sweep("4.5") == 0
    finally:
        for child in marks.values():
            child.kill()
            child.wait()


@pytest.mark.parametrize("alive", [True, False])
def test_a_lock_that_somebody_else_has_is_not_taken(
    tmp_path: Path, alive: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weft.pipelines.pool.durability.runs._LOCK_PATIENCE_S", 0.05)
    last = Owner.this_process() if alive else dead()
    fd = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(fd, fcntl.LOCK_EX)
    last.sign(fd)
    with pytest.raises(Busy, match=f"still running, in process {os.getpid()}" if alive else "over.*fuser"):
        RunDirectory(tmp_path).hold()
    assert owner_of(fd) == last
    os.close(fd)
    directory = RunDirectory(tmp_path)
    directory.hold()
    directory.release()
