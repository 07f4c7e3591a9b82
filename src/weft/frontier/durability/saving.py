"""Writes a checkpoint while the crawl continues, in a fork of the process, which has the working set of that moment.

Writing five million URLs takes seconds, in which nothing would be fetched; a fork takes milliseconds, and the kernel
copies what changes meanwhile. The child writes one file, touches nothing else, and dies with the process that it comes
from. One that fails or is killed leaves the old checkpoint, which is valid: the journal has all that came after.
"""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import time
import warnings
from collections.abc import Callable

from weft.telemetry import Log

POLL_S = 0.01

_PR_SET_PDEATHSIG = 1
_C_LIBRARY = ctypes.CDLL(None)
log = Log("weft.frontier.durability.saving")


class CheckpointChild:
    """A checkpoint that is being written."""

    def __init__(self, write: Callable[[], None]) -> None:
        """`write` is called in the child, without its parent's descriptors."""
        self.was_written = self._was_given_up = False
        parent = os.getpid()
        with warnings.catch_warnings():
            # Other threads may hold locks for ever in the child: it uses none of them, and ends without cleaning up.
            warnings.simplefilter("ignore", DeprecationWarning)
            self._pid = os.fork()
        if not self._pid:
            _write_in_child(write, parent)

    def has_ended(self, *, wait: bool = False) -> bool:
        """Whether the child has ended."""
        if not self._pid:
            return True
        pid, status = os.waitpid(self._pid, 0 if wait else os.WNOHANG)
        if not pid:
            return False
        self._pid = 0
        self.was_written = status == 0
        if status and not self._was_given_up:
            log.warning("a checkpoint was not written: the one before stays", status=status)
        return True

    def wait(self, written: Callable[[], int], alive: Callable[[], None]) -> None:
        """Returns when the child has ended; `alive` is called whenever `written` grows."""
        before = -1
        while not self.has_ended():
            if (now := written()) != before:
                before = now
                alive()
            time.sleep(POLL_S)

    def kill_child(self) -> None:
        """Ends the child: the previous checkpoint remains valid."""
        self._was_given_up = True
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
            self.has_ended(wait=True)


def _write_in_child(write: Callable[[], None], parent: int) -> None:
    code = 1
    try:
        gc.disable()
        _C_LIBRARY.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == parent:
            os.nice(5)
            os.closerange(3, os.sysconf("SC_OPEN_MAX"))
            write()
            code = 0
    finally:
        os._exit(code)
