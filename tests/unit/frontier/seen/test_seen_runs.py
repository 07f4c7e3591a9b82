"""Seen sets on disk: they answer as a set does, whatever is flushed, merged, killed, lost or damaged in between."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from written_twice import WAYS, written

from weft.errors import DiskFull
from weft.frontier.durability.journal import FrontierJournal
from weft.frontier.durability.journal_lines import format_line, parse_line
from weft.frontier.seen import seen_file, seen_merge, seen_runs, url_lookup
from weft.frontier.seen import seen_set as seen
from weft.frontier.seen.seen_runs import SeenRuns, SeenState, end_key
from weft.frontier.seen.seen_set import SeenSet, seen_key
from weft.records import Found

FLUSHED = 40
SEEDS = {1: 11, 2: 22}
URLS = [f"http://a.test/{number}" for number in range(2000)]


@pytest.fixture(scope="module", params=WAYS, autouse=True)
def way(request: pytest.FixtureRequest) -> Iterator[str]:
    """Both of what is written twice, with runs of a few entries."""
    name: str = request.param
    table = written(name, "weft.frontier.seen.seen_table", "weft.frontier.seen._seen_table")
    run = written(name, "weft.frontier.seen.seen_run", "weft.frontier.seen._seen_table")
    with pytest.MonkeyPatch.context() as patch:
        for module in (seen, seen_runs):
            patch.setattr(module, "Table", table.Table)
        for part in ("Run", "Unsound", "arranged", "merge", "guide", "checksums"):
            for module in (seen, seen_file, seen_merge, seen_runs, url_lookup):
                if hasattr(module, part):
                    patch.setattr(module, part, getattr(run, part))
        patch.setattr(seen_runs, "FLUSHED_ENTRIES", FLUSHED)
        yield name


class Life:
    """The seen sets of two crawls over a journal, and what they must know."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.known: dict[int, set[str]] = {1: set(), 2: set()}
        self.kept = (0, msgspec.msgpack.encode(None))  # the last checkpoint
        self.next_item = 1
        self._open()
        for crawl, seed in SEEDS.items():
            self.journal.put("crawls", crawl, msgspec.msgpack.encode({"name": str(crawl), "seed": seed}))
        self.commit()

    def _open(self) -> None:
        self.journal = FrontierJournal(self.folder / "frontier.db")
        self.runs = SeenRuns(self.folder, self.journal)
        self.sets = {crawl: SeenSet(seed, self.runs, crawl) for crawl, seed in SEEDS.items()}

    def add(self, crawl: int, urls: list[str]) -> None:
        mine = self.sets[crawl]
        expected = [url for url in dict.fromkeys(urls) if url not in self.known[crawl]]
        unknown = [url for url in urls if url not in self.known[crawl]]
        assert mine.unknown(urls) == unknown
        assert mine.add_new(list(dict.fromkeys(unknown)) if len(urls) % 2 else urls) == expected
        self.known[crawl].update(expected)
        for url in expected:
            self.journal.add_admitted_lines(crawl, format_line(self.next_item, crawl, Found(url, 1)).encode(), 1)
            self.next_item += 1
        assert len(mine) == len(self.known[crawl])

    def end(self, crawl: int, item: int) -> None:
        self.journal.done[crawl].append(item)

    def commit(self) -> None:
        self.journal.commit()
        self.runs.do_due_work()

    def checkpoint(self) -> None:
        self.commit()
        state, names = msgspec.msgpack.encode(self.runs.state_for_checkpoint()), self.runs.file_names()
        self.runs.sync()
        self.kept = (self.journal.last_seq(), state)
        self.runs.keep_named(names)
        assert names <= {path.name for path in self.files()}

    def discard(self, crawl: int, url: str) -> None:
        """It is in no journal, so a checkpoint follows."""
        self.sets[crawl].discard(url)
        self.known[crawl].discard(url)
        self.checkpoint()

    def kill(self) -> None:
        """Opens everything anew, with what was committed."""
        self.commit()
        self.reopen()

    def reopen(self) -> None:
        self.runs.close()
        self.journal.close()
        self._open()
        seq, state = self.kept
        self.runs.restore(msgspec.msgpack.decode(state, type=SeenState | None))
        for line, crawl, ended in self.journal.done_since(seq):
            self.runs.assign_entries(line, crawl, ended)
        for line, crawl, lines in self.journal.admitted_since(seq):
            for text in lines:
                self.sets[crawl].replay(seen_key(parse_line(text).found), is_counted=True)
            self.runs.note_replayed(line, crawl, covers=True)

    def merge(self) -> None:
        """Waits for all merges that are due."""
        while self.runs.is_merging:
            time.sleep(0.001)
            self.runs.do_due_work()

    def check(self) -> None:
        assert self.runs.file_names() <= {path.name for path in self.files()}
        for crawl, mine in self.sets.items():
            assert set(URLS) - set(mine.unknown(URLS)) == self.known[crawl]
            assert len(mine) == len(self.known[crawl])
            assert all((url in mine) == (url in self.known[crawl]) for url in URLS[::97])

    def files(self) -> list[Path]:
        folder = self.folder / seen_runs.RUNS_FOLDER
        return sorted(folder.glob("*.run")) if folder.exists() else []

    def opened(self) -> list[seen_file.RunFile]:
        names = self.runs.file_names()
        return [seen_file.RunFile(path) for path in self.files() if path.name in names]

    def close(self) -> None:
        self.runs.close()
        self.journal.close()


