"""The frontier's data structures: the seen set, the spilling queue, the wheel."""

from __future__ import annotations

import random
from pathlib import Path
from time import process_time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.frontier.embedded import spill
from weft.frontier.embedded.spill import SpillQueue
from weft.frontier.embedded.wheel import IDLE, Wheel
from weft.frontier.seen import SeenSet


@given(st.lists(st.lists(st.integers(0, 300).map(lambda n: f"http://h/{n}"), max_size=60), max_size=20))
def test_the_seen_set_is_a_set(batches: list[list[str]]) -> None:
    seen, model = SeenSet(7), set[str]()
    for batch in batches:
        expected = [url for url in dict.fromkeys(batch) if url not in model]
        assert seen.unknown(batch) == [url for url in batch if url not in model]
        assert seen.add_new(batch) == expected
        model |= set(batch)
        assert len(seen) == len(model)


def test_the_seen_set_keeps_every_url_while_it_grows() -> None:
    seen = SeenSet(1)
    urls = [f"https://example.com/page/{n}" for n in range(60_000)]
    assert seen.add_new(urls) == urls
    assert seen.add_new(urls) == []
    assert all(url in seen for url in urls[::97])
    assert "https://example.com/other" not in seen
    seen.discard(urls[5])
    assert (urls[5] in seen, len(seen)) == (False, 59_999)
    copy = SeenSet(1)
    assert copy.reset_to(seen.shape()) == len(list(seen.dump()))
    for piece in seen.dump():
        copy.load(piece)
    assert len(copy) == 59_999
    assert copy.add_new(urls) == [urls[5]]


def test_all_64_bits_of_a_fingerprint_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.frontier.seen.xxh3_64_digest", lambda data, _seed: bytes.fromhex(data.decode()))
    chance = random.Random(5)
    fingerprints = [chance.randbytes(8) for _ in range(3000)]
    for bit in range(64):  # each has neighbours that differ from it in one bit
        fingerprints += [(int.from_bytes(one, "big") ^ 1 << bit).to_bytes(8, "big") for one in fingerprints[:700]]
    urls = [fingerprint.hex() for fingerprint in fingerprints]
    seen = SeenSet(1)
    assert seen.add_new(urls[::2]) == urls[::2]
    assert seen.unknown(urls) == urls[1::2]
    assert seen.add_new(urls) == urls[1::2]
    assert len(seen) == len(urls)


class QueueAt(SpillQueue):
    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def file(self) -> Path:
        return self._path


def test_fingerprints_of_two_crawls_differ() -> None:
    assert SeenSet(1).fingerprint("http://a/") != SeenSet(2).fingerprint("http://a/")


@settings(max_examples=60)
@given(operations=st.lists(st.booleans(), max_size=400), size=st.integers(20, 200))
def test_a_spilling_queue_keeps_its_order(
    operations: list[bool], size: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    old, spill.PIECE = spill.PIECE, size
    try:
        queue = QueueAt(tmp_path_factory.mktemp("q") / "spill")
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
    finally:
        spill.PIECE = old


def test_a_long_queue_is_on_disk_and_its_file_goes_with_it(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "spill"
    queue = QueueAt(path)
    texts = [f"{n} 0 0 /a/path/of/some/length/{n}.html" for n in range(20_000)]
    for text in texts:
        queue.push(text)
    assert path.stat().st_size > 500_000
    assert [queue.pop() for _ in texts] == texts
    assert not path.exists()


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
        start, now = process_time(), 70.0
        for _ in range(10_000):
            thing = wheel.pop(now)
            assert thing is not None
            wheel.put(thing, now + rng.uniform(70, 140))
        return process_time() - start

    # In turn, so that whatever else the machine does hits both; sixteen times as many may cost a cache miss or two.
    pairs = [(cost(10_000), cost(160_000)) for _ in range(2)]
    assert min(many for _, many in pairs) < 8 * min(few for few, _ in pairs)
