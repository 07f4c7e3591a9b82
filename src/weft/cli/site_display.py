"""The live view of all sites on a terminal: a row each, redrawn; elsewhere a line for each change."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from weft.cli.output import shown, visible

if TYPE_CHECKING:
    from rich.console import Console
    from rich.panel import Panel

    from weft.jobs.sites.status import SiteStatus

Watch = Callable[[Sequence["SiteStatus"]], None]
COLUMNS = ("site", "state", "pages", "failed", "queued", "memory", "pages/s", "success", "next run (UTC)")
WIDE = 100  # characters of a terminal that has room for all of them
_LEAST = {"state": len("stopping"), "next run (UTC)": len("11-18 00:00")}
_NARROW = {"next run (UTC)": "next (UTC)"}
_STYLES = {"running": "green", "waiting": "yellow", "stopping": "yellow", "paused": "bold red", "idle": "dim"}


@contextmanager
def watching(*, quiet: bool) -> Iterator[Watch]:
    """What shows the sites to a person, until the end of the block."""
    if quiet:
        yield lambda _: None
    elif not sys.stderr.isatty():
        yield Lines()
    else:
        display = Display()
        try:
            yield display
        finally:
            display.close()


def cells(site: SiteStatus) -> tuple[str, ...]:
    """A site as a row of text."""
    rate = site.health.success_rate
    return (
        site.name, site.state, f"{site.pages:,}", f"{site.failed:,}", f"{site.queued:,}",
        f"{_mib(site.memory_bytes)}/{_mib(site.max_memory_bytes)}M" if site.memory_bytes else "-",
        f"{site.pages_per_s:.1f}" if site.pages_per_s else "-", "-" if rate is None else f"{rate:.0%}",
        time.strftime("%m-%d %H:%M", time.gmtime(site.next_at)) if site.next_at else "-",
    )  # fmt: skip


def _mib(number: int) -> str:
    return f"{number / (1 << 20):,.0f}"


def notes(sites: Sequence[SiteStatus]) -> list[str]:
    """What there is to say besides: who waits for whom, what is wrong, what changed."""
    found = []
    for site in sites:
        if site.waiting:
            found.append(f"{site.name}: {site.waiting}")
        if site.health.message:
            found.append(f"{site.name}: {site.health.message}")
    return found


def table(sites: Sequence[SiteStatus]) -> str:
    """All of it as plain text."""
    rows = [COLUMNS, *map(cells, sites)]
    widths = [max(len(row[place]) for row in rows) for place in range(len(COLUMNS))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([*lines, *map(shown, notes(sites))])


class Lines:
    """Says what changes."""

    def __init__(self) -> None:
        self._said: dict[str, str] = {}

    def __call__(self, sites: Sequence[SiteStatus]) -> None:
        """A line for each site that is in another state than before."""
        for site in sites:
            if self._said.get(site.name, "idle") != site.state:
                why = f" ({site.health.message})" if site.state == "paused" else ""
                click.echo(f"weft: {site.name}: {site.state}, {site.pages:,} pages{why}", err=True)
            self._said[site.name] = site.state


class Display:
    """Draws them; `close` takes it off the screen."""

    def __init__(self, console: Console | None = None) -> None:
        from rich.console import Console as Terminal
        from rich.live import Live

        from weft.cli.display import Silence

        self._live = Live(console=console or Terminal(stderr=True), refresh_per_second=4, transient=True)
        self._silence = Silence(2) if console is None else None
        self._live.start()

    def __call__(self, sites: Sequence[SiteStatus]) -> None:
        """Draws them."""
        self._live.update(self.picture(sites))

    def close(self) -> None:
        """Ends the display."""
        self._live.stop()
        if self._silence is not None:
            self._silence.end()

    def picture(self, sites: Sequence[SiteStatus]) -> Panel:
        """A table, and below it what there is to say."""
        from rich.console import Group
        from rich.panel import Panel as Frame
        from rich.table import Table
        from rich.text import Text

        drawn = Table(box=None, padding=(0, 1), show_edge=False, header_style="dim", expand=False)
        # On a narrow terminal the name is shortened, and the rest is not; the memory is in `weft sites status`.
        is_wide = self._live.console.width >= WIDE
        chosen = [number for number, name in enumerate(COLUMNS) if is_wide or name != "memory"]
        for number in chosen:
            name = COLUMNS[number]
            least = _LEAST.get(name, len(name)) if number else None
            head = name if is_wide else _NARROW.get(name, name)
            drawn.add_column(head, no_wrap=True, min_width=least, overflow="ellipsis")
        for site in sites:
            row = [Text(cell) for cell in cells(site)]
            row[1].stylize(_STYLES[site.state])
            drawn.add_row(*(row[number] for number in chosen))
        said = [Text(visible(line), style="red", no_wrap=True, overflow="ellipsis") for line in notes(sites)]
        running = sum(site.state == "running" for site in sites)
        title = f"weft sites · {running} of {len(sites)} running"
        return Frame(Group(drawn, *said), title=title, title_align="left")
