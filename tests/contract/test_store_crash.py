"""kill -9 of a real process at every step between two durable writes: no row without its bytes, no bytes without their
row, one row per item, nothing lost that was committed.

The process that is killed is forked from the test's: it stores pages as the engine does, and tells what is committed.
"""

from __future__ import annotations

import json
import os
import random
import signal
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pytest
from fastwarc.warc import ArchiveIterator as FastIterator
from warcio.archiveiterator import ArchiveIterator

from weft.records import FetchResult, Row
from weft.store.pages import PageStore
from weft.store.warc.warc_read import WarcScan

ITEMS = 120
BATCH = 8
ROTATE = 9000


def page(n: int) -> tuple[Row, FetchResult | None]:
    """The n-th item; every ninth is a row alone."""
    url = f"http://h{n % 7}.test/p{n}"
    body = random.Random(n).randbytes(20 * (n % 40))
    row = Row(n, 1, url, url, 200, 1.0 * n, "text/html", "", "", f"Page {n}", 1, 0, "", len(body), "")
    head = b"HTTP/1.1 200 OK\r\nServer: x\r\n\r\n"
    result = FetchResult(url, 200, head, body, None, "", 1.0 * n, 2.0 * n, "127.0.0.1", b"GET / HTTP/1.1\r\n\r\n")
    return row, None if n % 9 == 0 else result


def die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)


def dying_at(step: str, times: int) -> Callable[[str], None]:
    """A hook that kills the process when it comes to a step for the n-th time."""
    left = times

    def hook(name: str) -> None:
        nonlocal left
        if name == step:
            left -= 1
            if left == 0:
                die()

    return hook


