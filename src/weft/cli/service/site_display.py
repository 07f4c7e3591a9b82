"""The live display of all sites: a row for each; without a terminal a line for each change."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from weft.cli.terminal.live import ChangeLines, Column, Grid, Picture, Shower, Size, Styled, TextLine, showing
from weft.cli.terminal.output import columns, printable

if TYPE_CHECKING:
    from weft.jobs.sites.status import SiteStatus

COLUMNS = ("site", "state", "pages", "failed", "queued", "memory", "pages/s", "success", "next run (UTC)")
WIDE = 100  # characters of a terminal with room for all columns
_LEAST_WIDTHS = {"state": len("stopping"), "next run (UTC)": len("11-18 00:00")}
_NARROW_HEADS = {"next run (UTC)": "next (UTC)"}
_STYLES = {"running": "green", "waiting": "yellow", "stopping": "yellow", "paused": "bold red", "idle": "dim"}


def show_sites(*, quiet: bool) -> AbstractContextManager[Shower[Sequence[SiteStatus]]]:
    """Displays the sites."""
    return showing(sites_picture, ChangeLines(_site_changes), quiet=quiet)


def _site_changes(sites: Sequence[SiteStatus]) -> Iterator[tuple[str, str, str]]:
    for site in sites:
        why = f" ({site.health.message})" if site.state == "paused" else ""
        state = "" if site.state == "idle" else site.state
        yield site.name, state, f"weft: {site.name}: {site.state}, {site.pages:,} pages{why}"


def sites_picture(sites: Sequence[SiteStatus], size: Size) -> Picture:
    """A table of the sites, with notes below it."""
    # On a narrow terminal names are shortened, and other columns are not; the memory is left out.
    is_wide = size.width >= WIDE
    chosen = [number for number, name in enumerate(COLUMNS) if is_wide or name != "memory"]
    heads = [
        Column(
            name if is_wide else _NARROW_HEADS.get(name, name), _LEAST_WIDTHS.get(name, len(name)) if number else None
        )
        for number, name in enumerate(COLUMNS)
    ]
    rows = []
    for site in sites:
        row: list[str | Styled] = [*cells(site)]
        row[1] = Styled(site.state, _STYLES[site.state])
        rows.append([row[number] for number in chosen])
    running = sum(site.state == "running" for site in sites)
    note_lines = [TextLine(line, "red") for line in notes(sites)]
    title = f"weft sites · {running} of {len(sites)} running"
    return Picture([title], [Grid([heads[number] for number in chosen], rows), *note_lines])


def cells(site: SiteStatus) -> tuple[str, ...]:
    """The cells of a site's row."""
    rate = site.health.success_rate
    return (
        site.name, site.state, f"{site.pages:,}", f"{site.failed:,}", f"{site.queued:,}",
        f"{_mebibytes_text(site.memory_bytes)}/{_mebibytes_text(site.max_memory_bytes)}M" if site.memory_bytes else "-",
        f"{site.pages_per_s:.1f}" if site.pages_per_s else "-", "-" if rate is None else f"{rate:.0%}",
        time.strftime("%m-%d %H:%M", time.gmtime(site.next_at)) if site.next_at else "-",
    )  # fmt: skip


def _mebibytes_text(number: int) -> str:
    return f"{number / (1 << 20):,.0f}"


def notes(sites: Sequence[SiteStatus]) -> list[str]:
    """Notes on sites: what they wait for, problems, changes."""
    lines = []
    for site in sites:
        if site.waiting:
            lines.append(f"{site.name}: {site.waiting}")
        if site.health.message:
            lines.append(f"{site.name}: {site.health.message}")
    return lines


def table(sites: Sequence[SiteStatus]) -> str:
    """The whole display as plain text."""
    return "\n".join([*columns([COLUMNS, *map(cells, sites)]), *map(printable, notes(sites))])