@contextmanager
def life_in(folder: Path) -> Iterator[Life]:
    life = Life(folder)
    try:
        yield life
    finally:
        life.close()


@pytest.fixture
def life(tmp_path: Path) -> Iterator[Life]:
    with life_in(tmp_path) as life:
        yield life


STEPS = st.one_of(
    st.tuples(st.just("add"), st.sampled_from((1, 2)), st.integers(0, len(URLS) - 50), st.integers(1, 50)),
    st.tuples(st.sampled_from(("commit", "checkpoint", "kill", "merge"))),
    st.tuples(st.just("discard"), st.sampled_from((1, 2)), st.sampled_from(URLS)),
)


@settings(max_examples=25, deadline=None)
@given(st.lists(STEPS, max_size=40))
def test_any_life_is_that_of_a_set(
    tmp_path_factory: pytest.TempPathFactory, way: str, steps: list[tuple[Any, ...]]
) -> None:
    with life_in(tmp_path_factory.mktemp(way)) as life:
        for name, *rest in steps:
            if name == "add":
                crawl, start, count = rest
                life.add(crawl, URLS[start : start + count])
            else:
                getattr(life, name)(*rest)
        life.check()
        life.kill()
        life.check()


def grown(life: Life, count: int = 1500, each: int = 25) -> None:
    for start in range(0, count, each):
        life.add(1 + start // each % 2, URLS[start : start + each])
        life.commit()
        life.merge()


def test_runs_are_merged_and_their_number_stays_small(life: Life) -> None:
    grown(life)
    life.merge()
    assert 1 < len(life.runs.file_names()) <= 3 * 4
    assert len(life.files()) > len(life.runs.file_names()), "what the last checkpoint may name stays until the next one"
    life.checkpoint()
    assert {path.name for path in life.files()} == life.runs.file_names()
    assert sum(one.entries_in_memory for one in life.sets.values()) < FLUSHED, "the rest is on disk"
    life.check()
    before = life.files()
    life.reopen()
    assert life.files() == before
    life.check()


def test_runs_that_are_merged_while_a_checkpoint_is_written_are_not_missed_by_the_next(life: Life) -> None:
    grown(life, 300)
    begun = life.runs.file_names()  # a process of its own writes it, and puts these on the disk
    grown(life)
    life.runs.keep_named(begun)  # it is valid: what was written and merged meanwhile is deleted
    life.checkpoint()
    life.reopen()
    life.check()


def test_a_flush_that_no_checkpoint_names_leaves_nothing(life: Life) -> None:
    grown(life)
    assert life.files()
    life.reopen()
    (life.folder / "seen" / "000000099.tmp").touch()
    life.reopen()
    assert not (life.folder / "seen" / "000000099.tmp").exists()
    life.check()


def test_each_line_of_the_journal_is_found_again(life: Life) -> None:
    grown(life)
    life.end(1, 7)
    life.commit()
    life.sets[1].note_new_line(URLS[3])
    life.journal.add_admitted_lines(1, format_line(life.next_item, 1, Found(URLS[3], 0)).encode(), 1)
    life.commit()
    life.runs.flush()
    life.merge()
    lines = {}
    for line, crawl, texts in life.journal.admitted_since(0):
        for text in texts:
            lines[crawl, parse_line(text).found.url] = line
    for (crawl, url), line in lines.items():
        assert max(filter(None, (file.line_of(life.sets[crawl].fingerprint(url)) for file in life.opened()))) == line
    assert [bool([1 for file in life.opened() if file.line_of(end_key(item)) is not None]) for item in (7, 8)] == [
        True,
        False,
    ]


def test_what_is_removed_is_new_again_also_when_it_is_in_a_run(life: Life) -> None:
    grown(life)
    for url in (URLS[0], URLS[30], URLS[1400]):
        life.discard(1 + URLS.index(url) // 25 % 2, url)
        life.check()
    life.kill()
    life.check()
    life.add(1, [URLS[0]])
    life.check()
    grown(life, 2000)
    life.check()
    life.checkpoint()
    life.kill()
    life.check()


def test_a_forgotten_crawl_takes_its_entries_along(life: Life) -> None:
    for start in range(0, 1000, 25):
        life.add(2 if start < 900 else 1, URLS[start : start + 25])
        life.commit()
        life.merge()
    entries = sum(map(len, life.opened()))
    life.runs.detach_crawl(2)
    life.sets.pop(2)
    life.known.pop(2)
    life.journal.delete("crawls", 2)
    life.commit()
    life.runs.rewrite_without_forgotten()
    for start in range(1000, 2000, 25):
        life.add(1, URLS[start : start + 25])
        life.commit()
        life.merge()
    life.checkpoint()
    assert sum(map(len, life.opened())) < entries + 1100 - 800
    life.check()


@pytest.mark.parametrize("part", range(6))
def test_a_flipped_bit_is_found_and_made_good_from_the_journal(
    life: Life, part: int, caplog: pytest.LogCaptureFixture
) -> None:
    grown(life)
    life.checkpoint()
    chance = random.Random(part)
    for path in life.files():
        data = bytearray(path.read_bytes())
        pages = len(data) // 4096
        at = (min(part, pages) * 4096 + chance.randrange(300)) % len(data)
        data[at] ^= 1 << chance.randrange(8)
        path.write_bytes(data)
    with caplog.at_level("WARNING"):
        life.reopen()
        life.check()
    assert "made again from the journal" in caplog.text or part >= 3, "only pages that are used are noticed"
    life.add(1, URLS[1400:1900])
    grown(life, 2000)
    life.check()


def test_a_run_that_is_gone_or_cut_off_is_made_again(life: Life) -> None:
    grown(life)
    life.checkpoint()
    first, *others = life.files()
    first.unlink()
    for path, left in zip(others, (0, 100, 9000), strict=False):
        os.truncate(path, min(left, path.stat().st_size - 1))
    life.reopen()
    life.check()
    life.checkpoint()
    life.reopen()
    life.check()


def test_a_power_cut_costs_only_what_no_checkpoint_names(
    life: Life, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    synced: set[str] = set()
    sync = seen_file.sync_file

    def noting(path: Path) -> None:
        sync(path)
        synced.add(path.name)

    for module in (seen_runs, seen_merge):
        monkeypatch.setattr(module, "sync_file", noting)
    for start in range(0, 1500, 25):
        life.add(1, URLS[start : start + 25])
        life.commit()
        life.merge()
        if start % 300 == 0:
            life.checkpoint()
            for path in life.files():
                if path.name not in synced:
                    path.write_bytes(b"")
            life.reopen()
    life.check()
    assert "damaged" not in caplog.text


@pytest.mark.parametrize("at", [1, 9, 40])
@pytest.mark.parametrize("call", ["pwrite", "fsync", "ftruncate", "replace"])
def test_a_kill_at_any_step_loses_nothing(tmp_path: Path, call: str, at: int) -> None:
    kept = tmp_path / "kept"
    pid = os.fork()
    if not pid:
        try:
            _die_at(call, at, lambda: _grow_and_note(tmp_path, kept))
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    life = Life.__new__(Life)
    life.folder, life.next_item = tmp_path, 1_000_000
    seq, state = msgspec.msgpack.decode(kept.read_bytes()) if kept.exists() else (0, msgspec.msgpack.encode(None))
    life.kept = (seq, state)
    life._open()
    life.known = {1: set(), 2: set()}
    for _, crawl, lines in life.journal.admitted_since(0):
        life.known[crawl].update(parse_line(text).found.url for text in lines)
    life.reopen()
    life.check()
    grown(life, 1500)
    life.check()
    life.close()


def _grow_and_note(folder: Path, kept: Path) -> None:
    life = Life(folder)
    for start in range(0, 1500, 25):
        life.add(1 + start // 25 % 2, URLS[start : start + 25])
        life.commit()
        life.merge()
        if start % 200 == 0:
            state, names = life.runs.state_for_checkpoint(), life.runs.file_names()
            life.runs.sync()
            new = kept.with_suffix(".new")
            new.write_bytes(msgspec.msgpack.encode((life.journal.last_seq(), msgspec.msgpack.encode(state))))
            new.rename(kept)
            life.runs.keep_named(names)


def _die_at(call: str, at: int, work: Callable[[], None]) -> None:
    module = Path if call == "replace" else os
    original, calls = getattr(module, call), 0

    def counting(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == at:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*args, **kwargs)

    setattr(module, call, counting)
    work()


def test_a_full_disk_leaves_everything_as_it_was(life: Life, monkeypatch: pytest.MonkeyPatch) -> None:
    grown(life, 500)
    life.checkpoint()
    before, is_full = life.files(), [True]
    write = os.pwrite

    def full(fd: int, data: bytes, offset: int) -> int:
        if is_full[0]:
            raise OSError(28, "No space left on device")
        return write(fd, data, offset)

    monkeypatch.setattr(os, "pwrite", full)
    life.add(1, URLS[500:560])
    with pytest.raises(DiskFull):
        life.commit()
    life.check()
    assert [path for path in life.files() if path.exists()] == before
    assert not list((life.folder / "seen").glob("*.tmp"))
    life.add(1, URLS[560:570])
    with pytest.raises(DiskFull):
        life.commit()
    is_full[0] = False
    life.commit()
    assert len(life.files()) == len(before) + 1
    life.check()
    life.kill()
    life.check()


def test_a_merge_that_finds_the_disk_full_is_tried_again(life: Life, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        def __init__(self, path: Path, _most: int) -> None:
            raise DiskFull(path)

    with monkeypatch.context() as patch:
        patch.setattr(seen_merge, "RunWriter", Full)
        grown(life, 400)
        assert len(life.runs.file_names()) == len(life.files()) == 8
    grown(life, 1500)
    assert len(life.runs.file_names()) <= 12
    life.check()
