"""The display of a run: live on a terminal, a line every few seconds elsewhere. Always on stderr."""

from __future__ import annotations

import sys
import time
from collections import Counter, deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from weft.pipelines.pool.engine import WorkerView
from weft.pipelines.pool.events import Counts
from weft.pipelines.pool.itemlog import one_line
from weft.pipelines.pool.record import Result, Status

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

_LINE_EVERY_S = 5.0
_DRAW_EVERY_S = 0.2
_FAILURES_SHOWN = 5
_FAILURE_LINES = 20
_WORKERS_SHOWN = 16
_NUMBERS_WIDTH = 42
"""What the worker table's columns of numbers take, the space around them included."""
_STAGE_WIDTH = 20
_ECHO_WIDTH = 2
"""Left free at the right: an echoed ^C would begin a line of its own, and the picture be drawn one too low."""
_STYLES = {Status.FAILED: "red", Status.TIMEOUT: "yellow", Status.CRASHED: "bold red"}


class Watched(Protocol):
    """What a view needs of a stream."""

    def counts(self) -> Counts:
        """How far it is."""

    def workers(self) -> list[WorkerView]:
        """What each worker does now."""


class View(Protocol):
    """Shows a run."""

    def update(self, stream: Watched) -> None:
        """As often as you like."""

    def failed(self, result: Result) -> None:
        """An item that did not end well."""

    def close(self, stream: Watched) -> None:
        """The last picture."""


class NoView:
    """Says nothing."""

    def update(self, stream: Watched) -> None:
        """Nothing."""

    def failed(self, result: Result) -> None:
        """Nothing."""

    def close(self, stream: Watched) -> None:
        """Nothing."""


