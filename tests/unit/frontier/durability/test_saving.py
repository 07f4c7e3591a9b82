"""Checkpoints that are written beside the crawl: by a fork, of the state at that moment; a killed one leaves none."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from log_lines import log_lines
from lost_writes import LostWrites
from pace import patience

from weft.config import PolitenessSection
from weft.frontier.contract import CrawlLimits, RobotsRecord, TransferEnd
from weft.frontier.durability import blobs, mark
from weft.frontier.durability.checkpoint import CheckpointWriter
from weft.frontier.durability.saving import CheckpointChild
from weft.frontier.embedded.embedded_frontier import EmbeddedFrontier
from weft.frontier.scheduling import spill
from weft.records import Found
from weft.supervise.process import has_ended

HOSTS = [f"h{number}" for number in range(20)]


def opened(folder: Path, *, beside: bool = True) -> EmbeddedFrontier:
    frontier = EmbeddedFrontier(
        folder, PolitenessSection(delay_s=0.0, places=1), checkpoint_every=10**9, max_in_memory=3
    )
    frontier.durability.checkpoints.saved_beside_from = 0 if beside else 10**9
    frontier.crawls.open_crawl("test", CrawlLimits())
    frontier.recovery.recover()
    return frontier


def fill(frontier: EmbeddedFrontier, start: int, count: int) -> None:
    urls = (f"https://{host}/{number:030d}" for number in range(start, start + count) for host in HOSTS)
    frontier.queue.admit(1, [Found(url, 0) for url in urls])
    frontier.durability.commit()


def queued(frontier: EmbeddedFrontier) -> list[str]:
    return sorted(item.url for item in frontier.queue.items(1))


def count(frontier: EmbeddedFrontier) -> int:
    """Blobs in the file."""
    rows: list[tuple[int]] = frontier._base.blobs._db.execute("SELECT count(*) FROM blobs").fetchall()
    return rows[0][0]


def restored(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the checkpoint alone says is queued."""
    frontier = EmbeddedFrontier(folder, PolitenessSection(delay_s=0.0, places=1), checkpoint_every=10**9)
    frontier.crawls.open_crawl("test", CrawlLimits())
    monkeypatch.setattr(frontier._base.journal, "admitted_since", lambda *_: iter(()))
    frontier.recovery.recover()
    found = queued(frontier)
    frontier.close()
    return found


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that queues, and sites at rest, are in the file."""
    monkeypatch.setattr(spill, "PIECE_BYTES", 200)
    monkeypatch.setattr(blobs, "_BUFFER_BYTES", 1)


@pytest.fixture
def go_on(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], object]]:
    """No checkpoint is written before this is called."""
    read, write = os.pipe()
    records = CheckpointWriter._all_records

    def held_up(self: CheckpointWriter, *args: Any) -> Iterator[Any]:
        os.read(read, 1)
        return records(self, *args)

    monkeypatch.setattr(CheckpointWriter, "_all_records", held_up)
    monkeypatch.setattr(os, "closerange", lambda *_: None)
    yield lambda: os.write(write, b"x")
    os.write(write, b"x")
    os.close(read)
    os.close(write)


def test_a_checkpoint_is_of_the_moment_of_its_fork_whatever_happens_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_pieces: None, go_on: Callable[[], object]
) -> None:
    """While the child waits, the queues are used up and filled again."""
    frontier = opened(tmp_path)
    fill(frontier, 0, 30)
    wanted = queued(frontier)
    frontier.durability.checkpoints._write_checkpoint(0)
    assert frontier.durability.checkpoints.is_saving()
    for host in HOSTS:
        frontier.sites.robots_known(f"https://{host}", RobotsRecord("allow", b"", 1e12), None)
    taken = [lease for _ in range(40) for lease in frontier.leases.claim("me", 20)]
    frontier.leases.cool([TransferEnd(lease, frontier.now(), slow_down=True, retry_after_s=1e9) for lease in taken])
    fill(frontier, 100, 30)
    assert taken
    go_on()
    assert not frontier.durability.checkpoints.is_saving(wait=True)
    frontier.close()
    assert restored(tmp_path, monkeypatch) == wanted


def test_what_a_checkpoint_names_is_deleted_after_the_next_one(
    tmp_path: Path, small_pieces: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    frontier = opened(tmp_path, beside=False)
    fill(frontier, 0, 30)
    wanted = queued(frontier)
    frontier.durability.checkpoints._write_checkpoint(0)
    frontier.durability.commit()
    named = count(frontier)
    robots = frontier.leases.claim("me", 99)
    frontier.leases.cool([TransferEnd(lease, frontier.now(), slow_down=True, retry_after_s=1e9) for lease in robots])
    frontier.durability.commit()
    assert count(frontier) == named > 0
    copy = tmp_path.with_name(tmp_path.name + "-killed")
    shutil.copytree(tmp_path, copy)
    assert restored(copy, monkeypatch) == wanted
    frontier.durability.checkpoints._write_checkpoint(0)
    for _ in range(50):  # some at each
        frontier.durability.commit()
    assert count(frontier) == 0
    frontier.close()


def test_what_was_written_after_a_checkpoint_is_deleted_by_the_next_process(tmp_path: Path, small_pieces: None) -> None:
    frontier = opened(tmp_path, beside=False)
    fill(frontier, 0, 30)
    frontier.durability.checkpoints._write_checkpoint(0)
    named = count(frontier)
    fill(frontier, 30, 300)
    wanted = queued(frontier)
    assert count(frontier) > 2 * named
    copy = tmp_path.with_name(tmp_path.name + "-killed")
    shutil.copytree(tmp_path, copy)
    frontier.close()
    again = opened(copy)
    with_both = count(again)
    for _ in range(50):
        again.durability.commit()
    assert count(again) < with_both
    assert queued(again) == wanted
    again.close()


def test_what_is_at_rest_and_in_long_queues_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_pieces: None
) -> None:
    frontier = opened(tmp_path)
    fill(frontier, 0, 30)
    wanted = queued(frontier)
    frontier.durability.checkpoints._write_checkpoint(0)
    assert not frontier.durability.checkpoints.is_saving(wait=True)
    frontier.close()
    assert restored(tmp_path, monkeypatch) == wanted


def test_one_that_has_been_written_is_noticed_with_the_next_commit(tmp_path: Path) -> None:
    frontier = opened(tmp_path)
    fill(frontier, 0, 5)
    frontier.durability.checkpoints._write_checkpoint(0)
    saving = frontier.durability.checkpoints._checkpoint_child
    assert saving is not None and saving.has_ended(wait=True)
    frontier.durability.commit()
    assert frontier.durability.checkpoints._checkpoint_child is None
    frontier.close()


def test_the_last_one_is_written_by_the_process_itself_where_that_takes_a_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another would die with it."""
    frontier = opened(tmp_path, beside=False)
    fill(frontier, 0, 5)
    frontier.durability.checkpoints._lines_between = 0
    monkeypatch.setattr(
        frontier.durability.checkpoints._recovery, "save_in_child", lambda *_: pytest.fail("it is written by another")
    )
    frontier.close()
    assert (tmp_path / "checkpoint").exists()


