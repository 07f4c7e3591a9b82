"""Applies the changes that commands have made in the crawl's folder to a running process: settings, seeds, a pause.

The folder is the truth; the orchestrator only notifies that there is something to read (`process_spec`). Each process
reports in its status what it has read, so that the orchestrator knows when a command is in force everywhere. If a full
disk or an unavailable server prevents a change, it is read again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from weft.config import NOT_KEPT, Config, keys
from weft.crawl.folder import CrawlFolder
from weft.crawl.processes.process_spec import ControlInput
from weft.engine.crawls.limits import frontier_limits_of
from weft.engine.crawls.settings import EDITABLE, value_of
from weft.engine.loop.progress import CrawlProgress
from weft.engine.loop.stop import BY_COMMAND, PAUSED, Stop
from weft.frontier.contract import Frontier
from weft.telemetry import Log

if TYPE_CHECKING:  # the orchestrator needs `edited` alone
    from weft.engine.crawls.running_crawl import RunningCrawl

log = Log("weft.crawl.processes.following")


def apply_recorded_edit(config: Config, by: Config) -> Config:
    """A configuration with the recorded values of another for the settings that can be changed while a crawl runs."""
    known = keys()
    for name in EDITABLE - NOT_KEPT:
        key = known[name]
        section = msgspec.structs.replace(getattr(config, key.section), **{key.attribute: value_of(by, name)})
        config = msgspec.structs.replace(config, **{key.section: section})
    return config


class FolderChanges:
    """The periodic task of one process; `seeds` are those that it has started with."""

    def __init__(
        self,
        folder: CrawlFolder,
        config: Config,
        control: ControlInput,
        frontier: Frontier,
        crawl: RunningCrawl,
        progress: CrawlProgress,
        seeds: Sequence[str],
        *,
        drain: Callable[[Stop], None],
        admit: Callable[[list[str]], None] = lambda _: None,
        has_edited: Callable[[Config], None] = lambda _: None,
        read_more: Callable[[], None] = lambda: None,
    ) -> None:
        """`drain` ends the process. `admit` admits new seeds, in the process that does so for its pod. `has_edited` is
        called with changed settings. `read_more` reads additional changes."""
        self._folder = folder
        self._config = config
        self._control = control
        self._frontier = frontier
        self._crawl = crawl
        self._progress = progress
        self._seeds = len(seeds)
        self._drain_loop = drain
        self._admit_seeds = admit
        self._has_edited = has_edited
        self._read_more_seeds = read_more
        self._revision = 1  # the recorded settings may be newer than those the process was started with
        self._apply_changes()

    def __call__(self, _now: float) -> None:
        """Reads changes, between two pages."""
        control, status = self._control, self._progress.status
        control.read_lines()
        if control.reason is not None:
            self._drain_loop(control.reason)
        elif control.changes > status.changes:
            changes = control.changes
            self._apply_changes()
            status.changes = changes
            crawl = self._crawl
            self._progress.write(*((PAUSED, crawl.pause_reason or BY_COMMAND) if crawl.is_paused else ("running", "")))

    def _apply_changes(self) -> None:
        crawl, record = self._crawl, self._folder.settings_record()
        if record.revision > self._revision:
            config = apply_recorded_edit(self._config, self._folder.config())
            self._frontier.crawls.follow(crawl.number, record.revision)
            back = crawl.edit(config, frontier_limits_of(config))
            self._has_edited(config)
            self._config, self._revision = config, record.revision
            log.always("settings changed", revision=record.revision, came_back=back)
        seeds = self._folder.seeds()
        if new := seeds[self._seeds :]:
            for seed in new:
                crawl.extend(seed)
                crawl.add_seed_origin(seed)
            self._admit_seeds(new)
            self._seeds = len(seeds)
        if record.is_paused is not crawl.is_paused:
            log.always("paused" if record.is_paused else "resumed")
        crawl.pause(record.is_paused, record.pause_reason)
        self._read_more_seeds()
