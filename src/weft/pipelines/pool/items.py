"""Items from a JSONL file or from standard input. A broken line becomes a BadItem; reading continues after it."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import msgspec

from weft.errors import BadInput
from weft.pipelines.pool.engine.task import BadItem, Pause, id_problem
from weft.pipelines.pool.worker.slot import BANK_BYTES

_MAX_LINE_BYTES = 2 * BANK_BYTES
_COUNT_BYTES = 1024 * 1024
_MOST_AHEAD = 2_000
_END_OF_FILE = object()


def parse_line(number: int, line: bytes) -> Any:
    """Parses a line into an item; None for an empty line."""
    if not line.strip():
        return None
    name = f"line {number}"
    if len(line) > _MAX_LINE_BYTES:
        return BadItem(name, f"the line is longer than {_MAX_LINE_BYTES} bytes")
    try:
        item = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return BadItem(name, f"the line is not JSON: {error}")
    if not isinstance(item, dict):
        return BadItem(name, f"an item must be an object with an id, this is {type(item).__name__}")
    item = with_id(item)
    why = id_problem(item.get("id"))
    return item if why is None else BadItem(name, why)


def with_id(item: Any) -> Any:
    """An item of a file; one without an id that has a `url`, as a row of `weft export`, is known by that."""
    if type(item) is dict and "id" not in item and type(item.get("url")) is str:
        return {"id": item["url"], **item}
    return item


def read_items(file: IO[bytes]) -> Iterator[Any]:
    """Yields the items of an open file; invalid lines become BadItems."""
    number = 0
    while line := file.readline(_MAX_LINE_BYTES + 1):
        number += 1
        if len(line) > _MAX_LINE_BYTES:
            _skip_line(file)
        item = parse_line(number, line)
        if item is not None:
            yield item


def check_items(path: Path) -> None:
    """Raises BadInput if the file cannot be read. Does not open it: the writer of a pipe would notice."""
    why = None
    if not path.exists():
        why = "there is no such file"
    elif path.is_dir():
        why = "it is a directory"
    elif not os.access(path, os.R_OK):
        why = "permission denied"
    if why is not None:
        raise BadInput(f"the items file {path} cannot be read: {why}")


def count_lines(path: Path) -> int:
    """The largest number of items that a file may have; an estimate for the time left."""
    lines, last = 0, b"\n"
    with path.open("rb") as file:
        while block := file.read(_COUNT_BYTES):
            lines += block.count(b"\n")
            last = block[-1:]
    return lines + (last != b"\n")


class Feeder:
    """Items from a stream that may block: a thread reads it, so that the engine never blocks."""

    def __init__(self, file: IO[bytes]) -> None:
        self._queue: queue.Queue[Any] = queue.Queue(_MOST_AHEAD)
        threading.Thread(target=self._read_file, args=(file,), daemon=True, name="weft-items").start()

    def _read_file(self, file: IO[bytes]) -> None:
        try:
            for item in read_items(file):
                self._queue.put(item)
        except BaseException as error:
            self._queue.put(BadItem("input", f"the items cannot be read further: {error}"))
        finally:
            self._queue.put(_END_OF_FILE)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        try:
            item = self._queue.get_nowait()
        except queue.Empty:
            return Pause.LATER
        if item is _END_OF_FILE:
            self._queue.put(_END_OF_FILE)
            raise StopIteration
        return item


def _skip_line(file: IO[bytes]) -> None:
    while (rest := file.readline(_COUNT_BYTES)) and not rest.endswith(b"\n"):
        pass
