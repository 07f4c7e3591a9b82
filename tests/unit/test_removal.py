"""Folders that are no longer used are gone at once; their files are deleted in the background."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from pace import patience

from weft.removal import Trash


def filled(folder: Path) -> Path:
    for name in ("a", "b"):
        (folder / name).mkdir(parents=True)
        (folder / name / "file").write_text("x")
    return folder


def until(happened: Callable[[], object]) -> None:
    end = time.monotonic() + patience(10)
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_what_is_discarded_is_gone_at_once_and_deleted_then(tmp_path: Path) -> None:
    trash = Trash(tmp_path / "trash")
    trash.discard(tmp_path / "missing")
    assert not (tmp_path / "trash").exists(), "nothing was discarded yet"
    for _ in range(2):
        trash.discard(filled(tmp_path / "queues"))
        assert not (tmp_path / "queues").exists()
    until(lambda: not any((tmp_path / "trash").iterdir()))


def test_what_a_killed_process_has_left_is_deleted_by_the_next(tmp_path: Path) -> None:
    for name in ("1700000000000000000-0", "1700000000000000001-12", "letters"):
        filled(tmp_path / "trash" / name)
    Trash(tmp_path / "trash")
    until(lambda: [path.name for path in (tmp_path / "trash").iterdir()] == ["letters"])  # is not ours
