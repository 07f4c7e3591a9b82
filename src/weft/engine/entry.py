"""The start of every process that fetches or parses, whatever its role: of an engine with many crawls, of a pod, or of
a single crawl.

A module that is run as such a process calls `gc.disable()` before its imports: nothing that is imported is garbage, and
the collector would take a tenth of the start.
"""

from __future__ import annotations

import gc
import os
import resource
from pathlib import Path

from weft import __version__
from weft.supervise.process import set_name
from weft.telemetry import Log, LogFormat, Slot, log_to_file

# A page creates hundreds of objects and hardly a cycle, and millions of sites may be in memory: collect rarely, and
# scan no more than 100,000 objects at a time (400,000 would be a pause of a quarter of a second).
GC_THRESHOLDS = (20_000, 5, 400)
log = Log("weft.engine.entry")


def begin_process(
    slot: Slot, log_dir: Path, log_level: str, shown_as: LogFormat | None = None, **facts: object
) -> None:
    """Sets the process's name, limits and log; `facts` are written in the log's first line."""
    set_name(slot.name)
    _, files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))  # the usual 1024 are few for many connections
    os.umask(0o077)  # files of the process may hold secrets: only its owner may read them
    log_to_file(log_dir, slot, log_level, shown_as=shown_as)
    log.always("process started", pid=os.getpid(), weft=__version__, **facts)


def collect_rarely() -> None:
    """Enables garbage collection at long intervals; objects that exist now are never scanned."""
    gc.freeze()
    gc.enable()
    gc.set_threshold(*GC_THRESHOLDS)
