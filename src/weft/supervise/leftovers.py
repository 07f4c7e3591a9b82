"""Processes that a killed supervisor has left behind: found, and ended, and no other ones.

Two things name them. A *record* has pid, birth and command line of a process that was seen running; it counts for this
run of the machine alone. A *mark* in the environment is there from the first moment of a process and of all that it
starts, so that one which was started and not yet recorded is found as well. A signal goes through a descriptor that
was opened before the process was checked: to that very process, whatever process gets its number later.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Collection, Iterable
from functools import partial

from weft.supervise import process
from weft.supervise.held import Adopted, ProcessIdentity
from weft.telemetry import Log

KILLED_S = 10.0  # a process that was killed may take a moment to be gone
MARK = "WEFT_SUPERVISED_BY"
log = Log("weft.supervise.leftovers")


def find(records: Collection[ProcessIdentity], mark: str) -> list[Adopted]:
    """The recorded ones that still run, and all that carry the mark (`NAME=value`)."""
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
    """Has them end in good order, and kills those that have not when the grace is over."""
    left = list(processes)
    for held in left:
        log.info("ending a process that was left behind", pid=held.pid, argv=" ".join(process.command_line(held.pid)))
        held.send(signal.SIGTERM)
        held.send(signal.SIGCONT)  # one that was stopped would not hear it
    until = time.monotonic() + grace_s
    for held in left:
        if not held.wait(max(0.0, until - time.monotonic())):
            held.send(signal.SIGKILL)
            held.wait(KILLED_S)
        held.close()


def _is(record: ProcessIdentity, mark: str, pid: int) -> bool:
    """Some programs change their command line, and some their environment, while they start; one that is ending has
    neither."""
    is_named = process.command_line(pid) in ((), record.argv) or process.carries(pid, mark)
    return is_named and process.birth(pid) == record.birth
