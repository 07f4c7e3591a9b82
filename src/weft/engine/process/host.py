"""The process of an engine: locks the folder, opens everything, serves commands, ends with its parent.

It reads its spec from standard input, a length and msgpack. The pipe remains open; when it closes, the parent has
ended.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    gc.disable()  # nothing that is imported is garbage; the collector would take a tenth of the start

import msgspec

from weft.engine.assembly import retry_while_locked
from weft.engine.core import SLOT, Core
from weft.engine.crawls.settings import config_of
from weft.engine.entry import begin_process, collect_rarely
from weft.engine.folder import EngineFolder
from weft.engine.process.channel import socket_path
from weft.errors import WeftError
from weft.files import have_temporary_folder
from weft.frames import framed, read_frame
from weft.telemetry import Log

STOP_GRACE_S = 20.0  # longer than what is in flight is waited for
log = Log("weft.engine.process.host")


class HostSpec(msgspec.Struct, frozen=True):
    """What a handle wants an engine process to run."""

    data_dir: str
    shared: dict[str, Any]

    def framed(self) -> bytes:
        """The spec encoded for the pipe."""
        return framed(msgspec.msgpack.encode(self))


class ParentWatch:
    """Detects the end of the parent on a thread of its own, however busy the engine is.

    A process that is still starting is killed, which loses nothing that a start does not repeat. A running one is asked
    to end, and killed if it has not ended after the grace period and makes no progress.
    """

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        self._stop_engine: Callable[[], None] | None = None
        self._count_steps: Callable[[], int] = lambda: 0
        threading.Thread(target=self._watch_pipe, name="parent", daemon=True).start()

    def fileno(self) -> int:
        """Readable when the parent has ended."""
        return self._pipe

    def stop_when_gone(self, stop: Callable[[], None], steps: Callable[[], int]) -> None:
        """From now on the engine can be asked to end with `stop`; `steps` changes while it makes progress with that."""
        self._stop_engine, self._count_steps = stop, steps

    def _watch_pipe(self) -> None:
        poll = select.poll()
        poll.register(self._pipe, select.POLLIN)
        poll.poll()
        if self._stop_engine is not None:
            self._stop_engine()
            before = -1
            while before != (now := self._count_steps()):
                before = now
                time.sleep(STOP_GRACE_S)
        os._exit(1)


def run(spec: HostSpec, parent: ParentWatch) -> None:
    """Runs the engine until its parent has gone or SIGTERM comes."""
    data_dir, config = Path(spec.data_dir), config_of(spec.shared)
    identity = EngineFolder([data_dir]).open_identity()
    have_temporary_folder(data_dir)
    log_dir = Path(spec.shared.get("log_dir") or data_dir / "logs")
    begin_process(SLOT, log_dir, config.log.log_level, config.log.log_format, engine=identity.id)
    core = retry_while_locked(lambda: Core(data_dir, spec.shared, identity.id))
    parent.stop_when_gone(core.stop, lambda: core.steps)
    collect_rarely()
    signal.signal(signal.SIGTERM, lambda *_: core.stop())
    core.serve(socket_path(data_dir), parent.fileno())
    core.run()


def main() -> int:
    """Runs the engine; returns the exit code. An error is one line on standard error."""
    fd = sys.stdin.fileno()
    try:
        body = read_frame(fd)
    except EOFError:
        return 1
    os.umask(0o077)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is for the parent
    try:
        run(msgspec.msgpack.decode(body, type=HostSpec), ParentWatch(fd))
    except WeftError as error:
        log.error("stopped", error=error)
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return error.exit_code
    finally:
        gc.freeze()  # at its end the interpreter would search everything for cycles, several times
    return 0


if __name__ == "__main__":
    sys.exit(main())
