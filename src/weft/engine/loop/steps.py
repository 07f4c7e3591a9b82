"""The named steps between two durable writes, where a crash must cost nothing but repeated work.

Tests set WEFT_TEST_CRASH_AT to `name`, `name:N` or `name:N@FILE`: the process kills itself when it reaches that step
for the Nth time. With a FILE it does so once for all: it makes the file first, and a process that finds it there lives
on, so that whoever starts the process again with the same environment sees one crash and not a row of them.
`earlier>name` counts from the step `earlier` on; several settings stand behind each other with commas.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

STEPS = (
    "claimed",  # in the request log, nothing sent yet
    "fetched",  # a transfer has ended, nothing is written
    "before-write",
    "warc-registered",  # the store's own, in each data dir: the index knows the file, which is not there
    "warc-opened",
    "warc-written",
    "after-write",  # WARC bytes are there, links and rows are not
    "after-links",  # links are in the journal, rows are not
    "index-committed",  # the store's own, in each data dir: its rows are in the index, those of other dirs may not be
    "after-rows",  # rows are there, the frontier does not know
    "after-sync",  # rows are on the disk, the frontier does not know
    "after-acknowledge",  # the frontier knows, its journal does not
)

# And where a request must not be sent twice:
SPIDER_STEPS = (
    "sending",  # that it may have been sent is on the disk; nothing is sent yet
    "read-again",  # a failed page was read again, and is in memory alone
)

# And where fetchers and parsers are processes of their own:
SPLIT_STEPS = (
    "spooled",  # a fetcher's pages are in the spool, the frontier does not know
    "taken",  # a parser has leased a page and read it
)

# And in an engine that has many crawls, where one is opened, ends and is forgotten:
# (`did-open`, `did-seed` and so on: a command is carried out in memory; its commit goes through the STEPS)
VERB_STEPS = tuple(
    f"did-{verb}" for verb in ("open", "seed", "edit", "pause", "resume", "cancel", "forget", "close_seeds")
)
CRAWL_STEPS = (
    "crawl-opened",  # the frontier knows it in memory, nothing is written
    "settings-changed",  # by an edit, in memory: the commit that is next is its own
    "crawl-closed",  # dropped in the frontier's memory, the index and the journal have it as it was
    "end-committed",  # the index has its end, the frontier's journal does not
    "lines-forgotten",  # the frontier's journal has nothing of it any more, the index has all
    "rows-forgotten",  # a part of its rows is deleted, its files are there
    "files-forgotten",  # rows and files are deleted, the index still knows of it
    "crawl-forgotten",
)

# And where a crawl is taken up:
OPENING_STEPS = ("lost-queued",)  # URLs whose pages are gone are queued again, the store does not know


def crash_point(setting: str | None = None) -> Callable[[str], None]:
    """A function to be told each step; it does nothing unless a test wants the process dead there."""
    setting = os.environ.get("WEFT_TEST_CRASH_AT", "") if setting is None else setting
    if not setting:
        return _pass_by
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
            if left == 0 and _is_first(marker):
                os.kill(os.getpid(), signal.SIGKILL)

    return reach


def _is_first(marker: str) -> bool:
    try:
        if marker:
            os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def _pass_by(step: str) -> None:  # noqa: ARG001
    return None
