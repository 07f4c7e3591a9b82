"""The cache of stage values: content-addressed, written by the parent of a run, read by its workers.

    DIR/data    "WEFTCAS1" | generation u64, then entries of  length u32 | crc32 u32 | key, 16 bytes | bytes
    DIR/index   where each key is (cache_index.py)
    DIR/lock    held by the process that writes

Invariants: what is found is what was put under that key, or nothing: an entry that is torn or damaged is a miss.
Entries are appended; a kill between the data and the index is made up for by reading the end of the data again. What no
run used lately is left out when the file is written anew (`tidy`).
"""

from __future__ import annotations

import os
import secrets
import struct
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path

from isal.isal_zlib import crc32

from weft.errors import BadInput, WeftError, writing
from weft.pipelines.cache_index import KEY_BYTES, CacheIndex
from weft.pipelines.lock import FolderLock
from weft.telemetry import Log

_MAGIC = b"WEFTCAS1"
_FAMILY = b"WEFTCAS"
_START = 16
_HEAD = struct.Struct(f"<II{KEY_BYTES}s")
_MAX_ENTRY_BYTES = 1 << 27
_FLUSH_BYTES = 1 << 20
_TIDY_BYTES = 64 << 20
KEEP_RUNS = 5
_log = Log("weft.pipelines")


