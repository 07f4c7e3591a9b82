"""The worker process: reads batches from its socket, runs the function on each item, commits each result to its slot.

Runs in a process of the fork server, alone in its own session. Invariants: an item is announced before it is begun
and committed as soon as it has ended, so that after a death it is certain what was done; whatever the function raises
ends that item and not the worker; a process that the function forked never continues as a second worker; a worker whose
descriptors an item has closed begins no other item.
"""

from __future__ import annotations

import atexit
import contextlib
import io
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec

from weft.errors import BadInput
from weft.pipelines.pool import shared_config
from weft.pipelines.pool.context import PROCESS, Context, ItemEnd, Skip
from weft.pipelines.pool.failure import describe, message, traceback_of
from weft.pipelines.pool.record import (
    FAILED,
    OK,
    SKIPPED,
    STAGE,
    STARTED,
    STATUSES,
    TIMEOUT,
    over_limit,
)
from weft.pipelines.pool.worker.capture import Capture, OutputFile, SignalGuard
from weft.pipelines.pool.worker.descriptors import Descriptors
from weft.pipelines.pool.worker.item_log import ItemLog
from weft.pipelines.pool.worker.slot import (
    BANK_BYTES,
    CURRENT,
    FRAME_START_NS,
    FRAMES,
    LIMIT,
    READY,
    START_NS,
    SlotWriter,
)
from weft.pipelines.pool.worker.wire import BELL, decode_assignment, decode_batch
from weft.supervise import process
from weft.supervise.pool.frame_reader import FrameReader

READY_YES, READY_FAILED = 1, 2
_BELL_EVERY_NS = 5_000_000
_EMPTY_FIELDS = (None,) * 9
"""Fills the fields of a record between the value and the log, which a successful item leaves out."""
_encode = msgspec.msgpack.Encoder().encode


def main(connection_fd: int, slot_fd: int, output_fd: int) -> None:
    """Runs a worker from the fork to its exit; does not return."""
    connection = socket.socket(fileno=connection_fd)
    Worker(connection, slot_fd, output_fd).run()
    _exit_process()


