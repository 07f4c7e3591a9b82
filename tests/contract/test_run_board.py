"""What brain and hands may do with a run at the broker, on both servers: claims, closed tasks, room, epochs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from weft.cluster.batches.batch_messages import (
    INLINE_BYTES,
    KIND,
    BatchReport,
    BatchTask,
    BodyRef,
    HandStatus,
    Records,
    TaskEnd,
)
from weft.cluster.batches.hand_side import HandBoard, Word
from weft.cluster.batches.run_board import MOST_BYTES, BodyGone, BrainBoard
from weft.cluster.broker import Broker
from weft.cluster.key import ClusterKey
from weft.cluster.signing import Signer, new_id
from weft.cluster.tasks import HandSide
from weft.supervise.redis_server import RedisServer

KEY = ClusterKey(bytes(range(32)))
SIGNER = Signer(KEY)


class Cluster:
    """A brain's board, and boards of hands."""

    def __init__(self, broker: Broker, folder: Path) -> None:
        self.broker = broker
        self.folder = folder
        self.brain = BrainBoard(broker, new_id())
        self.brain.open()

    def hand(self, task: str = "", *, epoch: int = 0, within_s: float = 60.0, name: str = "a") -> HandBoard:
        now_ms = self.broker.now_ms()
        body = BatchTask(self.brain.run, epoch or self.brain.epoch, BodyRef(), [], BodyRef(), alone=False)
        text = SIGNER.sign(
            KIND, msgspec.to_builtins(body), made_ms=now_ms, until_ms=now_ms + int(within_s * 1000), id_=task
        )
        message = SIGNER.verify(text, KIND)
        side = HandSide(self.broker, SIGNER, name, self.folder, False, message, (True,), time.monotonic() + within_s)
        return HandBoard(side, body)

    def report(self, hand: HandBoard, number: int, body: BodyRef | None = None, *, end: bool = False) -> BatchReport:
        records = [Records(1, body)] if body is not None else []
        status = HandStatus(hand.run, hand.task)
        return BatchReport(
            self.brain.run, self.brain.epoch, hand.task, number, status, records=records, end=TaskEnd() if end else None
        )

    def entries(self) -> list[str]:
        return ["c" if b"c" in fields else "m" for _, fields in self.brain.read("0", None)]


@pytest.fixture(params=["redis", "valkey"])
def cluster(
    request: pytest.FixtureRequest, shared_server: Callable[[str], RedisServer], tmp_path: Path
) -> Iterator[Cluster]:
    broker = Broker(shared_server(request.param).url, KEY.cluster_id)
    yield Cluster(broker, tmp_path)
    broker.close()


def test_a_task_is_claimed_once_and_never_again(cluster: Cluster) -> None:
    first = cluster.hand()
    assert first.claim()
    assert not cluster.hand(first.task, name="b").claim()
    assert not first.claim()
    assert first.push(cluster.report(first, 1, end=True)) is Word.OK
    assert not cluster.hand(first.task, name="b").claim()
    assert cluster.brain.leases([first.task]) == [False]


def test_nothing_is_claimed_that_is_late_or_of_another_epoch_or_of_no_run(cluster: Cluster) -> None:
    late = cluster.hand(within_s=-1.0)
    assert (late.claim(), late.word) == (False, Word.LATE)
    old = cluster.hand()
    cluster.brain.open()
    assert (old.claim(), old.word) == (False, Word.EPOCH)
    gone = cluster.hand()
    cluster.brain.forget([], results=True)
    assert (gone.claim(), gone.word) == (False, Word.EPOCH)


def test_what_is_pushed_comes_before_the_mark_of_a_closed_task_and_nothing_after_it(cluster: Cluster) -> None:
    hand = cluster.hand()
    assert hand.claim()
    assert hand.push(cluster.report(hand, 1, hand.put(b"one"))) is Word.OK
    cluster.brain.close_task(hand.task)
    assert hand.push(cluster.report(hand, 2, hand.put(b"two"))) is Word.GONE
    assert cluster.entries() == ["m", "m", "c"]
    unclaimed = cluster.hand()
    cluster.brain.close_task(unclaimed.task)
    assert not unclaimed.claim()


def test_a_new_epoch_refuses_what_is_out(cluster: Cluster) -> None:
    hand = cluster.hand()
    assert hand.claim()
    cluster.brain.open()
    assert hand.push(cluster.report(hand, 1)) is Word.GONE


def test_results_without_room_wait_while_the_task_lives_and_go_when_the_brain_has_read(cluster: Cluster) -> None:
    hand = cluster.hand()
    assert hand.claim()
    large: Any = BodyRef(None, "beside", "", MOST_BYTES)
    assert hand.push(cluster.report(hand, 1, large)) is Word.OK
    assert hand.push(cluster.report(hand, 2, large)) is Word.FULL
    assert cluster.brain.leases([hand.task]) == [True]
    entries = cluster.brain.read("0", None)
    cluster.brain.trim(entries[-1][0], sum(int(fields.get(b"b", b"0")) for _, fields in entries), ["beside"])
    assert hand.push(cluster.report(hand, 2, large)) is Word.OK
    assert cluster.entries() == ["m"]


def test_a_hand_is_asked_to_return_what_it_has_not_begun(cluster: Cluster) -> None:
    hand, other = cluster.hand(), cluster.hand()
    assert hand.claim() and other.claim()
    cluster.brain.ask_back(hand.task)
    assert hand.push(cluster.report(hand, 0)) is Word.BACK
    assert other.push(cluster.report(other, 0)) is Word.OK
    cluster.brain.ask_stop()
    assert other.push(cluster.report(other, 0)) is Word.STOP


def test_a_body_beside_its_message_is_taken_only_as_it_was_signed(cluster: Cluster) -> None:
    hand = cluster.hand()
    data = b"x" * (INLINE_BYTES + 1)
    ref = hand.put(data)
    assert (ref.inline, cluster.brain.get(ref)) == (None, data)
    cluster.broker.client.set(cluster.brain.name("body", ref.name or ""), b"y" * len(data))
    with pytest.raises(BodyGone):
        cluster.brain.get(ref)
    cluster.broker.client.delete(cluster.brain.name("body", ref.name or ""))
    with pytest.raises(BodyGone):
        cluster.brain.get(ref)
