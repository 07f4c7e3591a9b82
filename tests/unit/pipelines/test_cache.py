"""The cache: what is found is what was put, or nothing, whatever happened to its files."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from weft.errors import BadInput, Busy, DiskFull
from weft.pipelines.cache.cache import KEEP_RUNS, Cache, CacheReader, entry_of
from weft.pipelines.spec.plan import digest


def key(number: int) -> bytes:
    return digest(str(number).encode())


def put(cache: Cache, key: bytes, data: bytes) -> None:
    cache.put(key, entry_of(key, data))


def filled(folder: Path, count: int, text: str = "value") -> None:
    cache = Cache(folder)
    for number in range(count):
        put(cache, key(number), f"{text} {number}".encode())
    cache.close()


def read(reader: CacheReader, number: int) -> bytes | None:
    entry = reader.find(key(number))
    return None if entry is None else entry.data


def found(folder: Path, count: int) -> list[int]:
    reader = CacheReader(folder)
    numbers = [number for number in range(count) if reader.find(key(number)) is not None]
    reader.close()
    return numbers


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def test_what_was_put_is_found_here_and_by_readers(folder: Path) -> None:
    cache = Cache(folder)
    put(cache, key(1), b"one")
    assert cache.find(key(1)) == b"one"  # before it is written
    cache.flush()
    assert cache.find(key(1)) == b"one"
    reader = CacheReader(folder)
    assert read(reader, 1) == b"one"
    put(cache, key(1), b"another")
    put(cache, key(2), b"")
    cache.flush()
    assert [read(reader, number) for number in (1, 2, 3)] == [b"another", b"", None]
    cache.close()


def test_of_two_values_under_one_key_the_later_is_found_before_and_after_they_are_written(folder: Path) -> None:
    cache = Cache(folder)
    put(cache, key(1), b"first")
    put(cache, key(2), b"other")
    put(cache, key(1), b"a longer one")
    for _ in range(2):
        assert [cache.find(key(number)) for number in (1, 2)] == [b"a longer one", b"other"]
        cache.flush()
    cache.close()
    reader = CacheReader(folder)
    assert [read(reader, number) for number in (1, 2)] == [b"a longer one", b"other"]
    reader.close()


def test_a_reader_of_no_cache_finds_nothing(folder: Path) -> None:
    assert CacheReader(folder).find(key(1)) is None


def test_the_index_grows_and_readers_of_the_old_one_miss_nothing_they_had(folder: Path) -> None:
    cache = Cache(folder)
    put(cache, key(0), b"first")
    cache.flush()
    reader = CacheReader(folder)
    for number in range(1, 20_000):
        put(cache, key(number), b"%d" % number)
    cache.flush()
    assert read(reader, 0) == b"first"
    cache.close()
    assert len(found(folder, 20_000)) == 20_000


def test_a_torn_end_is_cut_off_and_the_rest_is_there(folder: Path) -> None:
    filled(folder, 100)
    data = (folder / "data").read_bytes()
    for cut in (1, 10, 30):
        (folder / "data").write_bytes(data[:-cut])
        Cache(folder).close()
        assert found(folder, 100) == list(range(99))
        filled(folder, 100)
        assert len(found(folder, 100)) == 100


def test_a_damaged_entry_is_a_miss_and_can_be_put_again(folder: Path) -> None:
    filled(folder, 100)
    data = bytearray((folder / "data").read_bytes())
    at = data.index(b"value 50")
    data[at] ^= 1
    (folder / "data").write_bytes(data)
    assert found(folder, 100) == [*range(50), *range(51, 100)]
    cache = Cache(folder)
    assert cache.find(key(50)) is None
    put(cache, key(50), b"again")
    cache.close()
    assert len(found(folder, 100)) == 100


@pytest.mark.parametrize("damage", ["missing", "empty", "garbage", "of another file", "wrong slots"])
def test_a_lost_or_wrong_index_is_made_again(folder: Path, tmp_path: Path, damage: str) -> None:
    filled(folder, 100)
    index = folder / "index"
    if damage == "missing":
        index.unlink()
    elif damage == "of another file":
        filled(tmp_path / "other", 50, "other")
        index.write_bytes((tmp_path / "other" / "index").read_bytes())
    elif damage == "wrong slots":
        data = bytearray(index.read_bytes())
        data[64:] = os.urandom(len(data) - 64)
        index.write_bytes(data)
        assert found(folder, 100) == []  # never a wrong value
        cache = Cache(folder)
        assert not cache.touch(key(1))  # and an end, though no slot is empty
        put(cache, key(200), b"another")
        cache.close()
        index.unlink()
    else:
        index.write_bytes(b"" if damage == "empty" else b"garbage" * 100)
    Cache(folder).close()
    assert len(found(folder, 100)) == 100


def test_what_a_kill_left_between_data_and_index_is_found(folder: Path) -> None:
    filled(folder, 10)
    index = (folder / "index").read_bytes()
    filled(folder, 20)
    (folder / "index").write_bytes(index)  # as it was before the last ten
    Cache(folder).close()
    assert len(found(folder, 20)) == 20


@pytest.mark.parametrize(
    ("head", "said"), [(b"WEFTCAS9", "of another version of Weft"), (b"SQLite format 3", "not a cache of Weft")]
)
def test_a_cache_of_another_kind_is_one_clear_error(folder: Path, head: bytes, said: str) -> None:
    folder.mkdir()
    (folder / "data").write_bytes(head + bytes(100))
    with pytest.raises(BadInput, match=rf"{said}: delete the folder"):
        Cache(folder)
    (folder / "data").unlink()
    Cache(folder).close()  # the lock was given up


def test_a_cache_that_cannot_be_read_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="cannot be used: "):
        Cache(tmp_path / "file")
    (tmp_path / "cache" / "data").mkdir(parents=True)
    with pytest.raises(BadInput, match="cannot be used: Is a directory"):
        Cache(tmp_path / "cache")


def test_a_second_writer_is_refused(folder: Path) -> None:
    cache = Cache(folder)
    with pytest.raises(Busy, match=f"in use by another run, process {os.getpid()}"):
        Cache(folder)
    cache.close()
    Cache(folder).close()


def test_a_full_disk_is_told_and_what_was_there_stays(folder: Path) -> None:
    filled(folder, 10)
    cache = Cache(folder)
    put(cache, key(11), bytes(5000))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, ((folder / "data").stat().st_size + 1000, hard))
    try:
        with pytest.raises(DiskFull):
            cache.flush()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert found(folder, 12) == list(range(10))
    cache.flush()  # there is room again
    cache.close()
    assert found(folder, 12) == [*range(10), 11]


@pytest.fixture
def aged(folder: Path) -> Iterator[Cache]:
    """Ten entries, of which the last runs have used the even ones, and the last one the first two. They are long: those
    that lie together are used and go together."""
    filled(folder, 10, "value" * 20_000)
    for _ in range(KEEP_RUNS):
        cache = Cache(folder)
        for number in range(0, 10, 2):
            assert cache.touch(key(number))
        cache.close()
    cache = Cache(folder)
    cache.touch(key(0))
    cache.touch(key(2))
    yield cache
    cache.close()


def test_what_the_last_runs_did_not_use_goes_when_the_file_is_tidied(aged: Cache, folder: Path) -> None:
    assert aged.tidy() == 0  # too small to be worth it
    before = (folder / "data").stat().st_size
    assert aged.tidy(least=0) > 0
    assert (folder / "data").stat().st_size < before
    assert found(folder, 10) == [0, 2, 4, 6, 8]
    assert aged.find(key(4)) == b"value" * 20_000 + b" 4"
    put(aged, key(1), b"again")
    aged.close()
    Cache(folder).close()
    assert found(folder, 10) == [0, 1, 2, 4, 6, 8]


def test_over_its_limit_only_what_this_run_used_stays(aged: Cache, folder: Path) -> None:
    aged.tidy(max_bytes=40)
    assert found(folder, 10) == [0, 2]


@pytest.mark.parametrize("step", ["cache-copied", "cache-replaced", "cache-uses-replaced"])
def test_killed_at_a_step_of_tidying_it_loses_nothing_that_is_used(aged: Cache, folder: Path, step: str) -> None:
    aged.close()
    code = f"""
