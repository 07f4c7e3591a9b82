"""What commands share that run items in worker processes: signals, and where prints go."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

from weft.pipelines.pool.api import handle_interrupt

LATEST = "latest"


@contextmanager
def terminate_like_interrupt() -> Iterator[None]:
    """SIGTERM ends a run as Ctrl-C does: in good order, and to be resumed."""
    before = signal.signal(signal.SIGTERM, handle_interrupt)  # SIGINT itself may be ignored, in a script's background
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def stdout_to_stderr() -> Iterator[int]:
    """Redirects what items print to stderr; yields a descriptor of the real stdout."""
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield kept
    finally:
        os.dup2(kept, 1)
        os.close(kept)
