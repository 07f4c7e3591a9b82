"""The live display of a crawl, from its status file."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, NamedTuple

from weft.cli.terminal.live import (
    Column,
    Grid,
    NamedNumbers,
    Part,
    Picture,
    ProgressLine,
    RegularLines,
    Shower,
    Size,
    Styled,
    TextLine,
    clock,
    showing,
)
from weft.cli.terminal.messages import as_flags
from weft.cli.terminal.output import visible

if TYPE_CHECKING:
    from weft.engine.loop.progress import CrawlStatus

LINE_EVERY_S = 5.0
MOST_PODS = MOST_CRAWLS = 16
NARROW, WIDE = 60, 96  # columns of a terminal: narrower ones leave less important values out
_BARS = " ▁▂▃▄▅▆▇█"
_STYLES = {"paused": "bold red", "draining": "yellow"}


def show_crawl(
    home: str, max_pages: int | None = None, *, quiet: bool, plain: bool = False
) -> AbstractContextManager[Shower[CrawlStatus]]:
    """Displays a crawl's status."""
    return showing(CrawlPicture(home, max_pages), RegularLines(status_line, LINE_EVERY_S), quiet=quiet, plain=plain)


class Watched(NamedTuple):
    """A status; if it is the sum of several crawls, also theirs by name."""

    status: CrawlStatus
    crawls: Mapping[str, CrawlStatus]


def show_watched(home: str, title: str, *, quiet: bool) -> AbstractContextManager[Shower[Watched]]:
    """Displays the crawls of a folder."""
    picture = CrawlPicture(home, title=title)

    def lines(watched: Watched) -> str:
        each = (f"  crawl={visible(name)} {status_line(one)}" for name, one in watched.crawls.items())
        return "\n".join([status_line(watched.status), *each])

    return showing(
        lambda watched, size: picture(watched.status, size, watched.crawls), RegularLines(lines, LINE_EVERY_S),
        quiet=quiet,
    )  # fmt: skip


def status_line(status: CrawlStatus) -> str:
    """The status as one structured line, for logs and pipes."""
    errors, slowed = sum(status.errors.values()), sum(status.slowed.values())
    return (
        f"state={status.state} pages={status.pages} rate={status.rate:.1f} queued={status.queued} "
        f"in_flight={status.in_flight} errors={errors}"
        + (f" slowed={slowed}" if slowed else "")
        + (f' note="{as_flags(status.note)}"' if status.note else "")
        + (f' waiting_for="{status.waiting_for}"' if status.waiting_for else "")
    )


def waiting_text(status: CrawlStatus) -> str:
    """What a running crawl waits for, and for how long; empty if it does not wait."""
    if status.state != "running" or not status.waiting_for:
        return ""
    left_s = None if status.waiting_until is None else status.waiting_until - time.time()
    return f"waiting: {status.waiting_for}" + (f", {clock(left_s)} left" if left_s is not None and left_s > 0 else "")


class CrawlPicture:
    """Formats the display of the crawl in `home`; keeps the recent rates and pages for its charts."""

    def __init__(self, home: str, max_pages: int | None = None, title: str = "weft crawl") -> None:
        self._home = home
        self._title = title
        self._max_pages = max_pages
        self._rates: deque[float] = deque(maxlen=60)
        self._recent: deque[str] = deque(maxlen=5)
        self._seen_at = 0.0

    def __call__(self, status: CrawlStatus, size: Size, crawls: Mapping[str, CrawlStatus] | None = None) -> Picture:
        """The display of a status; `crawls`: the crawls that it is the sum of, by name."""
        if status.updated_at != self._seen_at:
            self._seen_at = status.updated_at
            self._rates.append(status.rate)
            self._recent.extend(status.recent)
        parts: list[Part] = [_status_numbers(status, size)]
        if self._max_pages:
            parts.append(ProgressLine(self._max_pages, min(status.pages, self._max_pages)))
        parts.append(TextLine(spark(self._rates), "cyan"))
        if len(status.pods) > 1:
            parts.append(_pod_grid(status, size))
        if crawls:
            parts.append(_crawl_grid(crawls, size))
        parts += [_trouble_grid(status), TextLine("\n".join(self._recent), "dim")]
        if status.note and status.state in ("paused", "running"):
            parts.append(TextLine(as_flags(status.note), "red", wraps=True))
        elif status.note and status.state in ("starting", "draining"):
            parts.append(TextLine(status.note, "dim", wraps=True))
        if waiting := waiting_text(status):
            parts.append(TextLine(waiting, "yellow", wraps=True))
        state = Styled(status.state, _STYLES.get(status.state, "green"))
        return Picture((f"{self._title} · ", state, f" · {clock(status.elapsed_s)}"), parts, self._home)


