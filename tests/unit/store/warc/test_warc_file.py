"""A WARC file holds whole batches, and nothing is written over."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from weft.errors import BadInput, DiskFull
from weft.store.errors import StoreError
from weft.store.warc.warc_file import WarcFile, check_slot, files_of, warc_name, warc_serial


def test_chunks_are_appended_where_it_says(tmp_path: Path) -> None:
    file = WarcFile(tmp_path / "a", 0)
    assert [file.append([b"ab", b"c"]), file.append([]), file.append([b"de"])] == [0, 3, 3]
    file.sync()
    file.close()
    assert (tmp_path / "a").read_bytes() == b"abcde"
    again = WarcFile(tmp_path / "a", 5)
    assert again.append([b"f"]) == 5
    again.close()
    assert (tmp_path / "a").read_bytes() == b"abcdef"


def test_a_file_that_is_not_as_long_as_the_index_says_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"somebody's")
    with pytest.raises(StoreError, match="holds 10 bytes, the index has 0"):
        WarcFile(tmp_path / "a", 0)
    assert (tmp_path / "a").read_bytes() == b"somebody's"


@pytest.mark.parametrize(
    ("code", "kind"),
    [(errno.ENOSPC, DiskFull), (errno.EDQUOT, DiskFull), (errno.EFBIG, DiskFull), (errno.EIO, StoreError)],
)
def test_a_write_that_stops_half_way_is_cut_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, kind: type[DiskFull | StoreError]
) -> None:
    file = WarcFile(tmp_path / "a", 0)
    file.append([b"first"])
    whole = os.pwrite

    def half(fd: int, data: bytes, at: int) -> int:
        if len(data) < 4:
            raise OSError(code, os.strerror(code))
        return whole(fd, data[: len(data) // 2], at)

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", half)
        with pytest.raises(kind) as caught:
            file.append([b"second"])
    assert str(tmp_path / "a") in str(caught.value)
    assert (tmp_path / "a").read_bytes() == b"first"
    assert file.append([b"second"]) == 5
    assert (tmp_path / "a").read_bytes() == b"firstsecond"
    file.close()


def test_names_carry_crawl_slot_and_serial(tmp_path: Path) -> None:
    name = warc_name("2026-11 é/x", "pod0-fetcher1", 7)
    assert name == "weft-2026_11_x-pod0-fetcher1-00007.warc.gz"
    assert warc_serial(name) == 7
    assert warc_serial("other.warc.gz") == -1
    assert warc_serial(warc_name("c", "s", 123456)) == 123456


def test_files_of_a_slot_are_its_own_in_order(tmp_path: Path) -> None:
    ours = [warc_name("c", "pod0-fetcher0", serial) for serial in (2, 10, 100000)]
    others = [warc_name("c", "fetcher0", 1), warc_name("d", "pod0-fetcher0", 3), "weft-x.warc.gz", "readme"]
    for name in [*reversed(ours), *others]:
        (tmp_path / "3").mkdir(exist_ok=True)
        (tmp_path / "3" / name).touch()
    assert files_of(tmp_path, "c", "pod0-fetcher0") == [f"3/{name}" for name in ours]
    assert files_of(tmp_path, "c", "fetcher0") == [f"3/{others[0]}"]


@pytest.mark.parametrize("slot", ["", "a/b", "pod 0", "x*"])
def test_slots_that_cannot_be_in_a_file_name_are_refused(slot: str) -> None:
    with pytest.raises(BadInput):
        check_slot(slot)
