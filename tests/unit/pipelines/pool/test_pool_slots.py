"""What the parent knows of a worker: revocations against a worker that races, limits, and deaths; the worker is played
by the test, which writes the words that a real one would."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast

import pytest

from weft.pipelines.pool.engine.backlog import WorkQueue
from weft.pipelines.pool.engine.delivery import ResultDelivery
from weft.pipelines.pool.engine.dispatch import WorkDispatcher
from weft.pipelines.pool.engine.pool_worker import PoolSlot, PoolWorker
from weft.pipelines.pool.engine.task import Intake, PoolTask
from weft.pipelines.pool.settings import PoolSettings
from weft.pipelines.pool.worker import slot as slots
from weft.pipelines.pool.worker.slot import CURRENT, FRAME_START_NS, FRAMES, LIMIT, NO_LIMIT, START_NS
from weft.pipelines.pool.worker.wire import decode_batch
from weft.supervise.child import Child, ChildState, RestartPolicy
from weft.supervise.held import Adopted
from weft.supervise.pool.frame_reader import FrameReader
from weft.supervise.pool.limits import PoolLimits
from weft.supervise.pool.process_pool import ProcessPool
from weft.supervise.pool.worker_slot import KillReason


class Played:
    """A member whose worker is the test."""

    def __init__(self) -> None:
        ours, self.theirs = socket.socketpair()
        ours.setblocking(False)
        seat = PoolWorker(ours, slots.create(None), os.memfd_create("out"), None)
        seat.held = Adopted(os.getpid(), os.pidfd_open(os.getpid()))
        self.member = PoolSlot(0, Child("w", RestartPolicy()), PoolSettings(1))
        self.member.attach(seat)
        self.member.child.ready()
        self.words = seat.slot.words

    def give(self, count: int) -> list[PoolTask]:
        tasks = [PoolTask(n, n, b"\x81\xa2id\x01") for n in range(self.member.given, self.member.given + count)]
        self.member.give(tasks, alone=False)
        assert self.member.push()
        return tasks

    def begin(self, ticket: int) -> bool:
        """What a worker does before an item; False when it may not."""
        if ticket >= self.words[LIMIT]:
            return False
        self.words[CURRENT] = ticket + 1
        if ticket >= self.words[LIMIT]:
            return False
        self.words[START_NS] = time.monotonic_ns()
        return True

    def close(self) -> None:
        self.member.detach()
        self.theirs.close()


@pytest.fixture
def played() -> Iterator[Played]:
    made = Played()
    yield made
    made.close()


def test_batch_reaches_the_worker_with_tickets_in_order(played: Played) -> None:
    played.give(3)
    played.give(2)
    reader = FrameReader(played.theirs)
    frames = [decode_batch(reader.next() or b"") for _ in range(2)]
    assert [(ticket, len(items)) for ticket, _, _, items in frames] == [(0, 3), (3, 2)]
    assert list(played.member.outstanding) == [0, 1, 2, 3, 4]


def test_member_is_open_for_a_few_batches_only(played: Played) -> None:
    for _ in range(4):
        assert played.member.open
        played.give(1)
    assert not played.member.open
    played.words[FRAMES] = 1
    played.member.outstanding.pop(0)
    assert played.member.close_frames(played.member.frames_ended()) == []
    assert played.member.open


def test_revoked_tail_is_free_when_the_worker_has_not_reached_it(played: Played) -> None:
    tasks = played.give(10)
    assert played.begin(0)
    assert played.member.unstarted() == 9
    assert played.member.revoke(4) == 6
    assert played.member.settle(6) == tasks[6:]
    assert not played.begin(6)
    assert list(played.member.outstanding) == [0, 1, 2, 3, 4, 5]


def test_worker_that_was_faster_keeps_what_it_has_begun(played: Played) -> None:
    tasks = played.give(10)
    assert played.begin(0)
    for ticket in range(1, 8):
        assert played.begin(ticket)
    assert played.member.revoke(2) == 8
    assert played.member.settle(8) == tasks[8:]
    played.give(1)


def test_announced_but_not_begun_comes_back_when_the_batch_ends(played: Played) -> None:
    tasks = played.give(4)
    played.member.revoke(4)
    played.words[CURRENT] = 1  # it had checked the limit before, announced, and will now see that it may not
    assert played.member.settle(0) == tasks[1:]
    assert played.member.outstanding == {0: tasks[0]}
    played.words[FRAMES] = 1
    assert played.member.close_frames(1) == [tasks[0]]
    assert played.words[LIMIT] == NO_LIMIT
    assert played.member.idle


def test_everything_begun_cannot_be_revoked(played: Played) -> None:
    played.give(1)
    assert played.begin(0)
    assert played.member.revoke(5) is None
    assert not played.member.revoked


def test_stopping_stops_the_victim_of_a_theft_as_well(played: Played) -> None:
    played.give(10)
    assert played.begin(0)
    pool = cast(ProcessPool[PoolSlot], SimpleNamespace(slots=[played.member]))
    dispatcher = WorkDispatcher(
        PoolSettings(1), Intake(iter(()), None), WorkQueue(50), pool, cast(ResultDelivery, None)
    )
    dispatcher._revoke(played.member, 5)
    dispatcher.stop()
    assert not played.begin(1)


def test_no_interleaving_runs_a_task_twice_or_loses_one() -> None:
    """The worker's steps for an item (look, announce, look again, run) and the parent's (revoke, settle), shuffled."""
    for seed in range(400):
        chance = random.Random(seed)
        played = Played()
        tasks = played.give(chance.randint(1, 12))
        ran, back = interleave(played, tasks, chance)
        assert sorted(ran + back) == list(range(len(tasks)))
        played.close()


def interleave(played: Played, tasks: list[PoolTask], chance: random.Random) -> tuple[list[int], list[int]]:
    member, worker = played.member, worker_steps(played, len(tasks))
    ran, back, pending, working = list[int](), list[int](), None, True
    while working or pending is not None:
        if pending is not None and chance.random() < 0.2:
            back += [task.position for task in member.settle(pending)]
            pending = None
        elif pending is None and chance.random() < 0.1:
            pending = member.revoke(chance.randint(1, len(tasks)))
        elif working:
            try:
                ran += next(worker)
            except StopIteration:
                working = False
    played.words[FRAMES] = 1
    return ran, back + [task.position for task in member.close_frames(1)]


def worker_steps(played: Played, count: int) -> Iterator[list[int]]:
    for ticket in range(count):
        if ticket >= played.words[LIMIT]:
            return
        yield []
        played.words[CURRENT] = ticket + 1
        yield []
        if ticket >= played.words[LIMIT]:
            return
        yield []
        played.member.outstanding.pop(ticket)
        yield [ticket]


def test_what_does_not_fit_the_socket_waits(played: Played) -> None:
    played.member.give([PoolTask(0, 0, b"\xc6" + (3_000_000).to_bytes(4, "big") + b"x" * 3_000_000)], alone=False)
    assert not played.member.push()
    assert played.member.unsent_bytes
    received = 0
    while not played.member.push():
        received += len(played.theirs.recv(1 << 20))
    assert received > 2_000_000


class TestWatch:
    def over(self, played: Played, **given: float | None) -> KillReason | None:
        settings = PoolSettings(1, **given)  # type: ignore[arg-type]
        played.member._item_limit_ns = PoolSlot(0, played.member.child, settings)._item_limit_ns
        played.member._batch_limit_ns = PoolSlot(0, played.member.child, settings)._batch_limit_ns
        return PoolLimits(settings.heartbeat_timeout, settings.memory_limit_mb).over(played.member, 0.2)

    def test_item_over_its_limit(self, played: Played) -> None:
        played.give(1)
        played.begin(0)
        played.words[START_NS] = time.monotonic_ns() - 2_000_000_000
        assert self.over(played, item_timeout=1.9) is KillReason.TIMEOUT
        assert self.over(played, item_timeout=2.5) is None
        assert self.over(played, item_timeout=None) is None

    def test_an_item_whose_result_was_read_is_not_over(self, played: Played) -> None:
        played.give(1)
        played.begin(0)
        played.words[START_NS] = time.monotonic_ns() - 2_000_000_000
        played.member.outstanding.clear()
        assert self.over(played, item_timeout=1) is None

    def test_batch_over_its_limit(self, played: Played) -> None:
        played.give(2)
        played.begin(0)
        played.words[FRAME_START_NS] = time.monotonic_ns() - 5_000_000_000
        assert self.over(played, batch_timeout=4) is KillReason.BATCH
        played.words[FRAME_START_NS] = 0
        assert self.over(played, batch_timeout=4) is None

    def test_memory(self, played: Played) -> None:
        assert self.over(played, memory_limit_mb=1) is KillReason.MEMORY
        assert self.over(played, memory_limit_mb=100_000) is None
        assert not played.member.worn

    def test_worker_near_the_limit_is_worn(self, played: Played) -> None:
        from weft.supervise.process import rss_bytes

        played.give(1)
        assert self.over(played, memory_limit_mb=rss_bytes(os.getpid()) / 1048576 * 1.2) is None
        assert played.member.worn

    def test_silence_between_items_counts_only_as_fast_as_we_look(self, played: Played) -> None:
        played.give(1)
        watch = PoolLimits(1, None)
        looks = 0
        while watch.over(played.member, 60.0) is None:  # the parent itself was away for a minute each time
            looks += 1
        assert looks >= 4

    def test_a_running_item_is_not_silence(self, played: Played) -> None:
        played.give(1)
        played.begin(0)
        watch = PoolLimits(1, None)
        assert [watch.over(played.member, 0.2) for _ in range(20)] == [None] * 20

    def test_a_stopped_process_is(self, played: Played) -> None:
        sleeper = subprocess.Popen(["sleep", "60"])
        try:
            sleeper.send_signal(signal.SIGSTOP)
            time.sleep(0.05)
            assert played.member.worker is not None and played.member.worker.held is not None
            played.member.worker.held.pid = sleeper.pid
            played.give(1)
            played.begin(0)
            watch = PoolLimits(1, None)
            told = [watch.over(played.member, 0.2) for _ in range(10)]
            assert told[-1] is KillReason.HUNG
            assert told[0] is None
        finally:
            sleeper.kill()
            sleeper.wait()

    def test_flood_is_cut_and_counted(self, played: Played) -> None:
        assert played.member.worker is not None
        os.ftruncate(played.member.worker.output_fd, 9 * 1024 * 1024)
        assert played.member.worker.bound_output() == 1024 * 1024
        assert os.fstat(played.member.worker.output_fd).st_size == 8 * 1024 * 1024


def test_worker_that_the_kernel_holds_is_given_up(played: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    pool: ProcessPool[PoolSlot] = ProcessPool.__new__(ProcessPool)
    member = played.member
    monkeypatch.setattr("weft.supervise.process.state", lambda _: "D")
    assert not pool._beyond_reach(member)
    monkeypatch.setattr(Adopted, "send", lambda *_: None)
    member.end_by_force(KillReason.TIMEOUT)
    assert not pool._beyond_reach(member)
    assert member.kill is not None
    member.kill = member.kill._replace(at_s=time.monotonic() - 6)
    assert pool._beyond_reach(member)
    monkeypatch.setattr("weft.supervise.process.state", lambda _: "Z")
    assert not pool._beyond_reach(member)
    assert member.child.state is ChildState.RUNNING
