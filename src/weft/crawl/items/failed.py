"""What `weft extract DIR --failed` does: gives the order to the process that runs the crawl, or runs the crawl's
processes for it alone, which request nothing; and waits for what comes of it."""

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
from weft.crawl.items.extraction_requests import carried_out, give_order
from weft.crawl.reports.combined_status import current_status
from weft.crawl.start import Prepared, prepare
from weft.engine.loop.progress import CrawlStatus, read_status, write_status
from weft.engine.loop.stop import Stop
from weft.engine.user_code.calls import Description, Reextracted
from weft.engine.user_code.describing import describe
from weft.engine.user_code.sources import code_in, other_code
from weft.errors import BadInput, Busy, WeftError

POLL_EVERY_S = 0.1
_UNFINISHED = ("interrupted", "limit")  # states of a crawl that has something queued
Watch = Callable[[CrawlStatus], None]


def extract_failed(data_dirs: Sequence[Path], spider: str | None = None, watch: Watch = lambda _: None) -> Reextracted:
    """Calls the user's code again for the pages where it has failed, and commits what it makes of them.

    BadInput where there is no code, or none that can be loaded; `watch` is called a few times a second.
    """
    folder = CrawlFolder(data_dirs)
    config = folder.config()
    description = _description(config, spider)
    if folder.is_held() and (made := _by_its_owner(folder, config, spider, description, watch)) is not None:
        return made
    return _by_itself(folder, spider, watch)


def _description(config: Config, spider: str | None) -> Description:
    code = code_in(config)
    if code is None:
        raise BadInput("the crawl was started without a spider: none of its pages has failed in one")
    if spider is not None and not code.is_function:
        code = other_code(config, spider)
    return describe(code)  # names what is wrong with it


def _by_its_owner(
    folder: CrawlFolder, config: Config, spider: str | None, description: Description, watch: Watch
) -> Reextracted | None:
    """Of a crawl that runs; None where it has ended before it has done it."""
    if spider is not None and other_code(config, spider) != code_in(config):
        named = config.spider.spider or config.spider.on_page or config.spider.scrapy
        raise BadInput(f"the crawl that runs has another spider ({named}): stop it first, or leave `spider` out")
    try:
        number = int(command(folder, "extract", spider=msgspec.to_builtins(description))["number"])
    except Busy:
        if folder.is_held():
            raise
        return None
    while (made := carried_out(folder, number)) is None:
        if not folder.is_held():
            return carried_out(folder, number)
        watch(current_status(folder))
        time.sleep(POLL_EVERY_S)
    return made


def _by_itself(folder: CrawlFolder, spider: str | None, watch: Watch) -> Reextracted:
    """Of a crawl that does not run: its processes are started, paused, and end when they have done it."""
    flags: dict[str, Any] = {"resume": True, "data_dirs": list(map(str, folder.data_dirs))}
    before, was_paused = current_status(folder), folder.settings_record().is_paused
    if spider is not None:
        section = folder.config().spider
        flags["on_page" if section.on_page else "scrapy" if section.scrapy else "spider"] = spider
    prepared = prepare([], flags, environment={}, is_paused=True)
    try:
        number = give_order(prepared.folder)
        made = _run(prepared, number, watch)
        _put_back(prepared, before, was_paused=was_paused)
        return made
    finally:
        prepared.close()


def _run(prepared: Prepared, number: int, watch: Watch) -> Reextracted:
    folder, orchestrator = prepared.folder, prepared.orchestrator
    is_stopped = False

    def poll(status: CrawlStatus) -> None:
        nonlocal is_stopped
        watch(status)
        if not is_stopped and carried_out(folder, number) is not None:
            is_stopped = True
            orchestrator.stop()

    with _interrupted_by(orchestrator.stop):
        orchestrator.run(poll)
    made = carried_out(folder, number)
    if made is None:
        status = orchestrator.status()
        if status.state == "failed":
            raise WeftError(status.note)
        raise BadInput("it was interrupted: the failed pages that are left are read when the crawl runs again")
    return made


def _put_back(prepared: Prepared, before: CrawlStatus, *, was_paused: bool) -> None:
    """The crawl is as it was, but for what was found: there may be something to do for a resume now."""
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
    """Ctrl-C lets the processes end."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, lambda *_: stop()) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
