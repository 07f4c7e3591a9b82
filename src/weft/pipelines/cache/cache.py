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
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from isal.isal_zlib import crc32

from weft.errors import BadInput, DiskFull, WeftError, writing
from weft.files import sync_folder
from weft.pipelines.cache.cache_index import KEY_BYTES, CacheIndex
from weft.pipelines.cache.cache_uses import CacheUses
from weft.pipelines.lock import FolderLock
from weft.telemetry import Log

_MAGIC = b"WEFTCAS1"
_MAGIC_PREFIX = b"WEFTCAS"
_FIRST_ENTRY_AT = 16
_ENTRY_HEAD = struct.Struct(f"<II{KEY_BYTES}s")
_MAX_ENTRY_BYTES = 1 << 27
_READ_BYTES = 4096
"""Read at once: most entries are shorter."""
_READ_AHEAD_BYTES = 1 << 16
"""Read at once where entries are read one after the other."""
_FLUSH_BYTES = 1 << 20
_INDEXED_AT_ONCE = 1000
_LEAST_TIDY_BYTES = 64 << 20
KEEP_RUNS = 5
_REWRITE_FILES = ("data.new", "uses.new")
_log = Log("weft.pipelines")


class CachedEntry(NamedTuple):
    """The bytes of an entry, and its offset in the data file."""

    offset: int
    data: bytes


class _EntryReader:
    """Reads entries at known offsets of a data file. Entries that lie behind each other cost one read for many."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._begin = 0
        self._data = b""
        self._ahead = _READ_BYTES
        self.end = 0
        """Where the entry ends that was read last."""

    def read(self, key: bytes, offset: int) -> bytes | None:
        """The bytes of the entry at an offset, if it is whole and of this key."""
        at = offset - self._begin
        if at < 0 or at + _ENTRY_HEAD.size > len(self._data):
            at = self._load_ahead(offset, 0)
        data = self._data
        if data[at + 8 : at + _ENTRY_HEAD.size] != key:
            return None
        length = _ENTRY_HEAD.size + int.from_bytes(data[at : at + 4], "little")
        if at + length > len(data):
            if length > _MAX_ENTRY_BYTES:
                return None
            at = self._load_ahead(offset, length)
            data = self._data
        body = data[at + _ENTRY_HEAD.size : at + length]
        if len(data) < at + length or crc32(body, crc32(key)) != int.from_bytes(data[at + 4 : at + 8], "little"):
            return None
        self.end = offset + length
        return body

    def _load_ahead(self, offset: int, least: int) -> int:
        """Reads ahead from an offset: twice as much as the last time, while entries are read in the file's order."""
        self._ahead = min(2 * self._ahead, _READ_AHEAD_BYTES) if offset == self.end else _READ_BYTES
        try:
            self._data = os.pread(self._fd, max(least, self._ahead), offset)
        except OSError:
            self._data = b""
        self._begin = offset
        return 0


