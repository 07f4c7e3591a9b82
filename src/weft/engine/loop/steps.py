"""The named steps between two durable writes, where a crash must cost nothing but repeated work.

Tests set WEFT_TEST_CRASH_AT to `name`, `name:N` or `name:N@FILE`: the process kills itself when it reaches that step
for the Nth time. With a FILE it does so only once: it creates the file first, and a process that finds the file
continues. So a supervisor that restarts the process with the same environment sees one crash and not a series.
`earlier>name` counts from the step `earlier` on; several settings are separated by commas.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

STEPS = (
    "claimed",  # recorded in the request log, nothing sent yet
    "fetched",  # a transfer has ended, nothing is written
    "before-write",
    "warc-registered",  # the store's own, in each data dir: the index knows a file that does not exist yet
    "warc-opened",
    "warc-written",
    "after-write",  # WARC bytes are written, links and rows are not
    "after-links",  # links are in the journal, rows are not
    "index-committed",  # its rows are in one data dir's index, those of other dirs may not be
    "after-rows",  # rows are written, the frontier does not know
    "after-sync",  # rows are on the disk, the frontier does not know
    "after-acknowledge",  # the frontier knows, its journal does not have it
)

# The steps of a request that must not be sent twice:
SPIDER_STEPS = (
    "sending",  # the disk records that it may have been sent; nothing is sent yet
    "read-again",  # a failed page was read again, and is only in memory
)

# The steps of crawls whose fetchers and parsers are separate processes:
SPLIT_STEPS = (
    "spooled",  # a fetcher's pages are in the spool, the frontier does not know
    "taken",  # a parser has leased a page and read it
)

# The steps of an engine with many crawls, when one is opened, ends and is forgotten. `did-open`, `did-seed` and so on:
# a command is carried out in memory; its commit goes through the STEPS.
VERB_STEPS = tuple(
    f"did-{verb}" for verb in ("open", "seed", "edit", "pause", "resume", "cancel", "forget", "close_seeds")
)
CRAWL_STEPS = (
    "crawl-opened",  # the frontier has it in memory, nothing is written
    "settings-changed",  # by an edit, in memory: the next commit writes it
    "crawl-closed",  # dropped in the frontier's memory; index and journal have the old state
    "end-committed",  # the index has its end, the frontier's journal does not
    "lines-forgotten",  # the frontier's journal has nothing of it any more, the index has everything
    "rows-forgotten",  # a part of its rows is deleted, its files are not
    "files-forgotten",  # rows and files are deleted, the index still has the crawl
    "crawl-forgotten",
)

# The steps of a resume:
OPENING_STEPS = ("lost-queued",)  # URLs whose pages are gone are queued again, the store does not know


def crash_point(setting: str | None = None) -> Callable[[str], None]:
    """A function that is called at each step; it kills the process at the step that a test names, and else does
    nothing.
    """
    setting = os.environ.get("WEFT_TEST_CRASH_AT", "") if setting is None else setting
    if not setting:
        return _do_nothing
    points = [_crash_point(one) for one in setting.split(",")]

    def reach(step: str) -> None:
        for point in points:
            point(step)

    return reach


def _crash_point(setting: str) -> Callable[[str], None]:
    where, _, marker = setting.partition("@")
    place, _, times = where.partition(":")
    earlier, _, name = place.rpartition(">")
    left, counts = int(times or 1), not earlier

    def reach(step: str) -> None:
        nonlocal left, counts
        counts = counts or step == earlier
        if step == name and counts:
            left -= 1
            if left == 0 and _create_marker(marker):
                os.kill(os.getpid(), signal.SIGKILL)

    return reach


def _create_marker(marker: str) -> bool:
    try:
        if marker:
            os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def _do_nothing(step: str) -> None:  # noqa: ARG001
    return None
