"""Data dirs that cannot be used are refused with one message that says what to do, and nothing is harmed."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from weft.errors import BadInput, WeftError
from weft.records import Row
from weft.store.pages import PageStore

if TYPE_CHECKING:
    from collections.abc import Iterator


def a_row(item: int) -> Row:
    return Row(item, 1, f"http://a.test/{item}", f"http://a.test/{item}", 0, 1.0, "", "", "", "", 0, 0, "", 0, "dns")


def test_no_data_dir_at_all() -> None:
    with pytest.raises(BadInput, match="at least one data dir"):
        PageStore.open([])


@pytest.mark.parametrize("read_only", [True, False])
def test_a_data_dir_that_is_a_file(tmp_path: Path, read_only: bool) -> None:
    path = tmp_path / "data"
    path.write_text("a file")
    with pytest.raises(BadInput, match="data"):
        PageStore.open([path], crawl_id="c", read_only=read_only)
    assert path.read_text() == "a file"


def test_a_data_dir_below_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("a file")
    with pytest.raises(BadInput, match="there is a file of that name"):
        PageStore.open([tmp_path / "file" / "data"], crawl_id="c")


def test_an_index_of_another_layout(tmp_path: Path) -> None:
    PageStore.open([tmp_path], crawl_id="c").close()
    with sqlite3.connect(tmp_path / "index-pod0-fetcher0.db") as db:
        db.execute("UPDATE meta SET value = 99 WHERE key = 'schema_version'")
    db.close()
    for read_only in (True, False):
        with pytest.raises(BadInput, match="layout 99"):
            PageStore.open([tmp_path], crawl_id="c", read_only=read_only)


def test_a_failed_opening_lets_go_of_the_slot(tmp_path: Path) -> None:
    (tmp_path / "second").write_text("a file")
    with pytest.raises(BadInput):
        PageStore.open([tmp_path / "first", tmp_path / "second"], crawl_id="c")
    (tmp_path / "second").unlink()
    PageStore.open([tmp_path / "first", tmp_path / "second"], crawl_id="c").close()


@contextmanager
def read_only_copy(folder: Path, at: Path) -> Iterator[None]:
    """A read-only medium; root may write to any folder, so that a mode is not enough."""
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    at.mkdir()
    mount = subprocess.run(["mount", "--bind", "-o", "ro", folder, at], capture_output=True, text=True)
    if mount.returncode == 0:
        subprocess.run(["mount", "-o", "remount,ro,bind", at], capture_output=True)
    else:
        pytest.skip(f"mounting is not allowed here: {mount.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", at], check=True)


def test_a_read_only_medium_can_be_read_and_not_written(tmp_path: Path) -> None:
    store = PageStore.open([tmp_path / "data"], crawl_id="c")
    store.add(a_row(1), None)
    store.close()
    with read_only_copy(tmp_path / "data", tmp_path / "medium"):
        with pytest.raises(BadInput, match="cannot be written: Read-only file system"):
            PageStore.open([tmp_path / "medium"], crawl_id="c")
        reader = PageStore.open([tmp_path / "medium"], read_only=True)
        assert [row.item for row in reader.rows()] == [1]
        reader.close()


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(path.read_bytes()[:5000]),
        lambda path: path.write_bytes(path.read_bytes()[:100] + os.urandom(8000)),
        lambda path: (path.unlink(), path.mkdir()),
        lambda path: shutil.copyfile("/bin/sh", path),
    ],
    ids=["emptied", "cut", "noise", "a folder", "a program"],
)
def test_a_damaged_index_is_an_error_of_ours(tmp_path: Path, damage: Callable[[Path], object]) -> None:
    store = PageStore.open([tmp_path], crawl_id="c")
    for item in range(1, 200):
        store.add(a_row(item), None)
    store.close()
    damage(tmp_path / "index-pod0-fetcher0.db")
    for read_only in (True, False):
        try:
            store = PageStore.open([tmp_path], crawl_id="c", read_only=read_only)
            list(store.rows())
            store.close()
        except WeftError as error:
            assert "index-pod0-fetcher0.db" in str(error) or "holds no crawl" in str(error)  # noqa: PT017
