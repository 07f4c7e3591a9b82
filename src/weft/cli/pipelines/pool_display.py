"""The display of a pool's run: a progress bar, a row for each worker, and the last failures."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from contextlib import ExitStack
from typing import NamedTuple

from weft.cli.terminal.live import (
    FRAME,
    Column,
    Grid,
    Part,
    Picture,
    ProgressLine,
    RegularLines,
    Size,
    Styled,
    TextLine,
    clock,
    say,
    showing,
)
from weft.pipelines.pool.engine.run_request import WorkerView
from weft.pipelines.pool.events import PoolCounts
from weft.pipelines.pool.record import Result, Status
from weft.pipelines.pool.view import WatchedRun
from weft.pipelines.pool.worker.item_log import one_line

_LINE_EVERY_S = 5.0
_MOST_FAILURES = 5
_FAILURE_LINES = 20
_MOST_WORKERS = 16
_NUMBERS_WIDTH = 42
"""The width of the worker table's numeric columns, with their spacing."""
_STAGE_WIDTH = 20
_STYLES = {Status.FAILED: "red", Status.TIMEOUT: "yellow", Status.CRASHED: "bold red"}
_TALLY_STYLES = {"ok": "green", "skipped": "dim", "failed": "red", "timeout": "yellow", "crashed": "bold red"}


class RunState(NamedTuple):
    """The progress of a run."""

    counts: PoolCounts
    workers: list[WorkerView]


class RunView:
    """Displays a run under a title, until `show_end`."""

    def __init__(self, title: str, *, quiet: bool) -> None:
        self.picture = RunPicture(title)
        lines = RegularLines[RunState](lambda state: f"{title}: {sentence(state.counts)}", _LINE_EVERY_S)
        self._title = title
        self._failures = 0
        self._stack = ExitStack()
        self._show = self._stack.enter_context(showing(self.picture, lines, quiet=quiet, remains=True))
        self._has_lines = self._show is lines

    def update(self, run: WatchedRun) -> None:
        """Displays the current progress; may be called at any rate."""
        self._show(RunState(run.counts(), run.workers()))

    def failed(self, result: Result) -> None:
        """Adds a failed item: the last ones are in the display; without a terminal the first ones are printed as
        lines."""
        self.picture.failed(result)
        self._failures += 1
        if self._has_lines and self._failures <= _FAILURE_LINES:
            say(f"{self._title}: {failure_line(result)}")
        if self._has_lines and self._failures == _FAILURE_LINES:
            say(f"{self._title}: further failures are only in the results")

    def show_end(self, run: WatchedRun) -> None:
        """Displays the bar in its final state, without workers; without a terminal the last line is the caller's
        summary."""
        if not self._has_lines:
            self._show(RunState(run.counts(), []))
        self._stack.close()


class RunPicture:
    """Formats the display of a run; keeps the last failures."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._failures: deque[Result] = deque(maxlen=_MOST_FAILURES)
        self._phases: Counter[str] = Counter()

    def failed(self, result: Result) -> None:
        """Adds a failure, for the next picture."""
        self._failures.append(result)
        self._phases[result.failure_phase or "?"] += 1

    def __call__(self, state: RunState, size: Size) -> Picture:
        """The display of a state."""
        counts, width = state.counts, max(20, size.width - FRAME)
        rate = f"{counts.rate:,.0f}/s" if counts.rate >= 10 else f"{counts.rate:.1f}/s"
        tallies = [Styled(f"{number} {name}", style) for name, style in _TALLY_STYLES.items()
                   if (number := getattr(counts, name)) or name == "ok"]  # fmt: skip
        parts: list[Part] = [
            ProgressLine(counts.total, counts.done, (_share_text(counts), rate, _time_left_text(counts))),
            Grid([Column("") for _ in tallies], [tallies]),
        ]
        if self._phases:
            parts.append(TextLine(fit(f"failures by phase: {phases(self._phases)}", width), "red"))
        if state.workers:
            # minus the frame, the table's head, and the cursor's line
            room = size.height - len(parts) - len(self._failures) - 4
            parts.append(_worker_grid(state.workers, width, max(1, min(room, _MOST_WORKERS))))
        parts += [TextLine(failure_line(result), _STYLES.get(result.status, "red")) for result in self._failures]
        return Picture([fit(self._title, width - 4)], parts)


def sentence(counts: PoolCounts, *, over: bool = False) -> str:
    """The progress in words."""
    words = [f"{_share_text(counts)} done", f"{counts.ok} ok"]
    for name in ("skipped", "failed", "timeout", "crashed"):
        if number := getattr(counts, name):
            words.append(f"{number} {name}")
    if counts.resumed:
        words.append(f"{counts.resumed} from before")
    if not over:
        words += [f"{counts.rate:,.1f}/s", _time_left_text(counts)]
    return ", ".join(word for word in words if word)


def phases(counts: Mapping[str, int]) -> str:
    """The number of failures in each phase, most frequent first."""
    return ", ".join(f"{one_line(phase)} {count:,}" for phase, count in sorted(counts.items(), key=lambda one: -one[1]))


def failure_line(result: Result) -> str:
    """One line about an item that has failed."""
    error = (result.error or "").splitlines()
    text = f"{result.item_id} {result.status} in {result.failure_phase}: {error[0] if error else ''}"
    text = one_line(text)
    return text if len(text) <= 200 else text[:199] + "…"


def _share_text(counts: PoolCounts) -> str:
    if counts.total is None:
        return f"{counts.done:,}"
    percent = f" {counts.done * 100 // counts.total} %" if counts.total else ""
    return f"{counts.done:,}/{counts.total:,}{percent}"


def _time_left_text(counts: PoolCounts) -> str:
    if counts.left_s is None or (counts.total is not None and counts.done >= counts.total):
        return ""
    return f"{clock(round(counts.left_s))} left"


def fit(text: str, width: int) -> str:
    """Shortens a text to a width; its middle is removed, because long names differ at their ends."""
    from rich.cells import cell_len, set_cell_size

    if cell_len(text) <= width:
        return text
    head = max(0, width - 1) // 2
    tail = max(0, width - 1) - head
    return set_cell_size(text, head).rstrip() + "…" + set_cell_size(text[::-1], tail).rstrip()[::-1]


def _worker_grid(workers: list[WorkerView], width: int, rows: int) -> Grid:
    room = max(10, width - _NUMBERS_WIDTH)
    stage = min(_STAGE_WIDTH, room // 3)
    drawn = [_worker_row(view, room - stage, stage) for view in workers[:rows]]
    if len(workers) > rows:
        drawn.append(("…", "", f"{len(workers) - rows} more"))
    names = ("worker", "pid", "doing", "stage", "for", "done", "MB")
    return Grid([Column(name, is_right=name not in ("doing", "stage")) for name in names], drawn)


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
