"""Live displays: one mechanism for all commands; each command provides data, a `Picture`.

On a terminal a box on stderr is redrawn; elsewhere lines are written. Invariant: nothing else writes to the terminal
while the box is displayed, or its rows would be misplaced. So messages go through `say`, and typed characters,
including Ctrl-C, are not echoed. Every text is made `visible` here, since it may come from a page.
"""

from __future__ import annotations

import atexit
import os
import sys
import termios
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import click

from weft.cli.terminal.output import visible

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

State = TypeVar("State")
Shower = Callable[[State], None]
FRAME = 4  # columns that the frame of the box uses


class Styled(NamedTuple):
    """A text with the name of a rich style."""

    text: str
    style: str = ""


class TextLine(NamedTuple):
    """One or more lines; text that is too long is cut off, or wrapped."""

    text: str
    style: str = ""
    wraps: bool = False


class ProgressLine(NamedTuple):
    """A progress bar, with texts after it; `total` is None if it is not known."""

    total: float | None
    completed: float
    beside: Sequence[str] = ()


class NamedNumbers(NamedTuple):
    """Numbers with their names below them."""

    values: dict[str, str]


class Column(NamedTuple):
    """A column of a `Grid`; `least`: its minimum width in columns of the terminal."""

    head: str
    least: int | None = None
    is_right: bool = False
    wraps: bool = False


class Grid(NamedTuple):
    """A table; without a head if no column has one."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[str | Styled]]
    padding: int = 2


Part = TextLine | ProgressLine | NamedNumbers | Grid


class Picture(NamedTuple):
    """The contents of a box."""

    title: Sequence[str | Styled]
    parts: Sequence[Part]
    subtitle: str = ""


class Size(NamedTuple):
    """The size of the terminal."""

    width: int
    height: int


class NoEcho:
    """Switches the terminal's echo off until `end`; Ctrl-C and other control keys still work."""

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
            pass  # not a terminal

    def end(self) -> None:
        """Restores the terminal's settings."""
        if self._before is None:
            return
        before, self._before = self._before, None
        atexit.unregister(self.end)
        try:
            if os.tcgetpgrp(self._fd) == os.getpgrp():
                termios.tcsetattr(self._fd, termios.TCSADRAIN, before)
        except (OSError, termios.error):
            pass


class Box(Generic[State]):
    """A live box: call it with a state to display it; `close` erases the box, or leaves its last contents."""

    def __init__(
        self, picture: Callable[[State, Size], Picture], console: Console | None = None, *, remains: bool = False
    ) -> None:
        from rich.console import Console as Terminal
        from rich.live import Live

        self._picture = picture
        self._remains = remains
        self._console = console or Terminal(stderr=True)
        self._live = Live(console=self._console, refresh_per_second=4, transient=not remains)
        self._silence = NoEcho(2) if console is None else None
        self._live.start()

    def __call__(self, state: State) -> None:
        """Displays a state, at most a quarter of a second later."""
        self._live.update(rendered(self._picture(state, Size(*self._console.size))))

    def say(self, text: str) -> None:
        """Prints a line above the box."""
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def close(self) -> None:
        """Ends the display."""
        from rich.text import Text

        if not self._remains:
            # Live.stop() redraws the last frame uncropped: lines beyond the terminal's height would remain on the
            # screen.
            self._live.update(Text(), refresh=True)
        self._live.stop()
        if self._silence is not None:
            self._silence.end()


@contextmanager
def showing(
    picture: Callable[[State, Size], Picture],
    lines: Shower[State],
    *,
    quiet: bool,
    plain: bool = False,
    remains: bool = False,
) -> Iterator[Shower[State]]:
    """Displays states until the end of the block: in a box, or as lines if there is no terminal or `plain` is set;
    nothing if `quiet`."""
    if quiet:
        yield lambda _: None
    elif plain or not sys.stderr.isatty():
        yield lines
    else:
        box = Box(picture, remains=remains)
        try:
            yield box
        finally:
            box.close()


