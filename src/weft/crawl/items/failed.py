"""Runs `weft extract DIR --failed`: sends the request to the process that runs the crawl, or starts the crawl's
processes for it alone, without requests; and waits for the outcome."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from weft.config import Config
from weft.crawl.commands import command
from weft.crawl.folder import CrawlFolder
from weft.crawl.items.extraction_requests import add_request, combined_result
from weft.crawl.reports.combined_status import current_status
from weft.crawl.start import Prepared, prepare
from weft.engine.loop.progress import CrawlStatus, read_status, write_status
from weft.engine.loop.stop import Stop
from weft.engine.user_code.calls import Description, Reextracted
from weft.engine.user_code.describing import describe
from weft.engine.user_code.sources import code_of_crawl, replacement_code
from weft.errors import BadInput, Busy, WeftError

POLL_EVERY_S = 0.1
_UNFINISHED = ("interrupted", "limit")  # states of a crawl with queued URLs
Watch = Callable[[CrawlStatus], None]


def extract_failed(data_dirs: Sequence[Path], spider: str | None = None, watch: Watch = lambda _: None) -> Reextracted:
    """Calls the user code again for the pages on which it failed, and commits its items.

    Raises BadInput if there is no code, or it cannot be loaded; `watch` is called several times a second.
    """
    folder = CrawlFolder(data_dirs)
    config = folder.config()
    description = _describe_code(config, spider)
    if folder.is_held() and (made := _in_running_crawl(folder, config, spider, description, watch)) is not None:
        return made
    return _in_own_processes(folder, spider, watch)


def _describe_code(config: Config, spider: str | None) -> Description:
    code = code_of_crawl(config)
    if code is None:
        raise BadInput("the crawl was started without a spider: none of its pages has failed in one")
    if spider is not None and not code.is_function:
        code = replacement_code(config, spider)
    return describe(code)  # raises what is wrong with it


def _in_running_crawl(
    folder: CrawlFolder, config: Config, spider: str | None, description: Description, watch: Watch
) -> Reextracted | None:
    """Requests the extraction from the process that runs the crawl; None if that ended before it was finished."""
    if spider is not None and replacement_code(config, spider) != code_of_crawl(config):
        named = config.spider.spider or config.spider.on_page or config.spider.scrapy
        raise BadInput(f"the crawl that runs has another spider ({named}): stop it first, or leave `spider` out")
    try:
        number = int(command(folder, "extract", spider=msgspec.to_builtins(description))["number"])
    except Busy:
        if folder.is_held():
            raise
        return None
    while (made := combined_result(folder, number)) is None:
        if not folder.is_held():
            return combined_result(folder, number)
        watch(current_status(folder))
        time.sleep(POLL_EVERY_S)
    return made


def _in_own_processes(folder: CrawlFolder, spider: str | None, watch: Watch) -> Reextracted:
    """Extracts in processes that are started for it: the crawl is paused, and they end when they have finished."""
    flags: dict[str, Any] = {"resume": True, "data_dirs": list(map(str, folder.data_dirs))}
    before, was_paused = current_status(folder), folder.settings_record().is_paused
    if spider is not None:
        section = folder.config().spider
        flags["on_page" if section.on_page else "scrapy" if section.scrapy else "spider"] = spider
    prepared = prepare([], flags, environment={}, is_paused=True)
    try:
        number = add_request(prepared.folder)
        made = _run_processes(prepared, number, watch)
        _restore_state(prepared, before, was_paused=was_paused)
        return made
    finally:
        prepared.close()


def _run_processes(prepared: Prepared, number: int, watch: Watch) -> Reextracted:
    folder, orchestrator = prepared.folder, prepared.orchestrator
    is_stopped = False

    def poll(status: CrawlStatus) -> None:
        nonlocal is_stopped
        watch(status)
        if not is_stopped and combined_result(folder, number) is not None:
            is_stopped = True
            orchestrator.stop()

    with _interrupted_by(orchestrator.stop):
        orchestrator.run(poll)
    made = combined_result(folder, number)
    if made is None:
        status = orchestrator.status()
        if status.state == "failed":
            raise WeftError(status.note)
        raise BadInput("interrupted: the remaining failed pages are processed when the crawl runs again")
    return made


def _restore_state(prepared: Prepared, before: CrawlStatus, *, was_paused: bool) -> None:
    """Restores the crawl's state, except for new links: a resume may have something to do now."""
    folder = prepared.folder
    folder.keep_state(is_paused=was_paused)
    status = read_status(folder.status)
    if status is None:
        return
    status.state, status.note = before.state, before.note
    if status.queued and before.state not in _UNFINISHED:
        status.state, status.note = "interrupted", str(Stop.INTERRUPTED)
    write_status(folder.status, status)


@contextmanager
def _interrupted_by(stop: Callable[[], None]) -> Iterator[None]:
    """Stops the processes at Ctrl-C."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, lambda *_: stop()) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
