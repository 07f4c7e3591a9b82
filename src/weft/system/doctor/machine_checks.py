"""The doctor's checks besides a service's settings: memory, writable folders, kernel settings for Redis, and secrets in
files.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from weft.config import ServiceConfig
from weft.errors import WeftError
from weft.supervise.memory import limit_bytes
from weft.system.doctor.finding import CheckState, Finding

# Measured: the processes of an idle service have about 200 MB together, and more with every task.
LEAST_MEMORY, GOOD_MEMORY = 256 << 20, 1 << 30
OVERCOMMIT = Path("/proc/sys/vm/overcommit_memory")


def memory() -> Finding:
    """Checks the memory of the machine, or the limit of a container or of systemd."""
    limit = limit_bytes()
    found = f"{limit / 1e9:,.1f} GB for this process and its children"
    if limit >= GOOD_MEMORY:
        return Finding("memory", CheckState.OK, found)
    verdict = CheckState.PROBLEM if limit < LEAST_MEMORY else CheckState.WARNING
    advice = "give the machine or container 1 GB or more (`mem_limit`, `resources.limits.memory`, MemoryMax)"
    return Finding("memory", verdict, found, f"{advice}; with less, run fewer tasks at a time")


def folders(config: ServiceConfig) -> Iterator[Finding]:
    """Checks the other folders that must be writable: for logs, and for temporary files."""
    log_dir = Path(config.log.log_dir).absolute()
    above = next(path for path in (log_dir, *log_dir.parents) if path.exists())
    if above.is_dir() and os.access(above, os.W_OK | os.X_OK):
        yield Finding("log folder", CheckState.OK, str(log_dir))
    else:
        yield Finding("log folder", CheckState.PROBLEM, f"{above}: cannot be written", "choose another --log-dir")
    try:
        yield Finding("temporary folder", CheckState.OK, tempfile.gettempdir())
    except FileNotFoundError:
        yield Finding(
            "temporary folder", CheckState.WARNING, "none can be written: files go to the data dir",
            "mount a tmpfs at /tmp, or name a folder in TMPDIR",
        )  # fmt: skip


def overcommit(is_redis_here: bool) -> Iterator[Finding]:
    """Warns if the kernel may refuse a Redis on this machine the fork by which it saves its data."""
    if not is_redis_here:
        return
    try:
        setting = OVERCOMMIT.read_text().strip()
    except OSError:
        return
    if setting == "1":
        yield Finding("redis memory", CheckState.OK, "vm.overcommit_memory is 1")
        return
    yield Finding(
        "redis memory", CheckState.WARNING, f"vm.overcommit_memory is {setting}: a large Redis cannot fork to save",
        "`sysctl vm.overcommit_memory=1`, and the same line in /etc/sysctl.d/weft.conf",
    )  # fmt: skip


def api_keys(config: ServiceConfig) -> Iterator[Finding]:
    """Checks that the operator's file of API keys can be read, if there is one."""
    if config.server.api_keys_file is None:
        return
    try:
        from weft.jobs.api.access.listed_keys import read_listed
        from weft.jobs.api.settings import listed_keys_of

        path = listed_keys_of(config.server)
        count = len(read_listed(path)) if path is not None else 0
    except WeftError as wrong:
        yield Finding("api keys", CheckState.PROBLEM, str(wrong), "correct the file that api_keys_file names")
        return
    yield Finding("api keys", CheckState.OK, f"{count} in {config.server.api_keys_file}")
