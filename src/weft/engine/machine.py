"""The politeness clock that all processes of this machine share, for a process that opens an embedded frontier:
optional, unused or required.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from weft.config import PolitenessSection
from weft.errors import BadInput
from weft.frontier.clock import FOLDER_VARIABLE, MachineClock, UnusableClock, default_clock_path
from weft.supervise.process import command_line, pids
from weft.telemetry import Log

_FETCHING_MODULES = ("weft.crawl.processes.fetcher", "weft.engine.process.host")  # modules of processes that fetch
log = Log("weft.engine.machine")


def open_clock(section: PolitenessSection) -> MachineClock | None:
    """The clock; None if it is disabled, or if it cannot be used, which is logged."""
    if not section.machine_clock:
        return None
    try:
        return MachineClock(default_clock_path(), longest_s=section.max_retry_after_s, request_s=section.lease_s)
    except UnusableClock as why:
        log.warning("the machine's politeness clock cannot be used", why=why)
        return None


def check_clock(section: PolitenessSection, complain: Callable[[str], None]) -> None:
    """Checks before a crawl starts: a crawl that cannot use the clock may run alone, but not beside another."""
    if not section.machine_clock:
        return
    try:
        MachineClock(default_clock_path()).close()
    except UnusableClock as why:
        what = f"the politeness clock that your crawls on this machine share cannot be used ({why})"
        if (other := _other_fetching_process()) is not None:
            raise BadInput(
                f"{what}, and another of your crawls is running (process {other}): together they may ask a site too "
                f"often. Wait for its end, name a folder that can be written in {FOLDER_VARIABLE}, or use "
                "`machine_clock=False` if they have no site in common"
            ) from None
        complain(
            f"{what}: do not start another crawl of the same sites meanwhile, or set {FOLDER_VARIABLE} to another "
            "folder"
        )


def _other_fetching_process() -> int | None:
    """The id of another process of this user that fetches."""
    for pid in pids():
        try:
            is_mine = Path(f"/proc/{pid}").stat().st_uid == os.getuid()
        except OSError:
            continue
        if is_mine and pid != os.getpid() and any(module in command_line(pid) for module in _FETCHING_MODULES):
            return pid
    return None
