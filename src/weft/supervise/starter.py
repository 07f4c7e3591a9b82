"""Starts processes from one thread that lives as long as this process does.

The kernel ties `die_with_parent` to the *thread* that forked: a child that is started from a thread which ends early is
killed with it, though its parent continues. So every service is started from here. A child still gets the caller's
signal mask and cores instead of those of this thread.

Invariant: the thread never ends before the process; after a fork the new process has one of its own.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

Work = Callable[[], subprocess.Popen[bytes]]


class _Starter:
    def __init__(self) -> None:
        self.pid = os.getpid()
        self._requests: SimpleQueue[tuple[Future[subprocess.Popen[bytes]], Work]] = SimpleQueue()
        self.children: dict[int, subprocess.Popen[bytes]] = {}  # children that are not waited for yet
        # A daemon thread: one that is joined at the interpreter's exit would end before the last threads of its users.
        threading.Thread(target=self._serve, name="starter", daemon=True).start()

    def start(self, work: Work) -> subprocess.Popen[bytes]:
        answer: Future[subprocess.Popen[bytes]] = Future()
        self._requests.put((answer, work))
        try:
            return answer.result()
        except BaseException:
            # Ctrl-C during the wait: the caller will not own the process, so it is ended.
            answer.add_done_callback(_discard)
            raise

    def _serve(self) -> None:
        while True:
            answer, work = self._requests.get()
            try:
                popen = work()
                self.children = {pid: one for pid, one in self.children.items() if one.returncode is None}
                self.children[popen.pid] = popen
                answer.set_result(popen)
            except BaseException as error:  # raised again in the thread that waits for it
                answer.set_exception(error)


_lock = threading.Lock()
_starter: _Starter | None = None


def start(argv: list[str], *, hears_interrupts: bool = True, **options: Any) -> subprocess.Popen[bytes]:
    """Starts a process like `subprocess.Popen`. `hears_interrupts=False`: it starts with SIGINT blocked, because a
    terminal's Ctrl-C is sent to the whole group, and its parent handles it.
    """
    cores, mask = os.sched_getaffinity(0), set(signal.pthread_sigmask(signal.SIG_BLOCK, ()))
    if not hears_interrupts:
        mask.add(signal.SIGINT)

    def work() -> subprocess.Popen[bytes]:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        with suppress(OSError):  # a core was removed from our cpuset meanwhile: the kernel has chosen others
            os.sched_setaffinity(0, cores)
        return subprocess.Popen(argv, **options)  # noqa: S603 (our caller's own command)

    return _this_process().start(work)


def has_started(pid: int) -> bool:
    """Whether a process was started here, and its end has not been waited for."""
    with _lock:
        found = None if _starter is None or _starter.pid != os.getpid() else _starter.children.get(pid)
    return found is not None and found.returncode is None


def _this_process() -> _Starter:
    global _starter
    with _lock:
        if _starter is None or _starter.pid != os.getpid():
            _starter = _Starter()
        return _starter


def _renew_lock() -> None:
    global _lock
    _lock = threading.Lock()  # another thread may have held it in the moment of the fork


os.register_at_fork(after_in_child=_renew_lock)


def _discard(answer: Future[subprocess.Popen[bytes]]) -> None:
    if answer.exception() is None:
        popen = answer.result()
        popen.kill()
        popen.wait()