class CacheReader:
    """Finds entries; of a cache that is not there, none."""

    def __init__(self, folder: Path) -> None:
        self._fd = -1
        self._index: CacheIndex | None = None
        try:
            self._index = CacheIndex(folder / "index", writable=False)
            self._fd = os.open(folder / "data", os.O_RDONLY | os.O_CLOEXEC)
        except (OSError, ValueError):
            self.close()

    def find(self, key: bytes) -> bytes | None:
        """The bytes that were put under a key."""
        if self._index is None or (place := self._index.find(key)) is None:
            return None
        return _entry(self._fd, key, place.offset, place.length)

    def close(self) -> None:
        """Closes its files."""
        if self._index is not None:
            self._index.close()
            self._index = None
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class Cache:
    """The cache, for the one process that may change it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._path = folder / "data"
        self._lock = FolderLock(folder, f"the cache {folder}")
        self._fresh: dict[bytes, bytes] = {}
        """What waits to be written, by key."""
        self._fresh_bytes = 0
        try:
            self._open_data()
            self._open_index()
        except BaseException:
            self._lock.release()
            raise

    def _open_data(self) -> None:
        try:
            self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            head = os.pread(self._fd, _START, 0)
            self._end = os.fstat(self._fd).st_size
        except OSError as error:
            raise BadInput(f"the cache {self._path} cannot be used: {error.strerror}") from None
        if len(head) < _START and (_MAGIC.startswith(head[: len(_MAGIC)]) or not head.strip(b"\0")):
            head = _MAGIC + secrets.randbits(64).to_bytes(8, "little")
            with writing(self._path):
                os.ftruncate(self._fd, 0)
                os.pwrite(self._fd, head, 0)
            self._end = _START
        elif not head.startswith(_MAGIC):
            os.close(self._fd)
            what = "of another version of Weft" if head.startswith(_FAMILY) else "not a cache of Weft"
            raise BadInput(
                f"the cache {self._path} is {what}: delete the folder {self.folder} (everything is done again), "
                "or name another one"
            )
        self._generation = int.from_bytes(head[8:], "little")

    def _open_index(self) -> None:
        path = self.folder / "index"
        try:
            index = CacheIndex(path, writable=True)
            if index.generation != self._generation or index.covered > self._end:
                index.close()
                raise ValueError
        except PermissionError as error:
            raise BadInput(f"the cache {path} cannot be used: {error.strerror}") from None
        except (OSError, ValueError):
            index = CacheIndex.create(path, self._generation, 0)
        self._index = index
        index.run += 1
        at = max(index.covered, _START)
        for key, offset, length in self._entries(at):
            index.put_all([(key, offset, length)])
            at = offset + length
        if at < self._end:
            _log.warning(f"{self._path}: {self._end - at} bytes at its end are damaged and were dropped")
            os.ftruncate(self._fd, at)
            self._end = at
        index.save(self._end)

    def _entries(self, at: int) -> Iterator[tuple[bytes, int, int]]:
        """Key, offset and length of every whole entry from here on, to the first that is not."""
        while at + _HEAD.size <= self._end:
            length, check, key = _HEAD.unpack(os.pread(self._fd, _HEAD.size, at))
            if length > _MAX_ENTRY_BYTES or at + _HEAD.size + length > self._end:
                return
            data = os.pread(self._fd, length, at + _HEAD.size)
            if crc32(data, crc32(key)) != check:
                return
            yield key, at, _HEAD.size + length
            at += _HEAD.size + length

    def find(self, key: bytes) -> bytes | None:
        """The bytes that were put under a key, what was put just now included."""
        if (entry := self._fresh.get(key)) is not None:
            return entry[_HEAD.size :]
        place = self._index.find(key)
        return _entry(self._fd, key, place.offset, place.length) if place is not None else None

    def put(self, key: bytes, entry: bytes) -> None:
        """Adds an entry (`entry_of`); it replaces what was there under the key. In the file after the next flush."""
        self._fresh[key] = entry
        self._fresh_bytes += len(entry)
        if self._fresh_bytes > _FLUSH_BYTES:
            self.flush()

    def touch(self, key: bytes) -> bool:
        """This run uses the key; False when it is not there."""
        return key in self._fresh or self._index.touch(key)

    def flush(self) -> None:
        """Writes what was put: the data first, then the index."""
        view = memoryview(b"".join(self._fresh.values()))
        at = self._end
        try:
            with writing(self._path):
                while view:
                    count = os.pwrite(self._fd, view, at)
                    at, view = at + count, view[count:]
        except OSError as error:
            raise WeftError(f"the cache {self._path} cannot be written: {error.strerror}") from None
        lengths = list(map(len, self._fresh.values()))
        self._index.put_all(list(zip(self._fresh, accumulate(lengths, initial=self._end), lengths, strict=False)))
        self._end = at
        self._index.save(self._end)
        self._fresh.clear()
        self._fresh_bytes = 0

    def tidy(self, max_bytes: int | None = None, *, least: int = _TIDY_BYTES) -> int:
        """Writes the file anew without what the last runs did not use, if that halves it or it is over its limit;
        returns the bytes that were freed."""
        self.flush()
        over = max_bytes is not None and self._end > max_bytes
        if self._end < least and not over:
            return 0
        kept = [(key, place) for key, place in self._index.entries() if place.run > self._index.run - KEEP_RUNS]
        live = sum(place.length for _, place in kept)
        if not over and live > self._end // 2:
            return 0
        if max_bytes is not None and live > max_bytes:  # then only what this run has used, however much that is
            kept = [(key, place) for key, place in kept if place.run == self._index.run]
        before = self._end
        self._rewrite(sorted((place.offset, place.length, key, place.run) for key, place in kept))
        return before - self._end

    def _rewrite(self, kept: list[tuple[int, int, bytes, int]]) -> None:
        new = self._path.with_name("data.new")
        generation, run = secrets.randbits(64), self._index.run
        with writing(new), new.open("w+b") as file:
            file.write(_MAGIC + generation.to_bytes(8, "little"))
            for offset, length, _, _ in kept:
                file.write(os.pread(self._fd, length, offset))
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._path)  # from here on the index is of another generation, and is made again if we die
        os.close(self._fd)
        self._fd = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        self._generation = generation
        self._index.close()
        self._index = CacheIndex.create(self.folder / "index", generation, run)
        at = _START
        for _, length, key, used in kept:
            self._index.run = used
            self._index.put_all([(key, at, length)])
            at += length
        self._end, self._index.run = at, run
        self._index.save(at)

    def close(self) -> None:
        """Writes everything and gives up the lock."""
        if self._fd < 0:
            return
        try:
            self.flush()
        finally:
            self._index.close()
            os.close(self._fd)
            self._fd = -1
            self._lock.release()


def entry_of(key: bytes, data: bytes) -> bytes:
    """An entry as it is in the file; workers make them."""
    return _HEAD.pack(len(data), crc32(key + data), key) + data


def _entry(fd: int, key: bytes, offset: int, length: int) -> bytes | None:
    """The bytes of the entry at a place, if it is whole and of this key."""
    if not _HEAD.size <= length <= _MAX_ENTRY_BYTES:
        return None
    try:
        data = os.pread(fd, length, offset)
    except OSError:
        return None
    if len(data) < length or data[8 : _HEAD.size] != key:
        return None
    found = data[_HEAD.size :]
    if crc32(found, crc32(key)) != int.from_bytes(data[4:8], "little"):
        return None
    return found
