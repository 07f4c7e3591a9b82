"""A parser child: reads pages that come over a socket, one after the other, and keeps nothing between two.

Runs in a process of the fork server (supervise/pool/fork_server.py), which ends it when the parent has gone, also when
a page holds it in native code.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import signal
import socket
import time
from typing import TYPE_CHECKING

from weft.engine.parsing.extracted import Reply, framed, read_page, request_of
from weft.supervise.pool.frame_reader import FrameReader
from weft.supervise.process import set_name

if TYPE_CHECKING:
    from weft.engine.user_code.calls import Runner

PROCESS_NAME = "weft-parser"
_GC_THRESHOLDS = (20_000, 20, 100)  # a page creates hundreds of objects and hardly a cycle


class FaultMarks:
    """Marks that tests set: a page that contains one kills its parser, blocks it for ever, or fills its memory."""

    def __init__(self) -> None:
        self._deadly = os.environ.get("WEFT_TEST_DEADLY_MARK", "").encode()
        self._endless = os.environ.get("WEFT_TEST_ENDLESS_MARK", "").encode()
        self._greedy = os.environ.get("WEFT_TEST_GREEDY_MARK", "").encode()

    def trigger_fault(self, body: bytes) -> None:
        """Does what the mark in the page demands."""
        if self._deadly and self._deadly in body:
            os.abort()
        if self._endless and self._endless in body:
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
            while True:
                time.sleep(60)
        if self._greedy and self._greedy in body:
            kept = b"x" * (300 << 20)
            time.sleep(60)
            del kept


def main(connection_fd: int, output_fd: int) -> None:
    """Reads pages until the socket is closed. Its output, above all the traceback of a crash, goes to the parent."""
    _run_child(connection_fd, output_fd, loads_code=False)


def main_with_code(connection_fd: int, output_fd: int) -> None:
    """Does the same with the user's code, which is imported before the child counts as ready."""
    _run_child(connection_fd, output_fd, loads_code=True)


def _run_child(connection_fd: int, output_fd: int, *, loads_code: bool) -> None:
    _prepare_process(output_fd)
    with socket.socket(fileno=connection_fd) as connection:
        reader = FrameReader(connection)
        try:
            runner = _load_code(reader.next()) if loads_code else None
            gc.freeze()
            connection.sendall(framed(Reply(0)))
            marks = FaultMarks()
            while (frame := reader.next()) is not None:
                connection.sendall(_answer_request(frame, marks, runner))
        except OSError:
            return  # the parent has ended


def _prepare_process(output_fd: int) -> None:
    for stream in (1, 2):
        os.dup2(output_fd, stream)
    os.close(output_fd)
    faulthandler.enable()
    set_name(PROCESS_NAME)
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)


def _load_code(frame: bytes | None) -> Runner | None:
    """The code that the parent names."""
    if frame is None:
        return None
    from weft.engine.user_code.calls import decode_loading
    from weft.engine.user_code.describing import runner_of

    return runner_of(decode_loading(frame))


def _answer_request(frame: bytes, marks: FaultMarks, runner: Runner | None = None) -> bytes:
    request = request_of(frame)
    marks.trigger_fault(request.body)
    began = time.perf_counter()
    try:
        return framed(Reply(request.number, read_page(request, runner), spent_s=time.perf_counter() - began))
    except Exception as error:  # the error concerns this page alone, and the next can be parsed
        return framed(Reply(request.number, error=(type(error).__name__, str(error))))
