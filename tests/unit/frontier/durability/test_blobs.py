"""What is on the disk beyond a checkpoint: numbered blobs, the list of sites at rest, and sets of item numbers."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from log_lines import log_lines

from weft.config import PolitenessSection
from weft.errors import Damaged, DiskFull
from weft.frontier.contract import CrawlLimits
from weft.frontier.durability import blobs as blobs_module
from weft.frontier.durability import swap_file
from weft.frontier.durability.blobs import BlobStore
from weft.frontier.durability.items import Bitmap
from weft.frontier.durability.swap_file import SwapFile, SwapPosition
from weft.frontier.embedded.embedded_frontier import EmbeddedFrontier
from weft.frontier.scheduling import spill
from weft.frontier.scheduling.swapped_sites import SwappedSites
from weft.records import Found


def settled(store: BlobStore) -> None:
    """Everything that may be deleted is."""
    while store._unwanted or store._leftover:
        store.delete_some()


def numbers(store: BlobStore) -> set[int]:
    store.flush()
    return {number for (number,) in store._db.execute("SELECT number FROM blobs")}


@pytest.mark.parametrize("buffer", [1, 1 << 20])
@pytest.mark.parametrize("seed", range(4))
def test_blobs_beside_a_model_through_checkpoints_and_kills(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, buffer: int
) -> None:
    """Whatever is put and dropped, and however the processes end: what the last checkpoint names is there."""
    monkeypatch.setattr(blobs_module, "_BUFFER_BYTES", buffer)
    chance, path = random.Random(seed), tmp_path / "0" / "queues.db"
    path.parent.mkdir()
    store, wanted = BlobStore(path), dict[int, bytes]()
    named, there = store.begin_checkpoint(), dict[int, bytes]()
    store.end_checkpoint(was_written=True)
    for life in range(1, 7):
        for _ in range(chance.randrange(200)):
            kind = chance.random()
            if kind < 0.5:
                content = chance.randbytes(chance.randrange(300))
                number = store.put(content)
                assert number not in wanted
                wanted[number] = content
            elif kind < 0.9 and wanted:
                number = chance.choice(sorted(wanted))
                assert store.get(number) == wanted.pop(number)
                store.drop(number)
            elif kind < 0.95:
                store.delete_some()
            else:
                begun, then = store.begin_checkpoint(), dict(wanted)
                was_written = chance.random() < 0.7
                store.end_checkpoint(was_written=was_written)
                if was_written:
                    named, there = begun, then
        killed = tmp_path / str(life) / "queues.db"
        shutil.copytree(path.parent, killed.parent)
        store.close()
        path, store, wanted = killed, BlobStore(killed), dict(there)
        assert store.has_checkpoint(named)
        store.discard_since(named)
        assert {number: store.get(number) for number in wanted} == wanted
    begun = store.begin_checkpoint()
    store.end_checkpoint(was_written=True)
    settled(store)
    assert numbers(store) == set(wanted) and begun.store == named.store
    store.close()


def test_an_older_file_or_another_is_not_what_a_checkpoint_names(tmp_path: Path) -> None:
    store = BlobStore(tmp_path / "queues.db")
    first = store.begin_checkpoint()
    store.flush()
    shutil.copy(tmp_path / "queues.db", tmp_path / "older.db")
    shutil.copy(tmp_path / "queues.db-wal", tmp_path / "older.db-wal")
    second = store.begin_checkpoint()
    assert store.has_checkpoint(first) and store.has_checkpoint(second)
    store.close()
    for path, expected in (("older.db", (True, False)), ("new.db", (False, False))):
        other = BlobStore(tmp_path / path)
        assert (other.has_checkpoint(first), other.has_checkpoint(second)) == expected
        other.close()
    store = BlobStore(tmp_path / "queues.db")
    store.clear()
    assert not store.has_checkpoint(first)
    store.close()


def test_a_full_disk_leaves_blobs_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = BlobStore(tmp_path / "queues.db")
    store.flush()
    store._db.execute("PRAGMA max_page_count = 8")
    monkeypatch.setattr(blobs_module, "_BUFFER_BYTES", 1000)
    texts = (random.Random(number).randbytes(900) for number in range(300))  # that nothing compresses
    contents = {store.put(text): text for text in texts}
    assert all(store.get(number) == content for number, content in contents.items())
    with pytest.raises(DiskFull):
        store.begin_checkpoint()
    store._db.execute("PRAGMA max_page_count = 100000")
    store.begin_checkpoint()
    assert all(store.get(number) == content for number, content in contents.items())
    store.close()


@pytest.mark.parametrize("what", ["content", "missing", "moved", "file"])
def test_damage_is_found_where_it_is_read_and_the_next_start_reads_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setattr(spill, "PIECE_BYTES", 200)

    def opened() -> EmbeddedFrontier:
        section = PolitenessSection(delay_s=0.0, places=1)
        frontier = EmbeddedFrontier(tmp_path, section, max_in_memory=2, checkpoint_every=0)
        frontier.crawls.open_crawl("test", CrawlLimits())
        frontier.recovery.recover()
        return frontier

    frontier = opened()
    urls = sorted(f"https://{host}.test/{number:050}" for host in "abcdef" for number in range(50))
    frontier.queue.admit(1, [Found(url, 0) for url in urls])
    frontier.close()
    path = tmp_path / "queues.db"
    if what == "file":
        with path.open("r+b") as file:
            file.seek(4096)
            file.write(os.urandom(path.stat().st_size - 4096))
    else:
        change = {
            "content": "UPDATE blobs SET content = substr(content, 1, 20) || x'ff' || substr(content, 22)",
            "missing": "DELETE FROM blobs WHERE number > 3",
            "moved": "UPDATE blobs SET content = (SELECT content FROM blobs WHERE number = 1)",
        }
        with closing(sqlite3.connect(path)) as db:
            db.execute(change[what])
            db.commit()
    if what == "file":
        with log_lines("weft.frontier") as lines:
            frontier = opened()
        assert [message for message, _ in lines] == [
            "what the checkpoint names is not there: the whole journal is replayed"
        ]
    else:
        frontier = opened()
        with pytest.raises(Damaged, match=r"queues\.db: is damaged .* resume the crawl"):
            list(frontier.queue.items(1))
        frontier.close()
        frontier = opened()
    assert sorted(item.url for item in frontier.queue.items(1)) == urls
    frontier.close()


def resting_in(folder: Path) -> tuple[BlobStore, SwappedSites, SwapFile]:
    store = BlobStore(folder / "queues.db")
    swapped = SwappedSites(store)
    return store, swapped, SwapFile(folder, swapped)


def content(swapped: SwappedSites) -> dict[int, list[list[bytes]]]:
    return {crawl: sorted(swapped.rows_of_crawl(crawl)) for crawl in (1, 2)}


@pytest.mark.parametrize("few", [0, 40, 10_000], ids=["whole", "both", "changes"])
def test_what_is_at_rest_comes_back_from_a_whole_copy_and_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    monkeypatch.setattr(swap_file, "_FEW", few)
    chance, at = random.Random(few), SwapPosition()
    store, swapped, file = resting_in(tmp_path)
    alive: list[str] = []
    for life in range(8):
        for number in range(chance.randrange(60)):
            key = f"host{chance.randrange(90)}"
            if chance.random() < 0.6:
                found = swapped.find(key)
                swapped.add(key, found[0] if found else chance.choice((1, 2)), b"%d %d" % (life, number), life + 5.0)
            else:
                swapped.remove(key)
        write = file.begin_checkpoint()
        before = content(swapped), len(swapped), [swapped.count(crawl) for crawl in (1, 2)]
        if chance.random() < 0.2:
            file.end_checkpoint(was_written=False)
            write = file.begin_checkpoint()
        at = write()
        file.end_checkpoint(was_written=True)
        with (tmp_path / f"sites-{at.number}").open("ab") as torn:
            torn.write(b"what a process did not live to name")
        again = SwappedSites(store)
        other = SwapFile(tmp_path, again)
        assert other.restore(at, lambda: alive.append("beat"))
        assert (content(again), len(again), [again.count(crawl) for crawl in (1, 2)]) == before
        assert len(list(tmp_path.glob("sites-*"))) == 1
        swapped, file = again, other
    assert alive
    store.close()


@pytest.mark.parametrize("damage", ["cut", "flipped", "gone"])
def test_a_damaged_list_of_sites_at_rest_is_not_used(tmp_path: Path, damage: str) -> None:
    store, swapped, file = resting_in(tmp_path)
    for number in range(50):
        swapped.add(f"host{number}", 1, b"row", 5.0)
    at = file.begin_checkpoint()()
    path = tmp_path / f"sites-{at.number}"
    if damage == "gone":
        path.unlink()
    elif damage == "cut":
        os.truncate(path, at.length - 1)
    else:
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    again = SwappedSites(store)
    assert not SwapFile(tmp_path, again).restore(at, lambda: None)
    assert len(again) == 0
    store.close()


def test_changes_do_not_grow_without_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same sites wake and rest: what is on the disk is a few times what is at rest."""
    monkeypatch.setattr(swap_file, "_FEW", 10)
    store, swapped, file = resting_in(tmp_path)
    sizes = []
    for _ in range(50):
        while swapped.remove_due(1, 9.0):
            pass
        for number in range(40):
            swapped.add(f"host{number}", 1, b"row", 5.0)
        file.begin_checkpoint()()
        file.end_checkpoint(was_written=True)
        sizes.append(sum(path.stat().st_size for path in tmp_path.glob("sites-*")))
        assert not swapped.changes
    assert max(sizes) < 3 * 23 * 2 * 40 + 3000
    store.close()


@pytest.mark.parametrize("spread", [1, 300, 70_000])
def test_a_set_of_item_numbers_is_one_dense_or_sparse(spread: int) -> None:
    chance, items, plain = random.Random(spread), Bitmap(), set[int]()
    for _ in range(3000):
        number = chance.randrange(2000) * spread
        if chance.random() < 0.7:
            assert items.add((number,)) == 1
            plain.add(number)
        else:
            items.discard(number)
            plain.discard(number)
    copy = Bitmap(items.blocks())
    for number in range(0, 2000 * spread, spread):
        assert (number in items) == (number in plain) == (number in copy)
    copy.keep_below(1 << 16)
    assert all(number in copy for number in plain if number < 1 << 16)
    assert not any(number in copy for number in plain if number >= 1 << 16)
    copy.keep_below(0)
    assert not copy and (bool(items) == bool(plain))
