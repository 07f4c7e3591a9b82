"""What every process of a crawl does at its start and at its end, whatever its role.

Started by the orchestrator with an Order on its standard input; it dies with it. It may be killed at any moment:
started again with the same order, it goes on.
"""

from __future__ import annotations

import gc
import os
import resource
import sys
from collections.abc import Callable
from pathlib import Path

from weft import __version__
from weft.crawl.ends import SERVER_AWAY
from weft.crawl.folder import CrawlFolder
from weft.crawl.order import Control, Order, read_order
from weft.engine.progress import Progress
from weft.errors import ServerAway, ServerFull, WeftError
from weft.supervise.process import die_with_parent, set_name
from weft.telemetry import Log, log_to_file

CRASHED = 70
# A page makes hundreds of objects and hardly a cycle, and millions of sites may be in memory: look for cycles rarely.
GC_THRESHOLDS = (20_000, 20, 100)
log = Log("weft.crawl.child")


def run_child(work: Callable[[Order, Control], int]) -> int:
    """Reads the order and carries it out; the exit code."""
    fd = sys.stdin.fileno()
    order = read_order(fd)
    die_with_parent(order.parent_pid)
    set_name(order.slot.name)
    if order.core is not None:
        os.sched_setaffinity(0, {order.core})
    _, files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))  # the usual 1024 are few for many connections
    log_to_file(Path(order.config.log.log_dir), order.slot, order.config.log.log_level)
    log.always(
        "process started",
        pid=os.getpid(),
        core="any" if order.core is None else order.core,
        incarnation=order.incarnation,
        crawl=order.crawl_id,
        weft=__version__,
    )
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    try:
        return work(order, Control(fd))
    except (ServerAway, ServerFull) as away:
        log.error("stopped", error=away)
        progress_of(order).write("paused", str(away))
        return SERVER_AWAY
    except WeftError as error:
        log.error("stopped", error=error)
        progress_of(order).write("failed", str(error))
        return error.exit_code
    except Exception as error:
        log.error("crashed", exc_info=True)
        progress_of(order).write("failed", f"{type(error).__name__}: {error}")
        return CRASHED


def progress_of(order: Order) -> Progress:
    """Where this process tells how it stands."""
    path = CrawlFolder(order.config.store.data_dirs).status_of(order.slot)
    path.parent.mkdir(exist_ok=True)
    return Progress(path, os.getpid(), order.run, order.parent_pid)
