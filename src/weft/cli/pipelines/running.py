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


def engine_flags(command: AnyCommand) -> AnyCommand:
    """`--engine NAME`, and what an engine on other machines must know."""
    command = click.option(
        "--key-file",
        "--cluster-key-file",
        metavar="FILE",
        help="With --engine celery: the cluster's key (WEFT_CLUSTER_KEY_FILE).",
    )(command)
    command = click.option("--broker", metavar="URL", help="With --engine celery: the broker (WEFT_BROKER).")(command)
    return click.option(
        "--engine", metavar="NAME", help="What runs the items: local, or celery for other machines. [default: local]"
    )(command)


def engine_options(options: dict[str, Any]) -> dict[str, str]:
    """What was given to `engine_flags` beside the engine; it is taken out of the options."""
    given = {"broker": options.pop("broker"), "cluster_key_file": options.pop("key_file")}
    return {name: value for name, value in given.items() if value}


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
