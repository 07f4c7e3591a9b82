"""Shared by commands that run items in worker processes: signals, and redirection of stdout."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import click

from weft.pipelines.pool.api import handle_interrupt
from weft.pipelines.pool.settings import AUTO_EACH, ITEM_LOGS

LATEST = "latest"
AnyCommand = TypeVar("AnyCommand", bound=Callable[..., Any])


def item_log_flags(command: AnyCommand) -> AnyCommand:
    """Adds `--item-logs MODE`, and `--no-item-logs` for `off`."""
    command = click.option(
        "--item-logs",
        type=click.Choice(ITEM_LOGS),
        help=f"A log file for each item, or one for each worker; auto: each up to {AUTO_EACH:,} items. [default: auto]",
    )(command)
    return click.option(
        "--no-item-logs",
        "item_logs",
        flag_value="off",
        help="Write no logs of items; their output goes to the terminal.",
    )(command)


@contextmanager
def terminate_like_interrupt() -> Iterator[None]:
    """Makes SIGTERM end a run as Ctrl-C does: cleanly, and resumable."""
    # SIGINT itself may be ignored, in a script's background job
    before = signal.signal(signal.SIGTERM, handle_interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def stdout_to_stderr() -> Iterator[int]:
    """Redirects the output of items to stderr; yields a descriptor of the real stdout."""
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield kept
    finally:
        os.dup2(kept, 1)
        os.close(kept)
