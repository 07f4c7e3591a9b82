"""The live display of all services: a row for each; without a terminal a line for each change."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from weft.cli.terminal.live import ChangeLines, Column, Grid, Picture, Shower, Size, Styled, TextLine, showing
from weft.cli.terminal.output import visible

if TYPE_CHECKING:
    from weft.system.state import ServiceRow, SystemState

NARROW = 100  # columns: narrower terminals leave `since` out


def show_services(home: str, *, quiet: bool) -> AbstractContextManager[Shower[SystemState]]:
    """Displays the state of the services."""
    return showing(lambda state, size: services_picture(state, size, home), ChangeLines(service_changes), quiet=quiet)


def service_changes(state: SystemState) -> Iterator[tuple[str, str, str]]:
    """The changes of the services for `ChangeLines`."""
    for row in state.rows:
        text = f"{row.name}: {row.state}{', healthy' if row.healthy else ''}"
        why = f" ({row.last_error})" if row.last_error and not row.healthy else ""
        yield row.name, "" if row.state == "stopped" else text, f"weft: {text}{why}"
    yield "", state.supervisor_error, f"weft: {visible(state.supervisor_error)}"


def services_picture(state: SystemState, size: Size, home: str) -> Picture:
    """A table of the services, with the problems of unhealthy ones below it."""
    names = ["service", "state", "healthy", "pid", "restarts", "since"][: 5 if size.width < NARROW else 6]
    rows = [
        (
            row.name, Styled(row.state, _style_of_row(row)), Styled("yes" if row.healthy else "no", _style_of_row(row)),
            str(row.pid or "-"), str(row.restarts), row.since or "-",
        )[: len(names)]
        for row in state.rows
    ]  # fmt: skip
    notes = [TextLine(f"{row.name}: {row.note}", "dim" if row.healthy else "red") for row in state.rows if row.note]
    if state.supervisor_error:
        notes.append(TextLine(state.supervisor_error, "bold red", wraps=True))
    title = f"weft · {sum(row.healthy for row in state.rows)} of {len(state.rows)} services healthy"
    return Picture([title], [Grid([Column(name) for name in names], rows, 4), *notes], state.urls.get("api", home))


def _style_of_row(row: ServiceRow) -> str:
    if row.healthy:
        return "green"
    return "bold red" if row.state in ("failed", "orphaned", "unwatched") else "yellow"
