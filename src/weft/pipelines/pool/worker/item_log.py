"""The log of one item: `items/{item_id}.worker-{pid}.log`, one line per entry, the last one of phase `end`.

    [2026-02-04T10:30:45.123Z] [INFO] [clone] Starting clone stage {"url":"...","branch":"master"}

A file for each item costs more than a small item does. With many items a worker has one file for all of its own,
`items/worker-{pid}.log`: an item's section there begins with a line of phase `begin`, and `items/worker-{pid}.index`
says where (JSON lines: `item`, `status`, `offset`, `bytes`). The section of an item that did not end well is copied to
a file of its own.

The worker writes through ItemLog; what it had not flushed when it died is in the slot, and the parent adds it with
`close_after_death`. Invariants: an entry is one line; an ERROR is in the file before `error()` returns; a log has an
`end` line however the item ended; below ERROR, no more than CAP_BYTES of one item are kept, and the log says so.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import threading
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import msgspec

from weft.pipelines.pool.worker.descriptors import Identity, identity
from weft.pipelines.pool.worker.slot import LOG, SECTION, SHARED_LOG, LogBuffer, SharedSlot

FLUSH_ENTRIES = 100
CAP_BYTES = 10 * 1024 * 1024
_MAX_MESSAGE_CHARS = 32_000
_UNSAFE_CHARACTERS = re.compile(r"[^A-Za-z0-9._-]")
_CONTROL_CHARACTERS = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029]")
_NAME_CHARS = 100
_encode_json = msgspec.json.Encoder().encode


def safe_name(item_id: str | int) -> str:
    """A file name for an item: readable, never a path, and different for different ids."""
    text = str(item_id)
    name = _UNSAFE_CHARACTERS.sub("_", text)[:_NAME_CHARS]
    if name.startswith((".", "-")) or not name:
        name = "_" + name[1:]
    if name == text:
        return name
    return f"{name}~{hashlib.blake2b(text.encode(errors='surrogatepass'), digest_size=6).hexdigest()}"


def log_path(directory: str, item_id: str | int, pid: int) -> str:
    """The path of an item's log by a worker."""
    return f"{directory}/{safe_name(item_id)}.worker-{pid}.log"


def shared_path(directory: str, pid: int) -> str:
    """The path of the log that all items of a worker share."""
    return f"{directory}/worker-{pid}.log"


@lru_cache(maxsize=2)
def _time_to_second(now_s: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now_s))


def entry(level: str, phase: str, message: str, data: dict[str, Any] | None = None) -> bytes:
    """Encodes one line of a log, with its newline."""
    now_s = time.time()
    stamp = f"{_time_to_second(int(now_s))}.{int(now_s % 1 * 1000):03d}Z"
    if len(message) > _MAX_MESSAGE_CHARS:
        message = message[:_MAX_MESSAGE_CHARS] + f" … {len(message) - _MAX_MESSAGE_CHARS} characters left out"
    line = f"[{stamp}] [{level}] [{one_line(phase)}] {one_line(message)}"
    return (f"{line} {_json_value(data)}\n" if data else line + "\n").encode(errors="backslashreplace")