class CacheReader:
    """Finds entries in a cache; a cache that does not exist has none.

    Items come in the order of the run that put their entries, so that the entry behind the one that was found last is
    tried before the index. That is right while no entry was replaced: else the file has older ones of the same key.
    """

    def __init__(self, folder: Path) -> None:
        self._fd = -1
        self._index: CacheIndex | None = None
        try:
            self._index = CacheIndex(folder / "index", writable=False)
            self._fd = os.open(folder / "data", os.O_RDONLY | os.O_CLOEXEC)
            self._tries_next = not self._index.replaced
        except (OSError, ValueError):
            self.close()
        self._entries = _EntryReader(self._fd)

    def find(self, key: bytes) -> CachedEntry | None:
        """The bytes stored under a key, and their offset; None if there are none."""
        if self._index is None:
            return None
        entries = self._entries
        if self._tries_next and (offset := entries.end) and (data := entries.read(key, offset)) is not None:
            return CachedEntry(offset, data)
        if (offset_by_index := self._index.find(key)) is None:
            return None
        data = entries.read(key, offset_by_index)
        return None if data is None else CachedEntry(offset_by_index, data)

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
        self._unwritten: dict[bytes, tuple[int, bytes]] = {}
        """What waits to be written, by key: its offset, and the entry."""
        self._is_synced = True
        try:
            self._remove_rewritten()
            self._open_data()
            self._open_index()
        except BaseException:
            self._lock.release()
            raise

    def _open_data(self) -> None:
        try:
            self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            head = os.pread(self._fd, _FIRST_ENTRY_AT, 0)
            self._end = os.fstat(self._fd).st_size
        except OSError as error:
            raise BadInput(f"the cache {self._path} cannot be used: {error.strerror}") from None
        if len(head) < _FIRST_ENTRY_AT and (_MAGIC.startswith(head[: len(_MAGIC)]) or not head.strip(b"\0")):
            head = _MAGIC + secrets.randbits(64).to_bytes(8, "little")
            with writing(self._path):
                os.ftruncate(self._fd, 0)
                os.pwrite(self._fd, head, 0)
            self._end = _FIRST_ENTRY_AT
        elif not head.startswith(_MAGIC):
            os.close(self._fd)
            what = "of another version of Weft" if head.startswith(_MAGIC_PREFIX) else "not a cache of Weft"
            raise BadInput(
                f"the cache {self._path} is {what}: delete the folder {self.folder} (everything is done again), "
                "or name another one"
            )
        self.generation = int.from_bytes(head[8:], "little")
        self._next = self._end
        self._reader = _EntryReader(self._fd)

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
        self._index_from(max(index.covered, _FIRST_ENTRY_AT))
        if index.covered < self._end:
            self._uses.mark(index.covered, self._end, index.run)
        index.save(self._end)

    def _index_from(self, at: int) -> None:
        """Adds the entries from an offset on to the index, and cuts off a damaged end."""
        batch: list[tuple[bytes, int, int]] = []
        for key, offset, length in self._entries(at):
            batch.append((key, offset, length))
            at = offset + length
            if len(batch) >= _INDEXED_AT_ONCE:
                self._index.put_all(batch)
                batch.clear()
        self._index.put_all(batch)
        if at < self._end:
            _log.warning(f"{self._path}: {self._end - at} bytes at its end are damaged and were dropped")
            os.ftruncate(self._fd, at)
            self._end = self._next = at

    def _entries(self, at: int) -> Iterator[tuple[bytes, int, int]]:
        """Key, offset and length of every valid entry from an offset on. A damaged entry is skipped if a valid one
        follows it.
        """
        while (entry := self._entry_at(at)) is not None or (entry := self._behind_damage(at)) is not None:
            key, at, length = entry
            yield key, at, length
            at += length

    def _entry_at(self, at: int) -> tuple[bytes, int, int] | None:
        """The entry at an offset; None if it is not valid."""
        head = os.pread(self._fd, _ENTRY_HEAD.size, at)
        if len(head) < _ENTRY_HEAD.size:
            return None
        length, check, key = _ENTRY_HEAD.unpack(head)
        if length > _MAX_ENTRY_BYTES or at + _ENTRY_HEAD.size + length > self._end:
            return None
        data = os.pread(self._fd, length, at + _ENTRY_HEAD.size)
        return (key, at, _ENTRY_HEAD.size + length) if crc32(data, crc32(key)) == check else None

    def _behind_damage(self, at: int) -> tuple[bytes, int, int] | None:
        """The next valid entry after a damaged one, found by the length in its head; None if there is none."""
        end = at + _ENTRY_HEAD.size + int.from_bytes(os.pread(self._fd, 4, at), "little")
        entry = self._entry_at(end) if end < self._end else None
        if entry is not None:
            _log.warning(f"{self._path}: {end - at} bytes at {at} are damaged and were skipped; they are made again")
        return entry

    def find(self, key: bytes) -> bytes | None:
        """The bytes stored under a key, including those not written yet; None if there are none."""
        if (fresh := self._unwritten.get(key)) is not None:
            return fresh[1][_ENTRY_HEAD.size :]
        offset = self._index.find(key)
        return self._reader.read(key, offset) if offset is not None else None

    def read(self, key: bytes, offset: int) -> bytes | None:
        """The bytes stored under a key, at a known offset."""
        if offset >= self._end:
            fresh = self._unwritten.get(key)
            return fresh[1][_ENTRY_HEAD.size :] if fresh is not None else None
        return self._reader.read(key, offset)

    def put(self, key: bytes, entry: bytes) -> int:
        """Adds an entry (`entry_of`); it replaces what was there under the key. In the file after the next flush.
        Returns its offset."""
        offset = self._next
        self._unwritten[key] = (offset, entry)
        self._waiting.append(entry)
        self._next = offset + len(entry)
        if self._next - self._end > _FLUSH_BYTES:
            self.flush()
        return offset

    def touch(self, key: bytes, offset: int | None = None) -> int | None:
        """Marks the entry of a key as used by this run; returns its offset (often the given one), None if there is no
        entry.
        """
        if (fresh := self._unwritten.get(key)) is not None:
            return fresh[0]
        for candidate in (offset, self._index.find(key)):
            if candidate is not None and self._reader.read(key, candidate) is not None:
                self.use(candidate)
                return candidate
        return None

    def use(self, offset: int) -> None:
        """Marks the entry at an offset as used by this run."""
        self._uses.mark(offset, offset + 1, self._index.run)

    def flush(self) -> None:
        """Writes new entries to the operating system: the data first, then the index."""
        if not self._waiting:
            return
        self._write(memoryview(b"".join(self._waiting)))
        self._index.put_all([(key, offset, len(entry)) for key, (offset, entry) in self._unwritten.items()])
        self._uses.mark(self._end, self._next, self._index.run)
        self._end = self._next
        self._index.save(self._end)
        self._unwritten.clear()
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
        """Syncs all entries to the disk."""
        self.flush()
        if not self._is_synced:
            try:
                with writing(self._path):
                    os.fdatasync(self._fd)
            except OSError as error:
                raise WeftError(f"the cache {self._path} cannot be written: {error.strerror}") from None
            self._is_synced = True

    def tidy(
        self,
        max_bytes: int | None = None,
        *,
        least: int = _LEAST_TIDY_BYTES,
        step: Callable[[str], None] = lambda _: None,
    ) -> int:
        """Rewrites the file without the entries that the last runs did not use, if that halves it or it is over its
        limit; returns the bytes that were freed. Where the disk is full it stays as it is, with a warning.
        """
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
        try:
            self._rewrite(oldest, step)
        except DiskFull as error:
            self._remove_rewritten()
            _log.warning(f"{self._path}: it was not made smaller: {error}")
        return before - self._end

    def _remove_rewritten(self) -> None:
        """Deletes the files of an interrupted rewrite."""
        for name in _REWRITE_FILES:
            (self.folder / name).unlink(missing_ok=True)

    def _rewrite(self, oldest: int, step: Callable[[str], None]) -> None:
        """Copies the entries used since a run, in their order, to a new file with an index and uses of its own."""
        new = self.folder / _REWRITE_FILES[0]
        generation, run = secrets.randbits(64), self._index.run
        uses = CacheUses(self.folder / _REWRITE_FILES[1], generation, is_sound=False)
        with ExitStack() as stack:
            stack.callback(uses.close)
            self._copy_used(new, generation, oldest, uses)
            stack.pop_all()
        step("cache-copied")
        self._replace_files(new, generation, run, uses, step)

    def _copy_used(self, new: Path, generation: int, oldest: int, uses: CacheUses) -> None:
        with writing(new), new.open("w+b") as file:
            file.write(_MAGIC + generation.to_bytes(8, "little"))
            for key, offset, length in self._entries(_FIRST_ENTRY_AT):
                used = self._uses.last(offset)
                if used >= oldest and self._index.find(key) == offset:
                    at = file.tell()
                    file.write(os.pread(self._fd, length, offset))
                    uses.mark(at, at + 1, max(used, uses.last(at)))
            file.flush()
            os.fsync(file.fileno())

    def _replace_files(
        self, new: Path, generation: int, run: int, uses: CacheUses, step: Callable[[str], None]
    ) -> None:
        new.replace(self._path)  # from here on the index is of another generation, and is made again if we die
        sync_folder(self.folder)
        step("cache-replaced")
        os.close(self._fd)
        self._fd = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        self._reader = _EntryReader(self._fd)
        self.generation = generation
        self._end = self._next = os.fstat(self._fd).st_size
        self._uses.close()
        uses.rename(self.folder / "uses")
        self._uses = uses
        step("cache-uses-replaced")
        index = CacheIndex.create(self.folder / "index", generation, run)
        self._index.abandon()
        self._index = index
        self._index_from(_FIRST_ENTRY_AT)
        self._index.save(self._end)

    def close(self) -> None:
        """Writes everything, and releases the lock."""
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
    """Encodes an entry as the file has it; called by workers."""
    return _ENTRY_HEAD.pack(len(data), crc32(key + data), key) + data
