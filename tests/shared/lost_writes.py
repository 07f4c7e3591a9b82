"""What a power cut may leave of a folder: the bytes and names that were synced, and of the others all or nothing.

A step is a call that syncs, renames or deletes. Before each, the folders that a power cut at that moment may leave are
checked: with the names as of their folder's last sync or as they are, with the bytes of files as of their last sync or
as they are. Databases of SQLite, which syncs them itself, are as they are, but for its log.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

Check = Callable[[Path], None]


class LostWrites:
    """Watches a folder while something works on it, and checks what a power cut would leave at each step."""

    def __init__(self, folder: Path, scratch: Path, check: Check) -> None:
        self._folder, self._scratch, self._check = folder, scratch, check
        self._content: dict[int, bytes] = {}  # by inode
        self._names: dict[Path, dict[str, int]] = {}  # by folder
        self._is_checking = False
        self._checked = set[int]()  # hashes of folders
        for path in [folder, *folder.rglob("*")]:
            self._note(path)

    @property
    def cuts(self) -> int:
        """How many different folders were checked."""
        return len(self._checked)

    def watch(self, patch: pytest.MonkeyPatch) -> None:
        """From now on each step is one at which the power may be cut."""
        for owner, name in ((os, "fsync"), (os, "fdatasync"), (Path, "replace"), (Path, "unlink")):
            patch.setattr(owner, name, self._stepping(getattr(owner, name), is_sync=owner is os))

    def _stepping(self, call: Callable[..., Any], *, is_sync: bool) -> Callable[..., Any]:
        def step(*arguments: Any, **options: Any) -> Any:
            if self._is_checking:
                return call(*arguments, **options)
            self._cut_everywhere()
            value = call(*arguments, **options)
            if is_sync:
                self._note(Path(f"/proc/self/fd/{arguments[0]}").readlink())
            return value

        return step

    def _note(self, path: Path) -> None:
        """A file or the names of a folder are on the disk."""
        if path.is_dir():
            self._names[path] = {one.name: one.stat().st_ino for one in path.iterdir() if one.is_file()}
        elif path.is_file():
            self._content[path.stat().st_ino] = path.read_bytes()

    def _cut_everywhere(self) -> None:
        self._is_checking = True
        try:
            for names_are_lost, bytes_are_lost in product((False, True), repeat=2):
                left = self._scratch / f"cut-{self.cuts}"
                state = self._leave(left, names_are_lost=names_are_lost, bytes_are_lost=bytes_are_lost)
                if state not in self._checked:
                    self._checked.add(state)
                    self._check(left)
                shutil.rmtree(left)
        finally:
            self._is_checking = False

    def _leave(self, left: Path, *, names_are_lost: bool, bytes_are_lost: bool) -> int:
        """Makes the folder; a hash of what is in it."""
        hashes = list[tuple[str, str, int]]()
        folders = [self._folder, *(path for path in self._folder.rglob("*") if path.is_dir())]
        for folder in folders:
            to = left / folder.relative_to(self._folder)
            to.mkdir(parents=True, exist_ok=True)
            for name, data in self._files(folder, names_are_lost=names_are_lost, bytes_are_lost=bytes_are_lost):
                (to / name).write_bytes(data)
                hashes.append((str(to.relative_to(left)), name, hash(data)))
        return hash(tuple(sorted(hashes)))

    def _files(self, folder: Path, *, names_are_lost: bool, bytes_are_lost: bool) -> Iterator[tuple[str, bytes]]:
        there = {path.name: path for path in folder.iterdir() if path.is_file()}
        by_inode = {path.stat().st_ino: path for path in there.values()}
        names = {name: path.stat().st_ino for name, path in there.items()}
        if names_are_lost:
            of_sqlite = {name: inode for name, inode in names.items() if ".db" in name}
            names = self._names.get(folder, {}) | of_sqlite
        for name, inode in names.items():
            is_as_it_is = name.endswith(".db") or not bytes_are_lost
            if name.endswith("-shm"):
                continue
            if is_as_it_is and inode in by_inode:
                yield name, by_inode[inode].read_bytes()
            else:  # a deleted file whose name comes back has what was synced
                yield name, self._content.get(inode, b"")
