"""The frontier's data structures: the seen set, the spilling queue, the wheel."""

from __future__ import annotations

import gc
import random
from pathlib import Path
from time import process_time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.frontier.durability.blobs import BlobStore
from weft.frontier.scheduling import spill
from weft.frontier.scheduling.spill import SpillQueue
from weft.frontier.scheduling.wheel import IDLE, Wheel
from weft.frontier.seen.seen_set import SeenSet


@given(st.lists(st.lists(st.integers(0, 300).map(lambda n: f"http://h/{n}"), max_size=60), max_size=20))
def test_the_seen_set_is_a_set(batches: list[list[str]]) -> None:
    seen, model = SeenSet(7), set[str]()
    for batch in batches:
        expected = [url for url in dict.fromkeys(batch) if url not in model]
        assert seen.unknown(batch) == [url for url in batch if url not in model]
        assert seen.add_new(batch) == expected
        model |= set(batch)
        assert len(seen) == len(model)


class QueueIn(SpillQueue):
    def __init__(self, store: BlobStore) -> None:
        super().__init__()
        self._store = store

    @property
    def blobs(self) -> BlobStore:
        return self._store


@settings(max_examples=60)
@given(operations=st.lists(st.booleans(), max_size=400), size=st.integers(20, 200))
def test_a_spilling_queue_keeps_its_order(
    operations: list[bool], size: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    old, spill.PIECE_BYTES = spill.PIECE_BYTES, size
    try:
        store = BlobStore(tmp_path_factory.mktemp("q") / "queues.db")
        queue = QueueIn(store)
        model: list[str] = []
        for number, push in enumerate(operations):
            if push or not model:
                queue.push(f"text-{number}-ü")
                model.append(f"text-{number}-ü")
            else:
                assert queue.peek() == model[0]
                assert queue.pop() == model.pop(0)
            assert len(queue) == len(model)
        assert list(queue.texts()) == model
        store.close()
    finally:
        spill.PIECE_BYTES = old


def test_a_long_queue_is_on_disk(tmp_path: Path) -> None:
    store = BlobStore(tmp_path / "queues.db")
    queue = QueueIn(store)
    texts = [f"{n} 0 0 /a/path/of/some/length/{n}.html" for n in range(20_000)]
    for text in texts:
        queue.push(text)
    store.flush()
    assert queue.held_bytes < 40_000
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) > 80_000, "compressed: of 700,000"
    assert [queue.pop() for _ in texts] == texts
    store.close()


class Thing:
    def __init__(self, rank: int = 0) -> None:
        self.tick = IDLE
        self.rank = rank


def test_the_wheel_has_a_queue_for_each_rank_and_tells_of_those_that_are_wanted() -> None:
    wheel = Wheel[Thing](2)
    first, second, third = Thing(1), Thing(0), Thing(1)
    wheel.put(first, 1.0)
    wheel.put(second, 2.0)
    wheel.put(third, 9.0, 9.0)
    assert wheel.next_due([0]) == 1.0, "whatever its rank, until its time has come"
    assert wheel.pop(5.0) is second
    assert (wheel.next_due([0]), wheel.next_due([1]), wheel.next_due()) == (None, 0.0, 0.0)
    assert wheel.due(5.0) == 2
    assert [wheel.pop(5.0, 1), wheel.pop(5.0, 1), wheel.pop(5.0, 1)] == [third, first, None]


def test_the_wheel_tells_how_many_are_due() -> None:
    wheel = Wheel[Thing]()
    for number in range(500):
        wheel.put(Thing(), number * 37 % 500 / 10)
    assert [wheel.due(now) for now in (-1, 0, 9.95, 24.95, 60)] == [0, 1, 100, 250, 500]
    for _ in range(30):
        assert wheel.pop(60)
    assert wheel.due(60) == 470


def test_the_wheel_gives_nothing_before_its_time() -> None:
    wheel = Wheel[Thing]()
    early, late = Thing(), Thing()
    wheel.put(late, 5.004)
    wheel.put(early, 1.0)
    assert wheel.pop(0.999) is None
    assert wheel.next_due() == pytest.approx(1.0)
    assert wheel.pop(1.0) is early
    assert wheel.pop(5.004) is None
    assert wheel.pop(5.012) is late
    assert wheel.next_due() is None


def test_a_thing_that_is_put_again_counts_once_at_its_new_time() -> None:
    wheel = Wheel[Thing]()
    thing = Thing()
    wheel.put(thing, 1.0)
    wheel.put(thing, 3.0)
    assert wheel.pop(2.0) is None
    assert wheel.pop(3.0) is thing
    assert wheel.pop(9.0) is None
    wheel.put(thing, 4.0)
    wheel.remove(thing)
    assert wheel.pop(9.0) is None


def test_the_wheel_costs_the_same_with_many_things() -> None:
    def cost(count: int) -> float:
        wheel, rng = Wheel[Thing](), random.Random(1)
        for _ in range(count):
            wheel.put(Thing(), rng.uniform(0, 70))
        gc.disable()  # a search for cycles among all that a worker of the test run has would be the wheel's cost
        try:
            start, now = process_time(), 70.0
            for _ in range(10_000):
                thing = wheel.pop(now)
                assert thing is not None
                wheel.put(thing, now + rng.uniform(70, 140))
            return process_time() - start
        finally:
            gc.enable()

    # In turn, so that whatever else the machine does hits both; sixteen times as many may cost a cache miss or two.
    pairs = [(cost(10_000), cost(160_000)) for _ in range(2)]
    assert min(many for _, many in pairs) < 8 * min(few for few, _ in pairs)
