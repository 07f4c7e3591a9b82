"""The process of a crawl that a supervisor runs (see `service`): `PARENT_PID FILE DATA_DIR...`.

SIGTERM lets requests in flight finish. If the supervisor dies the kernel kills this process, and its own with it; the
next start continues. Errors are one line on standard error.
"""

from __future__ import annotations

import gc
import signal
import sys

from weft.crawl.folder import CrawlFolder
from weft.crawl.processes.service import service_environment
from weft.crawl.start import prepare
from weft.errors import WeftError
from weft.supervise.process import die_with_parent, set_name


def main(parent_pid: str, file: str, *data_dirs: str) -> int:
    """Runs the crawl to its end; returns the exit code."""
    die_with_parent(int(parent_pid))
    set_name("crawl")
    flags = {"data_dirs": list(data_dirs), "resume": CrawlFolder(data_dirs).exists()}
    try:
        prepared = prepare([], flags, file, environment=service_environment(), stays_paused=True)
        try:
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, lambda *_: prepared.orchestrator.stop())
            return prepared.orchestrator.run()
        finally:
            prepared.close()
    except WeftError as error:
        print(f"{type(error).__name__}: {' '.join(str(error).splitlines())}", file=sys.stderr, flush=True)
        return error.exit_code
    finally:
        gc.freeze()  # at exit the interpreter would search everything for cycles, several times


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
