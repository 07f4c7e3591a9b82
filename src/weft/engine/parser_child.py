"""A parser child: reads pages that come over a socket, one after the other, and keeps nothing between two.

It ends when the socket is closed. A page may hold it in native code, where it sees nothing of that; so the kernel is
told to end it: the other end of `life`, a pipe that nobody writes to, is open in the parent alone; when it is closed,
SIGIO comes, which ends a process that does not handle it. (PR_SET_PDEATHSIG would do so when the *thread* that made the
child ends.)
"""

from __future__ import annotations

import fcntl
import gc
import os
import select
import signal
import socket
import sys
import time

if __name__ == "__main__":
    gc.disable()  # nothing that is imported is garbage; looking for it would be a tenth of the start

from weft.engine.extracted import Reply, framed, read, request_of
from weft.frames import frames
from weft.supervise.process import set_name

NAME = "weft-parser"
_PIECE = 1 << 16
_GC_THRESHOLDS = (20_000, 20, 100)  # a page makes hundreds of objects and hardly a cycle


class Marks:
    """Marks that tests name: a page that holds one kills its parser, or keeps it for ever."""

    def __init__(self) -> None:
        self._deadly = os.environ.get("WEFT_TEST_DEADLY_MARK", "").encode()
        self._endless = os.environ.get("WEFT_TEST_ENDLESS_MARK", "").encode()

    def obey(self, body: bytes) -> None:
        """Does what the page's mark says."""
        if self._deadly and self._deadly in body:
            os.abort()
        if self._endless and self._endless in body:
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
            while True:
                time.sleep(60)


def run(fd: int, life: int) -> None:
    """Reads pages until the socket is closed. `fd`: the socket's number; `life`: that of the pipe."""
    _end_with(life)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is the parent's to hear
    set_name(NAME)
    gc.freeze()
    gc.enable()
    gc.set_threshold(*_GC_THRESHOLDS)
    marks, heard = Marks(), bytearray()
    with socket.socket(fileno=fd) as sock:
        sock.setblocking(True)
        sock.sendall(framed(Reply(0)))
        while data := sock.recv(_PIECE):
            heard += data
            for frame in frames(heard):
                sock.sendall(_answer(frame, marks))


def run_forked(fd: int, life: int) -> None:
    """The same in a process that was forked: lets go of everything that is the parent's, and never returns."""
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGIO):
            signal.signal(number, signal.SIG_DFL)
        # A lock or a pipe's end that stays open here would outlive the parent by a moment.
        first, second = sorted((fd, life))
        os.closerange(3, first)
        os.closerange(first + 1, second)
        os.closerange(second + 1, os.sysconf("SC_OPEN_MAX"))
        run(fd, life)
    except OSError:
        pass  # the parent has gone
    finally:
        os._exit(0)


def _answer(frame: bytes, marks: Marks) -> bytes:
    request = request_of(frame)
    marks.obey(request.body)
    began = time.perf_counter()
    try:
        return framed(Reply(request.number, read(request), spent_s=time.perf_counter() - began))
    except Exception as error:  # whatever it is, it concerns this page alone, and the next can be parsed
        return framed(Reply(request.number, error=(type(error).__name__, str(error))))


def _end_with(life: int) -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGIO])
    fcntl.fcntl(life, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(life, fcntl.F_SETFL, fcntl.fcntl(life, fcntl.F_GETFL) | os.O_ASYNC)
    hung_up = select.poll()
    hung_up.register(life, select.POLLIN)
    if hung_up.poll(0):  # before the signal was asked for
        os._exit(0)


def main() -> int:
    """The exit code."""
    try:
        run(int(sys.argv[1]), int(sys.argv[2]))
    except OSError:
        return 0  # the parent has gone
    finally:
        gc.freeze()  # the interpreter's end would look through everything for cycles, several times
    return 0


if __name__ == "__main__":
    sys.exit(main())
