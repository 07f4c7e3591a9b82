"""The live view of all services on a terminal: a row each, redrawn; elsewhere a line for each change."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from weft.cli.output import visible

if TYPE_CHECKING:
    from rich.console import Console
    from rich.panel import Panel

    from weft.system.state import Row, SystemState

NARROW = 100  # columns: below these `since` is left out
Watch = Callable[["SystemState"], None]


@contextmanager
def watching(home: str, *, quiet: bool) -> Iterator[Watch]:
    """What shows the state of the services to a person, until the end of the block."""
    if quiet:
        yield lambda _: None
    elif not sys.stderr.isatty():
        yield Lines()
    else:
        display = Display(home)
        try:
            yield display
        finally:
            display.close()


class Lines:
    """Says what changes."""

    def __init__(self) -> None:
        self._said: dict[str, str] = {}

    def __call__(self, state: SystemState) -> None:
        """A line for each service that is in another state than before."""
        for row in state.rows:
            text = f"{row.name}: {row.state}{', healthy' if row.healthy else ''}"
            if self._said.get(row.name, f"{row.name}: stopped") != text:
                self._said[row.name] = text
                why = f" ({row.last_error})" if row.last_error and not row.healthy else ""
                click.echo(f"weft: {text}{why}", err=True)
        if state.supervisor_error != self._said.get("", ""):
            self._said[""] = state.supervisor_error
            click.echo(f"weft: {visible(state.supervisor_error)}", err=True)


class Display:
    """Draws them; `close` takes it off the screen."""

    def __init__(self, home: str, console: Console | None = None) -> None:
        from rich.console import Console as Terminal
        from rich.live import Live

        from weft.cli.display import Silence

        self._home = home
        self._console = console or Terminal(stderr=True)
        self._live = Live(console=self._console, refresh_per_second=4, transient=True)
        self._silence = Silence(2) if console is None else None
        self._live.start()

    def __call__(self, state: SystemState) -> None:
        """Draws it."""
        self._live.update(self.picture(state))

    def close(self) -> None:
        """Ends the display."""
        self._live.stop()
        if self._silence is not None:
            self._silence.end()

    def picture(self, state: SystemState) -> Panel:
        """A table, and below it what is wrong with those that are not healthy."""
        from rich.console import Group
        from rich.panel import Panel as Frame
        from rich.table import Table
        from rich.text import Text

        names = ["service", "state", "healthy", "pid", "restarts"]
        names += [] if self._console.width < NARROW else ["since"]
        table = Table(*names, box=None, padding=(0, 2), show_edge=False, header_style="dim", expand=False)
        for row in state.rows:
            cells = [
                Text(row.name), Text(row.state, _style(row)), Text("yes" if row.healthy else "no", _style(row)),
                Text(str(row.pid or "-")), Text(str(row.restarts)), Text(row.since or "-"),
            ]  # fmt: skip
            table.add_row(*cells[: len(names)])
        notes = [
            Text(visible(f"{row.name}: {row.note}"), "dim" if row.healthy else "red", no_wrap=True, overflow="ellipsis")
            for row in state.rows
            if row.note
        ]
        if state.supervisor_error:
            notes.append(Text(visible(state.supervisor_error), "bold red"))
        healthy = sum(row.healthy for row in state.rows)
        title = f"weft · {healthy} of {len(state.rows)} services healthy"
        where = Text(visible(state.urls.get("api", self._home)), style="dim")
        return Frame(Group(table, *notes), title=title, subtitle=where, title_align="left", subtitle_align="left")


def _style(row: Row) -> str:
    if row.healthy:
        return "green"
    return "bold red" if row.state in ("failed", "orphaned", "unwatched") else "yellow"