class _LogFile:
    """A file that lines are appended to, also after the item has closed its descriptor."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        status = os.fstat(self._fd)
        self._identity: Identity | None = (status.st_dev, status.st_ino)
        self.bytes_before = status.st_size

    def write(self, data: bytes) -> None:
        """Appends bytes; raises OSError on a full disk."""
        _write_all(self._duplicate_fd(), data)

    def read_from(self, offset: int) -> bytes:
        """Reads from an offset to the end; empty if the file is shorter."""
        fd = self._duplicate_fd()
        size = os.fstat(fd).st_size
        return os.pread(fd, size - offset, offset) if offset < size else b""

    def close(self) -> None:
        if identity(self._fd) == self._identity:
            os.close(self._fd)
        self._fd = -1

    def _duplicate_fd(self) -> int:
        if identity(self._fd) != self._identity:
            # the item has closed it, and may have opened another file under its number
            self._fd = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
            self._identity = identity(self._fd)
        return self._fd


class ItemLog:
    """The log that a stage writes to; also callable: `context.log("cloned", url=url)`."""

    def __init__(
        self,
        slot: SharedSlot,
        directory: str | None,
        pid: int,
        collect: Callable[[], tuple[bytes, int]],
        *,
        is_shared: bool = False,
    ) -> None:
        """`is_shared`: all items have one file; the parent may also request that later (SHARED_LOG)."""
        self._buffer = LogBuffer(slot)
        self._slot = slot
        self._directory = directory
        self._pid = pid
        self._collect = collect
        self._is_shared = is_shared
        self._lock = threading.RLock()
        self._file: _LogFile | None = None
        """Where the lines of the item that runs go; None when there is no item, or no log."""
        self._shared: _LogFile | None = None
        self._index: _LogFile | None = None
        self._item_id: str | int = ""
        self._section = 0
        self._entries = self._bytes = self._dropped = 0
        self.path: str | None = None
        self.phase = "process"
        self.told: str | None = None
        """What the item's function itself has logged of how the item ended: it is not logged twice."""

    @property
    def open(self) -> bool:
        """Whether log entries are kept."""
        return self._file is not None

    def begin(self, item_id: str | int) -> None:
        """Starts the log of a new item: a new file, or a new section of the worker's file."""
        self._bytes = self._dropped = 0
        self.phase = "process"
        self.told = None
        if self._directory is None:
            return
        try:
            if self._is_shared or self._slot.words[SHARED_LOG]:
                self._begin_section(self._directory, item_id)
            else:
                self._begin_file(self._directory, item_id)
        except OSError:
            self.path = None  # a full disk costs the log, never the item

    def _begin_file(self, directory: str, item_id: str | int) -> None:
        self._entries = 0
        file = _LogFile(log_path(directory, item_id, self._pid))
        self._slot.words[LOG] = file.bytes_before << 20
        self._file, self.path = file, file.path
        if file.bytes_before and not _ends_whole(file.path, file.bytes_before):
            self._write_to_file(b"\n" + entry("WARNING", "log", "The line before this one was torn"))

    def _begin_section(self, directory: str, item_id: str | int) -> None:
        if self._shared is None:
            path = shared_path(directory, self._pid)
            self._index = _LogFile(index_path(path))
            self._shared = _LogFile(path)
            self._slot.words[LOG] = self._shared.bytes_before << 20
        self._item_id, self._section = item_id, self._buffer.end
        self._slot.words[SECTION] = self._section + 1
        self._file, self.path = self._shared, self._shared.path
        self._write(entry("INFO", "begin", "Item", {"item": item_id}))

    def end(self, status: str, duration_ms: float, *, is_good: bool = True) -> None:
        """Writes the last line. An item's own file is complete then; the missing part of a shared file is in the
        slot.
        """
        if self._file is None:
            return
        with self._lock:
            self.collect()
            if self._dropped:
                self._write(entry("WARNING", "log", "Output was dropped", {"droppedBytes": self._dropped}))
            self._write(entry("INFO", "end", status, {"processingTimeMs": round(duration_ms)}))
            if self._file is self._shared:
                self._end_section(status, is_good=is_good)
            else:
                self.flush()
                self._file.close()
            self._file = None

    def _end_section(self, status: str, *, is_good: bool) -> None:
        assert self._directory is not None
        assert self._shared is not None
        assert self._index is not None
        end = self._buffer.end
        self._slot.words[SECTION] = end + 1
        try:
            self._index.write(index_line(self._item_id, status, self._section, end - self._section))
            if not is_good:
                self.flush()
                own = log_path(self._directory, self._item_id, self._pid)
                append_to(own, self._shared.read_from(self._section))
                self.path = own
        except OSError:
            pass  # no room on the disk: the item is not lost for that

    def __call__(self, message: str, **data: Any) -> None:
        self.add("INFO", message, data)

    def debug(self, message: str, **data: Any) -> None:
        """Logs a detail (DEBUG)."""
        self.add("DEBUG", message, data)

    def info(self, message: str, **data: Any) -> None:
        """Logs a normal event (INFO)."""
        self.add("INFO", message, data)

    def warning(self, message: str, **data: Any) -> None:
        """Logs something unusual (WARNING)."""
        self.add("WARNING", message, data)

    def error(self, message: str, **data: Any) -> None:
        """Logs an error (ERROR), which is in the file when this returns."""
        self.add("ERROR", message, data)

    def add(self, level: str, message: str, data: dict[str, Any] | None = None, phase: str | None = None) -> None:
        """Adds an entry of any level, after the output of the item's subprocesses until now."""
        if self._file is None:
            return
        with self._lock:
            self.collect()
            self._keep(level, entry(level, phase or self.phase, str(message), data))

    def collect(self) -> None:
        """Logs output that bypassed Python: of subprocesses and native code."""
        output, dropped = self._collect()
        if output and self._file is not None:
            for line in output.decode(errors="backslashreplace").splitlines():
                self._keep("INFO", entry("INFO", self.phase, line))
        if dropped:
            self._count_dropped(dropped)

    def printed(self, line: str) -> bool:
        """Logs a line printed by Python code; False when no item is running."""
        if self._file is None:
            return False
        with self._lock:
            if self._bytes >= CAP_BYTES:
                self._count_dropped(len(line))
            else:
                self.collect()
                self._keep("INFO", entry("INFO", self.phase, line))
        return True

    def flush(self) -> None:
        """Writes all waiting lines to the file."""
        with self._lock:
            waiting = self._buffer.waiting()
            if waiting:
                self._write_to_file(waiting)
            self._entries = 0

    def forget(self) -> None:
        """Detaches from the log in a forked child of the item: the worker continues to write it."""
        self._file = self._shared = self._directory = None
        self._lock = threading.RLock()

    def _keep(self, level: str, line: bytes) -> None:
        serious = level in ("ERROR", "CRITICAL")
        if self._bytes >= CAP_BYTES and not serious:
            return self._count_dropped(len(line))
        self._bytes += len(line)
        self._write(line)
        if serious or self._entries >= FLUSH_ENTRIES:
            self.flush()
        return None

    def _count_dropped(self, length: int) -> None:
        if not self._dropped:
            self._write(entry("WARNING", "log", "Output limit reached, more is dropped", {"keptBytes": self._bytes}))
        self._dropped += length

    def _write(self, line: bytes) -> None:
        self._entries += 1
        if not self._buffer.add(line):
            self.flush()
            if not self._buffer.add(line):
                self._write_to_file(line)

    def _write_to_file(self, data: bytes) -> None:
        file = self._shared or self._file  # between two items there is only a worker's
        if file is None:
            return
        try:
            file.write(data)
        except OSError:
            data = b""  # no room on the disk: the lines are lost, the item is not
        self._buffer.flushed(len(data))


