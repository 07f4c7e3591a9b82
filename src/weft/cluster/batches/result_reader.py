"""Reads a run's results in a thread, so that the engine's loop never waits for the broker, and can be waited for."""

from __future__ import annotations

import os
import threading
from collections import deque
from contextlib import suppress

from weft.cluster.batches.run_board import BrainBoard
from weft.errors import ServerAway, ServerFull, WeftError

Entry = tuple[str, dict[bytes, bytes]]
_BLOCK_MS = 500
_MOST_WAITING = 1000
_AGAIN_S = 0.5


class ResultReader:
    """Entries of the stream, in order."""

    def __init__(self, board: BrainBoard, after: str) -> None:
        self._board = board
        self._after = after
        self._entries: deque[Entry] = deque()
        self._fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._stopping = threading.Event()
        self._rewound = threading.Event()
        self._trouble: WeftError | None = None
        self._thread = threading.Thread(target=self._read, daemon=True, name="weft-batch-results")
        self._thread.start()

    def fileno(self) -> int:
        """Readable when there are entries."""
        return self._fd

    def take(self) -> list[Entry]:
        """What has come. Raises what the thread cannot recover from."""
        try:
            os.eventfd_read(self._fd)
        except BlockingIOError:
            pass
        if self._trouble is not None:
            raise self._trouble
        taken = []
        while self._entries:
            taken.append(self._entries.popleft())
        return taken

    def rewind(self) -> None:
        """From the beginning: after the broker has lost the stream, ids may begin below the last one."""
        self._rewound.set()

    def close(self) -> None:
        """The thread ends."""
        self._stopping.set()
        with suppress(WeftError):
            self._board.wake_reader()
        self._thread.join(_BLOCK_MS / 1000 + 6.0)
        if not self._thread.is_alive():
            os.close(self._fd)

    def _read(self) -> None:
        while not self._stopping.is_set():
            if len(self._entries) > _MOST_WAITING:
                self._stopping.wait(0.05)
                continue
            if self._rewound.is_set():
                self._rewound.clear()
                self._after = "0"
            try:
                found = self._board.read(self._after, _BLOCK_MS)
            except (ServerAway, ServerFull):
                self._stopping.wait(_AGAIN_S)
                continue
            except WeftError as error:
                self._trouble = error
                os.eventfd_write(self._fd, 1)
                return
            if found:
                self._after = found[-1][0]
                self._entries.extend(found)
                os.eventfd_write(self._fd, 1)
