"""How a process of a crawl follows what commands have changed in its folder: settings, seeds, a pause.

The folder is the truth; the orchestrator only says that there is something to read (`order`). What a process has read
is in its status, so that the orchestrator knows when a command is in force everywhere. A full disk or a server that is
away leaves the change unread, and it is read again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from weft.config import NOT_KEPT, Config, keys
from weft.crawl.folder import CrawlFolder
from weft.crawl.processes.process_spec import Control
from weft.engine.crawls.limits import limits_of
from weft.engine.crawls.running_crawl import BY_COMMAND, PAUSED, RunningCrawl
from weft.engine.crawls.settings import EDITABLE, value_of
from weft.engine.loop.progress import CrawlProgress
from weft.engine.loop.stop import Stop
from weft.frontier.contract import Frontier
from weft.telemetry import Log

log = Log("weft.crawl.processes.following")


def edited(config: Config, by: Config) -> Config:
    """A configuration with those recorded values of another that can be changed while a crawl runs."""
    known = keys()
    for name in EDITABLE - NOT_KEPT:
        key = known[name]
        section = msgspec.structs.replace(getattr(config, key.section), **{key.attribute: value_of(by, name)})
        config = msgspec.structs.replace(config, **{key.section: section})
    return config


class Following:
    """One process's periodic task; `seeds` are those that it has begun with."""

    def __init__(
        self,
        folder: CrawlFolder,
        config: Config,
        control: Control,
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
        """`drain` ends the process. `admit` is for the process that admits its pod's seeds. `has_edited`: the crawl
        follows other settings now. `read_more` reads what else there may be."""
        self._folder = folder
        self._config = config
        self._control = control
        self._frontier = frontier
        self._crawl = crawl
        self._progress = progress
        self._seeds = len(seeds)
        self._drain = drain
        self._admit = admit
        self._has_edited = has_edited
        self._read_more = read_more
        self._revision = 1  # what is recorded may be newer than what the process was started with
        self._read()

    def __call__(self, _now: float) -> None:
        """Reads what has come, between two pages."""
        control, status = self._control, self._progress.status
        control.read()
        if control.reason is not None:
            self._drain(control.reason)
        elif control.changes > status.changes:
            changes = control.changes
            self._read()
            status.changes = changes
            crawl = self._crawl
            self._progress.write(*((PAUSED, crawl.pause_reason or BY_COMMAND) if crawl.is_paused else ("running", "")))

    def _read(self) -> None:
        crawl, record = self._crawl, self._folder.settings_record()
        if record.revision > self._revision:
            config = edited(self._config, self._folder.config())
            self._frontier.crawls.follow(crawl.number, record.revision)
            back = crawl.edit(config, limits_of(config))
            self._has_edited(config)
            self._config, self._revision = config, record.revision
            log.always("settings changed", revision=record.revision, came_back=back)
        seeds = self._folder.seeds()
        if new := seeds[self._seeds :]:
            for seed in new:
                crawl.extend(seed)
                crawl.add_seed_origin(seed)
            self._admit(new)
            self._seeds = len(seeds)
        if record.is_paused is not crawl.is_paused:
            log.always("paused" if record.is_paused else "resumed")
        crawl.pause(record.is_paused, record.pause_reason)
        self._read_more()