def test_one_that_is_killed_in_the_middle_leaves_the_old_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frontier = opened(tmp_path)
    fill(frontier, 0, 5)
    frontier.durability.checkpoints._write_checkpoint(0)
    frontier.durability.checkpoints.is_saving(wait=True)
    before = (tmp_path / "checkpoint").read_bytes()
    fill(frontier, 5, 5)

    def killed(self: CheckpointWriter, *_: Any) -> Iterator[Any]:
        yield self._header
        os.kill(os.getpid(), signal.SIGKILL)

    with monkeypatch.context() as patched:
        patched.setattr(CheckpointWriter, "_all_records", killed)
        frontier.durability.checkpoints._write_checkpoint(0)
        assert not frontier.durability.checkpoints.is_saving(wait=True)
    assert (tmp_path / "checkpoint").read_bytes() == before
    wanted = queued(frontier)
    frontier.durability.checkpoints._lines_since_begun = 0
    frontier.close()
    frontier = opened(tmp_path)
    assert queued(frontier) == wanted
    frontier.close()


def test_a_power_cut_at_any_step_of_a_checkpoint_takes_only_what_was_not_synced(
    tmp_path: Path, small_pieces: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long queues and sites at rest are on the disk: the list of sites, the blobs and the checkpoint are written in
    turn, and replace those before."""
    folder, synced = tmp_path / "frontier", set[str]()
    frontier = opened(folder, beside=False)

    def check(left: Path) -> None:
        again = opened(left)
        assert synced <= set(queued(again))
        again.close()

    disk = LostWrites(folder, tmp_path / "left", check)
    with monkeypatch.context() as patch:
        patch.setattr(mark, "boot_id", lambda: "another boot")
        disk.watch(patch)
        for start in range(0, 9, 3):
            fill(frontier, start, 3)
            frontier.durability.sync()
            synced.update(queued(frontier))
            frontier.durability.checkpoints._write_checkpoint(0)
        frontier.close()
    assert disk.cuts > 20 and len(synced) == 9 * len(HOSTS)
    assert (folder / "checkpoint").exists() and list(folder.glob("sites-*"))


def test_a_list_of_sites_that_finds_the_disk_full_leaves_the_one_before(
    tmp_path: Path, small_pieces: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    frontier = opened(tmp_path / "frontier", beside=False)
    fill(frontier, 0, 20)
    frontier.durability.checkpoints._write_checkpoint(0)
    sync, refused = os.fsync, list[str]()

    def full(fd: int) -> None:
        name = Path(f"/proc/self/fd/{fd}").readlink().name
        if name.startswith("sites-"):
            refused.append(name)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(fd)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        fill(frontier, 20, 20)
        frontier.durability.checkpoints._write_checkpoint(0)
    assert refused
    expected = queued(frontier)
    shutil.copytree(tmp_path / "frontier", tmp_path / "killed")
    again = opened(tmp_path / "killed")
    assert queued(again) == expected
    again.close()
    frontier.durability.checkpoints._write_checkpoint(0)
    frontier.close()
    again = opened(tmp_path / "frontier")
    assert queued(again) == expected
    again.close()


def test_only_one_is_written_at_a_time(tmp_path: Path) -> None:
    frontier = opened(tmp_path)
    fill(frontier, 0, 5)
    frontier.durability.checkpoints._write_checkpoint(0)
    first = frontier.durability.checkpoints._checkpoint_child
    frontier.durability.checkpoints._write_checkpoint(0)
    assert frontier.durability.checkpoints._checkpoint_child in (first, None)
    assert not frontier.durability.checkpoints.is_saving(wait=True)
    frontier.close()
    assert (tmp_path / "checkpoint").exists() and not (tmp_path / "checkpoint.tmp").exists()


def test_an_end_waits_for_one_that_is_being_written_and_writes_what_came_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_pieces: None
) -> None:
    frontier = opened(tmp_path)
    fill(frontier, 0, 5)
    frontier.durability.checkpoints._write_checkpoint(0)
    fill(frontier, 5, 5)
    wanted = queued(frontier)
    frontier.durability.checkpoints._lines_between = 0
    frontier.close()
    assert restored(tmp_path, monkeypatch) == wanted


def test_a_start_has_nothing_to_replay_however_short_the_lives_before_it(tmp_path: Path) -> None:
    heartbeats = 0

    def beat() -> None:
        nonlocal heartbeats
        heartbeats += 1

    for life in range(8):
        frontier = EmbeddedFrontier(
            tmp_path, PolitenessSection(delay_s=0.0, places=1), checkpoint_every=100, alive=beat
        )  # fmt: skip
        frontier.durability.checkpoints.saved_beside_from = 0
        frontier.crawls.open_crawl("test", CrawlLimits())
        frontier.recovery.recover()
        assert frontier.durability.checkpoints._recovery.replayed_lines == 0
        frontier.queue.admit(1, [Found(f"https://{host}/{life}/{number}", 0) for number in range(10) for host in HOSTS])
        frontier.close()
    assert heartbeats


def test_a_child_dies_with_the_process_that_it_comes_from() -> None:
    program = (
        "import os, time\n"
        "from weft.frontier.durability.saving import CheckpointChild\n"
        "saving = CheckpointChild(lambda: time.sleep(600))\n"
        "print(saving._pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        time.sleep(0.2)
        parent.kill()
    until = time.monotonic() + patience(10.0)
    try:
        while not has_ended(child):
            assert time.monotonic() < until
            time.sleep(0.01)
    finally:
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)


def test_what_its_parent_closes_is_closed_though_a_child_is_at_work(tmp_path: Path) -> None:
    """The other side of a connection must not wait for a checkpoint to be written."""
    started, go_on = tmp_path / "started", tmp_path / "go_on"

    def write() -> None:
        started.touch()
        while not go_on.exists():
            time.sleep(0.01)

    read, written = os.pipe()
    os.set_blocking(read, False)
    saving = CheckpointChild(write)
    try:
        until = time.monotonic() + patience(10.0)
        while not started.exists():
            assert time.monotonic() < until
            time.sleep(0.01)
        os.close(written)
        assert os.read(read, 1) == b"", "its end is told at once"
        assert not saving.has_ended()
    finally:
        go_on.touch()
        assert saving.has_ended(wait=True)
        os.close(read)


def test_one_that_is_over_stays_so() -> None:
    saving = CheckpointChild(lambda: None)
    assert saving.has_ended(wait=True)
    assert saving.has_ended() and saving.has_ended(wait=True)


def _fail() -> None:
    raise OSError("the disk is full")


@pytest.mark.parametrize(("write", "fails"), [(lambda: None, False), (lambda: os._exit(7), True), (_fail, True)])
def test_one_that_was_not_written_is_told(write: Callable[[], None], fails: bool) -> None:
    with log_lines("weft.frontier") as lines:
        assert CheckpointChild(write).has_ended(wait=True)
    assert [message for message, _ in lines] == ["a checkpoint was not written: the one before stays"] * fails
