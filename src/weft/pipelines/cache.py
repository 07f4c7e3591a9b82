"""The cache of stage values: content-addressed, written by the parent of a run, read by its workers.

    DIR/data    "WEFTCAS1" | generation u64, then entries of  length u32 | crc32 u32 | key, 16 bytes | bytes
    DIR/index   where each key is (cache_index.py)
    DIR/uses    which run last used each 64 KB of the data (cache_uses.py)
    DIR/lock    held by the process that writes

Invariants: what is found is what was put under that key, or nothing: an entry that is torn or damaged is a miss.
Entries are appended; a kill between the data and the index is made up for by reading the end of the data again. What
no run used lately is left out when the file is written again (`tidy`). Memory does not grow with the entries. While
the generation is the same, an entry stays at its offset, and can be read without the index.
"""

from __future__ import annotations

import os
import secrets
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from isal.isal_zlib import crc32

from weft.errors import BadInput, WeftError, writing
from weft.files import sync_folder
from weft.pipelines.cache_index import KEY_BYTES, CacheIndex
from weft.pipelines.cache_uses import CacheUses
from weft.pipelines.lock import FolderLock
from weft.telemetry import Log

_MAGIC = b"WEFTCAS1"
_FAMILY = b"WEFTCAS"
_START = 16
_HEAD = struct.Struct(f"<II{KEY_BYTES}s")
_MAX_ENTRY_BYTES = 1 << 27
_READ_BYTES = 4096
"""Read at once: most entries are shorter."""
_FLUSH_BYTES = 1 << 20
_INDEXED_AT_ONCE = 1000
_TIDY_BYTES = 64 << 20
KEEP_RUNS = 5
_log = Log("weft.pipelines")