class LineView:
    """One line every few seconds, for logs and pipes."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._next_s = time.monotonic() + _LINE_EVERY_S
        self._failures = 0

    def update(self, stream: Watched) -> None:
        """A line when it is time."""
        if time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + _LINE_EVERY_S
            print(f"{self._title}: {sentence(stream.counts())}", file=sys.stderr, flush=True)

    def failed(self, result: Result) -> None:
        """The first ones; the results have them all."""
        self._failures += 1
        if self._failures <= _FAILURE_LINES:
            print(f"{self._title}: {failure_line(result)}", file=sys.stderr, flush=True)
        if self._failures == _FAILURE_LINES:
            print(f"{self._title}: further failures are only in the results", file=sys.stderr, flush=True)

    def close(self, stream: Watched) -> None:
        """The summary follows elsewhere."""


class LiveView:
    """Bar, rate, time left, a line per worker, the last failures."""

    def __init__(self, title: str) -> None:
        from rich.console import Console
        from rich.live import Live

        self._title = title
        self._failures: deque[Result] = deque(maxlen=_FAILURES_SHOWN)
        self._phases: Counter[str] = Counter()
        self._drawn_s = 0.0
        self._console = Console(stderr=True)
        self._live = Live(console=self._console, auto_refresh=False, transient=False)
        self._live.start()

    def update(self, stream: Watched) -> None:
        """Redraws when it is time."""
        now_s = time.monotonic()
        if now_s - self._drawn_s >= _DRAW_EVERY_S:
            self._drawn_s = now_s
            self._live.update(self._picture(stream.counts(), stream.workers()), refresh=True)

    def failed(self, result: Result) -> None:
        """Shown with the next picture."""
        self._failures.append(result)
        self._phases[result.failure_phase or "?"] += 1

    def close(self, stream: Watched) -> None:
        """The bar as it ended, without the workers, who have gone."""
        self._live.update(self._picture(stream.counts(), []), refresh=True)
        self._live.stop()

    def _picture(self, counts: Counts, workers: list[WorkerView]) -> Group:
        from rich.console import Group
        from rich.text import Text

        width = max(20, self._console.width - _ECHO_WIDTH)
        parts: list[Text | Table] = [Text(fit(self._title, width), style="bold"), self._bar(counts), _tallies(counts)]
        if self._phases:
            parts.append(Text(fit(f"failures by phase: {phases(self._phases)}", width), style="red"))
        if workers:
            room = self._console.height - len(parts) - len(self._failures) - 3
            parts.append(_worker_table(workers, width, max(1, min(room, _WORKERS_SHOWN))))
        parts += [_failure_text(result, width) for result in self._failures]
        return Group(*parts)

    def _bar(self, counts: Counts) -> Table:
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        row = Table.grid(padding=(0, 2))
        width = max(5, min(40, self._console.width - 40))
        bar = ProgressBar(total=counts.total, completed=counts.done, width=width, pulse=counts.total is None)
        row.add_row(
            bar, _share(counts), f"{counts.rate:,.0f}/s" if counts.rate >= 10 else f"{counts.rate:.1f}/s", _left(counts)
        )
        return row


def make_view(title: str, *, quiet: bool) -> View:
    """Live on a terminal, lines elsewhere, none if quiet."""
    if quiet:
        return NoView()
    return LiveView(title) if sys.stderr.isatty() else LineView(title)


def sentence(counts: Counts, *, over: bool = False) -> str:
    """How far it is, in words."""
    words = [f"{_share(counts)} done", f"{counts.ok} ok"]
    for name in ("skipped", "failed", "timeout", "crashed"):
        if number := getattr(counts, name):
            words.append(f"{number} {name}")
    if counts.resumed:
        words.append(f"{counts.resumed} from before")
    if not over:
        words += [f"{counts.rate:,.1f}/s", _left(counts)]
    return ", ".join(word for word in words if word)


def phases(counts: Mapping[str, int]) -> str:
    """How many failed in which phase, most first."""
    return ", ".join(f"{one_line(phase)} {count:,}" for phase, count in sorted(counts.items(), key=lambda one: -one[1]))


def failure_line(result: Result) -> str:
    """One line on an item that did not end well."""
    error = (result.error or "").splitlines()
    text = f"{result.item_id} {result.status} in {result.failure_phase}: {error[0] if error else ''}"
    text = one_line(text)
    return text if len(text) <= 200 else text[:199] + "…"


def _share(counts: Counts) -> str:
    if counts.total is None:
        return f"{counts.done:,}"
    percent = f" {counts.done * 100 // counts.total} %" if counts.total else ""
    return f"{counts.done:,}/{counts.total:,}{percent}"


def _left(counts: Counts) -> str:
    if counts.left_s is None or (counts.total is not None and counts.done >= counts.total):
        return ""
    minutes, seconds = divmod(round(counts.left_s), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02} left" if hours else f"{minutes}:{seconds:02} left"


def _tallies(counts: Counts) -> Text:
    from rich.text import Text

    text = Text(f"{counts.ok} ok", style="green")
    for name, style in (("skipped", "dim"), ("failed", "red"), ("timeout", "yellow"), ("crashed", "bold red")):
        if number := getattr(counts, name):
            text.append(f"  {number} {name}", style=style)
    return text


def fit(text: str, width: int) -> str:
    """The text in so many columns; its middle goes first, as long names differ at their ends."""
    from rich.cells import cell_len, set_cell_size

    if cell_len(text) <= width:
        return text
    head = max(0, width - 1) // 2
    tail = max(0, width - 1) - head
    return set_cell_size(text, head).rstrip() + "…" + set_cell_size(text[::-1], tail).rstrip()[::-1]


def _worker_table(workers: list[WorkerView], width: int, rows: int) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for name, justify in (("worker", "right"), ("pid", "right"), ("doing", "left"), ("stage", "left")):
        table.add_column(name, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    for name in ("for", "done", "MB"):
        table.add_column(name, justify="right", no_wrap=True)
    room = max(10, width - _NUMBERS_WIDTH)
    stage = min(_STAGE_WIDTH, room // 3)
    for view in workers[:rows]:
        # as Text, or a name in square brackets would be taken for markup
        table.add_row(*map(Text, _worker_row(view, room - stage, stage)))
    if len(workers) > rows:
        table.add_row("…", "", f"{len(workers) - rows} more")
    return table


def _worker_row(view: WorkerView, doing_width: int, stage_width: int) -> tuple[str, ...]:
    doing = "" if view.item_id is None else one_line(str(view.item_id))
    if view.state != "running":
        doing = view.state
    seconds = f"{view.seconds:.1f} s" if view.item_id is not None and view.seconds else ""
    return (
        str(view.number),
        str(view.pid or ""),
        fit(doing or "idle", doing_width),
        fit(one_line(view.stage or ""), stage_width),
        seconds,
        str(view.finished),
        f"{view.memory_mb:.0f}",
    )


def _failure_text(result: Result, width: int) -> Text:
    from rich.text import Text

    line = Text(failure_line(result), style=_STYLES.get(result.status, "red"))
    line.truncate(width, overflow="ellipsis")
    return line