def _status_numbers(status: CrawlStatus, size: Size) -> NamedNumbers:
    values = {
        "pages": f"{status.pages:,}",
        "pages/s": f"{status.rate:,.1f}",
        "queued": f"{status.queued:,}",
        "in flight": f"{status.in_flight:,}",
        "sites": f"{status.sites:,}",
        "MB": f"{status.body_bytes / 1e6:,.1f}",
    }
    if status.seeds_read < 1.0:
        values["seeds"] = f"{status.seeds_read:.0%}"
    if size.width < NARROW:
        values = {name: values[name] for name in ("pages", "pages/s", "queued", "MB", "seeds") if name in values}
    return NamedNumbers(values)


def _pod_grid(status: CrawlStatus, size: Size) -> Grid:
    """A row for each pod; if there is no room for all, those with the most queued URLs first."""
    some = sorted(sorted(status.pods, key=lambda pod: -pod.queued)[:MOST_PODS], key=lambda pod: pod.pod)
    rows = [
        {
            "pod": f"{pod.pod:,}", "pages": f"{pod.pages:,}", "pages/s": f"{pod.rate:,.1f}",
            "queued": f"{pod.queued:,}", "in flight": f"{pod.in_flight:,}", "sites": f"{pod.sites:,}",
            "processes": f"{pod.processes:,}", "restarts": f"{pod.restarts:,}", "state": str(pod.state),
        }
        for pod in some
    ]  # fmt: skip
    is_narrow = size.width < WIDE
    names = ("pod", "pages", "queued", "state") if is_narrow else tuple(rows[0])
    return Grid(
        [Column(name) for name in names], [[row[name] for name in names] for row in rows], 2 if is_narrow else 4
    )


def _crawl_grid(crawls: Mapping[str, CrawlStatus], size: Size) -> Grid:
    """A row for each crawl; if there is no room for all, the fastest first."""
    rows = [
        {
            "crawl": name, "pages": f"{one.pages:,}", "pages/s": f"{one.rate:,.1f}", "queued": f"{one.queued:,}",
            "in flight": f"{one.in_flight:,}", "failed": f"{sum(one.errors.values()):,}",
            "state": one.state + (f": {one.waiting_for}" if one.waiting_for else ""),
        }
        for name, one in sorted(crawls.items(), key=lambda item: -item[1].rate)[:MOST_CRAWLS]
    ]  # fmt: skip
    is_narrow = size.width < WIDE
    names = ("crawl", "pages", "queued", "state") if is_narrow else tuple(rows[0])
    table = [[row[name] for name in names] for row in rows]
    if len(crawls) > MOST_CRAWLS:
        table.append([f"and {len(crawls) - MOST_CRAWLS:,} more", *[""] * (len(names) - 1)])
    return Grid([Column(name) for name in names], table, 2 if is_narrow else 4)


def _trouble_grid(status: CrawlStatus) -> Grid:
    refused = {name: count for name, count in status.refused.items() if name != "duplicate"}
    rows = [
        (Styled("errors", "red"), _join_counts(status.errors)),
        (Styled("left out", "yellow"), _join_counts(refused)),
    ]
    if any(status.slowed.values()):
        rows.insert(1, (Styled("slowed", "yellow"), _join_counts(status.slowed)))
    return Grid((Column(""), Column("", wraps=True)), rows, 1)


def spark(values: deque[float] | list[float]) -> str:
    """A bar chart in one line of text."""
    top = max(values, default=0.0) or 1.0
    return "".join(_BARS[min(8, round(8 * value / top))] for value in values)


def _join_counts(counts: dict[str, int]) -> str:
    some = sorted((item for item in counts.items() if item[1]), key=lambda item: -item[1])[:7]
    return "  ".join(f"{name} {count:,}" for name, count in some) or "none"
