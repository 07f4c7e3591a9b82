"""The log of one item: `items/{item_id}.worker-{pid}.log`, one line per entry, the last one of phase `end`.

    [2026-02-04T10:30:45.123Z] [INFO] [clone] Starting clone stage {"url":"...","branch":"master"}

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
from typing import Any

import msgspec

from weft.pipelines.pool.descriptors import Identity, identity
from weft.pipelines.pool.slot import LOG, LogBuffer, SharedSlot

FLUSH_ENTRIES = 100
CAP_BYTES = 10 * 1024 * 1024
_MAX_MESSAGE_CHARS = 32_000
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")
_CONTROL = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029]")
_NAME_CHARS = 100


def safe_name(item_id: str | int) -> str:
    """A file name for an item: readable, never a path, and different for different ids."""
    text = str(item_id)
    name = _UNSAFE.sub("_", text)[:_NAME_CHARS]
    if name.startswith((".", "-")) or not name:
        name = "_" + name[1:]
    if name == text:
        return name
    return f"{name}~{hashlib.blake2b(text.encode(errors='surrogatepass'), digest_size=6).hexdigest()}"


def log_path(directory: str, item_id: str | int, pid: int) -> str:
    """Where the log of this item on this worker is."""
    return f"{directory}/{safe_name(item_id)}.worker-{pid}.log"


def entry(level: str, phase: str, message: str, data: dict[str, Any] | None = None) -> bytes:
    """One line of a log, its newline included."""
    now_s = time.time()
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now_s)) + f".{int(now_s % 1 * 1000):03d}Z"
    if len(message) > _MAX_MESSAGE_CHARS:
        message = message[:_MAX_MESSAGE_CHARS] + f" … {len(message) - _MAX_MESSAGE_CHARS} characters left out"
    line = f"[{stamp}] [{level}] [{one_line(phase)}] {one_line(message)}"
    return (f"{line} {_json(data)}\n" if data else line + "\n").encode(errors="backslashreplace")


class ItemLog:
    """What a stage logs with; also callable: `context.log("cloned", url=url)`."""

    def __init__(
        self, slot: SharedSlot, directory: str | None, pid: int, collect: Callable[[], tuple[bytes, int]]
    ) -> None:
        self._buffer = LogBuffer(slot)
        self._slot = slot
        self._directory = directory
        self._pid = pid
        self._collect = collect
        self._lock = threading.RLock()
        self._fd = -1
        self._identity: Identity | None = None
        self._entries = self._bytes = self._dropped = 0
        self.path: str | None = None
        self.phase = "process"
        self.told: str | None = None
        """What the item's function itself has logged of how the item ended: it is not said twice."""

    @property
    def open(self) -> bool:
        """Whether anything that is logged is kept."""
        return self._fd >= 0

    def begin(self, item_id: str | int) -> None:
        """A new item, a new file."""
        self._entries = self._bytes = self._dropped = 0
        self.phase = "process"
        self.told = None
        if self._directory is not None:
            path = log_path(self._directory, item_id, self._pid)
            try:
                self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            except OSError:
                self.path = None  # a full disk costs the log, never the item
                return
            self.path = path
            found = os.fstat(self._fd)
            self._identity = found.st_dev, found.st_ino
            self._slot.words[LOG] = found.st_size << 20
            if found.st_size and not _ends_whole(path, found.st_size):
                self._to_file(b"\n" + entry("WARNING", "log", "The line before this one was torn"))

    def end(self, status: str, duration_ms: float) -> None:
        """The last line; everything is in the file after this."""
        if self._fd < 0:
            return
        with self._lock:
            self.collect()
            if self._dropped:
                self._write(entry("WARNING", "log", "Output was dropped", {"droppedBytes": self._dropped}))
            self._write(entry("INFO", "end", status, {"processingTimeMs": round(duration_ms)}))
            self.flush()
            if identity(self._fd) == self._identity:
                os.close(self._fd)
            self._fd = -1

    def __call__(self, message: str, **data: Any) -> None:
        self.add("INFO", message, data)

    def debug(self, message: str, **data: Any) -> None:
        """A detail."""
        self.add("DEBUG", message, data)

    def info(self, message: str, **data: Any) -> None:
        """Something happened as it should."""
        self.add("INFO", message, data)

    def warning(self, message: str, **data: Any) -> None:
        """Something is odd."""
        self.add("WARNING", message, data)

    def error(self, message: str, **data: Any) -> None:
        """Something went wrong; in the file before this returns."""
        self.add("ERROR", message, data)

    def add(self, level: str, message: str, data: dict[str, Any] | None = None, phase: str | None = None) -> None:
        """An entry of any level, after whatever the item's subprocesses have printed until now."""
        if self._fd < 0:
            return
        with self._lock:
            self.collect()
            self._keep(level, entry(level, phase or self.phase, str(message), data))

    def collect(self) -> None:
        """Logs output that bypassed Python: of subprocesses and native code."""
        output, dropped = self._collect()
        if output and self._fd >= 0:
            for line in output.decode(errors="backslashreplace").splitlines():
                self._keep("INFO", entry("INFO", self.phase, line))
        if dropped:
            self._drop(dropped)

    def printed(self, line: str) -> bool:
        """Logs a line printed by Python code; False when no item is running."""
        if self._fd < 0:
            return False
        with self._lock:
            if self._bytes >= CAP_BYTES:
                self._drop(len(line))
            else:
                self.collect()
                self._keep("INFO", entry("INFO", self.phase, line))
        return True

    def flush(self) -> None:
        """Everything that waits goes to the file."""
        with self._lock:
            waiting = self._buffer.waiting()
            if waiting and self._fd >= 0:
                self._to_file(waiting)
            self._entries = 0

    def forget(self) -> None:
        """In a forked child of the item: this log belongs to the worker, who goes on writing it."""
        self._fd = -1
        self._lock = threading.RLock()

    def _keep(self, level: str, line: bytes) -> None:
        serious = level in ("ERROR", "CRITICAL")
        if self._bytes >= CAP_BYTES and not serious:
            return self._drop(len(line))
        self._bytes += len(line)
        self._write(line)
        if serious or self._entries >= FLUSH_ENTRIES:
            self.flush()
        return None

    def _drop(self, length: int) -> None:
        if not self._dropped:
            self._write(entry("WARNING", "log", "Output limit reached, more is dropped", {"keptBytes": self._bytes}))
        self._dropped += length

    def _write(self, line: bytes) -> None:
        self._entries += 1
        if not self._buffer.add(line):
            self.flush()
            if not self._buffer.add(line):
                self._to_file(line)

    def _to_file(self, data: bytes) -> None:
        try:
            if identity(self._fd) != self._identity:
                # the item has closed it, and may have opened another file under its number
                self._fd = os.open(self.path or "", os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
                self._identity = identity(self._fd)
            _write_all(self._fd, data)
        except OSError:
            data = b""  # no room on the disk: the lines are lost, the item is not
        self._buffer.flushed(len(data))


class LogHandler(logging.Handler):
    """Sends the standard logging module's records to the item's log."""

    def __init__(self, log: ItemLog) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """One record, one entry; a traceback goes into its data."""
        try:
            data: dict[str, Any] = {"logger": record.name} if record.name != "root" else {}
            if record.exc_info:
                data["traceback"] = (self.formatter or logging.Formatter()).formatException(record.exc_info)
            self._log.add(record.levelname, record.getMessage(), data)
        except Exception:
            self.handleError(record)


def close_after_death(path: str, slot: SharedSlot, output: bytes, phase: str, last: bytes) -> None:
    """Completes the log of an item whose worker has died: unflushed entries, output, the reason, the end line."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    try:
        lines = [LogBuffer(slot).missing(os.fstat(fd).st_size)]
        kept = output[:CAP_BYTES].strip(b"\0")
        lines += [entry("INFO", phase, line) for line in kept.decode(errors="backslashreplace").splitlines()]
        _write_all(fd, b"".join(lines) + last)
    finally:
        os.close(fd)


def read_output(fd: int, limit: int = CAP_BYTES) -> bytes:
    """What was printed past Python and not yet collected."""
    return os.pread(fd, limit, 0) if os.fstat(fd).st_size else b""


def _ends_whole(path: str, size: int) -> bool:
    """Whether its last line is complete; a power cut may have torn it."""
    with open(path, "rb") as file:  # noqa: PTH123
        file.seek(size - 1)
        return file.read(1) == b"\n"


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def one_line(text: str) -> str:
    """The text with every control character written out: it can move no cursor and begin no second line."""
    return _CONTROL.sub(_escaped, text) if _CONTROL.search(text) else text


def _escaped(match: re.Match[str]) -> str:
    return repr(match.group())[1:-1]


def _json(data: dict[str, Any]) -> str:
    try:
        text = msgspec.json.encode(data, enc_hook=repr).decode()
        return _CONTROL.sub(lambda match: f"\\u{ord(match.group()):04x}", text)
    except Exception:
        # a key that is no text, a lone surrogate, an object that cannot even be shown: an entry is never lost for that
        return msgspec.json.encode({"data": _shown(data)}).decode()


def _shown(data: dict[str, Any]) -> str:
    try:
        return ascii(data)[:_MAX_MESSAGE_CHARS]
    except Exception as error:
        return f"cannot be shown: {type(error).__name__}"
