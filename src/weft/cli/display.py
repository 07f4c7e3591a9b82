"""The live display of a crawl: read from its status file, drawn with rich on stderr.

Must stay true: nothing else writes to the terminal while it is drawn, or its rows would be misplaced. So messages go
through `say`, and what is typed, Ctrl-C too, is not echoed.
"""

from __future__ import annotations

import atexit
import os
import termios
import time
from collections import deque
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from weft.cli.messages import as_flags
from weft.cli.output import visible

if TYPE_CHECKING:
    from weft.engine.loop.progress import CrawlStatus

MOST_PODS = MOST_CRAWLS = 16
NARROW, WIDE = 60, 96  # columns of a terminal: below these the less important figures are left out
_BARS = " ▁▂▃▄▅▆▇█"


class Silence:
    """A terminal that does not echo what is typed, until `end`; Ctrl-C and the like work as ever."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._before: list[Any] | None = None
        try:
            # A background process must not change the terminal's settings: the kernel would stop it.
            if os.tcgetpgrp(fd) == os.getpgrp():
                before = termios.tcgetattr(fd)
                termios.tcsetattr(fd, termios.TCSADRAIN, [*before[:3], before[3] & ~termios.ECHO, *before[4:]])
                self._before = before
                atexit.register(self.end)
        except (OSError, termios.error):
            pass  # no terminal after all

    def end(self) -> None:
        """The terminal is as it was."""
        if self._before is None:
            return
        before, self._before = self._before, None
        atexit.unregister(self.end)
        try:
            if os.tcgetpgrp(self._fd) == os.getpgrp():
                termios.tcsetattr(self._fd, termios.TCSADRAIN, before)
        except (OSError, termios.error):
            pass


def waiting_text(status: CrawlStatus) -> str:
    """What a running crawl waits for, and for how long; empty while it works."""
    if status.state != "running" or not status.waiting_for:
        return ""
    left_s = None if status.waiting_until is None else status.waiting_until - time.time()
    return f"waiting: {status.waiting_for}" + (f", {clock(left_s)} left" if left_s is not None and left_s > 0 else "")


class Display:
    """Call it with a status to draw it; `close` takes it off the screen."""

    def __init__(
        self, home: str, max_pages: int | None = None, console: Console | None = None, *, title: str = "weft crawl"
    ) -> None:
        self._home = home
        self._title = title
        self._max_pages = max_pages
        self._rates: deque[float] = deque(maxlen=60)
        self._recent: deque[str] = deque(maxlen=5)
        self._seen_at = 0.0
        self._console = console or Console(stderr=True)
        self._live = Live(console=self._console, refresh_per_second=4, transient=True)
        self._silence = Silence(2) if console is None else None
        self._live.start()

    def __call__(self, status: CrawlStatus, crawls: Mapping[str, CrawlStatus] = MappingProxyType({})) -> None:
        """Draws it; `crawls`: what it is the sum of, by name."""
        if status.updated_at != self._seen_at:
            self._seen_at = status.updated_at
            self._rates.append(status.rate)
            self._recent.extend(status.recent)
        self._live.update(self._picture(status, crawls))

    def say(self, text: str) -> None:
        """A line above the display, which stays."""
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def close(self) -> None:
        """Ends the display."""
        # Live.stop() redraws the last frame uncropped: lines beyond the terminal's height would scroll up and stay.
        self._live.update(Text(), refresh=True)
        self._live.stop()
        if self._silence is not None:
            self._silence.end()

    def _picture(self, status: CrawlStatus, crawls: Mapping[str, CrawlStatus]) -> Panel:
        parts: list[RenderableType] = [self._numbers(status), Text(spark(self._rates), style="cyan", no_wrap=True)]
        if self._max_pages:
            parts.insert(1, ProgressBar(total=self._max_pages, completed=min(status.pages, self._max_pages)))
        if len(status.pods) > 1:
            parts.append(self._pods(status))
        if crawls:
            parts.append(self._crawls(crawls))
        recent = visible("\n".join(self._recent))
        parts += [self._troubles(status), Text(recent, style="dim", no_wrap=True, overflow="ellipsis")]
        style = {"paused": "bold red", "draining": "yellow"}.get(status.state, "green")
        title = f"{self._title} · [{style}]{status.state}[/] · {clock(status.elapsed_s)}"
        if status.note and status.state in ("paused", "running"):
            parts.append(Text(visible(as_flags(status.note)), style="red"))
        elif status.note and status.state in ("starting", "draining"):
            parts.append(Text(visible(status.note), style="dim"))
        if waiting := waiting_text(status):
            parts.append(Text(visible(waiting), style="yellow"))
        home = Text(visible(self._home), style="dim")
        return Panel(Group(*parts), title=title, subtitle=home, title_align="left", subtitle_align="left")

    def _numbers(self, status: CrawlStatus) -> Table:
        table = Table.grid(expand=True, padding=(0, 2))
        figures = {
            "pages": f"{status.pages:,}",
            "pages/s": f"{status.rate:,.1f}",
            "queued": f"{status.queued:,}",
            "in flight": f"{status.in_flight:,}",
            "sites": f"{status.sites:,}",
            "MB": f"{status.body_bytes / 1e6:,.1f}",
        }
        if status.seeds_read < 1.0:
            figures["seeds"] = f"{status.seeds_read:.0%}"
        if self._console.width < NARROW:
            figures = {name: figures[name] for name in ("pages", "pages/s", "queued", "MB", "seeds") if name in figures}
        for name in figures:
            table.add_column(name, justify="center", no_wrap=True)
        table.add_row(*(Text(value, style="bold") for value in figures.values()))
        table.add_row(*(Text(name, style="dim") for name in figures))
        return table

    def _pods(self, status: CrawlStatus) -> Table:
        """A row for each pod, those with the most queued first where there is no room for all."""
        names = ("pod", "pages", "pages/s", "queued", "in flight", "sites", "processes", "restarts", "state")
        narrow = self._console.width < WIDE
        wanted = ("pod", "pages", "queued", "state") if narrow else names
        table = Table(*wanted, box=None, padding=(0, 1 if narrow else 2), show_edge=False, header_style="dim")
        shown = sorted(sorted(status.pods, key=lambda pod: -pod.queued)[:MOST_PODS], key=lambda pod: pod.pod)
        for pod in shown:
            figures = (
                pod.pod, pod.pages, round(pod.rate, 1), pod.queued, pod.in_flight, pod.sites, pod.processes,
                pod.restarts, pod.state,
            )  # fmt: skip
            values = dict(zip(names, figures, strict=True))
            table.add_row(*(str(values[name]) if name == "state" else f"{values[name]:,}" for name in wanted))
        return table

    def _crawls(self, crawls: Mapping[str, CrawlStatus]) -> Table:
        """A row for each crawl, the fastest first where there is no room for all."""
        names = ("crawl", "pages", "pages/s", "queued", "in flight", "failed", "state")
        narrow = self._console.width < WIDE
        wanted = ("crawl", "pages", "queued", "state") if narrow else names
        table = Table(*wanted, box=None, padding=(0, 1 if narrow else 2), show_edge=False, header_style="dim")
        for name, one in sorted(crawls.items(), key=lambda item: -item[1].rate)[:MOST_CRAWLS]:
            state = one.state + (f": {one.waiting_for}" if one.waiting_for else "")
            failed = sum(one.errors.values())
            figures = (
                visible(name), f"{one.pages:,}", f"{one.rate:,.1f}", f"{one.queued:,}", f"{one.in_flight:,}",
                f"{failed:,}", visible(state),
            )  # fmt: skip
            values = dict(zip(names, figures, strict=True))
            table.add_row(*(Text(values[column]) for column in wanted))
        if len(crawls) > MOST_CRAWLS:
            table.add_row(Text(f"and {len(crawls) - MOST_CRAWLS:,} more", style="dim"))
        return table

    def _troubles(self, status: CrawlStatus) -> Table:
        table = Table.grid(padding=(0, 1))
        table.add_row(Text("errors", style="red"), Text(_listed(status.errors)))
        if any(status.slowed.values()):
            table.add_row(Text("slowed", style="yellow"), Text(_listed(status.slowed)))
        refused = {name: count for name, count in status.refused.items() if name != "duplicate"}
        table.add_row(Text("left out", style="yellow"), Text(_listed(refused)))
        return table


def spark(values: deque[float] | list[float]) -> str:
    """A line of small bars."""
    top = max(values, default=0.0) or 1.0
    return "".join(_BARS[min(8, round(8 * value / top))] for value in values)


def clock(seconds: float) -> str:
    """`1:02:03` or `2:03`."""
    whole = int(seconds)
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours}:{minutes:02d}:{whole % 60:02d}" if hours else f"{minutes}:{whole % 60:02d}"


def _listed(counts: dict[str, int]) -> str:
    some = sorted((item for item in counts.items() if item[1]), key=lambda item: -item[1])[:7]
    return "  ".join(f"{name} {count:,}" for name, count in some) or "none"