from weft.engine.loop.steps import crash_point
from weft.pipelines.cache.cache import Cache
Cache(Path({str(folder)!r})).tidy(least=0, step=crash_point({step!r}))
"""
    died = subprocess.run([sys.executable, "-c", f"from pathlib import Path{code}"])
    assert died.returncode == -signal.SIGKILL
    Cache(folder).close()
    expected = range(10) if step == "cache-copied" else range(0, 10, 2)
    assert found(folder, 10) == list(expected)
    assert {path.name for path in folder.iterdir()} == {"data", "index", "lock", "uses"}


def test_a_full_disk_while_it_is_tidied_costs_nothing(aged: Cache, folder: Path, caplog: Any) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, before[1]))
    try:
        assert aged.tidy(least=0) == 0
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "was not made smaller" in caplog.text
    assert found(folder, 10) == list(range(10))
    assert aged.tidy(least=0) > 0
    assert found(folder, 10) == [0, 2, 4, 6, 8]


def test_a_reader_gives_the_later_of_two_values_wherever_the_earlier_lies(folder: Path) -> None:
    filled(folder, 100)
    cache = Cache(folder)
    put(cache, key(50), b"replaced")
    cache.close()
    reader = CacheReader(folder)
    assert [read(reader, number) for number in (49, 50, 51)] == [b"value 49", b"replaced", b"value 51"]
    reader.close()


def test_readers_find_entries_in_any_order_and_of_any_length(folder: Path) -> None:
    cache = Cache(folder)
    values = {number: bytes([number]) * (number**3 % 90_000) for number in range(200)}
    for number, value in values.items():
        put(cache, key(number), value)
    cache.close()
    reader = CacheReader(folder)
    numbers = [*values, *values, *reversed(values), *Random(1).choices(list(values), k=400)]
    assert all(read(reader, number) == values[number] for number in numbers)
    assert read(reader, 999) is None
    reader.close()


def test_a_kill_while_it_is_tidied_loses_nothing_that_is_used(aged: Cache, folder: Path) -> None:
    index = (folder / "index").read_bytes()
    aged.tidy(least=0)
    aged.close()
    (folder / "index").write_bytes(index)  # the new data had its name, the new index had not
    Cache(folder).close()
    assert found(folder, 10) == [0, 2, 4, 6, 8]


def test_a_damaged_entry_costs_no_other_when_the_index_is_made_again(folder: Path) -> None:
    filled(folder, 100)
    data = bytearray((folder / "data").read_bytes())
    data[data.index(b"value 50")] ^= 1
    (folder / "data").write_bytes(data)
    (folder / "index").unlink()
    Cache(folder).close()
    assert found(folder, 100) == [*range(50), *range(51, 100)]


def test_an_index_that_a_power_cut_left_half_written_is_made_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(folder, 100)
    cache = Cache(folder)
    cache.flush()
    half = bytearray((folder / "index").read_bytes())  # as its writer has it: not closed
    cache.close()
    half[len(half) // 2 :] = bytes(len(half) - len(half) // 2)
    (folder / "index").write_bytes(half)
    monkeypatch.setattr("weft.pipelines.cache.cache_index._boot_mark", lambda: 12345)
    Cache(folder).close()
    assert len(found(folder, 100)) == 100


def test_values_that_a_fresh_run_replaced_go_at_once(folder: Path) -> None:
    for _ in range(3):
        filled(folder, 10, "value" * 20_000)
    cache = Cache(folder)
    for number in range(10):
        assert cache.touch(key(number))
    before = (folder / "data").stat().st_size
    assert cache.tidy(least=0) > before // 2
    cache.close()
    assert len(found(folder, 10)) == 10


def test_an_entry_is_read_at_its_offset_without_the_index(folder: Path) -> None:
    cache = Cache(folder)
    offset = cache.put(key(1), entry_of(key(1), b"x" * 10_000))
    for _ in range(2):
        assert cache.read(key(1), offset) == b"x" * 10_000  # before and after it is written
        assert cache.read(key(2), offset) is None
        cache.flush()
    cache.close()
