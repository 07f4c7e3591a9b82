"""The supervisor's own worker: a hand that also serves the queue `system`, which needs this machine's files.

Its spec comes on standard input, a length and msgpack, so that neither key nor broker are in its command line or
environment; the pipe stays open, and its end is the supervisor's end: tasks that run come to theirs first.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence

import msgspec

from weft import __version__
from weft.cluster.hand import Hand
from weft.cluster.key import parse_key
from weft.cluster.supervised.children import WORKER_LOG, HandSpec, end_with, log_of
from weft.cluster.tasks import CHOSEN, SYSTEM, available
from weft.errors import WeftError
from weft.frames import read_frame
from weft.supervise.process import set_name
from weft.telemetry import Log, Slot

log = Log("weft.cluster.supervised.supervised_hand")


def queues() -> Sequence[str]:
    """Those that this machine can serve, and the supervisor's."""
    can = available()  # pages are rendered by the browsers that the brain on this machine has
    return (*(name for name in CHOSEN if name != "render" and not can[name]), SYSTEM)


def _silence_celery() -> None:
    """It prints that it shuts down, on the terminal of the user who has started the supervisor; our log has it, too."""
    nowhere = open(os.devnull, "w")  # noqa: PTH123, SIM115 (as long as the process lives)
    for name in ("stdout", "__stdout__"):
        setattr(sys, name, nowhere)


def main() -> int:
    """Works until the pipe closes; returns the exit code."""
    pipe = sys.stdin.fileno()
    try:
        spec = msgspec.msgpack.decode(read_frame(pipe), type=HandSpec)
    except EOFError:
        return 1
    set_name("celery_worker")
    os.umask(0o077)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is the supervisor's to hear
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # until Celery has its own
    try:
        log_of(spec.logs, Slot(0, "celery"), WORKER_LOG)
        log.always("process started", pid=os.getpid(), weft=__version__)
        end_with(pipe)
        _silence_celery()
        hand = Hand(
            spec.broker, parse_key(spec.key, "the cluster's key"), queues(), concurrency=spec.concurrency,
            accept_code=False, say=lambda text: log.info(text), visibility_s=spec.visibility_s,
            waits=True,
        )  # fmt: skip
        code = hand.run()
    except WeftError as error:
        log.error("stopped", error=error)
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return error.exit_code
    log.always("process ended", pid=os.getpid(), code=code)
    return code


if __name__ == "__main__":
    sys.exit(main())
