"""Spills the tails of long queues to disk and brings them back in order; done by one process of the pod, its lead.

    FOLDER/spill/QUEUE/NAME.seg   a segment: entries of one queue in order, written once, synced before it is registered

A queue is its head and its tail in Redis, and between them segments. To spill: copy the tail's first entries, fsync,
register the segment in Redis, where the same script trims the tail. To refill: one script moves the first segment's
entries to the head and removes it from the list. A script refuses a queue that has changed since it was read, so two
leads do no harm; one that is killed leaves at most an unregistered file. A used segment's file is kept a while: a
server that is restarted may have lost its last second, and need it again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO
from uuid import uuid4

import msgspec

from weft.alive import Alive, silent
from weft.errors import unreadable, writing
from weft.files import sync_folder
from weft.frontier.redis.item_packing import unpacked_item
from weft.frontier.redis.link import PodLink
from weft.telemetry import Log

USED_FILES_KEPT_S = 30.0
UNREGISTERED_FILES_KEPT_S = 120.0
_REMEDY = "restore it from a backup, or start over with `fresh=True`"
log = Log("weft.frontier.redis.parts.lead")


class PodSpiller:
    """The spilling of one pod."""

    def __init__(self, link: PodLink, folder: Path, alive: Alive = silent) -> None:
        self._link = link
        self._folder = folder
        self._alive = alive
        self._entries_per_segment = link.limits.split_above  # in a segment
        self._used_files: list[tuple[float, Path]] = []
        self._swept = False

    def move_segments(self) -> int:
        """Spills, refills, and loads rejected segments; returns how many segments it moved."""
        if not self._swept:
            self._delete_unregistered_files()
            self._swept = True
        self._delete_used_files()
        moved = self._refill_heads() + self._spill_tails() + self._load_rejected()
        if moved:
            self._link.next_claim.allow_after(0.0)
        return moved

    def spilled_entries(self, segments: Sequence[bytes]) -> Iterator[bytes]:
        """The entries of segments."""
        for segment in segments:
            yield from self._read_segment(segment)

    def _spill_tails(self) -> int:
        moved = 0
        for queue in sorted(self._link.run_command("SMEMBERS", "long")):
            while self._spill_segment(queue):
                moved += 1
        return moved

    def _spill_segment(self, queue: bytes) -> bool:
        entries: list[bytes] = self._link.run_command("LRANGE", b"w:" + queue, 0, self._entries_per_segment - 1)
        if len(entries) < self._entries_per_segment:
            self._link.run_command("SREM", "long", queue)
            return False
        segment = self._write_segment(queue, entries)
        (done,) = self._link.call_script(
            "spill", ["out", queue, segment, len(entries), entries[0], entries[-1], self._entries_per_segment]
        )
        if not done:
            (self._folder / segment).unlink(missing_ok=True)
        return bool(done)

    def _refill_heads(self) -> int:
        moved = 0
        for queue in sorted(self._link.run_command("SMEMBERS", "low")):
            segment: bytes | None = self._link.run_command("LINDEX", b"g:" + queue, 0)
            if segment is None:
                self._link.run_command("SREM", "low", queue)
                continue
            site = queue.split(b":", 2)[2]
            (done,) = self._link.call_script("spill", ["in", queue, segment, site, *self._read_segment(segment)])
            moved += self._note_used_segment(segment, done)
        return moved

    def _load_rejected(self) -> int:
        moved = 0
        for record in self._link.run_command("LRANGE", "rejects", 0, 999):
            fields: Any = unpacked_item(record)
            if fields[1] != b"segments":
                continue
            while (segment := self._link.run_command("LINDEX", fields[0], 0)) is not None:
                (done,) = self._link.call_script(
                    "spill", ["rejected", fields[0], segment, record, *self._read_segment(segment)]
                )
                moved += self._note_used_segment(segment, done)
        return moved

    def _note_used_segment(self, segment: bytes, done: int) -> int:
        if done:
            self._used_files.append((self._link.now(), self._folder / segment.decode()))
        return int(done)

    def _write_segment(self, queue: bytes, entries: list[bytes]) -> str:
        name = f"{sha256(queue).hexdigest()[:24]}/{uuid4().hex}.seg"
        path = self._folder / name
        with writing(path):
            new = not path.parent.exists()
            with _create_file(path) as file:
                file.write(msgspec.msgpack.encode(entries))
                file.flush()
                os.fsync(file.fileno())
            sync_folder(path.parent)
            if new:
                sync_folder(self._folder)
                sync_folder(self._folder.parent)  # where the first one has made this folder, too
        return name

    def _read_segment(self, segment: bytes) -> list[bytes]:
        path = self._folder / segment.decode()
        try:
            return msgspec.msgpack.decode(path.read_bytes(), type=list[bytes])
        except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
            raise unreadable(path, error, f"it holds queued URLs: {_REMEDY}") from None

    def _delete_used_files(self) -> None:
        now = self._link.now()
        while self._used_files and self._used_files[0][0] + USED_FILES_KEPT_S < now:
            self._used_files.pop(0)[1].unlink(missing_ok=True)

    def _delete_unregistered_files(self) -> None:
        """Deletes files that an earlier lead wrote without registering them, or used without deleting them."""
        if not self._folder.exists():
            return
        known = {
            segment.decode()
            for pattern in ("g:*", "x:*")
            for keys in self._link.scan_keys(pattern)
            for key in keys
            for segment in self._link.run_command("LRANGE", key, 0, -1)
            if segment.endswith(b".seg")
        }
        old = time.time() - UNREGISTERED_FILES_KEPT_S
        for path in self._folder.glob("*/*.seg"):
            self._alive()
            with suppress(FileNotFoundError):  # another lead deleted it meanwhile
                if f"{path.parent.name}/{path.name}" not in known and path.stat().st_mtime < old:
                    path.unlink()
        for folder in self._folder.iterdir():
            self._alive()
            with suppress(OSError):  # the folder is not empty, perhaps only since another lead has spilled
                folder.rmdir()


def _create_file(path: Path) -> BinaryIO:
    """A new file, in a folder that is created if necessary; another lead may delete an empty folder at any moment."""
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            return path.open("wb")
        except FileNotFoundError:
            continue