class Worker:
    """One worker process."""

    def __init__(self, connection: socket.socket, slot_fd: int, output_fd: int) -> None:
        self._connection = connection
        self._link = Descriptors([connection.fileno()])
        self._frames = FrameReader(connection)
        self._slot = SlotWriter(slot_fd, self._ring_bell)
        os.close(slot_fd)
        self._output = OutputFile(output_fd, self._slot)
        self._belled_ns = 0
        self._forked = False
        self._broken = False
        os.register_at_fork(after_in_child=self._in_forked_child)

    def run(self) -> None:
        """Prepares the worker, then runs batches until the parent closes the socket."""
        self._output.redirect()
        frame = self._frames.next()
        if frame is None or not self._prepare_worker(frame):
            return
        while (frame := self._next_frame()) is not None:
            ticket, attempt, ring, items = decode_batch(frame)
            self._run_batch(ticket, attempt, items)
            if self._broken:
                break  # the rest goes to another worker
            self._slot.words[FRAMES] += 1
            if not self._frames.waiting:
                self._log.flush()  # nothing to do: what all items share is brought up to date
            if ring or not self._frames.waiting:
                self._ring_bell()  # also checks that the socket is still the parent's before the next read
        self._log.flush()

    def _next_frame(self) -> bytes | None:
        return None if self._broken else self._frames.next()

    def _prepare_worker(self, frame: bytes) -> bool:
        """Imports the function; a failure goes into the slot as a record, for the parent to report."""
        assignment = decode_assignment(frame)
        process.set_name(f"weft-worker-{assignment.number}")
        sys.path[:] = assignment.sys_path
        if assignment.cwd is not None:
            os.chdir(assignment.cwd)
        self._limit_s = assignment.item_timeout_s
        self._config = MappingProxyType(shared_config.decoded(assignment.config))
        self._events = assignment.events
        self._observed = assignment.events or assignment.log_directory is not None
        self._log = ItemLog(
            self._slot, assignment.log_directory, os.getpid(), self._output.collect, is_shared=assignment.shared_log
        )
        self._capture = Capture(self._log) if assignment.log_directory else None
        self._guard = SignalGuard()
        try:
            self._function = assignment.target.load()
            if (worker_start := getattr(self._function, "worker_start", None)) is not None:
                worker_start(self._config)
        except BaseException as error:
            why = str(error) if isinstance(error, BadInput) else describe(error)
            return self._report_ready(READY_FAILED, (0, "", FAILED, 0, 0, None, "import", why, traceback_of(error)))
        self._after_import(assignment.log_directory)
        self._guard.remember()
        descriptors = Descriptors([1, 2, self._output.fd, self._connection.fileno()])
        self._are_descriptors_intact = descriptors.open if self._capture is None else descriptors.intact
        return self._report_ready(READY_YES, None)

    def _after_import(self, log_directory: str | None) -> None:
        """Writes what the import printed, which belongs to no item, to the terminal or to the worker's own log."""
        printed, _ = self._output.collect()
        if log_directory is None:
            self._output.restore()
            os.write(1, printed)
        elif printed:
            Path(log_directory).with_name(f"worker-{os.getpid()}.log").write_bytes(printed)

    def _report_ready(self, state: int, record: tuple[Any, ...] | None) -> bool:
        if record is not None:
            self._slot.put(_encode(record))
        self._slot.words[READY] = state
        self._ring_bell()
        return state == READY_YES

    def _run_batch(self, ticket: int, attempt: int, items: list[Any]) -> None:
        words = self._slot.words
        words[FRAME_START_NS] = time.monotonic_ns()
        for number, item in enumerate(items, ticket):
            if number >= words[LIMIT]:
                break  # the parent has revoked the rest
            words[START_NS] = 0
            words[CURRENT] = number + 1
            if number >= words[LIMIT]:
                break  # revoked just now: only this check, after the announcement, is free of a race
            self._run_item(number, attempt, item)
            if self._broken:
                break
        words[FRAME_START_NS] = words[START_NS] = 0

    def _run_item(self, ticket: int, attempt: int, item: Any) -> None:
        """Runs the function and commits its result."""
        item_id = item["id"]
        on_stage = self._begin_item(ticket, attempt, item_id) if self._observed else None
        began_ns = time.monotonic_ns()
        self._slot.words[START_NS] = began_ns
        deadline = None if self._limit_s is None else began_ns / 1e9 + self._limit_s
        context = Context(item_id, attempt, deadline, self._log, self._slot, on_stage, self._config)
        problem: BaseException | None
        try:
            value, status, problem = self._function(item, context), OK, None
        except Skip as skip:
            value, status, problem = None, SKIPPED, skip
        except BaseException as error:
            value, status, problem = None, FAILED, error
        if self._forked:
            os._exit(0)
        if self._guard.changed:
            self._guard.restore()  # first of all: a timer that fires from here on would hit the worker
        if not self._are_descriptors_intact():
            self._broken = True
            self._log.add("WARNING", "The item closed descriptors of its worker, which is replaced")
        ended_ns = time.monotonic_ns()
        record: tuple[Any, ...] = (ticket, item_id, status, attempt, (ended_ns - began_ns) // 1000, value)
        if problem is not None:
            record = (*record, *_failure_fields(context, status, problem))
        elif type(value) is ItemEnd:
            record = (ticket, item_id, STATUSES.index(value.status), attempt, record[4], *value.rest)
        self._finish_item(context, record)
        if ended_ns - self._belled_ns > _BELL_EVERY_NS:
            self._ring_bell()
            self._belled_ns = ended_ns

    def _begin_item(self, ticket: int, attempt: int, item_id: str | int) -> Callable[[Context], None] | None:
        """Opens the log and reports the start, if wanted; returns the callback for stages."""
        self._log.begin(item_id)
        if not self._events:
            return None
        self._slot.put(_encode((ticket, item_id, STARTED, attempt, 0)))

        def on_stage(context: Context) -> None:
            self._slot.put(_encode((ticket, item_id, STAGE, attempt, 0, None, context.phase)))

        return on_stage

    def _finish_item(self, context: Context, record: tuple[Any, ...]) -> None:
        """Closes the log, then commits the record: a result that says `ok` has its complete log."""
        if self._limit_s is not None and record[4] > self._limit_s * 1e6:
            record = (*record[:2], TIMEOUT, record[3], record[4], None, *_timeout_fields(context, self._limit_s))
        data, record = self._encode_result(record)
        if self._capture is not None:
            self._close_log(record)
            data = _encode((*record, *_EMPTY_FIELDS[len(record) :], self._log.path))
        if context.phase is not None:
            self._slot.stage = None
        self._slot.put(data)

    def _encode_result(self, record: tuple[Any, ...]) -> tuple[bytes, tuple[Any, ...]]:
        try:
            data = _encode(record)
            if len(data) <= BANK_BYTES:
                return data, record
            error: str = f"the value is too large: {len(data)} bytes, at most {BANK_BYTES} can be returned"
        except BaseException as problem:
            error = f"the value cannot be encoded: {describe(problem)}"
        record = (*record[:2], FAILED, record[3], record[4], None, "result", error, None)
        return _encode(record), record

    def _close_log(self, record: tuple[Any, ...]) -> None:
        assert self._capture is not None
        self._capture.finish_item()
        if record[2] != OK and record[7] != self._log.told:
            level = "INFO" if record[2] == SKIPPED else "ERROR"
            self._log.add(level, record[7], {"traceback": record[8]} if record[8] else None, record[6])
        self._log.end(STATUSES[record[2]], record[4] / 1000, is_good=record[2] in (OK, SKIPPED))

    def _ring_bell(self) -> None:
        """Signals the parent to read the slot. A full socket has unread bells in it; a closed one has no parent. A file
        that an item has put in its place gets none, and the parent sees the end of the worker instead.
        """
        if not self._link.intact():
            self._broken = True
            return
        with contextlib.suppress(OSError):
            self._connection.send(BELL, socket.MSG_DONTWAIT)

    def _in_forked_child(self) -> None:
        self._forked = True
        if self._link.intact():
            self._connection.close()
        if hasattr(self, "_log"):
            self._log.forget()
        if isinstance(sys.stdout, io.TextIOBase) and getattr(self, "_capture", None):
            sys.stdout = open(1, "w", closefd=False, buffering=1)  # noqa: SIM115
            sys.stderr = open(2, "w", closefd=False, buffering=1)  # noqa: SIM115


def _failure_fields(context: Context, status: int, problem: BaseException) -> tuple[Any, ...]:
    """The phase, error and traceback of a failed item."""
    phase = context.failed_phase or context.phase or PROCESS
    if status == SKIPPED:
        return phase, message(problem), None
    return phase, describe(problem), traceback_of(problem)


def _timeout_fields(context: Context, limit_s: float) -> tuple[str, str, None]:
    return context.failed_phase or context.phase or PROCESS, over_limit(limit_s), None


def _exit_process() -> None:
    """Ends the process as Python would: runs exit functions (not those of the fork server), and flushes open files."""
    try:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
    finally:
        os._exit(0)
