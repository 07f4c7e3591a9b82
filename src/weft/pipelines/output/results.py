"""The results of a run in the order of the source: `results.jsonl`, a line for each item, with what each stage did.

Values are not in it but their keys, under which the cache has them. It is written as far as the output is, and cut back
to the last checkpoint when a run is resumed. `checkpoints` has a line for each finished range of the source: what is
needed to continue behind it without reading anything before it again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from weft.errors import BadInput, WeftError, writing
from weft.pipelines.files import WrittenFile
from weft.pipelines.output.outcome import CachedOutcome, SentStage, StageLine
from weft.pipelines.output.sink import OutputShard
from weft.pipelines.output.stats import RunStats
from weft.pipelines.stage import ItemResult

_decode = msgspec.msgpack.decode
_decode_entry = msgspec.msgpack.Decoder(CachedOutcome).decode
_ENCODE_BUFFER_BYTES = 1 << 18


class EndedItem(msgspec.Struct, gc=False):
    """A finished item, as the parent knows it."""

    position: int
    id: str | int
    kept: dict[str, Any]
    status: str
    failure_phase: str | None = None
    error: str | None = None
    attempts: int = 1
    duration_ms: float = 0.0
    log: str | None = None
    stages: list[SentStage] = []
    line: bytes = b"{}"


class ResultLine(msgspec.Struct, omit_defaults=True, gc=False):
    """A line of the results' file."""

    id: str | int
    status: str
    failure_phase: str | None = None
    error: str | None = None
    attempts: int = 1
    duration_ms: float = 0.0
    log: str | None = None
    item: dict[str, Any] = {}
    stages: msgspec.Raw = msgspec.Raw(b"{}")


class Checkpoint(msgspec.Struct):
    """The end of a range of the source: everything before it is done, and written."""

    items: int
    results_bytes: int
    shards: list[OutputShard]
    """Of this range."""
    files: list[WrittenFile]
    stats: RunStats
    """Of everything up to here."""
    complete: bool = False
    """The source ends here."""


class ResultsFile:
    """Writes results and checkpoints."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "results.jsonl"
        self._checkpoints = folder / "checkpoints"
        self._checkpoints_bytes = 0
        """Of whole lines."""
        self._file: BinaryIO | None = None
        self._encode = msgspec.json.Encoder().encode

    def checkpoints(self) -> Iterator[Checkpoint]:
        """The checkpoints of earlier attempts of this run; an incomplete last line is ignored."""
        decode = msgspec.json.Decoder(Checkpoint).decode
        try:
            with self._checkpoints.open("rb") as file:
                for line in file:
                    if line.endswith(b"\n"):
                        yield decode(line)
                        self._checkpoints_bytes += len(line)
        except FileNotFoundError:
            return
        except ValueError as error:
            raise BadInput(f"{self._checkpoints} is damaged: {error}; start a new run") from None

    def open(self, results_bytes: int) -> None:
        """Opens the file, and cuts it off after `results_bytes`."""
        with writing(self._path):
            self._file = self._path.open("r+b" if self._path.exists() else "w+b", buffering=_ENCODE_BUFFER_BYTES)
            if self._file.seek(0, os.SEEK_END) < results_bytes:
                self._file.close()
                raise BadInput(f"{self._path} is shorter than the run left it; start a new run")
            self._file.truncate(results_bytes)
            self._file.seek(results_bytes)

    def add(self, ended: EndedItem) -> None:
        """Writes the line of an item."""
        assert self._file is not None
        line = ResultLine(
            ended.id, ended.status, ended.failure_phase, ended.error, ended.attempts, ended.duration_ms,
            ended.log, ended.kept, msgspec.Raw(ended.line),
        )  # fmt: skip
        try:
            encoded = self._encode(line)
        except (TypeError, ValueError, RecursionError):  # kept fields that JSON has no form for
            line.item = {name: repr(value) for name, value in line.item.items()}
            encoded = self._encode(line)
        self._file.write(encoded + b"\n")

    def commit(self, checkpoint: Callable[[int], Checkpoint]) -> None:
        """Makes the lines durable, then the checkpoint, which gets their length."""
        assert self._file is not None
        with writing(self._path):
            self._file.flush()
            os.fsync(self._file.fileno())
            line = self._encode(checkpoint(self._file.tell())) + b"\n"
            fd = os.open(self._checkpoints, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                os.ftruncate(fd, self._checkpoints_bytes)
                os.pwrite(fd, line, self._checkpoints_bytes)
                os.fsync(fd)
                self._checkpoints_bytes += len(line)
            finally:
                os.close(fd)

    def close(self) -> None:
        """Closes the file; lines that no checkpoint covers may be lost."""
        if self._file is not None:
            with suppress(OSError):  # a full disk, which the writer has reported
                self._file.close()


class _LineId(msgspec.Struct):
    id: str | int


def ids_of(folder: Path) -> Iterator[str]:
    """The ids of a run's results, in the order of the source."""
    decode = msgspec.json.Decoder(_LineId).decode
    with (folder / "results.jsonl").open("rb") as file:
        for line in file:
            yield str(decode(line).id)


def value_of(entry: bytes | None, name: str) -> Any:
    """Decodes the value in a cache entry."""
    if entry is None:
        raise WeftError(f"the cache has lost the value of a stage, {name}, during the run; run it again")
    return _decode(_decode_entry(entry).body)


def read_results(folder: Path, find: Callable[[bytes], bytes | None]) -> Iterator[ItemResult]:
    """Yields the results of a run, in the order of the source; values are read only when they are used."""
    decode, decode_stages = msgspec.json.Decoder(ResultLine).decode, msgspec.json.Decoder(dict[str, StageLine]).decode
    with (folder / "results.jsonl").open("rb") as file:
        for position, text in enumerate(file):
            line = decode(text)
            stages = decode_stages(line.stages)

            def value(name: str, stages: dict[str, StageLine] = stages) -> Any:
                key = stages[name].key
                return value_of(find(bytes.fromhex(key)) if key is not None else None, name)

            yield ItemResult(
                {"id": line.id} | line.item, position, line.status, line.failure_phase, line.error, stages, value
            )
