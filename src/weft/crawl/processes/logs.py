"""The orchestrator's log file: opened for one crawl alone; starts with the versions and the settings in force.

Invariant: no secret is written; every value passes `config.masked`.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from weft import __version__
from weft.config import Loaded, PodSpec, masked
from weft.crawl.folder import CrawlFolder
from weft.engine.folder import Identity
from weft.telemetry import Log, LogFile, Slot, log_to_file

log = Log("weft.crawl.processes.orchestrator")


def orchestrator_slot(here: tuple[int, ...]) -> Slot:
    """The slot that names a node's log: its first pod, because two nodes may share a log folder."""
    return Slot(here[0], "orchestrator")


def open_log(loaded: Loaded, folder: CrawlFolder, identity: Identity) -> LogFile:
    """Opens the log of a run; raises Busy if another crawl logs to the same folder."""
    section = loaded.config.log
    slot = orchestrator_slot(loaded.config.pods.here)
    opened = log_to_file(Path(section.log_dir), slot, section.log_level, alone=True, shown_as=section.log_format)
    log.always(
        "crawl started",
        crawl=identity.id,
        weft=__version__,
        python=platform.python_version(),
        pid=os.getpid(),
        pods=identity.pods,
        resumed=loaded.config.run.resume,
        data_dir=folder.home,
    )
    for name, value in sorted(loaded.values.items()):
        log.info(
            "setting", key=name, value=_format_value(masked(name, value)), origin=_origin_text(loaded.origins[name])
        )
    return opened


def report_changes(loaded: Loaded, changed: Mapping[str, tuple[Any, Any]], announce: Callable[[str], None]) -> None:
    """Logs and announces the settings that a resume changes, each with its old and new value."""
    for name, (old, new) in changed.items():
        before, now = (_format_value(_mask_value(name, value)) for value in (old, new))
        log.always("setting changed", key=name, old=before, new=now, origin=_origin_text(loaded.origins[name]))
        announce(f"{name} is {now} from now on; it was {before}")


def _mask_value(name: str, value: Any) -> Any:
    """`masked` for a recorded value."""
    return masked(name, msgspec.convert(value, tuple[PodSpec, ...]) if name == "pods" else value)


def _origin_text(origin: str) -> str:
    """The origin of a setting; empty for a flag or keyword, whose name the line has already."""
    return "argument" if origin.startswith("`") else origin


def _format_value(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