def dying_in(name: str, times: int) -> None:
    """Lets a system call do half of its work, and kills."""
    whole = getattr(os, name)
    left = times

    def half(fd: int, *arguments: object) -> object:
        nonlocal left
        left -= 1
        if left == 0:
            if name == "pwrite":
                data, at = arguments
                assert isinstance(data, bytes)
                whole(fd, data[: len(data) // 2], at)
            die()
        return whole(fd, *arguments)

    setattr(os, name, half)


def crawl(folders: list[Path], hook: Callable[[str], None], tell: Callable[[list[int]], object]) -> None:
    """Stores every item that is not yet there, batch by batch, as the engine does; tells what is committed."""
    store = PageStore.open(folders, crawl_id="c1", rotate_bytes=ROTATE, step=hook)
    there = {row.item for row in store.rows()}
    todo = [n for n in range(1, ITEMS + 1) if n not in there]
    hook("opened")
    for start in range(0, len(todo), BATCH):
        batch = todo[start : start + BATCH]
        for n in batch:
            store.add(*page(n))
        hook("added")
        store.write()
        hook("written")
        store.commit()
        tell(batch)
        hook("committed")
        if start % (3 * BATCH) == 0:
            store.sync()
        hook("synced")
    store.close()


def start(folders: list[Path], step: str = "", times: int = 0) -> tuple[int, IO[str]]:
    """Starts the process that will die at a step; returns its id and what it tells."""
    out, into = os.pipe()
    process = os.fork()
    if process:
        os.close(into)
        return process, os.fdopen(out)
    try:
        if step in ("pwrite", "fdatasync", "truncate"):
            dying_in(step, times)
        crawl(folders, dying_at(step, times), lambda items: os.write(into, f"{items}\n".encode()))
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def killed_at(folders: list[Path], step: str, times: int) -> set[int]:
    """Lets a process run until it dies at a step; returns the items that it had committed."""
    process, told = start(folders, step, times)
    with told:
        committed = {item for line in told for item in json.loads(line)}
    _, status = os.waitpid(process, 0)
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    return committed


def assert_whole(folders: list[Path], committed: set[int]) -> None:
    """Opens the store as a resumed crawl would, and compares bytes with rows in both directions."""
    assert not committed or committed <= _seen_by_reader(folders)  # before the first commit there may be no index
    store = PageStore.open(folders, crawl_id="c1", rotate_bytes=ROTATE)
    assert store.lost_pages_to_refetch() == []  # no power was cut
    rows = list(store.rows())
    assert len({row.item for row in rows}) == len(rows)
    assert committed <= {row.item for row in rows}
    for row in rows:
        _, result = page(row.item)
        http = store.read_page(row).http
        assert (http.body if http else None) == (result.body if result else None)
    store.abandon()
    stored = sorted(row.url for row in rows if row.warc_file)
    files = [path for folder in folders for path in (folder / "warc").glob("*/*.warc.gz") if path.stat().st_size]
    assert not any(_is_torn(path) for path in files)
    assert sorted(url for path in files for url in _responses_by_warcio(path)) == stored
    assert sorted(url for path in files for url in _responses_by_fastwarc(path)) == stored


def _seen_by_reader(folders: list[Path]) -> set[int]:
    """What somebody finds who only looks, before the crawl goes on."""
    reader = PageStore.open(folders, read_only=True)
    items = {row.item for row in reader.rows() if reader.read_page(row)}
    reader.close()
    return items


def _is_torn(path: Path) -> bool:
    scan = WarcScan(path)
    kinds = [at.record.kind for at in scan if at.record.kind != "metadata"]  # items without a response
    assert kinds[0] == "warcinfo"
    assert kinds[1:] == ["request", "response"] * (len(kinds) // 2)
    return scan.torn


def _responses_by_warcio(path: Path) -> list[str]:
    found = []
    with path.open("rb") as file:
        for record in ArchiveIterator(file, check_digests="raise"):
            record.content_stream().read()
            if record.rec_type == "response":
                found.append(record.rec_headers["WARC-Target-URI"])
    return found


def _responses_by_fastwarc(path: Path) -> list[str]:
    return [
        record.headers["WARC-Target-URI"]
        for record in FastIterator(str(path))
        if record.headers["WARC-Type"] == "response" and record.verify_payload_digest()
    ]


STEPS = [
    ("opened", 1),
    ("added", 1),
    ("added", 5),
    ("warc-registered", 1),
    ("warc-registered", 3),
    ("warc-opened", 2),
    ("warc-opened", 4),
    ("pwrite", 1),
    ("pwrite", 6),
    ("warc-written", 1),
    ("warc-written", 8),
    ("written", 4),
    ("index-committed", 3),  # in one data dir of two
    ("committed", 1),
    ("committed", 7),
    ("fdatasync", 9),
    ("synced", 4),
]


@pytest.fixture
def folders() -> Iterator[list[Path]]:
    """Two data dirs; in memory where there is a place for that, since a kill does not ask what the disk has."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        yield [Path(folder) / "a", Path(folder) / "b"]


@pytest.mark.parametrize(("step", "times"), STEPS)
def test_killed_at_a_step_it_goes_on_without_loss(folders: list[Path], step: str, times: int) -> None:
    committed = killed_at(folders, step, times)
    assert len(committed) < ITEMS
    assert_whole(folders, committed)
    crawl(folders, lambda _: None, lambda _: None)
    assert_whole(folders, set(range(1, ITEMS + 1)))


def test_killed_while_it_repairs_it_repairs_again(folders: list[Path]) -> None:
    committed = killed_at(folders, "written", 6)
    assert killed_at(folders, "truncate", 1) == set()
    assert_whole(folders, committed)


def test_killed_again_and_again_at_any_moment(folders: list[Path]) -> None:
    committed: set[int] = set()
    dice = random.Random(7)
    for _ in range(8):
        process, told = start(folders)
        killing = threading.Timer(dice.random() * 0.03, os.kill, (process, signal.SIGKILL))
        killing.start()
        with told:
            committed |= {item for line in told for item in json.loads(line)}
        killing.join()
        os.waitpid(process, 0)
        assert_whole(folders, committed)