class LogHandler(logging.Handler):
    """Sends the standard logging module's records to the item's log."""

    def __init__(self, log: ItemLog) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Logs a record as one entry, with its traceback in the data."""
        try:
            data: dict[str, Any] = {"logger": record.name} if record.name != "root" else {}
            if record.exc_info:
                data["traceback"] = (self.formatter or logging.Formatter()).formatException(record.exc_info)
            self._log.add(record.levelname, record.getMessage(), data)
        except Exception:
            self.handleError(record)


class DeadWorkersLog:
    """The log of a dead worker, which the parent completes from the worker's slot."""

    def __init__(self, directory: str, pid: int, slot: SharedSlot) -> None:
        self._directory = directory
        self._pid = pid
        self._slot = slot
        self._shared = shared_path(directory, pid)
        self._section = slot.words[SECTION] - 1 if os.path.exists(self._shared) else -1  # noqa: PTH110
        """Where the held item's section begins in the worker's file; -1: items have files of their own."""

    def complete(self) -> None:
        """Adds the lines that waited in the slot, if the worker held no item."""
        if self._section >= 0:
            self._append_lines(self._shared, b"")

    def close_item(self, item_id: str | int, status: str, output: bytes, phase: str, last: bytes) -> str:
        """Completes the held item's log: unflushed entries, output, the reason, the end line. Returns its path."""
        own = log_path(self._directory, item_id, self._pid)
        kept = output[:CAP_BYTES].strip(b"\0").decode(errors="backslashreplace")
        lines = b"".join(entry("INFO", phase, line) for line in kept.splitlines()) + last
        if self._section < 0:
            self._append_lines(own, lines)
            return own
        section = self._append_lines(self._shared, lines)
        append_to(index_path(self._shared), index_line(item_id, status, self._section, len(section)))
        append_to(own, section)
        return own

    def _append_lines(self, path: str, lines: bytes) -> bytes:
        file = _LogFile(path)
        try:
            file.write(LogBuffer(self._slot).missing(file.bytes_before) + lines)
            return file.read_from(self._section) if self._section >= 0 else b""
        finally:
            file.close()


def index_path(shared: str) -> str:
    """The path of the index of a shared log, which lists its items."""
    return shared.removesuffix(".log") + ".index"


def index_line(item_id: str | int, status: str, offset: int, length: int) -> bytes:
    """Encodes an index line: the position of an item's section in a shared log."""
    return _encode_json({"item": item_id, "status": status, "offset": offset, "bytes": length}) + b"\n"


def append_to(path: str, data: bytes) -> int:
    """Appends to a log; returns how long it was before."""
    file = _LogFile(path)
    try:
        file.write(data)
        return file.bytes_before
    finally:
        file.close()


def _ends_whole(path: str, size: int) -> bool:
    """Whether the last line of a log is complete; a power cut may have truncated it."""
    with open(path, "rb") as file:  # noqa: PTH123
        file.seek(size - 1)
        return file.read(1) == b"\n"


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def one_line(text: str) -> str:
    """Escapes every control character of a text, so that it stays on one line and cannot affect a terminal."""
    return _CONTROL_CHARACTERS.sub(_escape_match, text) if _CONTROL_CHARACTERS.search(text) else text


def _escape_match(match: re.Match[str]) -> str:
    return repr(match.group())[1:-1]


def _json_value(data: dict[str, Any]) -> str:
    try:
        text = msgspec.json.encode(data, enc_hook=repr).decode()
        return _CONTROL_CHARACTERS.sub(lambda match: f"\\u{ord(match.group()):04x}", text)
    except Exception:
        # a key that is no text, a lone surrogate, an object that cannot even be shown: an entry is never lost for that
        return msgspec.json.encode({"data": _display_value(data)}).decode()


def _display_value(data: dict[str, Any]) -> str:
    try:
        return ascii(data)[:_MAX_MESSAGE_CHARS]
    except Exception as error:
        return f"cannot be shown: {type(error).__name__}"
