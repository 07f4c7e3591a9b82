"""The output of a pipeline: shards of rows in the order of the source, and a manifest that names them.

    OUT/shard-00000.jsonl           rows of a fixed range of the source
    OUT/parquet/shard-00000.parquet the same: readers of Parquet take a folder as one table, if nothing else is in it
    OUT/manifest.json               the shards with rows, bytes and hash, and the files that stages wrote; no times
    OUT/.new/                       what the run in progress has finished, and the shard it is writing (*.part)
    OUT/.lock                       held by the run

Invariants: a shard gets its name when it is whole and on the disk; readers of OUT see the shards of one finished run,
but for the moment of `publish`, which can be repeated; the same rows make the same bytes.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import msgspec

from weft.errors import WeftError, writing
from weft.pipelines.files import PARQUET, PARTS, RunFiles, WrittenFile, is_shard
from weft.pipelines.lock import FolderLock

NEW = ".new"
MANIFEST = "manifest.json"
_FORMAT = 1


class OutputShard(msgspec.Struct, frozen=True):
    """A finished shard."""

    name: str
    rows: int
    bytes: int
    sha256: str


class OutputManifest(msgspec.Struct, frozen=True):
    """manifest.json: what an output holds."""

    pipeline: str
    items: int
    rows: int
    shards: list[OutputShard]
    files: list[WrittenFile] = []
    format: int = _FORMAT


class BadRow(WeftError):
    """One row cannot be written. Nothing of it was written, and other rows can be."""


class RowFile(Protocol):
    """A shard that is being written."""

    def add(self, row: Mapping[str, Any]) -> None:
        """Adds a row."""

    def close(self) -> None:
        """Writes the remaining rows, and finishes the file."""

    def abandon(self) -> None:
        """Discards the shard."""


class JsonLinesShard:
    """Writes one shard as JSON lines."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._encode = msgspec.json.Encoder().encode

    def add(self, row: Mapping[str, Any]) -> None:
        """Writes a row as a line; raises BadRow for a value that JSON cannot represent."""
        try:
            line = self._encode(row)
        except (TypeError, ValueError, RecursionError) as error:
            raise BadRow(f"the row cannot be written as JSON: {error}") from None
        self._file.write(line + b"\n")

    def close(self) -> None:
        """Does nothing: rows are written at once."""

    def abandon(self) -> None:
        """Does nothing: there is no state to discard."""