class CachedEntry(NamedTuple):
    """An entry that was found."""

    offset: int
    data: bytes


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

    def find(self, key: bytes) -> CachedEntry | None:
        """The bytes that were put under a key, and where they are."""
        if self._index is None or (offset := self._index.find(key)) is None:
            return None
        data = _entry(self._fd, key, offset)
        return None if data is None else CachedEntry(offset, data)

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
        self._waiting: list[bytes] = []
        self._fresh: dict[bytes, tuple[int, bytes]] = {}
        """What waits to be written, by key: its offset, and the entry."""
        self._is_synced = True
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
        self.generation = int.from_bytes(head[8:], "little")
        self._next = self._end

    def _open_index(self) -> None:
        path = self.folder / "index"
        try:
            index = CacheIndex(path, writable=True)
            if index.generation != self.generation or index.covered > self._end or not index.is_sound:
                index.abandon()
                raise ValueError
        except PermissionError as error:
            raise BadInput(f"the cache {path} cannot be used: {error.strerror}") from None
        except (OSError, ValueError):
            index = CacheIndex.create(path, self.generation, 0)
        self._index = index
        self._uses = CacheUses(self.folder / "uses", self.generation, is_sound=index.covered > 0)
        index.run += 1
        self._index_from(max(index.covered, _START))
        if index.covered < self._end:
            self._uses.mark(index.covered, self._end, index.run)
        index.save(self._end)

    def _index_from(self, at: int) -> None:
        """Adds the entries from here on to the index; what is damaged at the end is cut off."""
        found: list[tuple[bytes, int, int]] = []
        for key, offset, length in self._entries(at):
            found.append((key, offset, length))
            at = offset + length
            if len(found) >= _INDEXED_AT_ONCE:
                self._index.put_all(found)
                found.clear()
        self._index.put_all(found)
        if at < self._end:
            _log.warning(f"{self._path}: {self._end - at} bytes at its end are damaged and were dropped")
            os.ftruncate(self._fd, at)
            self._end = self._next = at

    def _entries(self, at: int) -> Iterator[tuple[bytes, int, int]]:
        """Key, offset and length of every whole entry from here on. One that is damaged is passed over where a whole
        one follows it."""
        while (found := self._whole(at)) is not None or (found := self._behind_damage(at)) is not None:
            key, at, length = found
            yield key, at, length
            at += length

    def _whole(self, at: int) -> tuple[bytes, int, int] | None:
        """The entry that begins here."""
        head = os.pread(self._fd, _HEAD.size, at)
        if len(head) < _HEAD.size:
            return None
        length, check, key = _HEAD.unpack(head)
        if length > _MAX_ENTRY_BYTES or at + _HEAD.size + length > self._end:
            return None
        data = os.pread(self._fd, length, at + _HEAD.size)
        return (key, at, _HEAD.size + length) if crc32(data, crc32(key)) == check else None

    def _behind_damage(self, at: int) -> tuple[bytes, int, int] | None:
        """The entry behind a damaged one: where its length says."""
        end = at + _HEAD.size + int.from_bytes(os.pread(self._fd, 4, at), "little")
        found = self._whole(end) if end < self._end else None
        if found is not None:
            _log.warning(f"{self._path}: {end - at} bytes at {at} are damaged and were skipped; they are made again")
        return found

    def find(self, key: bytes) -> bytes | None:
        """The bytes that were put under a key, what was put just now included."""
        if (fresh := self._fresh.get(key)) is not None:
            return fresh[1][_HEAD.size :]
        offset = self._index.find(key)
        return _entry(self._fd, key, offset) if offset is not None else None

    def read(self, key: bytes, offset: int) -> bytes | None:
        """The same where the offset is known."""
        if offset >= self._end:
            fresh = self._fresh.get(key)
            return fresh[1][_HEAD.size :] if fresh is not None else None
        return _entry(self._fd, key, offset)

    def put(self, key: bytes, entry: bytes) -> int:
        """Adds an entry (`entry_of`); it replaces what was there under the key. In the file after the next flush.
        Returns its offset."""
        offset = self._next
        self._fresh[key] = (offset, entry)
        self._waiting.append(entry)
        self._next = offset + len(entry)
        if self._next - self._end > _FLUSH_BYTES:
            self.flush()
        return offset

    def touch(self, key: bytes) -> int | None:
        """This run uses the key; returns the offset of its entry, None when it is not there."""
        if (fresh := self._fresh.get(key)) is not None:
            return fresh[0]
        if (offset := self._index.find(key)) is not None and _entry(self._fd, key, offset) is None:
            return None
        if offset is not None:
            self.use(offset)
        return offset

    def use(self, offset: int) -> None:
        """This run uses the entry at an offset."""
        self._uses.mark(offset, offset + 1, self._index.run)

    def flush(self) -> None:
        """Writes what was put: the data first, then the index."""
        if not self._waiting:
            return
        self._write(memoryview(b"".join(self._waiting)))
        self._index.put_all([(key, offset, len(entry)) for key, (offset, entry) in self._fresh.items()])
        self._uses.mark(self._end, self._next, self._index.run)
        self._end = self._next
        self._index.save(self._end)
        self._fresh.clear()
        self._waiting.clear()
        self._is_synced = False

    def _write(self, view: memoryview) -> None:
        at = self._end
        try:
            with writing(self._path):
                while view:
                    count = os.pwrite(self._fd, view, at)
                    at, view = at + count, view[count:]
        except OSError as error:
            raise WeftError(f"the cache {self._path} cannot be written: {error.strerror}") from None

    def sync(self) -> None:
        """Everything that was put is on the disk."""
        self.flush()
        if not self._is_synced:
            try:
                with writing(self._path):
                    os.fdatasync(self._fd)
            except OSError as error:
                raise WeftError(f"the cache {self._path} cannot be written: {error.strerror}") from None
            self._is_synced = True

    def tidy(self, max_bytes: int | None = None, *, least: int = _TIDY_BYTES) -> int:
        """Writes the file again without what the last runs did not use, if that halves it or it is over its limit;
        returns the bytes that were freed."""
        self.flush()
        over = max_bytes is not None and self._end > max_bytes
        if self._end < least and not over:
            return 0
        oldest = self._index.run - KEEP_RUNS + 1
        live = min(self._end, self._uses.bytes_since(oldest)) - self._index.replaced
        if not over and live > self._end // 2:
            return 0
        if max_bytes is not None and live > max_bytes:  # then only what this run has used, however much that is
            oldest = self._index.run
        before = self._end
        self._rewrite(oldest)
        return before - self._end

    def _rewrite(self, oldest: int) -> None:
        """Copies what was used since a run, in its order, to a new file, with an index and uses of its own."""
        new = self._path.with_name("data.new")
        generation, run = secrets.randbits(64), self._index.run
        uses = CacheUses(self.folder / "uses.new", generation, is_sound=False)
        with writing(new), new.open("w+b") as file:
            file.write(_MAGIC + generation.to_bytes(8, "little"))
            for key, offset, length in self._entries(_START):
                used = self._uses.last(offset)
                if used >= oldest and self._index.find(key) == offset:
                    at = file.tell()
                    file.write(os.pread(self._fd, length, offset))
                    uses.mark(at, at + 1, max(used, uses.last(at)))
            file.flush()
            os.fsync(file.fileno())
        self._exchange(new, generation, run, uses)

    def _exchange(self, new: Path, generation: int, run: int, uses: CacheUses) -> None:
        new.replace(self._path)  # from here on the index is of another generation, and is made again if we die
        sync_folder(self.folder)
        os.close(self._fd)
        self._fd = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        self.generation = generation
        self._end = self._next = os.fstat(self._fd).st_size
        self._uses.close()
        uses.rename(self.folder / "uses")
        self._uses = uses
        self._index.abandon()
        self._index = CacheIndex.create(self.folder / "index", generation, run)
        self._index_from(_START)
        self._index.save(self._end)

    def close(self) -> None:
        """Writes everything and gives up the lock."""
        if self._fd < 0:
            return
        try:
            self.sync()
        finally:
            self._index.close()
            self._uses.close()
            os.close(self._fd)
            self._fd = -1
            self._lock.release()


def entry_of(key: bytes, data: bytes) -> bytes:
    """An entry as it is in the file; workers make them."""
    return _HEAD.pack(len(data), crc32(key + data), key) + data


def _entry(fd: int, key: bytes, offset: int) -> bytes | None:
    """The bytes of the entry at an offset, if it is whole and of this key."""
    try:
        data = os.pread(fd, _READ_BYTES, offset)
        if data[8 : _HEAD.size] != key:
            return None
        end = _HEAD.size + int.from_bytes(data[:4], "little")
        if end > _READ_BYTES:
            if end > _MAX_ENTRY_BYTES:
                return None
            data += os.pread(fd, end - _READ_BYTES, offset + _READ_BYTES)
    except OSError:
        return None
    found = data[_HEAD.size : end]
    if len(data) < end or crc32(found, crc32(key)) != int.from_bytes(data[4:8], "little"):
        return None
    return found
