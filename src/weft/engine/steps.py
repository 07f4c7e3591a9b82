"""The named steps between two durable writes, where a crash must cost nothing but repeated work.

Tests set WEFT_TEST_CRASH_AT to `name` or `name:N`: the process kills itself when it reaches that step for the Nth time.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

STEPS = (
    "claimed",  # in the request log, nothing sent yet
    "fetched",  # a transfer has ended, nothing is written
    "before-write",
    "after-write",  # WARC bytes are there, links and rows are not
    "after-links",  # links are in the journal, rows are not
    "after-rows",  # rows are there, the frontier does not know
    "after-sync",  # rows are on the disk, the frontier does not know
    "after-acknowledge",  # the frontier knows, its journal does not
)


def crash_point(setting: str | None = None) -> Callable[[str], None]:
    """A function to be told each step; it does nothing unless a test wants the process dead there."""
    setting = os.environ.get("WEFT_TEST_CRASH_AT", "") if setting is None else setting
    if not setting:
        return _pass_by
    name, _, times = setting.partition(":")
    left = int(times or 1)

    def reach(step: str) -> None:
        nonlocal left
        if step == name:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    return reach


def _pass_by(step: str) -> None:  # noqa: ARG001
    return None