class OutputSink:
    """The output directory of a run."""

    def __init__(
        self,
        folder: Path,
        pipeline: str,
        formats: list[str],
        columns: dict[str, str] | None,
        step: Callable[[str], None],
    ) -> None:
        self.folder = folder
        self._new_folder = folder / NEW
        self._pipeline = pipeline
        self._formats = formats
        self._columns = columns
        self._step = step
        self._lock = FolderLock(folder, f"the output {folder}", ".lock")
        self._open: list[tuple[str, BinaryIO, RowFile]] = []
        self._rows = 0
        self.files = RunFiles(folder)

    def begin(self, *, resumed: bool) -> None:
        """Prepares the directory for a run: deletes unfinished files of earlier runs, unless this run is resumed."""
        shutil.rmtree(self.folder / PARTS, ignore_errors=True)
        if not resumed:
            shutil.rmtree(self._new_folder, ignore_errors=True)
        self._new_folder.mkdir(parents=True, exist_ok=True)
        for part in self._new_folder.rglob("*.part"):
            part.unlink()

    def add(self, number: int, row: Mapping[str, Any]) -> None:
        """Adds a row to the shard with this number."""
        if not self._open:
            self._open_shard(number)
        for _, _, rows in self._open:
            rows.add(row)
        self._rows += 1

    def commit(self, number: int) -> list[OutputShard]:
        """Finishes a shard, even an empty one, and syncs it to the disk under its final name."""
        with writing(self._new_folder):
            if not self._open:
                self._open_shard(number)
            shards = [self._finish_shard(name, file, rows) for name, file, rows in self._open]
        self._open.clear()
        self._rows = 0
        self._step("shard-renamed")
        return shards

    def _open_shard(self, number: int) -> None:
        for format_ in sorted(self._formats):  # jsonl first: it is the one that refuses a row by itself
            name = shard_name(number, format_)
            part = self._new_folder / f"{name}.part"
            part.parent.mkdir(exist_ok=True)
            file = part.open("w+b")
            self._open.append((name, file, self._row_file(format_, file)))

    def _row_file(self, format_: str, file: BinaryIO) -> RowFile:
        if format_ == "jsonl":
            return JsonLinesShard(file)
        from weft.pipelines.output.parquet import ParquetRows

        return ParquetRows(file, self._columns, self._new_folder / "schema")

    def _finish_shard(self, name: str, file: BinaryIO, rows: RowFile) -> OutputShard:
        rows.close()
        file.flush()
        self._step("shard-written")
        os.fsync(file.fileno())
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]
        file.close()
        (self._new_folder / f"{name}.part").replace(self._new_folder / name)
        return OutputShard(name, self._rows, size, sha256)

    def publish(self, items: int, shards: list[OutputShard], files: Iterable[WrittenFile]) -> OutputManifest:
        """Replaces the shards of an earlier run, then the manifest, then removes files that it does not name."""
        rows = sum(shard.rows for shard in shards) // max(1, len(self._formats))
        listed = sorted({file.name: file for file in files}.values(), key=lambda file: file.name)
        manifest = OutputManifest(self._pipeline, items, rows, shards, listed)
        before = read_manifest(self.folder)
        with writing(self.folder):
            for shard in shards:
                if (self._new_folder / shard.name).exists():  # else an earlier try has moved it
                    (self.folder / shard.name).parent.mkdir(exist_ok=True)
                    (self._new_folder / shard.name).replace(self.folder / shard.name)
                    self._step("shard-published")
            _write_manifest(self.folder, manifest)
            self._step("manifest-written")
            if before is not None:
                self._remove_stale(before, manifest)
            shutil.rmtree(self._new_folder, ignore_errors=True)
            shutil.rmtree(self.folder / PARTS, ignore_errors=True)
        return manifest

    def _remove_stale(self, before: OutputManifest, now: OutputManifest) -> None:
        """Deletes the files that the previous manifest named and the new one does not."""
        for name in {shard.name for shard in before.shards} - {shard.name for shard in now.shards}:
            if is_shard(name):
                (self.folder / name).unlink(missing_ok=True)
        with suppress(OSError):  # it is not empty, or not there
            (self.folder / PARQUET).rmdir()
        for name in {file.name for file in before.files} - {file.name for file in now.files}:
            self.files.path(name).unlink(missing_ok=True)

    def close(self) -> None:
        """Releases the directory; an uncommitted shard is left for the next run to delete."""
        for _, file, rows in self._open:
            rows.abandon()
            with suppress(OSError):  # a full disk, which the writer has reported
                file.close()
        self._lock.release()


def shard_name(number: int, format_: str) -> str:
    """Where a shard is in the output."""
    name = f"shard-{number:05}.{format_}"
    return f"{PARQUET}/{name}" if format_ == "parquet" else name


def read_manifest(folder: Path) -> OutputManifest | None:
    """Reads the manifest of an output; None if there is none that can be read."""
    try:
        return msgspec.json.decode((folder / MANIFEST).read_bytes(), type=OutputManifest)
    except (OSError, ValueError):
        return None


def _write_manifest(folder: Path, manifest: OutputManifest) -> None:
    new = folder / NEW / MANIFEST
    new.parent.mkdir(exist_ok=True)
    with new.open("wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n")
        file.flush()
        os.fsync(file.fileno())
    new.replace(folder / MANIFEST)
