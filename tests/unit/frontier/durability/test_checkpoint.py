"""Which checkpoints are used: one that is whole and of these crawls; any other is as good as none."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from blob_stores import unused_store
from xxhash import xxh3_64_digest

from weft.config import PolitenessSection
from weft.frontier.contract import CrawlLimits
from weft.frontier.durability import checkpoint, recovery
from weft.frontier.durability.checkpoint import CheckpointReader
from weft.frontier.embedded.embedded_frontier import EmbeddedFrontier
from weft.frontier.scheduling import spill
from weft.frontier.scheduling.sites import Crawl
from weft.records import Found

DEEP = CrawlLimits(max_depth=5)


def written(folder: Path, *limits: CrawlLimits) -> Path:
    """The checkpoint of a frontier with a few pages in each of its crawls."""
    frontier = EmbeddedFrontier(folder, PolitenessSection(delay_s=0.0, places=1), checkpoint_every=-1_000_000)
    for number, one in enumerate(limits):
        frontier.crawls.open_crawl(f"crawl{number}", one)
    frontier.recovery.recover()
    for number in range(1, len(limits) + 1):
        frontier.queue.admit(number, [Found(f"https://a.test/{number}/{page}", 1) for page in range(9)])
    frontier.close()
    return folder / "checkpoint"


def is_used(path: Path, *limits: CrawlLimits, last_seq: int = 1_000_000) -> bool:
    section = PolitenessSection(delay_s=1.0, places=1)
    crawls = {number: Crawl(number, "", 1, one, unused_store(), section) for number, one in enumerate(limits, 1)}
    reader = CheckpointReader(path, last_seq, crawls)
    reader.close()
    return reader.header is not None


@pytest.mark.parametrize("limits", [(CrawlLimits(),), (DEEP,), (CrawlLimits(), DEEP)])
def test_a_whole_one_of_these_crawls_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limits: tuple[CrawlLimits, ...]
) -> None:
    path = written(tmp_path / "f", *limits)
    assert is_used(path, *limits)
    frontier = EmbeddedFrontier(tmp_path / "f", PolitenessSection(delay_s=0.0, places=1))
    for number, one in enumerate(limits):
        frontier.crawls.open_crawl(f"crawl{number}", one)
    # What only the checkpoint knows: without it nothing would be queued.
    monkeypatch.setattr(frontier._base.journal, "admitted_since", lambda *_: iter(()))
    assert frontier.recovery.recover() == 9 * len(limits)
    assert frontier.status.stats().seen == 9 * len(limits)
    frontier.close()


def test_one_that_is_missing_or_torn_is_not(tmp_path: Path) -> None:
    path = written(tmp_path / "f", CrawlLimits())
    whole = path.read_bytes()
    for size in (0, 1, 3, 4, 20, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        assert not is_used(path, CrawlLimits()), size
    path.write_bytes(whole)
    assert is_used(path, CrawlLimits())
    path.unlink()
    assert not is_used(path, CrawlLimits())


def test_queued_urls_take_a_fraction_of_their_text(tmp_path: Path) -> None:
    frontier = EmbeddedFrontier(tmp_path / "f", PolitenessSection(delay_s=0.0, places=1), checkpoint_every=-1_000_000)
    frontier.crawls.open_crawl("crawl", CrawlLimits())
    frontier.recovery.recover()
    urls = [f"https://host{page % 50}.test/a/path/of/some/length/{page}.html" for page in range(5000)]
    frontier.queue.admit(1, [Found(url, 1) for url in urls])
    frontier.close()
    path = tmp_path / "f" / "checkpoint"
    assert path.stat().st_size < len("".join(urls)) / 4
    assert is_used(path, CrawlLimits())


def test_one_that_an_earlier_weft_has_written_is_as_good_as_none(tmp_path: Path) -> None:
    """Its records were not compressed: a length, then MessagePack."""
    path = written(tmp_path / "f", CrawlLimits())
    header = msgspec.msgpack.encode([6, 9, 10, 9, 0, [], [1, 1, 1, b"", []], [0, 0, 0], "boot"])
    end = msgspec.msgpack.encode("end")
    data = b"".join(len(record).to_bytes(4, "little") + record for record in (header, end))
    path.write_bytes(data + xxh3_64_digest(data))
    assert not is_used(path, CrawlLimits())


def test_one_is_used_though_crawls_have_come_and_gone_since(tmp_path: Path) -> None:
    path = written(tmp_path / "f", CrawlLimits())
    assert is_used(path, CrawlLimits(), CrawlLimits())
    assert is_used(path, CrawlLimits(), DEEP), "what is not in it is read from the journal"
    assert is_used(path)


def test_depths_must_be_in_it_where_depth_decides(tmp_path: Path) -> None:
    assert not is_used(written(tmp_path / "flat", CrawlLimits()), DEEP)
    assert is_used(written(tmp_path / "deep", DEEP), CrawlLimits()), "they are read and left"
    two = written(tmp_path / "two", CrawlLimits(), DEEP)
    assert is_used(two, CrawlLimits(), DEEP)
    assert is_used(two, CrawlLimits(), CrawlLimits())
    assert not is_used(two, DEEP, DEEP)


def test_all_of_it_is_on_the_disk_before_it_takes_the_old_ones_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[bytes] = []

    def fsync(fd: int) -> None:
        with suppress(OSError):  # a folder, or a file that is only written
            synced.append(os.pread(fd, 1 << 20, 0))

    with monkeypatch.context() as patched:
        patched.setattr(checkpoint, "_open_private", lambda path, flags: os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        patched.setattr(os, "fsync", fsync)
        path = written(tmp_path / "f", CrawlLimits())
    assert path.read_bytes() in synced


@pytest.mark.parametrize("later", [{"crawl1": CrawlLimits()}, {"crawl0": CrawlLimits(), "crawl1": CrawlLimits()}])
def test_depths_that_nobody_needs_any_more_are_passed_over(tmp_path: Path, later: dict[str, CrawlLimits]) -> None:
    written(tmp_path / "f", DEEP, CrawlLimits())
    frontier = EmbeddedFrontier(tmp_path / "f", PolitenessSection(delay_s=0.0, places=1))
    for name, limits in later.items():
        frontier.crawls.open_crawl(name, limits)
    assert frontier.recovery.recover() == 9 * len(later)
    assert frontier.queue.admit(2, [Found(f"https://a.test/2/{page}", 1) for page in range(10)]).new == 1
    frontier.close()


def test_one_of_another_layout_is_as_good_as_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(recovery, "LAYOUT", 3)
        path = written(tmp_path / "f", CrawlLimits())
    assert not is_used(path, CrawlLimits())
    assert not is_used(path, CrawlLimits(), last_seq=0), "nor does it tell how long the journal must be"


def test_a_long_queue_of_a_crawl_that_is_not_open_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spill, "PIECE_BYTES", 40)
    written(tmp_path / "f", CrawlLimits(), CrawlLimits())
    frontier = EmbeddedFrontier(tmp_path / "f", PolitenessSection(delay_s=0.0, places=1))
    assert frontier.crawls.open_crawl("crawl1", CrawlLimits()) == 2
    monkeypatch.setattr(frontier._base.journal, "admitted_since", lambda *_: iter(()))
    assert frontier.recovery.recover() == 9
    assert [item.url for item in frontier.queue.items(2)] == [f"https://a.test/2/{page}" for page in range(9)]
    frontier.close()
