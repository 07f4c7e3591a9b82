"""Finds and ends the processes that a killed supervisor has left behind, and no others.

Two things identify them. A *record* has pid, birth and command line of a process that was seen running; it counts for
this run of the machine alone. A *mark* in the environment is there from the first moment of a process and of all that
it starts, so that one which was started and not yet recorded is found as well. A signal is sent through a descriptor
that was opened before the process was checked, so it reaches exactly that process, even if its pid is reused.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Collection, Iterable
from functools import partial

from weft.supervise import process
from weft.supervise.held import Adopted, ProcessIdentity
from weft.telemetry import Log

KILLED_S = 10.0  # a killed process may need a moment to end
MARK = "WEFT_SUPERVISED_BY"
log = Log("weft.supervise.leftovers")


def find(records: Collection[ProcessIdentity], mark: str) -> list[Adopted]:
    """The recorded processes that still run, and all that carry the mark (`NAME=value`)."""
    if not all(mark.partition("=")):
        raise ValueError(f"{mark!r} would mark every process")
    processes: dict[int, Adopted] = {}
    for record in records:
        if (held := Adopted.adopt_if(record.pid, partial(_is, record, mark))) is not None:
            processes[record.pid] = held
    for pid in process.with_environment(mark):
        if pid not in processes and (held := Adopted.adopt_if(pid, lambda pid: process.carries(pid, mark))) is not None:
            processes[pid] = held
    return list(processes.values())


def end(processes: Iterable[Adopted], grace_s: float) -> None:
    """Asks the processes to end, and kills those that have not after the grace period."""
    left = list(processes)
    for held in left:
        log.info("ending a process that was left behind", pid=held.pid, argv=" ".join(process.command_line(held.pid)))
        held.send(signal.SIGTERM)
        held.send(signal.SIGCONT)  # a stopped process would not handle the signal
    until = time.monotonic() + grace_s
    for held in left:
        if not held.wait(max(0.0, until - time.monotonic())):
            held.send(signal.SIGKILL)
            held.wait(KILLED_S)
        held.close()


def _is(record: ProcessIdentity, mark: str, pid: int) -> bool:
    """Whether it is the process. Some programs change their command line, and some their environment, while they start;
    an ending process has neither.
    """
    is_named = process.command_line(pid) in ((), record.argv) or process.carries(pid, mark)
    return is_named and process.birth(pid) == record.birth