class ChangeLines(Generic[State]):
    """Prints a line for each change. `texts` yields (name, value, line): a line is printed if the value differs from
    the last one of that name."""

    def __init__(self, texts: Callable[[State], Iterable[tuple[str, str, str]]]) -> None:
        self._texts = texts
        self._last: dict[str, str] = {}

    def __call__(self, state: State) -> None:
        """Prints a line for each change; at first, names compare with the empty text."""
        for name, compared, line in self._texts(state):
            if self._last.get(name, "") != compared:
                self._last[name] = compared
                say(line)


class RegularLines(Generic[State]):
    """Prints a line every few seconds, and whenever `key` changes."""

    def __init__(
        self, text: Callable[[State], str], every_s: float, key: Callable[[State], object] = lambda _: None
    ) -> None:
        self._text = text
        self._every_s = every_s
        self._key = key
        self._last: object = None
        self._next = time.monotonic() + every_s

    def __call__(self, state: State) -> None:
        """Prints a line if it is due."""
        if self._key(state) != self._last or time.monotonic() >= self._next:
            self._last, self._next = self._key(state), time.monotonic() + self._every_s
            say(self._text(state))


def say(text: str) -> None:
    """Prints a line on stderr; errors such as a full disk or a closed pipe are ignored, since the work should
    continue."""
    try:
        click.echo(text, err=True)
    except OSError:
        pass


def rendered(picture: Picture) -> RenderableType:
    """Converts a picture to rich's objects."""
    from rich.console import Group
    from rich.panel import Panel
    from rich.text import Text

    title = Text.assemble(*((visible(one.text), one.style) for one in map(_plain_text, picture.title)))
    subtitle = Text(visible(picture.subtitle), style="dim") if picture.subtitle else None
    parts = [_RENDERERS[type(part)](part) for part in picture.parts]
    return Panel(Group(*parts), title=title, subtitle=subtitle, title_align="left", subtitle_align="left")


def _plain_text(text: str | Styled) -> Styled:
    return text if isinstance(text, Styled) else Styled(text)


def _render_line(line: TextLine) -> RenderableType:
    from rich.text import Text

    return Text(visible(line.text), line.style, no_wrap=not line.wraps, overflow=None if line.wraps else "ellipsis")


def _render_bar(bar: ProgressLine) -> RenderableType:
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    drawn = ProgressBar(
        total=bar.total,
        completed=bar.completed,
        pulse=bar.total is None,  # words: ok (rich's name)
    )
    # In a table, because a progress bar ends no line by itself, and text after it would be cut off.
    row = Table.grid(padding=(0, 2 if bar.beside else 0, 0, 0), expand=True)
    row.add_column(ratio=1)
    for _ in bar.beside:
        row.add_column(no_wrap=True)
    row.add_row(drawn, *bar.beside)
    return row


def _render_numbers(numbers: NamedNumbers) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(expand=True, padding=(0, 2))
    for _ in numbers.values:
        table.add_column(justify="center", no_wrap=True)
    table.add_row(*(Text(value, style="bold") for value in numbers.values.values()))
    table.add_row(*(Text(name, style="dim") for name in numbers.values))
    return table


def _render_grid(grid: Grid) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    heads = any(column.head for column in grid.columns)
    table = Table(box=None, padding=(0, grid.padding, 0, 0), show_edge=False, show_header=heads, header_style="dim")
    for column in grid.columns:
        table.add_column(
            column.head,
            no_wrap=not column.wraps,
            min_width=column.least,
            overflow="fold" if column.wraps else "ellipsis",
            justify="right" if column.is_right else "left",
        )
    for row in grid.rows:
        # Text objects, because text in square brackets would be parsed as markup
        table.add_row(*(Text(visible(cell.text), cell.style) for cell in map(_plain_text, row)))
    return table


_RENDERERS: dict[type, Callable[[Any], RenderableType]] = {
    TextLine: _render_line,
    ProgressLine: _render_bar,
    NamedNumbers: _render_numbers,
    Grid: _render_grid,
}


def clock(seconds: float) -> str:
    """A duration: `1:02:03` or `2:03`."""
    whole = int(seconds)
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours}:{minutes:02d}:{whole % 60:02d}" if hours else f"{minutes}:{whole % 60:02d}"
